"""Dataclasses as JSON objects: every field is a key, and reading checks keys and types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
OMIT_NONE = {"omit_none": True}  # metadata of a field that is not written while it is None
SCALARS: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (float, int), bool: (bool,)}
NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class JsonMismatch(ValueError):
    """The JSON does not have the form of the dataclass; the message says where and why."""


def to_json(value: Any) -> Any:
    """Turn a dataclass, and everything in it, into dictionaries, lists and scalars."""
    if is_dataclass(value):
        items = [(f, getattr(value, f.name)) for f in fields(value)]
        return {f.name: to_json(v) for f, v in items if v is not None or not f.metadata.get("omit_none")}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[T], value: Any, where: str = "") -> T:
    """Build a dataclass from parsed JSON.

    Args:
        kind: The dataclass. Its fields may be scalars, ``Any``, other dataclasses, and lists, dictionaries or
            ``X | None`` of these. A field with a default may be missing.
        value: The parsed JSON.
        where: The path of ``value`` in the file, for error messages.

    Returns:
        The dataclass. Unknown or missing keys and wrong types raise ``JsonMismatch``.
    """
    found: T = _read(kind, value, where)
    return found


def _read(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _read(next(a for a in args if a is not NoneType), value, where)
    if kind in SCALARS:
        if not _fits(value, SCALARS[kind]):
            raise JsonMismatch(f"{where or 'the file'} must be {NAMES[kind]}, not {value!r}")
        return value
    if origin is list:
        return _read_list(args[0], value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise JsonMismatch(f"{where} must be an object")
        return {key: _read(args[1], item, f"{where}.{key}") for key, item in value.items()}
    return _read_object(kind, value, where)


def _read_list(kind: Any, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise JsonMismatch(f"{where} must be a list")
    numbers = (int, float, NoneType) if kind == (float | None) else ()
    if numbers and all(_fits(item, numbers) for item in value):  # curves are long: one check for all
        return list(value)
    return [_read(kind, item, f"{where}[{i}]") for i, item in enumerate(value)]


def _read_object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise JsonMismatch(f"{where or 'the file'} must be an object")
    at = f"{where}." if where else ""
    known = {f.name: f for f in fields(kind)}
    for name in value:
        if name not in known:
            raise JsonMismatch(f"{at}{name} is unknown")
    for name, f in known.items():
        if name not in value and f.default is MISSING and f.default_factory is MISSING:
            raise JsonMismatch(f"{at}{name} is missing")
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], item, f"{at}{name}") for name, item in value.items()})


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)

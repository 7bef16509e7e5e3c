"""The flags of a run, made from the fields of ``Config``, so that each default and meaning is stated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.method.config import FIELDS
from holdfast.method.config_text import read_config, setting_from_text, settings_from_pairs

F = TypeVar("F", bound=Callable[..., Any])


def flag(f: Field[Any]) -> click.Option:
    """Make the option for one setting. Its value is None if the user does not set it."""
    kind = str(f.type)
    name = "--" + f.name.replace("_", "-")
    default = f.default
    shown = "" if default is None or default is False else f"  [default: {'on' if default is True else default}]"
    choices = f.metadata.get("choices")
    switch = kind.startswith("bool") and not f.metadata["words"]
    names = [f"{name}/--no-{name[2:]}"] if switch else [name]
    kinds = {"int": "N|N-M" if f.metadata["ranges"] else "N", "flo": "X", "str": "TEXT", "boo": "[SUM]"}
    metavar = "|".join([*(["X"] if kind.startswith("float") else []), *choices]) if choices else kinds.get(kind[:3])
    return click.Option(
        [f.name, *names],
        type=None if switch else str,
        default=None,
        metavar=None if switch else metavar,
        help=f.metadata["doc"] + shown,
    )


def settings(*names: str, of: Mapping[str, Field[Any]] = FIELDS) -> Callable[[F], F]:
    """Add flags for some settings, by default for all but the method, to a command's function."""
    chosen = names or tuple(n for n in of if n != "method")

    def decorate(function: F) -> F:
        for name in reversed(chosen):
            option = flag(of[name])
            params = function.__dict__.setdefault("__click_params__", [])
            params.append(option)
        return function

    return decorate


def given(
    flags: dict[str, Any],
    config: Path | None = None,
    pairs: tuple[str, ...] = (),
    of: Mapping[str, Field[Any]] = FIELDS,
) -> dict[str, Any]:
    """Return what the user set: the config file, overridden by ``--set``, overridden by flags.

    Args:
        flags: The values of the command's flags; None where a flag was not used.
        config: A TOML file of settings.
        pairs: The texts of ``--set KEY=VALUE``.
        of: The settings that flags may name.

    Returns:
        The settings by name.
    """
    values: dict[str, Any] = read_config(config) if config else {}
    values |= settings_from_pairs(pairs)
    for name, value in flags.items():
        if value is not None:
            values[name] = setting_from_text(name, value, of) if isinstance(value, str) else value
    return values

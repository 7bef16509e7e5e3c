"""The flags of a run, made from the fields of ``Config``, so that each default and meaning is stated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.core.errors import HoldfastError
from holdfast.method.config import FIELDS
from holdfast.method.config_text import read_config, setting_from_text, settings_from_pairs

F = TypeVar("F", bound=Callable[..., Any])


class WholeNumber(click.ParamType):
    """A whole number, with our wording of the error."""

    name = "integer"

    def __init__(self, low: int | None = None) -> None:
        self.low = low

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or (self.low is not None and number < self.low):
            least = "" if self.low is None else f" of at least {self.low}"
            name = param.opts[-1] if param else "the number"
            raise HoldfastError(f"{name} must be a whole number{least}, not {value}")
        return number


def flag(f: Field[Any], usual: Any = None) -> click.Option:
    """Make the option for one setting. Its value is None if the user does not set it.

    Args:
        f: The setting.
        usual: What the command takes in place of the setting's default, as its help says.

    Returns:
        The option.
    """
    kind = str(f.type)
    name = "--" + f.name.replace("_", "-")
    default = f.default if usual is None else usual
    shown = "" if default is None or default is False else f"  [default: {'on' if default is True else default}]"
    choices = f.metadata.get("choices")
    switch = kind.startswith("bool") and not f.metadata["words"]
    names = [f"{name}/--no-{name[2:]}"] if switch else [name]
    if "repeated" in f.metadata["roles"]:
        return click.Option([f.name, name.removesuffix("s")], multiple=True, metavar="FILE", help=f.metadata["doc"])
    kinds = {"int": "N|N-M" if f.metadata["ranges"] else "N", "flo": "X", "str": "TEXT", "boo": "[SUM]"}
    metavar = "|".join([*(["X"] if kind.startswith("float") else []), *choices]) if choices else kinds.get(kind[:3])
    return click.Option(
        [f.name, *names],
        type=None if switch else str,
        default=None,
        metavar=None if switch else metavar,
        help=f.metadata["doc"] + shown,
    )


def settings(
    *names: str, of: Mapping[str, Field[Any]] = FIELDS, usual: Mapping[str, Any] | None = None
) -> Callable[[F], F]:
    """Add flags for some settings to a command's function.

    Args:
        *names: The settings; by default all but the method.
        of: The settings that there are.
        usual: What the command takes in place of their defaults, where it does.

    Returns:
        What adds them.
    """
    names = names or tuple(n for n in of if n != "method")
    chosen = [n for n in names if "recorded" not in of[n].metadata["roles"]]

    def decorate(function: F) -> F:
        for name in reversed(chosen):
            option = flag(of[name], (usual or {}).get(name))
            params = function.__dict__.setdefault("__click_params__", [])
            params.append(option)
        return function

    return decorate


def imports(function: F) -> F:
    """Add the flag ``--import`` to the function of a command that makes no run; ``import_all`` imports its files."""
    return settings("imports")(function)


def import_all(files: Sequence[str]) -> None:
    """Import the user's files of code that flags name."""
    from holdfast.runs.file_imports import import_named

    for file in files:
        import_named(Path(file))


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
        value = (", ".join(value) or None) if isinstance(value, tuple) else value
        if value is not None:
            values[name] = setting_from_text(name, value, of) if isinstance(value, str) else value
    return values

"""Settings as text: TOML files, ``--set KEY=VALUE``, and the flags of a command line."""

from __future__ import annotations

import json
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import Field
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, unknown
from holdfast.method.config import FIELDS, Config
from holdfast.method.renamed import modern

# Of config.toml. Format 1, which has no number, may use part names that were changed since. Since 3, the file has a
# checksum. In 3 and in 4, some settings and parts have a new meaning (see holdfast/runs/meaning_changes.py).
FORMAT = 4
CHECKSUM, CHECKSUM_SINCE = "checksum", 3  # the key, and the first format that has it


def config_to_toml(config: Config) -> str:
    """Write a config as TOML; settings without a value are left out, and a checksum comes last."""
    values = {"format": FORMAT} | config.set_values()
    text = "".join(f"{name} = {toml_value(value)}\n" for name, value in values.items())
    return text + f"{CHECKSUM} = {toml_value(checksum(text))}\n"


def checksum(text: str) -> str:
    """Return the checksum of the settings in a text."""
    return f"{zlib.crc32(text.encode()):08x}"


def toml_value(value: Any) -> str:
    """Write a value as TOML, which differs from JSON in surrogate pairs and DEL only."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_config(path: Path, stored: bool = False) -> dict[str, Any]:
    """Read the settings in a TOML file.

    Args:
        path: The file.
        stored: Whether it is a run's own file, which must be exactly as it was written; part names of format 1 are
            translated. Any other file may be edited and uses today's names.

    Returns:
        The settings by name.
    """
    version, values = _read(path, stored)
    for name in values:
        if name not in FIELDS:
            raise unknown("setting", name, FIELDS, f"in {path}")
    if stored and version == 1 and isinstance(values.get("method"), str):
        values["method"] = modern(values["method"])
    return values


def config_format(path: Path) -> int:
    """Return the format of a config on disk."""
    return _read(path)[0]


def _read(path: Path, stored: bool = False) -> tuple[int, dict[str, Any]]:
    """Return the format and the values of a TOML file, as they are written there."""
    try:
        text = path.read_text(encoding="utf-8")
        values: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise HoldfastError(f"cannot read the config {path}: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HoldfastError(f"the config {path} is not valid TOML: {error}; fix the file") from error
    version = values.pop("format", 1)
    if version not in range(1, FORMAT + 1):
        raise HoldfastError(
            f"the config {path} has format {version}, but this version reads up to {FORMAT}: upgrade Holdfast"
        )
    written = values.pop(CHECKSUM, None)
    if stored and version >= CHECKSUM_SINCE and written != checksum(text.rpartition(f"{CHECKSUM} = ")[0]):
        raise HoldfastError(f"the config {path} was changed since it was written: restore it")
    return version, values


def setting_from_text(name: str, text: str, known: Mapping[str, Field[Any]] = FIELDS) -> Any:
    """Convert the text of a setting to the type of its field; a text that does not fit is left to the field's check."""
    if name not in known:
        raise unknown("setting", name, known)
    kind = str(known[name].type)
    nothing = ("none",) if "decided" in known[name].metadata["roles"] else ("none", "")
    if "None" in kind and text.lower() in nothing:
        return None
    if kind.startswith("bool"):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return words.get(text.lower(), text)
    try:
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return text if text in known[name].metadata["choices"] else float(text)
    except ValueError:
        return text
    return text


def settings_from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read settings written as ``KEY=VALUE``.

    >>> settings_from_pairs(["lr=0.5", "eval-every = 2"])
    {'lr': 0.5, 'eval_every': 2}
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise HoldfastError(f"--set {pair}: expected KEY=VALUE, such as --set lr=0.5")
        name = name.strip().replace("-", "_")
        values[name] = setting_from_text(name, text.strip())
    return values


def flag_words(name: str, value: Any) -> list[str]:
    """Write a setting as words of a command line.

    >>> flag_words("eval_every", 2), flag_words("graphs", False)
    (['--eval-every', '2'], ['--no-graphs'])
    """
    flag = name.replace("_", "-")
    if "repeated" in FIELDS[name].metadata["roles"]:
        return [word for item in value.split(", ") for word in (f"--{flag.removesuffix('s')}", item)]
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", setting_to_text(value)]


def setting_to_text(value: Any) -> str:
    """Write a value so that reading it gives the same value again.

    >>> setting_to_text(1.0), setting_to_text(0.1), setting_to_text(0.10000002), setting_to_text(None)
    ('1', '0.1', '0.10000002', 'none')
    """
    from holdfast.core.expression import show

    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(float(value))
    return value if isinstance(value, str) else show(value)

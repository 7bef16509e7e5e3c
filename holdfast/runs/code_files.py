"""The user's files of code that a run names: in ``model``, ``data``, ``metric`` and ``imports``.

A config names a file by its name alone, ``net.py:build``; its setting ``files`` says where the file is and what its
checksum was when the run was started. So a run means the same wherever its files are moved to. A file is executed from
the place that the user named, if it still has that checksum. The run folder keeps a copy for people: it is never
executed unless a user names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.user_files import checksum, file_name, file_reference, read_source
from holdfast.method.config import Config
from holdfast.runs.run_files import COPIES

# Settings that may name a function in a file, and what it makes or is.
FUNCTIONS = {"model": "model", "data": "data set", "metric": "metric"}
NAMING = (*FUNCTIONS, "imports")  # settings that may name files


class CodeFile(NamedTuple):
    """A file of code, as a run knows it."""

    name: str
    checksum: str
    path: str


def code_files(config: Config) -> dict[str, CodeFile]:
    """Return the files that a config has recorded, by name."""
    lines = [line.split(" ", 2) for line in (config.files or "").splitlines()]
    if any(len(line) != 3 for line in lines):
        raise HoldfastError("files is recorded by the library, as lines of name, checksum and path: leave it out")
    return {name: CodeFile(name, check, path) for name, check, path in lines}


def recorded(config: Config) -> Config:
    """Return a config in which files have their names alone, and ``files`` says where they are and what they hold.

    The checksum of a file of client speeds is recorded as well. A name alone that ``files`` knows stands for that file;
    any other is looked for in the current folder.
    """
    before, found = code_files(config), dict[str, CodeFile]()

    def record(file: str) -> str:
        known = before.get(file)
        path = Path(known.path) if known else Path(file).expanduser().absolute()
        new = known or CodeFile(file_name(path), checksum(read_source(path)), str(path))
        _add(found, new)
        return new.name

    speeds = config.speeds_checksum
    if config.client_speeds is not None and speeds is None:
        from holdfast.speeds.speed_file import checksum as speeds_checksum  # here, so that commands start quickly

        speeds = speeds_checksum(config.client_speeds)
    return _with_files(config, renamed(vars(config), record) | {"speeds_checksum": speeds}, found.values())


def with_files_of(config: Config, others: Iterable[Config]) -> Config:
    """Return a config that has also recorded the files of others."""
    found = code_files(config)
    for file in [file for other in others for file in code_files(other).values()]:
        _add(found, file)
    return _with_files(config, {}, found.values())


def placed(config: Config) -> Config:
    """Return a config that names each file by its path; nothing is read."""
    known = code_files(config)
    return config.changed(**renamed(vars(config), lambda file: known[file].path if file in known else file))


def located(config: Config) -> Config:
    """Return a config that names each file by its path, once all files are there and unchanged."""
    for file in code_files(config).values():
        _check(file, f"since the run was started: restore it (the run folder keeps a copy in {COPIES}/{file.name})")
    return placed(config)


def for_resume(stored: Config, asked: Mapping[str, Any], folder: Path) -> tuple[Config, dict[str, Any]]:
    """Let a run be resumed with files in other places, as long as they are the same files.

    Args:
        stored: The config of the run on disk.
        asked: The settings that are given now.
        folder: The run folder, which may come from somebody else: files in it are used only if ``asked`` names them.

    Returns:
        The stored config with the new places, and the settings with files by their names alone.
    """
    known, given = code_files(stored), set[str]()

    def move(file: str) -> str:
        path = Path(file).expanduser().absolute()
        name = path.name
        if name not in known or (file == name and not path.exists()):
            return name if name in known else file
        moved = CodeFile(name, known[name].checksum, str(path))
        _check(moved, "from the file that the run was started with: give that one, or start over with --overwrite")
        known[name] = moved
        given.add(name)
        return name

    values = {name: value for name, value in asked.items() if name != "files"}
    values |= renamed(values, move)
    for file in known.values():
        path = Path(file.path)
        if file.name not in given and (not path.is_absolute() or path.resolve().is_relative_to(folder.resolve())):
            raise HoldfastError(
                f"the run in {folder} wants to execute {path}, which is part of that folder: if you trust it, name it "
                "with --model, --data, --metric or --import"
            )
    return _with_files(stored, {}, known.values()), values


def refuse_changed_files(stored: Config, asked: Config, where: Path) -> None:
    """Raise an error if a run on disk was started with another content of a file than it would have today."""
    now, before = code_files(asked), stored.speeds_checksum
    if stored.client_speeds == asked.client_speeds and before is not None and before != asked.speeds_checksum:
        raise HoldfastError(
            f"{asked.client_speeds} has changed since the run in {where} was started: restore it, or start over with "
            "--overwrite"
        )
    for name, file in code_files(stored).items():
        if name in now and now[name].checksum != file.checksum:
            raise HoldfastError(
                f"{now[name].path} has changed since the run in {where} was started: restore it, or start over with "
                "--overwrite"
            )


def sources(config: Config) -> dict[str, bytes]:
    """Return the content of each file, by name."""
    return {file.name: read_source(Path(file.path)) for file in code_files(config).values()}


def write_copies(config: Config, folder: Path) -> None:
    """Keep a copy of each file in a run folder, to be read and never executed."""
    for name, source in sources(config).items():
        (folder / COPIES).mkdir(exist_ok=True)
        write_atomically(folder / COPIES / name, source)


def in_folder(config: Config, folder: Path, keep: bool = False) -> Config:
    """Return a config whose files are in another folder, under their own names.

    Args:
        config: The config.
        folder: The folder.
        keep: Whether files that are still where the config says stay there.

    Returns:
        The config with the new places.
    """

    def there(file: CodeFile) -> bool:
        path = Path(file.path)
        return keep and path.is_absolute() and path.is_file() and checksum(read_source(path)) == file.checksum

    files = code_files(config).values()
    return _with_files(config, {}, [f if there(f) else f._replace(path=str(folder / f.name)) for f in files])


def listed(imports: str | None) -> list[str]:
    """Return the files of the setting ``imports``."""
    return [file.strip() for file in (imports or "").split(",") if file.strip()]


def renamed(values: Mapping[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """Return those settings that name files, with each file renamed."""
    new: dict[str, Any] = {}
    for setting, kind in FUNCTIONS.items():
        text = values.get(setting)
        reference = file_reference(text, kind) if isinstance(text, str) else None
        if reference is not None:
            new[setting] = str(reference._replace(file=rename(reference.file)))
    if values.get("imports"):
        new["imports"] = ", ".join(rename(file) for file in listed(values["imports"]))
    return new


def _add(files: dict[str, CodeFile], file: CodeFile) -> None:
    if files.setdefault(file.name, file).checksum != file.checksum:
        raise HoldfastError(f"two different files are called {file.name}: rename one of them")


def _with_files(config: Config, values: Mapping[str, Any], files: Iterable[CodeFile]) -> Config:
    lines = "\n".join(" ".join(file) for file in files)
    return config.changed(**values, files=lines or None)


def _check(file: CodeFile, remedy: str) -> None:
    """Refuse a file that is not there or has another content; ``remedy`` completes "has changed"."""
    path = Path(file.path)
    if not path.is_file():
        setting = "its new place with --model, --data, --metric or --import"
        raise HoldfastError(f"{path} is missing, which the run was started with: restore it, or give {setting}")
    if checksum(read_source(path)) != file.checksum:
        raise HoldfastError(f"{path} {'differs' if remedy.startswith('from') else 'has changed'} {remedy}")

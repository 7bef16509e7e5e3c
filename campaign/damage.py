"""Damage each file of a run and of a comparison: a command refuses it in one line, or ends with the same outcome."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from campaign.cases import SMALL, Part, difference, remove, undisturbed
from campaign.process import Ended, holdfast
from holdfast.core.files import ASIDE
from holdfast.core.folder_lock import LOCK

KINDS = ("a flipped bit", "another digit", "cut in half", "emptied", "deleted", "a folder in its place")
RUN = ("run", "scaffold", *SMALL, "--states", "disk")
KEPT = "; what was recorded is kept: "  # in the line of a command that the system stopped
COMPARISON = ("compare", "fedavg", "scaffold", *SMALL, "--rounds", "2")


def damage_runs(part: Part) -> None:
    sound, _ = undisturbed(part.folder / "sound", *RUN, "--rounds", "3")
    longer, _ = undisturbed(part.folder / "longer", *RUN, "--rounds", "5")
    commands = {
        "resumed": (("run", "--resume", "--quiet"), sound),
        "resumed for more rounds": (("run", "--resume", "--quiet", "--rounds", "5"), longer),
        "report": (("report",), None),
    }
    damage_folders(part, sound, commands)


def damage_comparisons(part: Part) -> None:
    sound, _ = undisturbed(part.folder / "sound", *COMPARISON, "--seeds", "1")
    longer, _ = undisturbed(part.folder / "longer", *COMPARISON, "--seeds", "2")
    commands = {
        "compared again": ((*COMPARISON, "--seeds", "1"), sound),
        "compared with one more seed": ((*COMPARISON, "--seeds", "2"), longer),
        "report": (("report",), None),
    }
    damage_folders(part, sound, commands)


def damage_folders(part: Part, sound: Path, commands: dict[str, tuple[tuple[str, ...], Path | None]]) -> None:
    """Damage one file per case; ``commands`` has, by name, the arguments of a command and a folder with its outcome."""
    cases = shuffled(part.random, sound, list(commands))
    for place in part.rounds():
        file, kind, name = next(cases)
        shutil.copytree(sound, place)
        damage(part.random, place / file, kind)
        args, whole = commands[name]
        before = contents(place)
        ended = holdfast(*args, place) if whole is None else holdfast(*args, "--out", place)
        problem = judge(ended, place, whole) or changes(ended, place, before)
        if problem:
            part.find(f"{file}, {kind}, then {name}", problem)
        else:
            part.count("refused" if ended.refused else "rebuilt or not needed")


def shuffled(numbers: random.Random, sound: Path, commands: list[str]) -> Iterator[tuple[Path, str, str]]:
    """Yield every file with every kind of damage and every command, in random order, again and again.

    Reports take seconds: a quarter of them is kept.
    """
    files = [path.relative_to(sound) for path in sorted(sound.rglob("*")) if path.is_file()]
    while True:
        cases = list(product(files, KINDS, commands))
        numbers.shuffle(cases)
        yield from (case for case in cases if case[2] != "report" or numbers.random() < 0.25)


def damage(numbers: random.Random, path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "a flipped bit":
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
        path.write_bytes(data)
    elif kind == "another digit":
        places = [i for i, byte in enumerate(data) if byte in b"0123456789"] or [0]
        place = numbers.choice(places)
        data[place] = numbers.choice([digit for digit in b"0123456789" if digit != data[place]])
        path.write_bytes(data)
    elif kind == "cut in half":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "emptied":
        path.write_bytes(b"")
    else:
        remove(path)
        if kind == "a folder in its place":
            path.mkdir()


def judge(ended: Ended, place: Path, whole: Path | None) -> str:
    """Return what is wrong with the end of a command; a report has no outcome to compare."""
    if ended.refused:
        return ""
    if ended.code or "Traceback" in ended.err:
        return str(ended)
    if whole is None:
        return ""
    try:
        for table in place.glob("compare.json"):
            json.loads(table.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"exit code 0, but compare.json is unreadable: {error}"
    return difference(place, whole)


def contents(place: Path) -> dict[str, bytes | None]:
    """Return every file of a folder with its content, without lock files."""
    paths = (path for path in sorted(place.rglob("*")) if path.name != LOCK)
    return {str(path.relative_to(place)): path.read_bytes() if path.is_file() else None for path in paths}


def changes(ended: Ended, place: Path, before: dict[str, bytes | None]) -> str:
    """Return what a command that was refused has changed in a folder.

    One that the system stopped on its way keeps what it has recorded, and says so; it leaves no half-written file.
    """
    now = contents(place)
    names = sorted(name for name in before.keys() | now.keys() if before.get(name, 0) != now.get(name, 0))
    if KEPT in ended.err:
        names = [name for name in names if name.endswith(ASIDE)]
    return f"refused, but changed {', '.join(names)}: {ended}" if ended.refused and names else ""

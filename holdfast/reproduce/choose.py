"""The rows and columns that a user asks for: by number, by name or by a part of a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

from holdfast.comparison.plan import words
from holdfast.errors import HoldfastError

NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")  # 3, or 3-5
CLOSEST = 6  # names in an error
LIKE = 0.6  # from 0 to 1: less is another name, not a slip


def choose(kind: str, texts: Sequence[str], tables: Mapping[str, Sequence[str]], paper: str) -> dict[str, list[int]]:
    """What is asked for of the names in each table; all when nothing is asked. A text must be in one table at least.

    >>> choose("column", ["2-3", "40%"], {"1": ["0%", "10%", "20%", "40%"], "2": ["FedAvg", "40%"]}, "fedbug")
    {'1': [1, 2, 3], '2': [1]}
    """
    if not texts:
        return {id: list(range(len(names))) for id, names in tables.items()}
    found: dict[str, set[int]] = {id: set() for id in tables}
    known = {name.lower() for names in tables.values() for name in names}
    for text in texts:
        for item in items(text, known):
            hits = matching(item, tables)
            if not any(hits.values()):
                raise no_such(kind, item, tables, paper)
            found = {id: found[id] | hits[id] for id in tables}
    return {id: sorted(rows) for id, rows in found.items()}


def items(text: str, known: set[str]) -> list[str]:
    """The items of a list. Names have commas of their own: only numbers and whole names make a list."""
    listed = words(text)
    single = text.strip().lower() in known
    whole = all(NUMBERS.fullmatch(item) or item.lower() in known for item in listed)
    return listed if whole and not single else [text]


def matching(text: str, tables: Mapping[str, Sequence[str]]) -> dict[str, set[int]]:
    """The names that are the text; if none is, those with these numbers; else with these words; else with this part.

    >>> matching("IID", {"1": ["MNIST, IID", "MNIST, Non-IID"]}), matching("mni", {"1": ["MNIST, IID"]})
    ({'1': {0}}, {'1': {0}})
    """
    low = text.strip().lower()
    numbers = NUMBERS.fullmatch(low)
    first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, 0)
    word = re.compile(rf"(?<![\w.-]){re.escape(low)}(?![\w.-])")
    looser: list[Callable[[int, str], bool]] = [lambda i, name: name == low]
    if numbers and last <= max(map(len, tables.values())):
        looser.append(lambda i, name: first <= i + 1 <= last)
    elif low and not numbers:
        looser += [lambda i, name: bool(word.search(name)), lambda i, name: low in name]
    found: dict[str, set[int]] = {}
    for fits in looser:
        found = {id: {i for i, name in enumerate(names) if fits(i, name.lower())} for id, names in tables.items()}
        if any(found.values()):
            break
    return found


def no_such(kind: str, text: str, tables: Mapping[str, Sequence[str]], paper: str) -> HoldfastError:
    many = len(tables) > 1
    where = "in the tables" if many else f"in table {next(iter(tables))}"
    most = max(map(len, tables.values()))
    if NUMBERS.fullmatch(text.strip()) or not most:
        hint = f"{'they have at most' if many else 'it has'} {most}"
    else:
        numbered = {name: f"{i} {name}" for names in tables.values() for i, name in enumerate(names, start=1)}
        hint = nearest(text, {name: name for name in numbered} if many else numbered)
    return HoldfastError(f"no {kind} {text!r} {where}; {hint}; {see(paper)}")


def see(paper: str) -> str:
    return f"see: holdfast reproduce {paper} --list"


def nearest(text: str, names: Mapping[str, str]) -> str:
    """The few names, as they are to be shown, that are like a text or have a piece that is; else the first few.

    >>> nearest("fedporx", {"IID, FedAvg": "1 IID, FedAvg", "IID, FedProx": "2 IID, FedProx"})
    'the closest: 2 IID, FedProx'
    """

    def likeness(name: str) -> float:
        pieces = (name, *re.split(r", | \+ ", name))
        return max(difflib.SequenceMatcher(None, text.lower(), piece.lower()).ratio() for piece in pieces)

    near = sorted((name for name in names if likeness(name) >= LIKE), key=likeness, reverse=True)
    listed = "; ".join(names[name] for name in (near or list(names))[:CLOSEST])
    return f"the closest: {listed}" if near else f"the first: {listed}"

"""The rows and columns that a user asks for: by number, by name or by a part of a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

from holdfast.comparison.plan import words
from holdfast.core.errors import HoldfastError

NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")  # 3, or 3-5
RANGE = re.compile(r"\d+\s*(-|\.\.|:|to\b)")  # what may be meant as 3-5
CLOSEST = 3  # names in an error that has a guess
FEW = 8  # names that an error lists whole; of more it lists the pieces, any of which may be asked for
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
    """One line: what of the text is wrong, how much there is, or which names are closest."""
    names = list(dict.fromkeys(name for own in tables.values() for name in own))
    text = wrong(text, {name.lower() for name in names})
    many = len(tables) > 1
    where = "in the tables" if many else f"in table {next(iter(tables))}"
    most = max(map(len, tables.values()))
    numbers = NUMBERS.fullmatch(text)
    if numbers and int(numbers[1]) > int(numbers[2] or numbers[1]):
        hint = f"a range goes up: {numbers[2]}-{numbers[1]}"
    elif numbers or not most:
        hint = f"{'they have at most' if many else 'it has'} {most}"
    elif RANGE.match(text) and not like(text, names):
        hint = "a range is two numbers, such as 2-5"
    elif many and not like(text, names):
        hint = f"they have {len(names)} of them"
    else:
        hint = nearest(text, names)
    return HoldfastError(f"no {kind} {text!r} {where}; {hint}; {see(paper)}")


def wrong(text: str, known: set[str]) -> str:
    """The first item that is nothing, of a list with some that are; else the whole text, a name with commas."""
    bad = [item for item in words(text) if not NUMBERS.fullmatch(item) and item.lower() not in known]
    return bad[0] if 0 < len(bad) < len(words(text)) else text.strip()


def see(paper: str) -> str:
    return f"see: holdfast reproduce {paper} --list"


def nearest(text: str, names: Sequence[str]) -> str:
    """The few names, or pieces of names, that are like a text, the best first; else what there is.

    >>> nearest("fedporx", ["MNIST, IID, FedAvg", "MNIST, IID, FedProx"]), nearest("Venus", ["IID, FedAvg"])
    ('the closest: FedProx', 'known: IID, FedAvg')
    """
    near = like(text, names)
    known = names if len(names) <= FEW else list(dict.fromkeys(piece for name in names for piece in pieces(name)))
    return f"the closest: {'; '.join(near)}" if near else f"known: {'; '.join(known)}"


def like(text: str, names: Sequence[str]) -> list[str]:
    """Names and pieces of names that a text may be a slip of; a piece chooses all names that have it."""
    all_of = {piece.lower(): piece for name in names for piece in (*pieces(name), name)}
    return [all_of[low] for low in difflib.get_close_matches(text.lower(), all_of, CLOSEST, LIKE)]


def pieces(name: str) -> list[str]:
    """
    >>> pieces("MNIST + Linear, Non-IID, 20 clients")
    ['MNIST', 'Linear', 'Non-IID', '20 clients']
    """
    return re.split(r", | \+ ", name)

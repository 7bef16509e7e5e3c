"""The rows and columns that a user requests: by number, by name or by part of a name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence

from holdfast.comparison.plan import words
from holdfast.core.errors import HoldfastError

NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")  # 3, or 3-5
RANGE = re.compile(r"\d+\s*(-|\.\.|:|to\b)")  # what may be meant as a range
CLOSEST = 3  # guesses in an error
FEW = 8  # an error lists up to this many names in full, otherwise the parts that they consist of
LIKE = 0.6  # from 0 to 1: less similar texts are other names, not typing errors


def choose(kind: str, texts: Sequence[str], tables: Mapping[str, Sequence[str]], paper: str) -> dict[str, list[int]]:
    """Find the requested rows or columns in some tables.

    Args:
        kind: ``row`` or ``column``.
        texts: What the user requests; each must be in at least one table. Nothing requests everything.
        tables: The names of the rows or columns of every table.
        paper: The paper that an error refers to.

    Returns:
        The indices for every table.

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
    """Split a list. Names may contain commas, so that only numbers and whole names make a list."""
    listed = words(text)
    single = text.strip().lower() in known
    whole = all(NUMBERS.fullmatch(item) or item.lower() in known for item in listed)
    return listed if whole and not single else [text]


def matching(text: str, tables: Mapping[str, Sequence[str]]) -> dict[str, set[int]]:
    """Return the names that equal the text; if none does, those with these numbers, else these words, else this part.

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
    """Return the error for a row or column that no table has.

    Args:
        kind: ``row`` or ``column``.
        text: What the user requests.
        tables: The names of the rows or columns of every table.
        paper: The paper that the error refers to.

    Returns:
        One line with the closest names.
    """
    names = list(dict.fromkeys(name for each in tables.values() for name in each))
    text = wrong(text, {name.lower() for name in names})
    many = len(tables) > 1
    where = "in the tables" if many else f"in table {next(iter(tables))}"
    most = max(map(len, tables.values()))
    numbers = NUMBERS.fullmatch(text)
    if numbers and int(numbers[1]) > int(numbers[2] or numbers[1]):
        hint = f"write the range as {numbers[2]}-{numbers[1]}"
    elif numbers or not most:
        hint = f"{'they have at most' if many else 'it has'} {most} {kind}{'s' * (most != 1)}"
    elif RANGE.match(text) and not like(text, names):
        hint = "write a range as two numbers, such as 2-5"
    elif many and not like(text, names):
        hint = f"they have {len(names)} different {kind}s"
    else:
        hint = nearest(text, names)
    return HoldfastError(f"no {kind} {text!r} {where}; {hint}; {see(paper)}")


def wrong(text: str, known: set[str]) -> str:
    """Return the first wrong item of a list; the whole text if all are wrong, as it may be a name with commas."""
    bad = [item for item in words(text) if not NUMBERS.fullmatch(item) and item.lower() not in known]
    return bad[0] if 0 < len(bad) < len(words(text)) else text.strip()


def see(paper: str) -> str:
    """Return where a user finds all names."""
    return f"see: holdfast reproduce {paper} --list"


def nearest(text: str, names: Sequence[str]) -> str:
    """Return the names, or parts of names, that are most similar to a text; if there are none, what there is.

    >>> nearest("fedporx", ["MNIST, IID, FedAvg", "MNIST, IID, FedProx"]), nearest("Venus", ["IID, FedAvg"])
    ('closest: FedProx', 'known: IID, FedAvg')
    """
    near = like(text, names)
    known = names if len(names) <= FEW else list(dict.fromkeys(piece for name in names for piece in pieces(name)))
    return f"closest: {'; '.join(near)}" if near else f"known: {'; '.join(known)}"


def like(text: str, names: Sequence[str]) -> list[str]:
    """Return names, and parts of names, that a text may misspell; a part selects all names that contain it."""
    all_of = {piece.lower(): piece for name in names for piece in (*pieces(name), name)}
    return [all_of[low] for low in difflib.get_close_matches(text.lower(), all_of, CLOSEST, LIKE)]


def pieces(name: str) -> list[str]:
    """Split a name into its parts.

    >>> pieces("MNIST + Linear, Non-IID, 20 clients")
    ['MNIST', 'Linear', 'Non-IID', '20 clients']
    """
    return re.split(r", | \+ ", name)

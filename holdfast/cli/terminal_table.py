"""A table for a narrow terminal: a number is never broken; where all is too wide, the columns it can spare go."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from holdfast.comparison.stats import NOT_SEEN
from holdfast.comparison.tables import TextTable

WORDS = ("compared with",)  # columns of words, which may break between them
SHORT = {NOT_SEEN: "none seen"}  # what is said in fewer letters
GAP = 2  # between columns
ENOUGH, LEAST = 16, 12  # letters in a line of a method's name: parts up to there stay whole; where nothing else fits


@dataclass(frozen=True)
class FittedTable:
    """What is left of a table, and the width of each of its columns; ``without`` names those left out."""

    table: TextTable
    widths: list[int]
    without: list[str]


def fit(table: TextTable, width: int) -> FittedTable:
    """The table within ``width`` letters: as it is, in fewer words, with brackets on lines of their own, or without
    some columns."""
    for whole in (table, shortened(table)):
        if total(widths(whole)) <= width:
            return FittedTable(whole, widths(whole), [])
    table, without = stacked(shortened(table)), list[str]()
    spare = [name for name in table.spare if name in table.head]
    while spare and total(least(table)) > width:
        without.append(spare.pop(0))
        table = leave_out(table, without[-1])
    fitting = squeezed(table, width)
    rows = [[folded(row[0], fitting[0]), *row[1:]] for row in table.rows]
    return FittedTable(replace(table, rows=rows), fitting, without)


def widths(table: TextTable) -> list[int]:
    """The longest line of every column."""
    columns = zip(table.head, *table.rows, strict=True)
    return [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]


def least(table: TextTable) -> list[int]:
    """As narrow as every column should be: names of methods break between their parts, words between them, numbers
    never."""
    found = widths(table)
    for i, name in enumerate(table.head):
        if name in WORDS:
            found[i] = max(len(word) for row in (table.head, *table.rows) for word in row[i].split())
    parts = [len(piece.rstrip()) for row in table.rows for piece in pieces(row[0], ENOUGH)]
    return [min(found[0], max([LEAST, *parts])), *found[1:]]


def total(columns: list[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def squeezed(table: TextTable, width: int) -> list[int]:
    """Widths that fit: the widest column that can give way does so first."""
    found, floor = widths(table), least(table)
    if total(floor) > width:
        floor[0] = min(floor[0], LEAST)
    while total(found) > width:
        can = [i for i in range(len(found)) if found[i] > floor[i]]
        if not can:
            break
        found[max(can, key=lambda i: found[i])] -= 1
    return found


def shortened(table: TextTable) -> TextTable:
    return replace(table, rows=[[SHORT.get(cell, cell) for cell in row] for row in table.rows])


def stacked(table: TextTable) -> TextTable:
    """What stands in brackets after a number goes below it."""
    rows = [[row[0], *(cell.replace(" (", "\n(") for cell in row[1:])] for row in table.rows]
    return replace(table, rows=rows)


def folded(name: str, width: int) -> str:
    """A method's name in lines, broken after a plus or a space; within a part only where it is too long by itself.

    >>> folded("fedbug(0.4)+scaffold", 13)
    'fedbug(0.4)+\\nscaffold'
    >>> folded("fedavg, split=dirichlet(0.3, balanced=true)", 16)
    'fedavg, split=\\ndirichlet(0.3,\\nbalanced=true)'
    """
    lines = [""]
    for piece in pieces(name, width):
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def pieces(name: str, width: int) -> list[str]:
    """What a name is broken into, its marks at the ends: parts, and what is in one that is longer than a line."""
    parts = re.split(r"(?<=[+ ])", name)
    within = [re.split(r"(?<=[=(,])", part) if len(part.rstrip()) > width else [part] for part in parts]
    return [piece for found in within for piece in found]


def leave_out(table: TextTable, name: str) -> TextTable:
    at = table.head.index(name)
    head, *rows = ([*row[:at], *row[at + 1 :]] for row in (table.head, *table.rows))
    return replace(table, head=head, rows=rows)

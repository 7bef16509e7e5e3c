"""Tables for narrow terminals: numbers never wrap, and columns that do not fit are left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.comparison.stats import NOT_SEEN
from holdfast.comparison.text_table import TextTable
from holdfast.core.terminal_text import folded, pieces

WORDS = ("compared with",)  # columns of words, which may wrap
SHORT = {NOT_SEEN: "none seen"}  # shorter words for narrow terminals
GAP = 2  # between columns
ENOUGH, LEAST = 16, 12  # width of a method's name: parts up to ENOUGH stay whole; LEAST where nothing else fits


@dataclass(frozen=True)
class FittedTable:
    """A table that fits.

    Attributes:
        table: What is left of the table.
        widths: The width of each column.
        left_out: The columns that are left out.
    """

    table: TextTable
    widths: list[int]
    left_out: list[str]


def fit(table: TextTable, width: int) -> FittedTable:
    """Fit a table into ``width`` characters: as it is, with shorter words, with brackets on separate lines, or without
    some columns."""
    for whole in (table, shortened(table)):
        if total(widths(whole)) <= width:
            return FittedTable(whole, widths(whole), [])
    table, left_out = stacked(shortened(table)), list[str]()
    spare = [name for name in table.spare if name in table.head]
    while spare and total(least(table)) > width:
        left_out.append(spare.pop(0))
        table = leave_out(table, left_out[-1])
    fitting = squeezed(table, width)
    rows = [[folded(row[0], fitting[0]), *row[1:]] for row in table.rows]
    return FittedTable(replace(table, rows=rows), fitting, left_out)


def widths(table: TextTable) -> list[int]:
    """Return the length of the longest line of every column."""
    columns = zip(table.head, *table.rows, strict=True)
    return [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]


def least(table: TextTable) -> list[int]:
    """Return the least width of every column: methods wrap between parts, text between words, numbers never."""
    columns = widths(table)
    for i, name in enumerate(table.head):
        if name in WORDS:
            columns[i] = max(len(word) for row in (table.head, *table.rows) for word in row[i].split())
    parts = [len(piece.rstrip()) for row in table.rows for piece in pieces(row[0], ENOUGH)]
    return [min(columns[0], max([LEAST, *parts])), *columns[1:]]


def total(columns: list[int]) -> int:
    return sum(columns) + GAP * (len(columns) - 1)


def squeezed(table: TextTable, width: int) -> list[int]:
    """Return widths that fit, by narrowing the widest column that can be narrowed first."""
    columns, floor = widths(table), least(table)
    if total(floor) > width:
        floor[0] = min(floor[0], LEAST)
    while total(columns) > width:
        flexible = [i for i in range(len(columns)) if columns[i] > floor[i]]
        if not flexible:
            break
        columns[max(flexible, key=lambda i: columns[i])] -= 1
    return columns


def shortened(table: TextTable) -> TextTable:
    return replace(table, rows=[[SHORT.get(cell, cell) for cell in row] for row in table.rows])


def stacked(table: TextTable) -> TextTable:
    """Move brackets after a number to the next line."""
    rows = [[row[0], *(cell.replace(" (", "\n(") for cell in row[1:])] for row in table.rows]
    return replace(table, rows=rows)


def leave_out(table: TextTable, name: str) -> TextTable:
    at = table.head.index(name)
    head, *rows = ([*row[:at], *row[at + 1 :]] for row in (table.head, *table.rows))
    return replace(table, head=head, rows=rows)

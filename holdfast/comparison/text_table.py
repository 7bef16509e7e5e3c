"""A table of text, and what all tables of a comparison write alike."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.comparison.study_schema import Study, StudyEntry


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Attributes:
        title: Its heading.
        head: The names of the columns; the first is the method.
        rows: The cells.
        spare: Columns to leave out where space is short, the first one first.
    """

    title: str
    head: list[str]
    rows: list[list[str]]
    spare: tuple[str, ...] = ()


def label_of(entry: StudyEntry) -> str:
    """Return the name of an entry with the marks that a reader must see."""
    marks = [" (EXPLODED)"] * bool(entry.exploded) + [" (LEAK)"] * entry.leaks_test_data
    return "".join([entry.label, *marks])


def percent_sign(study: Study) -> str:
    """Return what follows the heading of a column of scores."""
    return " %" if study.percent else ""

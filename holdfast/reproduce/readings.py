"""What the readings of a paper do to a cell: its settings, its method and its measure.

A reading is a list of choices, made in order. The plain reading makes none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.comparison.part_sweeps import changed
from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import Call, parse
from holdfast.core.user_files import file_reference
from holdfast.method.config import RIVALS
from holdfast.reproduce.paper import PLAIN, Choice, Paper, PaperRow, PaperTable, Reading

ALONE = "only: "  # starts the name of a reading that makes one choice by itself, to see what that is worth
TERMS = ("data", "split", "model", "augment")  # settings whose values consist of terms, beside the method


def reading_named(paper: Paper, name: str) -> Reading:
    """Return a paper's reading; ``plain`` is one of every paper."""
    readings = {r.name: r for r in every_reading(paper)}
    if name not in readings:
        raise unknown("reading", name, readings, f"of {paper.name}")
    return readings[name]


def every_reading(paper: Paper) -> tuple[Reading, ...]:
    """Return the readings of a paper, the plain one first."""
    return Reading(PLAIN, (), "the settings of the paper's file alone"), *paper.reading


def one_by_one(reading: Reading) -> list[Reading]:
    """Return a reading for each choice of another one: that choice by itself."""
    return [Reading(f"{ALONE}{name}", (name,)) for name in reading.choices]


def choices_of(paper: Paper, reading: Reading) -> list[Choice]:
    """Return the choices that a reading makes, in its order."""
    known = {choice.name: choice for choice in paper.choice}
    return [known[name] for name in reading.choices]


def concerns(choice: Choice, table: PaperTable, row: PaperRow, data: str) -> bool:
    """Tell whether a choice is about a row.

    Args:
        choice: The choice.
        table: The table.
        row: The row.
        data: The data set of the row, as its settings name it.

    Returns:
        Whether table, row and data set are among those that the choice names.
    """
    in_table = not choice.tables or table.id in choice.tables
    in_row = not choice.rows or any(whole_words(text, row.name) for text in choice.rows)
    return in_table and in_row and choice.data in ("", data_name(data))


def data_name(text: str) -> str:
    """Return the name of a data set without its parameters."""
    return text if file_reference(text, "data set") else parse(text)[0].name


def merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge layers of settings: later ones override earlier ones, also by choosing the other setting of a pair."""
    values: dict[str, Any] = {}
    for layer in layers:
        for pair in RIVALS:
            if any(layer.get(name) is not None for name in pair):
                values = {k: v for k, v in values.items() if k not in pair}
        values |= layer
    return values


def whole_words(text: str, name: str) -> bool:
    """Tell whether a name holds a text as whole words: ``CIFAR-10`` is not in ``CIFAR-100``."""
    return bool(re.search(rf"(?<![\w.-]){re.escape(text)}(?![\w.-])", name, re.IGNORECASE))


def made(choice: Choice, values: dict[str, Any], method: str) -> tuple[dict[str, Any], str]:
    """Make a choice.

    Args:
        choice: The choice.
        values: The settings of a cell.
        method: Its method.

    Returns:
        The settings and the method that the cell has with it.
    """
    values = merged([values, choice.set])
    texts = {name: values[name] for name in TERMS if isinstance(values.get(name), str)} | {"method": method}
    texts = {name: chosen_terms(choice, text) if needs_terms(choice, text) else text for name, text in texts.items()}
    method = texts.pop("method")
    return values | texts, method


def needs_terms(choice: Choice, text: str) -> bool:
    """Tell whether a text may hold a term that the choice changes; only such texts are read and written again."""
    return any(name in text for name in (*choice.add, *choice.replace))


def chosen_terms(choice: Choice, text: str) -> str:
    """Return a sum of terms with those that the choice replaces, and the arguments that it adds.

    >>> chosen_terms(Choice("", "", add={"dirichlet": "balanced=true"}), "dirichlet(0.3)+noise(0.1)")
    'dirichlet(0.3, balanced=true)+noise(0.1)'
    >>> chosen_terms(Choice("", "", replace={"sam": "sam(0.01)"}), "fedcm(0.1)+sam(0.5)")
    'fedcm(0.1)+sam(0.01)'
    """
    calls = []
    written = parse(text)
    if not {call.name for call in written} & {*choice.add, *choice.replace}:
        return text  # as it was written
    for call in written:
        new = parse(choice.replace[call.name]) if call.name in choice.replace else [call]
        calls += [with_arguments(c, choice.add[c.name]) if c.name in choice.add else c for c in new]
    return "+".join(map(str, calls))


def with_arguments(call: Call, text: str) -> Call:
    """Return a call with further named arguments, which replace those of the same parameters."""
    (more,) = parse(f"{call.name}({text})")
    if more.args:
        raise HoldfastError(f"cannot add {text!r} to {call.name}: write name=value")
    for name, value in more.kwargs.items():
        call = changed(call, call.name, name, value)
    return call


def applied(
    choices: Sequence[Choice], table: PaperTable, row: PaperRow, values: dict[str, Any], method: str
) -> tuple[dict[str, Any], str, str]:
    """Make all choices that concern a cell, in order.

    Args:
        choices: The choices of a reading.
        table: The table.
        row: The row.
        values: The settings of the cell.
        method: Its method.

    Returns:
        Its settings, its method, and what is measured instead; an empty text if that stays as it is.
    """
    measure = ""
    for choice in choices:
        if concerns(choice, table, row, values.get("data", "digits")):
            values, method = made(choice, values, method)
            measure = choice.measure or measure
    return values, method, measure

"""All verdicts in one table: a line for every claim."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.comparison.score_text import NONE
from holdfast.comparison.table_texts import markdown_table
from holdfast.reproduce.claims import Verdict, claims, shown_table, swapped, verdicts
from holdfast.reproduce.gains import Gain, control_gains, gains
from holdfast.reproduce.markdown import test_counts
from holdfast.reproduce.reading_tables import counted_rows, points, points_of
from holdfast.reproduce.table_schema import TableRecord

HEADINGS = ["paper, table", "claim", "verdict", "ours against printed, in points", "readings"]


def verdict_table(tables: Sequence[TableRecord]) -> str:
    """Return a line for every claim, and one for our variants where they were run."""
    rows = []
    for t in claims(tables):
        first, second = verdicts(tables, t)
        rows.append([label(t), t.claim, *verdict_cells(tables, t, first, {})])
        if second:
            line = verdict_cells(tables, t, second, swapped(t))
            rows.append([f"{label(t)}, our variant", "the same", *line])
    return markdown_table(HEADINGS, rows)


def label(t: TableRecord) -> str:
    """Return the name of a table, with its scale and changed settings if these are not the paper's."""
    scale = [] if t.scale == "full" else [f"{t.scale} scale"]
    return ", ".join([t.name, t.table, *scale, *(f"{k} = {v}" for k, v in t.changed.items())])


def verdict_sections(tables: Sequence[TableRecord]) -> list[str]:
    """Return the verdicts on the tables of a folder as a section; none if nothing is in the paper's setting."""
    judged = [t for t in tables if t.reproduction and t.claim]
    return [f"## Verdicts\n\n{verdict_table(judged)}\n"] if claims(judged) else []


def verdict_cells(tables: Sequence[TableRecord], of: TableRecord, v: Verdict, swap: dict[str, str]) -> list[str]:
    """Return the verdict, our numbers against the printed ones, and the readings used, for one line.

    Args:
        tables: All tables.
        of: The table, under any reading.
        v: The verdict on its claim.
        swap: Our variants by the columns whose place they take; empty for the published columns.

    Returns:
        Three cells of the line.
    """
    shown = shown_table(tables, of, v)
    counts = test_counts(v.outcome) if v.outcome else ""
    found = [*map(gain_text, gains(shown, swap)), *([] if swap else first_control(shown))]
    return [f"**{v.words}**" + (f" ({counts})" if counts else ""), "; ".join(found) or NONE, readings_text(v, shown)]


def readings_text(v: Verdict, shown: TableRecord) -> str:
    """Return the reading that decides, and the verdicts under the others that reach the baseline's level."""
    text = shown.reading.assumptions.removeprefix("reading ")
    return "; ".join([text, *(f"under “{t.reading.name}”: {o.words}" for t, o in v.others)])


def gain_text(g: Gain) -> str:
    """Return a difference: ours with its interval, and the printed one."""
    ours = f"ours {points(g.ours, g.unit)}" if g.ours else "not run"
    rows = f", {counted_rows(g.rows)}" if g.ours else ""
    printed = "" if g.printed is None else f", printed {points_of(g.printed, g.unit)}"
    return f"{g.better} over {g.than}: {ours}{rows}{printed}"


def first_control(t: TableRecord) -> list[str]:
    """Say what the first control that was run reaches, beside the first method that the claim tests."""
    texts = [
        f"the control {g.better} reaches {points(g.ours, g.unit)} against {g.than}, {counted_rows(g.rows)}"
        for g in control_gains(t)
        if g.ours is not None
    ]
    return texts[:1]

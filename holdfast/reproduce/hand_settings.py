"""Settings given by hand must not make one row of a table the run of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.core.errors import HoldfastError
from holdfast.method.config import RIVALS, with_role
from holdfast.reproduce.cells import Cell, Setup, TableSelection, cells
from holdfast.reproduce.paper import Paper
from holdfast.reproduce.readings import TERMS, data_name


def refuse_mixed_rows(setup: Setup, selections: Sequence[TableSelection]) -> None:
    """Refuse settings that concern no requested row, or that give two different cells of a table the same run.

    Args:
        setup: The paper, its reading, the scale and the user's settings.
        selections: The requested rows and columns.
    """
    given = {k: v for k, v in setup.changed.items() if k not in with_role("place")}
    if not given:
        return
    plain = replace(setup, changed={})
    if "data" in given:
        requested = [cell for s in selections for cell in cells(plain, s)]
        known = {data_name(cell.config.data) for cell in requested}
        if data_name(given["data"]) not in known:
            raise HoldfastError(
                f"data={given['data']} is for rows of {data_name(given['data'])}, and the requested rows are of "
                f"{', '.join(sorted(known))}: a row keeps its data set; request other rows, or leave it out"
            )
    if alike(setup.paper, set(given)):
        return
    said = ", ".join(f"{k}={v}" for k, v in given.items())
    for s in selections:
        whole = TableSelection.whole(s.table)
        pair = merged_pair(cells(plain, whole), cells(setup, whole))
        if pair:
            raise HoldfastError(
                f"{said} would make {pair[0]!r} and {pair[1]!r} of table {s.table.id} the same run: leave it out, or "
                "write a reading (see docs/reproduce.md)"
            )


def alike(paper: Paper, names: set[str]) -> bool:
    """Tell whether no two cells of a table can differ in these settings, since nothing below the paper sets them."""
    names = names.union(*(pair for pair in RIVALS if names & {*pair}))
    layers = [layer for t in paper.table for layer in (t.set, *(r.set for r in t.row), *(c.set for c in t.columns))]
    layers += [choice.set for choice in paper.choice]
    return not names & {*TERMS} and not any(names & layer.keys() for layer in layers)


def merged_pair(before: Sequence[Cell], after: Sequence[Cell]) -> tuple[str, str] | None:
    """Return the labels of two cells that had different runs before and have the same one after; None if none do."""
    first: dict[str, Cell] = {}  # by the folder that cells have after, the first one and what it had before
    for old, new in zip(before, after, strict=True):
        other = first.setdefault(new.folder, old)
        if other.folder != old.folder and not (old.absent or other.absent):
            return other.label, old.label
    return None

"""How much better one column is than another, printed and ours, over all rows that were run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.comparison.stats import paired
from holdfast.comparison.study_schema import PairedDifference
from holdfast.reproduce.baseline_levels import baselines
from holdfast.reproduce.expectations import ALL, Expectation
from holdfast.reproduce.table_schema import CellRecord, TableRecord

CellPair = tuple[CellRecord, CellRecord]


@dataclass(frozen=True)
class Gain:
    """A difference between two columns.

    Attributes:
        better: The column that the claim calls better, or its variant.
        than: The other one.
        ours: The mean difference of our runs over the rows, with its interval over seeds; None if nothing was run.
        printed: That of the published numbers, over the same rows; None if some are not printed.
        rows: How many rows these are.
        unit: Of all numbers.
    """

    better: str
    than: str
    ours: PairedDifference | None
    printed: float | None
    rows: int
    unit: str


def gains(t: TableRecord, swapped: dict[str, str]) -> list[Gain]:
    """Return what a claim is about: each method that it tests against the baseline, or else against its first rival.

    Args:
        t: The table.
        swapped: Our variants by the columns whose place they take; empty for the published columns.

    Returns:
        The differences, of methods of which one is enough, in the order of the claim.
    """
    found: dict[str, str] = {}
    for e in map(Expectation.parse, t.expect):
        rival = next(iter(baselines(t)), "") if e.right == ALL else e.right
        if e.bound is None and rival in t.columns and (e.left not in found or rival in baselines(t)):
            found[e.left] = rival
    named = [(swapped.get(a, a), swapped.get(b, b)) for a, b in found.items()]
    return [gain(t, a, b) for a, b in named if {a, b} <= {*t.columns}]


def control_gains(t: TableRecord) -> list[Gain]:
    """Return how each control of a table compares with the first method that the claim tests, in the order of both."""
    tested = next((g.better for g in gains(t, {})), None)
    return [] if tested is None else [gain(t, name, tested) for name in t.controls]


def gain(t: TableRecord, better: str, than: str) -> Gain:
    """Return the difference between two columns of a table."""
    pairs = [(t.column(row, better), t.column(row, than)) for row in t.rows]
    run = [pair for pair in pairs if all(c.runs and c.runs.ours and c.runs.ours.mean is not None for c in pair)]
    printed = [a.published - b.published for a, b in run if a.published is not None and b.published is not None]
    whole = statistics.fmean(printed) if printed and len(printed) == len(run) else None
    return Gain(better, than, mean_difference(run), whole, len(run), t.unit)


def mean_difference(pairs: Sequence[CellPair]) -> PairedDifference | None:
    """Return the mean difference of some pairs of cells, seed by seed, over the seeds that all of them have."""
    if not pairs:
        return None
    known = [(values_by_seed(a), values_by_seed(b)) for a, b in pairs]
    seeds = sorted(set.intersection(*(set(values) for pair in known for values in pair)))
    if not seeds:
        return None
    first, second = (mean_by_seed((pair[side] for pair in known), seeds) for side in (0, 1))
    return paired(first, second)


def mean_by_seed(cells: Iterable[dict[int, float]], seeds: Sequence[int]) -> list[float]:
    """Return the mean over cells for every seed."""
    every = list(cells)
    return [statistics.fmean(values[seed] for values in every) for seed in seeds]


def values_by_seed(c: CellRecord) -> dict[int, float]:
    """Return what the runs of a cell measured, by seed; empty if one has no value."""
    if c.runs is None or c.runs.ours is None:
        return {}
    values = dict(zip(c.runs.seeds, c.runs.ours.values, strict=True))
    return {} if None in values.values() else {seed: float(v) for seed, v in values.items() if v is not None}

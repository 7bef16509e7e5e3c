"""What became of a claim in one table, under one reading: its tests, and what they add up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.comparison.stats import NOT_SEEN, paired
from holdfast.reproduce.baseline_levels import NEAR, NOT_REACHED, NOT_RUN, UNKNOWN_DATA, row_gap
from holdfast.reproduce.expectations import ALL, NEEDS, Expectation
from holdfast.reproduce.table_schema import CellRecord, TableRecord

SEEDS = 3  # fewer decide nothing
HOLDS, PARTLY, FAILS, NOT_TESTED = "holds", "holds partly", "does not hold", "not tested"
DECIDED = (HOLDS, NOT_SEEN, FAILS)
FEW = "fewer than three seeds"
CELLS_NOT_RUN = "not all cells were run"
NEITHER = "no run reached the target"
NO_SCIPY = "scipy is not installed, which computes the intervals"


@dataclass(frozen=True)
class Outcome:
    """What became of a claim under one reading.

    Attributes:
        word: ``holds``, ``holds partly``, ``no difference seen``, ``does not hold``, ``open`` or ``not tested``.
        held: Tests whose interval lies on the claim's side.
        unclear: Tests that show no difference.
        failed: Tests whose interval lies on the other side.
        tests: All tests of the claim that can ever be decided.
        why: Why most of the other tests are open.
    """

    word: str
    held: int = 0
    unclear: int = 0
    failed: int = 0
    tests: int = 0
    why: str = ""

    @property
    def decided(self) -> int:
        """The number of tests that are decided."""
        return self.held + self.unclear + self.failed

    @property
    def words(self) -> str:
        """The word, with its limits: a verdict on some tests says so."""
        return f"{self.word}, as far as run" if 0 < self.decided < self.tests and self.word != "open" else self.word


def outcome(t: TableRecord, variants: Mapping[str, str]) -> Outcome:
    """Judge a table's claim; ``variants`` are the columns to read in place of published ones."""
    if not t.reproduction:
        return Outcome(NOT_TESTED, why="the runs are not in the paper's setting")
    results = list(tests(t, variants))
    count = Counter(results)
    held, unclear, failed = (count[word] for word in DECIDED)
    still_open = Counter({why: n for why, n in count.items() if why not in DECIDED})
    why = still_open.most_common(1)[0][0] if still_open else ""
    word = summed_up(held, unclear, failed, len(results), t.needs)
    return Outcome(word, held, unclear, failed, len(results), why)


def summed_up(held: int, unclear: int, failed: int, tests: int, needs: str) -> str:
    """Return the word for a claim.

    Args:
        held: Tests that hold.
        unclear: Tests that show no difference.
        failed: Tests that do not hold.
        tests: All tests of the claim.
        needs: How many of them the claim needs: ``all``, ``most`` or ``all but N``.

    Returns:
        One of the words of ``Outcome``.

    >>> summed_up(3, 0, 1, 9, "all"), summed_up(3, 0, 1, 4, "all but 1"), summed_up(2, 1, 0, 9, "all")
    ('does not hold', 'holds', 'holds partly')
    """
    spared, decided = spared_tests(tests, needs), held + unclear + failed
    if failed > spared:
        return FAILS
    if held and (held >= tests - spared if spared else held == decided):
        return HOLDS
    if not decided or (spared and decided < tests):
        return "open"
    return PARTLY if held else NOT_SEEN


def spared_tests(tests: int, needs: str) -> int:
    """Return how many tests may fail."""
    match = NEEDS.fullmatch(needs)
    assert match is not None
    return 0 if needs == ALL else (tests - 1) // 2 if needs == "most" else int(match["spared"])


def tests(t: TableRecord, variants: Mapping[str, str]) -> Iterator[str]:
    """Yield the result of every test that can ever be decided.

    Args:
        t: The table.
        variants: The columns to read in place of published ones; tests without them are then left out.

    Yields:
        ``holds``, ``no difference seen``, ``does not hold``, or why it is open.
    """
    for e in map(Expectation.parse, t.expect):
        names, lines, levels = along(t, e.left)
        rivals = e.rivals([name for name in names if name not in t.variants and name not in t.controls])
        if variants and not {e.left, *rivals} & {*variants}:
            continue
        columns = {name: variants.get(name, name) for name in (e.left, *rivals)}
        if not {*columns.values()} <= {*names}:
            continue  # these were not requested
        for line, level in zip(lines, levels, strict=True):
            cells = {name: line[names.index(column)] for name, column in columns.items()}
            mine = cells.pop(e.left)
            others = [c for c in cells.values() if c.status != "absent"]
            if mine.status == "absent" or (e.bound is None and not others):
                continue
            yield level or together(against_all(e, mine, others))


def along(t: TableRecord, name: str) -> tuple[list[str], list[list[CellRecord]], list[str]]:
    """Return what a test compares.

    Args:
        t: The table.
        name: A column or a row that the test names.

    Returns:
        The names that are compared; their cells, line by line; and of every line why its baseline opens its tests,
        empty if it does not. A line is a row if the name is a column.
    """
    rows = [row.name for row in t.rows]
    if name not in rows:
        return t.columns, [row.cells for row in t.rows], [open_row(row_gap(t, row)) for row in t.rows]
    ours = {*t.variants, *t.controls}  # no part of a claim about rows
    columns = [[row.cells[j] for row in t.rows] for j, column in enumerate(t.columns) if column not in ours]
    return rows, columns, [""] * len(columns)


def open_row(gap: float | str) -> str:
    """Return why the baseline of a row leaves its tests open; empty if it does not, or if none is printed."""
    if isinstance(gap, float):
        return NOT_REACHED if gap > NEAR else ""
    if gap == NOT_RUN:
        return CELLS_NOT_RUN
    return gap if gap in (UNKNOWN_DATA, NOT_REACHED) else ""


def against_all(e: Expectation, mine: CellRecord, others: Sequence[CellRecord]) -> list[str]:
    """Return the result of a test against each cell, or against the number that it names."""
    if e.bound is None:
        return [compared(e, mine, other) for other in others]
    return [against_bound(e, mine, e.bound)]


def together(results: Iterable[str]) -> str:
    """Return the result of a test from its comparisons: one that is worse decides it, and then one that is open."""
    found = list(results)
    unknown = [result for result in found if result not in DECIDED]
    return next(word for word in (FAILS, *unknown, NOT_SEEN, HOLDS) if word in found)


def compared(e: Expectation, mine: CellRecord, other: CellRecord) -> str:
    """Compare two cells seed by seed."""
    why = unfit(mine) or unfit(other)
    if why:
        return why
    a, b = scores(mine), scores(other)
    seeds = sorted({*a} & {*b})
    return judged(e, [a[s] for s in seeds], [b[s] for s in seeds])


def against_bound(e: Expectation, mine: CellRecord, bound: float) -> str:
    """Compare a cell with a number."""
    mine_scores = [] if unfit(mine) else list(scores(mine).values())
    return unfit(mine) or judged(e, mine_scores, [better(bound, mine)] * len(mine_scores))


def judged(e: Expectation, a: Sequence[float], b: Sequence[float]) -> str:
    """Judge by the paired interval of the differences over seeds; higher scores are better."""
    if len(a) < SEEDS:
        return FEW
    gaps = [0.0 if x == y else x - y for x, y in zip(a, b, strict=True)]
    if not all(map(math.isfinite, (*a, *b))):  # a run that diverged, or never reached the target, is worse
        if not any(gaps):
            return NEITHER
        return HOLDS if min(gaps) > 0 else FAILS if max(gaps) < 0 else NOT_SEEN
    found = paired(a, b)
    if found is None or found.low is None or found.high is None:
        return NO_SCIPY
    if found.high < 0:
        return FAILS
    return HOLDS if e.met(found.low, 0.0) else NOT_SEEN


def unfit(c: CellRecord) -> str:
    """Return why a cell decides nothing; empty if it does."""
    if c.runs is None or not c.ran:
        return CELLS_NOT_RUN
    return "" if c.runs.on_published_data else UNKNOWN_DATA


def scores(c: CellRecord) -> dict[int, float]:
    """Return the score of every seed so that higher is better; a run without one is the worst."""
    assert c.runs is not None
    values = c.runs.ours.values if c.runs.ours is not None else [None] * len(c.runs.seeds)
    pairs = zip(c.runs.seeds, values, strict=True)
    return {seed: -math.inf if value is None else better(value, c) for seed, value in pairs}


def published_counts(t: TableRecord) -> tuple[int, int]:
    """Return how many tests the published numbers pass, and how many they allow."""
    passed = total = 0
    for e in map(Expectation.parse, t.expect):
        names, lines, _ = along(t, e.left)
        rivals = e.rivals([name for name in names if name not in t.variants and name not in t.controls])
        if not {e.left, *rivals} <= {*names}:
            continue
        for line in lines:
            mine = published_score(line[names.index(e.left)])
            others = [published_score(line[names.index(name)]) for name in rivals]
            known = [s for s in others if s is not None and not (mine == s == -math.inf)]
            known += [] if e.bound is None else [better(e.bound, line[names.index(e.left)])]
            total += mine is not None and bool(known)
            passed += mine is not None and bool(known) and all(e.met(mine, other) for other in known)
    return passed, total


def published_score(c: CellRecord) -> float | None:
    """Return the published number so that higher is better."""
    if c.published is None:
        return None
    return -math.inf if math.isinf(c.published) else better(c.published, c)


def better(value: float, c: CellRecord) -> float:
    """Return a number so that higher is better."""
    return -value if c.less_is_better else value

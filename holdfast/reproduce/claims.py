"""Whether a paper's claim holds in a table: the tests that it implies, on our numbers and on the published ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from holdfast.reproduce.expectations import ALL, NEEDS, Expectation
from holdfast.reproduce.table_schema import CellRecord, TableRecord

RULE = (
    "A claim is a list of tests, each applied to every row (or column): “A is better than B”, “A is better than all "
    "others”, or “A reaches a number”, judged by the mean over the seeds. A test against all others passes once all of "
    "them were run, and fails as soon as one is better. A test against a number is applied only in the paper's own "
    "setting. A claim *holds* if every test that could be applied passes; a claim about most cases, or about all but "
    "one, is judged by the tests of the whole table. It *holds partly* if at least half of the tests pass, and *does "
    "not hold here* otherwise. It is *open* if the cells that were run do not decide it, and *not tested* if no test "
    "could be applied, or at smoke scale. A variant of ours, with a setting other than the published one, has its own "
    "line. A run that diverged, or never reached the target, is worse than one that did; two such runs decide nothing. "
    "Statistical noise is not taken into account: look at the standard deviations, where there are several seeds, and "
    "at how many pairs of cells were run."
)
OPEN = math.nan  # the score of a cell that has not been run yet

Score = Callable[[CellRecord], float | None]  # None: there will never be one


@dataclass(frozen=True)
class ClaimTest:
    """One test: whether it passed (None while that is open), and the pairs of cells that were run for it."""

    passed: bool | None
    pairs: frozenset[tuple[str, int, str]]


@dataclass(frozen=True)
class Outcome:
    """The verdict on a claim, with the published settings or with our variants.

    Attributes:
        verdict: ``holds``, ``holds partly``, ``does not hold here``, ``open`` or ``not tested``.
        passed: Tests that passed.
        tested: Tests that are decided.
        pairs_run: Pairs of cells that were run.
        pairs: Pairs of cells that could be run.
    """

    verdict: str
    passed: int
    tested: int
    pairs_run: int
    pairs: int


def outcomes(t: TableRecord) -> tuple[Outcome, Outcome | None]:
    """Judge a table's claim with the published settings, and with our variants of them if any of these was run."""
    first = outcome(t, {})
    variants = {published: column for column, published in t.variants.items()}
    second = outcome(t, variants) if variants else None
    return first, second if second and second.pairs_run else None


def outcome(t: TableRecord, variants: Mapping[str, str]) -> Outcome:
    """Judge a table's claim; ``variants`` are the columns to read in place of published ones."""
    if t.scale == "smoke":
        return Outcome("not tested", 0, 0, 0, 0)
    expected = [e for e in map(Expectation.parse, t.expect) if e.bound is None or t.reproduction]
    applied, possible = (list(tests(t, expected, score, variants)) for score in (our_score, any_score))
    decided = [test.passed for test in applied if test.passed is not None]
    word = verdict(sum(decided), len(decided), len(possible), t.needs)
    return Outcome(word, sum(decided), len(decided), len(pairs(applied)), len(pairs(possible)))


def verdict(passed: int, tested: int, possible: int, needs: str) -> str:
    """Return the verdict on a claim.

    Args:
        passed: Tests that passed.
        tested: Tests that are decided.
        possible: Tests of the whole table.
        needs: How many of them the claim needs: ``all``, ``most`` or ``all but N``.

    Returns:
        One of the words of ``RULE``.

    >>> verdict(3, 4, 9, "all"), verdict(3, 4, 4, "all but 1"), verdict(3, 3, 9, "all but 1"), verdict(1, 4, 4, "most")
    ('holds partly', 'holds', 'open', 'does not hold here')
    """
    if not tested:
        return "not tested"
    failed = tested - passed
    if needs != ALL:
        match = NEEDS.fullmatch(needs)
        assert match is not None
        spared = (possible - 1) // 2 if needs == "most" else int(match["spared"])
        if failed <= spared:
            return "holds" if possible - passed <= spared else "open"
    return "holds" if not failed else "holds partly" if 2 * passed >= tested else "does not hold here"


def phrase(t: TableRecord, o: Outcome) -> str:
    """Return the verdict in bold, with its limits."""
    if not o.tested:
        return f"**{o.verdict}**"
    far = ", as far as run" if o.pairs_run < o.pairs else ""
    changed = " with changes" if t.varied else ""
    scale = "" if t.reproduction else f", at {t.scale} scale{changed}"
    return f"**{o.verdict}**{far}{scale}"


def published_counts(t: TableRecord) -> tuple[int, int]:
    """Return how many tests the published numbers pass, and how many they allow."""
    results = [test.passed for test in tests(t, map(Expectation.parse, t.expect), published_score, {})]
    decided = [passed for passed in results if passed is not None]
    return sum(decided), len(decided)


def tests(
    t: TableRecord, expected: Iterable[Expectation], score: Score, variants: Mapping[str, str]
) -> Iterator[ClaimTest]:
    """Apply expectations to a table.

    Args:
        t: The table.
        expected: What the claim lets us expect.
        score: The number of a cell that counts.
        variants: The columns to read in place of published ones.

    Returns:
        Every test for which some cells have a score.
    """
    for e in expected:
        names, lines = along(t, e.left)
        rivals = e.rivals([name for name in names if name not in t.variants])
        if variants and not {e.left, *rivals} & {*variants}:
            continue  # the same test as without them
        for number, cells in enumerate(lines):
            line = dict(zip(names, cells, strict=True))
            columns = {name: variants.get(name, name) for name in (e.left, *rivals)}
            judged = judge(e, {name: line[column] for name, column in columns.items() if column in line}, score)
            if judged:
                passed, others = judged
                yield ClaimTest(passed, frozenset((e.left, number, name) for name in others))


def judge(e: Expectation, cells: Mapping[str, CellRecord], score: Score) -> tuple[bool | None, list[str]] | None:
    """Judge one line of a table.

    Args:
        e: What is expected.
        cells: The cells of the line, by the names that the expectation uses.
        score: The number of a cell that counts.

    Returns:
        Whether it is met (None while that is open), and what A was compared with; None if there was nothing.
    """
    scores = {name: s for name, cell in cells.items() if (s := score(cell)) is not None}
    mine = scores.pop(e.left, OPEN)
    if math.isnan(mine):
        return None
    if e.bound is not None:
        return e.met(mine, better(e.bound, cells[e.left])), [e.right]
    known = {n: s for n, s in scores.items() if not math.isnan(s) and not (math.isinf(s) and math.isinf(mine))}
    beaten = all(e.met(mine, other) for other in known.values())
    still_open = any(map(math.isnan, scores.values()))
    return (None if beaten and still_open else beaten, list(known)) if known else None


def along(t: TableRecord, name: str) -> tuple[list[str], list[list[CellRecord]]]:
    """Return the names that are compared, and the cells line by line: rows if the name is a column, else columns."""
    rows = [row.cells for row in t.rows]
    names = [row.name for row in t.rows]
    if name not in names:
        return t.columns, rows
    return names, [list(cells) for cells in zip(*rows, strict=True)]


def pairs(applied: Iterable[ClaimTest]) -> set[tuple[str, int, str]]:
    """Return the pairs of cells of some tests."""
    return {pair for test in applied for pair in test.pairs}


def any_score(c: CellRecord) -> float | None:
    """Return some score if the cell can be run at all."""
    return None if c.status == "absent" else 0.0


def our_score(c: CellRecord) -> float | None:
    """Return our number so that higher is better; a run that diverged or never reached the target is the worst."""
    if c.status == "absent":
        return None
    if c.status == "diverged":
        return -math.inf
    if c.runs is None or c.runs.ours is None:
        return OPEN
    return -math.inf if c.runs.ours.mean is None else better(c.runs.ours.mean, c)


def published_score(c: CellRecord) -> float | None:
    """Return the published number so that higher is better."""
    if c.published is None:
        return None
    return -math.inf if math.isinf(c.published) else better(c.published, c)


def better(value: float, c: CellRecord) -> float:
    """Return a number so that higher is better."""
    return -value if c.less_is_better else value

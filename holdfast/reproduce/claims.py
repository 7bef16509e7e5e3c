"""Whether a paper's claim is seen in a table: what it lets us expect, tested on our numbers and on the printed ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError

RULE = (
    "A claim is a list of tests, each made in every row (or column): “A is better than B”, “A is better than all "
    "others”, or “A reaches a number”, by the mean over the seeds, where the cells that it needs were run. It *holds* "
    "when all tests succeed, or as many as its own words ask for (“most”, “but one”), *holds partly* when at least "
    "half do, and *does not hold here* otherwise; it is *not tested* when no test could be made, or at smoke scale. A "
    "number is asked of the paper's own setting alone. Where we read a setting in a second way, the tests are made on "
    "that reading, too. A run that diverged, or never reached the target, is worse than one that did. Chance is not "
    "accounted for: look at the deviations, and at how many of the pairs of cells were run."
)
ALL = "all"
FORM = "'A > B', 'A >= B', 'A > all' or 'A > number', of columns or of rows"
NEEDS = re.compile(r"all|most|all but (?P<spared>\d+)")

Score = Callable[[Mapping[str, Any]], float | None]
Reading = Mapping[str, str]  # of columns: what stands in for what


@dataclass(frozen=True)
class Expectation:
    """``A > B``: A is better than B. ``A > all``: than every other. ``A >= 0.99``: at least that good."""

    left: str
    ties: bool
    right: str

    @classmethod
    def parse(cls, text: str) -> Expectation:
        match = re.fullmatch(r"(?P<left>.+?) (?P<sign>>=?) (?P<right>.+)", text)
        if not match:
            raise HoldfastError(f"expect {text!r} must be {FORM}")
        return cls(match["left"].strip(), match["sign"] == ">=", match["right"].strip())

    @property
    def bound(self) -> float | None:
        """The number that A has to reach, where it is not compared with others."""
        try:
            return float(self.right)
        except ValueError:
            return None

    @property
    def names(self) -> set[str]:
        """The columns (or rows) that it needs by name."""
        return {self.left} if self.right == ALL or self.bound is not None else {self.left, self.right}

    def met(self, mine: float, other: float) -> bool:
        return mine >= other if self.ties else mine > other

    def rivals(self, names: Sequence[str], reads: Reading) -> list[str]:
        """Whom A is compared with; second readings of a column are no rivals of their own."""
        if self.right != ALL:
            return [self.right]
        return [name for name in names if name != self.left and name not in reads]


@dataclass(frozen=True)
class Test:
    """One test: whether it succeeded, and the pairs of cells that it rests on."""

    seen: bool
    pairs: frozenset[tuple[str, int, str]]


def claim(t: dict[str, Any]) -> dict[str, Any]:
    """How often the claim is seen in our numbers and in the published ones, the verdict, and how much was run."""
    mine = [test for reading in readings(t) for test in tests(t, our_score, reading)]
    printed = list(tests(t, printed_score, {}))
    seen = sum(test.seen for test in mine)
    return {
        "verdict": verdict(seen, len(mine), t.get("needs", ALL)) if t["scale"] != "smoke" else "not tested",
        "seen": seen,
        "tested": len(mine),
        "printed_seen": sum(test.seen for test in printed),
        "printed_tested": len(printed),
        "pairs_run": len(pairs(mine)),
        "pairs": len(pairs(tests(t, possible, {}))),
    }


def verdict(seen: int, total: int, needs: str) -> str:
    """
    >>> verdict(3, 4, "all"), verdict(3, 4, "most"), verdict(3, 4, "all but 1"), verdict(1, 4, "most")
    ('holds partly', 'holds', 'holds', 'does not hold here')
    """
    if not total:
        return "not tested"
    match = NEEDS.fullmatch(needs)
    assert match is not None
    spared = int(match["spared"] or 0)
    enough = 2 * seen > total if needs == "most" else seen >= max(total - spared, 1)
    return "holds" if enough else "holds partly" if 2 * seen >= total else "does not hold here"


def readings(t: Mapping[str, Any]) -> list[Reading]:
    """The columns as printed; and, where some are read in a second way, those in place of what they read."""
    second = {read: column for column, read in t.get("reads", {}).items()}
    return [{}, second] if second else [{}]


def tests(t: Mapping[str, Any], score: Score, reading: Reading) -> Iterator[Test]:
    """Every test for which the cells have a score."""
    reads = t.get("reads", {})
    for text in t["expect"]:
        e = Expectation.parse(text)
        if e.bound is not None and score is our_score and not t["reproduction"]:
            continue  # another setting has another level
        names, lines = along(t, e.left)
        rivals = [] if e.bound is not None else e.rivals(names, reads)
        if reading and not {e.left, *rivals} & reading.keys():
            continue  # the second reading changes nothing in it
        for number, cells in enumerate(lines):
            line = dict(zip(names, cells, strict=True))
            read = {name: line[as_read] for name in (e.left, *rivals) if (as_read := reading.get(name, name)) in line}
            scores = {name: s for name, cell in read.items() if (s := score(cell)) is not None}
            mine = scores.pop(e.left, None)
            if mine is None:
                continue
            others = {name: s for name, s in scores.items() if not (math.isinf(s) and math.isinf(mine))}
            if e.bound is not None:
                others = {e.right: better(e.bound, read[e.left])}
            if others:
                seen = all(e.met(mine, other) for other in others.values())
                yield Test(seen, frozenset((e.left, number, name) for name in others))


def along(t: Mapping[str, Any], name: str) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """The names that are compared, and the cells line by line: rows where it is a column, else columns."""
    rows = [row["cells"] for row in t["rows"]]
    if name not in [row["name"] for row in t["rows"]]:
        return list(t["columns"]), rows
    return [row["name"] for row in t["rows"]], [list(cells) for cells in zip(*rows, strict=True)]


def pairs(found: Iterable[Test]) -> set[tuple[str, int, str]]:
    return {pair for test in found for pair in test.pairs}


def possible(c: Mapping[str, Any]) -> float | None:
    """Any score, where the cell can be run at all."""
    return None if c["status"] == "absent" else 0.0


def our_score(c: Mapping[str, Any]) -> float | None:
    """Higher is better; never reached and diverged are the worst; None where it was not run."""
    if c["status"] == "diverged":
        return -math.inf
    if c["status"] != "run":
        return None
    mean = c["ours"]["mean"]
    return -math.inf if mean is None else better(mean, c)


def printed_score(c: Mapping[str, Any]) -> float | None:
    if c["published"] is None:
        return None
    return -math.inf if c["published"] == "inf" else better(c["published"], c)


def better(value: float, c: Mapping[str, Any]) -> float:
    """The number turned so that higher is better."""
    return -value if c["less_is_better"] else value


def reaches(expect: Iterable[str], columns: Iterable[str], rows: Iterable[str]) -> list[str]:
    """Those expectations whose columns (or rows) are all there."""
    across, down = set(columns), set(rows)
    needed = {text: Expectation.parse(text).names for text in expect}
    return [text for text, names in needed.items() if names <= across or names <= down]

"""Whether a paper's claim is seen in a table: what it lets us expect, tested on our numbers and on the printed ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RULE = (
    "A claim is a list of tests, each made in every row (or column): “A is better than B”, “A is better than all "
    "others”, or “A reaches a number”, by the mean over the seeds. “Than all” succeeds when all others were run, "
    "and fails as soon as one is better; a number is asked of the paper's own setting alone. A claim *holds* when "
    "all tests that were made succeed; where it speaks of most cases, or of all but one, those of the whole table "
    "count. It *holds partly* when at least half succeed, and *does not hold here* otherwise; it is *open* where "
    "the cells that were run do not decide it, and *not tested* where no test could be made, or at smoke scale. A "
    "variant of ours, with a setting that is not the printed one, has a line of its own. A run that diverged, or "
    "never reached the target, is worse than one that did; two of them decide nothing. Chance is not accounted for: "
    "look at the deviations, where there are several seeds, and at how many of the pairs of cells were run."
)
ALL = "all"
FORM = "'A > B', 'A >= B', 'A > all' or 'A > number', of columns or of rows"
NEEDS = re.compile(r"all|most|all but (?P<spared>\d+)")

OPEN = math.nan  # the score of a cell that is still to be run

Score = Callable[[Mapping[str, Any]], float | None]  # None: there will never be one


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
            return cls(text, False, text)  # no such name: whoever checks the file refuses it
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

    def rivals(self, names: Sequence[str]) -> list[str]:
        """Whom A is compared with."""
        if self.bound is not None:
            return []
        return [name for name in names if name != self.left] if self.right == ALL else [self.right]


@dataclass(frozen=True)
class ClaimTest:
    """One test: whether it succeeded, None while that is open, and the pairs of cells that were run for it."""

    seen: bool | None
    pairs: frozenset[tuple[str, int, str]]


@dataclass(frozen=True)
class Outcome:
    """What became of a claim: with the printed settings, or with our variants."""

    verdict: str
    seen: int
    tested: int
    pairs_run: int
    pairs: int


def outcomes(t: Mapping[str, Any]) -> tuple[Outcome, Outcome | None]:
    """With the settings that the paper prints; and with our variants of them, where something of these was run."""
    first = outcome(t, {})
    variants = {of: column for column, of in t.get("variants", {}).items()}
    second = outcome(t, variants) if variants else None
    return first, second if second and second.pairs_run else None


def outcome(t: Mapping[str, Any], variants: Mapping[str, str]) -> Outcome:
    if t["scale"] == "smoke":
        return Outcome("not tested", 0, 0, 0, 0)
    asked = [e for e in map(Expectation.parse, t["expect"]) if e.bound is None or t["reproduction"]]
    made, all_of_them = (list(tests(t, asked, score, variants)) for score in (our_score, possible))
    done = [test.seen for test in made if test.seen is not None]
    word = verdict(sum(done), len(done), len(all_of_them), t.get("needs", ALL))
    return Outcome(word, sum(done), len(done), len(pairs(made)), len(pairs(all_of_them)))


def verdict(seen: int, made: int, all_of_them: int, needs: str) -> str:
    """From the tests that succeeded, that were made, and that the whole table has.

    >>> verdict(3, 4, 9, "all"), verdict(3, 4, 4, "all but 1"), verdict(3, 3, 9, "all but 1"), verdict(1, 4, 4, "most")
    ('holds partly', 'holds', 'open', 'does not hold here')
    """
    if not made:
        return "not tested"
    failed = made - seen
    if needs != ALL:
        match = NEEDS.fullmatch(needs)
        assert match is not None
        spared = (all_of_them - 1) // 2 if needs == "most" else int(match["spared"])
        if failed <= spared:
            return "holds" if all_of_them - seen <= spared else "open"
    return "holds" if not failed else "holds partly" if 2 * seen >= made else "does not hold here"


def phrase(t: Mapping[str, Any], o: Outcome) -> str:
    """The verdict, and how far it goes."""
    if not o.tested:
        return f"**{o.verdict}**"
    far = ", as far as run" if o.pairs_run < o.pairs else ""
    changed = " with changes" if t["changed"].keys() - {"precision"} else ""
    scale = "" if t["reproduction"] else f", at {t['scale']} scale{changed}"
    return f"**{o.verdict}**{far}{scale}"


def printed(t: Mapping[str, Any]) -> tuple[int, int]:
    """How many tests the printed numbers pass, and how many they allow."""
    found = [test.seen for test in tests(t, map(Expectation.parse, t["expect"]), printed_score, {})]
    done = [seen for seen in found if seen is not None]
    return sum(done), len(done)


def tests(
    t: Mapping[str, Any], asked: Iterable[Expectation], score: Score, variants: Mapping[str, str]
) -> Iterator[ClaimTest]:
    """Every test of which some cells have a score; ``variants`` are read in place of the columns they are of."""
    for e in asked:
        names, lines = along(t, e.left)
        rivals = e.rivals([name for name in names if name not in t.get("variants", {})])
        if variants and not {e.left, *rivals} & {*variants}:
            continue  # it is the same test without them
        for number, cells in enumerate(lines):
            line = dict(zip(names, cells, strict=True))
            read = {name: variants.get(name, name) for name in (e.left, *rivals)}
            found = judged(e, {name: line[column] for name, column in read.items() if column in line}, score)
            if found:
                seen, others = found
                yield ClaimTest(seen, frozenset((e.left, number, name) for name in others))


def judged(
    e: Expectation, cells: Mapping[str, Mapping[str, Any]], score: Score
) -> tuple[bool | None, list[str]] | None:
    """Whether one line meets an expectation, and whom A was compared with; None where nothing could be."""
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


def along(t: Mapping[str, Any], name: str) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """The names that are compared, and the cells line by line: rows where it is a column, else columns."""
    rows = [row["cells"] for row in t["rows"]]
    if name not in [row["name"] for row in t["rows"]]:
        return list(t["columns"]), rows
    return [row["name"] for row in t["rows"]], [list(cells) for cells in zip(*rows, strict=True)]


def pairs(found: Iterable[ClaimTest]) -> set[tuple[str, int, str]]:
    return {pair for test in found for pair in test.pairs}


def possible(c: Mapping[str, Any]) -> float | None:
    """Any score, where the cell can be run at all."""
    return None if c["status"] == "absent" else 0.0


def our_score(c: Mapping[str, Any]) -> float | None:
    """Higher is better; never reached and diverged are the worst."""
    if c["status"] == "absent":
        return None
    if c["status"] == "diverged":
        return -math.inf
    if c["status"] != "run":
        return OPEN
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
    return [text for text in expect if any(Expectation.parse(text).names <= there for there in (across, down))]

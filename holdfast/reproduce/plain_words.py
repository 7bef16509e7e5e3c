"""The verdicts in plain words: a paragraph for each paper, the tables that were not run, and README's summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.comparison.study_schema import PairedDifference
from holdfast.reproduce.baseline_levels import POINTS, BaselineLevel, baselines
from holdfast.reproduce.claims import Verdict, claims, levels_of, same, shown_table, swapped, verdicts
from holdfast.reproduce.gains import Gain, control_gains, gains
from holdfast.reproduce.outcomes import NOT_TESTED, SEEDS, Outcome
from holdfast.reproduce.paper import short_title
from holdfast.reproduce.paper_file import load_paper, shelf
from holdfast.reproduce.reading_tables import counted_rows, points_of
from holdfast.reproduce.table_schema import TableRecord

SAID = {"holds partly": "holds in part", "no difference seen": "shows no difference", "open": "is open"}


def paragraph(tables: Sequence[TableRecord]) -> str:
    """Return a paper in plain words: what holds, under which conditions, and where we believe its numbers come from."""
    judged = [(t, verdicts(tables, t)[0]) for t in claims(tables)]
    run = [(t, v) for t, v in judged if any(x.runs for x in same(tables, t, t.table))]
    parts = [*(claim_text(tables, t, v) for t, v in run), others(len(judged) - len(run)), believed(tables[0].paper)]
    return "\n\n".join(filter(None, parts))


def claim_text(tables: Sequence[TableRecord], of: TableRecord, v: Verdict) -> str:
    """Return what became of a claim, and what that rests on."""
    shown = shown_table(tables, of, v)
    start = f"{label(of)}: “{of.claim.rstrip('.')}” {SAID.get(v.word, v.word)}"
    start += f" ({v.why})" if v.why else ""
    start += f", {counts(v.outcome)}." if v.outcome is not None and v.outcome.decided else "."
    if v.word == NOT_TESTED:
        return start
    level = next((x for x in levels_of(tables, of) if x.table.reading.name == shown.reading.name), None)
    found = [gain_text(g) for g in gains(shown, {}) if g.ours is not None]
    new = [text for g in gains(shown, swapped(shown)) if g.ours is not None and (text := gain_text(g)) not in found]
    lines = [start, level_text(level, shown), *found, control_text(shown), *(f"Our variant: {t}" for t in new)]
    return " ".join(filter(None, lines))


def label(t: TableRecord) -> str:
    """Return the name of a table in a sentence, with the settings that were changed."""
    kind = "Figure" if t.table.startswith("fig") else "Table"
    changed = "".join(f", with {k} = {v}" for k, v in t.changed.items())
    return f"**{kind} {t.table.removeprefix('fig')}**{changed}"


def counts(o: Outcome) -> str:
    """Return how many tests a verdict rests on."""
    return f"with {o.held} of {o.tests} tests that hold" + (f" and {o.tests - o.decided} open" * (o.decided < o.tests))


def level_text(level: BaselineLevel | None, shown: TableRecord) -> str:
    """Say under which conditions the numbers were measured, and how near they bring the baseline to print."""
    made = ", ".join(c.name for c in shown.reading.choices)
    conditions = f"Read as “{shown.reading.name}”" + (f" ({made})" if made and made != shown.reading.name else "")
    if level is None:
        return f"{conditions}."
    who = " and ".join(baselines(level.table))
    return f"{conditions}, {who} lies {level.gap:.2f} points from print, on average over {counted_rows(level.rows)}."


def gain_text(g: Gain) -> str:
    """Return a difference in a sentence: ours with its interval, and the printed one."""
    assert g.ours is not None
    printed = "" if g.printed is None else f"; the paper prints {points_of(g.printed, g.unit)}"
    return f"{between(g, g.ours)}{printed}."


def between(g: Gain, d: PairedDifference) -> str:
    """Return a difference of ours in words, with its rows and its interval."""
    return f"{g.better} is {apart(d, g.unit)} {g.than} over {counted_rows(g.rows)}{interval(d, g.unit)}"


def apart(d: PairedDifference, unit: str) -> str:
    """Return how far one number is from another, up to the other one's name."""
    size = abs(d.mean) * POINTS.get(unit, 1.0)
    return f"{size:.2f} {'points' if unit in POINTS else unit} {'above' if d.mean >= 0 else 'below'}"


def interval(d: PairedDifference, unit: str) -> str:
    """Return the interval of a difference in brackets, or that there are too few seeds for one to count."""
    if d.n < SEEDS or d.low is None or d.high is None:
        return " (one seed, which decides nothing)" if d.n == 1 else f" ({d.n} seeds, which decide nothing)"
    return f" ({points_of(d.low, unit)} to {points_of(d.high, unit)})"


def control_text(t: TableRecord) -> str:
    """Say what the baseline reaches with settings that it was not given, beside the method that the claim tests."""
    found = [between(g, g.ours) for g in control_gains(t) if g.ours is not None]
    return f"The control{'s' * (len(found) > 1)}: {'; '.join(found)}." if found else ""


def others(n: int) -> str:
    """Say how many claims were not run at all."""
    return f"{n} more claim{'s were' if n > 1 else ' was'} not run." if n else ""


def believed(paper: str) -> str:
    """Return what we believe a paper's numbers come from; empty if its file does not say."""
    return " ".join(load_paper(paper).believed.split()) if paper in shelf() else ""


def counted(tables: Sequence[TableRecord]) -> str:
    """Count a paper's claims by their verdicts, in a sentence; empty if it has none."""
    found = [verdicts(tables, t)[0] for t in claims(tables)]
    words = Counter(f"{v.word} ({v.why})" if v.why else v.words for v in found)
    said = ", ".join(f"{n} {word}" for word, n in words.items())
    return f"Verdict{'s' * (len(found) > 1)} on {len(found)} claim{'s' * (len(found) > 1)}: {said}." if found else ""


def not_run(tables: Sequence[TableRecord]) -> list[str]:
    """Return a line for every paper of the library that has tables without any run on the published data."""
    lines = []
    for name in shelf():
        paper = load_paper(name)
        run = {t.table for t in tables if t.paper == name and any(r.on_published_data for r in t.runs)}
        left = [t.id for t in paper.table if not t.why_not and not t.same_runs_as and t.id not in run]
        if left:
            rest = "" if any(t.paper == name for t in tables) else " ".join(["", *paper.believed.split()])
            lines.append(f"- **{short_title(paper.title)}**: table{'s' * (len(left) > 1)} {', '.join(left)}.{rest}")
    return lines


def summary(tables: Sequence[TableRecord]) -> str:
    """Return the summary for README: a line per paper with runs, and one for the others."""
    by_paper = {paper: [t for t in tables if t.paper == paper] for paper in dict.fromkeys(t.paper for t in tables)}
    lines = [f"- {of[0].name}: {counted(of)[:1].lower()}{counted(of)[1:]}" for of in by_paper.values()]
    missing = [short_title(load_paper(name).title) for name in shelf() if name not in by_paper]
    lines += [f"- Not run yet on exact data: {'; '.join(missing)}."] if missing else []
    return "\n".join(["Do the papers' claims hold? [docs/results.md](docs/results.md) has every verdict.", "", *lines])

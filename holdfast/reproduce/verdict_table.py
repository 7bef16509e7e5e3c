"""All verdicts in one table, and in words: a line per claim, a paragraph per paper, a summary for README."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.comparison.score_text import NONE
from holdfast.comparison.table_texts import markdown_table
from holdfast.reproduce.claims import Verdict, claims, shown_table, swapped, verdicts
from holdfast.reproduce.gains import Gain, gains, mean_difference
from holdfast.reproduce.markdown import test_counts
from holdfast.reproduce.paper_file import load_paper, shelf
from holdfast.reproduce.reading_tables import counted_rows, points
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
    return ", ".join([t.paper, t.table, *scale, *(f"{k} = {v}" for k, v in t.changed.items())])


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
    found = [*map(gain_text, gains(shown, swap)), *([] if swap else controls(shown))]
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


def points_of(value: float, unit: str) -> str:
    """Return a printed difference in points."""
    return f"{value * (100 if unit == 'fraction' else 1):+.2f}"


def controls(t: TableRecord) -> list[str]:
    """Say what each control that was run reaches, beside the first method that the claim tests."""
    texts = []
    for name in t.controls:
        for g in gains(t, {})[:1]:
            pairs = [(t.column(row, name), t.column(row, g.better)) for row in t.rows]
            run = [pair for pair in pairs if all(c.status == "run" for c in pair)]
            both = mean_difference(run)
            if both:
                gap = points(both, g.unit)
                texts.append(f"the control {name} reaches {gap} against {g.better}, {counted_rows(len(run))}")
    return texts


# -- in words --------------------
def paragraph(tables: Sequence[TableRecord]) -> str:
    """Return a paper in plain words: what became of its claims, and what we believe its numbers come from."""
    return " ".join(text for text in (counted(tables), believed(tables[0].paper)) if text)


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
            lines.append(
                f"- **{paper.title.partition(':')[0]}**: table{'s' * (len(left) > 1)} {', '.join(left)}.{rest}"
            )
    return lines


def summary(tables: Sequence[TableRecord]) -> str:
    """Return the summary for README: a line per paper with runs, and one for the others."""
    by_paper = {paper: [t for t in tables if t.paper == paper] for paper in dict.fromkeys(t.paper for t in tables)}
    lines = [
        f"- {of[0].title.partition(':')[0]}: {counted(of)[:1].lower()}{counted(of)[1:]}" for of in by_paper.values()
    ]
    missing = [load_paper(name).title.partition(":")[0] for name in shelf() if name not in by_paper]
    lines += [f"- Not run yet on exact data: {'; '.join(missing)}."] if missing else []
    return "\n".join(["Do the papers' claims hold? [docs/results.md](docs/results.md) has every verdict.", "", *lines])

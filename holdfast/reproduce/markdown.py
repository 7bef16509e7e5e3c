"""A reproduced table as Markdown, with what was run and the verdict on the claim."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.comparison.score_text import NONE
from holdfast.comparison.table_texts import escaped_markdown, markdown_table
from holdfast.comparison.tables import NEVER, number
from holdfast.method.config import FIELDS
from holdfast.reproduce.claims import swapped
from holdfast.reproduce.measure import Measure
from holdfast.reproduce.outcomes import Outcome, outcome, published_counts
from holdfast.reproduce.paper import PLAIN
from holdfast.reproduce.table_schema import CellRecord, TableRecord
from holdfast.runs.explosion import RULE

EXPLODED = f"Numbers marked EXPLODED are from runs that exploded: {RULE}."
LEAK = "Numbers marked LEAK are from runs that use test data in training: their accuracy means nothing."


def section(t: TableRecord) -> str:
    """Return a table for the page: what was run, the numbers, the claim."""
    parts = [f"## {title(t)}", t.why_not or f"**{headline(t)}.**"]
    parts = list(map(escaped_markdown, parts))
    if not t.why_not:
        parts.append(table_markdown(t))
    parts += [escaped_markdown(line) for line in (claim_line(t), provenance_line(t)) if line]
    return "\n\n".join(parts) + "\n"


def title(t: TableRecord) -> str:
    """Return the name of a table, with its reading if that is not the plain one, and its caption."""
    reading = "" if t.reading.name == PLAIN else f", read as “{t.reading.name}”"
    return f"{t.paper}, table {t.table}{reading}: {caption(t)}"


# -- what was run --------------------
def headline(t: TableRecord) -> str:
    """Return the scale, data, rounds and seeds that were used: they come before any number."""
    if not t.runs:
        return f"{t.scale.upper()} scale: no cell was run"
    data, models = used(t)
    rounds, seeds = sorted({r.rounds for r in t.runs}), sorted({s for r in t.runs for s in r.seeds})
    changed = "".join(f", {k} = {v}" for k, v in t.changed.items())
    what = {
        "smoke": "A SMOKE TEST on other data with tiny settings: it shows that the cells run, and nothing else",
        "small": "SMALL SCALE, not the paper's setting: NOT a reproduction",
        "full": "FULL SCALE, the paper's setting" if t.reproduction else "The paper's setting, CHANGED",
    }[t.scale]
    return (
        f"{what}{changed}. Data: {data}; model: {models}; rounds: {', '.join(map(str, rounds))}; "
        f"seeds: {', '.join(map(str, seeds))}; measure: {measured(t)}; {t.reading.assumptions}"
    )


def measured(t: TableRecord) -> str:
    """Return what the numbers are, in words."""
    return ", ".join(dict.fromkeys(Measure.parse(r.measure, t.table).words_in(r.rounds) for r in t.runs))


def caption(t: TableRecord) -> str:
    """Return the paper's caption, with the data and the network that were run if they are not the paper's setting."""
    data, models = used(t)
    return f"{t.caption} (in the paper; here: {data}, {models})" if data and not t.reproduction else t.caption


def used(t: TableRecord) -> tuple[str, str]:
    """Return the data sets and the networks that were run."""
    data, models = ({r.settings.get(name, FIELDS[name].default) for r in t.runs} for name in ("data", "model"))
    return ", ".join(sorted(data)), ", ".join(sorted(models))


def provenance_line(t: TableRecord) -> str:
    """Return when, where and with what the numbers were measured, as far as known; empty if there are none."""
    cells = [c.runs.made if c.runs else [] for c in t.cells if c.ran]
    leads = {"date": " ", "device": " on ", "torch": ", torch ", "commit": ", commit ", "data_checksum": ", data "}
    known = "".join(f"{lead}{text}" for name, lead in leads.items() if (text := counted_values(cells, name)))
    parts = [f"Measured{known}."] if known else []
    return " ".join([*parts, t.remark]).strip() if cells else ""


def counted_values(cells: Sequence[Sequence[Mapping[str, str]]], name: str) -> str:
    """Return the values of one fact about the runs of some cells; with a count, unless all cells have it.

    >>> counted_values([[{"torch": "2.1"}], [{"torch": "2.2"}], [{"torch": "2.1"}, {"torch": "2.1"}], []], "torch")
    '2.1 (2 cells) and 2.2 (1 cell)'
    """
    counts = Counter(value for runs in cells for value in {run[name] for run in runs if run.get(name)})
    texts = [value if n == len(cells) else f"{value} ({n} cell{'s' * (n > 1)})" for value, n in sorted(counts.items())]
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


# -- the numbers --------------------
def table_markdown(t: TableRecord) -> str:
    """Return one line per cell that was run; the others are counted."""
    lines, notes = [], []
    for row in t.rows:
        ran = [(column, c) for column, c in zip(t.columns, row.cells, strict=True) if c.ran]
        lines += [[row.name, name, f"`{c.method}`", published(c), ours(c), difference(c)] for name, c in ran]
        notes += [escaped_markdown(f"- {row.name}: {row.note}")] if ran and row.note else []
    unit = f" [{t.unit}]" if t.unit else ""
    head = ["row", "column", "method", f"published{unit}", ours_title(t), "difference"]
    parts = [markdown_table(head, lines)] if lines else []
    parts += [text for text in (escaped_markdown(rest(t)), "\n".join(notes)) if text]
    shown_columns = {name for row in t.rows for name, c in zip(t.columns, row.cells, strict=True) if c.ran}
    parts += [escaped_markdown(f"Control {name}: {why}.") for name, why in t.controls.items() if name in shown_columns]
    parts += [EXPLODED] * any(c.exploded for c in t.cells) + [LEAK] * any(c.leaks for c in t.cells)
    return "\n\n".join(parts)


def ours_title(t: TableRecord) -> str:
    """Return the heading of our numbers, which says if they are no reproduction."""
    if t.reproduction:
        return "ours"
    return f"ours ({t.scale}{', changed' if t.varied else ''}: not a reproduction)"


def published(c: CellRecord) -> str:
    """Return the published number."""
    if c.published is None:
        return NONE
    plus = "" if c.spread is None else f" ± {c.spread:g}"
    return NEVER if math.isinf(c.published) else f"{c.published:g}{plus}"


def ours(c: CellRecord) -> str:
    """Return our number, or why there is none."""
    if c.runs is None or c.runs.ours is None:
        return f"{c.status}: {c.why}"
    mean, std, values = c.runs.ours.mean, c.runs.ours.std, c.runs.ours.values
    marks = " (EXPLODED)" * c.exploded + " (LEAK)" * c.leaks
    if mean is None:
        reached = sum(v is not None for v in values)
        return NEVER + (f" ({reached} of {len(values)} reach it)" if reached else "") + marks
    by_class = c.runs.by_class
    classes = f" (by class: {', '.join(shown(v, c) for v in by_class)})" if by_class else ""
    return shown(mean, c) + ("" if std is None else f" ± {shown(std, c)}") + classes + marks


def difference(c: CellRecord) -> str:
    """Return our number minus the published one."""
    gap = c.runs.difference if c.runs else None
    return NONE if gap is None else ("+" if gap >= 0 else "-") + shown(abs(gap), c)


def shown(value: float, c: CellRecord) -> str:
    """Return a number with the digits that suit its unit."""
    digits = 4 if c.unit == "fraction" else 0 if c.unit == "rounds" and value == int(value) else 2
    return f"{value:.{digits}f}" if abs(value) < 1000 else number(value)


# -- the cells without a number --------------------
def rest(t: TableRecord) -> str:
    """Count the cells without a number of ours, in one line."""
    idle = sum(c.status == "not run" for c in t.cells)
    missing = [c.why for c in t.cells if c.status == "data absent"]
    never = Counter(c.why for c in t.cells if c.status == "absent")
    parts = [f"{counted(t.not_asked)} not requested."] if t.not_asked else []
    parts += [f"{counted(idle)} not run{which(t)}."] if idle else []
    parts += [f"{lacking(missing).capitalize()}."] if missing else []
    parts += [f"{counted(n)} not run: {why.removesuffix('.')}." for why, n in never.items()]
    return " ".join(parts)


def which(t: TableRecord) -> str:
    """Name the rows and columns without any run, and count the other cells; empty if nothing at all was run."""
    ran = [[c.ran for c in row.cells] for row in t.rows]
    idle = [[c.status == "not run" for c in row.cells] for row in t.rows]
    rows = [i for i, line in enumerate(ran) if not any(line) and any(idle[i])]
    columns = [j for j in range(len(t.columns)) if not any(line[j] for line in ran)]
    if not any(map(any, ran)):
        return ""
    more = sum(cell for i, line in enumerate(idle) for j, cell in enumerate(line) if i not in rows and j not in columns)
    names = [f"row{'s' * (len(rows) > 1)} {ranges([i + 1 for i in rows])}"] if rows else []
    if columns:
        names.append("column" + "s" * (len(columns) > 1) + " " + " / ".join(t.columns[j] for j in columns))
    return ": " + "; ".join([*names, *([f"{more} more"] if more else [])]) if names else ""


def ranges(numbers: Sequence[int]) -> str:
    """Shorten a list of increasing numbers.

    >>> ranges([1, 2, 3, 5, 7, 8])
    '1-3, 5, 7-8'
    """
    spans: list[list[int]] = []
    for n in numbers:
        if spans and n == spans[-1][-1] + 1:
            spans[-1].append(n)
        else:
            spans.append([n])
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)


def counted(n: int) -> str:
    """Return a number of cells with its verb."""
    return "1 cell was" if n == 1 else f"{n} cells were"


def lacking(whys: Sequence[str], where: str = "") -> str:
    """Count the cells without data, by data set, from their reasons: "cifar10 was not found".

    >>> lacking(["cifar10 was not found", "cifar10 was not found"], " in data")
    'data not found in data for 2 cells: cifar10 (2)'
    """
    names = ", ".join(f"{name} ({n})" for name, n in sorted(Counter(why.split()[0] for why in whys).items()))
    return f"data not found{where} for {len(whys)} cell{'s' * (len(whys) != 1)}: {names}"


# -- the claim --------------------
def claim_line(t: TableRecord) -> str:
    """Return the claim with what became of it under the table's reading; empty if there is no claim."""
    if not t.claim:
        return ""
    if t.same_runs_as:
        return f"Claim: {t.claim} It is counted in table {t.same_runs_as}, whose runs these are."
    passed, total = published_counts(t)
    line = f"Claim: {t.claim} Under this reading: {outcome_text(t, outcome(t, {}))}"
    line += f"; published numbers: {passed} of {total}." if total else "."
    ran = any(t.column(row, name).ran for row in t.rows for name in t.variants)
    return line + (f" With our variant: {outcome_text(t, outcome(t, swapped(t)))}." if ran else "")


def outcome_text(t: TableRecord, o: Outcome) -> str:
    """Return an outcome with the tests that it rests on."""
    where = " of the requested cells" if t.not_asked and o.decided else ""
    counts = test_counts(o)
    return f"**{o.words}**" + (f" ({counts}{where})" if counts else f": {o.why}" if o.why else "")


def test_counts(o: Outcome) -> str:
    """Count the tests of a claim by their results.

    >>> test_counts(Outcome("holds", held=3, tests=5, why="fewer than three seeds"))
    '3 of 5 tests hold; 2 open, mostly: fewer than three seeds'
    """
    if not o.decided:
        return ""
    counts = [f"{o.held} of {o.tests} tests hold"]
    counts += [f"{o.unclear} show no difference"] if o.unclear else []
    counts += [f"{o.failed} do not hold"] if o.failed else []
    left = o.tests - o.decided
    return ", ".join(counts) + (f"; {left} open, mostly: {o.why}" if left else "")

"""The tables of a comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Sequence
from typing import Any

from holdfast.comparison.client_spread import spread_rows
from holdfast.comparison.score_text import NONE
from holdfast.comparison.study_schema import Study, StudyEntry
from holdfast.comparison.tables import NEVER, describe, from_python, notes, tables
from holdfast.method.config_text import setting_to_text

# Columns of words, which are aligned left; all others hold numbers.
WORDS = (
    "method",
    "verdict",
    "compared with",
    "row",
    "column",
    "paper, table",
    "claim",
    "here",
    "scale",
    "readings",
    "reading",
    "choices",
    "baseline",
    "choice",
    "ours against printed, in points",
)
HTML_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # where a tag or a comment would start


def markdown(study: Study) -> str:
    command = from_python(study) or f"`{study.command}`"
    parts = ["# Comparison", escaped_markdown(describe(study)), escaped_markdown(command)]
    for table in tables(study):
        parts += [f"## {escaped_markdown(table.title)}", markdown_table(table.head, table.rows)]
    lines = list(map(escaped_markdown, notes(study)))
    parts += ["## Notes", "\n".join(f"- {line}" for line in lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---" if name in WORDS else "---:" for name in head], *rows]
    cells = [[escaped_markdown(cell).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def escaped_markdown(text: str) -> str:
    """Return a text on one line, with HTML that is shown and not obeyed.

    >>> escaped_markdown("a <b>bold</b>\\n# class, p < 0.01")
    'a &lt;b>bold&lt;/b> # class, p < 0.01'
    """
    return HTML_TAG.sub("&lt;", " ".join(text.splitlines()))


def as_csv(study: Study) -> str:
    """Return one line per entry with every number of the tables, unrounded; an empty cell means never or unknown."""
    rows = [csv_row(study, entry) for entry in study.entries]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def csv_row(study: Study, e: StudyEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"label": e.label, "method": e.method, **{k: e.settings.get(k) for k in study.sweep}}
    for kind, score in (("final", e.scores.final), ("best", e.scores.best), ("last5", e.scores.last5)):
        row |= {f"{kind}_mean": score.mean, f"{kind}_std": score.std}
    if any(other.scores.validation for other in study.entries):
        row |= {f"validation_{part}": getattr(e.scores.validation, part, None) for part in ("mean", "std")}
    d = e.difference
    columns = {"difference": "mean", "low": "low", "high": "high", "p": "p", "compared_with": "to"}
    row |= {column: getattr(d, name, None) for column, name in columns.items()}
    row |= {"verdict": e.verdict, "diverged": len(e.diverged), "exploded": len(e.exploded)}
    row |= {"leaks_test_data": e.leaks_test_data}
    for cost in e.targets:
        units = {"rounds": cost.rounds, "virtual_seconds": cost.virtual, "seconds": cost.seconds, "bytes": cost.bytes}
        for name, values in units.items():
            if values is None:
                continue
            known = [v for v in values if v is not None]
            mean = statistics.fmean(known) if len(known) == len(values) else None
            row[f"{name}_to_{setting_to_text(cost.target)}"] = mean
    row |= {"virtual_seconds": e.virtual.mean} if e.virtual else {}
    row |= {"seconds": e.seconds.mean, "bytes": e.bytes.mean}
    row |= {"kappa": e.kappa.mean, "rho": e.rho.mean} if e.kappa and e.rho else {}
    row |= {"metric": study.metric, "chosen_on": study.chosen_on}
    row |= client_columns(study, e)
    if e.by_class is None:
        return row
    means = e.by_class.mean or [None] * len(study.classes)
    return row | {f"class_{c}": m for c, m in zip(study.classes, means, strict=True)}


def client_columns(study: Study, e: StudyEntry) -> dict[str, float | None]:
    """Return an entry's scores over clients, empty where it has none but another entry does."""
    kinds = dict.fromkeys(whose for other in study.entries for whose, _ in spread_rows(other))
    known, row = dict(spread_rows(e)), dict[str, float | None]()
    for whose in kinds:
        for name in ("mean", "worst_tenth", "variance"):
            figure = getattr(known.get(whose), name, None)
            row[f"{'copies' if whose else 'clients'}_{name}"] = figure.mean if figure else None
    return row


def latex(study: Study) -> str:
    """Return the tables for a paper; they need the package booktabs."""
    parts = [f"% {escaped(describe(study))}", "% \\usepackage{booktabs}"]
    for table in tables(study):
        body = [" & ".join(escaped(cell) for cell in row) + r" \\" for row in table.rows]
        parts += [
            r"\begin{table}", r"\centering", rf"\caption{{{escaped(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}", r"\toprule",
            " & ".join(escaped(cell) for cell in table.head) + r" \\", r"\midrule", *body, r"\bottomrule",
            r"\end{tabular}", r"\end{table}", "",
        ]  # fmt: skip
    return "\n".join([*parts, *(f"% {escaped(line)}" for line in notes(study))]) + "\n"


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", NEVER: r"$\infty$", NONE: "--",
    "κ": r"$\kappa$", "ρ": r"$\rho$", "·": r"$\cdot$", "⁴": r"$^4$", "<": r"$<$", ">": r"$>$", "[": r"{[}", "]": r"{]}",
}  # fmt: skip


def escaped(text: str) -> str:
    """Return a text on one line that LaTeX prints as it is; a line break would end a comment."""
    return "".join(TEX.get(letter, letter) for letter in " ".join(text.splitlines()))

"""The tables of a comparison as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from typing import Any

from holdfast.comparison.plan import shown
from holdfast.comparison.tables import NEVER, NONE, describe, from_python, notes, tables

# Columns of words, which begin at the left; all others hold numbers.
WORDS = ("method", "verdict", "compared with", "row", "column", "paper, table", "claim", "here", "scale")


def markdown(found: dict[str, Any]) -> str:
    parts = ["# Comparison", describe(found), from_python(found) or f"`{found['command']}`"]
    for table in tables(found):
        parts += [f"## {table.title}", markdown_table(table.head, table.rows)]
    said = notes(found)
    parts += ["## Notes", "\n".join(f"- {note}" for note in said)] if said else []
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---" if name in WORDS else "---:" for name in head], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def as_csv(found: dict[str, Any]) -> str:
    """One line per entry with every number of the tables, unrounded; an empty cell: never, or not known."""
    rows = [flat(found, entry) for entry in found["entries"]]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def flat(found: dict[str, Any], e: dict[str, Any]) -> dict[str, Any]:
    d = e["difference"] or dict.fromkeys(("mean", "low", "high", "p", "to"))
    row: dict[str, Any] = {"label": e["label"], "method": e["method"], **{k: e["settings"][k] for k in found["sweep"]}}
    for kind, stat in e["accuracy"].items():
        row |= {f"{kind}_mean": stat["mean"], f"{kind}_std": stat["std"]}
    row |= {"difference": d["mean"], "low": d["low"], "high": d["high"], "p": d["p"], "compared_with": d["to"]}
    row |= {"verdict": e["verdict"], "diverged": len(e["diverged"]), "leaks_test_data": e["leaks_test_data"]}
    for to in e["targets"]:
        for what in ("rounds", "seconds", "bytes"):
            whole = None not in to[what]
            row[f"{what}_to_{shown(to['target'])}"] = statistics.fmean(to[what]) if whole else None
    row |= {what: e[what]["mean"] for what in ("seconds", "bytes", "kappa", "rho")}
    means = e["by_class"]["mean"] or [None] * len(found["classes"])
    return row | {f"class_{c}": m for c, m in zip(found["classes"], means, strict=True)}


def latex(found: dict[str, Any]) -> str:
    """The tables for a paper; they need the package booktabs."""
    parts = [f"% {escaped(describe(found))}", "% \\usepackage{booktabs}"]
    for table in tables(found):
        body = [" & ".join(escaped(cell) for cell in row) + r" \\" for row in table.rows]
        parts += [
            r"\begin{table}", r"\centering", rf"\caption{{{escaped(table.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}", r"\toprule",
            " & ".join(escaped(cell) for cell in table.head) + r" \\", r"\midrule", *body, r"\bottomrule",
            r"\end{tabular}", r"\end{table}", "",
        ]  # fmt: skip
    return "\n".join([*parts, *(f"% {escaped(note)}" for note in notes(found))]) + "\n"


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", NEVER: r"$\infty$", NONE: "--",
    "κ": r"$\kappa$", "ρ": r"$\rho$", "·": r"$\cdot$", "⁴": r"$^4$", "<": r"$<$", ">": r"$>$", "[": r"{[}", "]": r"{]}",
}  # fmt: skip


def escaped(text: str) -> str:
    return "".join(TEX.get(letter, letter) for letter in text)

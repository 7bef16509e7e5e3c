"""``python -m holdfast.reproduce.results``: write ``docs/results.md``, its pictures, and README's summary.

They are made of the stored ``results/*.json`` and of nothing else.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.reproduce.attribution import attributions
from holdfast.reproduce.baseline_levels import baselines
from holdfast.reproduce.claims import RULE, same
from holdfast.reproduce.markdown import headline, provenance_line, table_markdown, title
from holdfast.reproduce.paper_file import shelf
from holdfast.reproduce.paper_pictures import PICTURES, main_table, write_picture
from holdfast.reproduce.plain_words import not_run, paragraph, summary
from holdfast.reproduce.reading_tables import attribution_text, each_table, readings_text
from holdfast.reproduce.store import read
from holdfast.reproduce.table_schema import TableRecord
from holdfast.reproduce.verdict_table import verdict_table

HEAD = """# Results

The verdicts on the papers' claims after running their tables. This page is generated from the files in `results/` by
`python -m holdfast.reproduce.results`. Every number of ours was measured by `holdfast reproduce`
(see [reproduce.md](reproduce.md)); none was typed in.
"""
START, END = "<!-- results: written by python -m holdfast.reproduce.results -->", "<!-- end of results -->"


def page(tables: Sequence[TableRecord]) -> str:
    """Return the whole page: the verdicts in one table, how they are reached, then every paper."""
    if not tables:
        return f"{HEAD}\nNo results are stored yet.\n"
    note = shared_note(tables)
    tables = [replace(t, remark="") for t in tables] if note else tables
    parts = [HEAD, note, "## Verdicts", verdict_table(tables), "## How a verdict is reached", RULE]
    for paper in dict.fromkeys(t.paper for t in tables):
        parts += paper_parts([t for t in tables if t.paper == paper])
    missing = not_run(tables)
    parts += ["## Not run yet", "On exact data, with its checksum recorded:", "\n".join(missing)] if missing else []
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def paper_parts(tables: Sequence[TableRecord]) -> list[str]:
    """Return the parts of the page about one paper."""
    main = main_table(tables)
    parts = [f"## {tables[0].title}", paragraph(tables)]
    parts += [f"![Ours against printed]({PICTURES}/{picture_name(main)})"] if main else []
    for t in each_table(tables):
        tried = same(tables, t, t.table)
        if len(tried) > 1 and baselines(t):
            parts += [f"### {t.paper}, table {t.table}: the baseline under every reading", *readings_text(tried)]
        for found in attributions(tables, t):
            name = found.goal.reading.name
            parts += [f"### {t.paper}, table {t.table}: what the choices of “{name}” are worth"]
            parts += attribution_text(found)
    return [*parts, *details([t for t in tables if not t.reading.alone])]


def details(tables: Sequence[TableRecord]) -> list[str]:
    """Return a section for every table; one whose numbers another reading has as well is named and not repeated."""
    parts: list[str] = []
    shown: dict[tuple[object, ...], TableRecord] = {}
    for t in sorted(tables, key=lambda t: (t.table, t.circumstances, len(t.reading.choices))):
        runs = tuple((c.runs.folder, c.runs.measure) if c.runs else None for c in t.cells)
        first = shown.setdefault((t.table, t.circumstances, *(runs if t.runs else (t.reading.name,))), t)
        again = f"### {title(t)}\n\nThe rows that were run are the same as under “{first.reading.name}”."
        parts.append(table_section(t) if first is t else again)
    return parts


def shared_note(tables: Sequence[TableRecord]) -> str:
    """Return the note that all tables have, to print it once; empty if they differ."""
    notes = {t.remark for t in tables}
    return notes.pop() if len(tables) > 1 and len(notes) == 1 else ""


def table_section(t: TableRecord) -> str:
    """Return a table with its headline and notes."""
    parts = [f"### {title(t)}", t.why_not or f"**{headline(t)}.**"]
    parts += [] if t.why_not else [table_markdown(t)]
    return "\n\n".join(part for part in (*parts, t.note, provenance_line(t)) if part)


def picture_name(t: TableRecord) -> str:
    """Return the name of a paper's picture."""
    return f"results-{t.paper}.png"


def readme(text: str, tables: Sequence[TableRecord]) -> str:
    """Return README with the summary of these results between its two marks."""
    return re.sub(f"({re.escape(START)}\n).*?({re.escape(END)})", rf"\g<1>{summary(tables)}\n\2", text, flags=re.DOTALL)


def stored(folder: Path) -> list[TableRecord]:
    """Read every table in the folder's files that was run or cannot be, in the order of the papers and of the names."""
    known = list(shelf())
    tables = {t.key: t for file in sorted(folder.glob("*.json")) for t in read(file) if t.runs or t.why_not}
    return sorted(tables.values(), key=lambda t: (known.index(t.paper) if t.paper in known else 99, *t.key))


def main() -> None:
    """Write the page, the pictures, and README's summary where it has the marks."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.reproduce.results", description=__doc__)
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(), help="folder with results/ and docs/; default: the current one"
    )
    root = parser.parse_args().root
    if not (root / "results").is_dir() or not (root / "docs").is_dir():
        parser.error(f"{root} must have the folders results and docs: run it in the root of the repository")
    tables = stored(root / "results")
    (root / "docs" / "results.md").write_text(page(tables), encoding="utf-8")
    (root / "docs" / PICTURES).mkdir(exist_ok=True)
    for paper in dict.fromkeys(t.paper for t in tables):
        found = main_table([t for t in tables if t.paper == paper])
        if found:
            write_picture(found, root / "docs" / PICTURES / picture_name(found))
    if (root / "README.md").exists():
        old = (root / "README.md").read_text(encoding="utf-8")
        (root / "README.md").write_text(readme(old, tables), encoding="utf-8")
    print(f"wrote {root / 'docs' / 'results.md'}")


if __name__ == "__main__":
    main()

"""``python -m holdfast.reproduce.results``: write ``docs/results.md`` from the stored ``results/*.json``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.comparison.score_text import NONE
from holdfast.comparison.table_texts import markdown_table
from holdfast.reproduce.claims import RULE, Outcome, outcomes, phrase, published_counts
from holdfast.reproduce.markdown import caption, headline, provenance_line, table_markdown
from holdfast.reproduce.paper_file import shelf
from holdfast.reproduce.store import read
from holdfast.reproduce.table_schema import TableRecord

HEAD = """# Results

The verdicts on the papers' claims after running their tables. This page is generated from the files in `results/` by
`python -m holdfast.reproduce.results`. Every number of ours was measured by `holdfast reproduce`
(see [reproduce.md](reproduce.md)); none was typed in.
"""


def page(tables: Sequence[TableRecord]) -> str:
    """Return the whole page: the claims in one table, then every table that was run."""
    note = shared_note(tables)
    tables = [replace(t, remark="") for t in tables] if note else tables
    parts = [HEAD, note, "## Claims", RULE, verdicts(tables)] if tables else [HEAD, "No results are stored yet."]
    for paper in dict.fromkeys(t.paper for t in tables):
        of_paper = [t for t in tables if t.paper == paper]
        parts += [f"## {of_paper[0].title}", *map(table_section, of_paper)]
    missing = [paper for paper in shelf() if tables and paper not in {t.paper for t in tables}]
    parts += [f"## Not run yet\n\nNo table of {' and '.join(missing)} has been run."] if missing else []
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def shared_note(tables: Sequence[TableRecord]) -> str:
    """Return the note that all tables have, to print it once; empty if they differ."""
    notes = {t.remark for t in tables}
    return notes.pop() if len(tables) > 1 and len(notes) == 1 else ""


def verdicts(tables: Sequence[TableRecord]) -> str:
    """Return a line for every claim, and one for our variant where that was run."""
    head = ["paper, table", "claim", "verdict", "tests passed", "published numbers", "pairs run", "scale"]
    rows = []
    for t in (t for t in tables if t.claim):
        first, second = outcomes(t)
        name = f"{t.paper}, {t.table}"
        rows.append([name, t.claim, phrase(t, first), *counts(first, published_counts(t)), scale_text(t)])
        if second:
            rows.append([f"{name}, our variant", "the same", phrase(t, second), *counts(second, (0, 0)), scale_text(t)])
    return markdown_table(head, rows)


def counts(o: Outcome, published: tuple[int, int]) -> list[str]:
    """Return the tests that passed, those that the published numbers pass, and the pairs that were run."""
    pairs = [(o.passed, o.tested), published, (o.pairs_run, o.pairs)]
    return [f"{some} of {total}" if total else NONE for some, total in pairs]


def scale_text(t: TableRecord) -> str:
    """Return the scale and the changed settings, such as ``small, rounds = 4, precision = tf32``."""
    return ", ".join([t.scale, *(f"{k} = {v}" for k, v in t.changed.items())])


def table_section(t: TableRecord) -> str:
    """Return a table with its headline and notes."""
    parts = [f"### {t.paper}, table {t.table}: {caption(t)}", t.why_not or f"**{headline(t)}.**"]
    parts += [] if t.why_not else [table_markdown(t)]
    return "\n\n".join(part for part in (*parts, t.note, provenance_line(t)) if part)


def stored(folder: Path) -> list[TableRecord]:
    """Read every table in the folder's files, in the order of the papers and of the tables' names."""
    known = list(shelf())
    tables = {t.key: t for file in sorted(folder.glob("*.json")) for t in read(file)}
    return sorted(tables.values(), key=lambda t: (known.index(t.paper) if t.paper in known else 99, *t.key))


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.reproduce.results", description=__doc__)
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(), help="folder with results/ and docs/; default: the current one"
    )
    root = parser.parse_args().root
    if not (root / "results").is_dir() or not (root / "docs").is_dir():
        parser.error(f"{root} must have the folders results and docs: run it in the root of the repository")
    (root / "docs" / "results.md").write_text(page(stored(root / "results")), encoding="utf-8")
    print(f"wrote {root / 'docs' / 'results.md'}")


if __name__ == "__main__":
    main()

"""``python -m holdfast.reproduce.results``: writes ``docs/results.md`` from the stored ``results/*.json``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from holdfast.comparison.export import markdown_table
from holdfast.comparison.tables import NONE
from holdfast.reproduce.claims import RULE, Outcome, outcomes, phrase, printed
from holdfast.reproduce.markdown import caption, headline, made_line, table_markdown
from holdfast.reproduce.paper import shelf
from holdfast.reproduce.store import key, read

HEAD = """# Results

What became of the papers' claims when we ran their tables. Generated from the files in `results/` by
`python -m holdfast.reproduce.results`; every number there was measured by `holdfast reproduce`
(see [reproduce.md](reproduce.md)), and none was typed in.
"""


def page(tables: list[dict[str, Any]]) -> str:
    """The whole page: the claims in one table, then every table that was run."""
    note = shared_note(tables)
    tables = [t | {"made": {"note": ""}} for t in tables] if note else tables
    parts = [HEAD, note, "## Claims", RULE, verdicts(tables)] if tables else [HEAD, "No results are stored yet."]
    for paper in dict.fromkeys(t["paper"] for t in tables):
        own = [t for t in tables if t["paper"] == paper]
        parts += [f"## {own[0]['title']}", *(section(t) for t in own)]
    missing = [paper for paper in shelf() if tables and paper not in {t["paper"] for t in tables}]
    parts += [f"## Not run yet\n\nNo results are stored of any table of {' and '.join(missing)}."] if missing else []
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def shared_note(tables: list[dict[str, Any]]) -> str:
    """The note of all tables, where they have the same: it is said once."""
    notes = {t["made"]["note"] for t in tables}
    return notes.pop() if len(tables) > 1 and len(notes) == 1 else ""


def verdicts(tables: list[dict[str, Any]]) -> str:
    """A line for every claim, and one for our variant where that was run."""
    head = ["paper, table", "claim", "here", "tests seen", "printed", "pairs run", "scale"]
    rows = []
    for t in (t for t in tables if t["claim"]):
        first, second = outcomes(t)
        name = f"{t['paper']}, {t['table']}"
        rows.append([name, t["claim"], phrase(t, first), *counts(first, printed(t)), scaled(t)])
        if second:
            rows.append([f"{name}, our variant", "the same", phrase(t, second), *counts(second, (0, 0)), scaled(t)])
    return markdown_table(head, rows)


def counts(o: Outcome, printed: tuple[int, int]) -> list[str]:
    pairs = [(o.seen, o.tested), printed, (o.pairs_run, o.pairs)]
    return [f"{some} of {all_}" if all_ else NONE for some, all_ in pairs]


def scaled(t: dict[str, Any]) -> str:
    """
    >>> scaled({"scale": "small", "changed": {"rounds": 4, "precision": "tf32"}})
    'small, rounds = 4, precision = tf32'
    """
    return ", ".join([t["scale"], *(f"{k} = {v}" for k, v in t["changed"].items())])


def section(t: dict[str, Any]) -> str:
    said = [f"### {t['paper']}, table {t['table']}: {caption(t)}", t["why_not"] or f"**{headline(t)}.**"]
    said += [] if t["why_not"] else [table_markdown(t)]
    return "\n\n".join(part for part in (*said, t["note"], made_line(t)) if part)


def stored(folder: Path) -> list[dict[str, Any]]:
    """Every table in the folder's files, in the order of the papers and of their names."""
    known = list(shelf())
    tables = {key(t): t for file in sorted(folder.glob("*.json")) for t in read(file)}
    return sorted(tables.values(), key=lambda t: (known.index(t["paper"]) if t["paper"] in known else 99, *key(t)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.reproduce.results", description=__doc__)
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(), help="folder with results/ and docs/; default: here"
    )
    root = parser.parse_args().root
    if not (root / "results").is_dir() or not (root / "docs").is_dir():
        parser.error(f"{root} has no folders results and docs")
    (root / "docs" / "results.md").write_text(page(stored(root / "results")), encoding="utf-8")
    print(f"wrote {root / 'docs' / 'results.md'}")


if __name__ == "__main__":
    main()

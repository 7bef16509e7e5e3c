"""``python -m holdfast.reproduce.results``: writes ``docs/results.md`` from the stored ``results/*.json``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from holdfast.comparison.export import markdown_table
from holdfast.comparison.tables import NONE
from holdfast.reproduce.page import RULE, caption, claim, headline, made_line, table_markdown
from holdfast.reproduce.paper import shelf
from holdfast.reproduce.run import key, read

HEAD = """# Results

What became of the papers' claims when we ran their tables. Generated from the files in `results/` by
`python -m holdfast.reproduce.results`; every number there was measured by `holdfast reproduce`
(see [reproduce.md](reproduce.md)), and none was typed in.
"""


def page(tables: list[dict[str, Any]]) -> str:
    """The whole page: the claims in one table, then every table that was run."""
    parts = [HEAD, "## Claims", RULE, verdicts(tables)] if tables else [HEAD, "No results are stored yet."]
    for paper in dict.fromkeys(t["paper"] for t in tables):
        own = [t for t in tables if t["paper"] == paper]
        parts += [f"## {own[0]['title']}", *(section(t) for t in own)]
    missing = [paper for paper in shelf() if tables and paper not in {t["paper"] for t in tables}]
    parts += [f"## Not run yet\n\nNo results are stored of any table of {' and '.join(missing)}."] if missing else []
    return "\n\n".join(part.strip() for part in parts) + "\n"


def verdicts(tables: list[dict[str, Any]]) -> str:
    head = ["paper, table", "claim", "here", "comparisons seen", "printed", "scale"]
    rows = []
    for t in tables:
        c = claim(t)
        if t["claim"]:
            seen = f"{c['seen']} of {c['tested']} run" if c["tested"] else NONE
            printed = f"{c['printed_seen']} of {c['printed_tested']}" if c["printed_tested"] else NONE
            scale = t["scale"] + ("" if t["reproduction"] or t["scale"] != "full" else ", changed")
            far = ", as far as run" if 0 < c["tested"] < c["printed_tested"] else ""
            rows.append([f"{t['paper']}, {t['table']}", t["claim"], f"**{c['verdict']}**{far}", seen, printed, scale])
    return markdown_table(head, rows)


def section(t: dict[str, Any]) -> str:
    said = [f"### {t['paper']}, table {t['table']}: {caption(t)}", t["why_not"] or f"**{headline(t)}.**"]
    said += [] if t["why_not"] else [table_markdown(t)]
    return "\n\n".join(part for part in (*said, t["note"], made_line(t)) if part)


def stored(folder: Path) -> list[dict[str, Any]]:
    """Every table in the folder's files, in the order of the papers and of their names."""
    known = list(shelf())
    tables = {key(t): t for file in sorted(folder.glob("*.json")) for t in read(file)}
    return sorted(tables.values(), key=lambda t: (known.index(t["paper"]) if t["paper"] in known else 99, *key(t)))


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    (root / "docs" / "results.md").write_text(page(stored(root / "results")), encoding="utf-8")
    print(f"wrote {root / 'docs' / 'results.md'}")

"""Draws the picture of results in README, docs/pictures/results.svg, from the numbers of docs/digits_study.json.

python website/results_picture.py
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
SOURCE, TARGET = DOCS / "digits_study.json", DOCS / "pictures" / "results.svg"
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: var(--ink); }
  .small { font-size: 12.5px; fill: var(--soft); }
  .code { font: 13px ui-monospace, monospace; text-anchor: end; }
  .middle { text-anchor: middle; }
  .axis { stroke: var(--soft); stroke-width: 1; }
  .zero { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }
  .open { stroke: var(--soft); fill: var(--soft); stroke-width: 2; }
  .better { stroke: var(--better); fill: var(--better); stroke-width: 2.5; }
  .worse { stroke: var(--worse); fill: var(--worse); stroke-width: 2.5; }
  svg { --ink: #17212b; --soft: #51606e; --better: #00796b; --worse: #a0430a; background: transparent; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e8edf2; --soft: #aab7c4; --better: #4db6ac; --worse: #ffb27d; }
  }
"""
T95 = {4: 2.776}  # Student's t for a two-sided 95 % interval, by degrees of freedom
LEFT, RIGHT, TOP, STEP = 330, 900, 64, 32
LOW, HIGH = -2.0, 4.0  # points of the axis


def main() -> None:
    """Write the picture."""
    TARGET.write_text(picture(json.loads(SOURCE.read_text(encoding="utf-8"))), encoding="utf-8")


def picture(study: dict[str, Any]) -> str:
    """Return the picture of a study as SVG."""
    rows = [
        (row["method"] + ("" if setting.startswith("5 epochs") else f", {setting}"), *interval(row, group["fedavg"]))
        for setting, group in study["results"].items()
        for name, row in group.items()
        if name != "fedavg"
    ]
    rows.sort(key=lambda row: -row[1])
    bottom = TOP + STEP * len(rows)
    body = [
        '<text x="20" y="26">Points of accuracy gained over FedAvg, each method at its best setting</text>',
        '<text class="small" x="20" y="46">digits, Dirichlet(0.1), 20 clients, 5 per round, 40 rounds; mean of paired '
        "differences over 5 seeds, 95 % intervals</text>",
        f'<path class="axis" d="M{LEFT} {bottom} H{RIGHT}"/>',
        f'<path class="zero" d="M{place(0)} {TOP - 6} V{bottom}"/>',
        *(
            f'<text class="small middle" x="{place(value)}" y="{bottom + 18}">{f"{value:+d}" if value else 0}</text>'
            for value in range(int(LOW), int(HIGH) + 1)
        ),
    ]
    for number, (name, mean, half) in enumerate(rows):
        y = TOP + STEP * number + STEP // 2
        kind = "open" if abs(mean) <= half else "better" if mean > 0 else "worse"
        body += [
            f'<text class="code" x="{LEFT - 16}" y="{y + 5}">{name}</text>',
            f'<path class="{kind}" d="M{place(mean - half)} {y} H{place(mean + half)}"/>',
            f'<circle class="{kind}" cx="{place(mean)}" cy="{y}" r="4.5"/>',
        ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {bottom + 30}" role="img" aria-labelledby="t">'
    title = '<title id="t">What each method gains over FedAvg on non-IID digits</title>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", *body, "</svg>"]) + "\n"


def interval(row: dict[str, Any], base: dict[str, Any]) -> tuple[float, float]:
    """Return the mean difference from the baseline, paired by seed, and half its 95 % interval, both in points."""
    found = [100 * (a - b) for a, b in zip(row["last5"], base["last5"], strict=True)]
    half = T95[len(found) - 1] * statistics.stdev(found) / math.sqrt(len(found))
    return statistics.mean(found), half


def place(points: float) -> int:
    """Return where a difference lies on the axis."""
    return round(LEFT + (points - LOW) / (HIGH - LOW) * (RIGHT - LEFT))


if __name__ == "__main__":
    main()

"""Draws the picture of the round, docs/pictures/round.svg, which follows the reader's light or dark mode.

python website/round_picture.py
"""

from __future__ import annotations

from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "round.svg"
STYLE = """
  text { font: 15px system-ui, sans-serif; fill: var(--ink); text-anchor: middle; }
  .small { font-size: 12.5px; fill: var(--soft); }
  .title { font-size: 14px; font-weight: 600; text-anchor: start; }
  .code { font: 15px ui-monospace, monospace; }
  .paper { font-size: 12.5px; font-weight: 600; fill: var(--paper); }
  .zone { fill: var(--zone); stroke: none; }
  .box { fill: var(--box); stroke: var(--line); stroke-width: 1.2; }
  .arrow { stroke: var(--line); stroke-width: 1.5; fill: none; marker-end: url(#tip); }
  .pin { stroke: var(--paper); stroke-width: 1.2; stroke-dasharray: 3 3; fill: none; }
  svg { --ink: #17212b; --soft: #51606e; --line: #51606e; --box: #ffffff; --zone: #e7f2f0; --paper: #a0430a;
        background: transparent; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e8edf2; --soft: #aab7c4; --line: #aab7c4; --box: #222b34; --zone: #17302d; --paper: #ffb27d; }
  }
"""
CLIENT = [("begin", 110), ("step × K", 110), ("end", 110), ("send", 110)]
SERVER = [("admit", 110), ("aggregate", 110), ("server step", 110), ("evaluate", 110)]
GAP = 80
FORMULA = "w ← w − lr · rate ⊙ optimise( direction( gradient( task loss + penalties ) ) )"


def main() -> None:
    """Write the picture."""
    TARGET.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """Return the picture as SVG."""
    body = [
        zone(16, 16, 928, 104, "Data and draw"), zone(16, 136, 928, 186, "Each client"),
        zone(16, 338, 928, 134, "Server"),
        *row([("split", 110), ("cohort", 110)], 120, 54), text(660, 69, "split: who holds which data", "small"),
        text(660, 89, "cohort: who takes part, drawn from the seed and the round", "small"),
        *row(CLIENT, 120, 176), '<rect class="box" x="120" y="238" width="720" height="36" rx="6"/>',
        text(480, 261, FORMULA, "code"), '<path class="pin" d="M365 212 V238"/>', *row(SERVER, 120, 378),
        '<path class="arrow" d="M365 90 V128 H175 V174"/>', '<path class="arrow" d="M800 194 H880 V330 H175 V376"/>',
        paper(218, 296, "FedAgg: lr"), paper(352, 296, "FedBug, FedNLR: rate"),
        paper(660, 296, "FedMRUR: direction, penalties"), paper(365, 440, "FedMRUR: aggregate"),
        paper(365, 460, "FNR-FL: a further trip before it"),
    ]  # fmt: skip
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tip += '<path d="M0 0 L8 4 L0 8 z" fill="context-stroke"/></marker>'
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 488" role="img" aria-labelledby="t">'
    title = '<title id="t">One round of federated learning, and where the five papers change it</title>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", f"<defs>{tip}</defs>", *body, "</svg>"]) + "\n"


def row(boxes: list[tuple[str, int]], x: int, y: int) -> list[str]:
    """Return boxes from left to right, joined by arrows."""
    drawn = []
    for i, (word, width) in enumerate(boxes):
        drawn += [f'<rect class="box" x="{x}" y="{y}" width="{width}" height="36" rx="6"/>']
        drawn += [text(x + width // 2, y + 23, word)]
        if i + 1 < len(boxes):
            drawn += [f'<path class="arrow" d="M{x + width} {y + 18} h{GAP - 2}"/>']
        x += width + GAP
    return drawn


def zone(x: int, y: int, width: int, height: int, name: str) -> str:
    """Return a shaded part of the picture with its name."""
    area = f'<rect class="zone" x="{x}" y="{y}" width="{width}" height="{height}" rx="10"/>'
    return area + f'<text class="title" x="{x + 14}" y="{y + 22}">{name}</text>'


def text(x: int, y: int, words: str, kind: str = "") -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}">{words}</text>'


def paper(x: int, y: int, words: str) -> str:
    """Return what a paper changes."""
    return text(x, y, words, "paper")


if __name__ == "__main__":
    main()

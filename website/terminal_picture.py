"""Runs a command and draws a terminal with what it prints, docs/pictures/terminal.svg; no line is typed in.

python website/terminal_picture.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "pictures" / "terminal.svg"
COMMAND = 'holdfast compare fedavg scaffold --split "dirichlet(0.1)" --rounds 10 --seeds 5 --out study'
LEFT_OUT = "Other scores"  # from this line to the last one: the picture shows the first table
COLUMNS, WIDE, HIGH, TOP, EDGE = 92, 8.4, 20, 60, 22  # of a table; pixels of a character, and around the text
STYLE = """
  .line { font: 14px ui-monospace, 'Cascadia Mono', Menlo, Consolas, monospace; fill: #dde5ea; white-space: pre; }
  .prompt { fill: #4db6ac; }
  .window { fill: #17212b; }
"""


def main() -> None:
    """Run the command and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        TARGET.write_text(picture(COMMAND, shown(printed(COMMAND, Path(folder)))), encoding="utf-8")


def printed(command: str, folder: Path) -> list[str]:
    """Return the lines that a command prints in an empty folder."""
    env = os.environ | {"COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    code = "import shlex, sys; from holdfast.cli.main import main; main(shlex.split(sys.argv[1])[1:])"
    pipe = subprocess.PIPE
    done = subprocess.run(
        [sys.executable, "-c", code, command], cwd=folder, env=env, stdout=pipe, stderr=subprocess.STDOUT,
        encoding="utf-8", check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def shown(lines: Sequence[str]) -> list[str]:
    """Return the lines of the picture: up to the end of the first table, and the last one."""
    end = next(i for i, line in enumerate(lines) if line.startswith(LEFT_OUT))
    return [*lines[:end], "…", lines[-1]]


def picture(command: str, lines: Sequence[str]) -> str:
    """Return a terminal as SVG; every character has its place, whatever the width of the reader's font."""
    width, height = round(2 * EDGE + max(map(len, lines)) * WIDE), TOP + HIGH * (len(lines) + 1) + 4
    dots = "".join(f'<circle cx="{24 + 20 * i}" cy="22" r="6" fill="{c}"/>' for i, c in enumerate(DOTS))
    rows = [row(0, f"$ {command}", "line prompt"), *(row(i, line, "line") for i, line in enumerate(lines, 1))]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t">'
    title = '<title id="t">Two methods compared in a terminal</title>'
    window = f'<rect class="window" width="{width}" height="{height}" rx="10"/>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", window, dots, *rows, "</svg>"]) + "\n"


DOTS = ("#ff5f57", "#febc2e", "#28c840")


def row(number: int, line: str, kind: str) -> str:
    """Return a line of text."""
    line = line.rstrip()
    if not line:
        return ""
    where = f'x="{EDGE}" y="{TOP + HIGH * number}" xml:space="preserve"'
    length = f'textLength="{len(line) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text class="{kind}" {where} {length}>{escape(line)}</text>'


if __name__ == "__main__":
    main()

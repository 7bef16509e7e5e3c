"""Where the files of the project lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SHARED = ROOT.parent / "shared" / "data"  # exact data sets, where they are at hand
EAGER_NODES = ROOT / "tests" / "helpers" / "eager_nodes"  # for PYTHONPATH

"""Folders that version 0.1 wrote are read: a deployment, a search and a comparison, as they lie in ``release_0_1``.

They were made once by the last formats of 0.1 (tiny, in double precision) and must never be written again. Older runs
and comparisons are in ``format1``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from helpers.commands import good
from helpers.places import ROOT
from holdfast.data.sources import load

OLD = ROOT / "tests" / "runs" / "release_0_1"
METHODS = ["fedavg", "fedprox"]
SETTINGS: dict[str, Any] = {
    "clients": 4, "cohort": 2, "steps": 2, "batch": 16, "model": "linear", "precision": "fp64", "device": "cpu",
    "rounds": 2, "seeds": 2,
}  # fmt: skip


def written(folder: Path) -> dict[str, int]:
    """Return when each file of every run was last written."""
    found = {str(p): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and p.parent != folder}
    assert len(found) > 20
    return found


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_a_deployment_is_read_and_used(old: Path) -> None:
    folder = old / "deployment"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    result = holdfast.load_run(folder)
    assert (len(result.history), result.config.engine) == (2, "flower")
    digits = load("digits")
    assert (result.predict(digits.test_x) == digits.test_y.numpy()).mean() == pytest.approx(summary["final"])
    good("report", str(folder))
    assert "scaffold" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_search_is_read_and_nothing_is_run_again(old: Path) -> None:
    folder = old / "search"
    before, expected = written(folder), json.loads((folder / "tune.json").read_text(encoding="utf-8"))
    found = holdfast.tune(METHODS, out=folder, trials=2, progress=False, **SETTINGS)
    assert written(folder) == before
    for entry, other in zip(found.record["entries"], expected["entries"], strict=True):
        assert (entry["method"], entry["trials"]) == (other["method"], other["trials"])


def test_a_comparison_is_read_and_nothing_is_run_again(old: Path) -> None:
    folder = old / "comparison"
    before, expected = written(folder), json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    found = holdfast.compare(METHODS, out=folder, progress=False, **SETTINGS)
    assert written(folder) == before
    for entry, other in zip(found.entries, expected["entries"], strict=True):
        assert np.allclose(entry["scores"]["final"]["values"], other["scores"]["final"]["values"], rtol=0, atol=1e-9)

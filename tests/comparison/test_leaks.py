"""Labels of test data choose nothing in a comparison: no point of a sweep, no best round, no stopping round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import holdfast
from holdfast.comparison.compare import Comparison

SETTINGS: dict[str, Any] = {
    "clients": 4, "cohort": 2, "steps": 2, "lr": 0.5, "model": "linear", "rounds": 10, "validation": 0.2,
    "stop_after": 2, "seeds": 1, "sweep": {"prox.mu": [0.01, 1.0]},
}  # fmt: skip


def compared(out: Path, shuffled: bool) -> Comparison:
    data = holdfast.load("digits")
    if shuffled:
        order = torch.randperm(len(data.test_y), generator=torch.Generator().manual_seed(1))
        data = replace(data, test_y=data.test_y[order])
    return holdfast.compare(["fedavg", "prox"], data=data, out=out, **SETTINGS)


def chosen(found: Comparison) -> list[dict[str, Any]]:
    """What validation data decides about every run: the best round, the stopping round, the scores it goes by."""
    runs = [holdfast.load_run(path.parent) for path in sorted(found.folder.glob("*/seed-*/summary.json"))]
    names = ("rounds", "best_round", "stopped_early", "chosen_on")
    return [{name: r.summary[name] for name in names} | {"by": [x.validation for x in r.history]} for r in runs]


def test_shuffled_test_labels_choose_the_same_points_rounds_and_weights(tmp_path: Path) -> None:
    true, wrong = compared(tmp_path / "true", False), compared(tmp_path / "wrong", True)
    assert true.record["best_points"] == wrong.record["best_points"]
    assert true.record["chosen_on"] == "validation"
    assert chosen(true) == chosen(wrong)
    assert any(run["stopped_early"] for run in chosen(true))
    for path in sorted(true.folder.glob("*/seed-*/summary.json")):
        place = path.parent.relative_to(true.folder)
        one, other = (holdfast.load_run(found.folder / place) for found in (true, wrong))
        assert torch.equal(one.w, other.w)
    finals = [[e["scores"]["final"]["mean"] for e in found.entries] for found in (true, wrong)]
    assert finals[0] != pytest.approx(finals[1])

"""The pages show what the studies in ``benchmarks/studies`` measured."""

from __future__ import annotations

import json
from importlib import import_module
from types import ModuleType

import pytest

from helpers.places import ROOT


@pytest.fixture
def study(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of ``benchmarks``, which finds its neighbours there."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module(request.param)


@pytest.mark.parametrize("study", ["advise_regret", "scale_costs"], indirect=True)
def test_the_page_shows_what_was_measured(study: ModuleType):
    stored = json.loads(study.STORED.read_text())
    assert stored
    assert f"{study.START}\n\n{study.tables(stored)}\n\n{study.END}" in study.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("study", ["advise_regret"], indirect=True)
def test_regret_by_hand(study: ModuleType):
    """The best of the search scores 90 and 80 %; a policy is 1 and 3 points behind it, and diverged once."""

    def judged(*scores: float | None) -> dict[str, object]:
        return {"method": "fedavg", "lr": 0.1, "scores": list(scores)}

    stored = [
        {"policies": {study.SEARCH: judged(0.88, 0.92), study.ADVISE: judged(0.89, 0.89)}},
        {"policies": {study.SEARCH: judged(0.80, 0.80), study.ADVISE: judged(0.77, 0.77)}},
        {"policies": {study.SEARCH: judged(0.80, 0.80), study.ADVISE: judged(0.80, None)}},
    ]
    assert study.regrets(study.ADVISE, stored) == pytest.approx([1.0, 3.0, 40.0])
    assert study.interval([1.0, 3.0]) == "+2.00 [-10.71, +14.71]"  # 2 ± 12.706 · √2 / √2

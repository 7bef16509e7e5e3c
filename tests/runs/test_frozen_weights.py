"""Frozen weights are not in checkpoints: a run is loaded and resumed with the same ones, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import holdfast
from helpers.exact_errors import raises_exactly
from tests.helpers.any_models import images

SETTINGS = {"rounds": 1, "cohort": 3, "epochs": 1, "lr": 0.1}


def network(seed: int = 0, frozen: bool = True, norm: bool = False) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8) if norm else nn.ReLU()]
        if norm:
            nn.init.uniform_(layers[2].running_mean)  # type: ignore[arg-type]
        body = nn.Sequential(*layers).requires_grad_(not frozen)
        torch.manual_seed(5)
        return nn.Sequential(body, nn.Linear(8, 3))


def message(folder: Path) -> str:
    return (
        f"the model's frozen parameters or constant buffers are not those of the run in {folder}, which does not store "
        "them: give the module that it was started with, with the same parameters frozen and the same weights in them"
    )


@pytest.mark.parametrize("other", [network(1), network(0, frozen=False)], ids=["other weights", "not frozen"])
def test_other_frozen_weights_are_refused(other: nn.Module, tmp_path: Path):
    result = holdfast.run("fedavg", images(), network(), **SETTINGS, out=tmp_path)
    again = holdfast.load_run(tmp_path, model=network())
    x = images().data.x
    assert (again.predict_proba(x) == result.predict_proba(x)).all()
    with raises_exactly(message(tmp_path)):
        holdfast.load_run(tmp_path, model=other)
    files = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with raises_exactly(message(tmp_path)):
        holdfast.run("fedavg", images(), other, **SETTINGS | {"rounds": 2}, out=tmp_path, resume=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == files
    more = holdfast.run("fedavg", images(), network(), **SETTINGS | {"rounds": 2}, out=tmp_path, resume=True)
    assert len(more.history) == 2


def test_statistics_are_frozen_weights_only_where_they_are_frozen(tmp_path: Path):
    for mode in ("average", "frozen"):
        settings = SETTINGS | {"batchnorm": mode, "out": tmp_path / mode}
        holdfast.run("fedavg", images(), network(frozen=False, norm=True), **settings)
    other = network(1, frozen=False, norm=True)
    holdfast.load_run(tmp_path / "average", model=other)
    with raises_exactly(message(tmp_path / "frozen")):
        holdfast.load_run(tmp_path / "frozen", model=other)


def test_a_run_of_an_earlier_version_does_not_know(tmp_path: Path):
    holdfast.run("fedavg", images(), network(), **SETTINGS, out=tmp_path)
    facts = tmp_path / "model.json"
    kept, _, rest = facts.read_text(encoding="utf-8").partition('"frozen": "')
    facts.write_text(kept + rest.partition('", ')[2], encoding="utf-8")
    holdfast.load_run(tmp_path, model=network(1))

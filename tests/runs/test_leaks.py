"""Labels of test data decide nothing: shuffled, they change no weight, no choice and no stopping round."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.brief import brief, least_cohort
from holdfast import Federation, Result, federate, from_arrays, run
from holdfast.method.catalogue import methods

NAMES = [entry.name for entry in methods() if not entry.name.startswith("toy")]  # those are other tests'
SETTINGS: dict[str, Any] = {"cohort": 2, "steps": 2, "batch": 16, "lr": 0.05}
CHOICES = ("rounds", "best_round", "stopped_early", "chosen_on")


@cache
def federation(shuffled: bool, client_test: float = 0.0) -> Federation:
    """A federation with validation data, clients' test samples and, for parts at the server, public data."""
    draw = np.random.default_rng(3)
    x = draw.normal(size=(300, 6)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    fed = federate(from_arrays(x, y), "dirichlet(0.5)", clients=4, validation=0.2, public=0.1, client_test=client_test)
    if not shuffled:
        return fed
    labels = fed.data.y.clone()
    if fed.client_test is not None:
        own = torch.from_numpy(fed.client_test.index)
        labels[own] = (labels[own] + 1) % 3
    return replace(fed, data=replace(fed.data, y=labels, test_y=(fed.data.test_y + 1) % 3))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.below, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.tanh(self.norm(self.below(x))))
        return out


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def assert_no_leak(true: Result, wrong: Result) -> None:
    assert torch.equal(true.w, wrong.w)
    assert [r.cohort for r in true.history] == [r.cohort for r in wrong.history]
    assert [r.train_loss for r in true.history] == [r.train_loss for r in wrong.history]
    assert [r.validation for r in true.history] == [r.validation for r in wrong.history]
    assert [true.summary[key] for key in CHOICES] == [wrong.summary[key] for key in CHOICES]
    assert [r.test for r in true.history] != [r.test for r in wrong.history]


@pytest.mark.parametrize("method", NAMES)
def test_no_method_reads_them(method: str) -> None:
    settings = SETTINGS | {"rounds": 2, "cohort": least_cohort(method)}
    assert_no_leak(*(run(brief(method), federation(s), network, **settings) for s in (False, True)))


@pytest.mark.parametrize("settings", [{"personal": 2, "personal_what": "all"}, {"batchnorm": "local"}])
def test_models_of_clients_do_not_read_them(settings: dict[str, Any]) -> None:
    model = Normed if "batchnorm" in settings else network
    more: dict[str, Any] = {"rounds": 12, "stop_after": 2, "lr": 0.5, **settings}
    true, wrong = (run("scaffold", federation(s, 0.2), model, **SETTINGS | more) for s in (False, True))
    if "batchnorm" not in settings:
        assert_no_leak(true, wrong)
    assert [r.validation for r in true.history] == [r.validation for r in wrong.history]
    assert [true.summary[key] for key in CHOICES] == [wrong.summary[key] for key in CHOICES]
    assert true.history[-1].clients != wrong.history[-1].clients
    rows = zip(true.client_scores().values(), wrong.client_scores().values(), strict=True)
    assert all(a.samples == b.samples for a, b in rows)

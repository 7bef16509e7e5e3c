"""Every method on every task: it runs alike on both engines, or says in one line that it needs classes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.brief import brief, least_cohort
from helpers.exact_errors import raises_exactly
from holdfast import Federation, federate, from_arrays, run
from holdfast.method.catalogue import methods

CLASSES_NEEDED = {"fedlc", "fedrs", "fnr", "ccvr", "fedgen", "feddf", "fedftg", "probability-loss"}
NAMES = [entry.name for entry in methods() if not entry.name.startswith("toy")]  # those are other tests'


class TinyText(nn.Module):
    """A recurrent language model over seven tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(7, 4), nn.GRU(4, 6, batch_first=True)
        self.head = nn.Linear(6, 7)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layer(self.embedding(x))[0])
        return out


@cache
def federation(task: str) -> Federation:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(240, 5)).astype(np.float32)
    y: Any = {"regression": x[:, :2] * 30 + 100, "multilabel": (x[:, :3] > 0).astype(int)}.get(task)
    if task == "next-token":
        x = np.cumsum(draw.integers(0, 3, (240, 9)), 1) % 7
        x, y = x[:, :-1], x[:, 1:]
    return federate(from_arrays(x, y, task=task), "dirichlet(0.5)", clients=4, public=0.1)


@cache
def model(task: str) -> nn.Module:
    torch.manual_seed(0)
    if task == "next-token":
        return TinyText()
    outputs = {"regression": 2, "multilabel": 3}[task]
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, outputs))


@pytest.mark.parametrize("task", ["regression", "multilabel", "next-token"])
@pytest.mark.parametrize("method", NAMES)
def test_a_method_runs_alike_on_both_engines_or_needs_classes(method: str, task: str) -> None:
    settings: dict[str, Any] = {
        "rounds": 2,
        "cohort": least_cohort(method),
        "steps": 2,
        "batch": 16,
        "lr": 0.05,
        "precision": "fp64",
    }
    if method in CLASSES_NEEDED:
        with raises_exactly(f"{method} needs one class per sample, not {task}; leave {method} out"):
            run(method, federation(task), model(task), **settings)
        return
    loop, vector = (run(brief(method), federation(task), model(task), engine=e, **settings) for e in ("loop", "vector"))
    torch.testing.assert_close(loop.w, vector.w, rtol=1e-9, atol=1e-12)
    for a, b in zip(loop.history, vector.history, strict=True):
        assert a.test == pytest.approx(b.test, rel=1e-8)
        assert all(np.isfinite(v) for v in a.test.values())

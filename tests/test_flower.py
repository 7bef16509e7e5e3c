"""Methods on Flower: the same history as in simulation, message by message."""

from __future__ import annotations

import pytest
import torch
from flower_toys import SMALL, on_grid

from holdfast import run

METHODS = {
    "fedavg": {},
    "scaffold": {},
    "feddyn(0.01)": {},
    "fedbug(0.4)+fednlr": {},
    "fedagg": {},
    "fedagg(mode=fixed_point, sweeps=1)": {"rounds": 1},
    "fnr(epochs=2)": {"public": 0.05},
    "fedmrur": {},
    "moon+ccvr": {},
    "prox+fedavgm": {"split": "dirichlet(0.5)+noise(0.5)", "clip": 5.0, "weight_decay": 1e-4},
}


@pytest.mark.parametrize("method", METHODS)
def test_the_same_history_as_in_simulation(method):
    expected = run(method, engine="loop", **SMALL | METHODS[method])
    found = on_grid(method, **METHODS[method])
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.skipped, a.failed, a.reset) == (b.cohort, [], {}, [])
        assert (a.upload_bytes, a.download_bytes) == (b.upload_bytes, b.download_bytes)
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)
        assert a.test_accuracy == pytest.approx(b.test_accuracy, abs=0.01)
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)

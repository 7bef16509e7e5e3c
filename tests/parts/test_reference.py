"""Both engines against the methods written down once more, without parts, on several rounds of ragged clients."""

from __future__ import annotations

import pytest

from helpers import reference
from helpers.reference_world import SETTINGS, world
from helpers.toys import ENGINES, train

CASES = {
    "fedavg": (reference.fedavg, {}),
    "mean(uniform)": (reference.uniform, {}),
    "fedprox(0.3)": (reference.fedprox, {"mu": 0.3}),
    "feddyn(0.1)": (reference.feddyn, {"alpha": 0.1}),
    "feddyn(0.1, samples=8.4)": (reference.feddyn, {"alpha": 0.1, "samples": 8.4}),
    "scaffold": (reference.scaffold, {}),
    "fedcm(0.3)": (reference.fedcm, {"alpha": 0.3}),
    "fedsam(0.1)": (reference.fedsam, {"rho": 0.1}),
    "mofedsam(0.3, rho=0.1)": (reference.fedcm, {"alpha": 0.3, "rho": 0.1}),
    "fedlc(0.7)": (reference.fedlc, {"tau": 0.7}),
    "fedlc(0.7, missing=out)": (reference.fedlc, {"tau": 0.7, "out": True}),
    "fedrs(0.3)": (reference.fedrs, {"alpha": 0.3}),
    "fedrs(0.3, scaled=all)": (reference.fedrs, {"alpha": 0.3, "graded": True}),
    "feddecorr(0.5)": (reference.feddecorr, {"beta": 0.5}),
    "feddecorr(0.5, scale=code)": (reference.feddecorr, {"beta": 0.5, "code": True}),
    "moon(2, T=0.5)": (reference.moon, {"mu": 2.0, "T": 0.5}),
    "fedbug(0.4)": (reference.fedbug, {"percent": 40}),
    "fedbug(1)": (reference.fedbug, {"percent": 100}),
    "fedbug(0.7)+decay(0.2)": (reference.fedbug, {"percent": 70, "decay": 0.2}),
    "fedbug(0.7)+clip(0.2)": (reference.fedbug, {"percent": 70, "clip": 0.2}),
    "fedbug(0.7)+clip(0.2)+decay(0.2)": (reference.fedbug, {"percent": 70, "clip": 0.2, "decay": 0.2}),
    "fedbug(0.7)+decay(0.2)+clip(0.2)": (reference.fedbug, {"percent": 70, "clip": 0.2, "shrink": 0.2}),
    "fedbug(0.7)+sam(0.1)": (reference.fedbug, {"percent": 70, "rho": 0.1}),
    "fedbug(0.7)+scaffold": (reference.fedbug_scaffold, {"percent": 70}),
    "fednova": (reference.fednova, {}),
    "normalized": (reference.normalized, {}),
    "fedavgm(0.8, eta=0.5)": (reference.fedavgm, {"beta": 0.8, "eta": 0.5}),
    "fedadam(0.1, 0.8, 0.9, 0.01)": (reference.fedadam, {"eta": 0.1, "beta1": 0.8, "beta2": 0.9, "tau": 0.01}),
    "fedadagrad(0.1, 0.3, 0.01)": (reference.fedadagrad, {"eta": 0.1, "beta1": 0.3, "tau": 0.01}),
    "fedyogi(0.1, 0.8, 0.9, 0.01)": (reference.fedyogi, {"eta": 0.1, "beta1": 0.8, "beta2": 0.9, "tau": 0.01}),
    "fedexp": (reference.fedexp, {"eps": 1e-3}),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", CASES)
def test_agrees_with_the_reference(method, engine):
    ran = train(method, engine=engine, **SETTINGS)
    equations, parameters = CASES[method]
    here = world([record.cohort for record in ran.history])
    expected = equations(here, **parameters)
    moved = (expected - here.start).abs().max()
    assert moved > 0.05
    assert (ran.after[-1]["served"] - expected).abs().max() <= 1e-9 * moved


@pytest.mark.parametrize("method", [m for m in CASES if m not in ("fedavg", "fedexp")])
def test_the_reference_is_not_fedavg(method):
    equations, parameters = CASES[method]
    here = world([[0, 3, 4], [1, 3, 4], [0, 1, 4]])
    assert (equations(here, **parameters) - reference.fedavg(here)).abs().max() > 1e-3

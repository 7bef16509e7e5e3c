"""The five papers' parts summed with one another and with their baselines, and what the tests of the papers share.

Parts that average a round's gradients are checked on a quadratic, where every gradient is known by hand.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from helpers import reference_papers as ref
from helpers.paper_problems import SETTINGS, assert_follows, every_engine, network
from helpers.reference_papers import Batches, Layers
from helpers.toys import FEDERATION, Bowl, Ran, assert_close, points, train
from holdfast import HoldfastError, Method
from holdfast.parts.fedbug import FedBug
from holdfast.parts.fedcm import FedCM
from holdfast.parts.fedrs import FedRS
from holdfast.parts.scaffold import Scaffold

# -- what the tests of the papers share ------------------------------------------------------------------------------


# -- every sum the papers name, and sums of the papers ---------------------------------------------------------------
COMBINATIONS = [
    *[f"fedbug(0.4)+{other}" for other in ("fedprox(0.1)", "feddyn(0.1)", "fedexp", "feddecorr")],
    *[f"fednlr+{other}" for other in ("feddyn(0.1)", "fedrs", "fedlc", "fednova")],
    *[f"fnr+{other}" for other in ("fedprox(0.1)", "scaffold", "moon", "fednova")],
    *[
        f"{part}+{other}"
        for part in ("hyperbolic(0.5, 2)", "normalized", "normalized+hyperbolic(0.5, 2)")
        for other in ("fedavg", "fedcm", "fedexp", "scaffold", "feddyn(0.1)")
    ],
    "fedbug(0.4)+fednlr+normalized",
    "fedbug+fednlr+fedmrur",
    "fedagg+fednlr",
    "fedagg+fedbug",
    "fedagg(mode=fixed_point)+fedbug+scaffold",
    "fnr+fedbug+fednlr",
    "fnr+fedagg+fedmrur",
]


@cache
def once(sum: str, engine: str) -> Ran:
    return train(sum, engine=engine, batch=4)


@pytest.mark.parametrize("sum", COMBINATIONS)
def test_engines_agree_on_the_combination(sum):
    loop, vector = once(sum, "loop"), once(sum, "vector")
    for one, other in zip(loop.after, vector.after, strict=True):
        assert_close(other, one, 1e-9)
    for one, other in zip(loop.history, vector.history, strict=True):
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-9)
        assert (other.upload_bytes, other.download_bytes) == (one.upload_bytes, one.download_bytes)
        assert one.skipped == other.skipped == []


@pytest.mark.parametrize("sum", COMBINATIONS)
def test_the_paper_makes_a_difference_in_the_combination(sum):
    _, _, rest = sum.partition("+")
    assert (once(sum, "loop").after[-1]["w"] - once(rest, "loop").after[-1]["w"]).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("sum", "says"),
    [
        ("fedrs+fedlc+fednlr", "fedrs and fedlc cannot be summed: both replace the loss; keep one of them"),
        ("normalized+fednova", "normalized and nova cannot be summed: both aggregate the cohort; keep one of them"),
        ("fedmrur+fedsam", "sam appears twice in the sum: keep one of them"),
        ("fedbug+feddyn+fedexp", "feddyn and fedexp cannot be summed: both define the server step; keep one of them"),
    ],
)
def test_what_cannot_be_summed_is_refused_with_the_reason(sum, says):
    with pytest.raises(HoldfastError) as caught:
        Method.parse(sum)
    assert str(caught.value) == says
    assert "\n" not in says


def test_fedrs_scales_by_its_parameter():
    # 0.3 is not 0.3 in float32.
    c = SimpleNamespace(counts=torch.tensor([2, 0, 1]), w0=torch.zeros(1, dtype=torch.float64))
    assert FedRS(0.3).begin(c)["scale"].tolist() == [1.0, 0.3, 1.0]


# -- parts that average a round's gradients, on a quadratic -----------------------------------------------------------
@every_engine
def test_by_hand_while_unfreezing(engine):
    # Two blocks of one number, from 0 towards 4 (client 1) and 0 (client 0, which does not move); lr 1/2, P = 1, K = 2.
    # Step 1 unfreezes the first: gradient -4, it moves to 2. Step 2 unfreezes both: gradients -2 and -4, to 3 and 2.
    # Of its gradients the first block saw the mean -3, the second -4; -delta/(K*lr) would say -3 and -2.
    federation, model = (
        points((1.0, 2), (1.0, 2)),
        nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)),
    )
    for p in model.parameters():
        nn.init.zeros_(p)
    settings = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 1, "cohort": 2, "engine": engine}
    gradual = Bowl() + FedBug(1.0)
    found = train(gradual + Scaffold(), federation, model, **settings).after[1]
    assert found["1/scaffold/c"].tolist() == [-3, -4]
    assert found["scaffold/c"].tolist() == [-1.5, -2]
    # The mean delta is (1.5, 1), the mean of the rates applied is (1, 0.5): D is their quotient.
    found = train(gradual + FedCM(1.0), federation, model, **settings).after[1]
    assert found["w"].tolist() == [1.5, 1]
    assert found["fedcm/D"].tolist() == [-1.5, -2]


class Hand:
    """Clients on the quadratic ``|w - 4*id|^2 / 2`` of all coordinates, one after the other, every number written out.

    ``sum`` names who rescales rates or clips; ``clip`` acts on the direction after SCAFFOLD or FedCM, which see the
    gradient before it.
    """

    def __init__(self, sum: str, layers: Layers, alpha: float | None) -> None:
        self.sum, self.layers, self.alpha = sum, layers, alpha  # alpha: FedCM's; None: SCAFFOLD
        self.c = self.D = torch.zeros_like(ref.flatten(layers))
        self.own: dict[int, Tensor] = {}
        self.phi1: Tensor | None = None
        self.naive = 0.0  # how far SCAFFOLD's -delta/(K*lr) would be off

    def factor(self, w0: Tensor, epochs: ref.Epochs, k: int, K: int) -> Tensor:
        rate = torch.ones_like(w0)
        if "fednlr" in self.sum:
            at = ref.unflatten(w0, self.layers)
            rate = rate * ref.fednlr_rates(at, ref.fednlr_factors(at, ref.samples_of(epochs)[0]))
        if "fedbug" in self.sum:
            m = ref.fedbug_unfrozen(k, K, len(self.layers), 0.6)
            free = [(torch.full_like(W, i < m), torch.full_like(b, i < m)) for i, (W, b) in enumerate(self.layers)]
            rate = rate * ref.flatten(free)
        return rate

    def eta(self, w0: Tensor, w: Tensor, lr: float, epoch: int) -> float:
        if "fedagg" not in self.sum or self.phi1 is None:
            return lr
        phi2 = ref.fedagg_reference(w0, self.phi1, lr)
        return min(max(float(ref.fedagg_solve(self.phi1, phi2, w, 0.1, epoch)[0]), 1e-3), 0.5)

    def __call__(self, layers: Layers, batches: Batches, lr: float, t: int, cohort: list[int]) -> Tensor:
        w0, counts = ref.flatten(layers), ref.counts_of(batches)
        deltas, weights, changes, fields = [], [], [], []
        for i, epochs in zip(cohort, batches, strict=True):
            w, k, K = w0, 0, sum(len(epoch) for epoch in epochs)
            own = self.own.get(i, torch.zeros_like(w0))
            seen = total = torch.zeros_like(w0)
            field = []
            for e, epoch in enumerate(epochs):
                lr_now = self.eta(w0, w, lr, e)
                field.append(torch.zeros_like(w0))
                for _ in epoch:
                    k += 1
                    rate = self.factor(w0, epochs, k, K)
                    eta, g = lr_now * rate, (w - 4.0 * i) * (rate > 0)
                    field[-1] = field[-1] + rate * g
                    d = g - own + self.c if self.alpha is None else self.alpha * g + (1 - self.alpha) * self.D
                    d = d * (rate > 0)
                    if "clip" in self.sum:
                        d = d * min(1.0, 9.0 / float(d.norm()))
                    seen, total = seen + eta * (g if self.alpha is None else d), total + eta
                    w = w - eta * d
            mean = torch.where(total > 0, seen / total.clamp(min=1e-300), own)
            printed = own - self.c - (w - w0) / (K * lr)
            self.naive = max(self.naive, float((mean - printed).abs().max()))
            deltas.append(w - w0)
            weights.append(total)
            changes.append(mean - own)
            fields.append(torch.stack(field))
            if self.alpha is None:
                self.own[i] = mean
        update, eta = ref.weighted_mean(deltas, counts), ref.weighted_mean(weights, counts)
        self.c = self.c + torch.stack(changes).sum(0) / FEDERATION.clients
        self.D = -update / eta
        self.phi1 = ref.weighted_mean(fields)
        return w0 + update


RESCALED = [
    "fedbug(0.6)+{}", "fednlr+{}", "fedagg+{}", "{}+clip(9)", "fedbug(0.6)+fednlr+{}", "fedagg+fednlr+{}",
    "fedagg+fedbug(0.6)+{}",
]  # fmt: skip


@every_engine
@pytest.mark.parametrize("sum", RESCALED)
def test_scaffold_averages_the_gradients_it_saw(sum, engine):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    method, hand = Bowl() + Method.parse(sum.format("scaffold")), Hand(sum, layers, None)
    ran = train(method, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, hand)
    assert_close({"c": ran.after[-1]["scaffold/c"]}, {"c": hand.c}, 1e-10)
    for i, own in hand.own.items():
        assert_close({"c": ran.after[-1][f"{i}/scaffold/c"]}, {"c": own}, 1e-10)
    assert hand.naive > 0.1


@every_engine
@pytest.mark.parametrize("sum", RESCALED)
def test_momentum_divides_by_the_rates_applied(sum, engine):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    method, hand = Bowl() + Method.parse(sum.format("fedcm(0.4)")), Hand(sum, layers, 0.4)
    ran = train(method, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, hand)
    assert_close({"D": ran.after[-1]["fedcm/D"]}, {"D": hand.D}, 1e-10)

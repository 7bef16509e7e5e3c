"""FedDF: ensemble distillation at the server, against hand-computed steps and PyTorch's own optimiser."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.toys import ENGINES, FEDERATION, assert_close, mlp, server_round, train
from holdfast import Batch, HoldfastError, Round, Tensors, run
from holdfast.core import rng
from holdfast.models.net import Net
from holdfast.parts._distillation import adam, adam_state, minibatches
from holdfast.parts.feddf import FedDF


def seen(net: Net, deltas: Tensor, x: Tensor) -> Round:
    """What the server sees when clients report back from the net's initial model and x are the public inputs."""
    C = len(deltas)
    public = [Batch(part, torch.zeros(len(part), dtype=torch.int64), torch.ones(len(part)) > 0) for part in x.split(5)]
    r = server_round([[0.0]] * C, [1] * C, [1] * C, [1 / C] * C)
    return replace(r, w=net.initial, deltas=deltas, net=net, key=lambda: rng.key(1, 2), public=lambda: iter(public))


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_one_step_by_hand():
    # A linear model of zeros on x = (1, 2). The clients' logits are (2, 0) and (0, -2) + (0, 2) = (0, 0): their mean
    # is (1, 0), the student says (1/2, 1/2), and the gradient is (1/2 - p) x for the first class, p = e/(e + 1).
    net = Net(nn.Linear(2, 2, bias=False), (2,), 2, precision="fp64")
    net.initial.zero_()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    deltas = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, -2.0, 1.0]], dtype=torch.float64)
    w, state = FedDF(steps=1, eta=0.1).tune({}, seen(net, deltas, x), net.initial)
    p = math.e / (math.e + 1)
    g = torch.tensor([0.5 - p, 2 * (0.5 - p), p - 0.5, 2 * (p - 0.5)], dtype=torch.float64)
    assert torch.allclose(w, -0.1 * g / (g.abs() + 1e-8), rtol=1e-14)
    assert state == {}


@pytest.mark.parametrize("T", [1.0, 3.0])
def test_many_steps_against_torch(T):
    net, x, steps = Net(mlp(), (3,), 3, precision="fp64"), some(12, 3), 20
    deltas = 0.5 * some(4, len(net.initial), seed=1)
    found, _ = FedDF(steps=steps, batch=100, T=T, eta=0.01).tune({}, seen(net, deltas, x), net.initial + deltas.mean(0))

    def module(vector: Tensor) -> nn.Module:
        made = mlp()
        nn.utils.vector_to_parameters(vector.clone(), made.parameters())
        return made

    student = module(net.initial + deltas.mean(0))
    with torch.no_grad():
        target = F.softmax(sum(module(net.initial + d)(x) for d in deltas) / 4 / T, dim=1)
    optimiser = torch.optim.Adam(student.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = T**2 * F.kl_div(F.log_softmax(student(x) / T, 1), target, reduction="batchmean")
        loss.backward()
        optimiser.step()
        schedule.step()
    expected = nn.utils.parameters_to_vector(student.parameters()).detach()
    assert float((found - expected).abs().max()) < 1e-9
    assert float((expected - net.initial - deltas.mean(0)).abs().max()) > 1e-2


def test_adam_is_adam():
    gradients = some(7, 5)
    gradients[:, 2] = 0.0
    ours, state = torch.ones(5, dtype=torch.float64), adam_state(torch.ones(5, dtype=torch.float64))
    theirs = torch.ones(5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([theirs], lr=0.1)
    for g in gradients:
        ours, state = adam(ours, g, state, 0.1)
        theirs.grad = g.clone()
        optimiser.step()
    assert torch.allclose(ours, theirs.detach(), rtol=1e-12)
    assert ours[2] == 1  # no gradient, no step


@pytest.mark.parametrize("clients", [1, 3, 7])
def test_where_all_agree_nothing_moves(clients):
    # To the bit, whatever the batch: Adam would make a whole step of a gradient that is only rounding.
    net, x = Net(mlp(), (3,), 3, precision="fp64"), some(23, 3)
    r = seen(net, torch.zeros(clients, len(net.initial), dtype=torch.float64), x)
    w, _ = FedDF(steps=30, batch=4).tune({}, r, net.initial)
    assert torch.equal(w, net.initial)


def test_every_pass_sees_every_input_once():
    found = list(minibatches(10, 4, 7, torch.tensor(5)))
    assert [len(rows) for rows in found] == [4, 4, 2, 4, 4, 2, 4]
    first, second = torch.cat(found[:3]), torch.cat(found[3:6])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()


def digits(method: str, **settings: object) -> list:
    """A short run on skewed digits."""
    asked = {"data": "digits", "split": "dirichlet(0.1)", "cohort": 5, "rounds": 3, "public": 0.05, "epochs": 2}
    return run(method, **(asked | settings)).history


def test_the_distillation_loss_falls_on_digits(monkeypatch):
    tune, losses = FedDF.tune, []

    def watched(self: FedDF, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        after, state = tune(self, s, r, w)
        x = torch.cat([batch.x for batch in r.public()])
        p = F.softmax(torch.stack([r.net(r.w + delta, x).logits for delta in r.deltas]).mean(0), 1)
        losses.append([float(F.kl_div(F.log_softmax(r.net(v, x).logits, 1), p, reduction="sum")) for v in (w, after)])
        return after, state

    monkeypatch.setattr(FedDF, "tune", watched)
    digits("feddf")
    assert len(losses) == 3
    assert all(after < 0.7 * before for before, after in losses)


def test_labels_are_not_used():
    data = FEDERATION.data
    other = replace(FEDERATION, data=replace(data, y=data.y.index_fill(0, FEDERATION.public, 0)))
    assert not torch.equal(other.data.y, data.y)
    assert torch.equal(train("feddf", rounds=1).after[1]["w"], train("feddf", other, rounds=1).after[1]["w"])


def test_public_data_is_needed():
    says = "feddf needs public data: hold some out with --public 0.05 or federate(..., public=0.05)"
    with pytest.raises(HoldfastError, match=f"^{re.escape(says)}$"):
        digits("feddf", public=0.0)


def test_public_data_is_not_the_test_data():
    with pytest.raises(HoldfastError, match="public data is the test data"):
        digits("feddf", public="test")


def test_another_part_that_accepts_test_data_does_not_admit_them_for_this_one():
    says = (
        "feddf: the public data is the test data, which makes test accuracy meaningless; hold out training data "
        "instead with --public 0.05"
    )
    with pytest.raises(HoldfastError, match=f"^{says}$"):
        digits("feddf+fnr(allow_test_leak=true)", public="test")


def test_it_costs_no_traffic():
    for distilled, plain in zip(digits("feddf(steps=3)"), digits("fedavg"), strict=True):
        assert (distilled.upload_bytes, distilled.download_bytes) == (plain.upload_bytes, plain.download_bytes)


@pytest.mark.parametrize("sum", ["feddf(steps=20)+scaffold+fedbug", "fedadam+feddf(steps=20, T=2)+moon"])
def test_engines_agree_on_sums(sum):
    loop, vector = (train(sum, engine=engine) for engine in ENGINES)
    for one, other in zip(loop.after, vector.after, strict=True):
        assert_close(other, one, 1e-9)

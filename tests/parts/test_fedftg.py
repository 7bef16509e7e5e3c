"""FedFTG: label-wise ensemble, generator and fine-tuning, against hand-computed cases and PyTorch modules."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.toys import ENGINES, assert_close, mlp, server_round, train
from holdfast import Round, Tensors, run
from holdfast.core import rng
from holdfast.models.net import Net
from holdfast.parts._generator import Generator, class_shares, diversity, labels, standardised
from holdfast.parts.fedftg import FedFTG

SMALL = {"noise": 4, "width": 6, "batch": 8}
COUNTS = torch.tensor([[3, 0, 2], [1, 4, 0], [0, 0, 6]])


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seen(deltas: Tensor, counts: Tensor = COUNTS) -> Round:
    """What the server sees when clients with these counts report back from the initial model of a small network."""
    net = Net(mlp(), (3,), 3, precision="fp64")
    r = server_round([[0.0]] * len(deltas), [1] * len(deltas), [1] * len(deltas), [1 / len(deltas)] * len(deltas))
    return replace(r, w=net.initial, deltas=deltas, net=net, key=lambda: rng.key(1, 2), uploads={"counts": counts})


def spread(clients: int = 3) -> Tensor:
    return 0.7 * some(clients, len(Net(mlp(), (3,), 3, precision="fp64").initial), seed=3)


def module(vector: Tensor) -> nn.Module:
    made = mlp()
    nn.utils.vector_to_parameters(vector.clone(), made.parameters())
    return made


# -- the pieces ------------------------------------------------------------------------------------------------------
def test_each_client_counts_for_a_class_by_what_it_holds():
    counts = torch.tensor([[3.0, 0.0, 0.0], [1.0, 4.0, 0.0]])
    assert class_shares(counts).tolist() == [[0.75, 0, 0], [0.25, 1, 0]]  # nobody has the last class


def test_labels_are_drawn_by_how_many_samples_there_are():
    counts = torch.tensor([0.0, 100.0, 0.0, 300.0, 0.0])
    found = labels(torch.tensor(7), counts, 20_000)
    assert set(found.tolist()) == {1, 3}
    assert float((found == 3).double().mean()) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("total", [1, 3, 1000, 4096, 60_000])
def test_the_largest_draw_is_still_a_class_that_is_there(total, monkeypatch):
    monkeypatch.setattr(rng, "uniform", lambda k, shape, dtype: torch.full(shape, (2**24 - 1) / 2**24, dtype=dtype))
    assert labels(torch.tensor(0), torch.tensor([0.0, total, 0.0]), 1).tolist() == [1]


def test_diversity_by_hand():
    # Differences of 1 and 3 average to 2, that of the noise is 2 squared; half of the pairs are a sample with itself.
    z, x = torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    assert diversity(z, x).item() == pytest.approx(math.exp(-2 * 4 / 2))
    assert diversity(z, 0 * x).item() == 1


def test_generated_samples_are_on_the_scale_of_normalised_data():
    x = standardised(3 + 5 * some(50, 2, 4, 4))
    assert x.mean((0, 2, 3)).abs().max() < 1e-12
    assert torch.allclose(x.var((0, 2, 3), correction=0), torch.ones(2, dtype=torch.float64), rtol=1e-5)


def test_noise_and_label_weigh_alike_at_the_start():
    g = Generator(noise=100, classes=10, width=512, outputs=20)
    theta, z, y = g.start(torch.tensor(3), torch.float64), some(200, 100), torch.arange(200) % 10
    by_noise = (g(theta, z, y[:1].expand(200)) - g(theta, z, y[:1].expand(200)).mean(0)).std()
    by_label = (g(theta, z[:1].expand(200, -1), y) - g(theta, z[:1].expand(200, -1), y).mean(0)).std()
    assert 0.5 < by_noise / by_label < 2


# -- the two objectives ----------------------------------------------------------------------------------------------
def by_hand(part: FedFTG, theta: Tensor, r: Round, w: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The generator's loss and L_md, sample by sample and client by client, from modules."""
    inner, shift, outer, lift = theta.split([42, 6, 18, 3])
    hidden = torch.cat([z / 2, F.one_hot(y, 3)], 1) @ inner.reshape(6, 7).T + shift
    raw = torch.tanh(torch.where(hidden > 0, hidden, 0.2 * hidden) @ outer.reshape(3, 6).T + lift)
    x = F.batch_norm(raw, None, None, training=True)
    total = r.uploads["counts"].sum(0)
    hard = true = torch.zeros((), dtype=torch.float64)
    for b in range(len(y)):
        student = F.log_softmax(module(w)(x[b]), 0)
        for k, delta in enumerate(r.deltas):
            logits = module(r.w + delta)(x[b])
            alpha = r.uploads["counts"][k, y[b]] / total[y[b]]
            hard = hard + alpha * F.kl_div(student, F.softmax(logits, 0), reduction="sum") / len(y)
            true = true + alpha * F.cross_entropy(logits, y[b]) / len(y)
    pairs = [(x[i] - x[j]).abs().mean() * ((z[i] - z[j]) ** 2).mean() for i in range(len(y)) for j in range(len(y))]
    spread = torch.exp(-sum(pairs) / len(pairs))
    return part.fidelity * true - hard + part.diversity * spread, hard


@pytest.mark.parametrize(
    "weights", [{}, {"fidelity": 0.0, "diversity": 0.0}, {"fidelity": 3.0, "diversity": 0.5}], ids=str
)
def test_the_generators_gradient_against_modules(weights):
    part, r = FedFTG(**SMALL, **weights), seen(spread())
    theta, w = part.generator(r).start(torch.tensor(9), torch.float64), r.w + r.deltas.mean(0)
    y, z = torch.tensor([0, 1, 2, 0, 2, 2, 1, 0]), some(8, 4, seed=5)
    loss = part.objective(r, w, r.w + r.deltas, class_shares(COUNTS.double())[:, y], z, y)
    at = theta.clone().requires_grad_()
    expected, _ = by_hand(part, at, r, w, z, y)
    (gradient,) = torch.autograd.grad(expected, at)
    assert torch.allclose(loss(theta), expected.detach(), rtol=1e-10)
    assert torch.allclose(torch.func.grad(loss)(theta), gradient, rtol=1e-8, atol=1e-12)


def test_the_models_steps_against_torch():
    part, r = FedFTG(**SMALL, model_steps=3, eta=0.2), seen(spread())
    x, y = some(8, 3, seed=6), torch.tensor([0, 1, 2, 0, 2, 2, 1, 0])
    found = part.fine_tuned(r, r.w, r.w + r.deltas, class_shares(COUNTS.double())[:, y], x)
    student, teachers = module(r.w), [module(r.w + delta) for delta in r.deltas]
    optimiser = torch.optim.SGD(student.parameters(), lr=0.2)
    for _ in range(3):
        optimiser.zero_grad()
        mine = F.log_softmax(student(x), 1)
        for b in range(8):
            for k, teacher in enumerate(teachers):
                alpha = COUNTS[k, y[b]] / COUNTS[:, y[b]].sum()
                (alpha * F.kl_div(mine[b], F.softmax(teacher(x[b]), 0).detach(), reduction="sum") / 8).backward(
                    retain_graph=True
                )
        optimiser.step()
    assert torch.allclose(found, nn.utils.parameters_to_vector(student.parameters()).detach(), rtol=1e-9, atol=1e-12)


def test_who_has_none_of_the_labels_teaches_nothing():
    part, counts = FedFTG(**SMALL), torch.tensor([[5, 5, 0], [0, 0, 0]])
    deltas = spread(2)
    other = torch.stack([deltas[0], -deltas[1]])
    (one, kept), (two, _) = (part.tune({}, seen(d, counts), seen(d).w) for d in (deltas, other))
    assert torch.equal(one, two)
    assert set(kept) == {"theta", "m", "v", "step"}


@pytest.mark.parametrize("clients", [1, 3])
def test_where_all_agree_the_model_stays_and_the_generator_learns(clients):
    part, r = FedFTG(**SMALL), seen(0 * spread(clients), COUNTS[:clients])
    w, state = part.tune({}, r, r.w)
    assert torch.equal(w, r.w)
    _, later = part.tune(state, r, r.w)
    assert not torch.equal(later["theta"], state["theta"])
    assert later["step"] == 2 * part.iterations


# -- on digits -------------------------------------------------------------------------------------------------------
def digits(method: str, **settings: object) -> list:
    """A short run on skewed digits."""
    asked = {"data": "digits", "split": "dirichlet(0.1)", "cohort": 5, "rounds": 3, "epochs": 2}
    return run(method, **(asked | settings)).history


def test_both_sides_learn_on_digits(monkeypatch):
    tune, md, made = FedFTG.tune, [], []

    def watched(self: FedFTG, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        after, state = tune(self, s, r, w)
        share = class_shares(r.uploads["counts"].to(w.dtype))
        y = labels(torch.tensor(1), r.uploads["counts"].sum(0).to(w.dtype), 100)
        z = rng.normal(torch.tensor(2), (100, self.noise))
        x, wrong = self.samples(r, state["theta"], z, y), []
        for v in (w, after):
            mine = F.log_softmax(r.net(v, x).logits, 1)
            teachers = [F.softmax(r.net(r.w + delta, x).logits, 1) for delta in r.deltas]
            wrong.append(
                sum(
                    float((a[y] * F.kl_div(mine, p, reduction="none").sum(1)).mean())
                    for a, p in zip(share, teachers, strict=True)
                )
            )
        md.append(wrong)
        loss = self.objective(r, w, r.w + r.deltas, share[:, y], z, y)
        start = self.generator(r).start(torch.tensor(3), w.dtype)
        made.append([float(loss(theta)) for theta in (start, state["theta"])])
        return after, state

    monkeypatch.setattr(FedFTG, "tune", watched)
    digits("fedftg")
    assert all(after < before for before, after in md)
    assert made[-1][1] < made[-1][0]


def test_traffic_is_the_counts():
    for tuned, plain in zip(digits("fedftg(iterations=1)"), digits("fedavg"), strict=True):
        assert tuned.upload_bytes == plain.upload_bytes + 5 * 10 * 4
        assert tuned.download_bytes == plain.download_bytes


@pytest.mark.parametrize("sum", ["fedftg(iterations=3)+scaffold+fedbug", "fedadam+fedftg(iterations=3)+moon"])
def test_engines_agree_on_sums(sum):
    loop, vector = (train(sum, engine=engine) for engine in ENGINES)
    for one, other in zip(loop.after, vector.after, strict=True):
        assert_close(other, one, 1e-9)
    assert "fedftg/theta" not in loop.after[0]
    assert loop.after[3]["fedftg/step"] == 9

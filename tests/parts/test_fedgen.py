"""FedGen: the generator of features and the clients' penalty, against hand-computed cases and PyTorch modules."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.brief import brief
from helpers.toys import ENGINES, assert_close, assert_same, mlp, points, server_round, train
from holdfast import Batch, Method, Round, Tensors, run
from holdfast.core import rng
from holdfast.models.net import Net, Out
from holdfast.parts._distillation import part_key
from holdfast.parts._generator import labels
from holdfast.parts.fedgen import FedGen

SMALL = {"noise": 4, "width": 6, "batch": 8, "samples": 5}
COUNTS = torch.tensor([[3, 0, 2], [1, 4, 0], [0, 0, 6]])
every_engine = pytest.mark.parametrize("engine", ENGINES)


def some(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def generated(theta: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """The features of the small generator, written out: 4 numbers and 3 labels in, 6 hidden units, 4 features out."""
    inner, shift, outer, lift = theta.split([42, 6, 24, 4])
    hidden = torch.cat([z / 2, F.one_hot(y, 3)], 1) @ inner.reshape(6, 7).T + shift
    return torch.where(hidden > 0, hidden, 0.2 * hidden) @ outer.reshape(4, 6).T + lift


# -- the head of a network -------------------------------------------------------------------------------------------
def test_a_network_hands_out_its_head():
    net, x = Net(mlp(), (3,), 3, precision="fp64"), some(5, 3)
    out = net(net.initial, x)
    assert torch.equal(out.head(out.features), out.logits)
    models = net.initial + some(4, len(net.initial))
    heads = torch.func.vmap(lambda w: net(w, x).head(out.features))(models)
    for w, logits in zip(models, heads, strict=True):
        assert torch.allclose(net(w, x[:1]).head(out.features), logits, rtol=1e-12)


# -- the client ------------------------------------------------------------------------------------------------------
def test_penalty_by_hand():
    # A generator of zeros makes features of zeros, so that the head (weights 7, bias (ln 3, 0)) says (3/4, 1/4): the
    # label, which is always 1, costs ln 4. The batch has one sample and a row of padding; its own logits say
    # (1/2, 1/2), and KL((3/4, 1/4) || (1/2, 1/2)) = ln 2 - H(3/4). It is round 3: the strength is 2 * (1/2)^2.
    part = FedGen(alpha=2, beta=3, decay=0.5, noise=1, width=1, samples=4)
    bias = torch.tensor([math.log(3), 0.0])
    out = Out(torch.tensor([[5.0, 5.0], [9.0, 0.0]]), torch.zeros(2, 1), lambda f: 7 * f + bias)
    message = {"theta": torch.zeros(6), "labels": torch.tensor([0.0, 2.0]), "key": torch.tensor(3)}
    c = SimpleNamespace(message=message, k=torch.tensor(1), round=torch.tensor(3), net=SimpleNamespace(classes=2))
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 0]), torch.tensor([True, False]))
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    expected = 2 * 0.5**2 * (math.log(4) + 3 * (math.log(2) - entropy))
    assert part.penalty(c, out, batch).item() == pytest.approx(expected, rel=1e-6)


@every_engine
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_a_clients_step_against_torch(beta, engine):
    # One client with one batch of one sample: round 2 is a single step of gradient descent on loss and penalty.
    federation = points((1.5, 1))
    federation = replace(federation, data=replace(federation.data, classes=("a", "b", "c")))
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    nn.utils.vector_to_parameters(some(23), model.parameters())
    part = FedGen(alpha=0.7, beta=beta, **SMALL)
    settings = {"lr": 0.3, "batch": 1, "epochs": 1, "rounds": 2, "cohort": 1, "engine": engine}
    _, before, after = train(part, federation, model, **settings).after
    nn.utils.vector_to_parameters(before["w"].clone(), model.parameters())
    k = rng.key(before["fedgen/key"], torch.tensor(1))
    assert before["fedgen/labels"].tolist() == [1, 0, 0]
    y = torch.zeros(5, dtype=torch.int64)
    features = generated(before["fedgen/theta"], rng.normal(rng.key(k, 2), (5, 4), torch.float64), y)
    log_p = F.log_softmax(model(torch.tensor([[1.5]], dtype=torch.float64)), 1)
    said = model[2](generated(before["fedgen/theta"], rng.normal(rng.key(k, 3), (1, 4), torch.float64), y[:1]))
    penalty = F.cross_entropy(model[2](features), y)
    penalty = penalty + beta * F.kl_div(log_p, F.softmax(said, 1).detach(), reduction="batchmean")
    (F.nll_loss(log_p, y[:1]) + 0.7 * 0.98 * penalty).backward()
    expected = torch.cat([(p - 0.3 * p.grad).detach().reshape(-1) for p in model.parameters()])
    assert torch.allclose(after["w"], expected, rtol=1e-9, atol=1e-12)


@every_engine
def test_the_first_round_is_fedavg(engine):
    plain, ours = (train(method, engine=engine, rounds=2).after for method in ("fedavg", brief("fedgen")))
    assert torch.equal(ours[1]["w"], plain[1]["w"])
    assert not torch.equal(ours[2]["w"], plain[2]["w"])


@pytest.mark.parametrize("sum", ["fedgen(beta=1)", "fedgen(beta=1)+sam+scaffold+fedbug", "fedgen+moon+fedlc+fedadam"])
def test_engines_agree(sum):
    sum = Method.parse(sum)
    sum = Method((replace(sum.parts[0], **SMALL, steps=5), *sum.parts[1:]))
    loop, vector = (train(sum, engine=engine) for engine in ENGINES)
    for one, other in zip(loop.after, vector.after, strict=True):
        assert_close(other, one, 1e-9)


# -- the server ------------------------------------------------------------------------------------------------------
def seen(deltas: Tensor) -> Round:
    """What the server sees when clients report back from the initial model of a small network."""
    net = Net(mlp(), (3,), 3, precision="fp64")
    r = server_round([[0.0]] * 3, [1] * 3, [1] * 3, [1 / 3] * 3)
    return replace(r, w=net.initial, deltas=deltas, net=net, key=lambda: rng.key(1, 2), uploads={"counts": COUNTS})


def wrong(part: FedGen, theta: Tensor, r: Round, z: Tensor, y: Tensor) -> Tensor:
    """The generator's loss, sample by sample and client by client, from modules."""
    features, total, loss = generated(theta, z, y), COUNTS.sum(0), torch.zeros((), dtype=torch.float64)
    for k, delta in enumerate(r.deltas):
        model = mlp()
        nn.utils.vector_to_parameters((r.w + delta).clone(), model.parameters())
        for b in range(len(y)):
            loss = loss + COUNTS[k, y[b]] / total[y[b]] * F.cross_entropy(model[4](features[b]), y[b]) / len(y)
    n = range(len(y))
    pairs = [(features[i] - features[j]).abs().mean() * ((z[i] - z[j]) ** 2).mean() for i in n for j in n]
    return loss + part.diversity * torch.exp(-sum(pairs) / len(pairs))


def test_the_generators_training_against_torch():
    part, r = FedGen(**SMALL, steps=4, eta=0.05, diversity=0.5), seen(some(3, 59, seed=3))
    start = part.absorb({}, replace(r, key=lambda: rng.key(8)))  # some generator
    found = part.absorb(start, r)
    theta = start["theta"].clone().requires_grad_()
    optimiser = torch.optim.Adam([theta], lr=0.05)
    optimiser.state[theta] = {
        "step": torch.tensor(4.0),
        "exp_avg": start["m"].clone(),
        "exp_avg_sq": start["v"].clone(),
    }
    k = part_key(r.key(), "fedgen")
    for step in range(4):
        y = labels(rng.key(k, step, 1), COUNTS.sum(0).double(), 8)
        z = rng.normal(rng.key(k, step, 2), (8, 4), torch.float64)
        optimiser.zero_grad()
        wrong(part, theta, r, z, y).backward()
        optimiser.step()
    assert torch.allclose(found["theta"], theta.detach(), rtol=1e-8, atol=1e-10)
    assert found["step"] == 8


def digits(method: str, **settings: object) -> list:
    """A short run on skewed digits."""
    asked = {"data": "digits", "split": "dirichlet(0.1)", "cohort": 5, "rounds": 3, "epochs": 2}
    return run(method, **(asked | settings)).history


def test_the_generator_learns_on_digits(monkeypatch):
    absorb, right = FedGen.absorb, []

    def watched(self: FedGen, s: Tensors, r: Round) -> Tensors:
        state = absorb(self, s, r)
        y = labels(torch.tensor(1), state["labels"], 500)
        outs = [r.net(r.w + delta, torch.zeros(1, 1, 8, 8)) for delta in r.deltas]
        generator = self.generator(10, outs[0].features)
        features = generator(state["theta"], rng.normal(torch.tensor(2), (500, self.noise)), y)
        said = torch.stack([out.head(features) for out in outs])  # [C, 500, 10]
        expert = r.uploads["counts"][:, y].argmax(0)  # who has most of the label
        right.append(float((said[expert, torch.arange(500)].argmax(1) == y).double().mean()))
        return state

    monkeypatch.setattr(FedGen, "absorb", watched)
    digits("fedgen", rounds=5)
    assert right[-1] > 0.9


def test_traffic_is_the_generator_down_and_the_counts_up():
    # Inputs 32 + 10, 256 hidden units, 200 features, in four bytes each; ten labels; a key of eight bytes.
    down = 4 * (42 * 256 + 256 + 256 * 200 + 200 + 10) + 8
    for t, (ours, plain) in enumerate(zip(digits("fedgen(steps=1)"), digits("fedavg"), strict=True), start=1):
        assert ours.upload_bytes == plain.upload_bytes + 5 * 10 * 4
        assert ours.download_bytes == plain.download_bytes + 5 * down * (t > 1)


@every_engine
def test_resuming_brings_back_the_generator_and_its_optimiser(engine, tmp_path):
    sum = f"{brief('fedgen')[:-1]}, beta=1)+{brief('fedftg')}"
    whole = train(sum, engine=engine, rounds=3)
    train(sum, engine=engine, rounds=2, out=tmp_path)
    rest = train(sum, engine=engine, rounds=3, out=tmp_path, resume=True)
    names = {f"{part}/{name}" for part in ("fedgen", "fedftg") for name in ("theta", "m", "v", "step")}
    assert names <= rest.after[0].keys()
    assert_same(rest.after[-1], whole.after[-1])

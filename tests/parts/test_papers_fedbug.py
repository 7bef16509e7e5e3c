"""FedBug and its freezing ablations against plain loops, the paper's two-client example, and the hand cases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import reference_papers as ref
from helpers.paper_problems import SETTINGS, assert_follows, every_engine, every_problem, network, start
from helpers.toys import FEDERATION, assert_same, mlp, train
from holdfast import Batch, Client, DataSet, HoldfastError, Method, Net, Out, Part, federate
from holdfast.models.zoo import make
from holdfast.parts.fedbug import FedBug, unfrozen


# -- against plain loops ---------------------------------------------------------------------------------------------
def trainable(k: int, K: int, M: int, P: float, order: str = "bottom-up", frozen: int = 0) -> list[bool]:
    """Which of the M layers move in step k; the last ``frozen`` never do."""
    m = ref.fedbug_unfrozen(k, K, M, P)
    moves = [layer < m for layer in range(M)]
    moves = moves[::-1] if order == "top-down" else moves
    return [move and layer < M - frozen for layer, move in enumerate(moves)]


class Plain:
    """Thawing with a proximal term, client momentum, clipping and weight decay, coordinate by coordinate."""

    def __init__(
        self, P: float, mu: float = 0.0, alpha: float = 1.0, clip: float = math.inf, decay: float = 0.0,
        uniform: bool = False, **how,
    ) -> None:  # fmt: skip
        self.P, self.mu, self.alpha, self.clip, self.decay = P, mu, alpha, clip, decay
        self.uniform, self.how = uniform, how
        self.D: Tensor | None = None

    def __call__(self, layers: ref.Layers, batches: ref.Batches, lr: float, t: int, cohort: list[int]) -> Tensor:
        w0, deltas, sums = ref.flatten(layers), [], []
        D = torch.zeros_like(w0) if self.D is None else self.D
        for epochs in batches:
            w, moved = w0, torch.zeros_like(w0)
            steps = [pair for epoch in epochs for pair in epoch]
            for k, (x, y) in enumerate(steps, 1):
                moves = trainable(k, len(steps), len(layers), self.P, **self.how)
                here = [(torch.full_like(W, m), torch.full_like(b, m)) for (W, b), m in zip(layers, moves, strict=True)]
                free = ref.flatten(here).bool()
                g = ref.gradient(w, layers, x, y) + self.mu * (w - w0)
                g = torch.where(free, self.alpha * g + (1 - self.alpha) * D, 0.0)
                g = g * min(1.0, self.clip / float(g.norm())) + self.decay * w
                w = torch.where(free, w - lr * g, w)
                moved = moved + lr * free.to(w0)
            deltas.append(w - w0)
            sums.append(moved)
        weights = None if self.uniform else ref.counts_of(batches)
        update, eta = ref.weighted_mean(deltas, weights), ref.weighted_mean(sums, weights)
        self.D = torch.where(eta > 0, -update / eta.clamp(min=1e-300), torch.zeros_like(eta))
        return w0 + update


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "plain"),
    [
        ("fedbug(0.4)", {"P": 0.4}),
        ("fedbug(1)", {"P": 1}),
        ("fedbug(0.6)+mean(uniform)", {"P": 0.6, "uniform": True}),
        ("fedbug(0.7, order=top-down)", {"P": 0.7, "order": "top-down"}),
        ("fedbug(0.8)+prox(0.5)+fedcm(0.4)+decay(0.1)", {"P": 0.8, "mu": 0.5, "alpha": 0.4, "decay": 0.1}),
        ("fedbug(1)+fedcm(0.4)+clip(0.3)+decay(0.1)", {"P": 1, "alpha": 0.4, "clip": 0.3, "decay": 0.1}),
    ],
    ids=str,
)
def test_agrees_with_plain_loops(sum, plain, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, Plain(**plain))


@every_engine
@pytest.mark.parametrize(("sum", "frozen"), [("freeze(0)", 0), ("fedbabu", 1), ("freeze-last-two", 2)])
def test_freezing_agrees_with_plain_loops(sum, frozen, engine):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, Plain(P=0, frozen=frozen))


# -- the paper's example of two clients ------------------------------------------------------------------------------
@dataclass(frozen=True)
class ToOne(Part):
    """The loss ``(f(x) - 1)^2 / 2``."""

    name = "toy-to-one"

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        return batch.mean((out.logits[:, 0] - 1) ** 2 / 2)


@every_engine
@pytest.mark.parametrize(("method", "sum"), [("fedavg", "fedavg"), ("fedbug", "fedbug(0.4)"), ("fedbabu", "fedbabu")])
def test_the_papers_example_runs_as_its_recursion_says(method, sum, engine):
    # f(x) = x [a, b]^T v; client 1 has [1, 0] -> 1, client 2 has [0, 1] -> 1: two blocks, 50 steps at lr 0.1.
    a, b, v = 0.3, 1.6, 0.7
    x, y = torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    federation = federate(DataSet("two", x, y, x, y, ("one",), groups=torch.arange(2)), "given", clients=2)
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[a, b]], dtype=torch.float64))
        model[1].weight.fill_(v)
    ran = train(
        ToOne() + Method.parse(sum), federation, model, engine=engine, lr=0.1, batch=1, steps=50, rounds=4, cohort=2
    )
    path = ref.fedbug_toy(a, b, v, method, rounds=4, steps=50, lr=0.1, P=0.4)
    found = torch.stack([known["w"] for known in ran.after])
    torch.testing.assert_close(found, torch.from_numpy(path), rtol=1e-12, atol=0)


# -- m(k) ------------------------------------------------------------------------------------------------------------
def schedule(K: int, M: int, share: float) -> list[int]:
    return [int(unfrozen(torch.tensor(k), torch.tensor(K), M, share)) for k in range(1, K + 1)]


def test_the_papers_example_of_forty_percent_and_four_blocks():
    # 40% of 50 steps are 20: a block more every five of them.
    assert schedule(50, 4, 0.4) == [1] * 5 + [2] * 5 + [3] * 5 + [4] * 35
    assert schedule(10, 4, 0.4) == [1, 2, 3] + [4] * 7


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4, 0.7, 0.9, 1.0, 1 / 3, 2 / 3, 0.123])
def test_unfreezing_is_exact(share):
    exact = {1 / 3: Fraction(1, 3), 2 / 3: Fraction(2, 3)}.get(share, Fraction(str(share)))
    for K in (1, 2, 3, 7, 12, 30):
        for M in (1, 2, 3, 4, 8, 16):
            assert schedule(K, M, share) == [min(M, math.ceil(k * M / (exact * K))) for k in range(1, K + 1)]


# -- units -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def resnet() -> Net:
    return Net(make("resnet18", (3, 32, 32), 10), (3, 32, 32), 10)


@pytest.mark.parametrize(("unit", "M"), [("stage", 4), ("block", 8), ("layer", 21)])
def test_units_of_resnet18(unit, M, resnet):
    layout = resnet.layout
    assert layout.blocks(unit) == M
    block = dict(zip(layout.names, torch.split(layout.per_block(torch.arange(M), unit), layout.sizes), strict=True))
    found = {name: int(b[0]) for name, b in block.items()}
    assert all(bool((b == found[name]).all()) for name, b in block.items())
    if unit == "layer":  # a convolution and the norm after it are unfrozen together
        assert found["stem.conv.weight"] == found["stem.norm.bias"] == 0
        assert found["layer3.0.shortcut.conv.weight"] == found["layer3.0.shortcut.norm.weight"]
        assert found["head.weight"] == found["head.bias"] == 20
        assert len(set(found.values())) == 21
        return
    for name, number in found.items():  # the stem is unfrozen with the first unit, the head with the last
        stage, inside = name.split(".")[:2] if name.startswith("layer") else ("", "")
        first = 0 if name.startswith("stem") else M - 1
        of_layer = int(stage[5:]) - 1 if stage else -1
        expected = first if not stage else of_layer if unit == "stage" else 2 * of_layer + int(inside)
        assert number == expected, name


@every_engine
@pytest.mark.parametrize("unit", ["layer", "stage", "block"])
@pytest.mark.parametrize("order", ["bottom-up", "top-down"])
def test_a_declared_unit_is_unfrozen_as_one(unit, order, engine):
    # One of two steps: with P = 1 and two blocks the first step moves one block; the second one has a rate of zero.
    model = mlp()
    model.units = {"stage": [["0"], ["2", "4"]], "block": [["0", "2"], ["4"]]}
    blocks = {"layer": [["0"], ["2"], ["4"]], **model.units}[unit]
    blocks = blocks if order == "bottom-up" else blocks[::-1]
    ran = train(FirstStep() + FedBug(1.0, unit, order), model=model, engine=engine, steps=len(blocks), rounds=1, lr=0.1)
    moved = {n: bool((p != q).any()) for n, p, q in zip(*_pieces(model, ran), strict=True)}
    assert moved == {n: n.split(".")[0] in blocks[0] for n in moved}


@dataclass(frozen=True)
class FirstStep(Part):
    """Only the first local step counts."""

    name = "toy-first-step"

    def rate(self, c: Client) -> Tensor:
        return (c.k == 1).to(c.w0.dtype)


def _pieces(model: nn.Module, ran) -> tuple[list[str], list[Tensor], list[Tensor]]:
    names, sizes = zip(*((n, p.numel()) for n, p in model.named_parameters()), strict=True)
    return list(names), *(list(torch.split(known["w"], list(sizes))) for known in (ran.after[0], ran.after[-1]))


# -- the ends of the range -------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("order", ["bottom-up", "top-down"])
def test_no_unfreezing_is_fedavg_bit_for_bit(order, engine):
    plain, still = (train(sum, engine=engine).after for sum in ("fedavg", f"fedbug(0, order={order})"))
    for one, other in zip(plain, still, strict=True):
        assert_same(other, one)


# -- frozen means frozen ---------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize(("last", "coordinates"), [(1, 15), (2, 39)])  # of 20 + 24 + 15
def test_frozen_layers_receive_nothing(last, coordinates, engine):
    sum = f"scaffold+fedcm(0.3)+prox(0.7)+sam(0.2)+fednlr+freeze({last})+clip(0.5)+decay(0.3)"
    ran = train(sum, engine=engine, rounds=3)
    for known in ran.after[1:]:
        change = known["w"] != ran.after[0]["w"]
        assert not change[-coordinates:].any()
        assert change[:-coordinates].all()
        assert not known["fedcm/D"][-coordinates:].any()
        assert not known["scaffold/c"][-coordinates:].any()


class Products(TorchDispatchMode):
    """Counts the matrix products of backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        backward = torch._C._current_graph_task_id() >= 0
        self.count += backward and func is torch.ops.aten.mm.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("sum", "each_round"),
    [
        # Three layers, three steps. All free: a product for each weight and for the inputs of layers 2 and 3.
        ("fedavg", 5 + 5 + 5),
        ("fedbug(1)", 3 + 4 + 5),  # 1: weight of layer 1, inputs of 2 and 3; 2: the weight of layer 2 too
        ("fedbug(1, order=top-down)", 1 + 3 + 5),
        ("fedbabu", 4 + 4 + 4),
        ("freeze(2)", 3 + 3 + 3),
    ],
)
def test_the_loop_engine_does_not_differentiate_frozen_weights(sum, each_round):
    with Products() as products:
        train(sum, engine="loop", steps=3, cohort=2, rounds=1)
    assert products.count == 2 * each_round


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sum", "says"),
    [
        ("fedbug(-0.1)", "fedbug: share must be a number in [0, 1], not -0.1"),
        ("fedbug(1.01)", "fedbug: share must be a number in [0, 1], not 1.01"),
        ("fedbug(much)", "fedbug: share must be a number in [0, 1], not much"),
        ("fedbug(unit=neuron)", "fedbug: unit must be one of layer, stage, block, not neuron"),
        ("fedbug(order=sideways)", "fedbug: order must be one of bottom-up, top-down, not sideways"),
        ("freeze(-1)", "freeze: last must be a whole number of at least 0, not -1"),
        ("freeze(3)", "freeze: last=3 leaves nothing to train in a model of 3 layers; use a smaller last"),
        ("freeze(1.5)", "freeze: last must be a whole number of at least 0, not 1.5"),
    ],
)
def test_bad_unfreezing_is_refused_in_one_line(sum, says):
    with pytest.raises(HoldfastError) as caught:
        train(sum)
    assert str(caught.value) == says
    assert "\n" not in says


def test_a_unit_that_the_model_lacks_is_refused_in_one_line():
    with pytest.raises(HoldfastError, match=r"^this model has no unit 'stage'.*$"):
        train("fedbug(unit=stage)")

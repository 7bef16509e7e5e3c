"""Dense models on a CPU: gradients of a whole cohort at once, where that is done and that it is right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.toys import mlp, ragged, train
from holdfast import DataSet, Federation, Method, federate
from holdfast.engines.chain_pass import ChainPass
from holdfast.engines.stacked_step import StackedStep
from holdfast.engines.vector import Vector
from holdfast.method.config import Config
from holdfast.models.dropout import Dropout
from holdfast.models.net import Net
from holdfast.models.row_by_row import works_row_by_row
from holdfast.models.zoo import make
from holdfast.runs.setup import prepare_simulation
from holdfast.tasks.task_names import read_task
from holdfast.testing.laws import assert_agree


class Written(nn.Module):
    """A network as users write it, with calls of every kind that may occur."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 4, bias=False), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.view(x.size(0), -1)))
        x = F.silu(self.second(x)).reshape(x.shape[0], -1)
        return self.last(x)


class Changed(nn.Module):
    """A network that does something to its hidden units."""

    def __init__(self, change: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.change(self.first, self.first(x)))


CHANGED = {
    "mean of the batch": lambda first, z: z - z.mean(0),
    "another order": lambda first, z: z.flip(0),
    "softmax over samples": lambda first, z: F.softmax(z, 0),
    "other rows": lambda first, z: torch.tanh(z.view(-1, 2)).view(-1, 4),
    "a weight outside of a product": lambda first, z: z * first.bias,
    "a product with a weight from a weight": lambda first, z: F.linear(z, torch.tanh(first.weight @ first.weight.t())),
}


def frozen_below() -> nn.Module:
    """A network whose first layer is not trained, and only the bias of its second."""
    net = mlp()
    net[0].requires_grad_(False)
    net[2].weight.requires_grad_(False)
    return net


def dropping() -> nn.Module:
    """A network with dropout, as PyTorch's module and as the library's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 6), Dropout(0.5), nn.Linear(6, 3)
        )


def written() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Written().double()


def headless() -> nn.Module:
    """A network whose last layer is no product."""
    return nn.Sequential(*mlp(), nn.Tanh())


STACKED = {"mlp": mlp, "written": written, "dropout": dropping, "frozen below": frozen_below, "no head": headless}
OTHERS = {
    "norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)),
    **{name: partial(Changed, change) for name, change in CHANGED.items()},
}


def as_net(model: nn.Module, **settings: Any) -> Net:
    return Net(model, (3,), 3, precision="fp64", **settings)


@pytest.mark.parametrize("name", [*STACKED, *OTHERS])
def test_only_what_treats_every_sample_by_itself_is_stacked(name: str):
    net = as_net((STACKED | OTHERS)[name]())
    assert works_row_by_row(net, torch.zeros(2, 3, dtype=torch.float64)) is (name in STACKED)


@pytest.mark.parametrize(("model", "stacked"), [("linear", True), ("mlp", True), ("lenet5", False)])
def test_named_models(model: str, stacked: bool):
    net = Net(make(model, (1, 28, 28), 10), (1, 28, 28), 10)
    assert works_row_by_row(net, torch.zeros(2, 1, 28, 28)) is stacked


def test_half_precision_keeps_the_usual_way():
    net = Net(mlp().float(), (3,), 3, precision="bf16")
    assert not works_row_by_row(net, torch.zeros(2, 3))


def engine(method: str, **settings: Any) -> Vector:
    config = Config(clients=4, cohort=3, engine="vector", device="cpu", **settings)
    built = prepare_simulation(config, Method.parse(method), ragged(), mlp()).engines[0]
    assert isinstance(built, Vector)
    return built


@pytest.mark.parametrize(
    ("method", "stacked", "plain"),
    [
        ("fedavg", True, True),
        ("nova+fedavgm", True, True),
        ("ccvr", True, True),
        ("prox", True, False),
        ("scaffold+fedbug+clip(1)+adam", True, False),
        ("fedagg", True, False),
        ("sam", False, False),
        ("moon", False, False),
        ("fedlc", False, False),
        ("prox+feddecorr", False, False),
    ],
)
def test_which_sums_are_stacked(method: str, stacked: bool, plain: bool):
    found = engine(method)
    assert (found.stacked, found.stacked and found.training.plain) == (stacked, plain)


def test_traced_steps_are_as_they_were(monkeypatch: pytest.MonkeyPatch):
    assert not engine("fedavg", compile=True).stacked


def took_stacked_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of clients with every stacked step."""
    taken: list[int] = []
    pieces, forward = StackedStep._pieces, ChainPass.forward

    def by_autograd(self: Any, objective: Any, w: Tensor) -> Any:
        taken.append(len(w))
        return pieces(self, objective, w)

    def by_hand(self: Any, layers: Any, *rest: Tensor) -> Any:
        taken.append(len(layers[0].weight))
        return forward(self, layers, *rest)

    monkeypatch.setattr(StackedStep, "_pieces", by_autograd)
    monkeypatch.setattr(ChainPass, "forward", by_hand)
    return taken


@pytest.mark.parametrize("method", ["fedavg", "scaffold+fedbug+clip(1)", "fedagg+nova+momentum(0.5)"])
@pytest.mark.parametrize("name", STACKED)
def test_stacked_steps_equal_the_loop(name: str, method: str, monkeypatch: pytest.MonkeyPatch):
    model = STACKED[name]()
    loop = train(method, model=model, engine="loop", rounds=2)
    taken = took_stacked_steps(monkeypatch)
    assert_agree(loop, train(method, model=model, engine="vector", rounds=2))
    assert set(taken) == {1, 2, 3}  # clients of unequal sizes end one after another


def unusual(task: str) -> Federation:
    """Three clients of 2, 5 and 8 samples with another task than classes, or with rare classes."""
    g = torch.Generator().manual_seed(3)
    x, groups = torch.randn(15, 3, generator=g), torch.repeat_interleave(torch.arange(3), torch.tensor([2, 5, 8]))
    y: Tensor = torch.arange(15) % 7 % 3
    if task == "regression":
        y = torch.randn(15, 3, generator=g)
    elif task == "multilabel":
        y = (torch.randn(15, 3, generator=g) > 0).float()
    data = DataSet("unusual", x, y, x, y, ("a", "b", "c"), groups=groups, task=read_task(task))
    return federate(data, "given+noise(0.5)", clients=3)


@pytest.mark.parametrize(
    ("task", "settings"),
    [("regression", {}), ("multilabel", {}), ("classification", {"class_weights": "balanced"})],
)
@pytest.mark.parametrize("method", ["fedavg", "prox"])
def test_every_task_agrees(task: str, settings: dict[str, Any], method: str, monkeypatch: pytest.MonkeyPatch):
    loop = train(method, unusual(task), engine="loop", rounds=2, **settings)
    taken = took_stacked_steps(monkeypatch)
    assert_agree(loop, train(method, unusual(task), engine="vector", rounds=2, **settings))
    assert taken


def test_a_step_by_hand(monkeypatch: pytest.MonkeyPatch):
    """Softmax regression: dW = mean of (p - onehot) x^T, for clients of 3, 1 and 2 samples in one batch."""
    rng = np.random.default_rng(0)
    sizes, owners = [3, 1, 2], [0, 0, 0, 1, 2, 2]
    x, y = rng.normal(size=(6, 2)), np.array([0, 1, 2, 2, 1, 0])
    W, b = rng.normal(size=(3, 2)), rng.normal(size=3)
    deltas = np.zeros((3, 9))
    for client, n in enumerate(sizes):
        own = [i for i, owner in enumerate(owners) if owner == client]
        scores = np.exp(x[own] @ W.T + b)
        wrong = scores / scores.sum(1, keepdims=True) - np.eye(3)[y[own]]
        deltas[client] = -0.5 * np.concatenate([(wrong.T @ x[own]).ravel(), wrong.sum(0)]) / n
    model = nn.Linear(2, 3).double()
    model.load_state_dict({"weight": torch.from_numpy(W), "bias": torch.from_numpy(b)})
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    data = DataSet("hand", inputs, labels, inputs, labels, ("a", "b", "c"), groups=torch.tensor(owners))
    taken = took_stacked_steps(monkeypatch)
    settings = {"engine": "vector", "lr": 0.5, "batch": 4, "epochs": 1, "rounds": 1}
    w = train("fedavg", federate(data, "given", clients=3), model, **settings).after[1]["w"].numpy()
    expected = np.concatenate([W.ravel(), b]) + np.average(deltas, axis=0, weights=sizes)
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-14)
    assert taken == [3]

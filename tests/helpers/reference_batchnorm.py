"""Federated learning with BatchNorm in plain PyTorch: a module per client, ``torch.optim.SGD``, means of state dicts.

From the package it takes the order of the batches and the cohorts that were drawn, nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast import DataSet, Federation, federate
from holdfast.engines.batches import plan

CLASSES = 3
SIZES = (7, 4, 9, 5, 12)
BATCH = 4
EPOCHS = 2
LR = 0.2
State = dict[str, Tensor]
Step = Callable[["Trainee", Tensor, Tensor], None]


class SmallNet(nn.Module):
    """Two BatchNorm layers, one of them with a cumulative mean, and no kink that rounding could fall on."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3)
        self.mix, self.late = nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4, momentum=None)
        self.head = nn.Linear(16, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.late(self.mix(torch.tanh(self.norm(self.conv(x)))))).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def net() -> SmallNet:
    """The module with which every run starts: as if pretrained, so that its statistics are not those of a new one."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        module = SmallNet().double().train()
        for norm in (module.norm, module.late):
            nn.init.normal_(norm.weight, 1.0, 0.2)
            nn.init.normal_(norm.bias, 0.0, 0.2)
        for _ in range(3):
            module(torch.randn(6, 1, 4, 4, dtype=torch.float64))
    return module


def federation() -> Federation:
    """Five clients of unequal sizes that differ in their images and classes; test data of its own."""
    g = torch.Generator().manual_seed(8)
    groups = torch.repeat_interleave(torch.arange(len(SIZES)), torch.tensor(SIZES))
    x = torch.randn(len(groups), 1, 4, 4, generator=g, dtype=torch.float64) * (1 + 0.2 * groups[:, None, None, None])
    y = (x[:, 0, :2].sum((1, 2)).abs() * 1.1 + 0.4 * groups).long() % CLASSES
    test_x = torch.randn(31, 1, 4, 4, generator=g, dtype=torch.float64)
    test_y = torch.arange(31) % CLASSES
    data = DataSet("ragged", x, y, test_x, test_y, ("a", "b", "c"), groups=groups)
    return federate(data, "given", clients=len(SIZES))


FEDERATION = federation()


@dataclass
class Trainee:
    """A client's module while it trains."""

    id: int
    module: SmallNet
    start: State  # the whole state with which it started
    optimiser: torch.optim.Optimizer


def plain_step(trainee: Trainee, x: Tensor, y: Tensor) -> None:
    trainee.optimiser.zero_grad()
    F.cross_entropy(trainee.module(x), y).backward()
    trainee.optimiser.step()


@dataclass
class ByHand:
    """A federation in plain PyTorch.

    Attributes:
        mode: ``average``, ``local`` or ``frozen``.
        uniform: Whether every client counts once.
        step: What a client does with a batch.
        optimiser: Makes a client's optimiser from its parameters and the learning rate.
        lr: The local learning rate.
        shared: The global state.
        own: Under ``local``, the BatchNorm entries of the clients that have trained.
        rounds: The rounds played.
    """

    mode: str
    uniform: bool = False
    step: Step = plain_step
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.SGD
    lr: float = LR
    shared: State = field(default_factory=lambda: copy.deepcopy(net().state_dict()))
    own: dict[int, State] = field(default_factory=dict)
    rounds: int = 0

    def play(self, cohort: list[int]) -> None:
        """Play a round with these clients."""
        self.rounds += 1
        trained = {i: self.trained(i, self.rounds, EPOCHS) for i in cohort}
        counts = torch.tensor([1.0 if self.uniform else SIZES[i] for i in cohort], dtype=torch.float64)
        weights = (counts / counts.sum()).tolist()
        old = copy.deepcopy(self.shared)
        for name in self.shared:
            if self.mode == "local" and is_norm(name):
                continue
            rows = [trained[i][name] for i in cohort]
            if rows[0].is_floating_point():
                self.shared[name] = sum(p * t for p, t in zip(weights, rows, strict=True))
            else:
                more = sum(p * float(t - old[name]) for p, t in zip(weights, rows, strict=True))
                self.shared[name] = old[name] + round(more)
        if self.mode == "local":
            self.own |= {i: {n: t for n, t in trained[i].items() if is_norm(n)} for i in cohort}

    def trained(self, client: int, t: int, epochs: int) -> State:
        """Return the state of a client's module after its local training of round ``t``."""
        module = self.model_of(client).train()
        if self.mode == "frozen":
            for norm in (module.norm, module.late):
                norm.eval()
        start = copy.deepcopy(module.state_dict())
        trainee = Trainee(client, module, start, self.optimiser(module.parameters(), lr=self.lr))
        for x, y in batches(client, t, epochs):
            self.step(trainee, x, y)
        return copy.deepcopy(module.state_dict())

    def model_of(self, client: int) -> SmallNet:
        """Return a client's own model: the global one, under ``local`` with its own BatchNorm layers."""
        module = net()
        own = self.own.get(client, {n: t for n, t in net().state_dict().items() if is_norm(n)})
        module.load_state_dict(copy.deepcopy(self.shared | (own if self.mode == "local" else {})))
        return module

    def scores(self) -> tuple[float, float]:
        """Return test accuracy and loss; under ``local`` the means over clients, each on its own class mix."""
        if self.mode != "local":
            hits, losses = tested(self.model_of(0))
            return float(hits.double().mean()), float(losses.mean())
        pairs = [on_mix(self.model_of(i), i) for i in range(len(SIZES))]
        return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs)


def is_norm(name: str) -> bool:
    """Tell whether an entry of the state belongs to a BatchNorm layer."""
    return name.startswith(("norm.", "late."))


def batches(client: int, t: int, epochs: int) -> list[tuple[Tensor, Tensor]]:
    """Return a client's batches in round ``t``."""
    data, samples = FEDERATION.data, torch.from_numpy(FEDERATION.deal.client(client))
    found = plan(
        samples[None], torch.tensor([len(samples)]), torch.tensor([client]), words=(0, t, 0), batch=BATCH,
        epochs=epochs, steps=None,
    )  # fmt: skip
    rows = [i[m] for i, m in zip(found.index[0].flatten(0, 1), found.mask[0].flatten(0, 1), strict=True)]
    return [(data.x[i], data.y[i]) for i in rows]


def tested(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Return for every test sample whether the module is right, and its loss."""
    data = FEDERATION.data
    with torch.no_grad():
        logits = module.eval()(data.test_x)
    return logits.argmax(1) == data.test_y, F.cross_entropy(logits, data.test_y, reduction="none")


def on_mix(module: nn.Module, client: int) -> tuple[float, float]:
    """Return accuracy and loss on the test data, the classes weighted as in the client's own samples."""
    hits, losses = tested(module)
    labels = FEDERATION.data.y[torch.from_numpy(FEDERATION.deal.client(client))].tolist()
    accuracy = loss = 0.0
    for c in range(CLASSES):
        here, share = FEDERATION.data.test_y == c, labels.count(c) / len(labels)
        accuracy += share * float(hits[here].double().mean())
        loss += share * float(losses[here].mean())
    return accuracy, loss

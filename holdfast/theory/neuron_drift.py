"""FedNLR's Appendix A: how local training changes the neurons that are bound to other classes.

A network with 25 hidden neurons is trained by FedAvg, one class per client, to an accuracy of 88%. Then every client
trains locally for one more round, with FedAvg and with FedNLR, and its hidden activations on the test samples of the
nine classes that it does not have are compared with those before. Here a neuron is bound to the class with its largest
mean activation, since no neuron of a real network satisfies Definition 1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import data_folder, load, source
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.models.net import Net
from holdfast.runs.setup import prepare_simulation
from holdfast.theory.recorder import Recorder, recorded
from holdfast.training.evaluation import evaluate
from holdfast.training.round import Trainer

HIDDEN = 25
ACCURACY = 0.88  # of the model that the paper picks
SEEDS = (0, 1, 2)
MOST = 200  # rounds to reach it
SETTINGS = {
    "split": "classes(1)", "model": f"mlp(width={HIDDEN}, depth=1)", "steps": 5, "batch": 64, "lr": 0.1,
    "device": "cpu",
}  # fmt: skip


class NeuronDrift(NamedTuple):
    """The experiment for one seed."""

    rounds: int  # until the accuracy was reached
    accuracy: float
    before: Tensor  # [class, neuron] mean activation
    own: Tensor  # [client] the class that it has
    after: dict[str, Tensor]  # method -> [client, class, neuron]
    strict: int  # neurons that are bound by Definition 1

    @property
    def bound(self) -> Tensor:
        """[class, neuron]: whether the neuron is bound to the class."""
        classes = torch.arange(len(self.before))[:, None]
        return (self.before.argmax(0) == classes) & (self.before > 0)

    def falls(self, method: str) -> Tensor:
        """Return [client, class]: the relative fall of the class's bound neurons; NaN if it has none."""
        kept = self.bound.to(self.before.dtype)
        gone = (self.before - self.after[method]) * kept
        return gone.sum(2) / (self.before * kept).sum(1)

    def pairs(self, method: str) -> Tensor:
        """Return the falls of all pairs (client, another class that has bound neurons)."""
        falls = self.falls(method)
        other = torch.arange(falls.shape[1]) != self.own[:, None]
        return falls[other & ~falls.isnan()]

    def own_falls(self, method: str) -> Tensor:
        """Return [client]: the fall of the neurons bound to the class that the client has."""
        return self.falls(method)[torch.arange(len(self.own)), self.own]


@cache
def drifts(data_dir: Path | None, methods: tuple[str, ...] = ("fedavg", "fednlr")) -> tuple[str, list[NeuronDrift]]:
    """Return the name of the data set that was used, and the experiment for every seed."""
    data = images("mnist", data_dir)
    return data.name, [drift(data, seed, methods) for seed in SEEDS]


def images(name: str, data_dir: Path | None) -> DataSet:
    """Return the published data set if it is in the data folder, else the digits."""
    folder = data_folder(data_dir)
    return load("digits" if source(name).missing(folder) else name, folder)


def drift(data: DataSet, seed: int, methods: tuple[str, ...]) -> NeuronDrift:
    """Run the experiment for one seed.

    Args:
        data: The data set.
        seed: The seed.
        methods: What the clients train with in the last round.

    Returns:
        What happened to the neurons.
    """
    classes = len(data.classes)
    federation = federate(data, str(SETTINGS["split"]), classes, seed)
    config = Config().changed(data=data.name, clients=classes, cohort=classes, seed=seed, **SETTINGS)
    simulation, rounds, accuracy = trained(config, federation)
    w, net = simulation.server.w, simulation.net
    samples = [federation.inputs(data.test_x[data.test_y == c]) for c in range(classes)]
    after = {}
    own = torch.zeros(classes, dtype=torch.int64)
    for method in methods:
        again = prepare_simulation(config, Method.parse(method) + Recorder(), federation, None)
        again.server.w = w.clone()
        again.play(rounds + 1)
        kept = recorded(again)
        after[method] = torch.stack([activations(net, w + delta, samples) for delta in kept["deltas"]])
        own = torch.stack([data.y[int(federation.deal.client(int(i))[0])] for i in kept["ids"]])
    return NeuronDrift(rounds, accuracy, activations(net, w, samples), own, after, definition1(net, w, samples))


def trained(config: Config, federation: Federation) -> tuple[Trainer, int, float]:
    """Train with FedAvg until the accuracy is reached; return the run, its rounds and the accuracy."""
    simulation = prepare_simulation(config, Method(), federation, None)
    accuracy, rounds = 0.0, 0
    while accuracy < ACCURACY and rounds < MOST:
        rounds += 1
        simulation.play(rounds)
        accuracy = evaluate(simulation.net, simulation.server.w, simulation.federation).accuracy
    return simulation, rounds, accuracy


def hidden(net: Net, w: Tensor, x: Tensor) -> Tensor:
    """Return the activations of the hidden neurons.

    Args:
        net: The network.
        w: Its weights.
        x: The inputs.

    Returns:
        Activations, [sample, neuron].
    """
    with torch.no_grad():
        return net.neurons(w, x)[:, :HIDDEN]


def activations(net: Net, w: Tensor, samples: list[Tensor]) -> Tensor:
    """Return the mean activation of every hidden neuron on every class.

    Args:
        net: The network.
        w: Its weights.
        samples: The inputs of every class.

    Returns:
        Activations, [class, neuron].
    """
    return torch.stack([hidden(net, w, x).mean(0) for x in samples]).double()


def definition1(net: Net, w: Tensor, samples: list[Tensor]) -> int:
    """Count the neurons whose least activation on some class is above their largest on any other class.

    Args:
        net: The network.
        w: Its weights.
        samples: The inputs of every class.

    Returns:
        Their number.
    """
    active = [hidden(net, w, x) for x in samples]
    low, high = torch.stack([a.amin(0) for a in active]), torch.stack([a.amax(0) for a in active])
    others = torch.stack([torch.cat([high[:c], high[c + 1 :]]).amax(0) for c in range(len(samples))])
    return int((low > others).any(0).sum())

"""FedNLR's Fig. 3: the temperature of every layer of its network.

The figure is a drawing, and the text names neither the clients nor the round. Here the network, vgg9, is measured as
initialised, on CIFAR-10 if that is in the data folder, and after the paper's local training (two epochs at rate 0.01)
of one client that has all the digits, which are small enough to train on in seconds. The temperatures are those of
twenty clients, each computed from its first samples.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import load
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.models.net import Net
from holdfast.models.zoo import make
from holdfast.parts.fednlr import FedNLR, temperatures
from holdfast.runs.setup import prepare_simulation
from holdfast.theory.claim import Claim, equal
from holdfast.theory.grid import Grid
from holdfast.theory.neuron_drift import images
from holdfast.training.evaluation import evaluate

MODEL = "vgg9"
CLIENTS, SPLIT, SAMPLES = 20, "dirichlet(0.3)", 32  # samples of each client that are used
METHODS = ("fednlr", "fednlr-tables")
TRAINED = "fednlr-tables"  # what trains the network
SETTINGS = {"model": MODEL, "split": "iid", "epochs": 2, "batch": 16, "lr": 0.01, "device": "cpu"}


class LayerTemperatures(NamedTuple):
    """The temperatures of one model on the clients of one data set."""

    data: str
    model: str  # in words
    net: Net
    T: dict[str, Tensor]  # method -> [client, layer]

    def mean(self, method: str) -> Tensor:
        """Return [layer]: the mean over the clients."""
        return self.T[method].mean(0)

    def hottest(self, method: str, among: int | None = None) -> int:
        """Return the layer with the highest mean, counted from 1; ``among`` is the end of a slice of the layers."""
        return 1 + int(self.mean(method)[:among].argmax())

    def share(self, method: str, layer: int) -> float:
        """Return the share of the clients for which this layer is the hottest."""
        return float((self.T[method].argmax(1) == layer - 1).double().mean())


# ------------------------------------------------------------------------------------------------ computation
@cache
def heats(data_dir: Path | None) -> tuple[LayerTemperatures, LayerTemperatures]:
    """Return the temperatures of the network as initialised, and of the trained one."""
    return initial(images("cifar10", data_dir)), trained(load("digits"))


def initial(data: DataSet) -> LayerTemperatures:
    """Return the temperatures of the network as initialised."""
    shape, classes = tuple(data.x.shape[1:]), len(data.classes)
    net = Net(make(MODEL, shape, classes), shape, classes)
    return heat(data, "as initialised", net, net.initial)


def trained(data: DataSet) -> LayerTemperatures:
    """Return the temperatures of the network after one round."""
    config = Config().changed(data=data.name, clients=1, cohort=1, **SETTINGS)
    run = prepare_simulation(config, Method.parse(TRAINED), federate(data, str(SETTINGS["split"]), 1), None)
    run.play(1)
    accuracy = evaluate(run.net, run.server.w, run.federation).accuracy
    return heat(data, f"trained to {accuracy:.1%}", run.net, run.server.w)


def heat(data: DataSet, model: str, net: Net, w: Tensor) -> LayerTemperatures:
    """Return the temperatures of a network with some weights.

    Args:
        data: The data set, dealt to clients.
        model: The network in words.
        net: The network.
        w: Its weights.

    Returns:
        The temperatures of every client.
    """
    h = activations(net, w, federate(data, SPLIT, CLIENTS))
    T = {m: torch.stack([temperatures(own, spread(m, net), net.layout) for own in h]) for m in METHODS}
    return LayerTemperatures(data.name, model, net, T)


def activations(net: Net, w: Tensor, federation: Federation) -> Tensor:
    """Return the mean activations of every client (Eq. 14).

    Args:
        net: The network.
        w: Its weights.
        federation: The clients.

    Returns:
        Activations, [client, neuron].
    """
    found = []
    for client in federation.occupied:
        own = torch.from_numpy(federation.deal.client(client)[:SAMPLES])
        with torch.no_grad():
            found.append(net.neurons(w, federation.inputs(federation.data.x[own])).mean(0))
    return torch.stack(found)


def spread(method: str, net: Net) -> list[float]:
    """Return mu of every layer (Eq. 17)."""
    (part,) = Method.parse(method).parts
    assert isinstance(part, FedNLR)
    return part.spreads(net.layout)


# ------------------------------------------------------------------------------------------------ in words
def claims(data_dir: Path | None) -> list[Claim]:
    """Compute and judge the claims about Fig. 3."""
    found = heats(data_dir)
    return [_widest(found[0].net), *(_hottest(heat, method) for heat in found for method in METHODS)]


def _widest(net: Net) -> Claim:
    neurons = torch.tensor([layer.neurons for layer in net.layout.layers])
    height, width = net.shape[1:]
    positions = f"{neurons[1]} × {height} × {width} = {neurons[1] * height * width}"
    return equal(
        f"Fig. 3: the second layer of {MODEL} has the most neurons of all layers (Sec. 7.3): the first layer that has",
        2, 1 + int(neurons.argmax()), 0,
        f"{neurons[1]} channels of up to {neurons.max()} neurons; it has the most if every position of a channel "
        f"counts: {positions}",
    )  # fmt: skip


def _hottest(heat: LayerTemperatures, method: str) -> Claim:
    found = heat.hottest(method)
    hidden = heat.hottest(method, among=-1)
    below = "" if found == hidden else f"; of the hidden layers it is layer {hidden}"
    return equal(
        f"Fig. 3 on {heat.data}, {MODEL} {heat.model}, {method}: the second layer has the highest T: which does",
        2, found, 0,
        f"layer {found} has it for {heat.share(method, found):.0%} of the {len(heat.T[method])} clients, layer 2 for "
        f"{heat.share(method, 2):.0%}{below}",
    )  # fmt: skip


def tables(data_dir: Path | None) -> list[Grid]:
    """Return the figure as tables with a row for every layer."""
    return [_table(heat) for heat in heats(data_dir)]


def _table(heat: LayerTemperatures) -> Grid:
    heading, columns = ["layer", "neurons"], []
    for method in METHODS:
        heading += [f"μ, {method}", f"T, {method}"]
        columns += [spread(method, heat.net), heat.mean(method).tolist()]
    layers = heat.net.layout.layers
    rows = [
        (f"{number} {layer.name}", layer.neurons, *numbers)
        for number, layer, *numbers in zip(range(1, len(layers) + 1), layers, *columns, strict=True)
    ]
    title = f"Fig. 3 on {heat.data}, {MODEL} {heat.model}: T of every layer, mean over the clients"
    return Grid(title, heading, rows)

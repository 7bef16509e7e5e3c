"""FedNLR: give every neuron a learning rate by how strongly the client's data activates it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Client, Part, Tensors
from holdfast.models.layout import Layout

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net

EQUAL = 1e-6  # activations of a layer this close, relative to the largest, count as equal


@dataclass(frozen=True)
class FedNLR(Part):
    """Neuron-wise learning rates (Alg. 1 of the paper). Before training, the client runs the global model once over its
    data; ``h[l,m]`` is the mean activation of neuron m of layer l (Eq. 14). Layer l has M_l neurons:

        mu[l]     = mu0 + a1 * l/L + a2 * log10(M_l)                           (Eq. 17)
        T[l]      = (max h[l] - min h[l]) / ln mu[l]                           (Eq. 16)
        rate[l,m] = M_l * softmax(h[l] / T[l])[m]                              (Eq. 15)

    The mean rate of a layer is 1, and its largest is mu[l] times its smallest. Neurons that the client's classes do not
    use learn slowly and keep what other clients taught them. A neuron is a row of a dense layer or an output channel of
    a convolution, with its bias and the norm that follows; the classifier is a layer too. Where a layer's activations
    are all equal, every rate is 1.

    With ``neurons=position`` a convolution has a neuron per output channel and position: M_l counts them all, as the
    paper's remark that VGG-9's second layer has the most neurons suggests. A channel's weights are shared by its
    positions and get the mean of their rates, so that the mean rate of a layer stays 1.

    The defaults are the formula that the paper recommends. Its tables use ``a1=0.45, a2=0.3`` (``fednlr-tables``).
    """

    name = "fednlr"
    paper = "Wang et al. 2024, FedNLR: Federated Learning with Neuron-wise Learning Rates"
    group = "paper"
    summary = "Gives every neuron its own learning rate"

    mu0: float = param(
        1.0,
        "spread of rates common to all layers; with a1 = a2 = 0, 1 is FedAvg",
        low=1,
        search=(1, 5),
        step_input=True,
    )
    a1: float = param(1.0, "more spread in deeper layers", low=0, search=(0, 2), step_input=True)
    a2: float = param(1.0, "more spread in wider layers", low=0, search=(0, 2), step_input=True)
    mu: tuple[float, ...] | None = param(
        None,
        "the spread itself, in place of the formula: one number, or one per layer",
        above=1,
        search="it replaces mu0, a1 and a2",
    )

    neurons: str = param("channel", "what counts as a neuron of a convolution", choices=("channel", "position"))

    @property
    def needs(self) -> tuple[str, ...]:
        return ("neurons",)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if self.mu is not None and len(self.mu) not in (1, len(net.layout.layers)):
            raise HoldfastError(
                f"fednlr: mu has {len(self.mu)} numbers, but the model has {len(net.layout.layers)} layers; "
                "give one number, or one per layer"
            )

    def begin(self, c: Client) -> Tensors:
        total = c.w0.new_zeros(sum(self.sizes(c.layout)))
        for batch in c.samples():
            active = c.net.neurons(c.w0, batch.x, self.neurons == "position")
            total = total + torch.where(batch.mask[:, None], active, 0.0).sum(0)
        return {"factor": factors(total / c.n, self.spreads(c.layout), c.layout)}

    def rate(self, c: Client) -> Tensor:
        return c.layout.per_neuron(c.local["factor"])

    def sizes(self, layout: Layout) -> list[int]:
        """Return M_l for l = 1..L."""
        return [layer.neurons * (layer.positions if self.neurons == "position" else 1) for layer in layout.layers]

    def spreads(self, layout: Layout) -> list[float]:
        """Return mu[l] for l = 1..L."""
        L = len(layout.layers)
        if self.mu is not None:
            return list(self.mu) * (L if len(self.mu) == 1 else 1)
        return [
            self.mu0 + self.a1 * depth / L + self.a2 * math.log10(size)
            for depth, size in enumerate(self.sizes(layout), 1)
        ]


def factors(h: Tensor, mu: list[float], layout: Layout) -> Tensor:
    """Compute the rate of every row of a dense layer and every output channel of a convolution.

    Args:
        h: The mean activation of every neuron.
        mu: The spread of every layer.
        layout: The layout of the model.

    Returns:
        The rates, with the mean over positions where there is a neuron for each.
    """
    rates = []
    for active, spread in zip(_layers(h, layout), mu, strict=True):
        e = torch.exp((active - active.min()) / _width(active) * math.log(spread))  # exactly mu at the highest
        rates.append((e / e.mean()).mean(1))
    return torch.cat(rates)


def temperatures(h: Tensor, mu: list[float], layout: Layout) -> Tensor:
    """Compute T[l] of every layer (Eq. 16).

    Args:
        h: The mean activation of every neuron.
        mu: The spread of every layer.
        layout: The layout of the model.

    Returns:
        The temperatures; infinite where all rates are 1.
    """
    return torch.stack(
        [_width(active) / math.log(spread) for active, spread in zip(_layers(h, layout), mu, strict=True)]
    )


def _layers(h: Tensor, layout: Layout) -> list[Tensor]:
    """Return the activations of every layer, [neurons, positions]; a single position if they are means over them."""
    positions = [1 if len(h) == layout.neurons else layer.positions for layer in layout.layers]
    pieces = torch.split(h, [n * layer.neurons for n, layer in zip(positions, layout.layers, strict=True)])
    return [piece.reshape(layer.neurons, -1) for piece, layer in zip(pieces, layout.layers, strict=True)]


def _width(active: Tensor) -> Tensor:
    """Return max - min of a layer's activations; infinite where they count as equal."""
    low, high = active.min(), active.max()
    return torch.where(high - low <= EQUAL * high, math.inf, high - low)

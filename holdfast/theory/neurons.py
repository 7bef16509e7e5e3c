"""FedNLR's Example 1 and Theorem 2: how one step of a client changes the neurons of a class that it does not have."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.models.net import Net
from holdfast.parts.fednlr import FedNLR, factors
from holdfast.theory.neuron_drift import HIDDEN

# The weights of Example 1 appear only in Fig. 1, a drawing; these give every number of Eq. 9. In the second layer only
# the difference of its two numbers matters.
FIRST = ((1.0, 1 / 3), (1 / 3, 1.0))
SECOND = ((0.45, 0.0), (0.0, 0.45))
OWN, OTHER = (1.0, 1 / 3), (1 / 3, 1.0)  # a sample of class 1, which client 1 has, and one of class 2


# ------------------------------------------------------------------------------------------------ Example 1
def example_net() -> Net:
    """Return the network of Example 1: two inputs, two hidden neurons, two classes, no biases."""
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False))
    for layer, weights in ((module[0], FIRST), (module[2], SECOND)):
        layer.weight.data = torch.tensor(weights, dtype=torch.float64)
    return Net(module, (2,), 2, precision="fp64")


@cache
def example(rates: str = "fedavg", lr: float = 0.5) -> Tensor:
    """Return [before, after] x [h1, h2, p1, p2] on class 2, for client 1's step on its sample of class 1."""
    net = example_net()
    own, other = (torch.tensor([v], dtype=torch.float64) for v in (OWN, OTHER))
    w = net.initial.clone().requires_grad_()
    (g,) = torch.autograd.grad(F.cross_entropy(net(w, own).logits, torch.tensor([0])), w)
    with torch.no_grad():
        rate = torch.ones(net.layout.neurons, dtype=torch.float64)
        if rates == "fednlr":
            rate = factors(net.neurons(w, own)[0], FedNLR().spreads(net.layout), net.layout)
        models = (w, w - lr * net.layout.per_neuron(rate) * g)
        looks = [torch.cat([net.neurons(m, other)[0, :2], net(m, other).logits[0].softmax(0)]) for m in models]
    return torch.stack(looks)


# ------------------------------------------------------------------------------------------------ Theorem 2
def closed_form(W1: Tensor, W2: Tensor, own: Tensor, x: Tensor, lr: float, gate: bool) -> Tensor:
    """Return the fall of every hidden activation at x after one step, by Eqs. 11-13.

    Args:
        W1: The first layer.
        W2: The second layer.
        own: The samples of the step, all of class 0.
        x: Where to look.
        lr: The learning rate.
        gate: Whether an inactive neuron passes no gradient back. The printed form omits this derivative of ReLU.

    Returns:
        The fall, [neuron].
    """
    before = own @ W1.T
    p = torch.softmax(torch.relu(before) @ W2.T, 1)
    push = (p[:, :1] - 1) * W2[0] + p[:, 1:] * W2[1]  # [sample, neuron]
    if gate:
        push = push * (before > 0)
    at = W1 @ x
    return torch.relu(at) - torch.relu(at - lr * ((own @ x) @ push))


def real_fall(W1: Tensor, W2: Tensor, own: Tensor, x: Tensor, lr: float) -> Tensor:
    """Return the same fall by taking the step, with autograd on the summed cross-entropy.

    The arguments are those of ``closed_form``.
    """
    w = W1.clone().requires_grad_()
    target = torch.zeros(len(own), dtype=torch.int64)
    (g,) = torch.autograd.grad(F.cross_entropy(torch.relu(own @ w.T) @ W2.T, target, reduction="sum"), w)
    return torch.relu(W1 @ x) - torch.relu((W1 - lr * g) @ x)


class Falls(NamedTuple):
    """The fall of every hidden neuron of many networks: by autograd, with ReLU's gate, and as printed."""

    real: Tensor
    gated: Tensor
    printed: Tensor


@cache
def random_falls(positive: bool, networks: int = 200) -> Falls:
    """Compute Theorem 2 on random networks; with ``positive`` weights and inputs every neuron is always active."""
    rng = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        values = torch.randn(*shape, generator=rng, dtype=torch.float64)
        return values.abs() if positive else values

    found = []
    for _ in range(networks):
        W1, W2, own, x = draw(HIDDEN, 12) / 12**0.5, draw(2, HIDDEN) / HIDDEN**0.5, draw(6, 12), draw(12)
        closed = (closed_form(W1, W2, own, x, 0.05, gate) for gate in (True, False))
        found.append(torch.stack([real_fall(W1, W2, own, x, 0.05), *closed]))
    return Falls(*torch.cat(found, 1))


def collapsed_falls(networks: int = 200) -> Tensor:
    """Return the falls of class 2's bound neurons in networks with w2[c] = A h[c] (Eq. 2), where x_k . x > 0."""
    rng = torch.Generator().manual_seed(0)
    found = []
    for _ in range(networks):
        W1 = torch.randn(HIDDEN, 12, generator=rng, dtype=torch.float64)
        one, two = torch.rand(2, 12, generator=rng, dtype=torch.float64)
        h = torch.relu(torch.stack([one, two]) @ W1.T)
        falls = real_fall(W1, 0.1 * h, one[None], two, 0.05)
        found.append(falls[h[1] > h[0]])
    return torch.cat(found)

"""Chains of products: which networks are some, and their gradient by hand against autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from holdfast.models.dense_chain import find_chain, layers_in, run_layers, write_gradient
from holdfast.models.net import Net


class Written(nn.Module):
    """A network of two layers as users write it."""

    def __init__(self, between: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self, self.first(x.reshape(x.shape[0], -1))))


def frozen_bias() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    net[0].bias.requires_grad_(False)
    return net


def frozen_head() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    net[2].bias.requires_grad_(False)
    return net


CHAINS: dict[str, Callable[[], nn.Module]] = {
    "one product": lambda: nn.Linear(3, 3),
    "no bias": lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 3, bias=False)),
    "relu": lambda: nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)),
    "tanh": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 3)),
    "no activation": lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)),
    "written": lambda: Written(lambda net, z: F.relu(net.second(torch.tanh(z).view(z.size(0), -1)))),
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "another activation": lambda: nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 3)),
    "two activations": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 3)),
    "activation of the input": lambda: nn.Sequential(nn.Tanh(), nn.Linear(3, 4), nn.Linear(4, 3)),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)),
    "frozen bias": frozen_bias,
    "frozen head": frozen_head,
    "no head": lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh()),
    "a sum": lambda: Written(lambda net, z: z + net.second(z)),
    "two branches, one unused": lambda: Written(lambda net, z: (net.second(z), torch.relu(z))[1]),
    "a layer twice": lambda: Written(lambda net, z: net.second(net.second(z))),
    "positions": lambda: Written(lambda net, z: net.second(z.view(len(z), 1, -1)).view(len(z), -1)),
}


def net_of(make: Callable[[], nn.Module]) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Net(make().double(), (3,), 3, precision="fp64")


@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_which_networks_are_chains(name: str) -> None:
    found = find_chain(net_of((CHAINS | OTHERS)[name]), torch.zeros(2, 3, dtype=torch.float64))
    assert (found is not None) is (name in CHAINS)


@pytest.mark.parametrize("name", CHAINS)
def test_the_gradient_by_hand_is_that_of_autograd(name: str) -> None:
    """Of two clients with models of their own, for a slope of the loss that is drawn at random."""
    net, g = net_of(CHAINS[name]), torch.Generator().manual_seed(0)
    chain = find_chain(net, torch.zeros(2, 3, dtype=torch.float64))
    assert chain is not None
    w = net.initial + 0.3 * torch.randn(2, net.layout.size, generator=g, dtype=torch.float64)
    x, slope = (torch.randn(2, 5, 3, generator=g, dtype=torch.float64) for _ in range(2))
    expected = torch.stack([autograd_of(net, *client) for client in zip(w, x, slope, strict=True)])
    layers, columns = layers_in(chain, net.layout, w), slope.transpose(1, 2)
    passed = run_layers(layers, x)
    gradient = torch.full_like(w, float("nan"))
    write_gradient(layers, passed[:-1], columns, layers_in(chain, net.layout, gradient))
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def autograd_of(net: Net, w: Tensor, x: Tensor, slope: Tensor) -> Tensor:
    """Return the gradient of ``(slope * outputs).sum()`` of the module that was given."""
    leaf = w.clone().requires_grad_()
    outputs = functional_call(net.module, net.layout.split(leaf), (x,))
    return torch.autograd.grad((slope * outputs).sum(), leaf)[0]

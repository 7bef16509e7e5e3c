"""Fine-tuning at the server on public data, against PyTorch's own SGD."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.toys import mlp, server_round
from holdfast import Batch, HoldfastError, Round, run
from holdfast.core import rng
from holdfast.models.net import Net
from holdfast.parts._distillation import minibatches, part_key
from holdfast.parts.finetune import Finetune

X = torch.randn(13, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(13) % 3


def seen(net: Net, round: int, rounds: int) -> Round:
    """The server's view of a round with the samples above as public data, in batches of five."""
    public = [Batch(x, y, torch.ones(len(x)) > 0) for x, y in zip(X.split(5), Y.split(5), strict=True)]
    r = server_round([[0.0]], [1], [1], [1.0])
    return replace(
        r, w=net.initial, net=net, update=torch.ones(1), lr=torch.tensor(0.3), round=round, rounds=rounds,
        key=lambda: rng.key(1, 2), public=lambda: iter(public),
    )  # fmt: skip


@pytest.mark.parametrize("batch", [4, 100])
def test_it_is_sgd_on_the_public_data(batch: int) -> None:
    net = Net(mlp(), (3,), 3, precision="fp64")
    found, state = Finetune(epochs=3, batch=batch).tune({}, seen(net, 2, 2), net.initial)
    model = mlp().double()
    nn.utils.vector_to_parameters(net.initial.clone(), model.parameters())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    steps = 3 * -(-len(Y) // batch)
    orders = list(minibatches(len(Y), batch, steps, part_key(rng.key(1, 2), "finetune")))
    assert torch.cat(orders).bincount().tolist() == [3] * len(Y), "three passes"
    for rows in orders:
        optimiser.zero_grad()
        F.cross_entropy(model(X[rows]), Y[rows]).backward()
        optimiser.step()
    torch.testing.assert_close(found, nn.utils.parameters_to_vector(model.parameters()).detach(), rtol=1e-6, atol=1e-8)
    assert state == {}


def test_it_follows_the_last_round_alone_unless_told_and_if_a_client_moved() -> None:
    net = Net(mlp(), (3,), 3, precision="fp64")
    assert Finetune().tune({}, seen(net, 1, 2), net.initial)[0] is net.initial
    assert not Finetune(when="every").tune({}, seen(net, 1, 2), net.initial)[0].equal(net.initial)
    still = replace(seen(net, 2, 2), update=torch.zeros(1))
    assert Finetune().tune({}, still, net.initial)[0] is net.initial
    assert Finetune(epochs=0).tune({}, seen(net, 2, 2), net.initial)[0].equal(net.initial)


def test_it_needs_public_data_and_refuses_test_data() -> None:
    def says(message: str, **settings: Any) -> None:
        with pytest.raises(HoldfastError) as caught:
            run("finetune", data="digits", cohort=5, rounds=1, **settings)
        assert str(caught.value) == message

    says("finetune needs public data: hold some out with --public 0.05 or federate(..., public=0.05)")
    says(
        "finetune: the public data is the test data, which makes test accuracy meaningless; hold out training data "
        "instead with --public 0.05, or set allow_test_leak=true",
        public="test",
    )

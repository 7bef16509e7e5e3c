"""Training on probabilities: the loss of public code whose network ends in a softmax."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.nn.functional as F

from holdfast.data.batch import Batch
from holdfast.parts.probability_loss import ProbabilityLoss

Z = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 3, 1, 1, 2])


def loss(z: torch.Tensor, **batch: Any) -> torch.Tensor:
    out = cast(Any, SimpleNamespace(logits=z))
    return ProbabilityLoss().task_loss(cast(Any, None), out, Batch(**{"x": z, "y": Y, "mask": Y >= 0} | batch))


def test_it_is_the_likelihood_loss_on_softmaxed_outputs() -> None:
    torch.testing.assert_close(loss(Z) - 1, F.nll_loss(F.softmax(Z, 1), Y))
    torch.testing.assert_close(2 * loss(Z), (F.softmax(Z, 1) - F.one_hot(Y, 4)).abs().sum(1).mean())


def test_its_gradient_is_that_of_cross_entropy_times_the_probability() -> None:
    z = Z.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(z), z)
    p = F.softmax(Z, 1)
    torch.testing.assert_close(found, p.gather(1, Y[:, None]) * (p - F.one_hot(Y, 4)) / len(Y))


def test_padding_does_not_count_and_weights_do() -> None:
    mask = torch.tensor([True, True, False, True, False])
    torch.testing.assert_close(loss(Z, mask=mask), 1 - F.softmax(Z, 1).gather(1, Y[:, None])[mask].mean())
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    each = 1 - F.softmax(Z, 1).gather(1, Y[:, None])[:, 0]
    torch.testing.assert_close(loss(Z, weight=weight), (weight[Y] * each).mean())

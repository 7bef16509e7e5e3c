"""The slope of a task's loss: by hand as by autograd, also of tasks that derive from ours."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from holdfast.tasks.classification import Classification
from holdfast.tasks.loss_slope import loss_and_slope
from holdfast.tasks.multilabel import Multilabel
from holdfast.tasks.regression import Regression
from holdfast.tasks.task import Task


@dataclass(frozen=True)
class Doubled(Classification):
    """A user's task: twice the cross-entropy."""

    name = "doubled"

    def loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        return 2 * super().loss(outputs, y, weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", [Classification(), Doubled(), Multilabel(), Regression()], ids=lambda task: task.name)
def test_the_slope_is_that_of_autograd(task: Task, weighted: bool) -> None:
    g = torch.Generator().manual_seed(1)
    outputs = torch.randn(6, 4, generator=g, dtype=torch.float64)
    y = torch.randint(0, 4, (6,), generator=g) if task.has_classes else (torch.randn(6, 4, generator=g) > 0).double()
    weight = torch.rand(4, generator=g, dtype=torch.float64) if weighted else None
    share = torch.rand(6, generator=g, dtype=torch.float64)
    leaf = outputs.clone().requires_grad_()
    expected = task.loss(leaf, y, weight)
    (slope,) = torch.autograd.grad((share * expected).sum(), leaf)
    losses, found = loss_and_slope(task, outputs.clone(), y, weight, share)
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(found, slope, rtol=1e-12, atol=1e-14)

"""The local step of a whole cohort of dense models, without ``vmap``: where no part takes part in it.

The network runs on the samples of all clients at once, and one backward pass gives the gradients of all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core.tensors import PerPart
from holdfast.data.batch import StackedBatch
from holdfast.engines.local_training import BatchResult, ClientTask, LocalTraining, Objective
from holdfast.models.row_by_row import works_row_by_row


def can_stack(training: LocalTraining) -> bool:
    """Tell whether the model trains on the samples of several clients at once: a dense model on a CPU."""
    return training.net.device.type == "cpu" and works_row_by_row(training.net, training.federation.example())


def plain_step(
    training: LocalTraining, task: ClientTask, scratch: PerPart, w: Tensor, x: Tensor, y: Tensor, mask: Tensor,
    k: Tensor, epoch: Tensor,
) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
    """Take a step of every client. ``w`` is overwritten.

    Args:
        training: The local training, whose method is ``plain``.
        task: What the clients train with.
        scratch: What the parts keep within the round.
        w: The local models, [clients, P].
        x: Inputs, [clients, batch, ...].
        y: Targets.
        mask: Where they are samples.
        k: The number of the step.
        epoch: The number of the epoch.

    Returns:
        The models, the scratch, and every client's task loss before the step.
    """
    layout = training.net.layout

    def descend(objective: Objective, w: Tensor, eta: Tensor) -> BatchResult:
        pieces = layout.split(w)
        leaves = {name: p.detach().requires_grad_() for name, p in pieces.items()}
        total, result = objective(leaves)
        found = torch.autograd.grad(
            total.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
        )
        for piece, g in zip(pieces.values(), found, strict=True):
            piece.addcmul_(eta, g, value=-1)
        return result._replace(loss=result.loss.detach())

    def differentiate(objective: Objective, w: Tensor, rate: Tensor | None) -> tuple[Tensor, BatchResult]:
        raise NotImplementedError("a plain step descends")

    fed = training.federation
    batch = StackedBatch(x, y, mask, task=fed.data.task, weight=fed.weight)
    return training.step(differentiate, task, scratch, w, batch, k, epoch, descend=descend)

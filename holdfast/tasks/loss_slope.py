"""The slope of a task's loss: how it changes with a network's outputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.tasks.classification import Classification
from holdfast.tasks.task import Task

CROSS_ENTROPY = Classification.loss


def loss_and_slope(
    task: Task, outputs: Tensor, y: Tensor, weight: Tensor | None, share: Tensor
) -> tuple[Tensor, Tensor]:
    """Return every sample's loss, and the gradient of ``(share * loss).sum()`` with respect to the outputs.

    The cross-entropy is differentiated by hand, which takes a third of the time; other losses are by autograd.

    Args:
        task: The task.
        outputs: What the network returned, [n, outputs].
        y: The targets.
        weight: A factor per output on the loss of its class or label; None: 1.
        share: A factor on the loss of every sample, [n].

    Returns:
        The losses, [n], and the gradient, [n, outputs].
    """
    if type(task).loss is CROSS_ENTROPY:  # not that of a user's task that derives from it
        return _cross_entropy(outputs, y, weight, share)
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        losses = task.loss(leaf, y, weight)
        (slope,) = torch.autograd.grad(losses, leaf, share.to(losses.dtype))
    return losses.detach(), slope


def _cross_entropy(outputs: Tensor, y: Tensor, weight: Tensor | None, share: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy and its slope, ``softmax - onehot``, by the operations that autograd would call."""
    logs = F.log_softmax(outputs, 1)
    losses = F.nll_loss(logs, y, weight, reduction="none")
    share = share if weight is None else share * weight[y]
    slope = torch.zeros_like(logs).scatter_(1, y[:, None], -share[:, None])
    return losses, torch.ops.aten._log_softmax_backward_data(slope, logs, 1, logs.dtype)

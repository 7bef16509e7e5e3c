"""The local step of a cohort of dense models whose gradients are taken at once, outside ``vmap``.

The network runs on the samples of all clients, and one backward pass gives the gradient of every client. What parts do
with it runs under ``vmap``; if no part takes part in the step, nothing does.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import torch
from torch import Tensor
from torch.func import vmap

from holdfast.core.tensors import PerPart, Tensors
from holdfast.data.batch import StackedBatch
from holdfast.engines.chain_pass import ChainPass
from holdfast.engines.lifted_step import LiftedStep, NotVectorAlgebra
from holdfast.engines.local_training import CLIENT_AXES, BatchResult, ClientTask, LocalTraining, Objective
from holdfast.models.dense_chain import find_chain
from holdfast.models.row_by_row import works_row_by_row
from holdfast.models.stacked_dense import StackedDense

STEP_AXES = (CLIENT_AXES, 0, 0, 0, 0, 0, 0, None)  # which arguments of a step have a client axis


def can_stack(training: LocalTraining) -> bool:
    """Tell whether the gradients of a cohort can be taken at once: on a CPU, of a dense model's own task loss."""
    fits = training.own_gradient and training.net.device.type == "cpu" and training.net.takes_numbers
    return fits and works_row_by_row(training.net, training.federation.example())


class StackedStep:
    """Takes the local steps of a cohort.

    Args:
        training: The local training. See ``can_stack``.
    """

    def __init__(self, training: LocalTraining) -> None:
        self.training = training
        self.stacked = training.with_pass(StackedDense(training.net).training_pass)
        self.chain = find_chain(training.net, training.federation.example())
        self.by_hand = None if self.chain is None else ChainPass(training, self.chain)
        self.lifted, self.one_at_a_time = LiftedStep(training), threading.Lock()
        self._after = vmap(self._with_gradient, in_dims=(0, 0, *STEP_AXES))

    def __call__(
        self, task: ClientTask, scratch: PerPart, w: Tensor, x: Tensor, y: Tensor, mask: Tensor, k: Tensor,
        epoch: Tensor,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        """Take a step of every client; all but ``epoch`` have a client axis. ``w`` may be overwritten.

        Args:
            task: What the clients train with.
            scratch: What the parts keep within the round.
            w: The local models, [clients, P].
            x: Inputs, [clients, batch, ...].
            y: Targets.
            mask: Where they are samples.
            k: The number of the step.
            epoch: The number of the epoch.

        Returns:
            The new models, the new scratch, and every client's task loss before the step.
        """
        data = self.training.federation
        batch = StackedBatch(x, y, mask, task=data.data.task, weight=data.weight)
        if self.training.plain:
            return self.stacked.step(self.differentiate, task, scratch, w, batch, k, epoch, descend=self.descend)
        if self.by_hand is not None:
            g, loss = self.by_hand.gradient(w, x, y, mask)
        else:
            g, (loss, _) = self.differentiate(self.stacked.own_objective(task, batch, k), w)
        if self.lifted.possible:
            with suppress(NotVectorAlgebra):
                return self.lifted(task, scratch, w, g, loss, batch, k, epoch)
        with self.one_at_a_time:
            moved: tuple[Tensor, PerPart, Tensor] = self._after(g, loss, task, scratch, w, x, y, mask, k, epoch)
            return moved

    def parallel(self) -> bool:
        """Tell whether several threads may take steps of different clients: if none of them runs the module."""
        return self.by_hand is not None and self.lifted.proven

    def differentiate(self, objective: Objective, w: Tensor, rate: Tensor | None = None) -> tuple[Tensor, BatchResult]:
        """Return every client's gradient, [clients, P]."""
        found, result = self._pieces(objective, w)
        return torch.cat([g.flatten(1) for g in found.values()], 1), result

    def descend(self, objective: Objective, w: Tensor, eta: Tensor) -> BatchResult:
        """Move every client's ``w`` itself down its gradient, parameter by parameter."""
        found, result = self._pieces(objective, w)
        for name, piece in self.training.net.layout.split(w).items():
            piece.addcmul_(eta, found[name], value=-1)
        return result

    def _pieces(self, objective: Objective, w: Tensor) -> tuple[Tensors, BatchResult]:
        """Return the gradient of every parameter, [clients, ...], and what the pass gave beside it."""
        leaves = {name: p.detach().requires_grad_() for name, p in self.training.net.layout.split(w).items()}
        total, result = objective(leaves)
        found = torch.autograd.grad(total.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(leaves, found, strict=True)), result._replace(loss=result.loss.detach())

    def _with_gradient(
        self, g: Tensor, loss: Tensor, task: ClientTask, scratch: PerPart, w: Tensor, x: Tensor, y: Tensor,
        mask: Tensor, k: Tensor, epoch: Tensor,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        """Take one client's step with a gradient that is known."""
        batch = self.training.federation.as_batch(x, y, mask)
        return self.training.step(lambda *_: (g, BatchResult(loss, {})), task, scratch, w, batch, k, epoch)

"""The local step of several clients, a row each, traced once and repeated for every step of a round.

Whatever differs between clients, rounds or runs is an input of its row: the model from which it starts, messages,
learning rate, numbers of parts, seed, samples, and how many steps it has taken. A row neither knows nor changes what
the others do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from holdfast.core.tensors import PerPart
from holdfast.engines.cuda_graph import aligned, capture, copied, in_place
from holdfast.engines.local_training import ClientTask, LocalTraining

ROW_AXES = (ClientTask(0, 0, 0, 0, 0), 0, 0, 0, 0, 0, 0, 0)  # type: ignore[arg-type]  # every input has a row axis


@dataclass(frozen=True)
class CohortShape:
    """The shape that all clients of a run fit into, so that one traced step serves them all."""

    rows: int  # clients in one step
    slots: int  # at least as many as any client takes local steps in a round
    batch: int

    def fill(self, plan: Tensor) -> Tensor:
        """Pad a plan of fewer steps or smaller batches to [C, slots, batch]."""
        _, slots, batch = plan.shape
        return torch.nn.functional.pad(plan, [0, self.batch - batch, 0, self.slots - slots])


class StepInputs(NamedTuple):
    """What a step reads and does not change. Rows are clients."""

    task: ClientTask
    samples: Tensor  # [C, slots, batch]: the sample numbers of every step
    mask: Tensor  # false where ``samples`` is padding
    per_epoch: Tensor  # [C] steps


class StepState(NamedTuple):
    """What a step changes. Rows are clients."""

    w: Tensor  # [C, P]
    scratch: PerPart
    loss: Tensor  # [C] summed over the steps
    k: Tensor  # [C] steps taken


class RowStep:
    """A traced step with rows of one shape. What a row computes before a client is loaded into it has no meaning.

    Args:
        training: The local training that the step belongs to.
        step: One client's local step under ``vmap``.
        inputs: What the step reads, as an example of its shape.
        state: What the step changes, likewise.
        compiled: Whether to compile the traced step.

    Attributes:
        buffers: All inputs and then the state, tensor by tensor; to load a client is to write its row in each.
        changed: How many of the buffers, from the end, are the state.
    """

    def __init__(
        self,
        training: LocalTraining,
        step: Callable[..., Any],
        inputs: StepInputs,
        state: StepState,
        compiled: bool,
    ) -> None:
        self.training, self.step = training, step
        self.inputs: StepInputs = copied(inputs)
        self.state: StepState = copied(state)._replace(w=aligned(state.w))
        self.buffers, _ = tree_flatten((self.inputs, self.state))
        self.changed = len(tree_flatten(self.state)[0])
        self.once = in_place(self._once, self.inputs, self.state, compiled)  # what a graph reads must stay alive
        self.run = capture(self.once) if state.w.is_cuda else self.once

    def _once(self, f: StepInputs, m: StepState) -> StepState:
        """Take one step in every row; a row whose client has taken all its steps must be read before."""
        at = m.k.clamp(max=f.samples.shape[1] - 1).reshape(-1, 1, 1).expand(-1, 1, f.samples.shape[2])
        index, mask = (t.gather(1, at).squeeze(1) for t in (f.samples, f.mask))
        k, info = m.k + 1, f.task.info
        key = self.training.augment_key(f.task.broadcast, info.id, k, f.task.seed)
        x, y = self.training.federation.batch(index, info.sigma, key)
        w, scratch, loss = self.step(f.task, m.scratch, m.w, x, y, mask, k, m.k // f.per_epoch)
        return StepState(w, scratch, m.loss + loss, k)

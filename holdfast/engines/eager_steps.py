"""The local steps of an epoch as they come, without tracing: those still training at a step are the first rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart
from holdfast.engines.cohort import Cohort
from holdfast.engines.local_training import Broadcast, ClientTask, LocalTraining, write_back
from holdfast.engines.thread_groups import ThreadGroups


class EpochState(NamedTuple):
    """What an epoch changes. Rows are clients."""

    w: Tensor  # [C, P]
    scratch: PerPart
    loss: Tensor  # [C] summed over the steps
    k: Tensor  # [C] steps taken

    def rows(self, rows: slice) -> EpochState:
        """Return the state of some clients, without a copy."""
        state: EpochState = tree_map(lambda t: t[rows], self)
        return state


class EagerSteps:
    """Takes the steps of a cohort, one after another.

    Args:
        training: The local training.
        step: The local step of a cohort.
        groups: Where clients train if several threads may take steps.
        parallel: Tells whether they may.
    """

    def __init__(
        self,
        training: LocalTraining,
        step: Callable[..., tuple[Tensor, PerPart, Tensor]],
        groups: ThreadGroups,
        parallel: Callable[[], bool],
    ) -> None:
        self.training, self.step, self.groups, self.parallel = training, step, groups, parallel

    def take(self, broadcast: Broadcast, cohort: Cohort, state: EpochState, epoch: Tensor) -> None:
        """Take the steps of an epoch, in which all clients train, most steps first. The state is overwritten."""
        train = partial(self._group, broadcast, cohort, state, epoch)
        if self.parallel():
            self.groups.each(train, cohort.size, cohort.plan.index.shape[-1] * self.training.net.layout.size)
        else:
            train(slice(None))

    def _group(self, broadcast: Broadcast, cohort: Cohort, state: EpochState, epoch: Tensor, rows: slice) -> None:
        """Take the steps of some of the clients."""
        plan, e, (w, scratch, total, k) = cohort.plan, int(epoch), state.rows(rows)
        info, states = tree_map(lambda t: t[rows], (cohort.info, cohort.states))
        steps, index, mask = plan.steps_in(e)[rows], plan.index[rows, e], plan.mask[rows, e]
        busy = 0
        for s in range(steps[0]):
            still = sum(own > s for own in steps)
            if still != busy:
                busy = still
                active = ClientTask(broadcast, *tree_map(lambda t, b=busy: t[:b], (info, states)))
                models, local = w[:busy], tree_map(lambda t, b=busy: t[:b], scratch)
                buffers = [models, *(t for own in local.values() for t in own.values())]
            k[:busy] += 1
            key = self.training.augment_key(broadcast, active.info.id, k[:busy])
            x, y = self.training.federation.batch(index[:busy, s], active.info.sigma, key)
            moved, new, loss = self.step(active, local, models, x, y, mask[:busy, s], k[:busy], epoch)
            write_back(buffers, [moved, *(new[part][name] for part, own in local.items() for name in own)])
            total[:busy] += loss

"""The local steps of dense chains where no part takes part in a step: products and little else.

Each core trains some of the clients; cores wait for each other at the end of an epoch only. The model moves by the same
operations as where parts take part, so that a part of strength zero changes no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from holdfast.engines.chain_pass import ChainPass
from holdfast.engines.cohort import Cohort
from holdfast.engines.eager_steps import EpochState
from holdfast.engines.local_training import Broadcast, LocalTraining
from holdfast.engines.thread_groups import ThreadGroups
from holdfast.models.dense_chain import Product, write_gradient


class ChainSteps:
    """Takes the steps of a cohort of dense chains.

    Args:
        training: The local training, in which no part takes part in a step.
        chain: The products of the network.
        groups: Where the clients train.
    """

    def __init__(self, training: LocalTraining, chain: Sequence[Product], groups: ThreadGroups) -> None:
        self.training, self.passes, self.groups = training, ChainPass(training, chain), groups

    def take(self, broadcast: Broadcast, cohort: Cohort, state: EpochState, epoch: Tensor) -> None:
        """Take the steps of an epoch, in which all clients train, most steps first. The state is overwritten."""
        train = partial(self._group, broadcast, cohort, state, int(epoch))
        self.groups.each(train, cohort.size, cohort.plan.index.shape[-1] * self.training.net.layout.size)

    @torch.no_grad()
    def _group(self, broadcast: Broadcast, cohort: Cohort, state: EpochState, e: int, rows: slice) -> None:
        """Take the steps of some of the clients."""
        w, _, loss, k = state.rows(rows)
        plan, info, g = cohort.plan, cohort.info, torch.empty_like(w, memory_format=torch.contiguous_format)
        steps, index, client, sigma = plan.steps_in(e)[rows], plan.index[rows, e], info.id[rows], info.sigma[rows]
        mask = plan.mask[rows, e]
        busy = 0
        for s in range(steps[0]):
            still = sum(own > s for own in steps)
            if still != busy:
                layers, found, busy = self.passes.layers(w[:still]), self.passes.layers(g[:still]), still
            k[:busy] += 1
            key = self.training.augment_key(broadcast, client[:busy], k[:busy])
            x, y = self.training.federation.batch(index[:busy, s], sigma[:busy], key)
            passed = self.passes.forward(layers, x, y, mask[:busy, s])
            write_gradient(layers, passed.columns, passed.slope, found)
            w[:busy].addcmul_(broadcast.lr, g[:busy], value=-1)
            loss[:busy] += passed.loss

"""Clients that lie, in a simulation: what the server receives in place of what was trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from holdfast.attacks.attack import Attack
from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import PerPart
from holdfast.data.federation import Federation
from holdfast.engines.cohort import CohortUpdate


class Liars:
    """The clients of a run that lie, and what they send. Of a cohort in slices, each slice lies by itself.

    Args:
        attack: What they do.
        seed: The seed of the run, which decides who they are.
        clients: The clients that may be drawn.
    """

    def __init__(self, attack: Attack, seed: int, clients: np.ndarray) -> None:
        self.attack, self.seed = attack, seed
        self.ids = attack.liars(seed, clients)

    def forged(self, update: CohortUpdate, round: int) -> CohortUpdate:
        """Return what the server receives of a cohort: the lies of the liars, and the truth of all others."""
        lying = torch.isin(update.ids, torch.as_tensor(self.ids, device=update.ids.device))
        if not bool(lying.any()):
            return update
        words = iter(range(1, 1 << 30))

        def forge(rows: Tensor) -> Tensor:
            key = rng.key(self.seed, rng.ATTACK, round, next(words))
            if not rows.is_floating_point():
                return rows
            flat = rows.reshape(len(rows), -1)
            lies = self.attack.forge(flat, lying, key.to(rows.device))
            return flat.index_put((lying,), lies.to(flat.dtype)).reshape(rows.shape)

        deltas = forge(update.deltas)
        uploads: PerPart = {
            part: {name: forge(rows) for name, rows in tensors.items()} for part, tensors in update.uploads.items()
        }
        n = torch.where(lying, self.attack.claim(update.n), update.n)
        return replace(update, deltas=deltas, uploads=uploads, n=n)

    def flipped(self, federation: Federation) -> Federation:
        """Return the federation with the labels on which the liars train."""
        if not self.attack.flips_labels:
            return federation
        data = federation.data
        if data.task.name != "classification":
            raise HoldfastError(f"{self.attack.name} flips classes, and this is {data.task.name}: use another attack")
        samples = [federation.deal.client(int(i)) for i in self.ids]
        at = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *samples])).to(data.y.device)
        y = data.y.clone()
        y[at] = len(data.classes) - 1 - y[at]
        return replace(federation, data=replace(data, y=y))

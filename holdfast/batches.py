"""Which sample goes into which batch: a function of (seed, round, trip, client) and nothing else.

In every pass over its data a client sees each sample once, in an order sorted by hashed keys; the last batch of a pass
may be smaller. With ``epochs`` a round is so many passes. With ``steps`` a round is one "epoch" of so many steps, and
passes follow one another underneath.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast import keys


@dataclass(frozen=True)
class Plan:
    """The batches of a cohort, padded to the largest client: ``index[c, e, s, b]`` counts where ``mask`` is true."""

    index: Tensor  # [C, E, S, B] sample numbers
    mask: Tensor  # [C, E, S, B]
    steps: list[int]  # [C] steps per epoch; a client is idle at the end of an epoch

    @property
    def epochs(self) -> int:
        return self.index.shape[1]

    def to(self, device: torch.device) -> Plan:
        return Plan(self.index.to(device), self.mask.to(device), self.steps)

    def pick(self, rows: list[int]) -> Plan:
        """The plan of these clients, in this order."""
        return Plan(self.index[rows], self.mask[rows], [self.steps[i] for i in rows])

    def rows(self, start: int, stop: int) -> Plan:
        """The plan of some of the clients, padded to the largest among them."""
        most = max(self.steps[start:stop])
        return Plan(self.index[start:stop, :, :most], self.mask[start:stop, :, :most], self.steps[start:stop])


def plan(
    owned: Tensor,
    n: Tensor,
    client: Tensor,
    *,
    words: tuple[int, ...],
    batch: int,
    epochs: int,
    steps: int | None,
) -> Plan:
    """Deal the samples ``owned[c, :n[c]]`` of each client into batches; ``words`` are seed, round and trip."""
    most = owned.shape[1]
    size = max(1, min(batch, most))
    per_pass = (n + size - 1) // size  # [C] batches in one pass
    counts = [int(s) for s in per_pass.tolist()]
    shape = (epochs, max(counts)) if steps is None else (1, steps)
    slots = torch.arange(shape[0] * shape[1], device=owned.device).reshape(shape)
    if steps is None:
        passes, place = slots // shape[1], slots % shape[1]
        passes, place = passes.expand(len(n), -1, -1), place.expand(len(n), -1, -1)
    else:
        passes, place = slots // per_pass[:, None, None], slots % per_pass[:, None, None]
    order = _orders(owned, n, client, words, 1 + int(passes.max()) if passes.numel() else 0)
    spot = place[..., None] * size + torch.arange(size, device=owned.device)  # [C, E, S, B] place in the pass
    mask = spot < n[:, None, None, None]
    flat = (passes[..., None] * most + spot.clamp(max=most - 1)).reshape(len(n), -1)
    index = order.reshape(len(n), -1).gather(1, flat).reshape(spot.shape)
    return Plan(index, mask, counts if steps is None else [steps] * len(n))


def _orders(owned: Tensor, n: Tensor, client: Tensor, words: tuple[int, ...], passes: int) -> Tensor:
    """[C, passes, n]: each client's samples, in a new order every pass; padding comes last."""
    most = owned.shape[1]
    number = torch.arange(passes, device=owned.device)
    seed, *rest = words
    k = keys.key(seed, keys.ORDER, *rest, client[:, None], number)  # [C, passes]
    place = torch.arange(most, device=owned.device)
    draw = keys.key(k[..., None], place)
    draw = torch.where(place < n[:, None, None], draw, keys.MASK + 1)
    order = draw.argsort(dim=-1, stable=True)
    return owned[:, None].expand(-1, passes, -1).gather(2, order)

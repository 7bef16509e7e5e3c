"""Which sample goes into which batch: a function of (seed, round, trip, client) and nothing else.

In every pass over its data a client sees each sample once, in an order sorted by hashed keys; the last batch of a pass
may be smaller. With ``epochs`` a round is that number of passes, which may differ between clients. With ``steps`` a
round is one "epoch" of that many steps, with one pass after another underneath.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.core import rng

PLACE_BITS = 30  # bits for the place of a sample among a client's


@dataclass(frozen=True)
class BatchPlan:
    """The batches of a cohort, padded to the largest client: ``index[c, e, s, b]`` counts where ``mask`` is true."""

    index: Tensor  # [C, E, S, B] sample numbers
    mask: Tensor  # [C, E, S, B]
    steps: list[int]  # [C] steps per epoch; a client is idle at the end of an epoch
    passes: list[int]  # [C] epochs; a client is idle in those that follow
    total: list[int]  # [C] steps of all epochs; a client may stop within its last one

    @property
    def epochs(self) -> int:
        return self.index.shape[1]

    def to(self, device: torch.device) -> BatchPlan:
        return BatchPlan(self.index.to(device), self.mask.to(device), self.steps, self.passes, self.total)

    def pick(self, rows: list[int]) -> BatchPlan:
        """Return the plan of these clients, in this order."""
        steps, passes, total = ([values[i] for i in rows] for values in (self.steps, self.passes, self.total))
        return BatchPlan(self.index[rows], self.mask[rows], steps, passes, total)

    def rows(self, start: int, stop: int) -> BatchPlan:
        """Return the plan of a range of the clients, padded to the largest among them."""
        steps, passes = self.steps[start:stop], self.passes[start:stop]
        index, mask = (t[start:stop, : max(passes), : max(steps)] for t in (self.index, self.mask))
        return BatchPlan(index, mask, steps, passes, self.total[start:stop])

    def steps_in(self, epoch: int) -> list[int]:
        """Return the steps that each client takes in an epoch, counted from 0."""
        return [max(0, min(steps, all - epoch * steps)) for steps, all in zip(self.steps, self.total, strict=True)]

    def training_in(self, epoch: int) -> list[int]:
        """Return the rows of the clients that train in an epoch, counted from 0."""
        return [i for i, passes in enumerate(self.passes) if passes > epoch]


def plan(
    owned: Tensor,
    n: Tensor,
    client: Tensor,
    *,
    words: tuple[int, ...],
    batch: int,
    epochs: int | Sequence[int],
    steps: int | None,
    most_steps: Sequence[int] | None = None,
    shuffled: bool = True,
) -> BatchPlan:
    """Arrange the samples of each client in batches.

    This is computed in NumPy: the arrays are so small that PyTorch would spend most of its time on overhead.

    Args:
        owned: The sample numbers of each client, [C, most]; the first ``n[c]`` of a row count.
        n: The number of samples of each client, [C].
        client: The client ids, [C].
        words: Seed, round and trip, which decide the order.
        batch: The samples per step.
        epochs: The passes over the data, of all clients or of each.
        steps: The steps of the round instead of ``epochs``, or None.
        most_steps: After how many steps each client stops at the latest, at least one; None: after all of them.
        shuffled: Whether every pass has an order of its own; otherwise all have that of ``owned``.

    Returns:
        The batches of all clients.
    """
    device = owned.device
    own, held, who = (t.cpu().numpy() for t in (owned, n, client))
    clients, most = own.shape
    size = max(1, min(batch, most))
    per_pass = -(-held // size)  # [C] batches in one pass
    counts = [int(s) for s in per_pass.tolist()]
    passes_of = [epochs] * clients if isinstance(epochs, int) else list(epochs)
    if most_steps is not None and steps is None:
        passes_of = [min(e, -(-most // s)) for e, s, most in zip(passes_of, counts, most_steps, strict=True)]
    shape = (max(passes_of), max(counts)) if steps is None else (1, steps)
    each = np.full_like(per_pass, shape[1]) if steps is None else per_pass
    passes, place = np.divmod(np.arange(shape[0] * shape[1]).reshape(shape), each[:, None, None])  # [C, E, S]
    total = 1 + int(passes.max()) if passes.size else 0
    order = _orders(own, held, who, words, total) if shuffled else np.repeat(own[:, None], total, axis=1)
    spot = place[..., None] * size + np.arange(size)  # [C, E, S, B] place in the pass
    mask = spot < held[:, None, None, None]
    if steps is None:
        mask &= (np.arange(shape[0]) < np.array(passes_of)[:, None])[:, :, None, None]
    flat = (passes[..., None] * most + np.minimum(spot, most - 1)).reshape(clients, -1)
    index = np.take_along_axis(order.reshape(clients, -1), flat, 1).reshape(spot.shape)
    work = (counts, passes_of) if steps is None else ([steps] * clients, [1] * clients)
    taken = [s * e for s, e in zip(*work, strict=True)]
    if most_steps is not None:
        taken = [min(all, most) for all, most in zip(taken, most_steps, strict=True)]
    return BatchPlan(torch.from_numpy(index).to(device), torch.from_numpy(mask).to(device), *work, taken)


def _orders(own: np.ndarray, held: np.ndarray, who: np.ndarray, words: tuple[int, ...], passes: int) -> np.ndarray:
    """Return [C, passes, n]: each client's samples, in a new order for every pass; padding comes last."""
    seed, *rest = words
    k = rng.numbers(seed, rng.ORDER, *rest, who[:, None], np.arange(passes))  # [C, passes]
    place = np.arange(own.shape[1])
    draw = rng.numbers(k[..., None], place)
    draw = np.where(place < held[:, None, None], draw, rng.MASK + 1)
    # Sorting draws together with their places, which break ties, is faster than a stable argsort.
    order = np.sort(draw << PLACE_BITS | place, axis=-1) & ((1 << PLACE_BITS) - 1)
    return np.take_along_axis(np.broadcast_to(own[:, None], order.shape), order, 2)

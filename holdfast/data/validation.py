"""Validation data: training samples that are held out to choose by, so that test data is left to report."""

from __future__ import annotations

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.data.deal import Deal
from holdfast.data.split import stream

CLIENTS, POOL = "clients", "pool"  # where validation samples come from


def hold_out_of_clients(deal: Deal, fraction: float, seed: int) -> tuple[Deal, Deal]:
    """Hold out a fraction of every client's samples, at random; a client keeps at least one for training.

    Args:
        deal: The samples of every client.
        fraction: How much of them to hold out.
        seed: The seed of the choice.

    Returns:
        What is left for training, and what is held out.
    """
    draw = stream(seed, "validation")
    kept, held = [], []
    for i in range(deal.clients):
        own = deal.client(i)
        count = min(int(fraction * len(own) + 0.5), max(len(own) - 1, 0))
        chosen = np.zeros(len(own), bool)
        chosen[draw.permutation(len(own))[:count]] = True
        kept.append(own[~chosen])
        held.append(own[chosen])
    if not sum(map(len, held)):
        raise HoldfastError(
            f"validation {fraction:g} of every client is not a single sample; use a larger fraction, or "
            "validation_from pool"
        )
    return _joined(kept, deal), _joined(held, deal)


def pooled_validation(labels: np.ndarray, samples: np.ndarray, fraction: float, seed: int) -> Deal:
    """Hold out a fraction of every class before the samples are dealt.

    Args:
        labels: The class or group of every sample.
        samples: The samples to choose from.
        fraction: How much of them to hold out.
        seed: The seed of the choice.

    Returns:
        The samples, as those of one owner.
    """
    draw, chosen = stream(seed, "validation"), []
    for c in np.unique(labels[samples]):
        members = samples[labels[samples] == c]
        count = min(int(fraction * len(members) + 0.5), len(members) - 1)
        chosen.append(draw.permutation(members)[:count])
    index = np.sort(np.concatenate(chosen))
    if not len(index):
        raise HoldfastError(f"validation {fraction:g} of the data is not a single sample; use a larger fraction")
    return Deal(index, np.array([0, len(index)]))


def _joined(lists: list[np.ndarray], like: Deal) -> Deal:
    offsets = np.cumsum([0, *(len(samples) for samples in lists)])
    return Deal(np.concatenate(lists), offsets, like.noise)

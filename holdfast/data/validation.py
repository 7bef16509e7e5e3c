"""Validation data: training samples that are held out to choose by, so that test data is left to report."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.data.deal import Deal
from holdfast.data.split import stream

CLIENTS, POOL = "clients", "pool"  # where validation samples come from
VALIDATION, CLIENT_TEST = "validation", "client_test"  # what samples are held out of clients for


@dataclass(frozen=True)
class HeldOut:
    """What is held out of training, as the settings of a run say it.

    Attributes:
        validation: The fraction for validation.
        validation_from: Whether that is a fraction of every client's samples or of the pool.
        client_test: The fraction for the clients' own test samples; 0: they have none.
    """

    validation: float = 0.0
    validation_from: str = CLIENTS
    client_test: float = 0.0


def hold_out_of_clients(deal: Deal, fraction: float, seed: int, purpose: str = VALIDATION) -> tuple[Deal, Deal]:
    """Hold out a fraction of every client's samples, at random; a client keeps at least one for training.

    What is held out of a client depends on its own samples alone, so that a node that has no others finds the same.

    Args:
        deal: The samples of every client.
        fraction: How much of them to hold out.
        seed: The seed of the choice.
        purpose: What they are held out for: ``validation`` or ``client_test``.

    Returns:
        What is left for training, and what is held out.
    """
    owner, sizes = deal.owners, deal.sizes
    place = np.arange(len(owner)) - np.repeat(deal.offsets[:-1], sizes)
    drawn = rng.numbers(seed, zlib.crc32(purpose.encode()), owner, place)
    rank = np.empty_like(place)
    rank[np.lexsort((drawn, owner))] = place
    count = np.minimum((fraction * sizes + 0.5).astype(np.int64), np.maximum(sizes - 1, 0))
    held = rank < np.repeat(count, sizes)
    return _part(deal, ~held, sizes - count), _part(deal, held, count)


def refuse_nothing(held: Deal, fraction: float, purpose: str, remedy: str = "") -> None:
    """Raise an error if a fraction of every client's samples is not a single sample."""
    if not len(held.index):
        raise HoldfastError(
            f"{purpose} {fraction:g} of every client is not a single sample; use a larger fraction{remedy}"
        )


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


def _part(deal: Deal, chosen: np.ndarray, sizes: np.ndarray) -> Deal:
    return Deal(deal.index[chosen], np.cumsum([0, *sizes]), deal.noise)

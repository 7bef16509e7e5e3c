"""Fill clients of fixed sizes from their label mixes, until classes run out."""

from __future__ import annotations

import numpy as np

from holdfast.data.deal import count_pairs


def fill_clients(sizes: np.ndarray, mixes: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a table with rows ``sizes`` and columns ``counts``: the dealing of the FedDyn code, without its loop.

    That code visits the free places of clients in random order. Each place draws a class from its client's mix, and
    draws again if that class has run out. Here all places draw at once. The draws stand up to the place where the first
    class is overdrawn. After it, the places that drew this class draw again among the others, and so on: the same
    distribution after at most one pass per class. A client whose whole mix has run out (where that code would not
    end) draws in proportion to what is left.

    Args:
        sizes: Samples of every client: int64 [clients].
        mixes: The label mix of every client: float64 [clients, classes].
        counts: Samples of every class: int64 [classes].
        rng: Draws the order of the places and their classes.

    Returns:
        Samples of every client and class: int64 [clients, classes].
    """
    places = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    left, mixes = counts.copy(), mixes * (counts > 0)
    drawn = _draw(places, mixes, left, rng)
    start = 0
    while True:
        at, which = _overdrawn(drawn[start:], left)
        if which < 0:
            return count_pairs(places, drawn, len(sizes), len(counts))
        left -= np.bincount(drawn[start : start + at], minlength=len(left))
        start += at
        mixes[:, which] = 0.0
        again = start + np.flatnonzero(drawn[start:] == which)
        drawn[again] = _draw(places[again], mixes, left, rng)


def _overdrawn(drawn: np.ndarray, left: np.ndarray) -> tuple[int, int]:
    """Return the first place that draws from an empty class, and the class; -1 when all draws can be served."""
    used = np.bincount(drawn, minlength=len(left))
    over = np.flatnonzero(used > left)
    if not len(over):
        return len(drawn), -1
    by_class = np.argsort(drawn.astype(np.int32), kind="stable")
    first = (np.cumsum(used) - used)[over]
    at = by_class[first + left[over]]
    k = int(at.argmin())
    return int(at[k]), int(over[k])


def _draw(places: np.ndarray, mixes: np.ndarray, left: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a class for every place from the mix of its client, or from ``left`` where that mix is all zero."""
    clients, row = np.unique(places, return_inverse=True)
    edges = np.cumsum(mixes[clients], axis=1)
    edges[edges[:, -1] <= 0] = np.cumsum(left)
    edges /= edges[:, -1:]
    # One sorted list for all clients: row i's edges are in [i, i + 1]. Staying below 1 keeps i + u below i + 1.
    edges += np.arange(len(edges))[:, None]
    u = rng.random(len(places)) * (1 - 1e-9)
    return np.asarray(np.searchsorted(edges.ravel(), row + u, side="right") - row * mixes.shape[1])

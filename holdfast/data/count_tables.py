"""Arithmetic on tables: the number of samples of every client and class."""

from __future__ import annotations

import numpy as np

SWEEPS = 200
TINY = 1e-200  # anything smaller counts as zero: dividing by it would overflow


def apportion(weights: np.ndarray, total: int, offset: float) -> np.ndarray:
    """Divide ``total`` samples in proportion to ``weights``, in whole numbers that lose none.

    Systematic rounding: the cumulative shares, shifted by ``offset`` in [0, 1), are cut at whole numbers. Every share
    is within one sample of its exact value, equal to it on average over the offset, and 0 where the weight is 0.

    Args:
        weights: One weight per receiver; if all are 0, the receivers count alike.
        total: The number of samples.
        offset: Where to start cutting, in [0, 1).

    Returns:
        The samples of every receiver: int64, with the sum ``total``.

    >>> apportion(np.array([1.0, 1.0, 2.0, 0.0]), 10, 0.5).tolist()
    [3, 2, 5, 0]
    """
    edges = np.cumsum(weights, dtype=np.float64)
    if edges[-1] <= 0:
        edges = np.arange(1.0, len(edges) + 1)
    return np.diff(np.floor(edges * total / edges[-1] + offset).astype(np.int64), prepend=0)


def round_plan(plan: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Round a plan to whole samples: each class is dealt to the clients in proportion to its column."""
    offsets = rng.random(len(counts))
    columns = [apportion(plan[:, c], int(n), offsets[c]) for c, n in enumerate(counts)]
    return np.stack(columns, axis=1)


def fit_sizes(plan: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the plan nearest to ``plan`` whose rows sum to ``sizes``; columns keep their sums.

    Iterative proportional fitting scales rows and columns in turn. The limit is the table of least relative entropy to
    the first one. Scaling a row keeps the client's label mix, and scaling a class tilts all mixes alike. Clients
    therefore keep their preferences, and a zero stays zero. Where the zeros rule the sizes out (a client of one class
    cannot own half of ten classes), the classes win: they are scaled last.
    """
    columns = plan.sum(axis=0)
    for _ in range(SWEEPS):
        plan = plan * _ratio(sizes, plan.sum(axis=1))[:, None]
        plan *= _ratio(columns, plan.sum(axis=0))
        if np.abs(plan.sum(axis=1) - sizes).max() < 0.5:
            break
    return plan


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(a, b, out=np.zeros(len(b)), where=b > TINY))


def raise_to_minimum(
    table: np.ndarray, plan: np.ndarray, minimum: int, keeps_classes: bool, rng: np.random.Generator
) -> np.ndarray:
    """Move samples so that every client has at least ``minimum``, where that is possible.

    Clients that lack samples get them in their own planned label mix, then from any class of their plan, then (unless
    ``keeps_classes``) in the mix of all data. Clients above ``minimum`` give in proportion to what they can spare.

    Args:
        table: Samples of every client and class.
        plan: What the split intended, in fractions of samples.
        minimum: The samples that every client should have.
        keeps_classes: Whether clients must not receive a class outside their plan.
        rng: Rounds the numbers of moved samples.

    Returns:
        A table with the same column sums.
    """
    table = table.copy()
    mixes = [plan] if keeps_classes else [plan, np.tile(table.sum(axis=0), (len(table), 1))]
    for mix in mixes:
        lack = np.maximum(minimum - table.sum(axis=1), 0)
        edges = np.cumsum(mix, axis=1, dtype=np.float64)
        edges *= _ratio(lack, edges[:, -1])[:, None]
        want = np.diff(np.floor(edges + rng.random((len(lack), 1))).astype(np.int64), axis=1, prepend=0)
        for c in range(table.shape[1]):
            _move(table, c, want[:, c], minimum, rng)
        for c in range(table.shape[1]):
            lack = np.maximum(minimum - table.sum(axis=1), 0)
            _move(table, c, np.where(mix[:, c] > 0, lack, 0), minimum, rng)
    return table


def _move(table: np.ndarray, c: int, want: np.ndarray, minimum: int, rng: np.random.Generator) -> None:
    """Give clients up to ``want`` samples of class ``c`` from clients that have more than ``minimum``."""
    if want.any():
        spare = np.minimum(table[:, c], np.maximum(table.sum(axis=1) - minimum, 0))
        total = min(int(want.sum()), int(spare.sum()))
        if total:
            table[:, c] += apportion(want, total, rng.random()) - apportion(spare, total, rng.random())

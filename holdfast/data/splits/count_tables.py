"""Arithmetic on tables, the numbers of samples of every client and class."""

from __future__ import annotations

import numpy as np

SWEEPS = 200
TINY = 1e-200  # less than this is nothing: dividing by it would overflow


def shares(weights: np.ndarray, total: int, offset: float) -> np.ndarray:
    """``total`` samples in proportion to ``weights``, in whole numbers that lose none.

    Systematic rounding: the cumulative shares, shifted by ``offset`` in [0, 1), are cut at whole numbers.
    Every share is within one sample of its exact value, on average over the offset equal to it, and 0 where
    the weight is.

    >>> shares(np.array([1.0, 1.0, 2.0, 0.0]), 10, 0.5).tolist()
    [3, 2, 5, 0]
    """
    edges = np.cumsum(weights, dtype=np.float64)
    if edges[-1] <= 0:
        edges = np.arange(1.0, len(edges) + 1)
    return np.diff(np.floor(edges * total / edges[-1] + offset).astype(np.int64), prepend=0)


def rounded(plan: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A plan in whole samples: each class is dealt over the clients in proportion to its column."""
    offsets = rng.random(len(counts))
    columns = [shares(plan[:, c], int(n), offsets[c]) for c, n in enumerate(counts)]
    return np.stack(columns, axis=1)


def fitted(plan: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The plan nearest to ``plan`` whose rows sum to ``sizes``; its columns keep their sums.

    Iterative proportional fitting: rows and columns are scaled in turn. The limit is the table of least
    relative entropy to the first one; scaling a row leaves the client's label mix alone, and scaling a class
    tilts all mixes alike, so who prefers which class is kept, and a zero stays zero. Where the zeros forbid
    the sizes (a client of one class cannot own half of ten) the sizes give way: the last scaling is that of
    the classes.
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


def lifted(
    table: np.ndarray, plan: np.ndarray, least: int, keeps_classes: bool, rng: np.random.Generator
) -> np.ndarray:
    """The table with ``least`` samples for every client, where that can be.

    Clients that lack samples get them in their own planned label mix, then from any class of their plan, then
    (unless ``keeps_classes``) in the mix of all data. Clients above ``least`` give in proportion to what they
    can spare.
    """
    table = table.copy()
    mixes = [plan] if keeps_classes else [plan, np.tile(table.sum(axis=0), (len(table), 1))]
    for mix in mixes:
        lack = np.maximum(least - table.sum(axis=1), 0)
        edges = np.cumsum(mix, axis=1, dtype=np.float64)
        edges *= _ratio(lack, edges[:, -1])[:, None]
        want = np.diff(np.floor(edges + rng.random((len(lack), 1))).astype(np.int64), axis=1, prepend=0)
        for c in range(table.shape[1]):
            _move(table, c, want[:, c], least, rng)
        for c in range(table.shape[1]):
            lack = np.maximum(least - table.sum(axis=1), 0)
            _move(table, c, np.where(mix[:, c] > 0, lack, 0), least, rng)
    return table


def _move(table: np.ndarray, c: int, want: np.ndarray, least: int, rng: np.random.Generator) -> None:
    """Give clients up to ``want`` samples of class ``c`` from clients that have more than ``least``."""
    if want.any():
        spare = np.minimum(table[:, c], np.maximum(table.sum(axis=1) - least, 0))
        total = min(int(want.sum()), int(spare.sum()))
        if total:
            table[:, c] += shares(want, total, rng.random()) - shares(spare, total, rng.random())

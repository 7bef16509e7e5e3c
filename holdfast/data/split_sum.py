"""Split sums: read ``dirichlet(0.5)+noise(0.5)`` and deal samples by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.discovery import discover
from holdfast.core.errors import HoldfastError
from holdfast.core.expression import parse
from holdfast.core.params import build
from holdfast.data.count_tables import raise_to_minimum, round_plan
from holdfast.data.deal import Deal, group_by_owner
from holdfast.data.split import FeatureSplit, LabelSplit, OwnerSplit, SizeSplit, Split, stream

DEFAULT_LABELS = "iid"  # deals the labels of a sum that has no term for them


def splits() -> dict[str, type[Split]]:
    """Return every split by name: those of ``holdfast/data/splits`` and those that a user has written."""
    return discover("holdfast.data.splits", Split)


@dataclass(frozen=True)
class SplitSum:
    """A checked sum of splits: at most one term for labels, one for sizes and one for features. Made by ``total``.

    Attributes:
        labels: Decides which labels a client holds; without it the samples are dealt at random.
        sizes: Changes the client sizes.
        features: Adds noise to the features of each client.
    """

    labels: LabelSplit | OwnerSplit | None = None
    sizes: SizeSplit | None = None
    features: FeatureSplit | None = None

    @property
    def terms(self) -> tuple[Split, ...]:
        return tuple(term for term in (self.labels, self.sizes, self.features) if term is not None)

    @property
    def by_groups(self) -> bool:
        """Whether every group of the data is a client."""
        return isinstance(self.labels, OwnerSplit) and self.labels.by_groups

    def __add__(self, other: Split | SplitSum) -> SplitSum:
        return total(*self.terms, *(other.terms if isinstance(other, SplitSum) else (other,)))

    def __str__(self) -> str:
        return " + ".join(str(term) for term in self.terms)

    def owners(self, labels: np.ndarray, clients: int, seed: int, groups: np.ndarray | None) -> np.ndarray:
        """Return the client of every sample: int64 [samples]."""
        if isinstance(self.labels, OwnerSplit):
            return self.labels.owners(groups, len(labels), clients)
        table = self.table(np.bincount(labels), clients, seed)
        return _assign(table, labels, stream(seed, "samples"))

    def table(self, counts: np.ndarray, clients: int, seed: int) -> np.ndarray:
        """Return the samples of every client and class: int64 [clients, classes], columns summing to ``counts``."""
        dealer = self.labels if isinstance(self.labels, LabelSplit) else _default_labels()
        minimum, n = max((term.smallest_client for term in self.terms), default=0), int(counts.sum())
        if minimum * clients > n:
            raise self._too_few(minimum, n // clients, f" or use at most {n // minimum} clients")
        if self.sizes:
            plan = dealer.plan(counts, clients, stream(seed, dealer.name))
            plan = self.sizes.reshape(plan, stream(seed, self.sizes.name))
            table = round_plan(plan, counts, stream(seed, "rounding"))
        else:
            table = dealer.table(counts, clients, stream(seed, dealer.name))
        if table.sum(axis=1).min() >= minimum:
            return table
        if not self.sizes:
            plan = dealer.plan(counts, clients, stream(seed, dealer.name))  # the same draws as the table's
        table = raise_to_minimum(table, plan, minimum, dealer.keeps_classes, stream(seed, "min_size"))
        reached = int(table.sum(axis=1).min())
        if reached < minimum:
            raise self._too_few(minimum, reached, "")
        return table

    def _too_few(self, minimum: int, reached: int, remedy: str) -> HoldfastError:
        return HoldfastError(
            f"{self}: min_size={minimum} is not possible, the smallest client gets {reached}; "
            f"lower min_size to {reached}{remedy}"
        )


def _default_labels() -> LabelSplit:
    dealer = splits()[DEFAULT_LABELS]()
    assert isinstance(dealer, LabelSplit)
    return dealer


def total(*terms: Split) -> SplitSum:
    """Return the sum of terms, given in any order."""
    owners: dict[str, Split] = {}
    for term in terms:
        for slot in term.sets:
            if slot in owners:
                raise HoldfastError(f"{owners[slot]} and {term} both set the {slot} of a split; keep one of them")
            owners[slot] = term
    return SplitSum(**{term.slot: term for term in terms})  # type: ignore[arg-type]


def read(text: str) -> SplitSum:
    """Read a split.

    >>> str(read("noise(0.5) + dirichlet(0.5)"))
    'dirichlet(alpha=0.5) + noise(sigma=0.5)'
    """
    return total(*(build(call, splits(), "split") for call in parse(text)))


def deal(
    split: str | Split | SplitSum, labels: np.ndarray, clients: int, seed: int, groups: np.ndarray | None = None
) -> Deal:
    """Deal samples to clients, each sample to exactly one client.

    Args:
        split: A split, or its text.
        labels: The label of every sample.
        clients: The number of clients.
        seed: The result depends on nothing random but this.
        groups: For the split ``given``: the group of every sample.

    Returns:
        The samples of every client.

    >>> d = deal("shards(1)", np.array([0, 1, 0, 1]), clients=2, seed=0)
    >>> sorted(d.client(i).tolist() for i in range(2))
    [[0, 2], [1, 3]]
    """
    terms = split if isinstance(split, SplitSum) else read(split) if isinstance(split, str) else total(split)
    labels = _checked(labels, clients)
    noise = terms.features.draw(clients, seed) if terms.features else None
    return group_by_owner(terms.owners(labels, clients, seed, groups), clients, noise)


def _assign(table: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the client of every sample: the shuffled samples of a class go to clients in the numbers of ``table``."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    clients, classes = table.shape
    owner = np.empty(len(labels), dtype=np.int64)
    owner[order] = np.repeat(np.tile(np.arange(clients), classes), table.T.ravel())
    return owner


def _checked(labels: np.ndarray, clients: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu" or labels.min() < 0:
        numbers = labels.ndim == 1 and len(labels) and labels.dtype.kind in "iu"
        what = "negative numbers" if numbers else f"{labels.dtype} {list(labels.shape)}"
        raise HoldfastError(f"a split needs one whole number from 0 per sample, not {what}; convert the labels")
    if clients < 1:
        raise HoldfastError(f"clients must be at least 1, not {clients}; use one or more clients")
    return labels.astype(np.int64, copy=False)

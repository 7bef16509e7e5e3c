"""Split sums: reading ``dirichlet(0.5)+noise(0.5)`` and dealing samples by it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.expression import parse
from holdfast.core.params import build
from holdfast.data.splits.base import Dealer, Split, stream
from holdfast.data.splits.classes import Classes
from holdfast.data.splits.count_tables import lifted, rounded
from holdfast.data.splits.dealt import Deal, gather
from holdfast.data.splits.dirichlet import Dirichlet
from holdfast.data.splits.given import Given
from holdfast.data.splits.iid import Iid
from holdfast.data.splits.noise import FeatureNoise
from holdfast.data.splits.quantity import Quantity
from holdfast.data.splits.shards import Shards

KINDS: tuple[type[Split], ...] = (Iid, Dirichlet, Shards, Classes, Quantity, FeatureNoise, Given)


def splits() -> dict[str, type[Split]]:
    """Every split by name: those of this folder and the dealers that a user has written."""
    return {kind.name: kind for kind in (*KINDS, *Dealer.__subclasses__())}


@dataclass(frozen=True)
class Sum:
    """A checked sum: at most one term for labels, one for sizes and one for features, in any order."""

    labels: Dealer | Given | None = None
    sizes: Quantity | None = None
    features: FeatureNoise | None = None

    @property
    def terms(self) -> tuple[Split, ...]:
        return tuple(term for term in (self.labels, self.sizes, self.features) if term is not None)

    def __add__(self, other: Split | Sum) -> Sum:
        return total(*self.terms, *(other.terms if isinstance(other, Sum) else (other,)))

    def __str__(self) -> str:
        return " + ".join(str(term) for term in self.terms)

    @property
    def min_size(self) -> int:
        asked = [self.sizes.min_size] if self.sizes else []
        return max(asked + ([self.labels.min_size] if isinstance(self.labels, Dirichlet) else []), default=0)

    def table(self, counts: np.ndarray, clients: int, seed: int) -> np.ndarray:
        """Samples of every client and class: int64 [clients, classes], columns summing to ``counts``."""
        dealer = self.labels if isinstance(self.labels, Dealer) else Iid()
        n, least = int(counts.sum()), self.min_size
        if least * clients > n:
            raise self._too_few(least, n // clients, f" or use at most {n // least} clients")
        if self.sizes:
            plan = dealer.plan(counts, clients, stream(seed, dealer.name))
            plan = self.sizes.reshape(plan, stream(seed, self.sizes.name))
            table = rounded(plan, counts, stream(seed, "rounding"))
        else:
            table = dealer.table(counts, clients, stream(seed, dealer.name))
        if table.sum(axis=1).min() >= least:
            return table
        if not self.sizes:
            plan = dealer.plan(counts, clients, stream(seed, dealer.name))  # the same draws as the table's
        table = lifted(table, plan, least, dealer.keeps_classes, stream(seed, "min_size"))
        reached = int(table.sum(axis=1).min())
        if reached < least:
            raise self._too_few(least, reached, "")
        return table

    def _too_few(self, least: int, reached: int, remedy: str) -> HoldfastError:
        return HoldfastError(
            f"{self}: min_size={least} cannot be kept, the smallest client reaches {reached}; "
            f"lower min_size to {reached}{remedy}"
        )


def total(*terms: Split) -> Sum:
    """The sum of terms, in any order."""
    slots: dict[str, Split] = {}
    for term in terms:
        slot = {Quantity: "sizes", FeatureNoise: "features"}.get(type(term), "labels")
        if slot in slots:
            raise HoldfastError(f"{slots[slot]} and {term} both set the {slot} of a split; keep one of them")
        slots[slot] = term
    given, sizes = slots.get("labels"), slots.get("sizes")
    if isinstance(given, Given) and sizes:
        raise HoldfastError(f"given fixes who owns each sample, {sizes} would change it; keep one of them")
    return Sum(**slots)  # type: ignore[arg-type]


def read(text: str) -> Sum:
    """Read a split.

    >>> str(read("noise(0.5) + dirichlet(0.5)"))
    'dirichlet(alpha=0.5) + noise(sigma=0.5)'
    """
    return total(*(build(call, splits(), "split") for call in parse(text)))


def deal(
    split: str | Split | Sum, labels: np.ndarray, clients: int, seed: int, groups: np.ndarray | None = None
) -> Deal:
    """Deal the samples with these labels to clients, each sample to exactly one; a function of the seed.

    >>> d = deal("shards(1)", np.array([0, 1, 0, 1]), clients=2, seed=0)
    >>> sorted(d.client(i).tolist() for i in range(2))
    [[0, 2], [1, 3]]
    """
    terms = split if isinstance(split, Sum) else read(split) if isinstance(split, str) else total(split)
    labels = _checked(labels, clients)
    noise = terms.features.draw(clients, seed) if terms.features else None
    if isinstance(terms.labels, Given):
        return gather(terms.labels.owners(groups, len(labels), clients), clients, noise)
    table = terms.table(np.bincount(labels), clients, seed)
    return gather(_hand_out(table, labels, stream(seed, "samples")), clients, noise)


def _hand_out(table: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The client of every sample: the shuffled samples of a class go to clients in the numbers of ``table``."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    clients, classes = table.shape
    owner = np.empty(len(labels), dtype=np.int64)
    owner[order] = np.repeat(np.tile(np.arange(clients), classes), table.T.ravel())
    return owner


def _checked(labels: np.ndarray, clients: int) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise HoldfastError("a split needs labels: one whole number from 0 for each of at least one sample")
    if clients < 1:
        raise HoldfastError(f"clients must be at least 1, not {clients}")
    return labels.astype(np.int64, copy=False)

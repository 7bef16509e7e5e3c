"""classes: every client holds a fixed number of classes."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.count_tables import apportion
from holdfast.data.split import LabelSplit


@dataclass(frozen=True)
class Classes(LabelSplit):
    """Exactly ``n`` classes per client (Path(n) of FedMRUR, Sec. 5.1).

    Classes are dealt like cards, from one shuffled deck of all classes after the other, so that the numbers of clients
    that hold a class differ by at most one. The samples of a class are spread evenly over its holders. What does not
    divide goes one each to holders drawn at random.
    """

    name = "classes"
    keeps_classes = True
    n: int = param(MISSING, "classes per client", low=1)

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        return self.table(counts, clients, rng).astype(np.float64)

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        present = np.flatnonzero(counts)
        self._check(len(present), clients)
        held = present[deal_classes(len(present), clients, self.n, rng)]
        table = np.zeros((clients, len(counts)), dtype=np.int64)
        for c in present:
            holders = rng.permutation(np.flatnonzero((held == c).any(axis=1)))
            if counts[c] < len(holders):
                raise HoldfastError(
                    f"{self}: class {c} has {counts[c]} samples for the {len(holders)} clients that hold it; "
                    "use fewer clients or a smaller n"
                )
            table[holders, c] = apportion(np.ones(len(holders)), int(counts[c]), 0.0)
        return table

    def _check(self, present: int, clients: int) -> None:
        if self.n > present:
            raise HoldfastError(f"{self}: the data has only {present} classes; use n of at most {present}")
        if self.n * clients < present:
            least = -(-present // clients)
            raise HoldfastError(
                f"{self}: {clients} clients hold only {self.n * clients} of {present} classes; "
                f"use n of at least {least} or at least {-(-present // self.n)} clients"
            )


def deal_classes(classes: int, clients: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Choose ``n`` different classes for each client, all classes equally often to within one: int64 [clients, n]."""
    chosen: list[list[int]] = []
    deck: list[int] = []
    for _ in range(clients):
        hand, deck = deck[:n], deck[n:]
        if len(hand) < n:
            new_deck = rng.permutation(classes).tolist()
            held = set(hand)
            hand += [c for c in new_deck if c not in held][: n - len(hand)]
            taken = set(hand) - held
            deck = [c for c in new_deck if c not in taken]
        chosen.append(hand)
    return np.array(chosen, dtype=np.int64)

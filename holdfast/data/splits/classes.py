"""classes: every client holds a fixed number of classes."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.splits.base import Dealer
from holdfast.data.splits.count_tables import shares


@dataclass(frozen=True)
class Classes(Dealer):
    """Exactly ``n`` classes per client (Path(n) of FedMRUR, Sec. 5.1).

    Classes are dealt like cards, from one shuffled deck of all classes after the other, so that the numbers
    of clients that hold a class differ by at most one. The samples of a class are spread evenly over its
    holders; what does not divide goes one each to holders drawn at random.
    """

    name = "classes"
    keeps_classes = True
    n: int = param(MISSING, "classes per client", low=1)

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        return self.table(counts, clients, rng).astype(np.float64)

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        there = np.flatnonzero(counts)
        self._check(len(there), clients)
        hands = there[hold(len(there), clients, self.n, rng)]
        table = np.zeros((clients, len(counts)), dtype=np.int64)
        for c in there:
            holders = rng.permutation(np.flatnonzero((hands == c).any(axis=1)))
            if counts[c] < len(holders):
                raise HoldfastError(
                    f"{self}: class {c} has {counts[c]} samples for the {len(holders)} clients that hold it; "
                    "use fewer clients or a smaller n"
                )
            table[holders, c] = shares(np.ones(len(holders)), int(counts[c]), 0.0)
        return table

    def _check(self, there: int, clients: int) -> None:
        if self.n > there:
            raise HoldfastError(f"{self}: the data has only {there} classes; use n of at most {there}")
        if self.n * clients < there:
            least = -(-there // clients)
            raise HoldfastError(
                f"{self}: {clients} clients cover only {self.n * clients} of {there} classes, the others would "
                f"be left over; use n of at least {least} or at least {-(-there // self.n)} clients"
            )


def hold(classes: int, clients: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """The ``n`` different classes of each client, int64 [clients, n], classes equally often to within one."""
    hands: list[list[int]] = []
    deck: list[int] = []
    for _ in range(clients):
        hand, deck = deck[:n], deck[n:]
        if len(hand) < n:
            fresh = rng.permutation(classes).tolist()
            held = set(hand)
            hand += [c for c in fresh if c not in held][: n - len(hand)]
            taken = set(hand) - held
            deck = [c for c in fresh if c not in taken]
        hands.append(hand)
    return np.array(hands, dtype=np.int64)

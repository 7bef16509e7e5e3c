"""dirichlet: label skew drawn from a Dirichlet distribution, with unequal or equal client sizes."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.splits.base import Dealer, need
from holdfast.data.splits.count_tables import rounded, shares
from holdfast.data.splits.fill import filled


@dataclass(frozen=True)
class Dirichlet(Dealer):
    """Label skew of strength ``alpha``: near 0 a client holds one class, for large ``alpha`` it is iid.

    Unbalanced (FNR-FL Sec. 4.2; Yurochkin et al. 2019): for each class ``c`` draw ``p_c ~ Dir_N(alpha)`` and
    deal its samples over the clients in these proportions. Client sizes follow from the draws; ``min_size``
    moves samples afterwards (see ``lifted``). Its default is 0, the definition untouched: a draw may leave
    clients empty, which the figures count and no cohort contains.

    ``balanced`` (the published code of FedDyn and FedBug): all sizes equal to within one sample; each client
    draws its label mix ``q_i ~ Dir_C(alpha)`` and is filled from it, until classes run out (see ``filled``).
    """

    name = "dirichlet"
    alpha: float = param(MISSING, "concentration of the Dirichlet draws", above=0, high=1e6)
    balanced: bool = param(False, "equal client sizes, a Dirichlet label mix per client")
    min_size: int = param(0, "samples that every client gets at least", low=0)

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        if self.balanced:
            raise HoldfastError(
                f"{self} asks for equal client sizes and quantity for unequal ones; drop one of the two"
            )
        columns = [rng.dirichlet(np.full(clients, self.alpha)) * n for n in counts]
        return np.stack(columns, axis=1)

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        if not self.balanced:
            return rounded(self.plan(counts, clients, rng), counts, rng)
        n = int(counts.sum())
        need(n, clients, self, "equal sizes")
        mixes = rng.dirichlet(np.full(len(counts), self.alpha), size=clients)
        sizes = rng.permutation(shares(np.ones(clients), n, 0.0))
        return filled(sizes, mixes, counts, rng)

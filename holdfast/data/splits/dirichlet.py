"""dirichlet: label skew drawn from a Dirichlet distribution, with unequal or equal client sizes."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.params import param
from holdfast.data.count_tables import apportion, round_plan
from holdfast.data.split import LabelSplit, check_enough_samples
from holdfast.data.splits._filling import fill_clients


@dataclass(frozen=True)
class Dirichlet(LabelSplit):
    """Label skew of strength ``alpha``: near 0 a client holds one class, for large ``alpha`` the split is iid.

    Unbalanced (FNR-FL Sec. 4.2; Yurochkin et al. 2019): for each class ``c`` draw ``p_c ~ Dir_N(alpha)`` and deal its
    samples to the clients in these proportions. Client sizes follow from the draws. ``min_size`` moves samples
    afterwards (see ``raise_to_minimum``). Its default is 0, which leaves the definition as published: a draw may leave
    clients empty. The figures count empty clients, and no cohort contains them.

    ``balanced`` (the published code of FedDyn and FedBug): all sizes are equal to within one sample. Each client draws
    its label mix ``q_i ~ Dir_C(alpha)`` and is filled from it, until classes run out (see ``fill_clients``).
    """

    name = "dirichlet"
    alpha: float = param(MISSING, "concentration of the Dirichlet draws", above=0, high=1e6)
    balanced: bool = param(False, "equal client sizes, a Dirichlet label mix per client")
    min_size: int = param(0, "minimum number of samples per client", low=0)

    @property
    def sets(self) -> tuple[str, ...]:
        return ("labels", "sizes") if self.balanced else ("labels",)

    @property
    def smallest_client(self) -> int:
        return self.min_size

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        columns = [rng.dirichlet(np.full(clients, self.alpha)) * n for n in counts]
        return np.stack(columns, axis=1)

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        if not self.balanced:
            return round_plan(self.plan(counts, clients, rng), counts, rng)
        n = int(counts.sum())
        check_enough_samples(self, n, clients, "equal sizes")
        mixes = rng.dirichlet(np.full(len(counts), self.alpha), size=clients)
        sizes = rng.permutation(apportion(np.ones(clients), n, 0.0))
        return fill_clients(sizes, mixes, counts, rng)

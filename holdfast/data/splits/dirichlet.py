"""dirichlet: label skew drawn from a Dirichlet distribution, with unequal or equal client sizes."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.count_tables import apportion, round_plan
from holdfast.data.split import LabelSplit, check_enough_samples
from holdfast.data.splits._filling import fill_clients

DRAWS = 10_000  # how often a split is drawn again before its ``least`` is given up


@dataclass(frozen=True)
class Dirichlet(LabelSplit):
    """Label skew of strength ``alpha``: near 0 a client holds one class, for large ``alpha`` the split is iid.

    Unbalanced (FNR-FL Sec. 4.2; Yurochkin et al. 2019): for each class ``c`` draw ``p_c ~ Dir_N(alpha)`` and deal its
    samples to the clients in these proportions. Client sizes follow from the draws. ``min_size`` moves samples
    afterwards (see ``raise_to_minimum``). Its default is 0, which leaves the definition as published: a draw may leave
    clients empty. The figures count empty clients, and no cohort contains them.

    ``capped`` (NIID-Bench's published code): class by class, a client that already holds N/n samples or more is left
    out of the draw, and its share goes to the others. ``least``, as there, draws the whole split again until every
    client has that many samples; NIID-Bench has ``dirichlet(0.5, capped=true, least=10)``. Unlike ``min_size``, it
    moves no samples. In a sum with ``quantity``, sizes are those of ``quantity``.

    ``balanced`` (the published code of FedDyn and FedBug): all sizes are equal to within one sample. Each client draws
    its label mix ``q_i ~ Dir_C(alpha)`` and is filled from it, until classes run out (see ``fill_clients``).
    """

    name = "dirichlet"
    alpha: float = param(MISSING, "concentration of the Dirichlet draws", above=0, high=1e6)
    balanced: bool = param(False, "equal client sizes, a Dirichlet label mix per client")
    min_size: int = param(0, "minimum number of samples per client", low=0)
    capped: bool = param(False, "stop giving a class to clients that hold their share of all samples")
    least: int = param(0, "draw again until every client has this many samples", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.balanced and (self.capped or self.least):
            raise HoldfastError(
                "dirichlet: capped and least are for clients of unequal size, and balanced makes all sizes equal; "
                "leave one of them out"
            )

    @property
    def sets(self) -> tuple[str, ...]:
        return ("labels", "sizes") if self.balanced else ("labels",)

    @property
    def smallest_client(self) -> int:
        return self.min_size

    def plan(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        if self.capped or self.least:
            return self._drawn_again(counts, clients, rng).astype(np.float64)
        return self._drawn(counts, clients, rng)

    def table(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        if self.capped or self.least:
            return self._drawn_again(counts, clients, rng)
        if not self.balanced:
            return round_plan(self._drawn(counts, clients, rng), counts, rng)
        n = int(counts.sum())
        check_enough_samples(self, n, clients, "equal sizes")
        mixes = rng.dirichlet(np.full(len(counts), self.alpha), size=clients)
        sizes = rng.permutation(apportion(np.ones(clients), n, 0.0))
        return fill_clients(sizes, mixes, counts, rng)

    def _drawn(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Draw every class's proportions independently: float64 [clients, classes]."""
        columns = [rng.dirichlet(np.full(clients, self.alpha)) * n for n in counts]
        return np.stack(columns, axis=1)

    def _drawn_again(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Draw whole tables until every client has ``least`` samples: int64 [clients, classes]."""
        n = int(counts.sum())
        if clients * self.least > n:
            raise HoldfastError(
                f"{self}: {n} samples cannot give {clients} clients {self.least} each; use at most {n // self.least} "
                "clients, or a smaller least"
            )
        for _ in range(DRAWS):
            table = self._dealt_in_turn(counts, clients, rng)
            if table is not None and table.sum(1).min() >= self.least:
                return table
        raise HoldfastError(
            f"{self}: in {DRAWS:,} draws some client always had fewer than {self.least} samples; use fewer clients, a "
            "larger alpha or a smaller least"
        )

    def _dealt_in_turn(self, counts: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray | None:
        """Deal class after class; return None if no client that may still receive has a share."""
        table = np.zeros((clients, len(counts)), dtype=np.int64)
        for c, n in enumerate(counts):
            share = rng.dirichlet(np.full(clients, self.alpha))
            if self.capped:
                share = np.where(table.sum(1) < counts.sum() / clients, share, 0.0)
            if n and not share.sum() > 0:
                return None
            edges = (np.cumsum(share / (share.sum() or 1.0)) * n).astype(np.int64)
            edges[share.nonzero()[0][-1:].sum() :] = n  # the last client with a share takes what rounding leaves
            table[:, c] = np.diff(edges, prepend=0)
        return table

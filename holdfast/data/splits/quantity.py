"""quantity: client sizes drawn from a Dirichlet distribution, label mixes kept."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.params import param
from holdfast.data.count_tables import fit_sizes
from holdfast.data.split import SizeSplit


@dataclass(frozen=True)
class Quantity(SizeSplit):
    """Sizes ``n * q`` with ``q ~ Dir_N(alpha)`` (FNR-FL Sec. 4.3): the smaller ``alpha``, the more unequal.

    Alone, every client has the label mix of the whole data. Added to a label split, it sets the sizes and keeps that
    split's label mixes, as nearly as a partition of the data allows (see ``fit_sizes``). So
    ``dirichlet(a) + quantity(b)`` has sizes ~ Dir(b) and mixes ~ Dir(a), tilted together by one factor per class.
    """

    name = "quantity"
    alpha: float = param(MISSING, "concentration of the Dirichlet draw of sizes", above=0, high=1e6)
    min_size: int = param(0, "minimum number of samples per client", low=0)

    @property
    def smallest_client(self) -> int:
        return self.min_size

    def reshape(self, plan: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        share = rng.dirichlet(np.full(len(plan), self.alpha))
        # A draw can underflow to 0. If it did for all holders of a class, no client could take its samples.
        return fit_sizes(plan, np.maximum(share, 1e-12) * plan.sum())

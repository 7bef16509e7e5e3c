"""quantity: client sizes drawn from a Dirichlet distribution, label mixes kept."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import numpy as np

from holdfast.core.params import param
from holdfast.data.splits.base import Split
from holdfast.data.splits.count_tables import fitted


@dataclass(frozen=True)
class Quantity(Split):
    """Sizes ``n * q`` with ``q ~ Dir_N(alpha)`` (FNR-FL Sec. 4.3): the smaller ``alpha``, the more unequal.

    Alone, every client has the label mix of the whole data. Added to a label split, the sizes are these and
    the label mixes those of the other split, as nearly as a partition of the data allows (see ``fitted``).
    ``dirichlet(a) + quantity(b)`` so has sizes ~ Dir(b) and mixes ~ Dir(a), tilted together by one factor per
    class.
    """

    name = "quantity"
    alpha: float = param(MISSING, "concentration of the Dirichlet draw of sizes", above=0, high=1e6)
    min_size: int = param(0, "samples that every client gets at least", low=0)

    def reshape(self, plan: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The plan of a label split, with sizes drawn here."""
        share = rng.dirichlet(np.full(len(plan), self.alpha))
        # A draw can underflow to 0. If those of all holders of a class did, nobody could take its samples.
        return fitted(plan, np.maximum(share, 1e-12) * plan.sum())

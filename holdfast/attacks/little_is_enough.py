"""little_is_enough: stay within the spread of the honest updates."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from holdfast.attacks.attack import Attack, honest_mean
from holdfast.core.params import param


@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """Liars agree on one update, coordinate by coordinate of the honest ones (Baruch et al. 2019, A Little Is Enough:
    Circumventing Defenses for Distributed Learning):

        mean - z * deviation

    By default z is the largest with which, were the updates normal,
    enough honest clients lie further out for the liars to look like the majority, as in the paper:

        z = Phi^-1((C - m - s) / (C - m)),    s = floor(C/2 + 1) - m,    m liars among C clients
    """

    name = "little_is_enough"

    z: float | None = param(None, "how many standard deviations from the mean; none: as many as go unnoticed", low=0)

    def forge(self, rows: Tensor, lying: Tensor, key: Tensor) -> Tensor:
        honest = rows[~lying] if bool((~lying).any()) else rows
        m, C = int(lying.sum()), len(rows)
        z = unnoticed(C, m) if self.z is None else self.z
        forged = honest_mean(rows, lying) - z * honest.std(0, correction=0)
        return torch.stack([forged] * m)


def unnoticed(C: int, m: int) -> float:
    """Return z of the paper for ``m`` liars among ``C`` clients; zero where they are too few to hide.

    With 12 liars among 50, s = 14 and Phi(z) = 24/38:

    >>> round(unnoticed(50, 12), 2)
    0.34
    """
    share = (C - m - (C // 2 + 1 - m)) / max(C - m, 1)
    return max(0.0, NormalDist().inv_cdf(share)) if 0 < share < 1 else 0.0

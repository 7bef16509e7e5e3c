"""scaled: send a multiple of the update."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.attacks.attack import Attack
from holdfast.core.params import param


@dataclass(frozen=True)
class Scaled(Attack):
    """Liars multiply their update: a single one owns the plain mean."""

    name = "scaled"

    factor: float = param(-100.0, "what liars multiply their update by")

    def forge(self, rows: Tensor, lying: Tensor, key: Tensor) -> Tensor:
        return self.factor * rows[lying]

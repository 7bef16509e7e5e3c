"""sign_flip: push the model the other way."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holdfast.attacks.attack import Attack


@dataclass(frozen=True)
class SignFlip(Attack):
    """Liars send their update with the opposite sign: small, and hard to tell from that of an unusual client."""

    name = "sign_flip"

    def forge(self, rows: Tensor, lying: Tensor, key: Tensor) -> Tensor:
        return -rows[lying]

"""The contract of an attack: which clients lie, and what they send instead of the truth.

Attacks exist to be withstood: ``--attack "sign_flip(0.2)"`` makes a run in which a fifth of the clients lie in every
round that they take part in. They lie alike in the delta and in whatever parts upload. All know what the honest clients
of their round send, which is more than a real attacker knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from holdfast.core import rng
from holdfast.core.discovery import discover
from holdfast.core.params import Named, build, one, param

NO_ATTACK = "none"


@dataclass(frozen=True)
class Attack(Named):
    """What some clients do in place of what they should. Subclasses fill the methods that their lie needs.

    Attributes:
        flips_labels: Whether the liars train, honestly, on labels that are wrong.
    """

    flips_labels = False

    share: float = param(0.2, "share of the clients that lie", low=0, high=1)

    def liars(self, seed: int, clients: np.ndarray) -> np.ndarray:
        """Return the clients that lie: that share of all, rounded, drawn by the seed of the run."""
        drawn = rng.numbers(seed, rng.ATTACK, clients)
        return np.sort(clients[np.argsort(drawn, kind="stable")[: round(self.share * len(clients))]])

    def forge(self, rows: Tensor, lying: Tensor, key: Tensor) -> Tensor:
        """Return what the liars send.

        Args:
            rows: What everybody in the cohort would send, [C, P].
            lying: Who lies, bool [C]; at least one does.
            key: The key of all randomness.

        Returns:
            The liars' rows.
        """
        return rows[lying]

    def claim(self, n: Tensor) -> Tensor:
        """Return the numbers of samples that liars claim to have, from those that they have."""
        return n


def attacks() -> dict[str, type[Attack]]:
    """Return every attack by name: those in ``holdfast/attacks`` and those that a user has written."""
    return discover("holdfast.attacks", Attack)


def read_attack(text: str | None) -> Attack | None:
    """Return the attack that a text names; None for no attack."""
    if text is None or text == NO_ATTACK:
        return None
    return build(one(text, "attack"), attacks(), "attack")


def honest_mean(rows: Tensor, lying: Tensor) -> Tensor:
    """Return the mean of the honest rows; of all rows where nobody is honest."""
    honest = rows[~lying] if bool((~lying).any()) else rows
    return honest.mean(0)

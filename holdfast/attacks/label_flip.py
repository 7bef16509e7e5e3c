"""label_flip: train on wrong labels."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.attacks.attack import Attack


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Liars train honestly on labels that are wrong: class ``c`` of ``C`` becomes class ``C - 1 - c``.

    It is the attack of those who can change data but not the program. Their sample counts and uploads are those of
    honest training. For classification.
    """

    name = "label_flip"
    flips_labels = True

"""Sums of augmentations: read ``crop(4, padding=zeros)+flip(0.5)`` and apply it to batches of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.core.discovery import discover
from holdfast.core.errors import HoldfastError
from holdfast.core.expression import Call, parse
from holdfast.core.params import build
from holdfast.data.augmentation import Augmentation

# Names for sums.
NAMED_SUMS = {"none": "", "standard": "crop(4, padding=zeros)+flip(0.5)"}


def augmentations() -> dict[str, type[Augmentation]]:
    """Return every augmentation by name: those of ``holdfast/data/augmentations`` and those that a user has written."""
    return discover("holdfast.data.augmentations", Augmentation)


@dataclass(frozen=True)
class AugmentationSum:
    """Augmentations, applied one after the other. Made by ``read_augmentation``; false if it is empty.

    Attributes:
        terms: The augmentations, in order.
    """

    terms: tuple[Augmentation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms)) or "none"

    def __add__(self, other: Augmentation | AugmentationSum) -> AugmentationSum:
        return AugmentationSum(self.terms + (other.terms if isinstance(other, AugmentationSum) else (other,)))

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of augmented samples, given that of stored ones."""
        for term in self.terms:
            shape = term.shape(shape)  # type: ignore[arg-type]  # checked by ``check``
        return shape

    def check(self, shape: tuple[int, ...], data: str) -> None:
        """Raise an error if samples of this shape cannot be augmented.

        Args:
            shape: The shape of a stored sample.
            data: The name of the data set.
        """
        if self and len(shape) != 3:
            raise HoldfastError(
                f"augmentation needs images, but the samples of {data} have shape {shape}; turn augment off"
            )
        self.shape(shape)

    def randomly(self, x: Tensor, key: Tensor) -> Tensor:
        """Change every image at random.

        Args:
            x: The images, [..., batch, channels, height, width].
            key: The keys from which the random numbers come, in the shape of the axes before the batch.

        Returns:
            The images, in contiguous memory: under ``vmap`` some layers cannot handle another order.
        """
        lead, image = x.shape[:-3], x.shape[-3:]
        numbers = [term.draws for term in self.terms]
        draw = rng.uniform(key, (lead[-1], sum(numbers))).reshape(-1, sum(numbers))
        images = x.reshape(-1, *image)
        for term, own in zip(self.terms, torch.split(draw, numbers, dim=1), strict=True):
            images = term.randomly(images, own)
        return images.contiguous().reshape(*lead, *images.shape[1:])

    def centrally(self, x: Tensor) -> Tensor:
        """Give images that are not trained on the shape of those that are; any leading axes."""
        if not self or self.shape(x.shape[-3:]) == x.shape[-3:]:
            return x
        images = x.reshape(-1, *x.shape[-3:])
        for term in self.terms:
            images = term.centrally(images)
        return images.reshape(*x.shape[:-3], *images.shape[1:])


def read_augmentation(value: bool | str) -> AugmentationSum:
    """Read a sum of augmentations; true is ``standard``, false is ``none``.

    >>> print(read_augmentation("crop(24) + flip"), "and", read_augmentation(False))
    crop(pixels=24) + flip and none
    """
    text = value if isinstance(value, str) else "standard" if value else "none"
    return AugmentationSum(tuple(term for call in parse(text) for term in _terms(call)))


def _terms(call: Call) -> Iterator[Augmentation]:
    known = augmentations()
    if call.name not in NAMED_SUMS:
        yield build(call, known | dict.fromkeys(NAMED_SUMS, Augmentation), "augmentation")
        return
    if call.args or call.kwargs:
        raise HoldfastError(f"augmentation {call.name} takes no parameters: leave them out")
    for inner in parse(NAMED_SUMS[call.name]) if NAMED_SUMS[call.name] else ():
        yield build(inner, known, "augmentation")

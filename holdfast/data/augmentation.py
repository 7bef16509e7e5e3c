"""The contract of an augmentation: how training images are changed at random, and what the others get instead.

An augmentation is a pure function of images and of random numbers that it is given, a few per image. It draws none
itself, so that every engine sees the same images. It may change the size of the images; test images, and all others
that are not trained on, are then changed in the same way without randomness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from holdfast.core.params import Named

if TYPE_CHECKING:
    from holdfast.data.augmentation_sum import AugmentationSum

Shape = tuple[int, int, int]  # channels, height, width


@dataclass(frozen=True)
class Augmentation(Named):
    """One term of a sum of augmentations. Its fields are its parameters."""

    @property
    def draws(self) -> int:
        """How many random numbers an image needs."""
        raise NotImplementedError

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of the result; raise an error if images of this shape cannot be augmented."""
        return shape

    def randomly(self, images: Tensor, draw: Tensor) -> Tensor:
        """Return training images, changed at random.

        Args:
            images: The normalised images, [n, channels, height, width].
            draw: Numbers in [0, 1), [n, draws].

        Returns:
            The images.
        """
        raise NotImplementedError

    def centrally(self, images: Tensor) -> Tensor:
        """Return images that are not trained on, in the same shape."""
        return images

    def __add__(self, other: Augmentation | AugmentationSum) -> AugmentationSum:
        from holdfast.data.augmentation_sum import AugmentationSum

        return AugmentationSum((self,)) + other

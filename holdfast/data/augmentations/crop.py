"""crop: shift images by some pixels, or cut a smaller square out of them."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.augmentation import Augmentation, Shape

SMALLEST = 3  # a crop has at least one third of the image's height and width; a smaller one is a forgotten padding


@dataclass(frozen=True)
class Crop(Augmentation):
    """A window of the image, at a random place with probability ``p`` and otherwise in the centre.

    With ``padding`` the image is first padded by ``pixels`` on every side, and the window has the size of the original
    image: it is shifted by up to ``pixels``. Without, the window is a square of ``pixels`` x ``pixels``, and images
    that are not trained on get the central one.

    Around the image there are zeros, the mean colour of normalised images; with ``reflect`` its mirror image without
    the outermost pixel, with ``edge`` that pixel repeated.
    """

    name = "crop"
    pixels: int = param(MISSING, "with padding: its width on every side; without: the side of the crop", low=1)
    padding: str | None = param(
        None, "pad images and keep their size; none: crop to a smaller one", choices=("zeros", "reflect", "edge")
    )
    p: float = param(1.0, "probability of a random place; otherwise the crop is central", low=0, high=1)

    @property
    def draws(self) -> int:
        return 2 if self.p == 1 else 3

    def shape(self, shape: Shape) -> Shape:
        channels, height, width = shape
        least = min(height, width)
        if self.padding is not None:
            if self.padding == "reflect" and self.pixels >= least:
                raise HoldfastError(
                    f"{self} reflects more than there is in images of {height}x{width}: use at most {least - 1} pixels"
                )
            return shape
        if self.pixels > least:
            raise HoldfastError(
                f"{self} is larger than images of {height}x{width}: use a smaller crop, or add padding=zeros to pad "
                "them"
            )
        if self.pixels * SMALLEST < max(height, width):
            raise HoldfastError(
                f"{self} would leave {self.pixels}x{self.pixels} of images of {height}x{width}: to pad them instead, "
                f"write crop({self.pixels}, padding=zeros)"
            )
        return channels, self.pixels, self.pixels

    def randomly(self, images: Tensor, draw: Tensor) -> Tensor:
        _, height, width = self.shape(images.shape[1:])  # type: ignore[arg-type]
        rows, columns = self._place(images, draw, 0, height), self._place(images, draw, 1, width)
        return self._window(images, rows, columns)

    def centrally(self, images: Tensor) -> Tensor:
        _, height, width = self.shape(images.shape[1:])  # type: ignore[arg-type]
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
        return images[:, :, top : top + height, left : left + width].contiguous()

    def _place(self, images: Tensor, draw: Tensor, axis: int, size: int) -> Tensor:
        """Return which rows (axis 0) or columns (axis 1) of every image are in its window, [n, size]."""
        room, margin = images.shape[2 + axis] - size, self.pixels if self.padding else 0
        first = (draw[:, axis : axis + 1] * (room + 2 * margin + 1)).long() - margin
        if self.p < 1:
            first = torch.where(draw[:, 2:] < self.p, first, room // 2)
        return first + torch.arange(size, device=images.device)

    def _window(self, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Cut out rows and columns, some of which may be outside of the image."""
        if self.padding == "zeros":
            images, rows, columns = F.pad(images, [self.pixels] * 4), rows + self.pixels, columns + self.pixels
        n, channels, height, width = images.shape
        row, column = self._within(rows, height), self._within(columns, width)
        pixel = (row[:, :, None] * width + column[:, None, :]).reshape(n, 1, -1).expand(-1, channels, -1)
        return images.reshape(n, channels, -1).gather(2, pixel).reshape(n, channels, rows.shape[1], columns.shape[1])

    def _within(self, places: Tensor, size: int) -> Tensor:
        """Return the places in the image that are shown at these places in and around it."""
        if self.padding == "reflect":
            return size - 1 - (size - 1 - places.abs()).abs()
        return places.clamp(0, size - 1) if self.padding == "edge" else places

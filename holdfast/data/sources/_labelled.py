"""What sources of image files share: decode lists of labelled images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from holdfast.data.dataset import DataSet
from holdfast.data.formats.images import Labelled, decode_images
from holdfast.data.source import decoded_once


def decode_labelled(images: Labelled, channels: int = 3, size: int = 0) -> tuple[Tensor, Tensor]:
    """Decode images and their labels.

    Args:
        images: Files and their labels.
        channels: 3 for colour, 1 for grey.
        size: The side that every image is scaled to; 0 leaves them as they are.

    Returns:
        Pixels, uint8 [n, channels, height, width], and labels, int64 [n].
    """
    pixels = decode_images([file for file, _ in images], channels, size)
    return torch.from_numpy(pixels), torch.from_numpy(np.array([label for _, label in images], np.int64))


def load_labelled(name: str, train: Labelled, test: Labelled, classes: Sequence[str]) -> DataSet:
    """Decode a published data set, or take it from the cache.

    Args:
        name: The data set.
        train: Its training images.
        test: Its test images.
        classes: The class names.

    Returns:
        The data set, with computed statistics.
    """

    def decode() -> DataSet:
        (x, y), (test_x, test_y) = decode_labelled(train), decode_labelled(test)
        return DataSet(name, x, y, test_x, test_y, tuple(classes))

    return decoded_once(name, [file for file, _ in train + test], decode)

"""Random crop and flip on the device, with a key per sample."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core import rng

PADDING = 4


def crop_and_flip(x: Tensor, key: Tensor) -> Tensor:
    """Shift every image by up to four pixels, with zeros outside, and mirror it with probability one half.

    ``x`` is [..., batch, channels, height, width]; ``key`` has the shape of the axes before the batch. The result is
    contiguous like ``x``, since under ``vmap`` some layers cannot handle another order in memory.
    """
    lead, (channels, height, width) = x.shape[:-3], x.shape[-3:]
    draw = rng.uniform(key, (lead[-1], 3)).reshape(-1, 3)
    images = F.pad(x.reshape(-1, channels, height, width), [PADDING] * 4)
    shift = (draw[:, :2] * (2 * PADDING + 1)).long()
    rows = torch.arange(height, device=x.device) + shift[:, :1]
    columns = torch.arange(width, device=x.device) + shift[:, 1:]
    columns = torch.where(draw[:, 2:] < 0.5, columns, columns.flip(1))
    sample = torch.arange(len(images), device=x.device)[:, None, None]
    cropped = images.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2).contiguous().reshape(x.shape)

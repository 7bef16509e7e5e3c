"""What sources share: holding out a test set, and the channel statistics of the training data."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.core.rng import key, uniform

TEST_KEY = 0x7E57  # a constant, not the user's seed: all runs are tested on the same samples
CHUNK = 4096


def hold_out_test(y: Tensor, share: float = 0.2) -> tuple[Tensor, Tensor]:
    """Choose ``share`` of every class for the test set; return the indices (train, test), both ascending.

    A class with one sample stays in training. Every larger class has a sample in both parts. The choice depends on the
    labels alone, so it is the same on every machine and for every seed.
    """
    order = torch.argsort(uniform(key(TEST_KEY), (len(y),)), stable=True)
    chosen = torch.zeros(len(y), dtype=torch.bool)
    for label in torch.unique(y).tolist():
        members = order[y[order] == label]
        count = min(max(int(share * len(members) + 0.5), 1), len(members) - 1)
        chosen[members[:count]] = True
    return torch.nonzero(~chosen).flatten(), torch.nonzero(chosen).flatten()


def channelled(x: Tensor) -> Tensor:
    """Return samples with a channel axis: a series or a grey image [n, a, b] has one mean for all of it."""
    return x[:, None] if x.dim() == 3 else x


def moments(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation per channel (or feature), of ``x / 255`` where ``x`` is uint8.

    Computed in double precision and in chunks, so that a memory-mapped data set is never copied whole. A constant
    channel gets standard deviation 1: it has nothing to scale.
    """
    mean, variance = _of_bytes(x) if x.dtype == torch.uint8 else _of_numbers(x)
    std = torch.where(variance > 0, variance.sqrt(), 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())


def _of_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance from a histogram: one pass, exact."""
    counts = torch.zeros(x.shape[1], 256, dtype=torch.float64)
    for chunk in torch.split(x, CHUNK):
        for channel, pixels in enumerate(chunk.unbind(1)):
            counts[channel] += torch.bincount(pixels.flatten(), minlength=256)
    share = counts / counts.sum(1, keepdim=True)
    values = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ values
    return mean, (share * (values - mean[:, None]).square()).sum(1)


def _of_numbers(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance in two passes; the second is around the mean, so that no digits cancel."""

    def average(centre: Tensor, power: int) -> Tensor:
        chunks = (chunk.transpose(0, 1).flatten(1).double() - centre[:, None] for chunk in torch.split(x, CHUNK))
        total = torch.stack([chunk.pow(power).sum(1) for chunk in chunks]).sum(0)
        return total / (x.numel() // x.shape[1])

    mean = average(torch.zeros(x.shape[1], dtype=torch.float64), 1)
    return mean, average(mean, 2)

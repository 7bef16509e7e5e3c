"""Shared by data-free parts: a small network that generates samples or features for given labels.

Its parameters are a flat vector, so that they are checkpointed like any other state of a part. Every random number is a
hash of a key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core import rng

FLAT = 1e-5  # prevents division by a standard deviation of zero


@dataclass(frozen=True)
class Generator:
    """G(z, y): a network with one hidden layer that turns noise z [B, noise] and labels y [B] into vectors.

    Its parameters are one vector ``theta``. Initially, the noise as a whole has as much influence as the label.

    Attributes:
        noise: The length of z.
        classes: The number of labels.
        width: Hidden units.
        outputs: The length of a generated vector.
    """

    noise: int
    classes: int
    width: int
    outputs: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of weight, bias, weight and bias in ``theta``."""
        return (self.width, self.noise + self.classes), (self.width,), (self.outputs, self.width), (self.outputs,)

    def start(self, k: Tensor, dtype: torch.dtype) -> Tensor:
        """Return random parameters: those of the hidden layer in [-1, 1], the others within 1 / sqrt(width)."""
        sizes = [math.prod(shape) for shape in self.shapes]
        wide = torch.tensor([1.0, 1.0, *[self.width**-0.5] * 2], dtype=dtype, device=k.device)
        scale = wide.repeat_interleave(torch.tensor(sizes, device=k.device))
        return scale * (2 * rng.uniform(k, (sum(sizes),), dtype) - 1)

    def __call__(self, theta: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Generate vectors.

        Args:
            theta: The parameters.
            z: The noise, [B, noise].
            y: The labels, [B].

        Returns:
            The vectors, [B, outputs].
        """
        pieces = torch.split(theta, [math.prod(shape) for shape in self.shapes])
        inner, shift, outer, lift = (p.view(shape) for p, shape in zip(pieces, self.shapes, strict=True))
        label = (y[:, None] == torch.arange(self.classes, device=y.device)).to(z.dtype)
        hidden = F.leaky_relu(F.linear(torch.cat([z * self.noise**-0.5, label], 1), inner, shift), 0.2)
        return F.linear(hidden, outer, lift)


def standardised(x: Tensor) -> Tensor:
    """Scale every channel to mean 0 and variance 1 over the batch, as in normalised data."""
    others = [0, *range(2, x.dim())]
    centred = x - x.mean(others, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(others, keepdim=True) + FLAT)


def labels(k: Tensor, counts: Tensor, size: int) -> Tensor:
    """Draw labels with given frequencies, never one whose count is zero. Works inside ``vmap``.

    Args:
        k: The key of the draw.
        counts: The frequencies, [classes].
        size: The number of labels.

    Returns:
        The labels, [size].

    >>> labels(torch.tensor(3), torch.tensor([0.0, 5.0, 0.0]), 4)
    tensor([1, 1, 1, 1])
    """
    spot = rng.uniform(k, (size,), counts.dtype) * counts.sum()
    return (spot[:, None] >= counts.cumsum(0)).sum(1)


def diversity(z: Tensor, x: Tensor) -> Tensor:
    """Return exp(-mean_ij d1(x_i, x_j) * d2(z_i, z_j)), which is large when different noise gives similar samples.

    d1 is the mean absolute difference over coordinates, d2 the mean squared one.
    """
    flat = x.reshape(len(x), -1)
    apart = torch.cdist(flat, flat, p=1.0) / flat.shape[1]
    return torch.exp(-(apart * ((z[:, None] - z) ** 2).mean(-1)).mean())


def class_shares(counts: Tensor) -> Tensor:
    """Return each client's share of the cohort's samples of a class, n_k^c / sum_i n_i^c: [C, classes]."""
    return counts / counts.sum(0).clamp(min=1)

"""Training at the server as pure functions: Adam, distillation, and a small generator that knows labels.

Optimiser states are dictionaries of tensors and generators are flat vectors, so that both are checkpointed like any
other state of a part. Every random number is a hash of a key.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core import rng
from holdfast.method.part import Tensors
from holdfast.models.net import Net

BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's, as everybody has them
FLAT = 1e-5  # keeps a standard deviation of zero from being divided by


def own(k: Tensor, part: str) -> Tensor:
    """A key of the part's own: two parts of a sum must not draw the same numbers."""
    return rng.key(k, zlib.crc32(part.encode()))


# -- Adam ------------------------------------------------------------------------------------------------------------
def unmoved(p: Tensor) -> Tensors:
    """Adam's state before the first step."""
    zero = torch.zeros_like(p)
    return {"m": zero, "v": zero.clone(), "step": torch.zeros((), dtype=torch.int64, device=p.device)}


def adam(p: Tensor, g: Tensor, s: Tensors, lr: float) -> tuple[Tensor, Tensors]:
    """One step of Adam (Kingma and Ba 2015, Alg. 1): the new parameters and the new state.

    Where every gradient so far was zero the step is zero, not 0/0: EPS stands outside the root.
    """
    step = s["step"] + 1
    m = BETAS[0] * s["m"] + (1 - BETAS[0]) * g
    v = BETAS[1] * s["v"] + (1 - BETAS[1]) * g**2
    t = step.to(p.dtype)
    mean, square = m / (1 - BETAS[0] ** t), v / (1 - BETAS[1] ** t)
    return p - lr * mean / (torch.sqrt(square) + EPS), {"m": m, "v": v, "step": step}


def cosine(lr: float, step: int, steps: int) -> float:
    """The rate of step 0, 1, ..., falling from ``lr`` along half a cosine."""
    return lr * (1 + math.cos(math.pi * step / steps)) / 2


# -- distillation ----------------------------------------------------------------------------------------------------
def pull(net: Net, w: Tensor, x: Tensor, gap: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient by the model of a loss whose derivative by the logits is ``gap(logits)``.

    For KL(p || softmax(logits)) that is softmax(logits) - p: written out it is exactly zero where the two agree, which
    differentiating the logarithms is not.
    """
    logits, back = torch.func.vjp(lambda v: net(v, x).logits, w)  # type: ignore[misc]
    (g,) = back(gap(logits))
    return torch.as_tensor(g)


def passes(n: int, batch: int, steps: int, k: Tensor) -> Iterator[Tensor]:
    """The sample numbers of every step: pass after pass over all of them, each in an order of its own."""
    order = torch.zeros(0, dtype=torch.int64, device=k.device)
    per_pass = -(-n // batch)
    for step in range(steps):
        number, place = divmod(step, per_pass)
        if place == 0:
            order = rng.key(rng.key(k, number), torch.arange(n, device=k.device)).argsort(stable=True)
        yield order[place * batch : (place + 1) * batch]


# -- a generator of samples with labels ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Generator:
    """G(z, y): a vector for noise z [B, noise] and labels y [B], by one hidden layer.

    Its parameters are one vector ``theta``. At the start the noise as a whole weighs as much as the label.
    """

    noise: int
    classes: int
    width: int
    outputs: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.width, self.noise + self.classes), (self.width,), (self.outputs, self.width), (self.outputs,)

    def start(self, k: Tensor, dtype: torch.dtype) -> Tensor:
        """Random parameters: those of the hidden layer in [-1, 1], the others within 1 / sqrt(width)."""
        sizes = [math.prod(shape) for shape in self.shapes]
        wide = torch.tensor([1.0, 1.0, *[self.width**-0.5] * 2], dtype=dtype, device=k.device)
        scale = wide.repeat_interleave(torch.tensor(sizes, device=k.device))
        return scale * (2 * rng.uniform(k, (sum(sizes),), dtype) - 1)

    def __call__(self, theta: Tensor, z: Tensor, y: Tensor) -> Tensor:
        pieces = torch.split(theta, [math.prod(shape) for shape in self.shapes])
        inner, shift, outer, lift = (p.view(shape) for p, shape in zip(pieces, self.shapes, strict=True))
        label = (y[:, None] == torch.arange(self.classes, device=y.device)).to(z.dtype)
        hidden = F.leaky_relu(F.linear(torch.cat([z * self.noise**-0.5, label], 1), inner, shift), 0.2)
        return F.linear(hidden, outer, lift)


def standardised(x: Tensor) -> Tensor:
    """Every channel with mean 0 and variance 1 over the batch, as normalised data have it."""
    others = [0, *range(2, x.dim())]
    centred = x - x.mean(others, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(others, keepdim=True) + FLAT)


def labels(k: Tensor, counts: Tensor, size: int) -> Tensor:
    """Random labels with the frequencies ``counts``; never one whose count is zero. Works inside ``vmap``.

    >>> labels(torch.tensor(3), torch.tensor([0.0, 5.0, 0.0]), 4)
    tensor([1, 1, 1, 1])
    """
    spot = rng.uniform(k, (size,), counts.dtype) * counts.sum()
    return (spot[:, None] >= counts.cumsum(0)).sum(1)


def diversity(z: Tensor, x: Tensor) -> Tensor:
    """exp(-mean_ij d1(x_i, x_j) * d2(z_i, z_j)): large when different noise gives like samples.

    d1 is the mean absolute difference over coordinates, d2 the mean squared one.
    """
    flat = x.reshape(len(x), -1)
    apart = torch.cdist(flat, flat, p=1.0) / flat.shape[1]
    return torch.exp(-(apart * ((z[:, None] - z) ** 2).mean(-1)).mean())


def shares(counts: Tensor) -> Tensor:
    """[C, classes]: what each client holds of the cohort's samples of a class, n_k^c / sum_i n_i^c."""
    return counts / counts.sum(0).clamp(min=1)

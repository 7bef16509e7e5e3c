"""Mean and standard deviation of the clients' samples from sums that the clients send: what a real federation can do.

Client k sends, per channel or feature, its number of values, a shift near its own mean, and two sums around the shift:

    n_k,    c_k,    r_k = sum (x - c_k),    q_k = sum (x - c_k)^2

The server combines them around the mean of all clients:

    n = sum_k n_k,    m = sum_k (n_k c_k + r_k) / n,    v = sum_k (q_k + 2 (c_k - m) r_k + n_k (c_k - m)^2) / n

This is exactly the mean and the variance of all values together. Only small differences are squared, so no digits
cancel, however far the values are from zero. No sample leaves its client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.data.dataset import DataSet
from holdfast.data.deal import Deal
from holdfast.data.normalisation import FEDERATED
from holdfast.data.prepare import channelled
from holdfast.data.skew import features

CHUNK = 4096  # samples at a time
NUMBERS = 1 << 22  # numbers of the clients' sums at a time
ROUNDING = 1e-13  # a standard deviation that is smaller than this share of the mean is that of a constant
EXACT_ROW = 256  # the longest row of bytes whose sum of squares is exact in float32: 256 * 255^2 < 2^24
Moments = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation
Block = tuple[Tensor, Tensor]  # samples as they are stored, and the row of the client of each
Read = Callable[[np.ndarray, np.ndarray], Tensor]  # (sample numbers, the client of each) -> the samples as stored


class ClientSums(NamedTuple):
    """What clients send, one row per client, in float64."""

    n: Tensor  # n_k [clients]
    shift: Tensor  # c_k [clients, channels]
    rest: Tensor  # r_k [clients, channels]
    squares: Tensor  # q_k [clients, channels]


def client_sums(x: Tensor) -> ClientSums:
    """Return one client's sums, from its samples as they are stored: [n, channels, ...]; bytes are divided by 255.

    >>> [t.flatten().tolist() for t in client_sums(torch.tensor([[1.0], [3.0]]))]
    [[2.0], [2.0], [0.0], [2.0]]
    """
    blocks = [(chunk, torch.zeros(len(chunk), dtype=torch.int64)) for chunk in torch.split(x, CHUNK)]
    return _sums(lambda: iter(blocks), 1, x.shape[1])


def combine(sums: Iterable[ClientSums]) -> Moments:
    """Combine clients' sums, of one or more clients at a time, into the mean and standard deviation of all values.

    A constant channel gets standard deviation 1: it has nothing to scale. Clients without samples add nothing.
    """
    joined = (torch.cat(rows) for rows in zip(*map(_together, sums), strict=True))
    n, m, r, q = (t[0] for t in _together(ClientSums(*joined)))
    return scale_of(m + r / n, q / n)


def scale_of(mean: Tensor, square: Tensor) -> Moments:
    """Return the mean and the standard deviation from a mean and the mean square around it; 1 for constants."""
    std = square.sqrt()
    std = torch.where(std > ROUNDING * mean.abs(), std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())


def federated_moments(deal: Deal, channels: int, read: Read) -> Moments:
    """Compute what ``combine`` makes of the sums of all clients, many clients at a time.

    Args:
        deal: The samples of every client; no other samples enter.
        channels: The number of channels or features.
        read: Reads samples in the form that ``client_sums`` takes.

    Returns:
        The mean and the standard deviation per channel or feature.
    """
    most, offsets = max(1, NUMBERS // channels), deal.offsets
    ranges = [(first, min(first + most, deal.clients)) for first in range(0, deal.clients, most)]
    held = [(first, last) for first, last in ranges if offsets[first] < offsets[last]]
    return combine(_sums(partial(_blocks, deal, read, *ends), ends[1] - ends[0], channels) for ends in held)


def with_federated_moments(data: DataSet, deal: Deal) -> DataSet:
    """Return a data set with the statistics of its clients' samples, if it is normalised by them.

    Samples count as their clients see them, with the feature noise of the split.
    """
    tokens = data.y.dim() == 2 and data.y.dtype == torch.int64
    if data.normalise != FEDERATED or data.fields or tokens or not len(deal.index):
        return data

    def read(index: np.ndarray, owner: np.ndarray) -> Tensor:
        if deal.noise is not None:
            return channelled(features(deal, data.x, index, owner))
        return channelled(data.x[torch.from_numpy(index).to(data.x.device)].cpu())

    mean, std = federated_moments(deal, channelled(data.x[:1]).shape[1], read)
    return replace(data, mean=mean, std=std)


def _blocks(deal: Deal, read: Read, first: int, last: int) -> Iterator[Block]:
    """Yield the samples of some clients in chunks, each sample with the row of its client."""
    owner = np.repeat(np.arange(first, last), deal.sizes[first:last])
    index = deal.index[deal.offsets[first] : deal.offsets[last]]
    for start in range(0, len(index), CHUNK):
        part = slice(start, start + CHUNK)
        yield read(index[part], owner[part]), torch.from_numpy(owner[part] - first)


def _sums(blocks: Callable[[], Iterator[Block]], clients: int, channels: int) -> ClientSums:
    """Return the sums of clients, from two passes over their samples: the second is around the mean of the first."""
    count, bytes_only = torch.zeros(clients, dtype=torch.float64), False
    total, rest, squares = (torch.zeros(clients, channels, dtype=torch.float64) for _ in range(3))
    for x, row in blocks():
        count += torch.bincount(row, minlength=clients) * x[0, 0].numel()
        total.index_add_(0, row, _sums_around(x, total[row] * 0)[0])
        bytes_only = x.dtype == torch.uint8
    shift = total / count.clamp(min=1)[:, None]
    shift = (255 * shift).round() / 255 if bytes_only else shift  # the sums of bytes around a byte are exact
    for x, row in blocks():
        first, second = _sums_around(x, shift[row])
        rest.index_add_(0, row, first)
        squares.index_add_(0, row, second)
    return ClientSums(count, shift, rest, squares)


def _sums_around(x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum (x - shift) and sum (x - shift)^2 of every sample and channel, with pixels in [0, 1]."""
    if x.dtype == torch.uint8 and x.shape[-1] <= EXACT_ROW:
        rows, c, n = x.float(), (255 * shift).round(), x[0, 0].numel()
        s, q = (v.sum(-1).double().flatten(2).sum(2) for v in (rows, rows.square()))
        return (s - n * c) / 255, (q - 2 * c * s + n * c.square()) / 255**2
    values = x.double().reshape(len(x), x.shape[1], -1)
    values = (values / 255 if x.dtype == torch.uint8 else values) - shift[:, :, None]
    return values.sum(2), values.square().sum(2)


def _together(sums: ClientSums) -> ClientSums:
    """Return the sums of a client that has the samples of all these clients, around their mean."""
    n, c, r, q = sums.n[:, None], sums.shift, sums.rest, sums.squares
    middle = (n * c + r).sum(0) / n.sum()
    apart = c - middle
    rest, squares = n * apart + r, q + 2 * apart * r + n * apart.square()
    return ClientSums(n.sum()[None], middle[None], rest.sum(0)[None], squares.sum(0)[None])

"""How much the clients of a deal differ, in figures.

Means over clients exclude empty clients; ``empty_clients`` counts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data.deal import Deal
from holdfast.data.feature_noise import perturb

CHUNK = 1024  # samples at a time
LIMIT = 1 << 24  # numbers kept of the clients' feature means


def figures(deal: Deal, labels: np.ndarray, classes: int, x: Tensor | None = None) -> dict[str, Any]:
    """Compute the figures of a deal.

    Args:
        deal: The samples of every client.
        labels: The label of every sample.
        classes: The number of classes.
        x: The samples, for the figure of their features.

    Returns:
        Figures by name, ready for JSON.
    """
    counts = deal.counts(labels, classes)
    held = counts[deal.sizes > 0]
    distance = total_variation(held)
    out: dict[str, Any] = {
        "clients": deal.clients,
        "empty_clients": deal.clients - len(held),
        "samples": len(deal.index),
        "classes": classes,
        "samples_per_client": spread(held.sum(axis=1)),
        "classes_per_client": spread((held > 0).sum(axis=1)),
        "label_skew": float(distance.mean()),
        "wasserstein": float(2 * distance.mean()),
        "effective_classes": float(effective_classes(held).mean()),
        "gini": gini(deal.sizes),
    }
    if deal.noise is not None:
        out["noise_sigma"] = spread(deal.noise.sigma[deal.sizes > 0])
    if x is not None:
        out["feature_shift"] = feature_shift(deal, x)
    return out


def spread(values: np.ndarray) -> dict[str, float]:
    """Return minimum, mean, median and maximum."""
    low, high = float(values.min()), float(values.max())
    return {"min": low, "mean": float(values.mean()), "median": float(np.median(values)), "max": high}


def total_variation(counts: np.ndarray) -> np.ndarray:
    """Return each client's distance to the global label mix, ``1/2 * sum_j |P_h(y=j) - P_a(y=j)|``, in [0, 1].

    Twice this is theta_h, the distance by which FedAgg (Sec. V-A) measures skew. FedAgg calls it Wasserstein, but it is
    the L1 distance of the two mixes. (Between classes at mutual distance 1, the Wasserstein distance is half of L1.)

    >>> total_variation(np.array([[4, 0], [0, 4]])).tolist()
    [0.5, 0.5]
    """
    mixes = counts / counts.sum(axis=1, keepdims=True)
    overall = counts.sum(axis=0) / counts.sum()
    return np.asarray(np.abs(mixes - overall).sum(axis=1) / 2)


def effective_classes(counts: np.ndarray) -> np.ndarray:
    """Return how many equally frequent classes have the entropy of a client's mix: ``exp(-sum_j p_j ln p_j)``.

    >>> effective_classes(np.array([[3, 3, 0], [7, 0, 0]])).round(6).tolist()
    [2.0, 1.0]
    """
    p = counts / counts.sum(axis=1, keepdims=True)
    return np.asarray(np.exp(-(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)))


def gini(sizes: np.ndarray) -> float:
    """Return the inequality of client sizes, from 0 (equal) to 1 (one client owns all); empty clients count.

    ``sum_ij |n_i - n_j| / (2 N sum n)``, from the sorted sizes.

    >>> gini(np.array([0, 0, 0, 8]))
    0.75
    """
    n = np.sort(sizes).astype(np.float64)
    rank = np.arange(1, len(n) + 1)
    return float(((2 * rank - len(n) - 1) * n).sum() / (len(n) * n.sum()))


def feature_shift(deal: Deal, x: Tensor) -> float:
    """Return how far apart the clients' mean features are: the mean of ``||m_i - m|| / sqrt(E ||x - m||^2)``.

    ``m_i`` is the mean sample of client i and ``m`` that of all clients, both under the noise of the deal. The unit is
    the distance of a sample from the mean: n_i iid samples give about ``1/sqrt(n_i)``. With very many clients, only
    some are measured.
    """
    held = np.flatnonzero(deal.sizes)
    width = x[0].numel()
    kept = held[:: -(-len(held) * width // LIMIT)]
    slot = np.full(deal.clients, len(kept))  # the last slot collects all others
    slot[kept] = np.arange(len(kept))
    sums = torch.zeros(len(kept) + 1, width, dtype=torch.float64)
    square = 0.0
    owners = deal.owners
    for start in range(0, len(owners), CHUNK):
        part = slice(start, start + CHUNK)
        seen = features(deal, x, deal.index[part], owners[part]).flatten(1).double()
        sums.index_add_(0, torch.from_numpy(slot[owners[part]]), seen)
        square += float(seen.square().sum())
    mean = sums.sum(dim=0) / len(owners)
    scale = max(square / len(owners) - float(mean.square().sum()), 0.0) ** 0.5
    means = sums[:-1] / torch.from_numpy(deal.sizes[kept])[:, None]
    return float((means - mean).norm(dim=1).mean()) / scale if scale > 0 else 0.0


def features(deal: Deal, x: Tensor, index: np.ndarray, owner: np.ndarray) -> Tensor:
    """Return samples as their clients see them, on the CPU.

    Args:
        deal: The samples of every client, with their noise.
        x: All samples; bytes are scaled to [0, 1].
        index: The numbers of the samples to return.
        owner: The client of each of them.

    Returns:
        The samples in float32.
    """
    sample = torch.from_numpy(index)
    seen = x[sample.to(x.device)].cpu()
    seen = seen.float() / 255 if seen.dtype == torch.uint8 else seen.float()
    if deal.noise is None:
        return seen
    noise = deal.noise
    return perturb(seen, sample, torch.from_numpy(noise.sigma[owner]), noise.mean, noise.share, noise.seed)

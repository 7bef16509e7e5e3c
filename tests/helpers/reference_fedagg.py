"""FedAgg whose clients move along the aggregated gradient (Eqs. 5, 7, 11), in plain loops."""

from __future__ import annotations

import torch
from torch import Tensor

from helpers import reference_papers as ref
from helpers.reference_papers import AggRound, Batches, Layers


def aggregated_round(
    layers: Layers, batches: Batches, lr: float, phi1: Tensor | None, alpha: float = 0.1,
    bounds: tuple[float, float] = (0.0, 0.99),
) -> AggRound:  # fmt: skip
    """w[l+1] = w[l] - eta[l] * phi1[l] with the last round's phi1, in equal parts after every mini-batch of the epoch.

    The rates are those of the feedback mode. Every client takes its own gradients along this path; their sums per epoch
    make the next phi1. Without a phi1 the round is FedAvg's.
    """
    w0, deltas, rates, sums = ref.flatten(layers), [], [], []
    for epochs in batches:
        w, own_rates, own_sums = w0, [], []
        for e, epoch in enumerate(epochs):
            eta = lr
            if phi1 is not None:
                solved = ref.fedagg_solve(phi1, ref.fedagg_reference(w0, phi1, lr), w, alpha, start=e)
                eta = min(max(float(solved[0]), bounds[0]), bounds[1])
            at_start, total = w, torch.zeros_like(w0)
            for number, (x, y) in enumerate(epoch, start=1):
                g = ref.gradient(w, layers, x, y)
                total = total + g
                w = w - eta * g if phi1 is None else at_start - eta * number / len(epoch) * phi1[e]
            own_rates.append(eta)
            own_sums.append(total)
        deltas.append(w - w0)
        rates.append(own_rates)
        sums.append(own_sums)
    new = torch.stack([ref.weighted_mean([own[e] for own in sums]) for e in range(len(batches[0]))])
    return AggRound(w0 + ref.weighted_mean(deltas, ref.counts_of(batches)), deltas, new, rates)

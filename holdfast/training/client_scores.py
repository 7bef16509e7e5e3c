"""How good a model is at every client, on samples of the client's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.data.deal import Deal
from holdfast.data.federation import Federation
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.models.net import Net
from holdfast.training.evaluation import AT_ONCE, Score, predicted

WORST = 10  # the worst tenth of the clients


@dataclass(frozen=True)
class ClientScores:
    """Scores of clients that have samples to be scored on, in the order of their numbers.

    Attributes:
        ids: The clients.
        samples: The number of samples of each.
        items: The number of items of each: samples, or tokens of texts.
        values: The scores of each by the names of the metrics; NaN where a metric is not defined.
    """

    ids: tuple[int, ...]
    samples: tuple[int, ...]
    items: tuple[int, ...]
    values: dict[str, tuple[float, ...]]

    def mean(self) -> Score:
        """Return the mean over clients of every metric, without clients for which it is not defined."""
        return Score({name: _mean([v for v in found if not math.isnan(v)]) for name, found in self.values.items()})

    def combined(self, metrics: Sequence[Metric]) -> Score:
        """Return the scores on the samples of all clients together, as far as they follow from the clients' own."""
        return Score({m.name: m.combined(self.values[m.name], self.items) for m in metrics})


def score_clients(net: Net, w: Tensor, federation: Federation, held: Deal, metrics: Sequence[Metric]) -> ClientScores:
    """Score one model on the samples of every client, in one pass over all of them.

    Args:
        net: The network.
        w: The model as a vector.
        federation: Holds the samples.
        held: Which samples are whose.
        metrics: What to compute.

    Returns:
        The scores of all clients that have samples.
    """
    if not held.sizes.any():
        return ClientScores((), (), (), {m.name: () for m in metrics})
    found = predicted(net, w, federation.data.task, federation.held_batches(held, AT_ONCE))
    return scores_by_client(found, federation, held, metrics)


def scores_by_client(found: Predictions, federation: Federation, held: Deal, metrics: Sequence[Metric]) -> ClientScores:
    """Score predictions for the samples of several clients, each client's by themselves.

    Args:
        found: The predictions, in the order of ``held``.
        federation: Holds the samples.
        held: Which samples are whose.
        metrics: What to compute.

    Returns:
        The scores of all clients that have samples.
    """
    ids, data = np.flatnonzero(held.sizes), federation.data
    items = data.task.items(data.y[torch.from_numpy(held.index).to(data.y.device)]).cpu().numpy()
    ends = np.concatenate([[0], np.cumsum(items)])[held.offsets]
    pieces = [found.rows(slice(int(ends[i]), int(ends[i + 1]))) for i in ids]
    values = {m.name: tuple(m.score(p) for p in pieces) for m in metrics}
    return ClientScores(
        tuple(ids.tolist()), tuple(held.sizes[ids].tolist()), tuple(len(p.loss) for p in pieces), values
    )


def joined(scores: Iterable[ClientScores], metrics: Sequence[Metric]) -> ClientScores:
    """Join the scores of several groups of clients."""
    every = list(scores)
    ids, samples, items = (tuple(v for s in every for v in getattr(s, name)) for name in ("ids", "samples", "items"))
    return ClientScores(
        ids, samples, items, {m.name: tuple(v for s in every for v in s.values[m.name]) for m in metrics}
    )


def spread_of(values: Sequence[float], metric: Metric) -> dict[str, float]:
    """Sum up the scores of clients.

    Args:
        values: A score per client; NaN where the metric is not defined, which is left out.
        metric: What the scores are.

    Returns:
        The mean, the mean of the worst tenth of the clients (at least one), the variance, and how many were scored.
    """
    known = sorted((v for v in values if not math.isnan(v)), reverse=not metric.higher_is_better)
    mean, worst = _mean(known), _mean(known[: max(1, -(-len(known) // WORST))])
    variance = _mean([(v - mean) * (v - mean) for v in known])
    return {"mean": mean, "worst_tenth": worst, "variance": variance, "scored": len(known)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan

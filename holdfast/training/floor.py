"""The floor: the scores of a model without inputs, beside which those of a trained model stand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.data.federation import Federation
from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.training.client_scores import scores_by_client
from holdfast.training.evaluation import AT_ONCE, Score, mean_score, on_mix, score


def floor(federation: Federation, metrics: Sequence[Metric], over_clients: bool = False) -> dict[str, float]:
    """Score a model that returns the same outputs for every test sample: the best ones for the clients' samples.

    Args:
        federation: The clients' samples, and the test data.
        metrics: What to compute.
        over_clients: Whether the score of the run is a mean over clients with models of their own: on their own test
            samples if they have any, otherwise each on its class mix of the test data.

    Returns:
        The scores by name; none where the clients' samples are not known or the task has no such outputs.
    """
    data = federation.data
    own = torch.from_numpy(federation.deal.index).to(data.y.device)
    outputs = data.task.constant(data.y[own], federation.classes) if len(own) else None
    if outputs is None:
        return {}
    held = federation.client_test
    if over_clients and held is not None:
        targets = data.y[torch.from_numpy(held.index).to(data.y.device)]
        found = scores_by_client(_constant(federation, outputs, targets), federation, held, metrics).mean()
    else:
        found = score(_constant(federation, outputs, data.test_y), metrics, federation.classes)
        found = _on_every_mix(federation, found) if over_clients else found
    return {m.name: found.values[m.name] for m in metrics if m.name in found.values}


def _constant(federation: Federation, outputs: Tensor, targets: Tensor) -> Predictions:
    """Return the predictions of a model that always returns these outputs."""
    task = federation.data.task
    shape = (*task.positions(targets), federation.classes)
    return Predictions.of(task, [task.judge(outputs.expand(len(y), *shape), y) for y in torch.split(targets, AT_ONCE)])


def _on_every_mix(federation: Federation, found: Score) -> Score:
    """Return the mean over clients of a score on each one's class mix."""
    counts = federation.deal.counts(federation.strata, federation.classes)
    return mean_score([on_mix(found, torch.from_numpy(row)) for row in counts if row.sum()])

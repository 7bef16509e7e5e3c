"""How good a model is on the test data or on the validation data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from holdfast.data.federation import Federation
from holdfast.metrics.metric import Metric
from holdfast.metrics.metric_names import every_metric, read_metric
from holdfast.metrics.predictions import Predictions
from holdfast.models.net import Net
from holdfast.tasks.task import Task

AT_ONCE = 1000  # samples per forward pass
Samples = Iterable[tuple[Any, Tensor]]  # inputs and targets, some at a time


@dataclass(frozen=True)
class Score:
    """Scores of a model.

    Attributes:
        values: The score by the name of each metric; NaN where it is not defined.
        by_class: The accuracy in every class; NaN for a class without samples, empty for a task without classes.
        loss_by_class: The loss in every class, likewise; not stored with a run.
    """

    values: dict[str, float]
    by_class: tuple[float, ...] = ()
    loss_by_class: tuple[float, ...] = field(default=(), compare=False)

    @property
    def accuracy(self) -> float:
        """The accuracy; NaN if it was not measured."""
        return self.values.get("accuracy", math.nan)

    @property
    def loss(self) -> float:
        """The mean loss."""
        return self.values["loss"]


def usual_metrics(task: Task, metric: Metric | None = None) -> list[Metric]:
    """Return the metrics of every evaluation: the task's default, the loss, and the one that a run goes by."""
    usual = [read_metric(task.metrics[0], task), read_metric("loss", task)]
    return list({m.name: m for m in (*usual, *([metric] if metric else []))}.values())


def all_metrics(usual: Sequence[Metric], task: Task) -> list[Metric]:
    """Return the metrics of every evaluation, and the others of a finished run."""
    return list({m.name: m for m in (*every_metric(task), *usual)}.values())


def evaluate(net: Net, w: Tensor, federation: Federation, metrics: Sequence[Metric] | None = None) -> Score:
    """Score a model on the test data.

    Args:
        net: The network.
        w: The model as a vector.
        federation: Holds the test data.
        metrics: What to compute; by default the task's default metric and the loss.

    Returns:
        The scores.
    """
    task = federation.data.task
    found = predicted(net, w, task, federation.test_batches(AT_ONCE))
    return score(found, usual_metrics(task) if metrics is None else metrics, federation.classes)


def predicted(net: Net, w: Tensor, task: Task, samples: Samples) -> Predictions:
    """Run a model on samples.

    Args:
        net: The network.
        w: The model as a vector.
        task: What is predicted.
        samples: Inputs and targets, some at a time.

    Returns:
        What the model predicts, beside the truth.
    """
    with torch.no_grad():
        return Predictions.of(task, [task.judge(net(w, x).logits, y) for x, y in samples])


def score(p: Predictions, metrics: Sequence[Metric], classes: int) -> Score:
    """Compute metrics, and accuracy and loss by class where a sample has one class.

    Args:
        p: What a model predicts.
        metrics: What to compute.
        classes: The number of classes.

    Returns:
        The scores.
    """
    values = {m.name: m.score(p) for m in metrics}
    if not p.task.has_classes:
        return Score(values)
    assert p.hit is not None
    total = torch.bincount(p.y, minlength=classes)
    right, wrong = (torch.bincount(p.y, weights=t, minlength=classes) for t in (p.hit, p.loss))
    by_class, loss_by_class = (tuple((t / total).tolist()) for t in (right, wrong))
    return Score(values, by_class, loss_by_class)


def defined(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return scores as a run records them: None where a metric is not defined or not finite."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def on_mix(score: Score, counts: Tensor) -> Score:
    """Return accuracy and loss on the class mix of a client, from its samples per class.

    Classes without test samples are left out. A client that holds no tested class has NaN as accuracy and loss.
    """
    accuracy, loss = (torch.tensor(t, dtype=torch.float64) for t in (score.by_class, score.loss_by_class))
    held = torch.where(torch.isnan(accuracy), 0, counts.cpu().double())
    share = held / held.sum()
    mixed = [float((share * torch.nan_to_num(t)).sum()) for t in (accuracy, loss)]
    return Score({"accuracy": mixed[0], "loss": mixed[1]}, score.by_class, score.loss_by_class)


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean over clients; those that hold no tested class are left out, unless all of them are such."""
    known = [s for s in scores if not math.isnan(s.accuracy)] or scores
    values = {
        name: float(torch.tensor([s.values[name] for s in known], dtype=torch.float64).mean())
        for name in known[0].values
    }
    rows = [
        torch.tensor([getattr(s, name) for s in known], dtype=torch.float64).mean(0)
        for name in ("by_class", "loss_by_class")
    ]
    return Score(values, tuple(rows[0].tolist()), tuple(rows[1].tolist()))

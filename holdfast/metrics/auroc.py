"""auroc: the area under the ROC curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from holdfast.metrics.metric import Metric
from holdfast.metrics.predictions import Predictions
from holdfast.tasks.task import CLASS, LABELS


@dataclass(frozen=True)
class Auroc(Metric):
    """The probability that a positive sample gets a higher score than a negative one; ties count one half.

    Of two classes that of the second, the positive one. With more classes, the mean over the classes that occur, each
    against all others; with labels, the mean over the labels that some samples have and others do not.
    """

    name = "auroc"
    summary = "area under the ROC curve; one against the rest, macro mean"
    percent = True
    tasks = (CLASS, LABELS)
    finite = True

    def compute(self, p: Predictions) -> float:
        y, scores = p.y.numpy(), p.probabilities.numpy()
        positive = y > 0 if y.ndim == 2 else y[:, None] == np.arange(scores.shape[1])
        if y.ndim == 1 and scores.shape[1] == 2:
            positive, scores = positive[:, 1:], scores[:, 1:]
        defined = positive.any(0) & ~positive.all(0)
        if not defined.any() or not np.isfinite(scores).all():
            return math.nan
        positive, scores = positive[:, defined], scores[:, defined]
        n = positive.sum(0)
        above = (ranks(scores) * positive).sum(0) - n * (n + 1) / 2  # pairs that are ordered, by Mann-Whitney
        return float(np.mean(above / (n * (len(y) - n))))


def ranks(scores: np.ndarray) -> np.ndarray:
    """Return the rank of every entry in its column, from 1; equal ones share the mean of their ranks."""
    columns = torch.from_numpy(scores).T.contiguous()
    ordered = columns.sort(dim=1).values
    below, not_above = (torch.searchsorted(ordered, columns, right=right).double() for right in (False, True))
    return ((below + not_above + 1) / 2).T.numpy()

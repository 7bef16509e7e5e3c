"""How good a model is on the test data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.federation import Federation
from holdfast.models.net import Net


@dataclass(frozen=True)
class Score:
    """Fractions of 1; ``by_class`` and ``loss_by_class`` have NaN for a class without test samples."""

    accuracy: float
    loss: float
    by_class: tuple[float, ...]
    loss_by_class: tuple[float, ...] = field(default=(), compare=False)  # not stored with a run


def evaluate(net: Net, w: Tensor, federation: Federation, batch: int = 1000) -> Score:
    """Evaluate a model on the test data.

    Args:
        net: The network.
        w: The model as a vector.
        federation: Holds the test data.
        batch: The samples per forward pass.

    Returns:
        Accuracy and loss, in all and by class.
    """
    data = federation.data
    hits, losses = [], []
    with torch.no_grad():
        for x, y in zip(torch.split(data.test_x, batch), torch.split(data.test_y, batch), strict=True):
            logits = net(w, federation.inputs(x)).logits
            hits.append(logits.argmax(1) == y)
            losses.append(F.cross_entropy(logits, y, reduction="none"))
    hit, loss = torch.cat(hits).to(torch.float64), torch.cat(losses).to(torch.float64)
    total = torch.bincount(data.test_y, minlength=federation.classes)
    right = torch.bincount(data.test_y, weights=hit, minlength=federation.classes)
    wrong = torch.bincount(data.test_y, weights=loss, minlength=federation.classes)
    by_class, loss_by_class = (tuple((t / total).tolist()) for t in (right, wrong))
    return Score(float(hit.mean()), float(loss.mean()), by_class, loss_by_class)


def on_mix(score: Score, counts: Tensor) -> Score:
    """Return a score on the class mix of a client, from its samples per class.

    Classes without test samples are left out. A client that holds no tested class has NaN as accuracy and loss.
    """
    accuracy, loss = (torch.tensor(t, dtype=torch.float64) for t in (score.by_class, score.loss_by_class))
    held = torch.where(torch.isnan(accuracy), 0, counts.cpu().double())
    share = held / held.sum()
    mixed = [float((share * torch.nan_to_num(t)).sum()) for t in (accuracy, loss)]
    return Score(mixed[0], mixed[1], score.by_class, score.loss_by_class)


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean over clients; those that hold no tested class are left out, unless all of them are such."""
    known = [s for s in scores if not math.isnan(s.accuracy)] or scores
    rows = [
        torch.tensor([getattr(s, name) for s in known], dtype=torch.float64).mean(0)
        for name in ("accuracy", "loss", "by_class", "loss_by_class")
    ]
    return Score(float(rows[0]), float(rows[1]), tuple(rows[2].tolist()), tuple(rows[3].tolist()))

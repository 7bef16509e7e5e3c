"""How good a model is on the test data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.federation import Federation
from holdfast.models.net import Net


@dataclass(frozen=True)
class Score:
    """Fractions of 1; ``by_class`` has NaN for a class without test samples."""

    accuracy: float
    loss: float
    by_class: tuple[float, ...]


def evaluate(net: Net, w: Tensor, federation: Federation, batch: int = 1000) -> Score:
    """Evaluate a model on the test data.

    Args:
        net: The network.
        w: The model as a vector.
        federation: Holds the test data.
        batch: The samples per forward pass.

    Returns:
        Accuracy, loss and accuracy by class.
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
    return Score(float(hit.mean()), float(loss.mean()), tuple((right / total).tolist()))

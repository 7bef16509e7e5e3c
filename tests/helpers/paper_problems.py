"""The problems on which the five papers' parts are compared with their references."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from helpers import reference_papers as ref
from helpers.reference_papers import Batches, Layers
from helpers.toys import ENGINES, FEDERATION, Ran
from holdfast import Classification
from holdfast.engines.batches import plan

every_engine = pytest.mark.parametrize("engine", ENGINES)


every_problem = pytest.mark.parametrize("problem", ["network", "quadratic"])


SETTINGS = {"lr": 0.2, "lr_decay": 0.9, "batch": 5, "epochs": 2, "rounds": 4, "cohort": 3}


def network(layers: Layers) -> nn.Module:
    """These layers as a module."""
    modules: list[nn.Module] = []
    for W, b in layers:
        linear = nn.Linear(W.shape[1], W.shape[0]).double()
        linear.load_state_dict({"weight": W, "bias": b})
        modules += [linear, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def start(problem: str, monkeypatch: pytest.MonkeyPatch) -> Layers:
    """Three layers under cross-entropy; or one layer under squares, for both sides: a quadratic."""
    if problem == "network":
        return ref.random_layers((3, 5, 4, 3), seed=0)

    def squares(logits: Tensor, y: Tensor) -> Tensor:
        return ((logits - torch.eye(3, dtype=logits.dtype)[y]) ** 2).sum(1) / 2

    monkeypatch.setattr(ref, "cross_entropy", lambda logits, y: squares(logits, y).mean())
    monkeypatch.setattr(Classification, "loss", lambda self, logits, y, weight=None: squares(logits, y))
    return ref.random_layers((3, 3), seed=0)


def batches_of(t: int, cohort: Sequence[int], trip: int = 0, epochs: int = 2) -> Batches:
    """Return what each client of a cohort sees in round t; on a second trip, the public data."""
    deal, data = FEDERATION.deal, FEDERATION.data
    clients = []
    for i in cohort:
        own = FEDERATION.public if trip else torch.from_numpy(deal.client(i))
        found = plan(
            own[None], torch.tensor([len(own)]), torch.tensor([i]), words=(0, t, trip), batch=SETTINGS["batch"],
            epochs=epochs, steps=None,
        )  # fmt: skip
        pairs = zip(found.index[0], found.mask[0], strict=True)
        rows = [[i[m] for i, m in zip(index, mask, strict=True)] for index, mask in pairs]
        clients.append([[(data.x[i], data.y[i]) for i in epoch] for epoch in rows])
    return clients


Play = Callable[[Layers, Batches, float, int, list[int]], Tensor]  # (model, batches, lr, round, cohort) -> new model


def assert_follows(ran: Ran, layers: Layers, play: Play, epochs: int = 2, relative: float = 1e-12) -> None:
    """Assert that the run has the reference's model after every round; both see the same cohorts and batches."""
    first, at = ref.flatten(layers), layers
    assert len({tuple(record.cohort) for record in ran.history}) > 1
    for record in ran.history:
        t = record.round
        lr = SETTINGS["lr"] * SETTINGS["lr_decay"] ** (t - 1)
        w = play(at, batches_of(t, record.cohort, epochs=epochs), lr, t, record.cohort)
        moved = float((w - first).abs().max())
        assert moved > 0.02
        assert float((ran.after[t]["w"] - w).abs().max()) <= relative * moved, f"round {t}"
        at = ref.unflatten(w, layers)

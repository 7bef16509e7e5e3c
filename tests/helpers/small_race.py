"""A race of two methods on 120 samples of two classes, and what of it must be the same however it was run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from holdfast.advice.advise import ANSWER, Advice, advise
from holdfast.data.dataset import DataSet
from holdfast.data.user_arrays import from_arrays

CLOCKED = ("seconds",)  # what follows from the clock


def small_data(test_labels: Callable[[torch.Tensor], torch.Tensor] = lambda y: y) -> DataSet:
    """Return four noisy features, of which the first decides the class."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(180, 4, generator=generator)
    y = (x[:, 0] + 0.5 * torch.randn(180, generator=generator) > 0).long()
    return from_arrays(x[:120], y[:120], x[120:], test_labels(y[120:]))


def small_race(out: Path, data: DataSet | None = None, **more: Any) -> Advice:
    """Race scaffold and fedbug against FedAvg, counted in rounds, so that it is the same on every machine."""
    settings: dict[str, Any] = {
        "budget": "110 rounds", "methods": ["scaffold", "prox(0.1)"], "rounds": 3, "clients": 4, "cohort": 2,
        "epochs": 1, "split": "dirichlet(0.5)", "experience": False, "validation": 0.3,
    }  # fmt: skip
    return advise(data or small_data(), "linear", out=out, **(settings | more))


def decided(folder: Path) -> dict[str, Any]:
    """Return the answer without times."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if k not in CLOCKED}
        return [clean(v) for v in value] if isinstance(value, list) else value

    found: dict[str, Any] = clean(json.loads((folder / ANSWER).read_text()))
    return found

"""A pass over the test samples that is repeated is the plain one, whichever model it gets."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

import holdfast
from holdfast.metrics.predictions import Predictions
from holdfast.models.net import Net
from holdfast.tasks.task_names import read_task
from holdfast.training.evaluation import predicted
from holdfast.training.round import Trainer
from holdfast.training.sample_pass import SamplePass
from holdfast.training.simulation import Simulation


class Normed(nn.Module):
    """A network with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x))


def same(one: Predictions, other: Predictions) -> bool:
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(Predictions)[1:]]
    return all(a is b is None or torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_every_pass_is_the_plain_one(task: str):
    """On a CPU the pass is repeated instead of replayed; the buffers are the same."""
    g = torch.Generator().manual_seed(0)
    net = Net(Normed(), (6,), 3, batchnorm="average")
    x = torch.randn(25, 6, generator=g)
    y = {"classification": torch.arange(25) % 3, "regression": x[:, :3], "multilabel": (x[:, :3] > 0).float()}[task]
    kind = read_task(task)

    def samples() -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(x.split(10), y.split(10), strict=True))

    repeated = SamplePass(kind, samples, captures=True)
    for _ in range(4):
        w = torch.randn(net.layout.size, generator=g)
        running = torch.rand(net.stats["running"].shape, generator=g) + 0.5
        other = net.with_stats(net.stats | {"running": running})
        assert same(repeated(other, w), predicted(other, w, kind, samples()))
    assert repeated.forward is not None


def test_what_is_not_kept_is_not_captured():
    """The outputs of a text at every position would not fit in memory."""
    data = holdfast.from_text(["to be or not to be, that is the question"] * 4, predict="next-token", length=8)
    result = holdfast.run(
        "fedavg", holdfast.federate(data, clients=4), "lstm", rounds=1, cohort=2, steps=1, device="cpu"
    )
    net, w, fed = result.net, result.w, holdfast.federate(data, clients=4).as_tokens()
    made = SamplePass(fed.data.task, lambda: fed.test_batches(1000), captures=True)
    for _ in range(3):
        made(net, w)
    assert made.forward is None


def test_scores_of_a_run_do_not_depend_on_it(monkeypatch: pytest.MonkeyPatch):
    settings = {"model": "mlp", "rounds": 4, "clients": 6, "cohort": 2, "steps": 2, "batch": 4, "device": "cpu"}
    plain = holdfast.run("scaffold", validation=0.2, **settings)
    monkeypatch.setattr(Simulation, "captures", True)
    passes: list[SamplePass] = []

    def note(trainer: Trainer, _: int) -> None:
        passes.extend([trainer.test_pass, trainer.validation_pass])

    ours = holdfast.run("scaffold", validation=0.2, on_start=note, **settings)
    assert all(made.forward is not None for made in passes)
    assert [(r.test, r.validation) for r in ours.history] == [(r.test, r.validation) for r in plain.history]

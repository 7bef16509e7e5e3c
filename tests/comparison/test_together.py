"""Runs that share the steps of one batch are, bit for bit, what they are alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor
from torch import Tensor

import holdfast
from helpers.places import ROOT
from helpers.shared_steps import SETTINGS, Notes, assert_same_runs, carried_out, left_behind, planned, rows_of, toy
from holdfast import Client, DataSet, Part, Tensors
from holdfast.comparison.executor import Executor
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.pool import ProcessPool
from holdfast.comparison.runner import run_all
from holdfast.comparison.together import batches
from holdfast.core.errors import HoldfastError
from holdfast.engines.row_pool import RowPool
from holdfast.method.method import as_method
from holdfast.runs.folder import RunFolder
from holdfast.training.round_record import RoundRecord


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traced step runs as it was traced: compiling it takes long and is tested elsewhere."""
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)


class Uncompiled(Executor):
    """Runs a traced step as it was traced, in whichever process it is."""

    def carry_out(self, *args: Any, **more: Any) -> tuple[str, str]:
        torch._inductor.compile = lambda traced, inputs, **_: traced
        return super().carry_out(*args, **more)


SHARED = [
    ("scaffold+clip(1)", {}),
    ("moon+sam+momentum(0.5, keep=true)", {"epochs": "1-3"}),
    ("fedagg", {}),
    ("fnr", {"cohort": 5, "public": 0.2, "split_seed": 0}),
    ("feddyn", {"precision": "fp32", "participation": 0.7, "cohort": None}),
]


@pytest.mark.parametrize(("method", "settings"), SHARED, ids=[method for method, _ in SHARED])
def test_together_as_alone(method: str, settings: dict, tmp_path: Path):
    """Alone at the same width: each seed has its own split, so that clients differ in their numbers of steps."""
    together = planned(tmp_path / "together", method, **settings)
    notes = carried_out(together)
    (rows,) = set(rows_of(together))
    assert rows
    assert len(notes.said) == 1
    assert f"3 runs of {method} share steps of {rows} rows" == notes.said[0]
    assert notes.ended == dict.fromkeys(range(3), "finished")
    alone = planned(tmp_path / "alone", method, step_rows=rows, **settings)
    assert carried_out(alone, together=False).said == []
    assert_same_runs(together, alone)


def test_models_of_images_with_batchnorm_and_dropout(tmp_path: Path):
    def network(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        lower = [torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten()]
        return torch.nn.Sequential(*lower, torch.nn.Dropout(0.3), torch.nn.Linear(3 * 16, classes))

    g = torch.Generator().manual_seed(1)
    x, y = torch.randint(0, 256, (40, 1, 6, 6), generator=g, dtype=torch.uint8), torch.arange(40) % 3
    images = DataSet("toy", x, y, x[:9], y[:9], ("a", "b", "c"), (0.5,), (0.25,))
    made = []
    for name, shared in (("together", True), ("alone", False)):
        rows = {} if shared else {"step_rows": rows_of(made[0])[0]}
        tasks = planned(tmp_path / name, "prox(0.1)", 2, augment=True, rounds=2, model="network", **rows)
        executor = Executor(images, network)
        assert run_all(tasks, executor, together=shared)
        made.append(tasks)
    assert_same_runs(*made)


def test_learning_rates_share_steps_too(tmp_path: Path):
    def tasks(name: str, **settings: Any) -> list[PlannedRun]:
        (base,) = planned(tmp_path / name, seeds=1, **settings)
        changes = [{"lr": 0.1}, {"lr": 0.3}, {"lr": 0.3, "lr_decay": 0.5}, {"server_lr": 0.5}]
        return [
            PlannedRun(i, 0, "x", base.config.changed(**c), base.method, tmp_path / name / str(i))
            for i, c in enumerate(changes)
        ]

    together = tasks("together")
    assert "4 runs of x share steps" in carried_out(together).said[0]
    alone = tasks("alone", step_rows=rows_of(together)[0])
    carried_out(alone, together=False)
    assert_same_runs(together, alone)
    assert len({float(left_behind(t.folder)[0].popitem()[1].sum()) for t in together}) == 4


def test_rows_never_wait_while_a_client_does(tmp_path: Path, monkeypatch):
    """All rounds of all runs take as many steps as their work fills, or as their largest client takes."""
    taken: list[tuple[int, int, int, int]] = []
    train = RowPool._train

    def counted(pool: RowPool, step: Any, trainees: Any) -> None:
        steps, run = [s for some in trainees for s in some.steps], step.run
        count = [0]

        def once() -> None:
            count[0] += 1
            run()

        step.run = once
        train(pool, step, trainees)
        step.run = run
        taken.append((count[0], sum(steps), max(steps), pool.width))

    monkeypatch.setattr(RowPool, "_train", counted)
    carried_out(planned(tmp_path, rounds=2))
    assert len(taken) == 2, "the runs' rounds are trained together"
    for steps, work, longest, width in taken:
        assert steps == max(longest, -(-work // width))


@dataclass(frozen=True)
class Burst(Part):
    """Makes every update infinite in the second round of some runs: those in which client 0 has few samples."""

    name = "toy-burst"

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return torch.where((c.round == 2) & (c.lr > 0.5), float("inf"), g), {}


def test_a_run_that_diverges_leaves_the_others_alone(tmp_path: Path):
    def tasks(name: str, **settings: Any) -> list[PlannedRun]:
        made = planned(tmp_path / name, as_method(Burst()), **settings)
        hot = made[1]
        made[1] = PlannedRun(0, 0, hot.label, hot.config.changed(lr=1.0), hot.method, hot.folder)
        return made

    together = tasks("together")
    notes = carried_out(together)
    assert notes.done
    assert notes.ended == {0: "finished", 1: "diverged", 2: "finished"}
    assert together[1].state() == "diverged"
    alone = tasks("alone", step_rows=rows_of(together)[0])
    carried_out(alone, together=False)
    assert_same_runs(together, alone)


def test_a_run_that_fails_leaves_the_others_alone_and_is_reported(tmp_path: Path, monkeypatch):
    append = RunFolder.append

    def full(folder: RunFolder, record: RoundRecord) -> None:
        if folder.path.name == "1" and record.round == 2:
            raise OSError(28, "No space left on device")
        append(folder, record)

    monkeypatch.setattr(RunFolder, "append", full)
    tasks = planned(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        carried_out(tasks)
    assert [task.state() for task in tasks] == ["finished", "started", "finished"]
    monkeypatch.undo()
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    assert carried_out(tasks).done
    alone = planned(tmp_path / "alone", step_rows=rows_of(tasks)[0])
    carried_out(alone, together=False)
    assert_same_runs(tasks, alone)


def test_a_step_that_fails_fails_in_every_run(tmp_path: Path, monkeypatch):
    def no_memory(pool: RowPool, step: Any, trainees: Any) -> None:
        raise HoldfastError("the GPU is full")

    monkeypatch.setattr(RowPool, "_train", no_memory)
    tasks = planned(tmp_path)
    with pytest.raises(HoldfastError, match="the GPU is full"):
        carried_out(tasks)
    assert [task.state() for task in tasks] == ["started"] * 3


def test_stopping_ends_every_run_after_its_round_and_all_resume(tmp_path: Path):
    stops: Iterator[bool] = iter([False] * 3 + [True] * 99)
    tasks = planned(tmp_path / "stopped", rounds=4)
    notes = carried_out(tasks, stop=lambda: next(stops))
    assert not notes.done
    assert {task.kept() for task in tasks} == {2}
    assert carried_out(tasks).done
    whole = planned(tmp_path / "whole", rounds=4)
    carried_out(whole)
    assert_same_runs(tasks, whole)


def test_runs_of_a_batch_resume_alone_with_the_same_rows(tmp_path: Path):
    tasks = planned(tmp_path / "stopped", rounds=4)
    stops: Iterator[bool] = iter([False] * 3 + [True] * 99)
    carried_out(tasks, stop=lambda: next(stops))
    assert carried_out(tasks, together=False).done
    whole = planned(tmp_path / "whole", rounds=4)
    carried_out(whole)
    assert_same_runs(tasks, whole)


def test_runs_that_cannot_share_run_alone_and_it_is_said_why(tmp_path: Path):
    noisy = planned(tmp_path / "noise", seeds=2, split="iid+noise(0.5)", rounds=1)
    assert carried_out(noisy).said == ["scaffold+clip(1), seed 1 runs alone: it has other feature noise"]
    loop = planned(tmp_path / "loop", seeds=2, compile=False, rounds=1)
    assert carried_out(loop).said == [
        f"scaffold+clip(1), seed {seed} runs alone: its steps are not captured" for seed in range(2)
    ]
    lies = planned(tmp_path / "lies", "fedavg", seeds=2, attack="label_flip(0.5)", rounds=1)
    assert carried_out(lies).said == ["fedavg, seed 1 runs alone: it has other samples"]
    public = planned(tmp_path / "public", "fedavg", seeds=2, public=0.2, rounds=1)
    assert carried_out(public).said == ["fedavg, seed 1 runs alone: it has other public data"]
    for tasks in (noisy, loop, lies, public):
        assert {task.state() for task in tasks} == {"finished"}


def test_what_may_be_a_batch():
    tasks = planned(Path("x"), seeds=3)
    assert batches(tasks, None) == [[task] for task in tasks], "on a CPU only on request"
    assert batches(tasks, False) == [[task] for task in tasks]
    assert batches(tasks, True) == [tasks]
    other = planned(Path("y"), "fedavg", seeds=2)
    mixed = [tasks[0], other[0], tasks[1], other[1]]
    assert batches(mixed, True) == [[tasks[0], tasks[1]], [other[0], other[1]]]
    assert [len(group) for group in batches(planned(Path("z"), seeds=10), True)] == [8, 2]
    (longer,) = planned(Path("z"), seeds=1, rounds=9)
    assert batches([tasks[0], longer], True) == [[tasks[0]], [longer]]
    assert [len(group) for group in batches(planned(Path("z"), seeds=4), True, jobs=2)] == [2, 2]


def test_processes_share_steps_too(tmp_path: Path):
    tasks = planned(tmp_path / "jobs", "fedavg", seeds=2, rounds=2)
    notes = Notes()
    assert ProcessPool(1, Uncompiled(toy()), light=False, together=True).run(tasks, notes, lambda: False)
    rows = rows_of(tasks)
    assert notes.said == [f"2 runs of fedavg share steps of {rows[0]} rows"]
    assert notes.ended == dict.fromkeys(range(2), "finished")
    assert set(notes.rounds) == {(seed, t) for seed in range(2) for t in (1, 2)}
    alone = [
        PlannedRun(0, 0, t.label, t.config.changed(step_rows=width), t.method, tmp_path / "alone" / t.folder.name)
        for t, width in zip(tasks, rows, strict=True)
    ]
    carried_out(alone, together=False)
    assert_same_runs(tasks, alone)


KILLED = """
import sys, torch, torch._inductor
sys.path.insert(0, "tests")
torch._inductor.compile = lambda traced, inputs, **_: traced
from pathlib import Path
from helpers.shared_steps import carried_out, planned
carried_out(planned(Path(sys.argv[1]), rounds=25))
"""


def test_a_batch_that_was_killed_resumes_to_the_same_result(tmp_path: Path):
    killed = tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(killed)], cwd=ROOT, env=environment)
    checkpoint = killed / "2" / "checkpoint" / "round-000003.json"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    tasks = planned(killed, rounds=25)
    assert {task.state() for task in tasks} == {"started"}
    assert carried_out(tasks).done
    whole = planned(tmp_path / "whole", rounds=25)
    carried_out(whole)
    assert_same_runs(tasks, whole)


def test_compare_takes_the_flag(tmp_path: Path):
    settings = {name: value for name, value in SETTINGS.items() if name != "data"}
    made = {
        together: holdfast.compare(
            ["fedavg", "fedavgm"], toy(), seeds=2, together=together, out=tmp_path / str(together), **settings
        )
        for together in (True, False)
    }
    configs = [json.dumps((tmp_path / str(t) / "fedavg" / "seed-0" / "config.toml").read_text()) for t in made]
    assert "step_rows" in configs[0]
    means = [[e["final"] if "final" in e else e["scores"] for e in result.entries] for result in made.values()]
    assert means[0] == means[1]

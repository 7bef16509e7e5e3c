"""Points of a sweep that differ in numbers of parts share the steps of one batch, and are what they are alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor
from torch import Tensor

from helpers.places import ROOT
from helpers.shared_steps import assert_same_runs, carried_out, left_behind, planned, rows_of
from helpers.toys import assert_close
from holdfast import Client, Part, Tensors, param
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.together import batches
from holdfast.engines.row_step import RowStep
from holdfast.method.hook_checks import HookError
from holdfast.method.method import as_method
from holdfast.method.part import parts
from holdfast.method.step_numbers import in_steps, step_numbers


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traced step runs as it was traced: compiling it takes long and is tested elsewhere."""
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)


def points(folder: Path, methods: list[str] | list[Part], seeds: int = 1, **settings: Any) -> list[PlannedRun]:
    """Return the runs of a sweep, point by point."""
    made = [planned(folder / str(i), method, seeds, **settings) for i, method in enumerate(map(as_method, methods))]
    return [task for tasks in made for task in tasks]


def model(task: PlannedRun) -> Tensor:
    """Return the last model of a run."""
    (found,) = [t for name, t in left_behind(task.folder)[0].items() if name.endswith("/model")]
    return found


SWEEPS = [
    (["prox(0.01)", "prox(0.5)", "prox(0)"], {}),
    (["fedbug(0.4)+feddyn(0.01)", "fedbug(0.4)+feddyn(0.2)"], {"precision": "fp32", "epochs": 1}),
    (["fedcm(0.1)+decay(0.1)", "fedcm(0.9)+decay(0.1)", "fedcm(0.9)+decay(0)"], {"participation": 0.7, "cohort": None}),
    (["moon(1)+sam(0.05)+momentum(0.5, keep=true)", "moon(2, T=2)+sam(0.5)+momentum(0.1, keep=true)"], {}),
    (["fednlr(a1=1)+adamw(decay=0.1)", "fednlr(a1=2)+adamw(decay=0.4)"], {"epochs": "1-3", "model": "mlp"}),
    (["fedavgm(0.9)", "fedavgm(0.1)"], {}),
    (["smoo(0.1)+feddecorr(0.1)+fedlc(1)", "smoo(0.2)+feddecorr(0.4, eps=0.1)+fedlc(0.5)"], {"model": "mlp"}),
    (["hyperbolic(0.1, sigma=10)+fedrs(0.5)", "hyperbolic(1, sigma=20, beta=2)+fedrs(0.9)"], {"model": "mlp"}),
    (["fedgen(alpha=1, steps=2)", "fedgen(alpha=2, decay=0.5, eta=0.1, steps=2)"], {"model": "mlp"}),
    (["fedagg(alpha=0.1)+prox(0.5)", "fedagg(alpha=0.1)+prox(0.1)"], {"lr": 0.1}),
    (["fnr(weight=0.01)+prox(0.5)", "fnr(weight=1)+prox(0.1)"], {"cohort": 5, "public": 0.2, "model": "mlp"}),
]


@pytest.mark.parametrize(("methods", "settings"), SWEEPS, ids=[methods[0] for methods, _ in SWEEPS])
def test_points_of_a_sweep_share_one_step(methods: list[str], settings: dict, tmp_path: Path, monkeypatch):
    """Bit for bit what they are alone at the same width, and to rounding what the loop computes with plain numbers."""
    traced: list[RowStep] = []
    set_up = RowStep.__init__

    def counted(step: RowStep, *args: Any) -> None:
        if args[0].trip == 0:
            traced.append(step)
        set_up(step, *args)

    monkeypatch.setattr(RowStep, "__init__", counted)
    settings = {"split_seed": 0, "rounds": 2} | settings
    together = points(tmp_path / "together", methods, **settings)
    notes = carried_out(together)
    steps, traced[:] = len(traced), []
    (rows,) = set(rows_of(together))
    labels = ", ".join(task.label for task in together)
    assert notes.said == [f"{len(methods)} runs of {labels} share steps of {rows} rows"]
    alone = points(tmp_path / "alone", methods, step_rows=rows, **settings)[-1:]
    assert carried_out(alone, together=False).said == []
    assert len(traced) == steps, "as many as one run traces: a message that the first round lacks makes another"
    assert_same_runs(together[-1:], alone)
    loop = points(tmp_path / "loop", methods, **settings | {"engine": "loop", "compile": False})
    carried_out(loop, together=False)
    for one, other in zip(together, loop, strict=True):
        found, expected = ({"w": model(task)} for task in (one, other))
        assert_close(found, expected, 1e-9 if settings.get("precision") != "fp32" else 1e-4)
    for one, other in combinations(together, 2):
        assert not torch.allclose(model(one), model(other), rtol=1e-5, atol=1e-8), "the numbers had no effect"


def test_settings_that_stand_for_parts_are_swept_too(tmp_path: Path):
    ways = [{"weight_decay": 0.1}, {"weight_decay": 0.5}, {"weight_decay": 0.0}]
    ways += [{"optimizer": f"adamw(decay={decay})"} for decay in (0.0, 0.3)]

    def tasks(name: str, **settings: Any) -> list[PlannedRun]:
        return [
            task for i, way in enumerate(ways)
            for task in planned(tmp_path / name / str(i), "fedavg", 1, rounds=1, **(settings | way))
        ]  # fmt: skip

    together = tasks("together")
    assert [len(group) for group in batches(together, True)] == [2, 1, 2], "without decay there is no such part"
    carried_out(together)
    alone = [with_rows(task, rows) for task, rows in zip(tasks("alone"), rows_of(together), strict=True)]
    carried_out(alone, together=False)
    assert_same_runs(together, alone)
    assert len({float(model(task).sum()) for task in together}) == len(ways)


def with_rows(task: PlannedRun, rows: int | None) -> PlannedRun:
    return replace(task, config=task.config.changed(step_rows=rows))


@pytest.mark.parametrize(
    "methods",
    [
        ["fedbug(0.2)", "fedbug(0.4)"],  # decides by the share in Python
        ["feddyn(samples=5)", "feddyn(samples=9)"],
        ["clip(1)", "clip(2)"],
        ["momentum(0.5)", "momentum(0.5, nesterov=true)"],
        ["fedagg(max_rate=0.4)", "fedagg(max_rate=none)"],
        ["finetune(eta=0.1)", "finetune(at=server, eta=0.1)"],
        ["prox(0.1)+decay(0.1)", "decay(0.1)+prox(0.1)"],
    ],
)
def test_what_is_built_into_a_step_separates_runs(methods: list[str]):
    """Seeds of a point still share steps with each other."""
    tasks = points(Path("x"), methods, seeds=2)
    assert batches(tasks, True) == [tasks[:2], tasks[2:]]


def test_seeds_and_points_are_one_batch():
    tasks = points(Path("x"), ["prox(0.1)", "prox(0.2)", "prox(0.3)"], seeds=2)
    assert batches(tasks, True) == [tasks]


# -- which numbers are inputs --------------------
def with_undeclared_numbers() -> list[str]:
    """Return the parts that steps call and that have numbers which no step takes as an input."""
    made = [cls() for cls in parts().values() if cls.__module__.startswith("holdfast.")]
    numbers = {
        p.name: {n for n, v in vars(p).items() if isinstance(v, float)} - {*step_numbers(p)}
        for p in made
        if in_steps(p)
    }
    return sorted(name for name, found in numbers.items() if found)


def test_parts_that_decide_by_a_number():
    """A new part that steps call declares its numbers, or stands here."""
    assert with_undeclared_numbers() == ["adam", "adamw", "clip", "fedagg", "fedbug", "feddyn", "fedgen"]


@dataclass(frozen=True)
class Branches(Part):
    """Says that its number is an input of steps, and decides by it."""

    name = "toy-branches"
    pull: float = param(0.1, "strength", search="a toy", step_input=True)

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return (g + self.pull * w if self.pull else g), {}


@dataclass(frozen=True)
class Pulls(Part):
    """A user's part with a number that is an input."""

    name = "toy-pulls"
    pull: float = param(0.1, "strength", search="a toy", step_input=True)

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        return g + self.pull * w, {}


def test_parts_of_users(tmp_path: Path):
    mine = points(tmp_path / "mine", [Pulls(0.1), Pulls(0.4)])
    assert len(carried_out(mine).said) == 1
    theirs = points(tmp_path / "theirs", ["decay(0.1)", "decay(0.4)"])
    carried_out(theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(model(one), model(other))
    with pytest.raises(HookError) as raised:
        carried_out(points(tmp_path / "wrong", [Branches()]))
    assert str(raised.value).partition(" (")[0] == (
        "part toy-branches, hook direction: it decides by the value of a tensor, which differs between clients: "
        "use torch.where"
    )


# -- kill and resume --------------------
KILLED = """
import sys, torch, torch._inductor
sys.path.insert(0, "tests")
torch._inductor.compile = lambda traced, inputs, **_: traced
from pathlib import Path
from comparison.test_together_sweeps import points
from helpers.shared_steps import carried_out
carried_out(points(Path(sys.argv[1]), ["feddyn(0.01)+prox(0.1)", "feddyn(0.3)+prox(0.2)"], rounds=25))
"""


def test_a_sweep_that_was_killed_resumes_to_the_same_result(tmp_path: Path):
    methods, killed = ["feddyn(0.01)+prox(0.1)", "feddyn(0.3)+prox(0.2)"], tmp_path / "killed"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(killed)], cwd=ROOT, env=environment)
    checkpoint = killed / "1" / "0" / "checkpoint" / "round-000003.json"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    tasks = points(killed, methods, rounds=25)
    assert {task.state() for task in tasks} == {"started"}
    assert carried_out(tasks).done
    whole = points(tmp_path / "whole", methods, rounds=25)
    carried_out(whole)
    assert_same_runs(tasks, whole)

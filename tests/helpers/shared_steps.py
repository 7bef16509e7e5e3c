"""Runs that are to share steps, carried out on the CPU, and what they leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holdfast import DataSet
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.runner import run_all
from holdfast.method.config import Config
from holdfast.method.method import Method, as_method
from holdfast.runs.folder import RunFolder
from holdfast.runs.history import read_history
from holdfast.training.round_record import RoundRecord

SETTINGS: dict[str, Any] = {
    "data": "toy", "model": "linear", "clients": 5, "cohort": 4, "rounds": 3, "epochs": 2, "batch": 4, "compile": True,
    "engine": "vector", "device": "cpu", "precision": "fp64", "split": "dirichlet(0.5)",
}  # fmt: skip


def toy(n: int = 60) -> DataSet:
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(n, 6, generator=g), torch.arange(n) % 3
    return DataSet("toy", x, y, x[:9], y[:9], ("a", "b", "c"))


class Notes(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended: dict[int, str] = {}
        self.rounds: list[tuple[int, int]] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def round(self, task: PlannedRun, record: RoundRecord) -> None:
        self.rounds.append((task.config.seed, record.round))

    def end(self, task: PlannedRun, state: str, why: str) -> None:
        self.ended[task.config.seed] = state


def planned(
    folder: Path, method: str | Method = "scaffold+clip(1)", seeds: int = 3, **settings: Any
) -> list[PlannedRun]:
    made = as_method(method)
    config = Config(method=str(made), **(SETTINGS | settings))
    return [PlannedRun(0, 0, str(method), config.changed(seed=seed), made, folder / str(seed)) for seed in range(seeds)]


def carried_out(tasks: list[PlannedRun], data: DataSet | None = None, together: bool = True, **more: Any) -> Notes:
    notes = Notes()
    notes.done = run_all(tasks, Executor(data or toy()), watch=notes, together=together, **more)  # type: ignore[attr-defined]
    return notes


def left_behind(folder: Path) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Return all tensors of a run's newest checkpoint, and its history without the clock."""
    from safetensors.torch import load_file

    newest = max(path.stem for path in (folder / "checkpoint").glob("round-*.json"))
    files = sorted((folder / "checkpoint").glob(f"*{newest.removeprefix('round-')}*.safetensors"))
    assert files
    tensors = {f"{file.name}/{name}": t for file in files for name, t in load_file(file).items()}
    history = [
        vars(r) | {"seconds": 0} for r in read_history(folder / "history.jsonl", int(newest.removeprefix("round-")))
    ]
    return tensors, history


def assert_same_runs(one: list[PlannedRun], other: list[PlannedRun]) -> None:
    for a, b in zip(one, other, strict=True):
        (mine, my_history), (theirs, their_history) = left_behind(a.folder), left_behind(b.folder)
        assert mine.keys() == theirs.keys()
        for name, tensor in mine.items():
            assert torch.equal(tensor, theirs[name]), (a.config.seed, name)
        assert my_history == their_history


def rows_of(tasks: list[PlannedRun]) -> list[int | None]:
    return [RunFolder(task.folder).stored().step_rows for task in tasks]

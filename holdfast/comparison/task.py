"""One run of many: what it is, where it is kept, and how it is carried out."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.data.sources import load
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.runs.folder import CONFIG, DIVERGED, SUMMARY, RunFolder
from holdfast.runs.provenance import made_here
from holdfast.runs.run import carry_out
from holdfast.runs.run_options import RunOptions
from holdfast.runs.setup import check_together, deal, pick_device
from holdfast.training.round import Diverged
from holdfast.training.round_record import RoundRecord

# Settings in which a run on disk may differ from the task that finishes it.
FREE = ("data_dir", "checkpoint_every", "compile", "workers", "states", "track")
DEALT = ("data", "data_dir", "split", "clients", "seed", "public", "augment")  # settings that decide the federation


@dataclass(frozen=True)
class Task:
    """One run of many, in a folder of its own; ``row`` is its line in the live table, ``beside`` its reference's."""

    row: int
    beside: int
    label: str
    config: Config
    method: Method
    folder: Path

    def state(self) -> str:
        """``finished``, ``diverged``, ``begun`` or ``new``; an error where the folder holds another run."""
        if not (self.folder / CONFIG).exists():
            return "new"
        stored = RunFolder(self.folder).stored()
        same = {name: getattr(stored, name) for name in FREE}
        for name, value in vars(replace(self.config, **same)).items():
            if value != getattr(stored, name):
                raise HoldfastError(
                    f"{self.folder} holds another run, with {name} = {getattr(stored, name)}, not {value}: choose "
                    "another --out, or add --overwrite"
                )
        if (self.folder / SUMMARY).exists():
            return "finished"
        return "diverged" if (self.folder / DIVERGED).exists() else "begun"

    def kept(self) -> int:
        """The last round in its checkpoints; 0 where it has to begin anew."""
        names = [path.stem.removeprefix("round-") for path in RunFolder(self.folder).checkpoint.glob("round-*.json")]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def summary(self) -> dict[str, Any]:
        """What a finished run found."""
        return read_summary(self.folder)


def read_summary(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HoldfastError(f"{folder / SUMMARY} cannot be read: delete that folder to run it again") from error
    return found


def make_room() -> None:
    """Give back what a run leaves on a GPU, above all its captured and compiled steps, before the next one begins."""
    if torch.cuda.is_available():
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()


@dataclass
class Executor:
    """Carries out tasks one after the other; each data set is loaded once, and a federation dealt once for its runs."""

    data: DataSet | None = None  # the user's own, instead of those that configs name
    model: nn.Module | None = None
    loaded: dict[tuple[str, str | None], DataSet] = field(default_factory=dict)
    dealt: dict[tuple[Any, ...], Federation] = field(default_factory=dict)

    def federation(self, config: Config) -> Federation:
        key = tuple(getattr(config, name) for name in DEALT)
        if key not in self.dealt:
            self.dealt = {key: deal(config, self._data(config))}
        return self.dealt[key]

    def check(self, task: Task) -> None:
        """Find whatever is wrong with a task before anything runs."""
        check_together(task.config, task.method, self.federation(task.config), self.model)

    def run(
        self, task: Task, on_round: Callable[[RoundRecord], None], stop: Callable[[], bool], light: bool = False
    ) -> tuple[str, str]:
        """Start a run or go on with it. How it ended: ``finished``, ``stopped`` or ``diverged``, and why.

        With ``light`` the checkpoint of a finished run is deleted.
        """
        folder = RunFolder(task.folder)
        resume = task.state() == "begun" and task.kept() > 0
        fed = self.federation(task.config)
        try:
            options = RunOptions(folder, resume, not resume, on_round=on_round, stop=stop)
            result = carry_out(task.config, task.method, fed, self.model, options)
        except Diverged as error:
            folder.give_up(str(error), made_here(pick_device(task.config.device)))
            return "diverged", str(error)
        finally:
            make_room()
        if len(result.history) < task.config.rounds:
            return "stopped", ""
        if light:
            shutil.rmtree(folder.checkpoint, ignore_errors=True)
        return "finished", ""

    def _data(self, config: Config) -> DataSet:
        if self.data is not None:
            return self.data
        key = (config.data, config.data_dir)
        if key not in self.loaded:
            self.loaded[key] = load(config.data, config.data_dir)
        return self.loaded[key]

"""Carries out tasks one after the other, sharing data sets and federations between them."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from holdfast.comparison.planned_run import PlannedRun
from holdfast.core.devices import pick_device
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.data.sources import load
from holdfast.method.config import Config, with_role
from holdfast.models.factories import Factory
from holdfast.runs.code_files import located
from holdfast.runs.folder import RunFolder
from holdfast.runs.provenance import made_here
from holdfast.runs.run import carry_out
from holdfast.runs.run_options import RunOptions
from holdfast.runs.setup import MakeTrainer, check_together, deal
from holdfast.training.round import Diverged
from holdfast.training.round_record import RoundRecord


@dataclass
class Executor:
    """Runs tasks; each data set is loaded once, and a federation is dealt once for consecutive runs that share it.

    Attributes:
        data: A data set from Python, used instead of the one that configs name.
        model: A model from Python, or what makes it, used instead of the one that configs name.
        given: A federation from Python, used instead of dealing one.
        loaded: Data sets by name and folder.
        dealt: The last federation, by the settings that decide it.
    """

    data: DataSet | None = None
    model: nn.Module | Factory | None = None
    given: Federation | None = None
    loaded: dict[tuple[str, str | None], DataSet] = field(default_factory=dict)
    dealt: dict[tuple[Any, ...], Federation] = field(default_factory=dict)

    def federation(self, config: Config) -> Federation:
        """Return the federation of a config."""
        if self.given is not None:
            return self.given
        decisive = [name for name in with_role("federation") if name not in ("seed", "split_seed")]
        key = (config.deal_seed, *(getattr(config, name) for name in decisive))
        if key not in self.dealt:
            self.dealt = {key: deal(config, self.data_of(config))}
        return self.dealt[key]

    def check(self, task: PlannedRun) -> None:
        """Raise an error for anything wrong with a task before any task runs."""
        check_together(task.config, task.method, self.federation(task.config), self.model)

    def run(
        self, task: PlannedRun, on_round: Callable[[RoundRecord], None], stop: Callable[[], bool], light: bool = False
    ) -> tuple[str, str]:
        """Start or resume a run.

        Args:
            task: What to run.
            on_round: Called after every round.
            stop: Asked after every round whether to stop.
            light: Delete the checkpoint once the run is finished.

        Returns:
            How it ended, ``finished``, ``paused``, ``stopped`` or ``diverged``, and the reason.
        """
        try:
            return self.carry_out(task, on_round, stop, light)
        finally:
            free_gpu_memory()

    def carry_out(
        self,
        task: PlannedRun,
        on_round: Callable[[RoundRecord], None],
        stop: Callable[[], bool],
        light: bool = False,
        make_trainer: MakeTrainer | None = None,
    ) -> tuple[str, str]:
        """Do the same and leave the GPU's memory as it is.

        Args:
            task: What to run.
            on_round: Called after every round.
            stop: Asked after every round whether to stop.
            light: Delete the checkpoint once the run is finished.
            make_trainer: Makes what trains the clients; by default it follows from the engine.

        Returns:
            How it ended, and the reason.
        """
        folder = RunFolder(task.folder)
        resume = resumes(task)
        federation = self.federation(task.config)
        config = task.config.changed(step_rows=rows_of(task))
        try:
            options = RunOptions(folder, resume, not resume, on_round=on_round, stop=stop, until=task.until)
            result = carry_out(config, task.method, federation, self.model, options, make_trainer)
        except Diverged as error:
            folder.give_up(str(error), made_here(pick_device(task.config.device), federation.data.checksum))
            return "diverged", str(error)
        if not result.finished:
            return "paused" if task.until is not None and len(result.history) >= task.until else "stopped", ""
        if light:
            shutil.rmtree(folder.checkpoint, ignore_errors=True)
        return "finished", ""

    def data_of(self, config: Config) -> DataSet:
        """Return the data set of a config."""
        if self.data is not None:
            return self.data
        key = (config.data, config.data_dir)
        if key not in self.loaded:
            self.loaded[key] = load(located(config).data, config.data_dir)
        return self.loaded[key]


def resumes(task: PlannedRun) -> bool:
    """Tell whether a run continues from a checkpoint."""
    return task.state() == "started" and task.kept() > 0


def rows_of(task: PlannedRun) -> int | None:
    """Return how many rows a traced step of a run has, if that is decided: a run that is resumed keeps its number."""
    return RunFolder(task.folder).stored().step_rows if resumes(task) else task.config.step_rows


def free_gpu_memory() -> None:
    """Release what a run leaves on a GPU, above all captured and compiled steps, before the next one starts."""
    if torch.cuda.is_available():
        gc.collect()
        torch.compiler.reset()
        torch.cuda.empty_cache()

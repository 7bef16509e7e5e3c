"""How a run is carried out, as opposed to what it computes: its folder, and who is told about its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.runs.checkpoint_writer import CheckpointWriter
from holdfast.runs.folder import RunFolder
from holdfast.training.round import Trainer
from holdfast.training.round_record import RoundRecord


@dataclass(frozen=True)
class RunOptions:
    """Where a run is kept and who follows it.

    Attributes:
        folder: The run's folder, or None if it is not kept.
        resume: Whether to resume the run in the folder.
        overwrite: Whether to replace a run in the folder.
        on_start: Called before the first round with the trainer and the number of rounds already done.
        on_round: Called after every round with its record.
        stop: Asked after every round; True ends the run, which can be resumed.
        until: The round after which the run pauses, to be resumed later; None if it is not to pause.
        writer: Makes what writes the checkpoints.
    """

    folder: RunFolder | None = None
    resume: bool = False
    overwrite: bool = False
    on_start: Callable[[Trainer, int], None] = lambda trainer, done: None
    on_round: Callable[[RoundRecord], None] = lambda record: None
    stop: Callable[[], bool] = lambda: False
    until: int | None = None
    writer: Callable[[], CheckpointWriter] = lambda: CheckpointWriter()

    def __post_init__(self) -> None:
        if self.resume and self.folder is None:
            raise HoldfastError("resume needs the folder of the run: set out")

    @property
    def path(self) -> Path | None:
        return None if self.folder is None else self.folder.path

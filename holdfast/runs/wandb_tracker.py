"""Weights & Biases: a run of ours is a run there, and a comparison is a group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config

WANDB = "wandb"  # the name of the tracker, of its package, and of its folder in a run
RUN_ID = "run_id"


class WandbTracker:
    """Metrics of one W&B run, named after the folder; its config are the settings.

    ``WANDB_MODE=offline`` keeps everything in the run's folder, to be sent with ``wandb sync``.
    """

    def __init__(self, config: Config, folder: Path, done: int, group: tuple[str, str] | None) -> None:
        """Start the run there, or go on with it.

        Args:
            config: The run.
            folder: Its folder.
            done: The rounds already done.
            group: The names of the comparison and of the entry that the run belongs to, if any.
        """
        self.wandb: Any = import_module(WANDB)
        home = folder / WANDB
        home.mkdir(exist_ok=True)
        kept = home / RUN_ID
        known = kept.read_text(encoding="utf-8").strip() if done and kept.exists() else None
        study, entry = group or (None, None)
        with self._answering():
            self.run = self.wandb.init(
                project=os.environ.get("WANDB_PROJECT", "holdfast"), name=folder.name, dir=folder, id=known,
                resume="allow" if known else None, group=study, job_type=entry, tags=[entry] if entry else None,
                config=config.set_values(), settings=self.wandb.Settings(silent=True, console="off"),
            )  # fmt: skip
        kept.write_text(self.run.id + "\n", encoding="utf-8")

    def log(self, round: int, figures: dict[str, float]) -> None:
        with self._answering():
            self.run.log(figures, step=round)

    def close(self, finished: bool) -> None:
        with self._answering():
            self.run.finish(exit_code=0 if finished else 1)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except self.wandb.Error as error:
            what = " ".join(str(error).split()).partition(". ")[0][:200]
            raise HoldfastError(
                f"wandb failed: {what}; fix it, set WANDB_MODE=offline, or resume without tracking: --resume --set "
                "track=none"
            ) from error

"""Trackers: the figures of every round, logged live for TensorBoard, MLflow or W&B with ``--track``.

TensorBoard's event files are in ``tensorboard/`` of the run. MLflow gets a small database in ``mlflow/`` of the run, or
the user's own server if a tracking URI is set. W&B has a file of its own, ``wandb_tracker.py``. Tracking changes no
number: a resumed run may continue with its tracker, start tracking or stop tracking.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.runs.wandb_tracker import WANDB, WandbTracker
from holdfast.training.round_record import RoundRecord

TENSORBOARD, MLFLOW = "tensorboard", "mlflow"  # the names of the trackers, and of their folders in a run
NEEDS = {TENSORBOARD: ("tensorboard",), MLFLOW: ("mlflow", "sqlalchemy", "alembic"), WANDB: (WANDB,)}
FIGURES = ("train_loss", "seconds", "upload_bytes", "download_bytes")
GROUPS = ("validation", "clients", "drift")  # figures by name
MEMBERS = (  # the places of runs that belong together: in a race, a search, a comparison
    re.compile(r"/(?P<study>[^/]+)/runs/(?P<entry>[^/]+)/rounds-\d+-seed-\d+$"),
    re.compile(r"/(?P<study>[^/]+)/(?P<entry>[^/]+)/best/seed-\d+$"),
    re.compile(r"/(?P<study>[^/]+)/(?P<entry>[^/]+)/(seed|trial)-\d+$"),
)
OWN_STORE, RUN_ID, ARTIFACTS = "mlflow.db", "run_id", "artifacts"


class Tracker(Protocol):
    """Receives the figures of every round."""

    def log(self, round: int, figures: dict[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


def figures(record: RoundRecord) -> dict[str, float]:
    """Return what is logged for a round: numbers, scores such as ``test_accuracy``, and drift."""
    known = {name: getattr(record, name) for name in FIGURES}
    scores = {f"test_{name}": value for name, value in record.test.items()}
    groups = {f"{kind}/{name}": v for kind in GROUPS for name, v in getattr(record, kind).items()}
    return {name: float(value) for name, value in (scores | known | groups).items() if value is not None}


def require(config: Config, folder: Path | None) -> None:
    """Raise an error before anything starts if the run cannot be tracked."""
    if config.track is None:
        return
    if folder is None:
        raise HoldfastError(f"track={config.track} needs the folder of the run: set out")
    lacking = [name for name in NEEDS[config.track] if find_spec(name) is None]
    if lacking:
        raise HoldfastError(
            f"--track {config.track} needs the package {lacking[0]}: pip install 'holdfast[{config.track}]'"
        )


@contextmanager
def tracked(
    config: Config, folder: Path | None, done: int, on_round: Callable[[RoundRecord], None]
) -> Iterator[Callable[[RoundRecord], None]]:
    """Log every round within this block.

    Args:
        config: The run; it names the tracker.
        folder: The run's folder.
        done: The rounds already done.
        on_round: Called with every record after it is logged.

    Returns:
        The function to call with every record. The tracker is closed at the end.
    """
    if config.track is None or folder is None or done >= config.rounds:
        yield on_round
        return
    tracker = start_tracker(config, folder, done)
    last = done

    def both(record: RoundRecord) -> None:
        nonlocal last
        last = record.round
        tracker.log(record.round, figures(record))
        on_round(record)

    try:
        yield both
    finally:
        tracker.close(last >= config.rounds)


def start_tracker(config: Config, folder: Path, done: int) -> Tracker:
    """Start the tracker that a config names.

    Args:
        config: The run.
        folder: Its folder.
        done: The rounds already done.

    Returns:
        The tracker.
    """
    if config.track == TENSORBOARD:
        return TensorBoard(folder, done)
    kind = MLflow if config.track == MLFLOW else WandbTracker
    return kind(config, folder, done, group_of(folder))


def group_of(folder: Path) -> tuple[str, str] | None:
    """Return the names of the comparison, search or race and of the entry that a run belongs to, by its place.

    >>> group_of(Path("skewed/fedbug-0.4/seed-1")), group_of(Path("runs/a"))
    (('skewed', 'fedbug-0.4'), None)
    >>> group_of(Path("tuned/prox/trial-007")), group_of(Path("tuned/prox/best/seed-1"))
    (('tuned', 'prox'), ('tuned', 'prox'))
    >>> group_of(Path("race/runs/scaffold-lr-0.3/rounds-10-seed-0"))
    ('race', 'scaffold-lr-0.3')
    """
    for pattern in MEMBERS:
        found = pattern.search(folder.absolute().as_posix())
        if found:
            return found["study"], found["entry"]
    return None


class TensorBoard:
    """Scalars in event files, in fp32. On resume, what was logged after the checkpoint is purged."""

    def __init__(self, folder: Path, done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=done + 1 if done else None)

    def log(self, round: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def close(self, finished: bool) -> None:
        self.writer.close()


class MLflow:
    """Metrics of one MLflow run, named after the folder; its parameters are the settings, its tags the comparison."""

    def __init__(self, config: Config, folder: Path, done: int, group: tuple[str, str] | None) -> None:
        """Start the run there, or go on with it.

        Args:
            config: The run.
            folder: Its folder.
            done: The rounds already done.
            group: The names of the comparison and of the entry that the run belongs to, if any.
        """
        self.mlflow: Any = import_module("mlflow")
        home = folder / MLFLOW
        home.mkdir(exist_ok=True)
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it reports every table it creates
        users = self.mlflow.is_tracking_uri_set()
        self.uri = self.mlflow.get_tracking_uri() if users else own_store(home)
        with self._answering():
            self.client = self.mlflow.MlflowClient(self.uri)
            self.run = self._begin(config, home, done)
            for tag, name in zip(("comparison", "entry"), group or (), strict=False):
                self.client.set_tag(self.run, tag, name)

    def _begin(self, config: Config, home: Path, done: int) -> str:
        """Return the id of a new run with the settings as its parameters, or of the one that a resumed run had."""
        kept = home / RUN_ID
        if done and kept.exists():
            known = kept.read_text(encoding="utf-8").strip()
            self.client.update_run(known, status="RUNNING")
            return known
        run: str = self.client.create_run(self._experiment(home), run_name=home.parent.name).info.run_id
        kept.write_text(run + "\n", encoding="utf-8")
        for name, value in asdict(config).items():
            if value is not None:
                self.client.log_param(run, name, value)
        return run

    def _experiment(self, home: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "holdfast")
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            known: str = found.experiment_id
            return known
        made: str = self.client.create_experiment(name, artifact_location=(home / ARTIFACTS).resolve().as_uri())
        return made

    def log(self, round: int, figures: dict[str, float]) -> None:
        make, now = self.mlflow.entities.Metric, int(1000 * time.time())
        with self._answering():
            self.client.log_batch(self.run, [make(name, value, now, round) for name, value in figures.items()])

    def close(self, finished: bool) -> None:
        with self._answering():
            self.client.set_terminated(self.run, "FINISHED" if finished else "KILLED")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except self.mlflow.MlflowException as error:
            what = " ".join(str(error).split()).partition(". ")[0][:200]
            raise HoldfastError(
                f"MLflow at {self.uri} failed: {what}; fix it, or resume without tracking: --resume --set track=none"
            ) from error


def own_store(home: Path) -> str:
    """Return the address of the run's own database."""
    return f"sqlite:///{(home / OWN_STORE).resolve()}"

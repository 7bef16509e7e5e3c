"""The loop over rounds: play a round, evaluate, record, keep a checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import load
from holdfast.method.config import Config
from holdfast.method.method import Method, as_method
from holdfast.method.part import Part
from holdfast.models.net import Net
from holdfast.models.zoo import make
from holdfast.parts.clip import Clip
from holdfast.parts.decay import Decay
from holdfast.runs import checkpoint
from holdfast.runs.folder import RunFolder, same_run
from holdfast.runs.history import Record, summarize
from holdfast.runs.provenance import commit, made_here
from holdfast.runs.trackers import require, tracked
from holdfast.training.metrics import Score, evaluate
from holdfast.training.personal import TUNED, personalise
from holdfast.training.round import Trainer
from holdfast.training.simulation import Simulation

Player = Callable[[Config, Method, Federation, Net], Trainer]  # makes whoever plays the rounds


@dataclass(frozen=True)
class Result:
    """What a run leaves behind: its config, a record per round, a summary, and the model."""

    config: Config
    history: list[Record]
    summary: dict[str, Any]
    net: Net
    w: Tensor  # the served model as a vector
    score: Score | None  # of the last evaluation

    def state_dict(self) -> dict[str, Tensor]:
        """The served model's parameters, to be loaded into the module that was trained."""
        buffers = {name: b.clone() for name, b in self.net.body.named_buffers()}
        return buffers | {name: p.clone() for name, p in self.net.layout.split(self.w).items()}


def run(
    sum: str | Part | Method | None = None,
    federation: Federation | None = None,
    model: nn.Module | str | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_start: Callable[[Trainer, int], None] = lambda play, done: None,
    on_round: Callable[[Record], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
    player: Player = Simulation,
    **settings: Any,
) -> Result:
    """Train a federation with a method, by default FedAvg; ``settings`` are the fields of ``Config``.

    ``federation`` and ``model`` stand in for the settings data, split, clients and model; a model may be a name. With
    ``out`` the run is kept in a folder and can be resumed; ``stop`` is asked after every round. ``player`` makes what
    plays the rounds: by default this process plays all clients.
    """
    folder = RunFolder(Path(out)) if out is not None else None
    asked = settings | decided(federation, model, settings)
    module = None if isinstance(model, str) else model
    if resume:
        if folder is None:
            raise HoldfastError("resume needs the folder of the run: give out")
        config = same_run(folder.stored(), asked, sum)
    else:
        config = Config().changed(**asked, **({} if sum is None else {"method": str(sum)}))
    method = as_method(config.method if sum is None else sum)
    if config.engine == "flower" and player is Simulation:
        return _on_flower(config, federation, module, folder, resume, overwrite, on_start, on_round, stop)
    return carry_out(config, method, federation, module, folder, resume, overwrite, on_start, on_round, stop, player)


def carry_out(
    config: Config,
    method: Method,
    federation: Federation | None,
    model: nn.Module | None,
    folder: RunFolder | None,
    resume: bool = False,
    overwrite: bool = False,
    on_start: Callable[[Trainer, int], None] = lambda simulation, done: None,
    on_round: Callable[[Record], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
    player: Player = Simulation,
) -> Result:
    """The run that a config describes, from its start or from its last checkpoint.

    A ``federation`` that is given must be the one the config describes: runs that share it need not deal it again.
    """
    where = folder.path if folder is not None else None
    require(config, where)
    commit()  # now: the code may be changed while the run goes on
    with arithmetic(config.precision):
        simulation = prepare(config, method, federation, model, player)
        history = _open(folder, simulation, resume, overwrite)
        on_start(simulation, len(history))
        with tracked(config, where, len(history), on_round) as told:
            score = _rounds(simulation, folder, history, told, stop)
        finished = len(history) >= config.rounds
        if finished and score is None:  # a run that was finished before
            score = evaluate(simulation.net, simulation.server.served(), simulation.federation)
        summary = summary_of(simulation, history, folder) | by_class(score)
        if config.personal and finished and isinstance(simulation, Simulation):
            summary |= personalise(simulation, with_flags(TUNED[config.personal_what], config))
    if folder is not None and finished and not folder.finished:
        folder.finish(summary)
    return Result(config, history, summary, simulation.net, simulation.server.served(), score)


def _on_flower(
    config: Config,
    federation: Federation | None,
    model: nn.Module | None,
    folder: RunFolder | None,
    resume: bool,
    overwrite: bool,
    on_start: Callable[[Trainer, int], None],
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
) -> Result:
    """The run in Flower's simulation runtime."""
    from holdfast.flower import need_flower

    need_flower()
    from holdfast.flower.ray_backend import simulate

    if federation is not None or model is not None:
        raise HoldfastError(
            "engine flower runs data sets and models by name, since its workers load them; for others write an app "
            "with holdfast.flower.client_app"
        )
    return simulate(config, folder.path if folder else None, resume, overwrite, on_start, on_round, stop)


def decided(federation: Federation | None, model: nn.Module | str | None, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a federation or a model of the user's own decides; setting them as well is an error."""
    found: dict[str, Any] = {}
    refuse_other_things(federation, model)
    if federation is not None:
        for name in ("data", "data_dir", "split", "clients", "public", "augment"):
            if name in settings:
                raise HoldfastError(f"{name} is decided by the federation: leave it out, or give it to federate()")
        found |= {"data": federation.data.name, "split": federation.split, "clients": federation.clients}
    if model is not None:
        found |= {"model": model if isinstance(model, str) else type(model).__name__}
    return found


def refuse_other_things(federation: object, model: object) -> None:
    """A data set that was not dealt yet, or a class of models: say what to do."""
    if federation is not None and not isinstance(federation, Federation):
        kind = type(federation).__name__
        raise HoldfastError(f"the second argument is a {kind}, not a federation: deal it first with federate(...)")
    if isinstance(model, type):
        raise HoldfastError(f"the model is the class {model.__name__}: give an instance, {model.__name__}()")


def prepare(
    config: Config,
    sum: Method,
    federation: Federation | None,
    model: nn.Module | None,
    player: Player = Simulation,
) -> Trainer:
    """Everything a run needs, from its config: every bad setting is found here, before anything is written."""
    federation = deal(config) if federation is None else federation
    sum, net = agree(config, sum, federation, model)
    return player(config, sum, federation.to(net.device, net.dtype), net)


def deal(config: Config, data: DataSet | None = None) -> Federation:
    """The federation that a config describes; ``data`` stands in for the data set that it names."""
    data = load(config.data, Path(config.data_dir) if config.data_dir else None) if data is None else data
    return federate(data, config.split, config.clients, config.seed, config.public, config.augment)


def agree(config: Config, sum: Method, federation: Federation, model: nn.Module | None) -> tuple[Method, Net]:
    """The whole sum and the network, after config, method, federation and model were found to go together."""
    sum = with_flags(sum, config)
    device = pick_device(config.device)
    if config.cohort is not None and config.cohort > federation.clients:
        raise HoldfastError(f"cohort {config.cohort} is larger than the {federation.clients} clients of the federation")
    module = model if model is not None else make(config.model, federation.shape, federation.classes, config.seed)
    net = Net(
        module,
        federation.shape,
        federation.classes,
        head=config.head,
        device=device,
        precision=config.precision,
    )
    if federation.leaks and not any(part.accepts_test_data for part in sum.parts):
        raise HoldfastError("public data is the test data, but no part of this method may use it: leave it out")
    sum.check(config, net, federation)
    return sum, net


def with_flags(sum: Method, config: Config) -> Method:
    """The sum with the parts that flags stand for: clip behind the others, then weight decay, as SGD has it."""
    if config.clip is not None:
        sum = sum + Clip(config.clip)
    if config.weight_decay:
        sum = sum + Decay(config.weight_decay)
    return sum


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise HoldfastError("device cuda is asked for, but PyTorch sees no CUDA GPU: use --device cpu")
    return torch.device(name)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Let matrix products use TF32 only where the run asks for it."""
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    fast = precision in ("tf32", "bf16")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn


def summary_of(simulation: Trainer, history: list[Record], folder: RunFolder | None) -> dict[str, Any]:
    """The run in one flat object; one that was finished before says where that was, not where it is looked at."""
    config = simulation.config
    what = {"method": config.method, "data": config.data, "split": config.split, "seed": config.seed}
    what |= folder.made() if folder and folder.finished else made_here(simulation.net.device)
    leak = {"leaks_test_data": True} if simulation.federation.leaks else {}
    return what | leak | summarize(history) | {"out": str(folder.path) if folder else None}


def by_class(score: Score | None) -> dict[str, list[float | None]]:
    """The accuracy in every class for the summary; None for a class without test samples."""
    if score is None:
        return {}
    return {"accuracy_by_class": [None if math.isnan(a) else a for a in score.by_class]}


def _open(folder: RunFolder | None, simulation: Trainer, resume: bool, overwrite: bool) -> list[Record]:
    """Make the run's folder, or bring the simulation to where a stopped run was."""
    if folder is None:
        return []
    if not resume:
        folder.create(simulation.config, overwrite)
        folder.note_split(simulation.federation)
        return []
    done = checkpoint.load(folder.checkpoint, simulation.server, simulation.clients)
    return folder.reopen(simulation.config, done)


def _rounds(
    simulation: Trainer,
    folder: RunFolder | None,
    history: list[Record],
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
) -> Score | None:
    """Play the rounds that are left; ``history`` grows by one record each."""
    config, score = simulation.config, None
    for t in range(len(history) + 1, config.rounds + 1):
        begun = time.perf_counter()
        played = simulation.play(t)
        last = t == config.rounds
        score = None
        if config.evaluates(t):
            score = evaluate(simulation.net, simulation.server.served(), simulation.federation)
        record = Record(
            round=t,
            test_accuracy=score.accuracy if score else None,
            test_loss=score.loss if score else None,
            train_loss=played.train_loss,
            seconds=time.perf_counter() - begun,
            upload_bytes=played.upload_bytes,
            download_bytes=played.download_bytes,
            cohort=played.cohort,
            skipped=played.skipped,
            drift=played.drift,
            failed=played.failed,
            reset=played.reset,
            waiting=played.waiting,
            overhead=played.overhead,
        )
        history.append(record)
        stopping = stop()
        if folder is not None:
            folder.append(record)
            if t % config.checkpoint_every == 0 or last or stopping:
                checkpoint.save(folder.checkpoint, t, simulation.server, simulation.clients)
        on_round(record)
        if stopping:
            break
    return score

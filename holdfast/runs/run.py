"""A run from its first round to its last: train, evaluate, record, write checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.core.commit import commit
from holdfast.core.devices import current_device
from holdfast.core.errors import HoldfastError
from holdfast.core.notebook import shows_progress
from holdfast.data.federation import Federation
from holdfast.data.normalisation import FEDERATED, OFF
from holdfast.data.scales import Scales, missing_scales, with_scales
from holdfast.method.config import Config
from holdfast.method.method import Method, as_method
from holdfast.method.part import Part
from holdfast.metrics.metric import Metric
from holdfast.metrics.metric_names import metric_text
from holdfast.models.factories import Factory
from holdfast.runs import checkpoint
from holdfast.runs.checkpoint_writer import CheckpointWriter
from holdfast.runs.client_table import client_table, finite, write_client_table
from holdfast.runs.code_files import for_resume, recorded
from holdfast.runs.early_stopping import best_round, scores, stopped
from holdfast.runs.explosion import loss_of_guessing
from holdfast.runs.file_imports import import_parts
from holdfast.runs.folder import RunFolder
from holdfast.runs.frozen_weights import check_frozen
from holdfast.runs.history import summarize
from holdfast.runs.meaning_changes import refuse_changed_meaning
from holdfast.runs.model_facts import check_encoding, facts_of, read_model_facts
from holdfast.runs.provenance import made_here
from holdfast.runs.resume import refuse_without_objects, resumed_config
from holdfast.runs.run_options import RunOptions
from holdfast.runs.run_result import Result
from holdfast.runs.setup import (
    OTHER_TRAINERS,
    MakeTrainer,
    RunSetup,
    arithmetic,
    prepare,
    settings_of_objects,
    trainer_for,
)
from holdfast.runs.snapshot import take
from holdfast.runs.summary_file import identity
from holdfast.runs.trackers import require, tracked
from holdfast.tasks.task_names import read_task
from holdfast.training.client_scores import ClientScores, spread_of
from holdfast.training.evaluation import Score, all_metrics, defined
from holdfast.training.floor import floor
from holdfast.training.privacy import summary_of
from holdfast.training.round import Evaluation, Trainer
from holdfast.training.round_record import RoundRecord
from holdfast.training.simulation import Simulation


def run(
    sum: str | Part | Method | None = None,
    federation: Federation | None = None,
    model: nn.Module | Factory | str | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_start: Callable[[Trainer, int], None] = lambda trainer, done: None,
    on_round: Callable[[RoundRecord], None] = lambda record: None,
    stop: Callable[[], bool] = lambda: False,
    trainer: MakeTrainer | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Result:
    """Train a federation with a method.

    Args:
        sum: The method: a text such as ``"fedbug(0.4)+feddyn(0.01)"``, a part or a ``Method``; by default FedAvg.
        federation: Your own federation; it replaces the settings data, split and clients.
        model: Your own module, the name of a network, or a factory: a function or class that is called for every run,
            if it wants with ``shape`` and ``classes``, and whose weights follow from the seed.
        out: The folder in which the run is kept, so that it can be resumed.
        resume: Resume the run in ``out``.
        overwrite: Replace a run in ``out``.
        on_start: Called before the first round with the trainer and the number of rounds already done.
        on_round: Called after every round with its record.
        stop: Asked after every round; True ends the run, which can be resumed.
        trainer: Makes what trains the clients; by default it follows from the engine.
        progress: Whether to show a progress bar; by default only in a notebook.
        settings: Any field of ``Config``. ``metric`` may also be a function of targets and predictions.

    Returns:
        The result.
    """
    settings |= {"metric": metric_text(settings["metric"])} if "metric" in settings else {}
    options = RunOptions(RunFolder(Path(out)) if out is not None else None, resume, overwrite, on_start, on_round, stop)
    asked = settings | settings_of_objects(federation, model, settings)
    if options.resume and options.folder is not None:
        stored, asked = for_resume(options.folder.stored(), asked, options.folder.path)
        if federation is not None and stored.split_seed is None:  # an earlier version did not record these
            asked = {k: v for k, v in asked.items() if k not in ("split_seed", *dict(federation.settings))}
        import_parts(stored)
        refuse_without_objects(stored, options.folder.path, federation, model, sum, asked.get("metric"))
        config = resumed_config(stored, asked, sum)
    else:
        config = recorded(Config().changed(**asked, **({} if sum is None else {"method": str(sum)})))
        import_parts(config)
    method = as_method(config.method if sum is None else sum)
    if options.resume and options.folder is not None:
        refuse_changed_meaning(options.folder, config, method)
    module = None if isinstance(model, str) else model
    if (
        trainer is None
        and config.engine in OTHER_TRAINERS
        and (federation is not None or isinstance(module, nn.Module))
    ):
        raise HoldfastError(
            f"engine {config.engine} needs data sets by name or as file.py:function, and models likewise or as a "
            "factory, since its workers make them; for your own objects, write an app with holdfast.flower.client_app"
        )
    with followed(options, config.method, progress) as options:
        return carry_out(config, method, federation, module, options, trainer)


@contextmanager
def followed(options: RunOptions, title: str, progress: bool | None) -> Iterator[RunOptions]:
    """Show a progress bar during a run where it is wanted, besides what the options do."""
    if not shows_progress(progress):
        yield options
        return
    from holdfast.runs.run_progress import RunProgress

    with RunProgress(title) as shown:

        def on_start(trainer: Trainer, done: int) -> None:
            options.on_start(trainer, done)
            shown.start(trainer, done, options.path)

        def on_round(record: RoundRecord) -> None:
            options.on_round(record)
            shown.round(record)

        yield replace(options, on_start=on_start, on_round=on_round)


def carry_out(
    config: Config,
    method: Method,
    federation: Federation | None,
    model: nn.Module | Factory | None,
    options: RunOptions,
    make_trainer: MakeTrainer | None = None,
) -> Result:
    """Carry out the run that a config describes, from its start or from its last checkpoint.

    Args:
        config: The run.
        method: Its method, without the parts that flags stand for.
        federation: The federation that the config describes, if it is at hand.
        model: The user's own module, or what makes it, if any.
        options: Where the run is kept, and who follows it.
        make_trainer: Makes what trains the clients; by default it follows from the engine.

    Returns:
        The result.
    """
    require(config, options.path)
    commit()  # now: the code may change while the run goes on
    with arithmetic(config.precision), current_device(config.device):
        setup = prepare(config, method, federation, model, options.path)
        setup = _normalised_as_before(setup, options.path) if options.resume else setup
        with _reserved(options), (make_trainer or trainer_for(config.engine))(setup) as trainer:
            return _play(trainer, options, setup.federation)


def _normalised_as_before(setup: RunSetup, path: Path | None) -> RunSetup:
    """Return the setup of a run that is resumed, with the statistics from which it was trained so far."""
    fed, stored = setup.federation, read_model_facts(path) if path else None
    if stored is None:
        return setup
    if fed.data.normalise == FEDERATED and len(stored.mean) == len(fed.data.mean):
        fed = replace(fed, data=replace(fed.data, mean=tuple(stored.mean), std=tuple(stored.std)))
    if missing_scales(fed):  # the nodes bring their own data, and have sent their sums before
        scales = Scales(tuple(stored.mean), tuple(stored.std), *read_task(stored.task).scale)
        fed = with_scales(fed, scales)
        fed = fed if fed.data.mean else replace(fed, data=replace(fed.data, normalise=OFF))
    return replace(setup, federation=fed)


def _reserved(options: RunOptions) -> AbstractContextManager[object]:
    """Reserve the run's folder for this process; a new run is refused before the folder is touched."""
    if options.folder is None:
        return nullcontext()
    if not options.resume:
        options.folder.check_free(options.overwrite)
    return options.folder.reserve()


def _play(trainer: Trainer, options: RunOptions, federation: Federation) -> Result:
    """Play the rounds that are left, and sum up; ``federation`` has the clients' samples wherever they train."""
    config, folder = trainer.config, options.folder
    history = _open(trainer, options, federation)
    options.on_start(trainer, len(history))
    with tracked(config, options.path, len(history), options.on_round) as on_round:
        found = _rounds(trainer, replace(options, on_round=on_round), history)
    early = len(history) < config.rounds and stopped(history, trainer.metric, config.stop_after)
    finished = early or len(history) >= config.rounds
    if finished and found is None:  # a run that was finished before
        found = trainer.judge()
    score = found.test if found else None
    summary = _summary(trainer, history, folder) | {"stopped_early": early} | _by_class(score)
    personal: dict[int, float] = {}
    if finished:
        summary |= _last_scores(trainer, federation, found)
    if config.personal and finished:
        copies = trainer.personal_scores()
        summary, personal = summary | copies.figures, copies.by_client
    table = None
    if found is not None and found.clients is not None:
        summary |= _over_clients(found.clients, personal, trainer.metric)
        table = client_table(found.clients, personal, trainer.metric, trainer.federation)
    if folder is not None and finished and not folder.finished:
        if table is not None:
            write_client_table(folder.path, table)
        folder.finish(summary)
    facts = facts_of(trainer.federation, trainer.net.module)
    return Result(config, history, summary, trainer.served_net, trainer.server.served(), score, facts, table)


def _over_clients(scores: ClientScores, personal: dict[int, float], metric: Metric) -> dict[str, Any]:
    """Return the mean, the worst tenth and the variance over clients for the summary, of copies as well."""
    figures = {"client_scores": spread_of(scores.values[metric.name], metric)}
    if personal:
        figures |= {"personal_client_scores": spread_of(list(personal.values()), metric)}
    return {kind: {name: finite(v) for name, v in found.items()} for kind, found in figures.items()}


def _open(trainer: Trainer, options: RunOptions, federation: Federation) -> list[RoundRecord]:
    """Create the run's folder, or bring the trainer to where a stopped run was.

    Args:
        trainer: Trains the clients.
        options: Where the run is kept.
        federation: Holds the clients' samples as far as they are known here.

    Returns:
        The history so far.
    """
    folder = options.folder
    if folder is None:
        trainer.settle()
        return []
    if not options.resume:
        folder.create(trainer.config, options.overwrite)
        trainer.settle()
        folder.describe(trainer.federation, trainer.net, federation)
        return []
    folder.check_covered(trainer.config)
    stored = read_model_facts(folder.path)
    check_frozen(folder.path, stored, trainer.net)
    check_encoding(folder.path, stored, trainer.federation)
    done = checkpoint.load(folder.checkpoint, trainer.server, trainer.clients)
    records = folder.reopen(trainer.config, done)
    trainer.resume_after(records)
    trainer.settle()
    if not folder.described:  # the run was killed before it was, or an earlier version started it
        folder.describe(trainer.federation, trainer.net, federation)
    return records


def _rounds(trainer: Trainer, options: RunOptions, history: list[RoundRecord]) -> Evaluation | None:
    """Play the rounds that are left; ``history`` grows by one record each. Return the last round's evaluation."""
    with options.writer() as writer:
        return _rounds_with(writer, trainer, options, history)


def _rounds_with(
    writer: CheckpointWriter, trainer: Trainer, options: RunOptions, history: list[RoundRecord]
) -> Evaluation | None:
    config, folder, found = trainer.config, options.folder, None
    for t in range(len(history) + 1, config.rounds + 1):
        if stopped(history, trainer.metric, config.stop_after):
            break
        started, names = time.perf_counter(), trainer.federation.client_names
        record = trainer.play(t)
        if config.evaluates(t):
            found = trainer.judge()
            record = _with_scores(record, found, trainer.metric)
        else:
            found = None
        record = replace(record, seconds=time.perf_counter() - started)
        history.append(record)
        writer.check()
        stopping = options.stop() or t == options.until or stopped(history, trainer.metric, config.stop_after)
        if folder is not None:
            if trainer.federation.client_names != names:
                folder.describe(trainer.federation, trainer.net)
            folder.append(record)
            best = best_round(scores(history, trainer.metric.name, "validation"), trainer.metric)
            if t % config.checkpoint_every == 0 or t == config.rounds or stopping or t == best:
                _keep(writer, folder, trainer, t, best)
        options.on_round(record)
        if stopping:
            break
    return found


def _keep(writer: CheckpointWriter, folder: RunFolder, trainer: Trainer, t: int, best: int | None) -> None:
    """Keep the state after round ``t``, while the next rounds are trained; that of the ``best`` round stays."""
    config = trainer.config
    writer.keep(lambda: take(t, trainer.server, trainer.clients), lambda snapshot: folder.keep(config, snapshot, best))
    first = t <= config.checkpoint_every  # a history longer than that has a checkpoint, or has lost it
    if first or not isinstance(trainer, Simulation):  # nodes drop the states that no checkpoint needs
        writer.wait()


def _with_scores(record: RoundRecord, found: Evaluation, metric: Metric) -> RoundRecord:
    """Return the record of a round with its scores."""
    return replace(
        record,
        test=defined(found.test.values),
        validation=defined(found.validation.values) if found.validation else {},
        clients=defined(spread_of(found.clients.values[metric.name], metric)) if found.clients else {},
    )


def _summary(trainer: Trainer, history: list[RoundRecord], folder: RunFolder | None) -> dict[str, Any]:
    """Sum up the run; one that was finished before keeps the place and date of its making."""
    config = trainer.config
    what = identity(config) | {"task": str(trainer.federation.data.task.name), "engine": trainer.engine_name}
    what |= (
        folder.made() if folder and folder.finished else made_here(trainer.net.device, trainer.federation.data.checksum)
    )
    leak = {"leaks_test_data": True} if trainer.federation.leaks else {}
    guessing = loss_of_guessing(trainer.method, trainer.federation)
    figures = summarize(history, trainer.metric, guessing)
    if trainer.privacy is not None:
        what |= summary_of(trainer.privacy, len(history), config, trainer.federation)
    return what | leak | figures | {"out": str(folder.path) if folder else None}


def _last_scores(
    trainer: Trainer, federation: Federation, found: Evaluation | None
) -> dict[str, dict[str, float | None]]:
    """Return the scores of the last model by every metric, and those of a model without inputs, for the summary."""
    metrics = all_metrics(trainer.metrics, federation.data.task)
    kept = bool(trainer.net.kept_at_clients())  # the clients have scored their own models
    score = found.test if found is not None and kept else trainer.evaluate(metrics=metrics)
    lowest = floor(federation, [m for m in metrics if m.name in score.values], kept)
    return {"final_scores": defined(score.values), "floor": defined(lowest)}


def _by_class(score: Score | None) -> dict[str, list[float | None]]:
    """Return the accuracy in every class for the summary; None for a class without test samples."""
    if score is None or not score.by_class:
        return {}
    return {"accuracy_by_class": [None if math.isnan(a) else a for a in score.by_class]}

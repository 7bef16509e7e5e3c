"""``holdfast.load_run``: a run on disk, finished or stopped, as the result that ``run`` returned."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from holdfast.core.devices import pick_device
from holdfast.core.errors import HoldfastError
from holdfast.data.deal import Deal
from holdfast.data.federation import Federation
from holdfast.data.sources import load, sources
from holdfast.method.config import Config
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.method import as_method
from holdfast.metrics.metric import Metric
from holdfast.metrics.metric_names import metric_named
from holdfast.models.factories import Factory
from holdfast.models.net import Net
from holdfast.models.zoo import models
from holdfast.runs import checkpoint
from holdfast.runs.client_table import read_client_table
from holdfast.runs.code_files import for_resume, located
from holdfast.runs.early_stopping import best_round, scores
from holdfast.runs.explosion import loss_of_guessing
from holdfast.runs.file_imports import import_parts
from holdfast.runs.folder import RunFolder
from holdfast.runs.frozen_weights import check_frozen
from holdfast.runs.history import read_history, summarize
from holdfast.runs.model_facts import ModelFacts, facts_of, read_model_facts, stand_in
from holdfast.runs.run_files import CONFIG, HISTORY
from holdfast.runs.run_result import Result
from holdfast.runs.setup import arithmetic, fitted, refuse_other_objects
from holdfast.runs.summary_file import check_length, identity, read_summary
from holdfast.training.evaluation import Score, evaluate, usual_metrics
from holdfast.training.round_record import RoundRecord
from holdfast.training.server import Server

REMEDY = "resume the run to write it again"


def load_run(
    folder: str | Path,
    model: nn.Module | Factory | str | None = None,
    federation: Federation | None = None,
    *,
    best: bool = False,
) -> Result:
    """Load a run from its folder, finished or stopped, with the model of its newest checkpoint.

    Neither the training data nor the test data is read, unless the folder does not say what the model is called with.

    Args:
        folder: The run's folder.
        model: The module that was trained, if it was your own, or what makes it; trained weights are replaced, frozen
            ones must be those that it had.
        federation: The federation of the run; given, the model is evaluated on its test data. A run of your own data
            that was made by an earlier version needs it.
        best: Whether to load the model of the best round by validation data instead.

    Returns:
        The result: history, summary and a model that can predict.
    """
    refuse_other_objects(federation, model)
    place = RunFolder(Path(folder))
    config = _config(place)
    stored = read_model_facts(place.path)
    known, net = _network(place, config, _federation(place, config, stored, federation), model)
    facts = facts_of(known, net.module)
    if stored is not None:
        _check_model(place, facts, stored)
        check_frozen(place.path, stored, net)
    method = with_flag_parts(as_method(config.method), config)
    server = Server(net, method, config.client_count, config.server_lr, config.max_weight)
    done = checkpoint.load(place.checkpoint, server, None)
    if not done:
        raise HoldfastError(f"the run in {place.path} has no checkpoint, so it has no trained model: run it again")
    history = read_history(place.path / HISTORY, done)
    metric = metric_named(located(config).metric or known.data.task.metrics[0])
    if best:
        done = _load_best(place, history, metric, server)
    net, w = net.with_stats(server.stats), server.served()
    summary = _summary(place, config, history, metric, loss_of_guessing(method, known))
    score = _score(history[:done], {} if best else summary) if place.finished or best else None
    if federation is not None:
        with arithmetic(config.precision):
            usual = usual_metrics(known.data.task, metric if metric.installed() else None)
            score = evaluate(net, w, known.to(net.device, net.dtype), usual)
    table = read_client_table(place.path) if place.finished else None
    return Result(config, history, summary, net, w, score, facts, table)


def _load_best(place: RunFolder, history: list[RoundRecord], metric: Metric, server: Server) -> int:
    """Bring the server to the checkpoint of the best round, and return that round."""
    round = best_round(scores(history, metric.name, "validation"), metric)
    if round is None:
        raise HoldfastError(
            f"the run in {place.path} has no validation scores, by which a round would be the best: run it with "
            "--validation 0.1"
        )
    if not checkpoint.load(place.checkpoint, server, None, round):
        raise HoldfastError(
            f"the run in {place.path} has no checkpoint of its best round, {round}: leave out best, or run it again"
        )
    return round


def _config(place: RunFolder) -> Config:
    if not (place.path / CONFIG).exists():
        inside = sorted(place.path.glob(f"*/*/{CONFIG}")) if place.path.is_dir() else []
        remedy = f"choose one of those in it, such as {inside[0].parent}" if inside else "check the folder"
        raise HoldfastError(f"{place.path} holds no run: {remedy}")
    config, _ = for_resume(place.stored(), {}, place.path)
    import_parts(config)
    return config


def _federation(
    place: RunFolder, config: Config, stored: ModelFacts | None, federation: Federation | None
) -> Federation:
    """Return the federation that is given, or one of the same kind as the run's with nobody in it."""
    if federation is not None:
        _check_kind(place, federation, stored)
        return federation
    if stored is not None:
        data = stand_in(stored, config.data)
    elif _has_name(config.data, sources()):
        data = load(located(config).data, config.data_dir)
    else:
        raise HoldfastError(
            f"the run in {place.path} was started from Python with its own data, {config.data}: use "
            "holdfast.load_run(folder, model=..., federation=...)"
        )
    nobody = Deal(np.empty(0, np.int64), np.zeros(config.client_count + 1, np.int64))
    return Federation(data, nobody, str(config.split), config.deal_seed, torch.empty(0, dtype=torch.int64))


def _check_kind(place: RunFolder, federation: Federation, stored: ModelFacts | None) -> None:
    """Refuse a federation whose samples have another size or other classes than those of the run."""
    if stored is None:
        return
    own = facts_of(federation, nn.Identity())
    kinds = [([math.prod(i.shape) for i in facts.inputs], facts.classes) for facts in (own, stored)]
    if kinds[0] != kinds[1]:
        raise HoldfastError(
            f"federation has {_kind(own)}, but the run in {place.path} has {_kind(stored)}: give the federation that "
            "it was started with"
        )


def _kind(facts: ModelFacts) -> str:
    inputs = ", ".join(f"{i.dtype} {i.shape}" for i in facts.inputs)
    return f"samples of {inputs} in {len(facts.classes)} classes"


def _network(
    place: RunFolder, config: Config, federation: Federation, model: nn.Module | Factory | str | None
) -> tuple[Federation, Net]:
    """Build the network, from the user's module or from its name."""
    if isinstance(model, str):
        config, model = config.changed(model=model), None
    elif model is None and not _has_name(config.model, models()):
        raise HoldfastError(
            f"the run in {place.path} was started from Python with its own model, {config.model}: use "
            "holdfast.load_run(folder, model=...)"
        )
    return fitted(config, federation, model, pick_device("auto"))


def _check_model(place: RunFolder, own: ModelFacts, stored: ModelFacts) -> None:
    """Refuse a module whose state has other tensors than the one that was trained."""
    for name in [*stored.state, *own.state]:
        if own.state.get(name) != stored.state.get(name):
            sides = [f"of shape {facts.state[name]}" if name in facts.state else "missing" for facts in (own, stored)]
            raise HoldfastError(
                f"in the model, {name} is {sides[0]}, but in the run in {place.path} it is {sides[1]}: use "
                "holdfast.load_run(folder, model=...) with the module that was trained"
            )


def _has_name(text: str, known: Collection[str]) -> bool:
    """Tell whether a text names something that can be built again: by name, or in a file."""
    return text.partition("(")[0].strip() in known or ".py:" in text


def _summary(
    place: RunFolder, config: Config, history: list[RoundRecord], metric: Metric, guessing: float | None
) -> dict[str, Any]:
    """Return the summary of a finished run from its file, and that of a stopped one from its history."""
    where = {"out": str(place.path)}
    if place.finished:
        summary = read_summary(place.path, REMEDY)
        check_length(place.path, len(history), summary, REMEDY)
        return summary | where
    what = identity(config)
    return what | summarize(history, metric, guessing) | where


def _score(history: list[RoundRecord], summary: dict[str, Any]) -> Score | None:
    """Return the last evaluation of a finished run, as far as its files have it."""
    last, by_class = history[-1].test, summary.get("accuracy_by_class") or ()
    if not last:
        return None
    values = {name: math.nan if value is None else value for name, value in last.items()}
    return Score(values, tuple(math.nan if a is None else a for a in by_class))

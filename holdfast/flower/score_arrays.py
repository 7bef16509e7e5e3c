"""Scores of clients as arrays of a message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from holdfast.core.tensors import Tensors
from holdfast.flower.array_codec import ArraySpec, Refused, Spec
from holdfast.flower.reply_checks import Check
from holdfast.metrics.metric import Metric
from holdfast.training.client_scores import ClientScores
from holdfast.training.evaluation import Score

MOST_ITEMS = 2**48  # largest number of samples or tokens of a client


def score_spec(classes: int) -> Spec:
    """Return what a client sends as its score on its class mix."""
    number, row = ArraySpec(torch.float64, ()), ArraySpec(torch.float64, (classes,))
    return {"accuracy": number, "loss": number, "by_class": row, "loss_by_class": row}


def score_tensors(score: Score) -> Tensors:
    """Return a score on a class mix as tensors."""
    names = ("accuracy", "loss", "by_class", "loss_by_class")
    return {name: torch.tensor(getattr(score, name), dtype=torch.float64) for name in names}


def score_of(tensors: Tensors) -> Score:
    """Undo ``score_tensors``."""
    by_class, loss_by_class = (tuple(tensors[name].tolist()) for name in ("by_class", "loss_by_class"))
    values = {name: float(tensors[name]) for name in ("accuracy", "loss")}
    return Score(values, by_class, loss_by_class)


def refuse_impossible_score(tensors: Tensors) -> None:
    """Refuse accuracies that are not fractions and losses below zero; NaN stands for what was not measured."""
    accuracy = torch.cat([tensors["accuracy"].reshape(1), tensors["by_class"]])
    loss = torch.cat([tensors["loss"].reshape(1), tensors["loss_by_class"]])
    if bool((accuracy < 0).any() or (accuracy > 1).any() or (loss < 0).any()):
        raise Refused("its score is not possible")


def own_score_spec(metrics: Sequence[Metric]) -> Spec:
    """Return what a client sends as its scores on its own samples: a number per metric, samples and items."""
    number = ArraySpec(torch.int64, ())
    return {"values": ArraySpec(torch.float64, (len(metrics),)), "samples": number, "items": number}


def own_score_tensors(scores: ClientScores, metrics: Sequence[Metric]) -> Tensors:
    """Return the scores of one client on its own samples as tensors; NaN if it has no samples."""
    values = [next(iter(scores.values[m.name]), math.nan) for m in metrics]
    counts = {"samples": sum(scores.samples), "items": sum(scores.items)}
    return {"values": torch.tensor(values, dtype=torch.float64)} | {k: torch.tensor(n) for k, n in counts.items()}


def own_scores_of(replies: Mapping[int, Tensors], metrics: Sequence[Metric]) -> ClientScores:
    """Join what clients sent as their scores on their own samples; those without samples are left out."""
    rows = {i: tensors for i, tensors in sorted(replies.items()) if int(tensors["samples"])}
    samples, items = (tuple(int(t[name]) for t in rows.values()) for name in ("samples", "items"))
    values = {m.name: tuple(float(t["values"][place]) for t in rows.values()) for place, m in enumerate(metrics)}
    return ClientScores(tuple(rows), samples, items, values)


def possible_scores(metrics: Sequence[Metric]) -> Check:
    """Return a check that refuses scores outside the range of their metric, and impossible numbers of samples."""

    def check(tensors: Tensors) -> None:
        good = all(m.possible(float(v)) for m, v in zip(metrics, tensors["values"], strict=True))
        if not good or not all(0 <= int(tensors[name]) < MOST_ITEMS for name in ("samples", "items")):
            raise Refused("its score is not possible")

    return check

"""How much each searched parameter matters: functional analysis of variance, computed by Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.comparison.study_schema import MetricFacts
from holdfast.tuning.optuna_package import optuna_package
from holdfast.tuning.sampling import Tried, distributions, study_of
from holdfast.tuning.search_axis import SearchAxis

LEAST = 8  # trials with a score, below which shares would be noise


def importance(tried: Sequence[Tried], axes: Sequence[SearchAxis], metric: MetricFacts) -> dict[str, float] | None:
    """Return the share of each parameter in the variation of scores at the first rung, which all trials reach.

    Args:
        tried: The trials.
        axes: What was searched.
        metric: Which scores are better.

    Returns:
        The shares, the largest first; None if there are too few scores, or all are the same.
    """
    known = [t for t in tried if t.scores and first_score(t) is not None]
    values = {first_score(t) for t in known}
    if len(known) < LEAST or len(values) < 2:
        return None
    optuna = optuna_package()
    study = study_of([], axes, metric)
    for trial in known:
        study.add_trial(
            optuna.trial.create_trial(params=trial.point, distributions=distributions(axes), value=first_score(trial))
        )
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()} if all(map(math.isfinite, found.values())) else None


def first_score(trial: Tried) -> float | None:
    """Return the score of a trial at the first rung."""
    return trial.scores[min(trial.scores)]

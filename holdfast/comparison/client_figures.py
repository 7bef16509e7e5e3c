"""Scores on clients' own test samples, from the runs of an entry."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.comparison.stats import spread
from holdfast.comparison.stored_run import StoredRun
from holdfast.comparison.study_schema import ClientFigures, NamedScore, OverClients, Spread

LISTED = 200  # the most clients that are listed by name
SAMPLED = 1000  # the most scores that are kept of larger federations, evenly from worst to best


def client_figures(runs: Sequence[StoredRun], higher_is_better: bool) -> ClientFigures | None:
    """Sum up the scores of clients over rounds and at the end; None if the runs do not have any.

    Args:
        runs: The runs of an entry, one per seed.
        higher_is_better: The direction of the metric.

    Returns:
        The figures.
    """
    rounds = sorted({line["round"] for run in runs for line in run.history if line.get("clients")})
    if not rounds:
        return None

    def along(name: str) -> list[list[float | None]]:
        known = [{line["round"]: (line.get("clients") or {}).get(name) for line in run.history} for run in runs]
        return [[row.get(t) for t in rounds] for row in known]

    model, copies = _at_the_end(runs, "client_scores"), _at_the_end(runs, "personal_client_scores")
    return ClientFigures(
        rounds,
        along("mean"),
        along("worst_tenth"),
        model.mean,
        model.worst_tenth,
        *listed(runs[0], higher_is_better),
        model.variance,
        None if copies.mean.mean is None else copies,
    )


def _at_the_end(runs: Sequence[StoredRun], kind: str) -> OverClients:
    """Return mean, worst tenth and variance over clients as the summaries of the runs have them."""

    def over(name: str) -> Spread:
        return spread([(run.get(kind) or {}).get(name) for run in runs])

    return OverClients(over("mean"), over("worst_tenth"), over("variance"))


def listed(run: StoredRun, higher_is_better: bool) -> tuple[list[NamedScore], list[float]]:
    """Return the clients of a run by name, the worst first; of a large federation their scores alone."""
    every = run.table.rows if run.table else []
    rows = [row for row in every if row.score is not None]
    rows.sort(key=lambda row: row.score or 0.0, reverse=not higher_is_better)
    scores = [row.score for row in rows if row.score is not None]
    if len(every) <= LISTED:
        rows += [row for row in every if row.score is None]
        return [NamedScore(row.name, row.score, row.samples, row.personal) for row in rows], scores
    if len(rows) <= SAMPLED:
        return [], scores
    return [], [scores[round(k * (len(scores) - 1) / (SAMPLED - 1))] for k in range(SAMPLED)]

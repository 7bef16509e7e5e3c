"""The trials on disk, as Optuna keeps them: a SQLite file, with a study per method, that Optuna's own tools can open.

One process writes it, under the lock of the folder. SQLite survives a process that is killed while it writes; Optuna's
journal file does not, since a record cut short makes all later ones unreadable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.comparison.study_schema import MetricFacts
from holdfast.core.errors import HoldfastError
from holdfast.tuning.optuna_package import optuna_package
from holdfast.tuning.sampling import Tried, direction, distributions
from holdfast.tuning.search_axis import SearchAxis

TRIALS = "trials.sqlite"


@dataclass(frozen=True)
class StoredTrial:
    """A trial and the number under which the file has it."""

    id: int
    tried: Tried


class TrialStore:
    """The trials of all methods, within ``with``.

    Attributes:
        path: The file.
        spaces: What is searched, by method.
        metric: Which scores are better.
        trials: The trials of every method, in order.
    """

    def __init__(self, folder: Path, spaces: dict[str, list[SearchAxis]], metric: MetricFacts) -> None:
        self.path, self.spaces, self.metric = folder / TRIALS, spaces, metric
        self.trials: dict[str, list[StoredTrial]] = {}
        self.studies: dict[str, Any] = {}

    def __enter__(self) -> TrialStore:
        optuna = optuna_package()
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self.storage = optuna.storages.RDBStorage(f"sqlite:///{self.path.absolute()}")
            for method in self.spaces:
                self.studies[method] = optuna.create_study(
                    storage=self.storage, study_name=method, direction=direction(self.metric), load_if_exists=True
                )
                found = self.studies[method].get_trials(deepcopy=False)
                self.trials[method] = [StoredTrial(trial._trial_id, tried_of(trial)) for trial in found]
        except (SQLAlchemyError, RuntimeError, AssertionError) as error:
            raise HoldfastError(f"{self.path} is damaged: start over with --overwrite") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.storage.remove_session()
        self.storage.engine.dispose()

    def tried(self, method: str) -> list[Tried]:
        """Return the trials of a method so far, in order."""
        return [trial.tried for trial in self.trials[method]]

    def add(self, method: str, point: dict[str, Any]) -> None:
        """Note what the next trial tries, before it runs; in one step, so that no trial is half noted."""
        trials, axes = optuna_package().trial, distributions(self.spaces[method])
        started = trials.create_trial(state=trials.TrialState.RUNNING, params=point, distributions=axes)
        number = self.storage.create_new_trial(self.studies[method]._study_id, template_trial=started)
        self.trials[method].append(StoredTrial(number, tried_of(started)))

    def report(self, method: str, number: int, rung: int, score: float | None) -> None:
        """Note the score of a trial at a rung; None if it diverged."""
        stored = self.trials[method][number]
        self.storage.set_trial_intermediate_value(stored.id, rung, math.nan if score is None else score)
        tried = replace(stored.tried, scores={**stored.tried.scores, rung: score})
        self.trials[method][number] = StoredTrial(stored.id, tried)

    def finish(self, method: str, last: int) -> None:
        """Close all trials: those that have a score in the last round are complete, the others were dropped."""
        states = optuna_package().trial.TrialState
        for number, trial in enumerate(self.tried(method)):
            score = trial.scores.get(last)
            state = states.PRUNED if score is None else states.COMPLETE
            self.studies[method].tell(number, score, state=state, skip_if_finished=True)


def tried_of(trial: Any) -> Tried:
    """Return a trial of Optuna's as later ones see it."""
    scores = {rung: None if math.isnan(s) else s for rung, s in sorted(trial.intermediate_values.items())}
    return Tried(dict(trial.params), scores)

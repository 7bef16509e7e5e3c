"""``holdfast.advise``: which method for this data?"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.advice.answer import Answer, Confirmation, Cost, Rival, Setting
from holdfast.advice.answer_text import lines
from holdfast.advice.budget import Budget, read_budget
from holdfast.advice.candidates import FEDAVG, FIELD, Candidate, Point, fitting, named
from holdfast.advice.experience import PastRace, ordered, past_races, remember
from holdfast.advice.federation_look import FederationLook, look
from holdfast.advice.race import Race, Raced, RaceResult, Rules
from holdfast.advice.screening import Screened, gains
from holdfast.advice.trial_costs import COSTS
from holdfast.advice.trials import Stopped, StoredTrials, Trial
from holdfast.comparison.compare import check_numbers, facts_of
from holdfast.comparison.executor import Executor
from holdfast.comparison.labels import slug
from holdfast.comparison.observers import Observer
from holdfast.comparison.plan import flags
from holdfast.comparison.plan_schema import PROCESS
from holdfast.comparison.pool_choice import check_pool
from holdfast.comparison.stats import paired
from holdfast.comparison.stored_run import read_lines
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.folder_lock import LOCK, FolderLock
from holdfast.core.typed_json import to_json
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.method.config import Config
from holdfast.method.held_out import HELD_OUT
from holdfast.models.factories import Factory
from holdfast.runs.code_files import located, recorded
from holdfast.runs.file_imports import import_parts
from holdfast.runs.folder import RunFolder, folder_for
from holdfast.runs.run_files import CONFIG, HISTORY
from holdfast.runs.setup import settings_of_objects

QUESTION, ANSWER = "question.json", "advice.json"
LOOK_ROUNDS = 3  # of FedAvg, in which drift is measured


@dataclass(frozen=True)
class Advice:
    """The outcome of a race.

    Attributes:
        folder: Where it is kept.
        answer: The answer; None if the race was stopped before the end.
    """

    folder: Path
    answer: Answer | None

    @property
    def finished(self) -> bool:
        """Whether the race is over."""
        return self.answer is not None

    def __str__(self) -> str:
        if self.answer is None:
            return f"the race in {self.folder} is not finished: start it again with the same folder"
        return "\n".join(lines(self.answer))


def advise(
    data: str | DataSet | Federation | None = None,
    model: str | nn.Module | Factory | None = None,
    *,
    budget: str = "10m",
    methods: Sequence[str] | None = None,
    jobs: int = 1,
    executor: str = PROCESS,
    out: str | Path | None = None,
    overwrite: bool = False,
    experience: bool = True,
    watch: Observer | None = None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> Advice:
    """Find out which method suits this data: run a race, and recommend what is better than well-tuned FedAvg.

    Args:
        data: A federation, a data set, or the name of one.
        model: The name of a model, your own module, or what makes it.
        budget: What the race may cost: a time such as ``10m``, or a number of rounds, ``"2000 rounds"``.
        methods: The methods to race; by default a field of them, ordered by what helped on similar federations.
        jobs: Number of processes that share the work.
        executor: Where they run: ``process`` for this machine, ``ray``, ``ray://host:port`` or ``slurm``.
        out: The folder of the race, by default a new one in ``runs``. Called again with the same folder, it goes on.
        overwrite: Replace the race in ``out``.
        experience: Whether to order the field by past races, and to remember this one.
        watch: Observes every round and run.
        stop: Asked after every round whether to stop.
        **settings: Fields of ``Config`` that all runs share; ``lr`` is where tuning starts.

    Returns:
        The advice; its ``answer`` is None if the race was stopped.
    """
    amount = read_budget(budget)
    check_numbers(jobs, None)
    check_pool(executor)
    federation = data if isinstance(data, Federation) else None
    config = _config(data, model, settings)
    candidates = named(methods) if methods else list(FIELD)
    dataset = federation.data if federation is not None else data if isinstance(data, DataSet) else None
    carrier = Executor(dataset, None if isinstance(model, str) else model, given=federation)
    from_python = dataset is not None or not isinstance(model, str | None)
    config = _decided(config, carrier.federation(config))
    with folder_for(None if out is None else Path(out), "advise", slug(config.data)) as path:
        _check_folder(path, overwrite)
        with FolderLock(path):
            asked = _Asked(config, amount, list(methods) if methods else None, experience)
            trials = _trials(asked, path, carrier, jobs, executor, watch or Observer(), stop)
            trials.executor.check(trials.planned(Trial(Point(FEDAVG, config.lr), 1, config.seed)))
            _keep_question(path, asked, overwrite)
            try:
                answer = _race(asked, candidates, trials, from_python)
            except Stopped:
                return Advice(path, None)
            write_atomically(path / ANSWER, json.dumps(to_json(answer), allow_nan=False) + "\n")
    return Advice(path, answer)


@dataclass(frozen=True)
class _Asked:
    """The question: what decides the answer."""

    config: Config
    budget: Budget
    methods: list[str] | None
    experience: bool


def _config(data: object, model: Any, settings: dict[str, Any]) -> Config:
    """Return the settings that all trials share."""
    if "method" in settings:
        raise HoldfastError("advise finds the method: pass methods=[...] to race only some")
    named_data = {"data": data} if isinstance(data, str) else {"data": data.name} if isinstance(data, DataSet) else {}
    federation = data if isinstance(data, Federation) else None
    found = settings_of_objects(federation, model, settings)
    if federation is not None and not federation.held_out.validation:
        raise HoldfastError("advise chooses by validation data: pass validation=0.2 to federate()")
    chosen = {} if federation is not None else {"validation": HELD_OUT["advise"]}
    config = recorded(Config().changed(**(chosen | settings | named_data | found)))
    import_parts(config)
    return config


def _decided(config: Config, federation: Federation) -> Config:
    """Return the settings with what the data decides; the split is the same in every trial."""
    if not config.validation:
        raise HoldfastError("advise chooses by validation data: set --validation above 0, such as 0.2")
    split_seed = config.seed if config.split_seed is None else config.split_seed
    return config.changed(split=federation.split, clients=federation.clients, split_seed=split_seed)


def _trials(
    asked: _Asked, path: Path, carrier: Executor, jobs: int, where: str, watch: Observer, stop: Callable[[], bool]
) -> StoredTrials:
    watch.metric = facts_of(carrier.federation(asked.config), located(asked.config).metric).measured
    return StoredTrials(path, asked.config, carrier, watch.metric, asked.budget, jobs, where, watch, stop)


def _race(asked: _Asked, candidates: Sequence[Candidate], trials: StoredTrials, own: bool) -> Answer:
    config, watch = asked.config, trials.watch
    seen = _look(trials, trials.executor.federation(config))
    for sentence in seen.sentences():
        watch.say(sentence)
    candidates = fitting(candidates, refused(candidates, trials))
    if asked.experience and not asked.methods:
        candidates = ordered(candidates, seen, past_races())
    rules = Rules(rounds=config.rounds, seed=config.seed, lr=config.lr)
    race = Race(rules, candidates, asked.budget, trials, watch.say)
    result = race.result()
    if asked.experience:
        _remember(PastRace(config.data, str(config.split), seen.vector(), gains(result.screened)), watch)
    return _answer(asked, seen, result, trials, rules, own)


def _remember(race: PastRace, watch: Observer) -> None:
    """Keep a race as experience; its answer does not depend on whether that works."""
    try:
        remember(race)
    except (OSError, HoldfastError) as error:
        watch.say(f"this race is not kept as experience: {error}")


def _look(trials: StoredTrials, federation: Federation) -> FederationLook:
    """Look at the federation, and at the drift of a few rounds of FedAvg."""
    point = Point(FEDAVG, trials.config.lr)
    measured = replace(trials, config=trials.config.changed(drift=True, track=None), folder=trials.folder / "look")
    trial = Trial(point, LOOK_ROUNDS, trials.config.seed)
    measured.run([trial])
    drift = [line["drift"] for line in read_lines(measured.planned(trial).folder / HISTORY)]
    cosines = [found["cosine"] for found in drift if "cosine" in found]
    return look(federation, trials.config.cohort_size, statistics.fmean(cosines) if cosines else None)


def refused(candidates: Sequence[Candidate], trials: StoredTrials) -> list[str]:
    """Return the methods that do not fit this data or model."""
    found = list[str]()
    for candidate in candidates[1:]:
        try:
            trials.executor.check(trials.planned(Trial(Point(candidate, trials.config.lr), 1, trials.config.seed)))
        except HoldfastError as error:
            trials.watch.say(f"left out: {candidate.method}: {error}")
            found.append(candidate.method)
    return found


def _answer(
    asked: _Asked, seen: FederationLook, result: RaceResult, trials: StoredTrials, rules: Rules, own: bool
) -> Answer:
    config, metric = asked.config, trials.metric
    sign = 1.0 if metric.higher_is_better else -1.0
    best = result.leader if result.recommended else result.baseline
    settings = [_setting(s, sign) for s in result.screened]
    chosen = config.changed(method=best.method, lr=best.lr)
    command = None if own else shlex.join(["holdfast", "run", best.method, *flags(chosen, ("method", "validation"))])
    return Answer(
        data=config.data,
        split=str(config.split),
        model=config.model,
        rounds=config.rounds,
        metric=metric,
        look=seen,
        method=best.method,
        lr=best.lr,
        recommended=result.recommended,
        level=rules.level,
        baseline=settings[0],
        screened=settings[1:],
        raced=[_rival(r, result.raced[0], sign) for r in result.raced],
        confirmation=_confirmation(result, rules, trials) if result.fresh else None,
        budget=asked.budget.text(),
        spent=asked.budget.text(result.spent),
        command=command,
        cost=None if result.fresh else _cost(trials, _runs_of_leader(result, rules)),
    )


def _setting(screened: Screened, sign: float) -> Setting:
    score = None if screened.score is None else sign * screened.score
    return Setting(screened.best.method, screened.best.lr, screened.at_edge, score)


def _rival(raced: Raced, leader: Raced, sign: float) -> Rival:
    scores = [sign * score for score in raced.scores]
    ahead = [sign * score for score in leader.scores[: len(scores)]]
    behind = paired(ahead, scores, raced.point.method) if raced is not leader and scores else None
    mean = statistics.fmean(scores) if scores else None
    return Rival(raced.point.method, raced.point.lr, mean, len(scores), raced.out, behind)


def _confirmation(result: RaceResult, rules: Rules, trials: StoredTrials) -> Confirmation:
    own = [Trial(result.leader, rules.rounds, seed) for seed in result.fresh]
    other = [Trial(result.baseline, rules.rounds, seed) for seed in result.fresh]
    scores, baseline = trials.test_scores(own), trials.test_scores(other)
    assert result.chance is not None
    return Confirmation(
        seeds=result.fresh,
        chance=result.chance,
        gain=paired(scores, baseline, result.baseline.method),
        scores=scores,
        baseline=baseline,
        cost=_cost(trials, own),
        baseline_cost=_cost(trials, other),
    )


def _runs_of_leader(result: RaceResult, rules: Rules) -> list[Trial]:
    """Return the leader's runs in the race."""
    seeds = range(rules.seed + 1, rules.seed + 1 + len(result.raced[0].scores))
    return [Trial(result.leader, rules.rounds, seed) for seed in seeds]


def _cost(trials: StoredTrials, of: Sequence[Trial]) -> Cost:
    found = trials.figures(of)
    return Cost(statistics.median(f["seconds"] for f in found), statistics.fmean(f["bytes"] for f in found))


def _check_folder(path: Path, overwrite: bool) -> None:
    """Raise an error for a folder that holds something else."""
    if path.exists() and not path.is_dir():
        raise HoldfastError(f"{path} is a file, not a folder for a race: choose another --out")
    holds = path.exists() and any(p.name != LOCK for p in path.iterdir())
    if holds and not (path / QUESTION).exists():
        raise HoldfastError(f"{path} is not empty and holds no race: choose another --out")


def _keep_question(path: Path, asked: _Asked, overwrite: bool) -> None:
    """Write down the question, or check that the folder holds the same one."""
    content = json.dumps(to_json(asdict(asked)), indent=1, default=str) + "\n"
    kept = path / QUESTION
    if kept.exists() and not overwrite:
        if kept.read_text(encoding="utf-8") != content:
            raise HoldfastError(f"{path} holds a race with other settings: choose another --out, or add --overwrite")
        return
    if asked.budget.in_rounds:  # what time buys is known once FedAvg is tuned
        Rules(rounds=asked.config.rounds).refuse_too_small(asked.budget)
    if overwrite:
        for name in (ANSWER, QUESTION, COSTS, f"look/{COSTS}"):
            (path / name).unlink(missing_ok=True)
        for folder in ("runs", "look"):
            _remove_runs(path / folder)
    write_atomically(kept, content)


def _remove_runs(folder: Path) -> None:
    """Delete the runs of a folder, and nothing else that may be there."""
    for config in sorted(folder.glob(f"**/{CONFIG}")):
        RunFolder(config.parent).remove()

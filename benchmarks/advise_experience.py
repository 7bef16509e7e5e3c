"""Makes the past races that the library ships with: the whole field, tuned on one data set under a grid of splits.

    python benchmarks/advise_experience.py --data digits --model "mlp(width=50)"
    python benchmarks/advise_experience.py --data mnist --samples 2000 --model "mlp(width=50)"
    python benchmarks/advise_experience.py --data cifar10 --samples 5000 --model lenet5

A race orders its field by what methods gained in the screening of past races, so that a screening is all that is run
here, of every method and without a budget. Gains are means over seeds. What is finished is kept in ``--out`` and not
run again; races of other data sets in the file stay. Needs torch, numpy, safetensors and the data alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

import holdfast
from holdfast.advice import experience
from holdfast.advice.budget import Budget
from holdfast.advice.candidates import FIELD
from holdfast.advice.experience import PastRace
from holdfast.advice.federation_look import look
from holdfast.advice.race import Rules
from holdfast.advice.screening import gains, screen
from holdfast.advice.trials import StoredTrials
from holdfast.comparison.compare import facts_of
from holdfast.comparison.executor import Executor
from holdfast.comparison.labels import slug
from holdfast.comparison.observers import Observer
from holdfast.core.typed_json import to_json

GRID = ("iid", "dirichlet(0.3)", "dirichlet(0.1)", "shards(2)", "dirichlet(0.5)+noise(0.5)")
TESTED = 100  # test samples: they have no part in a screening, but every round is evaluated
ROUNDS = Budget(1, in_rounds=True)  # what costs are counted in; nothing here has a limit
Task, Found = TypeVar("Task"), TypeVar("Found")


def main() -> None:
    """Run the screenings that are missing, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("data", "digits"), ("data-dir", None), ("model", "mlp"), ("out", "runs/experience")):
        parser.add_argument(f"--{name}", default=default)
    for name, default in (("rounds", 30), ("clients", 20), ("steps", 10), ("seeds", 3), ("jobs", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--samples", type=int, help="only the first so many samples of the training set")
    given = parser.parse_args()
    found: dict[str, list[PastRace]] = {split: [] for split in GRID}
    tasks = [(split, seed) for seed in range(given.seeds) for split in GRID]
    for race in in_processes(partial(past_race, given), tasks, given.jobs):
        found[race.split].append(race)
        print(race.split, sorted(race.gains.items(), key=lambda item: -item[1])[:3], flush=True)
    shipped = Path(experience.__file__).with_name(experience.SHIPPED)
    others = [race for race in experience.shipped_races() if race.data != given.data]
    races = sorted([*others, *map(over_seeds, found.values())], key=lambda race: race.data)
    shipped.write_text(json.dumps({"format": experience.FORMAT, "races": to_json(races)}, indent=1) + "\n")
    print(f"wrote {len(races)} races to {shipped}")


def in_processes(work: Callable[[Task], Found], tasks: Sequence[Task], jobs: int) -> Iterator[Found]:
    """Yield what a function gives for every task as it is finished, with one thread in each of several processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, torch.set_num_threads, (1,)) as pool:
        for future in as_completed([pool.submit(work, task) for task in tasks]):
            yield future.result()


def first_samples(data: holdfast.DataSet, many: int | None) -> holdfast.DataSet:
    """Return a data set of the first samples."""
    return replace(data, x=data.x[:many], y=data.y[:many], test_x=data.test_x[:TESTED], test_y=data.test_y[:TESTED])


def trials_on(data: holdfast.DataSet, folder: Path, **settings: Any) -> StoredTrials:
    """Return what carries out trials on one federation."""
    checkpoints = settings.get("rounds", holdfast.Config().rounds)  # one, after the last round
    config = holdfast.Config().changed(data=data.name, checkpoint_every=checkpoints, **settings)
    executor = Executor(data)
    metric = facts_of(executor.federation(config), config.metric).measured
    return StoredTrials(folder, config, executor, metric, ROUNDS, 1, "process", Observer(), lambda: False)


def past_race(given: argparse.Namespace, task: tuple[str, int]) -> PastRace:
    """Screen the whole field with one seed, FedAvg first."""
    split, seed = task
    data = first_samples(holdfast.load(given.data, given.data_dir), given.samples)
    settings = {"model": given.model, "clients": given.clients, "steps": given.steps, "rounds": given.rounds}
    folder = Path(given.out) / slug(f"{given.data}-{given.model}-{split}")
    trials = trials_on(data, folder, split=split, validation=0.2, split_seed=0, **settings)
    config = trials.config
    rules = Rules(rounds=config.rounds, seed=seed, lr=config.lr)
    (baseline,) = screen(FIELD[:1], rules.lr, rules.short, rules.seed, trials)
    screened = [baseline, *screen(FIELD[1:], baseline.best.lr, rules.short, rules.seed, trials)]
    seen = look(trials.executor.federation(config), config.cohort_size)
    return PastRace(config.data, split, seen.vector(), gains(screened))


def over_seeds(races: Sequence[PastRace]) -> PastRace:
    """Return the mean gains of races of one federation; without methods that diverged with a seed."""
    known = [method for method in races[0].gains if all(method in race.gains for race in races)]
    return replace(races[0], gains={m: statistics.fmean(race.gains[m] for race in races) for m in known})


if __name__ == "__main__":
    main()

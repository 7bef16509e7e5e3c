"""How far the advice is from the best method that a full search finds: the table of docs/advise.md.

    python benchmarks/advise_regret.py --data-dir data --usps usps.npz --jobs 16
    python benchmarks/advise_regret.py --tables

The federations are held out: none of their splits and seeds, and none of the samples of MNIST, is among the races that
the library ships with (``advise_experience.py``), and USPS is in none of them; of digits there are too few. In each,
every method of the field is tuned with the same five runs of all rounds, and the best of six finalists is chosen by
validation data on two more seeds. All policies are then judged on the test data, on seeds that no choice has seen.
What is finished is kept in ``--out`` and ``--stored``, and not run again, so that the study may be run in portions: the
page shows the federations that are finished, in the order of the grid. The shipped races order the field of ``advise``:
when they change, remove what is stored. Needs torch, numpy, scipy, safetensors and the data alone; digits come with
scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from advise_experience import in_processes, trials_on

import holdfast
from holdfast.advice import experience
from holdfast.advice.advise import refused
from holdfast.advice.budget import Budget
from holdfast.advice.candidates import BASELINE, FIELD, Candidate, Point, fitting
from holdfast.advice.experience import ordered
from holdfast.advice.federation_look import look
from holdfast.advice.race import Race, RaceResult, Rules
from holdfast.advice.screening import best_of, further, rounded
from holdfast.advice.trials import StoredTrials, Trial
from holdfast.comparison.labels import slug
from holdfast.comparison.stats import paired
from holdfast.core.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE = ROOT / "benchmarks" / "studies" / "advise_regret.json", ROOT / "docs" / "advise.md"
START, END = "<!-- table: written by python benchmarks/advise_regret.py -->", "<!-- end of table -->"
ROUNDS, STEPS, BUDGET = 20, 10, 800
RATES = (1 / 3, 1.0, 3.0)  # of the usual learning rate: the first three runs of the full search; two more follow
FINALISTS = 6  # of the full search, by the scores of tuning
CHOICE = range(101, 103)  # the seeds by which the full search chooses among them, on validation data
JUDGE = range(5001, 5006)  # the seeds by which all are judged, on test data
MANY = 10  # federations from which on a mean over them has an interval
PARTS = ("train", "test")  # of USPS
ADVISE, PLAIN, SEARCH = "`advise`", "`advise --no-experience`", "the best of the full search"
LEADER = "the leader of the race, confirmed or not"
FEDAVG, SCAFFOLD, OVERALL = "always FedAvg", "always SCAFFOLD", "always the overall best of the shipped races"
HINDSIGHT = "always the overall best of these federations, known in hindsight"


@dataclass(frozen=True)
class HeldOut:
    """A federation of the held-out grid."""

    data: str
    split: str
    model: str = "mlp(width=50)"
    clients: int = 20
    seed: int = 11

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.data}, {self.split}, {self.clients} clients, {self.model.partition('(')[0]}"


DATA = ("digits", "usps", "mnist")
DEALT = (  # how each of them is dealt: the split, the model, and the number of clients
    ("classes(2)", "mlp(width=50)", 20),
    ("classes(3)", "linear", 30),
    ("dirichlet(0.05)", "mlp(width=50)", 30),
    ("dirichlet(0.2)", "mlp(width=50)", 20),
    ("dirichlet(0.5)", "linear", 10),
    ("dirichlet(1)", "mlp(width=50)", 40),
    ("dirichlet(10)", "mlp(width=50)", 10),
    ("dirichlet(0.5)+noise(1)", "mlp(width=50)", 20),
    ("quantity(0.3)", "mlp(width=50)", 20),
    ("shards(3)", "linear", 20),
)
GRID = tuple(HeldOut(data, *dealt) for dealt in DEALT for data in DATA)


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--usps", type=Path, help="npz file of USPS: images and labels, for training and for testing")
    parser.add_argument("--out", default="runs/regret")
    parser.add_argument("--stored", type=Path, default=STORED, help="the file of what was found")
    parser.add_argument("--jobs", type=int, default=1, help="federations at a time")
    parser.add_argument("--tables", action="store_true", help="only write the table")
    given = parser.parse_args()
    stored = read(given.stored)
    if not given.tables:
        known = [found["name"] for found in stored]
        for found in in_processes(partial(study, given), [h for h in GRID if h.name not in known], given.jobs):
            stored.append(found)
            write(stored, given.stored)
            print(f"{len(stored)} of {len(GRID)}: {found['name']}", flush=True)
        judge_hindsight(stored, given)
        write(stored, given.stored)
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(before + START + "\n\n" + tables(stored) + "\n\n" + END + rest.partition(END)[2])


def read(path: Path) -> list[dict[str, Any]]:
    """Return what was found in the federations that are finished: none, if there is no file."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(stored: list[dict[str, Any]], path: Path) -> None:
    """Write what was found, in the order of the grid."""
    order = [held_out.name for held_out in GRID]
    stored.sort(key=lambda found: order.index(found["name"]))
    write_atomically(path, json.dumps(stored, indent=1) + "\n")


def trials_of(held_out: HeldOut, given: argparse.Namespace) -> StoredTrials:
    """Return what carries out trials on a federation of the grid."""
    return trials_on(
        load(held_out.data, given), Path(given.out) / slug(held_out.name), split=held_out.split,
        clients=held_out.clients, model=held_out.model, steps=STEPS, rounds=ROUNDS, validation=0.2, seed=held_out.seed,
        split_seed=held_out.seed,
    )  # fmt: skip


def judge_hindsight(stored: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Add the policy of the method with the best mean over these very federations, by validation data."""
    known = [m for m in stored[0]["validation"] if all(m in found["validation"] for found in stored)]
    method = max(known, key=lambda m: statistics.fmean(found["validation"][m] for found in stored))
    tuned = {found["name"]: found["tuned"][method] for found in stored}
    tasks = [(held_out, tuned[held_out.name]) for held_out in GRID]
    scores = dict(in_processes(partial(judged_again, given), tasks, given.jobs))
    for found in stored:
        found["policies"][HINDSIGHT] = scores[found["name"]]


def judged_again(given: argparse.Namespace, task: tuple[HeldOut, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the name of a federation, and how a method does there on the test data."""
    held_out, tuned = task
    return held_out.name, judged(Point(Candidate(tuned["method"], ""), tuned["lr"]), trials_of(held_out, given))


def load(name: str, given: argparse.Namespace) -> holdfast.DataSet:
    """Return samples that no shipped race has seen, except for digits, of which there are too few."""
    if name == "usps":
        return usps(given.usps)
    data = holdfast.load(name, given.data_dir)
    if name == "digits":
        return data
    other = slice(10_000, 12_000), slice(5_000, 6_000)
    return replace(
        data, x=data.x[other[0]], y=data.y[other[0]], test_x=data.test_x[other[1]], test_y=data.test_y[other[1]]
    )


@cache
def usps(path: Path) -> holdfast.DataSet:
    """Return 2,000 samples of USPS to train with, and 1,000 to test on."""
    with np.load(path) as file:
        x, test_x = (torch.from_numpy(file[f"{part}_images"] / np.float32(2000))[:, None] for part in PARTS)
        y, test_y = (torch.from_numpy(file[f"{part}_labels"].astype(np.int64)) for part in PARTS)
    return holdfast.from_arrays(x[:2000], y[:2000], test_x[:1000], test_y[:1000], name="usps", normalise="pooled")


def study(given: argparse.Namespace, held_out: HeldOut) -> dict[str, Any]:
    """Return what the full search finds in a federation, what every policy takes, and how it does on the test data."""
    trials = trials_of(held_out, given)
    field = fitting(FIELD, refused(FIELD, trials))
    found = full_search(field, trials)
    tuned, scores = {m: point for m, (point, _) in found.items()}, {m: score for m, (_, score) in found.items()}
    finalists = sorted(scores, key=lambda m: -scores[m])[:FINALISTS]
    best = max(finalists, key=lambda m: validated(tuned[m], trials))
    seen = look(trials.executor.federation(trials.config), trials.config.cohort_size)
    shipped = experience.shipped_races()
    raced, plain = race(ordered(field, seen, shipped), trials), race(field, trials)
    answers = {ADVISE: answer(raced), PLAIN: answer(plain), LEADER: raced.leader}
    overall = overall_best(shipped, list(tuned))
    fixed = {FEDAVG: tuned[BASELINE], SCAFFOLD: tuned["scaffold"], OVERALL: tuned[overall], SEARCH: tuned[best]}
    return {
        "name": held_out.name,
        "tuned": {method: {"method": point.method, "lr": point.lr} for method, point in tuned.items()},
        "validation": scores,
        "policies": {policy: judged(point, trials) for policy, point in (fixed | answers).items()},
    }


def full_search(field: Sequence[Candidate], trials: StoredTrials) -> dict[str, tuple[Point, float]]:
    """Return every method at the best of its five settings, and its score; without those that diverge at each."""
    found = dict[str, tuple[Point, float]]()
    for candidate in field:
        points = [Point(candidate, rounded(trials.config.lr * factor)) for factor in RATES]
        outcomes = run(points, trials)
        more = further(points, outcomes)
        points, outcomes = [*points, *more], [*outcomes, *run(more, trials)]
        known = [outcome.score for outcome in outcomes if outcome.score is not None]
        if known:
            found[candidate.method] = best_of(points, outcomes), max(known)
    return found


def run(points: Sequence[Point], trials: StoredTrials) -> list[Any]:
    """Run points for all rounds."""
    return trials.run([Trial(point, ROUNDS, trials.config.seed) for point in points])


def validated(point: Point, trials: StoredTrials) -> float:
    """Return the mean validation score of a point over the seeds of the choice."""
    outcomes = trials.run([Trial(point, ROUNDS, seed) for seed in CHOICE])
    found = [outcome.score for outcome in outcomes if outcome.score is not None]
    return statistics.fmean(found) if len(found) == len(CHOICE) else 0.0


def judged(point: Point, trials: StoredTrials) -> dict[str, Any]:
    """Return what a policy takes, and its test scores on the seeds that judge."""
    runs = [Trial(point, ROUNDS, seed) for seed in JUDGE]
    trials.run(runs)
    return {"method": point.method, "lr": point.lr, "scores": trials.test_scores(runs)}


def race(field: Sequence[Candidate], trials: StoredTrials) -> RaceResult:
    """Run a race; it shares finished runs with the others of this federation, but pays for them."""
    rules = Rules(rounds=ROUNDS, seed=trials.config.seed, lr=trials.config.lr)
    return Race(rules, field, Budget(BUDGET, in_rounds=True), trials).result()


def answer(result: RaceResult) -> Point:
    """Return what a race recommends."""
    return result.leader if result.recommended else result.baseline


def overall_best(races: Sequence[experience.PastRace], known: Sequence[str]) -> str:
    """Return the method that gained most on average in the shipped races."""
    return max(known, key=lambda method: statistics.fmean(race.gains.get(method, 0.0) for race in races))


def tables(stored: Sequence[dict[str, Any]]) -> str:
    """Return the regret of every policy, and what each took in every federation; or that there is none yet."""
    if not stored:
        return f"**The study has not been run yet**: none of its {len(GRID)} federations is finished."
    policies = [p for p in (ADVISE, PLAIN, LEADER, FEDAVG, SCAFFOLD, OVERALL, HINDSIGHT) if p in stored[0]["policies"]]
    lines = [
        f"| {len(stored)} of {len(GRID)} federations | mean regret | largest | regret minus that of `advise` |",
        "|---|---|---|---|",
    ]
    own = regrets(ADVISE, stored)
    for policy in policies:
        found = regrets(policy, stored)
        against = "" if policy == ADVISE else summary([a - b for a, b in zip(found, own, strict=True)])
        lines.append(f"| {policy} | {summary(found)} | {max(found):.1f} | {against} |")
    lines += ["", "| federation | " + " | ".join((SEARCH, *policies[:2])) + " | FedAvg |", "|---|" + "---|" * 4]
    for found in stored:
        taken = [found["policies"][p] for p in (SEARCH, *policies[:2], FEDAVG)]
        cells = [f"{one['method']}: {mean(one):.1f}" for one in taken[:3]]
        lines.append(f"| {found['name']} | " + " | ".join(cells) + f" | {mean(taken[3]):.1f} |")
    return "\n".join(lines)


def regrets(policy: str, stored: Sequence[dict[str, Any]]) -> list[float]:
    """Return by how many points of test accuracy a policy is behind the best of the full search, by federation."""
    return [mean(found["policies"][SEARCH]) - mean(found["policies"][policy]) for found in stored]


def mean(judged: dict[str, Any]) -> float:
    """Return the mean test accuracy in percent; a run that diverged counts as zero."""
    return 100 * statistics.fmean(score or 0.0 for score in judged["scores"])


def interval(values: Sequence[float]) -> str:
    """Return a mean with its 95% interval over federations."""
    found = paired(list(values), [0.0] * len(values), "")
    if found is None or found.low is None or found.high is None:
        return f"{statistics.fmean(values):+.2f}"
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def summary(values: Sequence[float]) -> str:
    """Return a mean over federations, with its interval if they are enough."""
    return interval(values) if len(values) >= MANY else f"{statistics.fmean(values):+.2f}"


if __name__ == "__main__":
    main()

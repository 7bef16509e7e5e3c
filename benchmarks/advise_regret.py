"""How far the advice is from the best method that a full search finds: the table of docs/advise.md.

    python benchmarks/advise_regret.py --data-dir data --usps usps.npz
    python benchmarks/advise_regret.py --tables

The federations are held out: none of their splits and seeds, and none of the samples of MNIST, is among the races that
the library ships with (``advise_experience.py``), and USPS is in none of them; of digits there are too few. In each,
every method of the field is tuned with the same five runs of all rounds, and the best of six finalists is chosen by
validation data on two more seeds. All policies are then judged on the test data, on seeds that no choice has seen. What
is finished is kept in ``--out`` and not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from advise_experience import trials_on

import holdfast
from holdfast.advice import experience
from holdfast.advice.advise import refused
from holdfast.advice.budget import Budget
from holdfast.advice.candidates import BASELINE, FIELD, Candidate, Point, fitting
from holdfast.advice.experience import ordered
from holdfast.advice.federation_look import look
from holdfast.advice.race import Race, Rules
from holdfast.advice.screening import best_of, further, rounded
from holdfast.advice.trials import StoredTrials, Trial
from holdfast.comparison.labels import slug
from holdfast.comparison.stats import paired

ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE = ROOT / "benchmarks" / "studies" / "advise_regret.json", ROOT / "docs" / "advise.md"
START, END = "<!-- table: written by python benchmarks/advise_regret.py -->", "<!-- end of table -->"
ROUNDS, BUDGET = 10, 400
RATES = (1 / 3, 1.0, 3.0)  # of the usual learning rate: the first three runs of the full search; two more follow
FINALISTS = 6  # of the full search, by the scores of tuning
CHOICE = range(101, 103)  # the seeds by which the full search chooses among them, on validation data
JUDGE = range(5001, 5006)  # the seeds by which all are judged, on test data
PARTS = ("train", "test")  # of USPS
ADVISE, PLAIN, SEARCH = "`advise`", "`advise --no-experience`", "the best of the full search"
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


GRID = (
    HeldOut("digits", "classes(2)"),
    HeldOut("usps", "dirichlet(0.1)"),
    HeldOut("mnist", "dirichlet(0.2)"),
    HeldOut("digits", "dirichlet(0.5)", "linear", 10),
    HeldOut("usps", "shards(3)", "linear"),
    HeldOut("mnist", "quantity(0.3)"),
    HeldOut("digits", "dirichlet(0.05)", clients=30),
    HeldOut("usps", "dirichlet(0.5)+noise(1)"),
    HeldOut("mnist", "classes(3)", "linear", 30),
    HeldOut("usps", "iid"),
)


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--usps", type=Path, help="npz file of USPS: images and labels, for training and for testing")
    parser.add_argument("--out", default="runs/regret")
    parser.add_argument("--tables", action="store_true", help="only write the table")
    given = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else []
    for held_out in () if given.tables else GRID:
        if held_out.name not in [found["name"] for found in stored]:
            print(f"== {held_out.name}", flush=True)
            stored.append({"name": held_out.name, **study(held_out, given)})
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
    if not given.tables:
        judge_hindsight(stored, given)
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(START)
    PAGE.write_text(before + START + "\n\n" + tables(stored) + "\n\n" + END + rest.partition(END)[2])


def trials_of(held_out: HeldOut, given: argparse.Namespace) -> StoredTrials:
    """Return what carries out trials on a federation of the grid."""
    return trials_on(
        load(held_out.data, given), Path(given.out) / slug(held_out.name), split=held_out.split,
        clients=held_out.clients, model=held_out.model, steps=5, rounds=ROUNDS, validation=0.2, seed=held_out.seed,
        split_seed=held_out.seed,
    )  # fmt: skip


def judge_hindsight(stored: list[dict[str, Any]], given: argparse.Namespace) -> None:
    """Add the policy of the method with the best mean over these very federations, by validation data."""
    known = [m for m in stored[0]["validation"] if all(m in found["validation"] for found in stored)]
    method = max(known, key=lambda m: statistics.fmean(found["validation"][m] for found in stored))
    grid = {held_out.name: held_out for held_out in GRID}
    for found in stored:
        point = Point(Candidate(found["tuned"][method]["method"], ""), found["tuned"][method]["lr"])
        found["policies"][HINDSIGHT] = judged(point, trials_of(grid[found["name"]], given))


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


def study(held_out: HeldOut, given: argparse.Namespace) -> dict[str, Any]:
    """Return what the full search finds in a federation, what every policy takes, and how it does on the test data."""
    trials = trials_of(held_out, given)
    field = fitting(FIELD, refused(FIELD, trials))
    found = full_search(field, trials)
    tuned, scores = {m: point for m, (point, _) in found.items()}, {m: score for m, (_, score) in found.items()}
    finalists = sorted(scores, key=lambda m: -scores[m])[:FINALISTS]
    best = max(finalists, key=lambda m: validated(tuned[m], trials))
    seen = look(trials.executor.federation(trials.config), trials.config.cohort_size)
    shipped = experience.shipped_races()
    answers = {ADVISE: advised(ordered(field, seen, shipped), trials), PLAIN: advised(field, trials)}
    overall = overall_best(shipped, list(tuned))
    fixed = {FEDAVG: tuned[BASELINE], SCAFFOLD: tuned["scaffold"], OVERALL: tuned[overall], SEARCH: tuned[best]}
    return {
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


def advised(field: Sequence[Candidate], trials: StoredTrials) -> Point:
    """Return what a race recommends; it shares finished runs with the others of this federation, but pays for them."""
    rules = Rules(rounds=ROUNDS, seed=trials.config.seed, lr=trials.config.lr)
    result = Race(rules, field, Budget(BUDGET, in_rounds=True), trials, print).result()
    return result.leader if result.recommended else result.baseline


def overall_best(races: Sequence[experience.PastRace], known: Sequence[str]) -> str:
    """Return the method that gained most on average in the shipped races."""
    return max(known, key=lambda method: statistics.fmean(race.gains.get(method, 0.0) for race in races))


def tables(stored: Sequence[dict[str, Any]]) -> str:
    """Return the regret of every policy, and what each took in every federation."""
    policies = [p for p in (ADVISE, PLAIN, FEDAVG, SCAFFOLD, OVERALL, HINDSIGHT) if p in stored[0]["policies"]]
    lines = [
        f"| {len(stored)} federations | mean regret | largest | regret minus that of `advise` |", "|---|---|---|---|",
    ]  # fmt: skip
    own = regrets(ADVISE, stored)
    for policy in policies:
        found = regrets(policy, stored)
        against = "" if policy == ADVISE else interval([a - b for a, b in zip(found, own, strict=True)])
        lines.append(f"| {policy} | {interval(found)} | {max(found):.1f} | {against} |")
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
        return f"{statistics.fmean(values):.2f}"
    return f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


if __name__ == "__main__":
    main()

"""How accurate every mean is under every attack: the tables of docs/robust.md.

    python benchmarks/robust_means.py --data digits
    python benchmarks/robust_means.py --data cifar10 --data-dir FOLDER --device cuda --minutes 2.5 --store FILE
    python benchmarks/robust_means.py --tables

A process per seed; in each, all means under some attacks train their clients in the rows of one step, where steps are
traced. Scores are stored as they come, and runs that are stored are not repeated. Running needs torch and numpy alone,
the tables need scipy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast.attacks.attack import read_attack
from holdfast.core.devices import current_device, name_on_machine, pick_device
from holdfast.core.turns import TurnTaker
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import load
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.runs.setup import arithmetic, prepare_simulation
from holdfast.training.attacked import Liars
from holdfast.training.round import Diverged
from holdfast.training.shared_rows import row_engine, share_rows
from holdfast.training.simulation import Simulation

ROOT = Path(__file__).resolve().parents[1]
STORED, PAGE = ROOT / "benchmarks" / "robust_means", ROOT / "docs" / "robust.md"
START, END = "<!-- tables: written by python benchmarks/robust_means.py -->", "<!-- end of tables -->"
MEANS = (
    "fedavg", "mean(uniform)", "median", "trimmed(0.3)", "multikrum(3)", "krum(f=3)", "geometric_median",
    "centred_clipping", "norm_bound(2)", "norm_bound(2)+median",
)  # fmt: skip
# Attacks whose runs share steps, group by group; label_flip changes the samples that are built into them.
GROUPS = (
    ("none", "sign_flip(0.2)"), ("scaled(0.2)", "gaussian(0.2)"), ("label_flip(0.2)",),
    ("little_is_enough(0.2)", "inner_product(0.2)"), ("false_count(0.2)",),
)  # fmt: skip
ATTACKS = tuple(attack for group in GROUPS for attack in group)
FEDERATION = {"split": "dirichlet(0.3)", "clients": 20}
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"model": "mlp", "epochs": 2, "lr": 0.1, "rounds": 30, "cohort": 10},
    "cifar10": {
        "model": "cnn(width=32)", "steps": 25, "batch": 32, "lr": 0.1, "rounds": 30, "cohort": 10, "precision": "tf32",
    },
}  # fmt: skip
ROWS = 50  # of a step that several runs share
MISSING = "**{data}** has not been run yet: `python benchmarks/robust_means.py --data {data}` makes its table.\n"
Scores = dict[str, dict[str, dict[str, float | None]]]  # attack -> mean -> seed -> accuracy; None: the run diverged


def main() -> None:
    """Run what is missing, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", choices=SETTINGS)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=600.0, help="start nothing after this time")
    parser.add_argument("--store", type=Path, help="where scores are kept; default: benchmarks/robust_means/DATA.json")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another setting, to try it")
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    given = parser.parse_args()
    if given.tables:
        write_tables()
        return
    given.ends = time.time() + 60 * given.minutes
    given.store = given.store or STORED / f"{given.data}.json"
    settings = FEDERATION | SETTINGS[given.data] | dict(read_setting(text) for text in given.set)
    stored = json.loads(given.store.read_text()) if given.store.exists() else {}
    if stored.get("settings", settings) != settings:
        sys.exit(f"{given.store} holds runs with other settings: choose another --store")
    run_all(given, stored | {"settings": settings, "date": time.strftime("%Y-%m-%d")})


def read_setting(text: str) -> tuple[str, Any]:
    """Read ``name=value``, with the value in JSON where it is that."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


# -- runs -------------------------------------------------------------------------------------------------------
def run_all(given: argparse.Namespace, stored: dict[str, Any]) -> None:
    """Let a process per seed run what is missing, and store every score as it comes."""
    scores: Scores = stored.setdefault("scores", {})
    found = multiprocessing.get_context("spawn").SimpleQueue()
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=seed_runs, args=(s, given, stored, found)) for s in range(given.seeds)]
    for child in children:
        child.start()
    started, running = time.time(), len(children)
    while running:
        item = found.get()
        if item is None:
            running -= 1
            continue
        attack, mean, seed, score, device = item
        scores.setdefault(attack, {}).setdefault(mean, {})[str(seed)] = score
        stored["device"] = device
        given.store.parent.mkdir(parents=True, exist_ok=True)
        given.store.write_text(json.dumps(stored, indent=1) + "\n")
        print(f"{time.time() - started:5.0f} s  {attack}, {mean}, seed {seed}: {score}", flush=True)
    for child in children:
        child.join()


def seed_runs(seed: int, given: argparse.Namespace, stored: dict[str, Any], found: Any) -> None:
    """Run every mean under every attack with one seed; scores go into the queue ``found``, and None at the end."""
    try:
        torch.set_num_threads(1)
        device = pick_device(given.device)
        where = torch.cuda.get_device_name() if device.type == "cuda" else name_on_machine(device)
        data = load(given.data, given.data_dir)
        fed = federate(data, stored["settings"]["split"], stored["settings"]["clients"], seed)
        fed = fed.to(device, torch.float32)
        for group in GROUPS:
            for attack, mean, score in group_runs(group, seed, fed, given, stored):
                found.put((attack, mean, seed, score, where))
    finally:
        found.put(None)


def group_runs(
    group: Sequence[str], seed: int, fed: Federation, given: argparse.Namespace, stored: dict[str, Any]
) -> Iterator[tuple[str, str, float | None]]:
    """Run all means under some attacks; yield attack, mean and final accuracy."""
    done = stored["scores"]
    cells = [(a, m) for a in group for m in MEANS if str(seed) not in done.get(a, {}).get(m, {})]
    if not cells or time.time() > given.ends:
        return
    settings = {name: value for name, value in stored["settings"].items() if name not in FEDERATION}
    config = Config(
        data=given.data, seed=seed, eval_every=settings["rounds"], device=given.device, **FEDERATION, **settings
    )
    fed, sent = (flipped(group[0], seed, fed), "none") if group == ("label_flip(0.2)",) else (fed, None)
    with arithmetic(config.precision), current_device(config.device):
        made = [
            prepare_simulation(config.changed(method=mean, attack=sent or attack), Method.parse(mean), fed)
            for attack, mean in cells
        ]
        for (attack, mean), score in zip(cells, played(made), strict=True):
            yield attack, mean, score


def flipped(attack: str, seed: int, fed: Federation) -> Federation:
    """Return the federation with the liars' wrong labels: all that this attack does."""
    found = read_attack(attack)
    assert found is not None
    return Liars(found, seed, fed.occupied).flipped(fed)


def played(made: Sequence[Simulation]) -> list[float | None]:
    """Play runs from their first round to the last, together if their steps are traced; return the final accuracies."""
    if any(row_engine(one) is None for one in made):
        return [whole_run(one) for one in made]
    asks: list[Callable[..., Any]] = [lambda _: None for _ in made]
    pool = share_rows(made, [lambda some, i=i: asks[i](some) for i in range(len(made))], ROWS)  # type: ignore[misc]

    def work(i: int) -> Callable[..., float | None]:
        def go(ask: Callable[..., Any]) -> float | None:
            asks[i] = ask
            return whole_run(made[i])

        return go

    takers = waiting = [TurnTaker(work(i)) for i in range(len(made))]
    while waiting:
        asked = [(taker, taker.go()) for taker in waiting]
        waiting = [taker for taker, some in asked if some is not None]
        pool.train([one for _, some in asked for one in some or ()])
    for taker in takers:
        if taker.error is not None:
            raise taker.error
    return [taker.result for taker in takers]


def whole_run(made: Simulation) -> float | None:
    """Play a run; return its final accuracy, or None if it diverges."""
    try:
        for t in range(1, made.config.rounds + 1):
            made.play(t)
    except Diverged:
        return None
    return made.judge().test.values["accuracy"]


# -- tables -----------------------------------------------------------------------------------------------------
def write_tables() -> None:
    """Write the tables of all data sets into the page."""
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    tables = []
    for data in SETTINGS:
        path = STORED / f"{data}.json"
        tables.append(table(data, json.loads(path.read_text())) if path.exists() else MISSING.format(data=data))
    PAGE.write_text(before + START + "\n\n" + "\n".join(tables) + END + after)


def table(data: str, stored: dict[str, Any]) -> str:
    """Return the table of a data set, under a line that says how it was measured."""
    settings, scores = stored["settings"], stored["scores"]
    how = ", ".join(f"`{name} = {value}`" for name, value in settings.items() if name not in ("split", "clients"))
    lines = [f"**{data}**: {how}; {stored['device']}, {stored['date']}.", ""]
    lines += ["| | " + " | ".join(f"`{a}`" if a != "none" else "no attack" for a in ATTACKS) + " |"]
    lines += ["|---|" + "---|" * len(ATTACKS)]
    for mean in MEANS:
        lines.append(f"| `{mean}` | " + " | ".join(cell(scores.get(a, {}).get(mean, {})) for a in ATTACKS) + " |")
    return "\n".join([*lines, ""])


def cell(found: dict[str, float | None]) -> str:
    """Return the mean of the seeds in percent, and half of its 95% interval."""
    from holdfast.comparison.stats import paired

    if not found:
        return "not run"
    known = [100 * v for v in found.values() if v is not None]
    if len(known) < len(found):
        return f"diverged: {len(found) - len(known)} of {len(found)}"
    gap = paired(known, [0.0] * len(known))
    assert gap is not None
    return f"{gap.mean:.1f}" if gap.high is None else f"{gap.mean:.1f} ± {gap.high - gap.mean:.1f}"


if __name__ == "__main__":
    main()

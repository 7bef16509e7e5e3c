"""Made-up comparisons in the form of ``compare.json``: a small generator for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.comparison.study_schema import Study
from holdfast.core.typed_json import from_json
from holdfast.training.drift import MEASURES

SETTINGS = {"data": "digits", "split": "dirichlet(0.3)", "clients": 12, "cohort": 4, "model": "mlp"}
LABELS = ("fedavg", "fedbug(0.4)", "fednlr", "fedbug(0.4)+feddyn(0.01)")


def study(labels: tuple[str, ...] = LABELS, seeds: int = 3, rounds: int = 20, drift: bool = True, **other: Any) -> dict:
    """A comparison with curves that rise, each method a little faster than the one before."""
    rng = np.random.default_rng(0)
    entries = [entry(rng, label, speed, seeds, rounds, drift) for speed, label in enumerate(labels, 4)]
    for e in entries[1:]:
        gaps = np.subtract(e["scores"]["final"]["values"], entries[0]["scores"]["final"]["values"])
        e["difference"] = {
            "of": "final",
            "to": labels[0],
            "mean": gaps.mean(),
            "low": -0.01,
            "high": 0.04,
            "p": 0.03,
            "n": seeds,
        }
    made = {
        "format": 3, "holdfast": "0.1.0", "torch": "2.13.0", "device": "cpu", "date": "2026-11-15",
        "command": "holdfast compare " + " ".join(labels),
        "settings": SETTINGS | {"rounds": rounds},
        "seeds": list(range(seeds)), "targets": [0.6, 0.9], "classes": [f"c{c}" for c in range(10)],
        "split": {"counts": rng.integers(0, 40, (12, 10)).tolist()}, "entries": entries,
    }  # fmt: skip
    return made | other


def typed(made: dict[str, Any]) -> Study:
    """Return a made-up comparison as its readers get it."""
    return from_json(Study, made)


def entry(rng: np.random.Generator, label: str, speed: int, seeds: int, rounds: int, drift: bool) -> dict[str, Any]:
    t = np.arange(1, rounds + 1)
    rise = 0.95 - 0.85 * np.exp(-t * speed / 40) + rng.normal(0, 0.01, (seeds, rounds))
    curves = {"rounds": t.tolist(), "test": rise.tolist(), "test_loss": (2 - 2 * rise).tolist()}
    by_class = rng.uniform(0.6, 1, (seeds, 10))
    found = {
        name: {"rounds": t.tolist(), "values": rng.normal(1, 0.1, (seeds, rounds)).tolist()} for name in measures()
    }
    return {
        "label": label, "method": label, "settings": {}, "runs": [f"{speed}/seed-{s}" for s in range(seeds)],
        "scores": {"final": spread(rise[:, -1]), "best": spread(rise.max(1)), "last5": spread(rise[:, -5:].mean(1))},
        "difference": None, "targets": [to_target(rise, goal) for goal in (0.6, 0.9)],
        "kappa": spread(rng.uniform(1, 2, seeds)), "rho": spread(rng.uniform(1, 2, seeds)),
        "seconds": spread(rng.uniform(5, 9, seeds)), "bytes": spread(rng.uniform(1e8, 2e8, seeds)),
        "by_class": {"mean": by_class.mean(0).tolist(), "values": by_class.tolist()},
        "curves": curves | {"train_loss": (1.8 - 1.9 * rise).tolist()}, "drift": found if drift else {},
    }  # fmt: skip


def lucky(made: dict[str, Any]) -> dict[str, Any]:
    """The second method gets to the last target with its later seeds alone, and sooner than any other."""
    target = made["entries"][1]["targets"][-1]
    target |= {name: [None, *[few] * (len(made["seeds"]) - 1)] for name, few in (("rounds", 2), ("seconds", 0.6))}
    target["bytes"] = [None, *[10**7] * (len(made["seeds"]) - 1)]
    return made


def measures() -> list[str]:
    return [m.name for m in MEASURES] + [f"feature_norm_{c}" for c in range(10)]


def spread(values: np.ndarray) -> dict[str, Any]:
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "std": std, "values": values.tolist()}


def to_target(rise: np.ndarray, goal: float) -> dict[str, Any]:
    rounds = [int(np.argmax(row >= goal)) + 1 if (row >= goal).any() else None for row in rise]
    seconds, traffic = ([None if r is None else r * unit for r in rounds] for unit in (0.3, 5e6))
    return {"target": goal, "rounds": rounds, "seconds": seconds, "bytes": traffic}


def write(folder: Path, made: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compare.json").write_text(json.dumps(made))
    return folder


EVIL = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">\'"&$x$'


def errors(labels: tuple[str, ...] = LABELS[:2], seeds: int = 3, rounds: int = 8, **other: Any) -> dict[str, Any]:
    """A comparison of a regression by RMSE: curves that fall, with validation data and a floor."""
    made = study(labels, seeds, rounds, drift=False) | {
        "metric": "rmse", "higher_is_better": False, "percent": False, "task": "regression", "chosen_on": "validation",
        "floor": {"name": "mean", "value": 24.5}, "targets": [12.0, 8.0],
    }  # fmt: skip
    for e in made["entries"]:
        fall = 30 - 28 * np.array(e["curves"]["test"])
        e["curves"] |= {"test": fall.tolist(), "validation": (fall + 0.1).tolist()}
        e["scores"] = {
            "final": spread(fall[:, -1]), "best": spread(fall.min(1)), "last5": spread(fall[:, -5:].mean(1)),
            "validation": spread(fall[:, -1] + 0.1),
        }  # fmt: skip
        e["targets"] = [to_target(-fall, -goal) | {"target": goal} for goal in (12.0, 8.0)]
        for name in ("kappa", "rho", "by_class"):
            del e[name]
    for e in made["entries"][1:]:
        gaps = np.subtract(e["scores"]["final"]["values"], made["entries"][0]["scores"]["final"]["values"])
        e["difference"]["mean"] = float(gaps.mean())
    return made | other

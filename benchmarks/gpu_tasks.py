"""Tasks, held-out data and clients made on demand on a GPU: the captured graph against the loop engine on the CPU.

    python benchmarks/gpu_tasks.py [FILE]

prints the relative difference of the trained model and of the last scores, in float64, and writes it to FILE as JSON.
Needs torch and numpy alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import holdfast

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(600, 12)).astype(np.float32)
LINES = np.cumsum(DRAW.integers(0, 3, (300, 21)), 1) % 7
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
METHODS = ("fedavg", "scaffold", "fedbug(0.5)", "fedmrur", "fednova")
Case = tuple[str, str, dict[str, Any], dict[str, Any]]  # what, method, settings of the federation, of the run


def client(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of a client, which follow from its number."""
    draw = np.random.default_rng(number)
    y = draw.integers(0, 3, 10 + number % 30)
    return draw.normal(size=(len(y), 12)).astype(np.float32) + y[:, None], y


def data(what: str) -> tuple[holdfast.DataSet, str]:
    """Return a data set and a model for a task."""
    if what == "regression":
        return holdfast.from_arrays(X, 1e5 + 1e4 * X[:, :2]), "mlp(width=32)"
    if what == "multilabel":
        return holdfast.from_arrays(X, (X[:, :4] > 0.5).astype(int)), "mlp(width=32)"
    if what == "next-token":
        return holdfast.from_arrays(LINES[:, :-1], LINES[:, 1:]), "lstm(embedding=4, hidden=16, layers=1)"
    if what == "on demand":
        return holdfast.from_clients(
            client, client(10**6), clients=10_000_000, classes=["a", "b", "c"]
        ), "mlp(width=32)"
    return holdfast.from_arrays(X, (X[:, 0] > 1.3).astype(int)), "mlp(width=32)"


def cases() -> Iterator[Case]:
    """Yield what to compare."""
    for what in ("regression", "multilabel", "next-token", "on demand"):
        for method in METHODS:
            yield what, method, {}, {}
    held = {"validation": 0.2, "client_test": 0.2}
    yield "classification", "scaffold", held, {}
    yield "classification", "fedlc", held, {"class_weights": "balanced"}
    yield "regression", "feddyn", held, {"stop_after": 2}


def train(case: Case, **where: Any) -> holdfast.Result:
    """Train one case somewhere."""
    what, method, federation, settings = case
    samples, model = data(what)
    split = {} if what == "on demand" else {"split": "dirichlet(0.5)", "clients": 8}
    common = {"rounds": 4, "cohort": 4, "epochs": 2, "batch": 16, "lr": 0.05, "precision": "fp64"}
    return holdfast.run(method, holdfast.federate(samples, **split, **federation), model, **common | settings | where)


def compare(case: Case) -> dict[str, Any]:
    """Return how far the graph is from the loop."""
    started = time.perf_counter()
    loop = train(case, engine="loop", device="cpu")
    graph = train(case, engine="vector", device=DEVICE, compile=False)
    w, other = loop.w.cpu(), graph.w.cpu()
    apart = float((w - other).norm() / w.norm())
    pairs = [(a, b) for r, s in zip(loop.history, graph.history, strict=True) for a, b in scores(r, s)]
    worst = max(abs(a - b) / max(1e-9, abs(a)) for a, b in pairs)
    what, method, federation, settings = case
    more = ", ".join(f"{k}={v}" for k, v in (federation | settings).items())
    seconds = round(time.perf_counter() - started, 1)
    return {"task": what, "method": method, "more": more, "model": apart, "scores": worst, "seconds": seconds}


def scores(one: Any, other: Any) -> Iterator[tuple[float, float]]:
    """Yield the scores of a round on both sides."""
    for kind in ("test", "validation", "clients"):
        mine, theirs = getattr(one, kind), getattr(other, kind)
        assert mine.keys() == theirs.keys()
        yield from ((mine[name], theirs[name]) for name in mine)


def main() -> None:
    """Compare everything."""
    found = []
    for case in cases():
        found.append(compare(case))
        print(*found[-1].values(), flush=True)
    bad = [row for row in found if row["model"] > 1e-9 or row["scores"] > 1e-6]
    print(f"{len(found) - len(bad)} of {len(found)} agree")
    if len(sys.argv) > 1:
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"
        Path(sys.argv[1]).write_text(
            json.dumps({"device": device, "torch": torch.__version__, "rows": found}, indent=1)
        )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

"""Any model on a GPU: the captured graph against the loop engine on the CPU, in float64.

    python benchmarks/gpu_models.py [FILE]

prints the relative difference of the trained model, its running statistics included, and writes it to FILE as JSON.
Needs torch and numpy alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import holdfast
from tests.helpers.any_models import MODELS, build

METHODS = ("fedavg", "scaffold", "fedbug(0.5)", "fedmrur", "fednova")
OTHERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("fedavg", "batchnorm", {"batchnorm": "local"}),
    ("scaffold", "batchnorm", {"batchnorm": "frozen"}),
    ("fednova", "lora", {"optimizer": "momentum(0.9)"}),
    ("scaffold", "lora", {"optimizer": "adam", "epochs": "1-3"}),
    ("fedavg", "batchnorm", {"augment": "crop(1, padding=reflect)+flip(0.5)"}),
)


def train(method: str, name: str, **settings: Any) -> holdfast.Result:
    federation = MODELS[name][1]()
    if augment := settings.pop("augment", None):
        federation = holdfast.federate(federation.data, "given", clients=federation.clients, augment=augment)
    common = {"rounds": 3, "cohort": 3, "epochs": 2, "batch": 3, "lr": 0.1, "precision": "fp64"}
    return holdfast.run(method, federation, build(name), **common | settings)


def difference(one: holdfast.Result, other: holdfast.Result, name: str) -> float:
    """Return the distance of two trained models, relative to how far they were trained."""
    start = build(name).state_dict()
    mine, theirs = ({k: t for k, t in r.state_dict().items() if t.is_floating_point()} for r in (one, other))
    moved = [(t.cpu().double() - start[k].double()).norm() for k, t in mine.items()]
    apart = [(t.cpu().double() - theirs[k].cpu().double()).norm() for k, t in mine.items()]
    return float(torch.stack(apart).norm() / torch.stack(moved).norm())


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name in MODELS:
        for method in METHODS:
            yield method, name, {"compile": False}
        yield "fedavg", name, {"compile": True}
    for method, name, settings in OTHERS:
        yield method, name, {"compile": False, **settings}


def main() -> None:
    found = []
    for method, name, settings in cases():
        started = time.perf_counter()
        loop = train(method, name, **settings | {"compile": False}, device="cpu", engine="loop")
        graph = train(method, name, **settings, device="cuda", engine="vector")
        row = {"model": name, "method": method, "settings": settings, "difference": difference(loop, graph, name)}
        found.append(row)
        seconds = time.perf_counter() - started
        print(f"{name:16} {method:12} {settings} {row['difference']:.1e} {seconds:.1f} s", flush=True)
        if len(sys.argv) > 1:
            report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": found}
            Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""One local step of ten clients on a GPU: plain eager PyTorch, client after client, against the vector engine.

    python benchmarks/gpu.py [--models cnn,resnet18] [--rounds 3] [--check]

Prints milliseconds per step of the whole cohort and the ratio, all measured in one run; ``--check`` first compares
results with the loop engine on the CPU in float64.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.nn.functional as F

import holdfast
from holdfast.config import Config
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation
from holdfast.method import as_method
from holdfast.models.zoo import make
from holdfast.rounds import arithmetic, prepare
from holdfast.simulation import Simulation

CLIENTS, COHORT, BATCH, SAMPLES = 100, 10, 50, 500
CASES = {
    "cnn": ("cnn", "tf32"),
    "resnet18": ("resnet18", "tf32"),
    "resnet18-bf16": ("resnet18", "bf16"),
    "resnet18-cifar": ("resnet18(stem=cifar)", "bf16"),
}
CHECKED = ("fedavg", "scaffold+fedbug(0.4)+clip(1)+decay", "fedagg", "fedmrur(rho=0.05)+fednlr", "fnr+moon")


def federation(samples: int = SAMPLES, clients: int = CLIENTS, split: str = "iid", size: int = 32) -> Federation:
    """Random images: speed does not depend on what they show."""
    g = torch.Generator().manual_seed(0)
    n = samples * clients
    x = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    data = DataSet("random", x, y, x[:1000], y[:1000], tuple("0123456789"), (0.5,) * 3, (0.25,) * 3)
    return holdfast.federate(data, split, clients, 0, public=0.02)


def plain(model: str, precision: str, fed: Federation, steps: int = 10) -> float:
    """Seconds per step of ten clients, each a module and an optimiser of its own, on data that is on the device."""
    x = ((fed.data.x[: COHORT * BATCH].float() / 255 - 0.5) / 0.25).cuda().split(BATCH)
    y = fed.data.y[: COHORT * BATCH].cuda().split(BATCH)
    modules = [make(model, (3, 32, 32), 10).cuda() for _ in range(COHORT)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in modules]

    def step() -> None:
        for i in range(COHORT):
            optimizers[i].zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = F.cross_entropy(modules[i](x[i]), y[i])
            loss.backward()
            optimizers[i].step()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def simulation(method: str, fed: Federation, **settings: object) -> Simulation:
    config = Config(method=method, clients=fed.clients, **settings)  # type: ignore[arg-type]
    return prepare(config, as_method(method), fed, None)


def ours(model: str, precision: str, fed: Federation, rounds: int, method: str = "fedavg", **settings: object) -> dict:
    """Seconds per step and for the first round (compilation included)."""
    sim = simulation(
        method, fed, model=model, precision=precision, cohort=COHORT, batch=BATCH, epochs=10, device="cuda",
        engine="vector", **settings,
    )  # fmt: skip
    begun = time.perf_counter()
    sim.play(1)
    torch.cuda.synchronize()
    first = time.perf_counter() - begun
    sim.play(2)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for t in range(3, 3 + rounds):
        sim.play(t)
    torch.cuda.synchronize()
    steps = 10 * -(-int(fed.deal.sizes.max()) // BATCH)
    return {"step": (time.perf_counter() - begun) / rounds / steps, "first": first}


def whole(fed: Federation, rounds: int) -> None:
    """FedBug's CIFAR-10 setting as users run it: 10 of 100 clients, 10 epochs, evaluation every 10 rounds."""
    begun = time.perf_counter()
    result = holdfast.run(
        "fedbug(0.4)+mean(uniform)", fed, "cnn", rounds=rounds + 2, cohort=COHORT, epochs=10, batch=BATCH, clip=10.0,
        weight_decay=1e-3, precision="tf32", device="cuda", eval_every=10,
    )  # fmt: skip
    seconds = sum(r.seconds for r in result.history[2:])
    total = time.perf_counter() - begun
    print(f"whole rounds: {rounds} of FedBug's setting in {seconds:.1f} s, {seconds / rounds * 300:.0f} s for its 300; "
          f"{total - seconds:.0f} s to start and compile", flush=True)  # fmt: skip


def check() -> None:
    """The GPU's replayed graph against the loop on the CPU: float64, ragged clients, three rounds."""
    fed = federation(30, 8, "dirichlet(0.5)", size=8)
    for method in CHECKED:
        found = []
        for settings in (
            {"device": "cpu", "engine": "loop"},
            {"device": "cuda", "engine": "vector", "compile": False},
            {"device": "cuda", "engine": "vector", "compile": True},
        ):
            sim = simulation(method, fed, model="cnn", precision="fp64", cohort=4, batch=7, epochs=2, **settings)
            begun = time.perf_counter()
            for t in range(1, 4):
                sim.play(t)
            torch.cuda.synchronize()
            found.append((sim.server.w.cpu(), time.perf_counter() - begun))
        reference = found[0][0] - sim.net.initial.cpu()
        for name, (w, seconds) in zip(("loop", "graph", "compiled graph"), found, strict=True):
            error = float((w - found[0][0]).norm() / reference.norm())
            print(f"check {method:40s} {name:15s} relative difference {error:.1e}  {seconds:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--whole", type=int, default=0, help="also time so many whole rounds")
    parser.add_argument("--variants", default="")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    if args.check:
        check()
    fed = federation()
    rows = []
    for case in filter(None, args.models.split(",")):
        model, precision = CASES[case]
        with arithmetic(precision):
            base = plain(model, precision, fed)
            row = {"case": case, "precision": precision, "plain_ms": base * 1e3}
            for name, settings in (
                ("vmap", {"graphs": False, "compile": False, "convolution": "direct"}),
                ("graph", {"compile": False, "convolution": "direct"}),
                ("compiled graph", {"compile": True, "convolution": "direct"}),
                ("products", {"compile": False, "convolution": "product"}),
                ("compiled products", {"compile": True, "convolution": "product"}),
            ):
                if args.variants and name not in args.variants.split(","):
                    continue
                try:
                    found = ours(model, precision, fed, args.rounds, **settings)
                except Exception as error:  # a benchmark reports what failed and goes on
                    print(f"{case} {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                    continue
                row[name] = found["step"] * 1e3
                row[f"{name} first round s"] = found["first"]
                print(f"{case:16s} {precision} plain {base * 1e3:7.2f} ms  {name:17s} {found['step'] * 1e3:7.2f} ms "
                      f"{base / found['step']:5.1f}x  first round {found['first']:.0f} s", flush=True)  # fmt: skip
        rows.append(row)
    if args.whole:
        whole(fed, args.whole)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()

"""What Holdfast costs on Flower, compared with plain Flower FedAvg in simulation, and per round of a deployment.

    python benchmarks/flower.py simulation    # Ray: the same training by plain Flower and by --engine flower
    python benchmarks/flower.py deployment    # holdfast deploy local: where the time of a round goes; or with --secure

Plain Flower and Holdfast train the same network on the same split of the digits, with the same number of steps, and
score it every round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast.flower.environment import set_environment

set_environment()

import torch  # noqa: E402
from flower_plain import client  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from holdfast import run  # noqa: E402
from holdfast.flower.node_data import split_data  # noqa: E402
from holdfast.flower.ray_backend import quiet_flower, ray_settings  # noqa: E402
from holdfast.method.config import Config  # noqa: E402
from holdfast.models.zoo import make  # noqa: E402

WARM_UP = 2  # rounds that are not measured: processes start and read their data


def plain(config: Config) -> list[float]:
    """Return the seconds of each round of plain Flower FedAvg."""
    ends: list[float] = []
    server = ServerApp()
    federation = split_data(config)
    net = make(config.model, federation.shape, federation.classes, config.seed)
    data = federation.data

    def score(round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            hits = net(federation.inputs(data.test_x)).argmax(1) == data.test_y
        ends.append(time.perf_counter())
        return MetricRecord({"accuracy": float(hits.float().mean())})

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        share = config.cohort_size / config.clients
        strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0, min_available_nodes=config.clients)
        start = ArrayRecord(net.state_dict())
        strategy.start(grid, start, num_rounds=config.rounds, train_config=ConfigRecord({}), evaluate_fn=score)

    with quiet_flower():
        run_simulation(server, client(config), config.clients, backend_config=ray_settings(config))
    return [b - a for a, b in itertools.pairwise(ends)]


def ours(config: Config) -> list[float]:
    """Return the seconds of each round of Holdfast's FedAvg in the same runtime, checkpoints included."""
    ends = [time.perf_counter()]
    with tempfile.TemporaryDirectory() as folder:
        settings = {k: getattr(config, k) for k in ("clients", "cohort", "model", "epochs", "rounds", "batch", "split")}
        run("fedavg", engine="flower", device="cpu", out=Path(folder) / "run",
            on_round=lambda record: ends.append(time.perf_counter()), **settings)  # fmt: skip
    return [b - a for a, b in itertools.pairwise(ends)]


def simulation(model: str, epochs: int, rounds: int) -> None:
    """Compare plain Flower with Holdfast in simulation.

    Args:
        model: The network.
        epochs: The local epochs.
        rounds: The rounds.
    """
    config = Config(
        clients=10, cohort=4, model=model, epochs=epochs, rounds=rounds, batch=32, split="iid", device="cpu"
    )
    medians: dict[str, float] = {}
    for name, measure in (("plain Flower", plain), ("holdfast", ours)):
        seconds = measure(config)[WARM_UP:]
        medians[name] = statistics.median(seconds)
        print(f"simulation {model}, {epochs} epochs: {name} {medians[name]:.3f} s per round (median of {len(seconds)})")
    print(f"simulation {model}, {epochs} epochs: overhead {medians['holdfast'] / medians['plain Flower'] - 1:+.1%}")


def deployment(method: str, rounds: int, secure: bool) -> None:
    """Show where the time of each round of a local deployment goes, with or without secure aggregation."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["deploy", "local", method, "--nodes", "3", "--cohort", "3", "--rounds", str(rounds), "--out", str(out)]
        words += ["--secure"] if secure else []
        subprocess.run([sys.executable, "-m", "holdfast", *words, "--quiet"], check=True, timeout=900)
        records: list[dict[str, Any]] = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    for r in records[1:]:
        print(
            f"deployment {method}, round {r['round']}: {r['seconds']:.2f} s, of which {r['waiting']:.2f} s waiting for "
            f"Flower and the nodes' training, {r['overhead']:.3f} s in Holdfast"
        )
    share = sum(r["overhead"] for r in records[1:]) / sum(r["seconds"] for r in records[1:])
    print(f"deployment {method}: Holdfast takes {share:.1%} of a round")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulation", "deployment"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--method", default="scaffold")
    parser.add_argument("--secure", action="store_true", help="with deployment: under secure aggregation")
    args = parser.parse_args()
    if args.what == "simulation":
        simulation(args.model, args.epochs, args.rounds)
    else:
        deployment(args.method, args.rounds, args.secure)

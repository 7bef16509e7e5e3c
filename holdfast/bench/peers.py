"""The benchmark's CPU workload in other federated-learning frameworks, each run the way its own users run it.

One round: 10 of 100 clients, each with 600 MNIST-shaped random samples, train one epoch of SGD (batch 32, rate 0.1) and
are averaged; nothing is evaluated. All peers train the same networks on the same normalised tensors, kept in memory.

    python -m holdfast.bench.peers flower linear 5

prints one line of JSON. Every measurement has its own process, so that a peer that fails, or leaves threads behind,
does not disturb the next one. Ray and torchrun listen on every network interface; ``compare`` leaves them only loopback
where the system allows that.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import metadata
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.bench.measured_process import alone, answer
from holdfast.core.errors import HoldfastError, unknown
from holdfast.models.zoo import make

SHAPE, CLASSES = (1, 28, 28), 10
CLIENTS, COHORT, SAMPLES, BATCH, RATE = 100, 10, 600, 32, 0.1
PACKAGES = {"flower": "flwr[simulation]", "fluke": "fluke-fl", "pfl": "pfl"}
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 by default, which starves the clients on a machine that does anything else
}


def installed(name: str) -> str | None:
    """Return the version of a peer, or of any package; None if it is not installed."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(PACKAGES.get(name, name).partition("[")[0])
    return None


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def data() -> list[tuple[Tensor, Tensor]]:
    """Return every client's normalised samples and labels; speed does not depend on what they show."""
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (CLIENTS * SAMPLES, *SHAPE), dtype=torch.uint8, generator=g)
    y = torch.randint(0, CLASSES, (CLIENTS * SAMPLES,), generator=g)
    x = (x.float() / 255 - 0.5) / 0.25
    return [(x[at : at + SAMPLES], y[at : at + SAMPLES]) for at in range(0, len(x), SAMPLES)]


@cache
def network(model: str) -> nn.Module:
    """Return the network of this process; a client loads the weights that it receives into it."""
    return make(model, SHAPE, CLASSES)


def per_round(marks: Sequence[float], rounds: int) -> float:
    """Return the least time between the ends of two rounds; the first round, which includes the start, is not timed."""
    if len(marks) != rounds + 1:
        raise HoldfastError(f"{len(marks)} of {rounds + 1} rounds ended; see the peer's messages")
    return min(later - earlier for earlier, later in pairwise(marks))


def train(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train for one epoch in random order: the loop that a user of Flower writes.

    Args:
        net: The network.
        x: The samples.
        y: Their labels.
    """
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for rows in torch.split(torch.randperm(len(x)), BATCH):
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def flower(model: str, rounds: int) -> float:
    """Time Flower's simulation: as many Ray processes as cores, one core per ClientApp, and the FedAvg strategy."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, marks = ClientApp(), ServerApp(), list[float]()

    def local(message: Message, context: Context) -> Message:
        net = network(model)
        net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        train(net, *data()[int(context.node_config["partition-id"])])
        metrics = MetricRecord({"num-examples": SAMPLES})
        return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

    def ended(replies: list[RecordDict], key: str) -> MetricRecord:
        if len(replies) != COHORT:  # Flower averages whatever updates it gets, however few
            raise HoldfastError(f"{len(replies)} of {COHORT} clients answered; see Flower's messages")
        marks.append(time.perf_counter())
        return MetricRecord()

    def serve(grid: Grid, context: Context) -> None:
        share = COHORT / CLIENTS
        strategy = FedAvg(share, 0.0, min_available_nodes=CLIENTS, train_metrics_aggr_fn=ended)
        strategy.start(grid, ArrayRecord(network(model).state_dict()), num_rounds=rounds + 1)

    client.train()(local)
    server.main()(serve)
    ray = {"num_cpus": cores(), "_node_ip_address": "127.0.0.1", "include_dashboard": False}
    config: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": ray}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=config)
    return per_round(marks, rounds)


def fluke(model: str, rounds: int) -> float:
    """Time fluke's FedAvg: the clients one after another in this process, on all its cores; the evaluator is off."""
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader

    torch.set_num_threads(cores())
    marks: list[float] = []
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    loaders = [FastDataLoader(x, y, num_labels=CLASSES, batch_size=BATCH, shuffle=True) for x, y in data()]
    splitter = DataSplitter(DummyDataContainer(loaders, [None] * CLIENTS, None, CLASSES))
    optimizer = {"name": "SGD", "lr": RATE}
    scheduler = {"name": "StepLR", "step_size": 1, "gamma": 1.0}
    client = {"batch_size": BATCH, "local_epochs": 1, "loss": nn.CrossEntropyLoss}
    client |= {"optimizer": optimizer, "scheduler": scheduler}
    algorithm = FedAVG(CLIENTS, splitter, DDict(model=network(model), client=client, server={"weighted": True}))
    algorithm.attach(SimpleNamespace(end_round=lambda round: marks.append(time.perf_counter())))
    algorithm.run(rounds + 1, COHORT / CLIENTS)
    return per_round(marks, rounds)


def pfl(model: str, rounds: int) -> float:
    """Time pfl's FederatedAveraging on its SimulatedBackend, in as many torchrun workers as there are cores."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cores()}"]
        return float(answer([*torchrun, "-m", __name__, "pfl", model, str(rounds)], os.environ)["seconds_per_round"])

    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)
    np.random.seed(0)  # the workers must draw the same cohorts
    marks: list[float] = []

    def ended(*args: Any, **kwargs: Any) -> tuple[bool, Metrics]:
        marks.append(time.perf_counter())
        return False, Metrics()

    clock = TrainingProcessCallback()
    clock.after_central_iteration = ended
    net: Any = network(model)
    net.loss = lambda x, y: F.cross_entropy(net(x), y)
    net.metrics = lambda x, y: {"loss": Weighted(net.loss(x, y).item(), 1)}
    users = [PyTorchTensorDataset(part) for part in data()]
    dataset = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(range(CLIENTS))))
    FederatedAveraging().run(
        # users are always evaluated in the first iteration, which is not timed, and then at this frequency
        NNAlgorithmParams(rounds + 1, evaluation_frequency=rounds + 1, train_cohort_size=COHORT, val_cohort_size=0),
        SimulatedBackend(dataset, dataset, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0)),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=SAMPLES),
        [clock],
        send_metrics_to_platform=False,
    )
    torch.distributed.destroy_process_group()
    return per_round(marks, rounds)


PEERS: dict[str, Callable[[str, int], float]] = {"flower": flower, "fluke": fluke, "pfl": pfl}


def compare(
    models: Iterable[str], rounds: int, peers: Iterable[str] = tuple(PEERS), limit: float = 300.0
) -> list[dict[str, Any]]:
    """Time all peers on all models, each in its own process.

    Args:
        models: The networks.
        rounds: The rounds to time.
        peers: The peers; default: all.
        limit: Seconds that a measurement may take.

    Returns:
        The seconds per round, or the error, of every peer and model.
    """
    results = []
    for peer in peers:
        if installed(peer) is None:
            results.append({"peer": peer, "error": f"not installed; pip install {PACKAGES.get(peer, peer)}"})
            continue
        for model in models:
            command = [*alone(), sys.executable, "-m", __name__, peer, model, str(rounds)]
            with tempfile.TemporaryDirectory() as folder:
                env = {**os.environ, **SETTINGS, "FLWR_HOME": folder}
                try:
                    results.append(answer(command, env, limit))
                except HoldfastError as error:
                    results.append({"peer": peer, "model": model, "error": str(error)})
    return results


def measure(peer: str, model: str, rounds: int) -> dict[str, Any]:
    """Time one peer on one model.

    Args:
        peer: The peer.
        model: The network.
        rounds: The rounds to time.

    Returns:
        What ``main`` prints.
    """
    if peer not in PEERS:
        raise unknown("peer", peer, PEERS)
    with contextlib.redirect_stdout(sys.stderr):
        seconds = PEERS[peer](model, rounds)
    return {"peer": peer, "version": installed(peer), "model": model, "seconds_per_round": seconds}


def main() -> None:
    """Measure what the arguments name, and print a line of JSON, also for a failure. Only the first worker prints."""
    peer, model, rounds = sys.argv[1:]
    os.environ.update(SETTINGS)
    try:
        line, status = measure(peer, model, int(rounds)), 0
    except Exception as error:
        traceback.print_exc()
        text = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        line, status = {"peer": peer, "model": model, "error": text.splitlines()[0]}, 1
    if status or os.environ.get("RANK", "0") == "0":
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    os._exit(status)  # an orderly exit can crash in threads that a peer left, such as those of torch.distributed


if __name__ == "__main__":
    from holdfast.bench.peers import main as imported  # Ray's processes import the clients' functions by this name

    imported()

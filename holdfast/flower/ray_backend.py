"""The engine ``flower``: clients train in Ray's worker processes, through Flower's simulation runtime.

For cohorts that outgrow one process. Every client is a node of its own; the messages are those of a deployment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from holdfast.core.errors import HoldfastError
from holdfast.flower.app import client_app, serve
from holdfast.method.config import Config
from holdfast.runs.folder import FLOWER
from holdfast.runs.history import Record
from holdfast.runs.run import Result
from holdfast.training.round import Trainer

PATIENCE = 24 * 3600.0  # seconds: nothing is lost in simulation, only slow


def simulate(
    config: Config,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    on_start: Callable[[Trainer, int], None],
    on_round: Callable[[Record], None],
    stop: Callable[[], bool],
) -> Result:
    """Run what a config describes. The server is a thread of this process."""
    if find_spec("ray") is None:
        raise HoldfastError("engine flower needs Ray, which is not installed: pip install 'holdfast[flower]'")
    settings = {k: v for k, v in asdict(config).items() if v is not None}
    terms = {"nodes": config.clients, "timeout": PATIENCE, "patience": 300.0}
    where = {"out": str(out.absolute())} if out is not None else {}
    how = settings | terms | where | {"resume": resume, "overwrite": overwrite}
    results: list[Result | BaseException] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            results.append(serve(grid, config, how, on_start=on_start, on_round=on_round, stop=stop))
        except BaseException as error:
            results.append(error)

    folder = out.absolute() / FLOWER / "nodes" if out is not None else None
    with hushed():
        run_simulation(server, client_app(settings=settings, state=folder), config.clients, backend_config=ray(config))
    if not results:
        raise HoldfastError("Flower's simulation ended without a result")
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def ray(config: Config) -> dict[str, Any]:
    """One worker per core, all on the loopback; a GPU is shared among them."""
    cores = os.cpu_count() or 1
    gpus = torch.cuda.device_count() if config.device != "cpu" else 0
    return {
        "init_args": {
            "num_cpus": cores,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "logging_level": logging.ERROR,
            "log_to_driver": False,
        },
        "client_resources": {"num_cpus": 1, "num_gpus": gpus / cores},
    }


@contextmanager
def hushed() -> Iterator[None]:
    """Without Flower's lines about itself; its errors are shown."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)

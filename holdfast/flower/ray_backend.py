"""The engine ``flower``: clients train in Ray's worker processes, through Flower's simulation runtime.

It is meant for cohorts that outgrow one process. Every client is a node, and the messages are those of a deployment.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from holdfast.core.errors import HoldfastError
from holdfast.flower.app import client_app
from holdfast.flower.coordinator import Coordinator
from holdfast.flower.settings import DeploymentSettings
from holdfast.method.config import Config
from holdfast.runs.run_files import FLOWER
from holdfast.runs.setup import RunSetup
from holdfast.training.round import Trainer

TIMEOUT = 24 * 3600.0  # seconds; in a simulation replies may be slow, but none is lost


@contextmanager
def ray_trainer(setup: RunSetup) -> Iterator[Trainer]:
    """Train the clients of a run in Ray's worker processes; the server stays in this process."""
    if find_spec("ray") is None:
        raise HoldfastError("engine flower needs Ray, which is not installed: pip install 'holdfast[flower]'")
    config = setup.config
    if ":" in config.device:
        raise HoldfastError(
            f"engine flower deals its clients to all GPUs, so device cannot be {config.device}: use --device cuda"
        )
    states = None if setup.path is None else setup.path.absolute() / FLOWER / "nodes"
    settings = DeploymentSettings(nodes=config.client_count, timeout=TIMEOUT, patience=300.0)
    with ray_grid(config, client_app(model=setup.factory, settings=config.set_values(), state=states)) as grid:
        yield Coordinator(setup, grid, settings)


@contextmanager
def ray_grid(config: Config, app: ClientApp) -> Iterator[Grid]:
    """Run Flower's simulation runtime, with access to its nodes, until the block ends."""
    ready: queue.Queue[Grid | BaseException] = queue.Queue()
    done = threading.Event()
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        ready.put(grid)
        done.wait()

    def simulate() -> None:
        try:
            run_simulation(server, app, config.client_count, backend_config=ray_settings(config))
            ready.put(HoldfastError("Flower's simulation ended before it was ready: see its messages above"))
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=simulate, daemon=True)
    with quiet_flower():
        thread.start()
        grid = ready.get()
        if isinstance(grid, BaseException):
            raise grid
        try:
            yield grid
        finally:
            done.set()
            thread.join()


def ray_settings(config: Config) -> dict[str, Any]:
    """Return Ray's settings: one worker per core, all on the loopback, sharing the GPUs."""
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
def quiet_flower() -> Iterator[None]:
    """Hide Flower's messages about itself; its errors are shown."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)

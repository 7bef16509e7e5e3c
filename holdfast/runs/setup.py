"""Everything a run needs, built from its config: every bad setting is found here, before anything is written."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.data.sources import load
from holdfast.method.config import Config, with_role
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.method import Method
from holdfast.models.net import Net
from holdfast.models.zoo import make
from holdfast.training.round import Trainer
from holdfast.training.simulation import Simulation, decided


@dataclass(frozen=True)
class RunSetup:
    """What a trainer is made from."""

    config: Config
    method: Method  # with the parts that flags stand for
    federation: Federation  # on the device of the network
    net: Net
    path: Path | None = None  # the run's folder


MakeTrainer = Callable[[RunSetup], AbstractContextManager[Trainer]]

# Engines that are not simulations of this process: who trains the clients there, as "module:function".
OTHER_TRAINERS = {"flower": "holdfast.flower:ray_trainer"}


def simulate(setup: RunSetup) -> AbstractContextManager[Trainer]:
    """Train all clients in this process."""
    return nullcontext(Simulation(setup.config, setup.method, setup.federation, setup.net))


def trainer_for(engine: str) -> MakeTrainer:
    """Return what makes the trainer for an engine."""
    if engine not in OTHER_TRAINERS:
        return simulate
    module, _, name = OTHER_TRAINERS[engine].partition(":")
    make_trainer: MakeTrainer = getattr(importlib.import_module(module), name)
    return make_trainer


def prepare(
    config: Config,
    method: Method,
    federation: Federation | None = None,
    model: nn.Module | None = None,
    path: Path | None = None,
) -> RunSetup:
    """Build everything that a run needs.

    Args:
        config: The run.
        method: The method, without the parts that the config's flags add.
        federation: The federation that the config describes, if it is at hand; it is dealt otherwise.
        model: The user's own module; by default the network that the config names.
        path: The run's folder.

    Returns:
        The setup. Its config has everything decided that was left open.
    """
    federation = deal(config) if federation is None else federation
    method, net = check_together(config, method, federation, model)
    config = decided(config, federation, net)
    return RunSetup(config, method, federation.to(net.device, net.dtype), net, path)


def prepare_simulation(
    config: Config, method: Method, federation: Federation | None = None, model: nn.Module | None = None
) -> Simulation:
    """Build the simulation that a config describes, to play its rounds by hand."""
    setup = prepare(config, method, federation, model)
    return Simulation(setup.config, setup.method, setup.federation, setup.net)


def deal(config: Config, data: DataSet | None = None) -> Federation:
    """Build the federation that a config describes; ``data`` replaces the data set that it names."""
    data = load(config.data, Path(config.data_dir) if config.data_dir else None) if data is None else data
    c = config
    return federate(data, c.split, c.clients, c.seed, c.public, c.augment, c.augment_public)


def check_together(
    config: Config, method: Method, federation: Federation, model: nn.Module | None
) -> tuple[Method, Net]:
    """Check that config, method, federation and model fit together.

    Returns:
        The method with the parts that flags stand for, and the network on its device.
    """
    method = with_flag_parts(method, config)
    config.schedule.check(config.rounds)
    device = pick_device(config.device)
    if config.cohort is not None and config.cohort > federation.clients:
        raise HoldfastError(
            f"cohort {config.cohort} is larger than the number of clients, {federation.clients}: lower cohort"
        )
    module = model if model is not None else make(config.model, federation.shape, federation.classes, config.seed)
    net = Net(
        module,
        federation.shape,
        federation.classes,
        head=config.head,
        device=device,
        precision=config.precision,
    )
    if federation.leaks and not any(part.accepts_test_data for part in method.parts):
        raise HoldfastError("public data is the test data, but no part of this method may use it: leave out public")
    method.check(config, net, federation)
    return method, net


def settings_of_objects(
    federation: Federation | None, model: nn.Module | str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings that the user's own federation or model decides; setting them as well is an error."""
    refuse_other_objects(federation, model)
    found: dict[str, Any] = {}
    if federation is not None:
        for name in settings:
            if name in with_role("federation") and name != "seed":
                raise HoldfastError(f"{name} is decided by the federation: leave it out, or pass it to federate()")
        found |= {"data": federation.data.name, "split": federation.split, "clients": federation.clients}
    if model is not None:
        found |= {"model": model if isinstance(model, str) else type(model).__name__}
    return found


def refuse_other_objects(federation: object, model: object) -> None:
    """Say what to do with a data set that is not dealt yet, or with a class of models."""
    if federation is not None and not isinstance(federation, Federation):
        kind = type(federation).__name__
        raise HoldfastError(f"the second argument is a {kind}, not a federation: make one with federate(...)")
    if isinstance(model, type):
        raise HoldfastError(f"the model is the class {model.__name__}: pass an instance, {model.__name__}()")


def pick_device(name: str) -> torch.device:
    """Return the device of this name; ``auto`` is a GPU if PyTorch sees one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise HoldfastError("device cuda was requested, but PyTorch sees no CUDA GPU: use --device cpu")
    return torch.device(name)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Let matrix products use TF32 only if the run asks for it."""
    matmul, cudnn = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    fast = precision in ("tf32", "bf16")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn

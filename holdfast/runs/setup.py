"""Everything a run needs, built from its config: every bad setting is found here, before anything is written."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from holdfast.attacks.attack import read_attack
from holdfast.core.devices import name_on_machine, pick_device
from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate
from holdfast.data.loss_weights import with_loss_weights
from holdfast.data.sources import load
from holdfast.data.validation import POOL
from holdfast.engines.threads import suitable_threads
from holdfast.method.config import Config, with_role
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.hook_checks import checked
from holdfast.method.method import Method
from holdfast.metrics.metric import Metric
from holdfast.metrics.metric_names import read_metric
from holdfast.models.factories import Factory, factory_name, from_factory, is_factory
from holdfast.models.net import Net
from holdfast.models.zoo import make, takes_tokens
from holdfast.runs.code_files import located
from holdfast.speeds.speed_file import checksum
from holdfast.training.privacy import accountant, noise_for
from holdfast.training.round import Trainer
from holdfast.training.simulation import Simulation, clock_of, decided


@dataclass(frozen=True)
class RunSetup:
    """What a trainer is made from."""

    config: Config
    method: Method  # with the parts that flags stand for
    federation: Federation  # on the device of the network
    net: Net
    path: Path | None = None  # the run's folder
    factory: Factory | None = None  # makes the network, where the user has passed such a function or class
    metric: Metric | None = None  # what the run goes by; None: what its config names


MakeTrainer = Callable[[RunSetup], AbstractContextManager[Trainer]]

# Engines that are not simulations of this process: who trains the clients there, as "module:function".
OTHER_TRAINERS = {"flower": "holdfast.flower:ray_trainer"}
ARGUMENTS = {  # what a setting is to the functions that make a federation, where it has another name
    "split_seed": "seed to federate()", "client_eval": "client_test=0.2 to federate()", "data_dir": "it to load()",
}  # fmt: skip


@contextmanager
def simulate(setup: RunSetup) -> Iterator[Trainer]:
    """Train all clients in this process."""
    simulation = Simulation(setup.config, setup.method, setup.federation, setup.net, setup.metric)
    with suitable_threads(setup.net):
        yield simulation


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
    model: nn.Module | Factory | None = None,
    path: Path | None = None,
) -> RunSetup:
    """Build everything that a run needs.

    Args:
        config: The run.
        method: The method, without the parts that the config's flags add.
        federation: The federation that the config describes, if it is at hand; it is dealt otherwise.
        model: The user's own module, or what makes it; by default the network that the config names.
        path: The run's folder.

    Returns:
        The setup. Its config has everything decided that was left open.
    """
    federation = deal(config) if federation is None else federation
    config = with_noise(with_speeds(config, federation), method, federation)
    method, federation, net = check_together(config, method, federation, model)
    config = decided(with_federation(config, federation), federation, net).changed(ran_on=name_on_machine(net.device))
    factory = None if isinstance(model, nn.Module) else model
    metric = read_metric(located(config).metric, federation.data.task)
    return RunSetup(config, method, federation.to(net.device, net.dtype), net, path, factory, metric)


def with_speeds(config: Config, federation: Federation) -> Config:
    """Return the config with the checksum of its file of client speeds, if it has one; all of the file is checked."""
    if config.client_speeds is None:
        return config
    if config.engine in OTHER_TRAINERS:
        raise HoldfastError(
            f"client_speeds slows down simulated clients, but with engine {config.engine} real machines train: leave "
            "out client_speeds"
        )
    if clock_of(config, federation).speeds.leaves:
        federation.need_all_clients("client_speeds with clients that are away")
    found, before = checksum(config.client_speeds), config.speeds_checksum
    if before is not None and found != before:
        raise HoldfastError(
            f"{config.client_speeds} has changed since the run was started: restore it, or start over with --overwrite"
        )
    return config.changed(speeds_checksum=found)


def check_speeds(config: Config, method: Method) -> None:
    """Refuse sums whose rounds the virtual clock does not know, or that count on who is drawn."""
    if config.client_speeds is None:
        return
    for hook in ("consult", "trips", "survey"):
        for part in method.filling(hook):
            raise HoldfastError(
                f"{part.name} asks clients for more than one update per round, which client_speeds does not time: "
                "leave out one of them"
            )
    if method.private is not None:
        raise HoldfastError(
            f"{method.private.name} accounts for cohorts that chance alone decides, but client_speeds decides who is "
            "there and in time: leave out one of them"
        )


def with_noise(config: Config, method: Method, federation: Federation) -> Config:
    """Return the config with the noise that its epsilon needs; noise that was found before stays as it is."""
    part = method.private
    if config.epsilon is None:
        return config
    if part is None:
        raise HoldfastError("epsilon has no effect without differential privacy: add +dp to the method")
    if getattr(part, "noise", None) is not None:
        raise HoldfastError(f"{part.name} has its noise and epsilon as well: leave out one of them")
    planned = with_federation(config, federation)
    drawable = None if config.engine in OTHER_TRAINERS else len(federation.occupied)
    if config.noise_multiplier is None:
        return config.changed(noise_multiplier=noise_for(planned, config.epsilon, drawable))
    found = accountant(planned, with_flag_parts(method, planned), drawable)
    reveals = 0.0 if found is None else found.epsilon(config.rounds)
    if reveals > config.epsilon:
        raise HoldfastError(
            f"{config.rounds} rounds with the noise of this run reveal epsilon {reveals:.2f}, more than "
            f"{config.epsilon:g}: lower rounds, or raise epsilon"
        )
    return config


def check_privacy(config: Config, method: Method, federation: Federation) -> None:
    """Raise an error for a delta that promises nothing, or where epsilon cannot be computed."""
    if accountant(config, method) is not None and config.delta * federation.clients >= 1:
        raise HoldfastError(
            f"with {federation.clients} clients, delta must be below {1 / federation.clients:g}, not {config.delta:g}: "
            "lower it"
        )


def prepare_simulation(
    config: Config, method: Method, federation: Federation | None = None, model: nn.Module | Factory | None = None
) -> Simulation:
    """Build the simulation that a config describes, to play its rounds by hand."""
    setup = prepare(config, method, federation, model)
    return Simulation(setup.config, setup.method, setup.federation, setup.net, setup.metric)


def read_data(config: Config) -> DataSet:
    """Read the data set that a config names."""
    return load(located(config).data, Path(config.data_dir) if config.data_dir else None)


def deal(config: Config, data: DataSet | None = None) -> Federation:
    """Build the federation that a config describes; ``data`` replaces the data set that it names."""
    data, c = read_data(config) if data is None else data, config
    return federate(
        data, c.split, c.clients, c.deal_seed, c.public, c.augment, c.augment_public, c.validation, c.validation_from,
        c.task, c.client_test if c.client_eval else 0.0,
    )  # fmt: skip


def with_federation(config: Config, federation: Federation) -> Config:
    """Return the config with what its federation decides, as far as it was left open."""
    found = {"split": federation.split, "clients": federation.clients, "split_seed": federation.seed}
    return config.changed(**found, normalisation=federation.normalisation)


def check_together(
    config: Config, method: Method, federation: Federation, model: nn.Module | Factory | None
) -> tuple[Method, Federation, Net]:
    """Check that config, method, federation and model fit together.

    Returns:
        The method with the parts that flags stand for, the federation with samples as the network takes them, and the
        network on its device.
    """
    config = with_federation(config, federation)
    method = checked(with_flag_parts(method, config))
    config.schedule.check(config.rounds)
    if config.cohort is not None and config.cohort > federation.clients:
        raise HoldfastError(
            f"cohort {config.cohort} is larger than the number of clients, {federation.clients}: lower cohort"
        )
    for what in asking_everybody(config, method):
        federation.need_all_clients(what)
    federation = with_loss_weights(federation, config.class_weights, config.pos_weight)
    federation, net = fitted(config, federation, model, pick_device(config.device))
    if federation.leaks and not any(part.accepts_test_data for part in method.parts):
        raise HoldfastError("public data is the test data, but no part of this method may use it: leave out public")
    check_attack(config)
    check_speeds(config, method)
    check_privacy(config, method, federation)
    check_choices(config, method, federation)
    method.check(config, net, federation)
    check_scores(config, federation, net)
    return method, federation, net


def asking_everybody(config: Config, method: Method) -> list[str]:
    """Return the parts and settings that look at every client, whoever is drawn."""
    settings = {
        "personal": config.personal > 0,
        "batchnorm = local": config.batchnorm == "local",
        "engine = flower": config.engine == "flower",
        "attack": config.attack is not None,
        "client_eval": config.client_eval,
        "class_weights = balanced": config.class_weights == "balanced",
        "pos_weight = balanced": config.pos_weight == "balanced",
    }
    return [p.name for p in method.filling("survey")] + [name for name, used in settings.items() if used]


def check_attack(config: Config) -> None:
    """Raise an error for an attack that does not exist, or that the engine does not know."""
    attack = read_attack(config.attack)
    if attack is not None and config.engine == "flower":
        raise HoldfastError(f"attack {attack.name} works with the engines loop and vector: leave out --engine flower")


def check_choices(config: Config, method: Method, federation: Federation) -> None:
    """Raise an error for a metric that does not fit the task, and for early stopping where it cannot work."""
    read_metric(located(config).metric, federation.data.task)
    if config.stop_after is None:
        return
    if federation.validation is None:
        raise HoldfastError("stop_after goes by validation data, and there are none: add --validation 0.1")
    if method.filling("survey"):
        name = method.filling("survey")[0].name
        raise HoldfastError(f"{name} works in the last round, which stop_after does not know: leave out one of them")


def fitted(
    config: Config, federation: Federation, model: nn.Module | Factory | None, device: torch.device
) -> tuple[Federation, Net]:
    """Make the network, and let the samples reach it as it takes them.

    A named network takes numbers, and samples of two axes as images; or it takes tokens. The user's own module gets
    samples in their own shape, and integers as integers unless it fails on them.

    Args:
        config: The run.
        federation: The clients and their data.
        model: The user's own module, or what makes it; by default the network that the config names.
        device: Where the network runs.

    Returns:
        The federation and the network.
    """
    if is_named(config, model):
        if federation.data.fields:
            names = ", ".join(field.name or "?" for field in federation.data.fields)
            raise HoldfastError(
                f"the network {config.model} takes one tensor, but a sample of {federation.data.name} is several "
                f"({names}); use a model of your own"
            )
        refuse_one_output(config, federation)
        federation = _as_tokens(config, federation) if takes_tokens(config.model) else federation.as_images()
    module = network(config, model, federation)
    if federation.integers and not is_named(config, model):
        try:
            return federation.as_tokens(), _network(config, federation.as_tokens(), module, device)
        except HoldfastError:
            pass  # a model that takes numbers; if it takes neither, the error below names the reason
    return federation, _network(config, federation, module, device)


def refuse_one_output(config: Config, federation: Federation) -> None:
    """Raise an error if a named network has one output per sample, but a token is predicted at every position."""
    data = federation.data
    if data.task.positions(data.y) and not takes_tokens(config.model):
        raise HoldfastError(
            f"the network {config.model} does not predict a token at every position; use lstm, or a model of your own"
        )


def _as_tokens(config: Config, federation: Federation) -> Federation:
    """Return a federation of tokens as a named network takes them; other samples are refused."""
    if not federation.integers:
        x, data = federation.data.x, federation.data.name
        found = f"{str(x.dtype).removeprefix('torch.')} {list(x.shape[1:])}"
        raise HoldfastError(
            f"the network {config.model} takes tokens, but a sample of {data} is {found}; use a network that takes "
            "numbers, such as mlp"
        )
    return federation.as_tokens()


def is_named(config: Config, model: nn.Module | Factory | None) -> bool:
    """Tell whether the network is one of the library's own, and not the user's."""
    return model is None and ".py:" not in config.model


def _network(config: Config, federation: Federation, module: nn.Module, device: torch.device) -> Net:
    data, example = federation.data, tree_map(lambda t: t.to(device), federation.example())
    if config.precision == "fp64":
        example = tree_map(lambda t: t.double() if t.is_floating_point() else t, example)
    return Net(
        module, federation.shape, federation.classes, head=config.head, device=device, precision=config.precision,
        batchnorm=config.batchnorm, example=example, positions=data.task.positions(data.y),
    )  # fmt: skip


def network(config: Config, model: nn.Module | Factory | None, federation: Federation) -> nn.Module:
    """Return the network of a run.

    Args:
        config: The run.
        model: The user's own module, or what makes it; by default the network that the config names.
        federation: The data, whose samples and outputs it must fit.

    Returns:
        The network; unless it is the user's own module, its weights follow from the seed.
    """
    if isinstance(model, nn.Module):
        return model
    shape, classes, data = federation.shape, federation.classes, federation.data
    if model is not None:
        return from_factory(model, shape, classes, config.seed)
    every = bool(data.task.positions(data.y))
    tokens = len(data.vocabulary.tokens) if data.vocabulary else classes if every else 0
    return make(located(config).model, shape, classes, config.seed, tokens, every)


def settings_of_objects(
    federation: Federation | None, model: nn.Module | Factory | str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings that the user's own federation or model decides; setting them as well is an error."""
    refuse_other_objects(federation, model)
    found: dict[str, Any] = {}
    if federation is not None:
        for name in settings:
            if name in with_role("federation") and name != "seed":
                what = ARGUMENTS.get(name, "it to federate()")
                raise HoldfastError(f"{name} is decided by the federation: leave it out, or pass {what}")
        found |= {"data": federation.data.name, "split": federation.split, "clients": federation.clients}
        found |= {"split_seed": federation.seed} | dict(federation.settings) | held_out_settings(federation)
    if model is not None:
        found |= {"model": model if isinstance(model, str) else model_name(model)}
    return found


def held_out_settings(federation: Federation) -> dict[str, Any]:
    """Return the settings that say what a federation holds out of training."""
    held = federation.held_out
    found: dict[str, Any] = {"validation": held.validation, "validation_from": held.validation_from}
    return found | ({"client_eval": True, "client_test": held.client_test} if held.client_test else {})


def check_scores(config: Config, federation: Federation, net: Net) -> None:
    """Raise an error for scores that a run cannot have.

    Where BatchNorm layers stay at the clients, the model of each is scored by itself: on the client's own samples, or
    by accuracy and loss in every class. So are fine-tuned copies.
    """
    task, by_class = federation.data.task, ("accuracy", "loss")
    if federation.client_test is None:
        metric = read_metric(located(config).metric, task).name
        if config.personal and not task.has_classes:
            raise HoldfastError(
                f"fine-tuned copies are scored by classes, which {task.name} does not have, or on clients' own test "
                "samples: add --client-eval"
            )
        if net.kept_at_clients() and not (task.has_classes and metric in by_class):
            raise HoldfastError(
                f"with batchnorm local, {metric} is scored on clients' own test samples: add --client-eval"
            )
    if net.kept_at_clients() and federation.held_out.validation and federation.held_out.validation_from == POOL:
        raise HoldfastError(
            "with batchnorm local every client has its own model, so that no client can be scored on a pool: use "
            "--validation-from clients"
        )


def model_name(model: nn.Module | Factory) -> str:
    """Return what a config calls the user's own module, or what makes it."""
    return type(model).__name__ if isinstance(model, nn.Module) else factory_name(model)


def refuse_other_objects(federation: object, model: object) -> None:
    """Say what to do with a data set that is not dealt yet, or with something that is no model."""
    if federation is not None and not isinstance(federation, Federation):
        kind = type(federation).__name__
        raise HoldfastError(f"the second argument is a {kind}, not a federation: make one with federate(...)")
    if model is not None and not isinstance(model, (str, nn.Module)) and not is_factory(model):
        kind = type(model).__name__
        raise HoldfastError(f"the model is of type {kind}: pass an nn.Module, a function that makes one, or a name")


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

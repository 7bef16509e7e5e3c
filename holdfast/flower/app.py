"""The two apps of a federation on Flower, each made by one call."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from holdfast.core.devices import pick_device
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.core.os_errors import in_one_line
from holdfast.data.federation import Federation
from holdfast.data.normalisation import FEDERATED
from holdfast.flower import messages
from holdfast.flower.coordinator import Coordinator
from holdfast.flower.messages import one_line
from holdfast.flower.node import Node
from holdfast.flower.node_data import (
    Pair,
    ReadData,
    clients_of,
    declared_names,
    node_federation,
    server_federation,
    split_data,
)
from holdfast.flower.secure_node import STAGES
from holdfast.flower.settings import MOST_WEIGHT, DeploymentSettings
from holdfast.method.config import FIELDS, Config, with_role
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.hook_checks import checked
from holdfast.method.method import Method
from holdfast.metrics.metric_names import read_metric
from holdfast.models.factories import Factory, from_factory, model_arguments
from holdfast.models.net import Net
from holdfast.runs.code_files import code_files, in_folder, located
from holdfast.runs.file_imports import import_parts
from holdfast.runs.run import run
from holdfast.runs.run_result import Result
from holdfast.runs.setup import RunSetup, arithmetic, fitted, is_named, with_federation
from holdfast.training.round import Trainer

OUTCOME = "outcome"  # the setting that names the file in which the server reports how a run ended
_networks: dict[tuple[Any, ...], tuple[bool, Net]] = {}  # the last one of this process, by what it was made for
SERVER_LOG = "server.log"  # the server's warnings, beside that file
HANDLERS = {
    messages.ENROL: Node.enrol,
    messages.TRAIN: Node.train,
    messages.TRAIN_AGAIN: Node.train_again,
    messages.GRADIENTS: Node.gradients,
    messages.SURVEY: Node.survey,
    messages.SCORE: Node.score,
    messages.PERSONAL: Node.personal,
    messages.SUMS: Node.sums,
    **STAGES,
}


@dataclass(frozen=True)
class ClientOptions:
    """What the user passes to ``client_app`` instead of settings.

    Attributes:
        data: Reads the samples and targets of a client.
        model: Makes the network.
        classes: The outputs of the network for the nodes' own data, as a number or by name.
        folder: Where the run's files of code are.
        test: Reads the test samples and targets of a client.
    """

    data: ReadData | None = None
    model: Factory | None = None
    classes: int | tuple[str, ...] | None = None
    folder: Path | None = None
    test: ReadData | None = None


def client_app(
    data: ReadData | None = None,
    *,
    test: ReadData | None = None,
    model: Factory | None = None,
    classes: int | Sequence[str] | None = None,
    state: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> ClientApp:
    """Make the clients' half of a federation.

    Args:
        data: ``data(client, node)`` returns the samples and targets of a client of this node. By default every node
            splits the run's data set in the same way and keeps its own clients' samples.
        test: ``test(client, node)`` returns test samples and targets of a client, for a run with ``client_eval``. By
            default the setting ``client_test`` says how much of its samples a client holds out.
        model: Makes your own network, from ``shape`` and ``classes`` if it takes them; by default the network that the
            run names.
        classes: The number of classes or tokens, or their names; needed with ``data``. Of labels and of numbers to
            predict there are as many as in the data.
        state: The folder in which nodes also keep the parts' states; a node's setting ``state`` overrides it.
        settings: The settings of the run, if they are not those of the Flower app.
        folder: The folder of the files of code that the run names; a node executes no others.

    Returns:
        The app.
    """
    app, options = ClientApp(), ClientOptions(data, model, hashable(classes), folder, test)
    for kind, method in HANDLERS.items():
        category, _, action = kind.partition(".")
        register = app.train if category == "train" else app.query
        register(*([action] if action else []))(_handler(method, options, state, settings))
    return app


def _handler(
    method: Callable[[Node, Message, Context], Message],
    options: ClientOptions,
    state: Path | None,
    settings: Mapping[str, Any] | None,
) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        if settings is None:
            config = carried(node_config(context.run_config, context.node_config), options.folder)
        else:
            config = local_config(settings)
        folder = str(context.node_config.get("state") or state or "")
        started = time.perf_counter()
        with arithmetic(config.precision):
            node = make_node(config, options, tuple(sorted(context.node_config.items())), folder)
            node.secret = settings is None
            asked, own = map(DeploymentSettings.among, (context.run_config, context.node_config))
            node.secure, node.longest = asked.secure or own.secure, own.secure_norm or asked.secure_norm
            node.started = max(started, node.data_ready)
            return method(node, message, context)

    return handle


def hashable(classes: int | Sequence[str] | None) -> int | tuple[str, ...] | None:
    """Return the outputs of a network in a form that can be a key."""
    return classes if classes is None or isinstance(classes, int) else tuple(classes)


@lru_cache(maxsize=256)
def make_node(config: Config, options: ClientOptions, settings: tuple[tuple[str, Any], ...], folder: str) -> Node:
    """Make a node; a process that serves several nodes keeps them.

    Args:
        config: The run, as the node sees it.
        options: The user's own data and model.
        settings: The node's own settings, as sorted pairs.
        folder: The folder for the parts' states; empty if there is none.

    Returns:
        The node, with its data read.
    """
    import_parts(config)
    if options.data is None:
        whole = split_data(config)
        config = with_federation(config, whole)
        clients = clients_of(config, dict(settings))
        federation = whole.only(clients, test=config.batchnorm == "local")
    else:
        clients = clients_of(config, dict(settings))
        pairs = {i: options.data(i, dict(settings)) for i in clients}
        names = declared_names(dict(settings), clients, config.client_count)
        tests = None
        if options.test is not None and config.client_eval:
            tests = {i: options.test(i, dict(settings)) for i in clients}
        federation = node_federation(pairs, config, options.classes, names, tests)
    data_ready = time.perf_counter()
    federation, net = network_for(config, options.model, federation)
    method = checked(with_flag_parts(Method.parse(config.method), config))
    metric = read_metric(located(config).metric, federation.data.task)
    setup = RunSetup(config, method, federation.to(net.device, net.dtype), net, metric=metric)
    return Node(setup, clients, Path(folder) if folder else None, data_ready)


def network_for(config: Config, model: Factory | None, federation: Federation) -> tuple[Federation, Net]:
    """Make the network of a run, once per process, and let the samples reach it as it takes them.

    Args:
        config: The run.
        model: Makes the user's own network, if any.
        federation: The samples of a node.

    Returns:
        The federation and the network on its device.
    """
    kind = (config, model, federation.shape, federation.classes, federation.data.fields, federation.integers)
    if kind not in _networks:
        _networks.clear()
        fitting, net = fitted(config, federation, model, pick_device(config.device))
        _networks[kind] = fitting.tokens, net
    tokens, net = _networks[kind]
    federation = federation.as_images() if is_named(config, model) else federation
    return (federation.as_tokens() if tokens else federation), net


def node_config(run_settings: Mapping[str, Any], node_settings: Mapping[str, Any]) -> Config:
    """Return the config of a node: that of the run, except for what each node decides for itself.

    A node never reads a folder that the run names.
    """
    shared = {name: value for name, value in config_values(run_settings).items() if name != "data_dir"}
    own = {name: value for name, value in config_values(node_settings).items() if name in with_role("node")}
    return local_config(shared | own)


def carried(config: Config, folder: Path | None) -> Config:
    """Return the config of a node whose app carries the run's files of code; a node executes no others."""
    if config.files is None or folder is not None:
        return config if folder is None else in_folder(config, folder)
    raise HoldfastError(
        f"the run names {', '.join(code_files(config))}, but the node's app has no files of code: write the app with "
        "holdfast deploy init, or give their folder to client_app(folder=...)"
    )


def local_config(settings: Mapping[str, Any]) -> Config:
    """Return the config with which a node trains its clients."""
    return Config(**(config_values(settings) | {"engine": "loop"}))


def config_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the settings that are fields of a config, by the names of the fields."""
    named = {name.replace("-", "_"): value for name, value in settings.items()}
    return {name: value for name, value in named.items() if name in FIELDS}


def server_app(
    test: Callable[[], Pair] | None = None,
    *,
    public: Callable[[], Pair] | None = None,
    model: Factory | None = None,
    classes: int | Sequence[str] | None = None,
    folder: Path | None = None,
    normalise: str = FEDERATED,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> ServerApp:
    """Make the server's half of a federation. Its settings are those of the Flower app; ``out`` is the run folder.

    Args:
        test: Returns the samples and targets on which the model is scored. By default they are the test data of the
            run's data set.
        public: Returns public data, for methods that need them; every node receives a copy.
        model: Makes your own network, from ``shape`` and ``classes`` if it takes them; by default the network that the
            run names.
        classes: The number of classes or tokens, or their names; needed with ``test``. Of labels and of numbers to
            predict there are as many as in the data.
        folder: The folder of the files of code that the run names, for those that are not where the run says.
        normalise: With ``test``: how inputs of all machines are normalised. ``federated``: by the mean and standard
            deviation of all clients' samples, from sums that the nodes send once; ``published``: by ``mean`` and
            ``std``; ``off``: not at all.
        mean: The mean per channel or feature, if it is published.
        std: The standard deviation per channel or feature.

    Returns:
        The app.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings: dict[str, Any] = dict(context.run_config)
        with keep_warnings(settings), report_outcome(settings):
            config = Config(**config_values(settings)).changed(engine="flower")
            config = config.changed(max_weight=config.max_weight or MOST_WEIGHT)
            if folder is not None:
                config = in_folder(config, folder, keep=True)
                settings |= {} if config.files is None else {"files": config.files}
            federation = None
            if test is not None:
                known = public() if public else None
                federation = server_federation(test(), known, config, classes, normalise, (mean, std))
            serve(grid, config, settings, federation, model)

    return app


@contextmanager
def keep_warnings(settings: Mapping[str, Any]) -> Iterator[None]:
    """Also write the server's warnings to a file, if the settings name one for its outcome: Flower shows them nowhere.

    On several machines they are in the run's log, which ``flwr run --stream`` and ``flwr log`` show.
    """
    if not settings.get(OUTCOME):
        yield
        return
    handler = logging.FileHandler(Path(str(settings[OUTCOME])).with_name(SERVER_LOG), encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def report_outcome(settings: Mapping[str, Any]) -> Iterator[None]:
    """Write to a file how the run ended, if the settings name one.

    A server that is told to stop writes nothing, as one that is killed: its run has not ended and can be resumed.
    """

    def write(error: str | None, status: int, expected: bool = True) -> None:
        if settings.get(OUTCOME):
            outcome = {"error": error, "status": status, "expected": expected}
            write_atomically(Path(str(settings[OUTCOME])), json.dumps(outcome))

    try:
        yield
    except HoldfastError as error:
        write(str(error), error.status)
        raise
    except OSError as error:
        resume = "what was recorded is kept: fix that, then add --resume"
        write(f"the server {one_line(in_one_line(error))}; {resume}", 2, expected=False)
        raise
    except Exception as error:
        write(f"the server raised {one_line(f'{type(error).__name__}: {error}')}", 1, expected=False)
        raise
    write(None, 0)


def serve(
    grid: Grid,
    config: Config,
    settings: Mapping[str, Any],
    federation: Federation | None = None,
    model: Factory | None = None,
    **more: Any,
) -> Result:
    """Carry out a run with the nodes of a grid; evaluation, history and checkpoints are those of a simulation.

    Args:
        grid: Flower's access to the nodes.
        config: The run.
        settings: The settings of the Flower app.
        federation: What the server sees if the nodes bring their own data.
        model: Makes the user's own network, if any.
        more: Further arguments of ``run``.

    Returns:
        The result.
    """
    deployment = DeploymentSettings.among(settings)
    values = {k: v for k, v in config_values(settings).items() if k != "method"} | {"engine": "flower"}
    if federation is not None:
        values = {k: v for k, v in values.items() if k not in with_role("federation") or k == "seed"}

    def coordinate(setup: RunSetup) -> AbstractContextManager[Trainer]:
        return nullcontext(Coordinator(setup, grid, deployment, secret=True))

    given: Any = values.pop("model", None)
    if model is not None:  # the run is named after what a factory without arguments makes
        given = model if model_arguments(model) else from_factory(model, (), 0, config.seed)
    return run(
        config.method,
        federation,
        given,
        out=settings.get("out") or None,
        resume=bool(settings.get("resume", False)),
        overwrite=bool(settings.get("overwrite", False)),
        trainer=coordinate,
        **values,
        **more,
    )

"""The two apps of a federation on Flower, each made by one call."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.data.federation import Federation
from holdfast.flower import messages
from holdfast.flower.coordinator import Coordinator
from holdfast.flower.messages import one_line
from holdfast.flower.node import Node
from holdfast.flower.node_data import OwnData, Pair, brought, clients_of, dealt, held, own_classes
from holdfast.flower.settings import DeploymentSettings
from holdfast.method.config import FIELDS, Config, with_role
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.method import Method
from holdfast.models.net import Net
from holdfast.models.zoo import make
from holdfast.runs.run import Result, run
from holdfast.runs.setup import RunSetup, arithmetic, pick_device
from holdfast.training.round import Trainer

Model = Callable[[], nn.Module]
OUTCOME = "outcome"  # the setting that names the file in which the server says how a run ended
HANDLERS = {
    messages.ENROL: Node.enrol,
    messages.TRAIN: Node.train,
    messages.AGAIN: Node.again,
    messages.GRADIENTS: Node.gradients,
    messages.SURVEY: Node.survey,
}


def client_app(
    data: OwnData | None = None,
    *,
    model: Model | None = None,
    classes: int | None = None,
    state: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ClientApp:
    """The clients' half. ``data(client, node)`` gives the samples and labels of a client of this node.

    Without it the node deals the run's data set as everybody does, and keeps its own part. ``model()`` makes a network
    of one's own. The parts' states are also kept in the folder ``state``, or in that of the node's setting ``state``.
    ``settings`` stand in for those of the Flower app, where there is none.
    """
    app = ClientApp()
    for kind, method in HANDLERS.items():
        category, _, action = kind.partition(".")
        register = app.train if category == "train" else app.query
        register(*([action] if action else []))(_handler(method, data, model, classes, state, settings))
    return app


def _handler(
    method: Callable[[Node, Message, Context], Message],
    data: OwnData | None,
    model: Model | None,
    classes: int | None,
    state: Path | None,
    settings: Mapping[str, Any] | None,
) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        config = client_config(context.run_config, context.node_config) if settings is None else beside(settings)
        folder = str(context.node_config.get("state") or state or "")
        own = tuple(sorted(context.node_config.items()))
        begun = time.perf_counter()
        with arithmetic(config.precision):
            here = node(config, data, model, classes, own, folder)
            here.begun = max(begun, here.ready)
            return method(here, message, context)

    return handle


@lru_cache(maxsize=256)
def node(
    config: Config,
    data: OwnData | None,
    model: Model | None,
    classes: int | None,
    settings: tuple[tuple[str, Any], ...],
    folder: str,
) -> Node:
    """The node of these settings; a process that plays several keeps them."""
    clients = clients_of(config, dict(settings))
    if data is None:
        federation = dealt(config).only(clients)
    else:
        pairs = {i: data(i, dict(settings)) for i in clients}
        federation = brought(pairs, config, own_classes(classes))
    ready = time.perf_counter()
    net = network(config, model, federation.shape, federation.classes)
    sum = with_flag_parts(Method.parse(config.method), config)
    here = federation.to(net.device, net.dtype)
    return Node(config, sum, net, here, clients, Path(folder) if folder else None, ready)


@lru_cache(maxsize=4)
def network(config: Config, model: Model | None, shape: tuple[int, ...], classes: int) -> Net:
    module = make(config.model, shape, classes, config.seed) if model is None else model()
    return Net(module, shape, classes, head=config.head, device=pick_device(config.device), precision=config.precision)


def client_config(run: Mapping[str, Any], own: Mapping[str, Any]) -> Config:
    """A node's settings: those of the run, but where the data are and where to compute is the node's own business."""
    values = known(run) | {"engine": "loop", "personal": 0}
    values.pop("data_dir", None)
    return Config(**(values | {k: v for k, v in known(own).items() if k in ("data_dir", "device")}))


def beside(settings: Mapping[str, Any]) -> Config:
    """The settings of a node in the process, or on the machine, of the server."""
    return Config(**(known(settings) | {"engine": "loop", "personal": 0}))


def known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run among others, by the names of their fields."""
    named = {k.replace("-", "_"): v for k, v in settings.items()}
    return {k: v for k, v in named.items() if k in FIELDS}


def server_app(
    test: Callable[[], Pair] | None = None,
    *,
    public: Callable[[], Pair] | None = None,
    model: Model | None = None,
    classes: int | None = None,
) -> ServerApp:
    """The server's half. ``test()`` gives the samples and labels on which the model is scored.

    Without it the run's data set is loaded for its test data. ``public()`` gives public data for methods that need
    them; they are handed out to the nodes. The run's settings are those of the Flower app; ``out`` is its folder.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings: dict[str, Any] = dict(context.run_config)
        with outcome(settings):
            config = Config(**known(settings)).changed(engine="flower")
            federation = None
            if test is not None:
                federation = held(test(), public() if public else None, config, own_classes(classes))
            serve(grid, config, settings, federation, model)

    return app


@contextmanager
def outcome(settings: Mapping[str, Any]) -> Iterator[None]:
    """Say in a file how the run ended, where somebody waits for it."""
    said: dict[str, Any] = {"error": None, "status": 0}
    try:
        yield
    except HoldfastError as error:
        said = {"error": str(error), "status": error.status}
        raise
    except Exception as error:
        said = {"error": f"the server raised {one_line(f'{type(error).__name__}: {error}')}", "status": 1}
        raise
    finally:
        if settings.get(OUTCOME):
            write_atomically(Path(str(settings[OUTCOME])), json.dumps(said))


def serve(
    grid: Grid,
    config: Config,
    settings: Mapping[str, Any],
    federation: Federation | None = None,
    model: Model | None = None,
    **more: Any,
) -> Result:
    """Play the run: the rounds, evaluation, history and checkpoints are those of a simulation."""
    terms = DeploymentSettings.known({k.replace("-", "_"): v for k, v in settings.items()})
    asked = {k: v for k, v in known(settings).items() if k != "method"} | {"engine": "flower"}
    if federation is not None:
        asked = {k: v for k, v in asked.items() if k not in with_role("federation") or k == "seed"}

    def coordinate(setup: RunSetup) -> AbstractContextManager[Trainer]:
        return nullcontext(Coordinator(setup.config, setup.method, setup.federation, setup.net, grid, terms))

    out = settings.get("out") or None
    again = bool(settings.get("resume", False))
    named = asked.pop("model", None)
    return run(
        config.method, federation, model() if model else named, out=out, resume=again,
        overwrite=bool(settings.get("overwrite", False)), trainer=coordinate, **asked, **more,
    )  # fmt: skip

"""The contract of a part: one idea of federated learning, its client half and its server half together.

A part is a frozen dataclass; its fields are its hyper-parameters. It fills only the hooks it needs. Hooks are pure
functions on flat vectors for ONE client; engines add the client axis. States, messages and uploads are dictionaries
of tensors of fixed shape. ``docs/design.md`` shows where each hook sits in the round.
"""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.core.params import Named
from holdfast.data.batch import Batch as Batch  # parts import it from here

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.layout import Layout
    from holdfast.models.net import Net, Out

Tensors = dict[str, Tensor]
Gradient = tuple[Tensor, Tensor]  # (gradient, task loss)
NONE = torch.tensor(float("nan"))  # a number that is not known yet

# How several parts in one sum share a hook.
SINGLE = ("lr", "task_loss", "gradient", "aggregate", "server_step")
HOOKS = (
    "init_client", "init_server", "broadcast", "consult", "begin", "epoch", "teachers", "lr", "rate", "task_loss",
    "penalty", "gradient", "direction", "end", "trips", "aggregate", "absorb", "server_step", "tune", "survey",
    "digest", "serve",
)  # fmt: skip


@dataclass
class Client:
    """What a part sees of one client: ``c`` in the hooks. Numbers are tensors, so that engines can batch them."""

    net: Net
    w0: Tensor  # the global model this round started from
    lr: Tensor  # the nominal learning rate of this round
    round: Tensor
    id: Tensor
    n: Tensor  # samples
    counts: Tensor  # samples per class
    S: Tensor  # local steps per epoch
    K: Tensor  # local steps of the round
    epochs: int  # local epochs of the round, the same for every client
    rated: bool  # whether some part rescales rates, so that eta is a vector
    message: Tensors = field(default_factory=dict)  # the part's own broadcast
    state: Tensors = field(default_factory=dict)  # the part's own state at this client
    local: Tensors = field(default_factory=dict)  # the part's own scratch for this round
    samples: Callable[[], Iterator[Batch]] = lambda: iter(())  # the client's data, in masked chunks
    public: Callable[[], Iterator[Batch]] = lambda: iter(())  # the public data, in masked chunks
    # Inside a step only:
    key: Callable[[], Tensor] = lambda: (
        NONE
    )  # of (seed, round, trip, client, step): all randomness; step 0 in begin and epoch
    k: Tensor = NONE  # 1..K
    epoch: Tensor = NONE  # 0..
    rate: Tensor | None = None  # the product of all rates; None when no part rescales
    eta: Tensor = NONE  # lr * rate: what multiplies the direction
    teacher: dict[str, Out] = field(default_factory=dict)  # the teachers' outputs on this batch

    @property
    def layout(self) -> Layout:
        return self.net.layout

    def zeros(self) -> Tensor:
        """A vector of zeros, as long as the model."""
        return torch.zeros_like(self.w0)

    def zeros_eta(self) -> Tensor:
        """A zero in the shape of ``eta``: a vector when rates are rescaled, else a number."""
        return torch.zeros_like(self.w0) if self.rated else torch.zeros_like(self.lr)

    def own(self, message: Tensors, state: Tensors, local: Tensors) -> Client:
        """This view for one part: with its own message, state and scratch."""
        view = copy.copy(self)
        view.message, view.state, view.local = message, state, local
        return view


@dataclass
class Round:
    """What a part sees at the server after the clients came back: ``r`` in the hooks. Rows are clients."""

    w: Tensor  # the global model the round started from
    deltas: Tensor  # [C, P], local minus global
    ids: Tensor  # [C]
    n: Tensor  # [C] samples
    K: Tensor  # [C] local steps
    weights: Tensor  # [C], they sum to one
    lr: Tensor
    server_lr: float
    N: int  # clients of the federation
    net: Net
    uploads: Tensors = field(default_factory=dict)  # the part's own, stacked over clients
    update: Tensor = NONE  # the aggregate, once it is known
    round: int = 1  # 1..rounds
    rounds: int = 1
    key: Callable[[], Tensor] = lambda: NONE  # of (seed, round): all randomness at the server
    public: Callable[[], Iterator[Batch]] = lambda: iter(())  # the public data, in batches

    def mean(self, rows: Tensor) -> Tensor:
        """The weighted mean over the cohort."""
        mean: Tensor = torch.tensordot(self.weights.to(rows.dtype), rows, dims=1)
        return mean

    def own(self, uploads: Tensors) -> Round:
        """This view for one part: with its own uploads."""
        view = copy.copy(self)
        view.uploads = uploads
        return view


@dataclass(frozen=True)
class Trip:
    """A further trip of some clients within a round, after their local training.

    The chosen clients train on from their local model with the parts of ``sum`` alone; what they come back with
    replaces their delta, never the state of parts that ended with the first trip.
    """

    sum: tuple[Part, ...]
    who: Callable[[Round], Tensor]  # rows of the cohort; ties broken by client id
    message: Callable[[Round], Tensors]  # what all of them are sent, for the first part of ``sum``
    state: Callable[[Round, Tensor], Tensors]  # what each of these rows is sent; a leading row axis
    epochs: int
    public: bool = False  # train on the public data instead of the client's own

    def __post_init__(self) -> None:
        if not self.sum:
            raise ValueError("a trip needs at least one part, which its message is for")


@dataclass(frozen=True)
class Part(Named):
    """One idea. Fill the hooks you need; never call them yourself."""

    paper: ClassVar[str] = ""  # the reference, in one line
    uniform: ClassVar[bool] = False  # its server formula asks for a mean that counts every client once
    internal: ClassVar[bool] = False  # only used by another part, for a trip: not to be named by users
    never_with: ClassVar[dict[str, str]] = {}  # parts it cannot be summed with, and why

    # -- state and messages -------------------------------------------------------------------------------
    def init_client(self, w: Tensor) -> Tensors:
        """The part's state at a client, when the client is first drawn; ``w`` is the global model then."""
        raise NotImplementedError

    def init_server(self, w: Tensor, N: int) -> Tensors:
        """The part's state at the server, before the first round."""
        raise NotImplementedError

    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        """What every client of the cohort is sent beside the model; it counts as traffic."""
        raise NotImplementedError

    def consult(self, w: Tensor, lr: Tensor, epochs: int, visit: Callable[[Tensor], Tensor]) -> Tensors:
        """More for the part's message, found by asking the cohort before it trains: ``visit(v)`` gives every
        client's full gradient at the model ``v``, [C, P]. Each visit is a trip of its own: dear on real machines."""
        raise NotImplementedError

    # -- at the client ------------------------------------------------------------------------------------
    def begin(self, c: Client) -> Tensors:
        """The part's scratch before the first step; may run over ``c.samples()``."""
        raise NotImplementedError

    def epoch(self, c: Client, w: Tensor) -> Tensors:
        """The part's scratch at the start of each local epoch."""
        raise NotImplementedError

    def teachers(self, c: Client) -> Tensors:
        """Other models to run on every batch; their outputs are in ``c.teacher``. "global" is the model w0."""
        raise NotImplementedError

    def lr(self, c: Client) -> Tensor:
        """An absolute learning rate instead of ``c.lr``. At most one part."""
        raise NotImplementedError

    def rate(self, c: Client) -> Tensor:
        """A factor on the learning rate: a number, or a vector made with ``c.layout``. Multiplied over parts."""
        raise NotImplementedError

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        """The loss of a batch instead of cross-entropy. At most one part."""
        raise NotImplementedError

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        """A term added to the loss that needs outputs or features. Summed over parts."""
        raise NotImplementedError

    def gradient(self, c: Client, grad_fn: Callable[[Tensor], Gradient], w: Tensor) -> Gradient:
        """Where and how the gradient is taken. At most one part."""
        raise NotImplementedError

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        """The gradient changed by vector algebra, and the part's new scratch, which ``begin`` must have made: its
        names and shapes never change. Chained in the order of the sum."""
        raise NotImplementedError

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        """What the client uploads beside its delta, and the part's new state at the client."""
        raise NotImplementedError

    # -- at the server ------------------------------------------------------------------------------------
    def trips(self) -> tuple[Trip, ...]:
        """Further trips in the round, in order."""
        raise NotImplementedError

    def aggregate(self, r: Round) -> Tensor:
        """The cohort's deltas as one update. At most one part; the default is the weighted mean."""
        raise NotImplementedError

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        """The part's new state at the server; ``r.update`` is known, the model has not moved yet."""
        raise NotImplementedError

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        """The new global model. At most one part; the default is ``w + server_lr * update``."""
        raise NotImplementedError

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        """Training at the server after its step: the new model and the part's new state. Chained in order."""
        raise NotImplementedError

    def survey(self, c: Client) -> Tensors:
        """What a client measures on its data with the served model ``c.w0``; the server gets the sum over all clients.
        Asked of every client, after a round that is ``due``."""
        raise NotImplementedError

    def due(self, round: int, rounds: int) -> bool:
        """Whether the survey takes place after this round: by default only after the last."""
        return round == rounds

    def digest(self, s: Tensors, r: Round) -> Tensors:
        """The part's new state at the server from a survey: ``r.uploads`` are the sums, ``r.w`` the surveyed model."""
        raise NotImplementedError

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        """The model to evaluate and hand out, where it is not ``w``. Chained in order."""
        raise NotImplementedError

    # -- the sum ------------------------------------------------------------------------------------------
    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        """Object (with a ``HoldfastError``) to a run in which this part would be wrong."""

    def __init_subclass__(cls) -> None:
        """A parameter with the name of a hook would be taken for the hook."""
        for name in vars(cls).get("__annotations__", {}):
            if name in HOOKS:
                raise TypeError(f"{cls.__name__}: the parameter {name} has the name of a hook; choose another")

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """The hooks this part fills."""
        return tuple(h for h in HOOKS if getattr(cls, h) is not getattr(Part, h))

    def fills(self, hook: str) -> bool:
        return hook in self.hooks()

    def __add__(self, other: str | Part | Method) -> Method:
        from holdfast.method.method import Method

        return Method((self,)) + other


def parts() -> dict[str, type[Part]]:
    """Every part by name: those of ``holdfast/parts`` and those a user has written."""
    package = importlib.import_module("holdfast.parts")
    for module in pkgutil.iter_modules(package.__path__, "holdfast.parts."):
        importlib.import_module(module.name)
    return {cls.name: cls for cls in Part.__subclasses__() if cls.name and not cls.internal}

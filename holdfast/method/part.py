"""The contract of a part: one idea of federated learning, its client half and its server half together.

A part is a frozen dataclass whose fields are its hyper-parameters. It fills only the hooks it needs. Hooks are pure
functions on flat vectors for ONE client; engines add the client axis. States, messages and uploads are dictionaries
of tensors of fixed shape. ``docs/design.md`` shows where each hook runs in a round.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from holdfast.core.discovery import import_modules
from holdfast.core.gaussian_noise import Noise
from holdfast.core.params import Named
from holdfast.core.tensors import PerPart
from holdfast.core.tensors import Tensors as Tensors
from holdfast.data.batch import Batch as Batch  # parts import it from here

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.layout import Layout
    from holdfast.models.net import Net, Out

Gradient = tuple[Tensor, Tensor]  # (gradient, task loss)
NONE = torch.tensor(float("nan"))  # a number that is not known yet

# Hooks that only one part of a sum may fill, and what two parts would otherwise both do.
SINGLE = {
    "lr": "set the learning rate",
    "task_loss": "replace the loss",
    "gradient": "decide where the gradient is taken",
    "optimise": "are local optimisers",
    "aggregate": "aggregate the cohort",
    "server_step": "define the server step",
}
# Hooks that see the round at the server, and what they may read of it (``Part.server_reads``).
AT_SERVER = ("trips", "admit", "aggregate", "absorb", "server_step", "tune", "digest")
SERVER_READS = ("deltas", "sums", "update")
# Hooks that may look at single clients at the server, unless the part says how its uploads enter (``Part.linear``).
SEES_CLIENTS = ("consult", *AT_SERVER, "survey")
MEAN, TOTAL = "mean", "total"  # how an upload enters the server: through ``r.mean`` or through ``r.total``
HOOKS = (
    "init_client", "init_server", "broadcast", "consult", "begin", "epoch", "teachers", "lr", "rate", "task_loss",
    "penalty", "gradient", "direction", "optimise", "gain", "end", "send", "trips", "admit", "aggregate", "absorb",
    "server_step", "tune", "survey", "digest", "serve",
)  # fmt: skip


@dataclass
class Client:
    """What a part sees of one client: ``c`` in the hooks. Numbers are tensors, so that engines can batch them.

    Attributes:
        net: The network.
        w0: The global model at the start of the round.
        lr: The nominal learning rate of the round.
        round: The round, from 1.
        id: The client's number in the federation.
        n: The number of samples.
        counts: The number of samples per class.
        S: The local steps per epoch.
        K: The local steps in the round.
        epochs: The local epochs in the round; the most of any client if they differ, while ``K`` is the client's own.
        rated: Whether some part rescales rates, which makes ``eta`` a vector.
        optimised: Whether the sum has a local optimiser, so that steps are not plain SGD.
        message: This part's broadcast.
        state: This part's state at the client.
        local: This part's scratch for the round.
        samples: Returns the client's data, in masked chunks.
        public: Returns the public data, in masked chunks.
        key: Returns the key of (seed, round, trip, client, step), from which all randomness comes; the step is 0 in
            begin and epoch, and K + 1 in send.
        noise: Returns standard normal numbers in the shape of a tensor, for noise that protects the client: in a
            deployment nobody can repeat them.
        k: The step, 1..K; inside a step only, like all that follow.
        epoch: The epoch, from 0.
        rate: The product of all rates; None if no part rescales.
        eta: ``lr * rate``, the factor on the direction.
        weight: ``eta * gain``, what the step adds to the total weight of the gradients in the delta; ``eta`` without an
            optimiser, NaN under one that has no ``gain``.
        teacher: The teachers' outputs on this batch.
        total: In ``end``, for parts that declare ``reads_total``: the sum of ``weight`` over the round's steps; None if
            every step is plain SGD at the nominal rate, so that it is ``lr * K``.
        loss: The task loss of this batch, before the step; in ``direction`` only.
        gradients: The gradients that were taken in this step, in order, before any ``direction``; in ``direction``
            only. There is one, unless the part with ``gradient`` takes more.
    """

    net: Net
    w0: Tensor
    lr: Tensor
    round: Tensor
    id: Tensor
    n: Tensor
    counts: Tensor
    S: Tensor
    K: Tensor
    epochs: int
    rated: bool
    optimised: bool = False
    message: Tensors = field(default_factory=dict)
    state: Tensors = field(default_factory=dict)
    local: Tensors = field(default_factory=dict)
    samples: Callable[[], Iterator[Batch]] = lambda: iter(())
    public: Callable[[], Iterator[Batch]] = lambda: iter(())
    key: Callable[[], Tensor] = lambda: NONE
    noise: Noise = torch.zeros_like
    k: Tensor = NONE
    epoch: Tensor = NONE
    rate: Tensor | None = None
    eta: Tensor = NONE
    weight: Tensor = NONE
    teacher: dict[str, Out] = field(default_factory=dict)
    total: Tensor | None = None
    loss: Tensor = NONE
    gradients: tuple[Tensor, ...] = ()

    @property
    def layout(self) -> Layout:
        """The layout of the model's parameters in the flat vector."""
        return self.net.layout

    def zeros(self) -> Tensor:
        """Return a vector of zeros with the length of the model."""
        return torch.zeros_like(self.w0)

    def zeros_eta(self) -> Tensor:
        """Return a zero in the shape of ``eta``: a vector if rates are rescaled, otherwise a number."""
        return torch.zeros_like(self.w0) if self.rated else torch.zeros_like(self.lr)

    def own(self, message: Tensors, state: Tensors, local: Tensors) -> Client:
        """Return the view of one part.

        Args:
            message: The part's broadcast.
            state: The part's state at this client.
            local: The part's scratch for the round.

        Returns:
            A copy that holds these tensors and is otherwise the same.
        """
        view = copy.copy(self)
        view.message, view.state, view.local = message, state, local
        return view


class Sent(NamedTuple):
    """What a client is about to upload."""

    delta: Tensor
    uploads: PerPart  # by the name of the part


@dataclass
class Round:
    """What a part sees at the server once the cohort has reported back: ``r`` in the hooks. Rows are clients.

    Where the server receives nothing but sums, there is one row for the whole cohort: then ``mean`` and ``total`` are
    all that can be asked of ``deltas`` and ``uploads`` (``method/one_row.py``).

    Attributes:
        w: The global model at the start of the round.
        deltas: The updates, local minus global: [C, P]; NaN if the cohort was summed in slices because no part
            reads them.
        ids: The clients' numbers in the federation: [C].
        n: Their numbers of samples: [C].
        K: Their local steps: [C].
        weights: Their weights in the mean, which sum to one: [C].
        lr: The nominal learning rate of the round.
        server_lr: The setting of that name.
        N: The number of clients in the federation.
        net: The network.
        uploads: This part's uploads, stacked over clients.
        update: The aggregate, once it is known.
        round: The round, from 1.
        rounds: The number of rounds in the run.
        key: Returns the key of (seed, round), from which all randomness at the server comes.
        noise: Returns standard normal numbers in the shape of a tensor, for noise that protects clients: in a
            deployment nobody can repeat them.
        public: Returns the public data, in batches.
        occupied: The number of clients that have samples, as far as the server knows; 0: all N.
        size: How many clients the rows stand for, if it is not one each.
        combine: What takes the place of the weighted mean where a part aggregates robustly.
    """

    w: Tensor
    deltas: Tensor
    ids: Tensor
    n: Tensor
    K: Tensor
    weights: Tensor
    lr: Tensor
    server_lr: float
    N: int
    net: Net
    uploads: Tensors = field(default_factory=dict)
    update: Tensor = NONE
    round: int = 1
    rounds: int = 1
    key: Callable[[], Tensor] = lambda: NONE
    noise: Noise = torch.zeros_like
    public: Callable[[], Iterator[Batch]] = lambda: iter(())
    occupied: int = 0
    size: float | None = None
    combine: Callable[[Tensor], Tensor] | None = None

    @property
    def count(self) -> float:
        """How many clients the rows stand for."""
        return len(self.ids) if self.size is None else self.size

    def mean(self, rows: Tensor) -> Tensor:
        """Return the weighted mean over the cohort, or the robust one where a part aggregates robustly."""
        if self.combine is not None:
            return self.combine(rows)
        mean: Tensor = torch.tensordot(self.weights.to(rows), rows, dims=1)
        return mean

    def total(self, rows: Tensor) -> Tensor:
        """Return the plain sum over the cohort's clients, for formulas that divide it by N."""
        if self.combine is not None:
            return self.count * self.combine(rows)
        total = rows.sum(0)
        return total if self.size is None else total * (self.size / len(rows))

    def own(self, uploads: Tensors) -> Round:
        """Return the view of one part: a copy with that part's uploads."""
        view = copy.copy(self)
        view.uploads = uploads
        return view


def keep(r: Round, uploads: PerPart, good: Tensor) -> tuple[Round, PerPart]:
    """Leave some clients out of a round, for ``admit``.

    Args:
        r: The round.
        uploads: What the clients uploaded, by part.
        good: Which rows stay: bool [C].

    Returns:
        The round and the uploads of those that stay; their weights sum to one again.
    """
    some = {part: {name: t[good] for name, t in tensors.items()} for part, tensors in uploads.items()}
    weights = r.weights[good] / r.weights[good].sum()
    kept = replace(r, deltas=r.deltas[good], ids=r.ids[good], n=r.n[good], K=r.K[good], weights=weights)
    return kept, some


@dataclass(frozen=True)
class Trip:
    """A second trip of some clients within a round, after their local training.

    The chosen clients continue from their local model with the parts of ``sum`` alone. The result replaces their
    delta, but never the state of parts that ended with the first trip.

    Attributes:
        sum: The parts that these clients train with.
        who: Chooses the clients: returns their rows; ties are broken by client id.
        message: Returns what is sent to all of them, for the first part of ``sum``.
        state: Returns what is sent to each of these rows, with a leading row axis.
        epochs: The local epochs of the trip.
        public: Whether to train on the public data instead of the client's own.
        batch: The samples per step; None: as in local training.
        shuffled: Whether every pass has an order of its own; otherwise all have that of the samples.
    """

    sum: tuple[Part, ...]
    who: Callable[[Round], Tensor]
    message: Callable[[Round], Tensors]
    state: Callable[[Round, Tensor], Tensors]
    epochs: int
    public: bool = False
    batch: int | None = None
    shuffled: bool = True

    def __post_init__(self) -> None:
        if not self.sum:
            raise ValueError("a trip needs at least one part to receive its message: add one to sum")


@dataclass(frozen=True)
class Part(Named):
    """One idea of federated learning. Fill the hooks you need; never call them yourself.

    Beside its hooks, a part declares what the library has to know about it.

    Attributes:
        paper: The reference: authors, year, a comma, the title.
        group: Where ``holdfast methods`` lists it: "paper", "baseline", "building block" or "trust".
        summary: What it does, in at most 41 characters.
        internal: Whether only other parts use it (for a trip), so that users cannot name it.
        accepts_test_data: Whether it has a parameter with which a user may admit the test data as public data.
        excludes: Names of parts that it cannot be summed with, and why.
        follows: Hooks whose other parts must come before it in a sum, and why.
        reads_total: Whether its ``end`` reads ``c.total``.
        needs_gain: Why it cannot be summed with a local optimiser that has no ``gain``; empty if it can.
        server_reads: What its hooks at the server read, which decides how much of a large cohort is kept in memory.
            "deltas": every client's delta, all at once. "update": the aggregate and the part's own uploads, but no
            deltas. "sums": likewise, except that ``absorb`` may read deltas, not the aggregate, and adds up over
            clients, and that ``aggregate`` is a mean with the round's weights: both may be called with one slice of
            the cohort after another.
        linear: How each of its uploads enters the server: "mean", through ``r.mean`` alone, or "total", through
            ``r.total`` alone. The name "delta" says so of the deltas, if it reads their total. Empty: it reads means of
            deltas, or nothing. None: its hooks at the server look at single clients.
        private: Whether it makes runs differentially private. It then has a field ``noise``, the standard deviation
            of its noise in multiples of the most that one client can add to a sum; None until the run decides it.
        sends: What it uploads beside the delta, by name, in words.
        keeps: What it keeps at the clients between rounds, in words.
        robust: Whether its ``aggregate`` withstands some clients that lie. It then has a method ``combine(r, rows)``,
            which takes the place of the mean in whatever the server computes from the cohort.
    """

    paper: ClassVar[str] = ""
    group: ClassVar[str] = "building block"
    summary: ClassVar[str] = ""
    internal: ClassVar[bool] = False
    accepts_test_data: ClassVar[bool] = False
    excludes: ClassVar[dict[str, str]] = {}
    follows: ClassVar[dict[str, str]] = {}
    reads_total: ClassVar[bool] = False
    needs_gain: ClassVar[str] = ""
    server_reads: ClassVar[str] = "deltas"
    linear: ClassVar[dict[str, str] | None] = None
    robust: ClassVar[bool] = False
    private: ClassVar[bool] = False
    sends: ClassVar[dict[str, str]] = {}
    keeps: ClassVar[str] = ""
    _defined: ClassVar[tuple[str, ...]] = ()  # the hooks that the class defines

    @property
    def needs(self) -> tuple[str, ...]:
        """What it asks, as ``method/model_needs.py`` lists it: features, head, neurons, numbers, classes."""
        return ()

    @property
    def sending(self) -> dict[str, str]:
        """What it uploads beside the delta with its parameters, by name, in words."""
        return self.sends

    @property
    def exchanges(self) -> bool:
        """Whether it keeps or sends anything beside the model, so that its direction depends on other rounds."""
        return any(self.fills(hook) for hook in ("init_client", "init_server", "broadcast", "consult"))

    @property
    def unused(self) -> tuple[str, ...]:
        """Hooks that the class defines but that its parameters switch off: they count as not filled."""
        return ()

    @property
    def uniform(self) -> bool | None:
        """Whether means must count every client once, rather than by its samples; None if it does not matter."""
        return None

    # -- state and messages -------------------------------------------------------------------------------
    def init_client(self, w: Tensor) -> Tensors:
        """Return the part's state at a client that is drawn for the first time; ``w`` is the global model then."""
        raise NotImplementedError

    def init_server(self, w: Tensor, N: int) -> Tensors:
        """Return the part's state at the server before the first round."""
        raise NotImplementedError

    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        """Return what every client of the cohort receives with the model; it counts as traffic."""
        raise NotImplementedError

    def consult(self, w: Tensor, lr: Tensor, epochs: int, visit: Callable[[Tensor], Tensor]) -> Tensors:
        """Ask the cohort for gradients before it trains, and return more entries for the broadcast.

        Args:
            w: The global model.
            lr: The nominal learning rate of the round.
            epochs: Local epochs in the round, the most of any client if they differ.
            visit: Returns every client's full gradient at a model, [C, P]. Each visit is a trip of its own, which is
                expensive on real machines.

        Returns:
            Entries that are added to the part's message.
        """
        raise NotImplementedError

    # -- at the client ------------------------------------------------------------------------------------
    def begin(self, c: Client) -> Tensors:
        """Return the part's scratch before the first step; may read ``c.samples()``."""
        raise NotImplementedError

    def epoch(self, c: Client, w: Tensor) -> Tensors:
        """Return the part's scratch at the start of a local epoch."""
        raise NotImplementedError

    def teachers(self, c: Client) -> Tensors:
        """Return other models to run on every batch, with outputs in ``c.teacher``. "global" is the model w0."""
        raise NotImplementedError

    def lr(self, c: Client) -> Tensor:
        """Return an absolute learning rate in place of ``c.lr``. At most one part."""
        raise NotImplementedError

    def rate(self, c: Client) -> Tensor:
        """Return a factor on the learning rate: a number, or a vector made with ``c.layout``. Multiplied over parts."""
        raise NotImplementedError

    def task_loss(self, c: Client, out: Out, batch: Batch) -> Tensor:
        """Return the loss of a batch in place of the task's own. At most one part.

        Args:
            c: The client.
            out: The local model's outputs on the batch.
            batch: The batch.

        Returns:
            The loss, a number.
        """
        raise NotImplementedError

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        """Return a term to add to the loss, which may use outputs and features. Summed over parts.

        Args:
            c: The client.
            out: The local model's outputs on the batch.
            batch: The batch.

        Returns:
            The term, a number.
        """
        raise NotImplementedError

    def gradient(self, c: Client, grad_fn: Callable[[Tensor], Gradient], w: Tensor) -> Gradient:
        """Decide where and how the gradient is taken. At most one part.

        Args:
            c: The client.
            grad_fn: Returns the gradient and the task loss of the batch at a model.
            w: The local model.

        Returns:
            The gradient and the task loss.
        """
        raise NotImplementedError

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        """Change the gradient by vector algebra. Chained in the order of the sum.

        Args:
            c: The client.
            g: The gradient, or what the part before has made of it.
            w: The local model.

        Returns:
            The new direction, and the part's new scratch with the names and shapes that ``begin`` gave it.
        """
        raise NotImplementedError

    def optimise(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        """Turn the direction into the step of a local optimiser. At most one part, after every ``direction``.

        Where the rate is zero, the step is zero and the new scratch is not kept: frozen coordinates keep their state.

        Args:
            c: The client.
            g: The direction that all other parts have made.
            w: The local model.

        Returns:
            What ``eta`` multiplies, and the part's new scratch with the names and shapes that ``begin`` gave it.
        """
        raise NotImplementedError

    def gain(self, c: Client) -> Tensor:
        """Return what this step's ``optimise`` would make of a direction that had been 1 in every step so far.

        For a linear optimiser it is the total weight of all directions in this step: 1 for plain SGD. An optimiser that
        is not linear, such as Adam, does not fill this hook. A number, or a vector if ``c.rated``.
        """
        raise NotImplementedError

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        """Finish the local training.

        Args:
            c: The client.
            w: The local model.
            delta: ``w - w0``.

        Returns:
            What the client uploads with its delta, and the part's new state at the client.
        """
        raise NotImplementedError

    def send(self, c: Client, sent: Sent) -> tuple[Sent, Tensors]:
        """Change what the client uploads, after every part's ``end``. Chained in the order of the sum.

        It sees local training alone, no further trips.

        Args:
            c: The client; ``c.state`` is the part's state after its own ``end``.
            sent: The delta and the uploads of all parts, with BatchNorm's statistics.

        Returns:
            What is sent instead, with the same names and shapes; a part may add an entry under its own name. And the
            part's new state at the client.
        """
        raise NotImplementedError

    # -- as it travels, for parts that make it smaller; these are no hooks -----------------------------------
    def encodes(self, name: str, t: Tensor) -> bool:
        """Tell whether this part writes a tensor of this name and shape in its own way; "delta" is the update."""
        return False

    def encode(self, t: Tensor) -> Tensors:
        """Return a client's tensor as it travels, in tensors whose shapes follow from that of the tensor alone."""
        raise NotImplementedError

    def decode(self, found: Tensors, like: Tensor) -> Tensor:
        """Undo ``encode``. What cannot have been encoded is a ``ValueError``: it may come from a machine that lies.

        Args:
            found: What travelled.
            like: A tensor with the type and shape of the one to return.

        Returns:
            The tensor.
        """
        raise NotImplementedError

    # -- at the server ------------------------------------------------------------------------------------
    def trips(self) -> tuple[Trip, ...]:
        """Return further trips in the round, in order."""
        raise NotImplementedError

    def admit(self, s: Tensors, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        """Decide what of the cohort's updates counts, before ``aggregate``. Chained in the order of the sum.

        It sees the whole cohort at once.

        Args:
            s: The part's state at the server.
            r: The round, without clients whose updates are not finite.
            uploads: What the clients uploaded, by part.

        Returns:
            The round and the uploads that count: with other rows or weights, without some clients (``keep``), or with
            one row in place of the cohort.
        """
        raise NotImplementedError

    def aggregate(self, r: Round) -> Tensor:
        """Combine the cohort's deltas into one update. At most one part; the default is the weighted mean."""
        raise NotImplementedError

    def combine(self, r: Round, rows: Tensor) -> Tensor:
        """Combine rows [C, ...] of the cohort into one, robustly; for parts that declare ``robust``. Not a hook."""
        raise NotImplementedError

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        """Return the part's new state at the server; ``r.update`` is known, but the model has not moved yet."""
        raise NotImplementedError

    def server_step(self, s: Tensors, r: Round) -> Tensor:
        """Return the new global model. At most one part; the default is ``w + server_lr * update``."""
        raise NotImplementedError

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        """Train at the server after its step. Chained in the order of the sum.

        Args:
            s: The part's state at the server.
            r: The round.
            w: The global model after the server step.

        Returns:
            The new model and the part's new state at the server.
        """
        raise NotImplementedError

    def survey(self, c: Client) -> Tensors:
        """Measure the served model ``c.w0`` on a client's data; the server receives the sum over all clients.

        Every client takes part, after each round that is ``due``. Those whose measurements are not finite, or not
        ``possible``, are left out.
        """
        raise NotImplementedError

    def due(self, round: int, rounds: int) -> bool:
        """Tell whether the survey takes place after this round: by default only after the last."""
        return round == rounds

    def possible(self, uploads: Tensors) -> Tensor:
        """Tell which clients' uploads, or measurements in a survey, can be true: bool [C].

        Clients may be on machines that lie. What is not finite is left out in any case.
        """
        first = next(iter(uploads.values()))
        return torch.ones(len(first), dtype=torch.bool, device=first.device)

    def digest(self, s: Tensors, r: Round) -> Tensors:
        """Return the part's new state from a survey: ``r.uploads`` are the sums, ``r.w`` is the surveyed model."""
        raise NotImplementedError

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        """Return the model to evaluate and to save, if it is not ``w``. Chained in the order of the sum."""
        raise NotImplementedError

    # -- the sum ------------------------------------------------------------------------------------------
    def changed_since(self, format: int, method: Method, empty: bool) -> str | None:
        """Return what this part did otherwise in runs of an older format, or None if it has the same meaning today.

        Args:
            format: The format of the run's ``config.toml``.
            method: The whole sum.
            empty: Whether some clients of the run have no samples, or it is not known.

        Returns:
            The old behaviour, to complete the sentence "in an earlier version ...".
        """
        return None

    def settled(self, config: Config) -> Part:
        """Return this part with what the settings of a run decide for it; by default as it is."""
        return self

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        """Refuse a run in which this part would be wrong, with a ``HoldfastError``.

        Args:
            method: The whole sum.
            config: The settings of the run.
            net: The network.
            federation: The clients and their data.
        """

    def __init_subclass__(cls) -> None:
        """Refuse a parameter with the name of a hook, which would be mistaken for it, and unknown declarations."""
        if cls.server_reads not in SERVER_READS:
            expected = ", ".join(SERVER_READS)
            raise TypeError(f"{cls.__name__}: server_reads is {cls.server_reads!r}; choose one of {expected}")
        if not set((cls.linear or {}).values()) <= {MEAN, TOTAL}:
            raise TypeError(f"{cls.__name__}: linear is {cls.linear!r}; its values must be {MEAN!r} or {TOTAL!r}")
        cls._defined = tuple(h for h in HOOKS if getattr(cls, h) is not getattr(Part, h))
        for name in vars(cls).get("__annotations__", {}):
            if name in HOOKS:
                raise TypeError(f"{cls.__name__}: the parameter {name} has the name of a hook; choose another name")

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """Return the names of the hooks that the class defines."""
        return cls._defined

    def fills(self, hook: str) -> bool:
        """Tell whether this part, with its parameters, fills a hook."""
        return hook in self.hooks() and hook not in self.unused

    @property
    def sees_clients(self) -> bool:
        """Whether the server's half looks at single clients, so that it cannot do with sums over the cohort."""
        return self.fills("consult") or (self.linear is None and any(map(self.fills, SEES_CLIENTS)))

    def __add__(self, other: str | Part | Method) -> Method:
        from holdfast.method.method import Method

        return Method((self,)) + other


def parts() -> dict[str, type[Part]]:
    """Return every part by name: those in ``holdfast/parts`` and those that the user has written."""
    import_modules("holdfast.parts")
    return {cls.name: cls for cls in Part.__subclasses__() if cls.name and not cls.internal}

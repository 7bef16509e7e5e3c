"""A round of the federation, whoever trains the clients: draw, train, further trips, move the model, survey."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation
from holdfast.engines.client_update import CHUNK, Broadcast, PerPart
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Part, Round, Tensors, Trip
from holdfast.models.net import Net
from holdfast.training.client_sampling import draw
from holdfast.training.client_states import ClientStates, finite_rows, nbytes
from holdfast.training.drift import measure
from holdfast.training.server import Server


class Diverged(HoldfastError):
    """Every update of a round was NaN or infinite: the run stops, its last checkpoint is kept."""

    status = 1


@dataclass(frozen=True)
class Back:
    """Who came back from a trip, and with what. Rows are clients, sorted by id."""

    ids: Tensor  # [C]
    n: Tensor  # [C] samples
    K: Tensor  # [C] local steps
    deltas: Tensor  # [C, P]
    uploads: PerPart  # leading client axis
    loss: Tensor  # [C] mean task loss over the local steps

    def rows(self, good: Tensor) -> Back:
        """Only the rows where ``good`` is true."""
        uploads = tree_map(lambda t: t[good], self.uploads)
        return Back(self.ids[good], self.n[good], self.K[good], self.deltas[good], uploads, self.loss[good])


@dataclass(frozen=True)
class Played:
    """What a round did, for the history."""

    cohort: list[int]
    skipped: list[int]
    train_loss: float
    upload_bytes: int
    download_bytes: int
    drift: dict[str, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)  # clients that did not come back, and why
    reset: list[int] = field(default_factory=list)  # clients whose parts had lost their state and began anew
    waiting: float | None = None  # seconds spent waiting for other machines
    overhead: float | None = None  # seconds of our own code beside training: the server's, the slowest node's


class Trainer(ABC):
    """The server of one run. Who trains the clients fills the abstract methods."""

    engine_name: str
    engine_reason: str
    clients: ClientStates  # what a checkpoint keeps about each client
    occupied: np.ndarray  # the clients that have samples, as far as is known

    def __init__(self, config: Config, method: Method, federation: Federation, net: Net) -> None:
        self.config, self.method, self.federation, self.net = config, method, federation, net
        self.server = Server(net, method, federation.clients, config.server_lr)
        self.trips = [(part, trip) for part in method.filling("trips") for trip in part.trips()]

    # -- who trains the clients ----------------------------------------------------------------------------
    @abstractmethod
    def drawable(self) -> np.ndarray:
        """The clients that may be drawn now."""

    @abstractmethod
    def train(self, job: Broadcast, ids: np.ndarray) -> Back:
        """The local training of a cohort. The parts' new states at the clients count once they are kept."""

    @abstractmethod
    def keep(self, ids: list[int]) -> None:
        """The new states of these clients count from now on; those of the others are dropped."""

    @abstractmethod
    def again(self, number: int, job: Broadcast, ids: np.ndarray, state: PerPart, deltas: Tensor) -> Back:
        """Trip ``number`` = 1, 2, ... of some clients that stand ``deltas`` away from the model."""

    @abstractmethod
    def gradients(self, job: Broadcast, ids: np.ndarray, at: Tensor) -> Tensor:
        """The clients' full gradients at one model, [C, P]."""

    @abstractmethod
    def survey(self, job: Broadcast, parts: Sequence[Part]) -> Iterator[tuple[int, PerPart]]:
        """What parts measure at all clients, some at a time: how many, and what they found with a client axis."""

    @abstractmethod
    def noted(self, played: Played) -> Played:
        """The round with what those who trained it have to say of it."""

    def holdings(self, ids: Tensor) -> Tensor:
        """The samples of each client and class, [C, classes], as far as the server may know: some of every class."""
        return torch.ones(len(ids), self.net.classes, dtype=torch.int64, device=ids.device)

    # -- the round -------------------------------------------------------------------------------------------
    def play(self, t: int) -> Played:
        """Round ``t`` = 1, 2, ...: draw, train, leave out what is not finite, further trips, move the model."""
        ids = draw(self.config, self.drawable(), t)
        job, visits = self._consult(self.job(t, self.server.messages()), ids)
        back = self.train(job, ids)
        model = self.net.initial.numel() * self.net.initial.element_size()
        down = len(ids) * (model * (1 + visits) + nbytes(job.messages))
        up = model * (len(ids) * visits + len(back.ids)) + nbytes(back.uploads)
        good = finite_rows(back.uploads, back.deltas)
        if not bool(good.any()):
            raise Diverged(f"round {t}: no client's update is finite; lower --lr, or add --clip")
        skipped = back.ids[~good].tolist()
        if skipped:
            back = back.rows(good)
        self.keep(back.ids.tolist())
        r = self._view(t, back, job.lr)
        for number, (part, trip) in enumerate(self.trips, start=1):
            r, sent, received = self._trip(number, trip, r, back.uploads.get(part.name, {}))
            down, up = down + sent, up + received
        self.server.close(r, back.uploads)
        if not bool(torch.isfinite(self.server.w).all()):
            raise Diverged(f"round {t}: the server's step made the model NaN or infinite; lower its rate, or --lr")
        sent, received = self._survey(r)
        loss = (r.n * back.loss).sum() / r.n.sum()
        return self.noted(Played(ids.tolist(), skipped, float(loss), up + received, down + sent, self._drift(r)))

    def job(self, t: int, messages: PerPart) -> Broadcast:
        """What every client is told in round ``t``."""
        like = self.server.w
        lr = torch.tensor(self.config.lr * self.config.lr_decay ** (t - 1), dtype=like.dtype, device=like.device)
        return Broadcast(like, lr, torch.tensor(t, device=like.device), messages)

    def _view(self, t: int, back: Back, lr: Tensor) -> Round:
        """The round as parts see it at the server."""
        seed, fed = self.config.seed, self.federation
        return Round(
            w=self.server.w, deltas=back.deltas, ids=back.ids, n=back.n, K=back.K,
            weights=self.server.weights(back.n), lr=lr, server_lr=self.config.server_lr, N=fed.clients, round=t,
            rounds=self.config.rounds, net=self.net,
            key=lambda: rng.key(seed, rng.SERVER, torch.tensor(t, device=self.net.device)),
            public=lambda: fed.public_batches(CHUNK),
        )  # fmt: skip

    def _consult(self, job: Broadcast, ids: np.ndarray) -> tuple[Broadcast, int]:
        """Let parts ask the cohort before it trains; also how many times each client was visited."""
        visits = 0

        def visit(at: Tensor) -> Tensor:
            nonlocal visits
            visits += 1
            return self.gradients(job, ids, at)

        messages = dict(job.messages)
        for p in self.method.filling("consult"):
            messages[p.name] = messages.get(p.name, {}) | p.consult(job.w0, job.lr, self.config.passes, visit)
        return job._replace(messages=messages), visits

    def _drift(self, r: Round) -> dict[str, float]:
        """How far the clients drifted apart, where that is asked for."""
        if not (self.config.drift and self.config.evaluates(r.round)):
            return {}
        return measure(r, self.server.served(), self.holdings(r.ids), self.federation)

    def _trip(self, number: int, trip: Trip, r: Round, uploads: Tensors) -> tuple[Round, int, int]:
        """Send some clients out again from where they stand; their new deltas replace the old ones."""
        view = r.own(uploads)
        rows = trip.who(view)
        if len(rows) == 0:
            return r, 0, 0
        message = {trip.sum[0].name: trip.message(view)}
        state = {trip.sum[0].name: trip.state(view, rows)}
        back = self.again(number, self.job(r.round, message), r.ids[rows].cpu().numpy(), state, r.deltas[rows])
        good = finite_rows(back.uploads, back.deltas)
        places = torch.searchsorted(r.ids, back.ids[good])
        deltas = r.deltas.clone()
        deltas[places] = back.deltas[good]
        sent = len(rows) * nbytes(message) + nbytes(state)
        received = back.deltas.numel() * deltas.element_size() + nbytes(back.uploads)
        return replace(r, deltas=deltas), sent, received

    def _survey(self, r: Round) -> tuple[int, int]:
        """Ask every client what parts want to know of the served model, where that is due; they get the sums."""
        due = [p for p in self.method.filling("survey") if p.due(r.round, r.rounds)]
        if not due:
            return 0, 0
        served = self.server.served()
        job = Broadcast(served, r.lr, torch.tensor(r.round, device=served.device), {})
        sums: PerPart = {}
        sent = received = 0
        for asked, found in self.survey(job, due):
            received += nbytes(found)
            sent += asked * served.numel() * served.element_size()
            total = tree_map(lambda rows: rows.sum(0), found)
            sums = tree_map(torch.add, sums, total) if sums else total
        self.server.digest(replace(r, w=served), sums)
        return sent, received

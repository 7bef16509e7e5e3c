"""One machine plays all clients and the server: a round of the federation, simulated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast import keys
from holdfast.batches import Plan, plan
from holdfast.clients import Clients, finite_rows, nbytes
from holdfast.config import Config
from holdfast.data.federation import Federation
from holdfast.draw import draw
from holdfast.drift import measure
from holdfast.engines.choose import build, choose, compiles, products, workers
from holdfast.engines.cohort import Cohort, Trained
from holdfast.engines.replay import Room
from holdfast.errors import HoldfastError
from holdfast.local import CHUNK, Job, Local, PerPart, Who
from holdfast.method import Method
from holdfast.models.net import Net
from holdfast.part import Round, Tensors, Trip
from holdfast.server import Server
from holdfast.store import store

SURVEYED = 16  # clients surveyed at once


class Diverged(HoldfastError):
    """Every update of a round was NaN or infinite: the run stops, its last checkpoint is kept."""


@dataclass(frozen=True)
class Played:
    """What a round did, for the history."""

    cohort: list[int]
    skipped: list[int]
    train_loss: float
    upload_bytes: int
    download_bytes: int
    drift: dict[str, float] = field(default_factory=dict)


class Simulation:
    """The federation, the server, the clients' states and the engines of one run."""

    def __init__(self, config: Config, method: Method, federation: Federation, net: Net) -> None:
        self.config, self.method, self.federation, self.net = config, method, federation, net
        self.server = Server(net, method, federation.clients, config.server_lr)
        self.clients = Clients(method, store(config.states, net.device))
        self.occupied = federation.occupied
        self.engine_name, self.engine_reason = choose(
            config.engine, net.convolutional, net.device.type, config.cohort_size
        )
        kind = net.device.type
        if self.engine_name == "vector" and products(config.convolution, kind):
            net.use_products()
        if self.engine_name == "loop" and kind == "cpu":
            net.use_channels_last()
        self.trips = [(part, trip) for part in method.filling("trips") for trip in part.trips()]
        outings = [(method, config.passes), *((Method(trip.sum), trip.epochs) for _, trip in self.trips)]
        locals_ = [Local(net, m, federation, config.seed, e, number) for number, (m, e) in enumerate(outings)]
        rooms = [self._room(local.epochs, number) for number, local in enumerate(locals_)]
        compiled = compiles(config.compile, kind, config.rounds * rooms[0].slots)
        if self.engine_name == "vector":  # a resumed run must not decide anew: its number of rounds may have changed
            self.config = config = config.changed(compile=compiled)
        traced = compiled or (kind == "cuda" and config.graphs)
        self.workers = workers(config.workers, net.convolutional, kind, config.cohort_size)
        self.engines = [
            build(self.engine_name, local, config.slice, self.workers, room if traced else None, compiled)
            for local, room in zip(locals_, rooms, strict=True)
        ]

    def _room(self, epochs: int, number: int) -> Room:
        """The shape that every cohort of a trip fits into."""
        config = self.config
        trip = self.trips[number - 1][1] if number else None
        sizes = np.array([len(self.federation.public)]) if trip and trip.public else self.federation.deal.sizes
        steps = -(-sizes[sizes > 0] // config.batch)
        if config.steps is not None and trip is None:
            steps = np.array([config.steps])
        return Room(config.cohort_size, int(steps.max()) * epochs, config.batch, bool(steps.min() < steps.max()))

    def play(self, t: int) -> Played:
        """Round ``t`` = 1, 2, ...: draw, train, leave out what is not finite, further trips, move the model."""
        ids = draw(self.config, self.occupied, t)
        job = self.job(t, self.server.messages())
        who = self.who(ids)
        states = self.clients.gather(ids.tolist(), self.server.w)
        cohort = Cohort(who, states, self.plan(who, t, 0))
        job, visits = self._consult(job, cohort)
        trained = self.engines[0].train(job, cohort)
        model = self.net.initial.numel() * self.net.initial.element_size()
        down = len(ids) * (model * (1 + visits) + nbytes(job.messages))
        up = len(ids) * model * (1 + visits) + nbytes(trained.uploads)
        good = finite_rows(trained.uploads, trained.deltas)
        if not bool(good.any()):
            raise Diverged(f"round {t}: no client's update is finite; lower --lr, or add --clip")
        kept, who, skipped = self._keep(good, trained, who)
        self.clients.scatter(who.id.tolist(), kept.states)
        r = self._view(t, kept.deltas, who, job.lr)
        for number, (part, trip) in enumerate(self.trips, start=1):
            r, sent, received = self._trip(number, trip, r, kept.uploads.get(part.name, {}), t)
            down, up = down + sent, up + received
        self.server.close(r, kept.uploads)
        if not bool(torch.isfinite(self.server.w).all()):
            raise Diverged(f"round {t}: the server's step made the model NaN or infinite; lower its rate, or --lr")
        sent, received = self._survey(r)
        down, up = down + sent, up + received
        loss = (r.n * kept.loss).sum() / r.n.sum()
        looked = self.config.drift and self.config.evaluates(t)
        drift = measure(r, self.server.served(), who.counts, self.federation) if looked else {}
        return Played(ids.tolist(), skipped, float(loss), up, down, drift)

    def job(self, t: int, messages: PerPart) -> Job:
        """What every client is told in round ``t``."""
        like = self.server.w
        lr = torch.tensor(self.config.lr * self.config.lr_decay ** (t - 1), dtype=like.dtype, device=like.device)
        return Job(like, lr, torch.tensor(t, device=like.device), messages)

    def _view(self, t: int, deltas: Tensor, who: Who, lr: Tensor) -> Round:
        """The round as parts see it at the server."""
        seed, fed = self.config.seed, self.federation
        return Round(
            w=self.server.w, deltas=deltas, ids=who.id, n=who.n, K=who.K, weights=self.server.weights(who.n), lr=lr,
            server_lr=self.config.server_lr, N=fed.clients, round=t, rounds=self.config.rounds, net=self.net,
            key=lambda: keys.key(seed, keys.SERVER, torch.tensor(t, device=self.net.device)),
            public=lambda: fed.public_batches(CHUNK),
        )  # fmt: skip

    def _survey(self, r: Round) -> tuple[int, int]:
        """Ask every client what parts want to know of the served model, where that is due; they get the sums."""
        due = [p for p in self.method.filling("survey") if p.due(r.round, r.rounds)]
        if not due:
            return 0, 0
        served = self.server.served()
        job = Job(served, r.lr, torch.tensor(r.round, device=served.device), {})
        sums: PerPart = {}
        sent = received = 0
        for ids in np.array_split(self.occupied, -(-len(self.occupied) // SURVEYED)):
            found = self.engines[0].survey(job, self.who(ids), due)
            received += nbytes(found)
            sent += len(ids) * served.numel() * served.element_size()
            total = tree_map(lambda rows: rows.sum(0), found)
            sums = tree_map(torch.add, sums, total) if sums else total
        self.server.digest(replace(r, w=served), sums)
        return sent, received

    def _consult(self, job: Job, cohort: Cohort) -> tuple[Job, int]:
        """Let parts ask the cohort before it trains; also how many times each client was visited."""
        engine, visits = self.engines[0], 0

        def visit(at: Tensor) -> Tensor:
            nonlocal visits
            visits += 1
            return engine.gradients(job, cohort, at)

        messages = dict(job.messages)
        for p in self.method.filling("consult"):
            messages[p.name] = messages.get(p.name, {}) | p.consult(job.w0, job.lr, engine.local.epochs, visit)
        return job._replace(messages=messages), visits

    def who(self, ids: np.ndarray, public: bool = False) -> Who:
        """The clients' rows, padded to the one with the most samples."""
        fed, device = self.federation, self.net.device
        lists = [fed.public.cpu().numpy() if public else fed.deal.client(int(i)) for i in ids]
        most = max(len(own) for own in lists)
        own = np.zeros((len(ids), most), np.int64)
        for row, samples in zip(own, lists, strict=True):
            row[: len(samples)] = samples
        n = torch.tensor([len(samples) for samples in lists], device=device)
        index = torch.from_numpy(own).to(device)
        there = torch.arange(most, device=device) < n[:, None]
        y = torch.where(there, fed.data.y[index], fed.classes)
        counts = torch.zeros(len(ids), fed.classes + 1, dtype=torch.int64, device=device)
        counts = counts.scatter_add(1, y, torch.ones_like(y))[:, :-1]
        steps = (n + self.config.batch - 1) // self.config.batch
        S, K = steps, steps * self.config.passes
        if self.config.steps is not None:
            S = K = torch.full_like(n, self.config.steps)
        noise = fed.deal.noise
        sigma = torch.zeros(len(ids)) if noise is None or public else torch.as_tensor(noise.sigma[ids])
        return Who(torch.from_numpy(ids).to(device), n, counts, S, K, index, there, sigma.to(device))

    def plan(self, who: Who, t: int, trip: int, epochs: int | None = None) -> Plan:
        """The batches of some clients in round ``t``; ``epochs`` where it is not the run's own number of passes."""
        c = self.config
        return plan(
            who.own, who.n, who.id, words=(c.seed, t, trip), batch=c.batch,
            epochs=c.passes if epochs is None else epochs, steps=c.steps if epochs is None else None,
        )  # fmt: skip

    def _keep(self, good: Tensor, trained: Trained, who: Who) -> tuple[Trained, Who, list[int]]:
        """Only the clients whose update is finite."""
        if bool(good.all()):
            return trained, who, []
        uploads, states = tree_map(lambda t: t[good], (trained.uploads, trained.states))
        kept = Trained(trained.deltas[good], uploads, states, trained.loss[good])
        return kept, Who(*(field[good] for field in who)), who.id[~good].tolist()

    def _trip(self, number: int, trip: Trip, r: Round, uploads: Tensors, t: int) -> tuple[Round, int, int]:
        """Send some clients out again from where they stand; their new deltas replace the old ones."""
        view = r.own(uploads)
        rows = trip.who(view)
        if len(rows) == 0:
            return r, 0, 0
        message = {trip.sum[0].name: trip.message(view)}
        state = {trip.sum[0].name: trip.state(view, rows)}
        again = self.who(r.ids[rows].cpu().numpy(), trip.public)
        steps = (again.n + self.config.batch - 1) // self.config.batch
        again = again._replace(S=steps, K=steps * trip.epochs)
        start = r.w + r.deltas[rows]
        cohort = Cohort(again, state, self.plan(again, t, number, trip.epochs), start)
        trained = self.engines[number].train(self.job(t, message), cohort)
        good = finite_rows(trained.uploads, trained.deltas)
        deltas = r.deltas.clone()
        deltas[rows[good]] = trained.deltas[good]
        sent = len(rows) * nbytes(message) + nbytes(state)
        received = deltas[rows].numel() * deltas.element_size() + nbytes(trained.uploads)
        return replace(r, deltas=deltas), sent, received

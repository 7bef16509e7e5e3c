"""One machine plays all clients and the server: a round of the federation, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation
from holdfast.engines.batches import BatchPlan, plan
from holdfast.engines.choose import build, choose, compiles, products, workers
from holdfast.engines.client_update import Broadcast, ClientInfo, ClientUpdate, PerPart
from holdfast.engines.cohort import Cohort, Trained
from holdfast.engines.cuda_graph import CohortShape
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Part
from holdfast.models.net import Net
from holdfast.training.client_sampling import draw
from holdfast.training.client_states import ClientStates
from holdfast.training.prefetch import Prefetcher
from holdfast.training.round import Back, Played, Trainer
from holdfast.training.state_store import store

SURVEYED = 16  # clients surveyed at once


class Simulation(Trainer):
    """The federation, the server, the clients' states and the engines of one run."""

    def __init__(self, config: Config, method: Method, federation: Federation, net: Net) -> None:
        super().__init__(config, method, federation, net)
        self.clients = ClientStates(method, store(config.states, net.device))
        self.trained: tuple[dict[int, int], PerPart] = {}, {}  # the rows of the last cohort, and its new states
        self.occupied = federation.occupied
        self.labels = federation.data.y.cpu().numpy().copy()  # a tensor's memory may move, as to another process
        self.ahead = Prefetcher(self._upcoming) if net.device.type == "cuda" else None
        if len(self.occupied) == 0:
            raise HoldfastError("no client has any samples")
        self.engine_name, self.engine_reason = choose(
            config.engine, net.convolutional, net.device.type, config.cohort_size
        )
        kind = net.device.type
        if self.engine_name == "vector" and products(config.convolution, kind):
            net.use_products()
        if self.engine_name == "loop" and kind == "cpu":
            net.use_channels_last()
        outings = [(method, config.passes), *((Method(trip.sum), trip.epochs) for _, trip in self.trips)]
        locals_ = [ClientUpdate(net, m, federation, config.seed, e, number) for number, (m, e) in enumerate(outings)]
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

    def _room(self, epochs: int, number: int) -> CohortShape:
        """The shape that every cohort of a trip fits into."""
        config = self.config
        trip = self.trips[number - 1][1] if number else None
        sizes = np.array([len(self.federation.public)]) if trip and trip.public else self.federation.deal.sizes
        steps = -(-sizes[sizes > 0] // config.batch)
        if config.steps is not None and trip is None:
            steps = np.array([config.steps])
        return CohortShape(config.cohort_size, int(steps.max()) * epochs, config.batch, bool(steps.min() < steps.max()))

    def drawable(self) -> np.ndarray:
        return self.occupied

    def train(self, job: Broadcast, ids: np.ndarray) -> Back:
        t = int(job.round)
        drawn, who, batches = self._with_batches(t, ids) if self.ahead is None else self.ahead.take(t)
        if not np.array_equal(drawn, ids):  # somebody else than the draw chose them
            _, who, batches = self._with_batches(t, ids)
        if self.ahead is not None and t < self.config.rounds:
            self.ahead.begin(t + 1)
        who, batches = who.to(self.net.device), batches.to(self.net.device)
        states = self.clients.gather(ids.tolist(), self.server.w)
        trained = self.engines[0].train(job, Cohort(who, states, batches))
        self.trained = dict(zip(ids.tolist(), range(len(ids)), strict=True)), trained.states
        return came_back(who, trained)

    def keep(self, ids: list[int]) -> None:
        rows, states = self.trained
        if len(ids) < len(rows):
            at = torch.tensor([rows[i] for i in ids], device=self.net.device)
            states = tree_map(lambda t: t[at], states)
        self.clients.scatter(ids, states)
        self.trained = {}, {}

    def again(self, number: int, job: Broadcast, ids: np.ndarray, state: PerPart, deltas: Tensor) -> Back:
        trip = self.trips[number - 1][1]
        who = self.who(ids, trip.public)
        steps = (who.n + self.config.batch - 1) // self.config.batch
        who = who._replace(S=steps, K=steps * trip.epochs)
        cohort = Cohort(who, state, self.plan(who, int(job.round), number, trip.epochs), job.w0 + deltas)
        return came_back(who, self.engines[number].train(job, cohort))

    def gradients(self, job: Broadcast, ids: np.ndarray, at: Tensor) -> Tensor:
        who = self.who(ids)
        return self.engines[0].gradients(job, Cohort(who, {}, self.plan(who, int(job.round), 0)), at)

    def survey(self, job: Broadcast, parts: Sequence[Part]) -> Iterator[tuple[int, PerPart]]:
        for ids in np.array_split(self.occupied, -(-len(self.occupied) // SURVEYED)):
            yield len(ids), self.engines[0].survey(job, self.who(ids), parts)

    def noted(self, played: Played) -> Played:
        return played

    def holdings(self, ids: Tensor) -> Tensor:
        return self.who(ids.cpu().numpy()).counts

    def who(self, ids: np.ndarray, public: bool = False) -> ClientInfo:
        """The clients' rows, padded to the one with the most samples."""
        return self._rows(ids, public).to(self.net.device)

    def _rows(self, ids: np.ndarray, public: bool = False) -> ClientInfo:
        """The same in the memory of the host."""
        fed = self.federation
        lists = [fed.public.cpu().numpy() if public else fed.deal.client(int(i)) for i in ids]
        most = max(len(own) for own in lists)
        own = np.zeros((len(ids), most), np.int64)
        for row, samples in zip(own, lists, strict=True):
            row[: len(samples)] = samples
        sizes = np.array([len(samples) for samples in lists])
        there = np.arange(most) < sizes[:, None]
        y = np.where(there, self.labels[own], fed.classes) + np.arange(len(ids))[:, None] * (fed.classes + 1)
        counts = np.bincount(y.ravel(), minlength=len(ids) * (fed.classes + 1)).reshape(len(ids), -1)[:, :-1]
        n = torch.from_numpy(sizes)
        steps = (n + self.config.batch - 1) // self.config.batch
        S, K = steps, steps * self.config.passes
        if self.config.steps is not None:
            S = K = torch.full_like(n, self.config.steps)
        noise = fed.deal.noise
        sigma = torch.zeros(len(ids)) if noise is None or public else torch.as_tensor(noise.sigma[ids])
        held, index, valid = (torch.from_numpy(t) for t in (counts, own, there))
        return ClientInfo(torch.from_numpy(ids), n, held, S, K, index, valid, sigma)

    def _with_batches(self, t: int, ids: np.ndarray) -> tuple[np.ndarray, ClientInfo, BatchPlan]:
        """Some clients and their batches of round ``t``, in the memory of the host."""
        who = self._rows(ids)
        return ids, who, self.plan(who, t, 0)

    def _upcoming(self, t: int) -> tuple[np.ndarray, ClientInfo, BatchPlan]:
        """The same of the cohort that round ``t`` draws."""
        return self._with_batches(t, draw(self.config, self.occupied, t))

    def plan(self, who: ClientInfo, t: int, trip: int, epochs: int | None = None) -> BatchPlan:
        """The batches of some clients in round ``t``; ``epochs`` where it is not the run's own number of passes."""
        c = self.config
        return plan(
            who.own, who.n, who.id, words=(c.seed, t, trip), batch=c.batch,
            epochs=c.passes if epochs is None else epochs, steps=c.steps if epochs is None else None,
        )  # fmt: skip


def came_back(who: ClientInfo, trained: Trained) -> Back:
    return Back(who.id, who.n, who.K, trained.deltas, trained.uploads, trained.loss)

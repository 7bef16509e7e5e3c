"""All clients and the server on one machine: a federation, simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.attacks.attack import read_attack
from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import PerPart
from holdfast.data.client_maker import CohortSamples
from holdfast.data.deal import CohortDeal, Deal
from holdfast.data.federation import Federation
from holdfast.engines.batches import BatchPlan, plan
from holdfast.engines.choose import ENGINES, best_convolutions, build, choose_for, compiles, convolutions, workers
from holdfast.engines.cohort import Cohort, CohortUpdate
from holdfast.engines.local_training import Broadcast, ClientInfo, LocalTraining
from holdfast.engines.row_schedule import best_width
from holdfast.engines.row_step import CohortShape
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Part, Trip
from holdfast.metrics.metric import Metric
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net
from holdfast.speeds.speed_choice import read_speeds
from holdfast.training.attacked import Liars
from holdfast.training.client_sampling import draw
from holdfast.training.client_scores import ClientScores, joined, score_clients
from holdfast.training.client_states import ClientStates
from holdfast.training.evaluation import Score, evaluate, on_mix
from holdfast.training.local_epochs import draw_epochs
from holdfast.training.personal import PersonalScores, own_model, personalise, tuning
from holdfast.training.prefetch import Prefetcher
from holdfast.training.privacy import accountant
from holdfast.training.round import Trainer
from holdfast.training.round_record import RoundRecord
from holdfast.training.sample_buffer import SampleBuffer
from holdfast.training.state_store import make_store
from holdfast.training.virtual_clock import Timetable, VirtualClock, Work

SURVEYED = 16  # clients surveyed at a time
FORESEEN = 32  # rounds that decide how many rows a traced step has


class Holdings(NamedTuple):
    """Who holds which samples of the federation's data, as far as they are in memory."""

    deal: Deal | CohortDeal
    strata: np.ndarray  # the group of every sample by its target


class PreparedGroup(NamedTuple):
    """Clients of one round with their batches, in host memory."""

    ids: np.ndarray
    info: ClientInfo
    batches: BatchPlan


class PreparedRound(NamedTuple):
    """What a round needs, in host memory."""

    groups: list[PreparedGroup]
    samples: CohortSamples | None = None  # of clients that are made on demand


class Simulation(Trainer):
    """Trains the clients with an engine of this machine."""

    def __init__(
        self, config: Config, method: Method, federation: Federation, net: Net, metric: Metric | None = None
    ) -> None:
        attack = read_attack(config.attack)
        self.liars = None if attack is None else Liars(attack, config.seed, np.asarray(federation.occupied))
        if self.liars is not None:
            federation = self.liars.flipped(federation)
        super().__init__(config, method, federation, net, metric)
        self.clients = ClientStates(method, net, make_store(config.states, net.device))
        self.occupied = federation.occupied
        self.privacy = accountant(config, method, len(self.occupied))
        self.held = Holdings(federation.deal, federation.strata)
        self.buffer = None if federation.on_demand is None else SampleBuffer(federation)
        require_samples(federation)
        device = net.device.type
        self.clock = None if config.client_speeds is None else clock_of(config, federation)
        self.allowed: dict[int, int] = {}  # the steps of every client in this round, if some stop early
        self.timetable: Timetable | None = None  # of this round
        self.prefetcher = Prefetcher(self._upcoming) if device == "cuda" or self.buffer else None
        self.prepared: tuple[int, list[PreparedGroup]] = 0, []  # of this round, by the prefetcher
        self.engine_name, self.engine_reason = choose_for(config.engine, net, config.cohort_size, federation.example())
        busy = net.convolutional or self.engine_name == "vector"
        self.workers = workers(config.workers, busy, device, config.cohort_size)
        if net.random:  # all threads draw from one generator
            self.workers = 1
        if self.engine_name == "vector":
            net.use_convolutions(convolutions(config.convolution, net))
        if self.engine_name == "loop" and device == "cpu":
            net.use_channels_last()
        self._build_engines()

    def _build_engines(self) -> None:
        """Build an engine for local training and one for each further trip."""
        config, device = self.config, self.net.device.type
        again = [(Method(trip.sum).with_optimiser_of(self.method), trip.epochs) for _, trip in self.trips]
        outings = [(self.method, config.passes), *again]
        public = self.federation.for_public_trip()
        data = [self.federation, *(public if trip.public else self.federation for _, trip in self.trips)]
        trainings = [
            LocalTraining(self.net, method, data[number], config.seed, epochs, number)
            for number, (method, epochs) in enumerate(outings)
        ]
        trips = [None, *(trip for _, trip in self.trips)]
        largest = None if self.buffer is None else self.buffer.most
        steps = config.rounds * config.passes * int(epoch_steps(config, self.federation, None, largest).max())
        compiled = compiles(config.compile, device, steps)
        traced = compiled or (device == "cuda" and config.graphs)
        shapes = [cohort_shape(config, self.federation, trip, largest) if traced else None for trip in trips]
        self.engines = [
            build(self.engine_name, training, config.slice, self.workers, shape, compiled)
            for training, shape in zip(trainings, shapes, strict=True)
        ]

    @property
    def captures(self) -> bool:
        return self.net.device.type == "cuda" and self.config.graphs and self.engine_name == "vector"

    def foreseen(self) -> list[list[int]]:
        """Return the local steps of every client of the first cohorts; nobody's are known if clients are on demand."""
        return foreseen(self.config, self.occupied, epoch_steps(self.config, self.federation))

    def settle(self) -> None:
        """Do nothing: all data is on this machine."""

    def drawable(self) -> np.ndarray | range:
        return self.occupied if self.clock is None else self.clock.present(self.occupied)

    def resume_after(self, history: Sequence[RoundRecord]) -> None:
        if self.clock is not None:
            self.clock.resume(record.virtual_seconds for record in history)

    def in_time(self, broadcast: Broadcast, ids: np.ndarray) -> np.ndarray:
        """Return the clients whose work arrives before the deadline, and note which of them stop early."""
        if self.clock is None:
            return ids
        held = self._info_on_host(ids, self.held)
        steps = held.S.numpy() * draw_epochs(self.config, ids, int(broadcast.round))
        samples = held.n.numpy()
        work = Work(samples, np.minimum(samples, self.config.batch), steps)
        found = self.clock.timetable(ids, work, self.download_bytes(broadcast), self._client_upload(broadcast))
        if found.shortened:
            self.allowed = dict(zip(found.ids.tolist(), found.steps.tolist(), strict=True))
        self.timetable = found
        return found.ids

    def _client_upload(self, broadcast: Broadcast) -> int:
        """Return the bytes that a client uploads; before the first upload one is trained for that."""
        if self._client_bytes is None:
            self._upload_bytes(self.train(broadcast, np.asarray(self.occupied[:1])))
        assert self._client_bytes is not None
        return self._client_bytes

    def annotate(self, record: RoundRecord) -> RoundRecord:
        """Add what the virtual clock says about a round."""
        if self.clock is None or self.timetable is None:
            return record
        found, away, self.allowed = self.timetable, len(self.occupied) - len(self.drawable()), {}
        taken = self.clock.end(found.seconds)
        return replace(record, virtual_seconds=taken, away=away, late=found.late, shortened=found.shortened)

    def load(self, t: int) -> None:
        """Take what was prepared for a round, and start on the next. Clients made on demand replace those before."""
        if self.prefetcher is None:
            return
        groups, samples = self.prefetcher.take(t)
        self.prepared = t, groups
        if t < self.config.rounds and self.clock is None:  # otherwise this round decides who is there in the next one
            self.prefetcher.start(t + 1)
        if samples is None or self.buffer is None:
            return
        grown = self.buffer.put(samples)
        self.held = self._holdings(samples)
        self.federation = self.buffer.federation
        if grown:
            self._build_engines()

    def _holdings(self, samples: CohortSamples) -> Holdings:
        return Holdings(samples.deal, self.federation.strata_of(samples.y)[0])

    def slices(self, ids: np.ndarray) -> list[np.ndarray]:
        """Return groups of clients that fit in memory; those of a group take about the same number of steps."""
        return self._groups(ids, self.held)

    def _groups(self, ids: np.ndarray, held: Holdings) -> list[np.ndarray]:
        sizes = held.deal.sizes_of(ids)
        width = self.engines[0].width(min(self.config.batch, int(sizes.max())))
        if len(ids) <= width:
            return [ids]
        order = np.argsort(-self._steps(sizes), kind="stable")
        return [np.sort(ids[order[i : i + width]]) for i in range(0, len(ids), width)]

    def train(self, broadcast: Broadcast, ids: np.ndarray) -> CohortUpdate:
        info, batches = self._batches(int(broadcast.round), ids)
        info, batches = info.to(self.net.device), batches.to(self.net.device)
        states = self.clients.gather(ids.tolist(), self.server.w)
        return self.engines[0].train(broadcast, Cohort(info, states, batches))

    def nobody(self, broadcast: Broadcast) -> CohortUpdate:
        known = self.prepared[1] if self.prepared[0] == int(broadcast.round) else []
        ids = known[0].ids[:1] if known else np.asarray(self.occupied[:1])
        update = self.train(broadcast, ids)  # for the shapes alone
        return update.rows(torch.zeros(len(update.ids), dtype=torch.bool, device=update.ids.device))

    def received(self, update: CohortUpdate, round: int) -> CohortUpdate:
        return update if self.liars is None else self.liars.forged(update, round)

    def train_again(
        self, number: int, broadcast: Broadcast, ids: np.ndarray, state: PerPart, deltas: Tensor
    ) -> CohortUpdate:
        trip = self.trips[number - 1][1]
        info = self.with_epochs(self.client_info(ids, trip.public), trip.epochs, trip.batch)
        batches = self.plan(info, int(broadcast.round), number, trip.epochs)
        return self.engines[number].train(broadcast, Cohort(info, state, batches, broadcast.w0 + deltas))

    def gradients(self, broadcast: Broadcast, ids: np.ndarray, at: Tensor) -> Tensor:
        info = self.client_info(ids)
        cohort = Cohort(info, {}, self.plan(info, int(broadcast.round), 0))
        return self.engines[0].gradients(cohort, at, broadcast.stats)

    def survey(self, broadcast: Broadcast, parts: Sequence[Part]) -> Iterator[tuple[int, PerPart]]:
        occupied = np.asarray(self.occupied)
        for ids in np.array_split(occupied, -(-len(occupied) // SURVEYED)):
            yield len(ids), self.engines[0].survey(broadcast, self.client_info(ids), parts)

    def client_scores(self) -> Iterator[Score]:
        served = self.server.served()
        for i in np.asarray(self.occupied).tolist():
            yield self.client_score(i, served)

    def client_score(self, client: int, served: Tensor) -> Score:
        """Return the score of one client's own model on its class mix: the served one with its BatchNorm layers."""
        net, w = self.client_model(client, served)
        return on_mix(evaluate(net, w, self.federation), self.client_info(np.array([client])).counts[0])

    def client_model(self, client: int, served: Tensor) -> tuple[Net, Tensor]:
        """Return the served model as a client has it: with its own BatchNorm layers, if it keeps any."""
        if not self.net.kept_at_clients():
            return self.served_net, served
        state = self.clients.gather([client], served)[STATISTICS]
        return own_model(self.net, served, {name: rows[0] for name, rows in state.items()})

    def scores_at_clients(self, purpose: str) -> ClientScores:
        held, served = self.federation.held(purpose), self.server.served()
        assert held is not None
        if not self.net.kept_at_clients():
            return score_clients(self.served_net, served, self.federation, held, self.metrics)
        return joined((self.score_at_client(i, served, held) for i in list(self.occupied)), self.metrics)

    def score_at_client(self, client: int, served: Tensor, held: Deal) -> ClientScores:
        """Score the model of one client on its samples among those that are held out."""
        return score_clients(*self.client_model(client, served), self.federation, held.only([client]), self.metrics)

    def personal_scores(self) -> PersonalScores:
        return personalise(self, tuning(self.config, self.method))

    def class_counts(self, ids: Tensor) -> Tensor:
        return self.client_info(ids.cpu().numpy()).counts

    def client_info(self, ids: np.ndarray, public: bool = False) -> ClientInfo:
        """Return the facts about some clients, padded to the one with the most samples.

        With ``public`` their samples are the public data.
        """
        return self._info_on_host(ids, self.held, public).to(self.net.device)

    def _info_on_host(self, ids: np.ndarray, held: Holdings, public: bool = False) -> ClientInfo:
        fed = self.federation
        lists = [fed.public.cpu().numpy() if public else held.deal.client(int(i)) for i in ids]
        sizes = np.array([len(samples) for samples in lists])
        index = np.zeros((len(ids), sizes.max()), np.int64)
        for row, samples in zip(index, lists, strict=True):
            row[: len(samples)] = samples
        valid = np.arange(index.shape[1]) < sizes[:, None]
        groups = len(fed.strata_names)
        y = np.where(valid, held.strata[index], groups) + np.arange(len(ids))[:, None] * (groups + 1)
        counts = np.bincount(y.ravel(), minlength=len(ids) * (groups + 1)).reshape(len(ids), -1)[:, :-1]
        n = torch.from_numpy(sizes)
        steps = (n + self.config.batch - 1) // self.config.batch
        S, K = steps, steps * self.config.passes
        if self.config.steps is not None:
            S = K = torch.full_like(n, self.config.steps)
        noise = held.deal.noise
        sigma = torch.zeros(len(ids)) if noise is None or public else torch.as_tensor(noise.sigma[ids])
        per_class, numbers, there = (torch.from_numpy(t) for t in (counts, index, valid))
        return ClientInfo(torch.from_numpy(ids), n, per_class, S, K, numbers, there, sigma)

    def with_epochs(self, info: ClientInfo, epochs: int, batch: int | None = None) -> ClientInfo:
        """Return the same clients with passes over their data, and samples per step, that are not the run's own."""
        size = batch or self.config.batch
        steps = (info.n + size - 1) // size
        return info._replace(S=steps, K=steps * epochs)

    def _steps(self, sizes: np.ndarray) -> np.ndarray:
        """Return the local steps per epoch of clients with these numbers of samples."""
        if self.config.steps is not None:
            return np.full_like(sizes, self.config.steps)
        return -(-sizes // self.config.batch)

    def _batches(self, t: int, ids: np.ndarray) -> tuple[ClientInfo, BatchPlan]:
        """Return some clients and their batches of round ``t``, in host memory; they may have been prepared."""
        for group, info, batches in self.prepared[1] if self.prepared[0] == t and not self.allowed else ():
            if np.array_equal(group, ids):
                return info, batches
        info = self._info_in_round(t, ids, self.held)
        return info, self.plan(info, t, 0)

    def _info_in_round(self, t: int, ids: np.ndarray, held: Holdings) -> ClientInfo:
        """Return the facts about some clients in host memory, with the epochs that they train in round ``t``."""
        info = self._info_on_host(ids, held)
        K = info.S * torch.from_numpy(draw_epochs(self.config, ids, t))
        if self.allowed:
            K = torch.tensor([self.allowed[i] for i in ids.tolist()])
        return info._replace(K=K)

    def _upcoming(self, t: int) -> PreparedRound:
        """Return the groups of the cohort that round ``t`` draws, with their batches."""
        drawn = self.draw(t)
        drawn = drawn if len(drawn) else np.asarray(self.occupied[:1])  # their shapes are needed
        samples = None if self.buffer is None else self.federation.make_clients(drawn)
        held = self.held if samples is None else self._holdings(samples)
        groups = [(ids, self._info_in_round(t, ids, held)) for ids in self._groups(drawn, held)]
        return PreparedRound([PreparedGroup(ids, info, self.plan(info, t, 0)) for ids, info in groups], samples)

    def plan(self, info: ClientInfo, t: int, trip: int, epochs: int | None = None) -> BatchPlan:
        """Return the batches of some clients in round ``t``.

        Args:
            info: The clients.
            t: The round.
            trip: The trip within the round; 0 is local training.
            epochs: The passes over the data, if they are not the run's own.

        Returns:
            The plan.
        """
        c, further = self.config, self.trips[trip - 1][1] if trip else None
        return plan(
            info.samples, info.n, info.id, words=(c.seed, t, trip),
            batch=c.batch if further is None else further.batch or c.batch,
            shuffled=further is None or further.shuffled,
            epochs=(-(-info.K // info.S)).tolist() if epochs is None else epochs,
            steps=c.steps if epochs is None else None, most_steps=info.K.tolist() if self.allowed else None,
        )  # fmt: skip


def clock_of(config: Config, federation: Federation) -> VirtualClock:
    """Return the virtual clock of a run before its first round."""
    assert config.client_speeds is not None
    occupied = [] if federation.on_demand is not None else np.asarray(federation.occupied).tolist()
    speeds = read_speeds(config.client_speeds, federation.seed, occupied, federation.client_names)
    return VirtualClock(speeds, config.deadline, config.late == "keep")


def epoch_steps(
    config: Config, federation: Federation, trip: Trip | None = None, largest: int | None = None
) -> np.ndarray:
    """Return the steps per epoch of every client in local training, or in a further trip.

    Args:
        config: The run.
        federation: The clients and their data.
        trip: The further trip, if it is one.
        largest: The most samples of any client that is made on demand so far; the others may have fewer.

    Returns:
        The steps; those of a single client if clients are made on demand.
    """
    sizes = federation.deal.sizes if federation.on_demand is None else np.array([largest or len(federation.data.y)])
    if trip and trip.public:
        sizes = np.full(federation.clients, len(federation.public))
    if config.steps is not None and trip is None:
        return np.full_like(sizes, config.steps)
    return -(-sizes // ((trip and trip.batch) or config.batch))


def cohort_shape(
    config: Config, federation: Federation, trip: Trip | None = None, largest: int | None = None
) -> CohortShape:
    """Return the shape that every client of local training, or of a further trip, fits into.

    Args:
        config: The run.
        federation: The clients and their data.
        trip: The further trip, if it is one.
        largest: The most samples of any client that is made on demand so far; the others may have fewer.

    Returns:
        The shape.
    """
    steps = epoch_steps(config, federation, trip, largest)
    rows = config.step_rows
    if rows is None and federation.on_demand is not None:
        rows = config.cohort_size
    elif rows is None:
        rows = best_width(foreseen(config, federation.occupied, steps, trip), most=federation.clients)
    epochs = trip.epochs if trip else config.passes
    slots = 1 << (int(steps.max()) * epochs - 1).bit_length()  # so that seeds and splits have the same compiled step
    return CohortShape(rows, slots, (trip and trip.batch) or config.batch)


def foreseen(
    config: Config, occupied: np.ndarray | range, steps: np.ndarray, trip: Trip | None = None
) -> list[list[int]]:
    """Return the local steps of every client of the first cohorts, whether or not the run has that many rounds.

    Args:
        config: The run.
        occupied: The clients that have samples.
        steps: The steps per epoch of every client.
        trip: The further trip, if it is one; it may leave out some of the cohort.

    Returns:
        The steps, round by round.
    """
    cohorts = [(t, draw(config, occupied, t)) for t in range(1, FORESEEN + 1)]
    if trip:
        return [(steps[ids] * trip.epochs).tolist() for _, ids in cohorts]
    return [(steps[ids] * draw_epochs(config, ids, t)).tolist() for t, ids in cohorts]


def decided(config: Config, federation: Federation, net: Net) -> Config:
    """Return the config with everything decided that depends on the machine and the length of the run.

    A run stores what was decided, since it must not be decided again when the run is resumed with more rounds.
    """
    if config.engine not in (*ENGINES, "auto"):  # another trainer's
        return config
    require_samples(federation)
    device = net.device.type
    federation = federation.to(net.device, net.dtype)
    engine, _ = choose_for(config.engine, net, config.cohort_size, federation.example())
    if engine != "vector":
        return config
    steps = config.rounds * config.passes * int(epoch_steps(config, federation).max())
    config = config.changed(compile=compiles(config.compile, device, steps))
    if config.ran_on is None:  # a run that is resumed keeps its own
        config = config.changed(convolution=best_convolutions(config.convolution, net))
    if not config.compile and not (device == "cuda" and config.graphs):
        return config
    return config.changed(step_rows=cohort_shape(config, federation).rows)


def require_samples(federation: Federation) -> None:
    """Raise an error if there is nobody to train."""
    if len(federation.occupied) == 0:
        raise HoldfastError("no client has any samples: check the split")

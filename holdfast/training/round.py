"""A round of the federation, wherever its clients train: draw, train, further trips, move the model, survey."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.core.gaussian_noise import Noise, keyed
from holdfast.core.tensors import PerPart, Tensors, finite_rows, flatten, nbytes
from holdfast.data.federation import Federation
from holdfast.data.validation import CLIENT_TEST, VALIDATION
from holdfast.engines.cohort import CohortUpdate
from holdfast.engines.local_training import CHUNK, Broadcast
from holdfast.method.config import Config
from holdfast.method.encoding import Encoder
from holdfast.method.method import Method
from holdfast.method.part import Part, Round, Trip
from holdfast.metrics.metric import Metric
from holdfast.metrics.metric_names import read_metric
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net
from holdfast.training.client_sampling import draw
from holdfast.training.client_scores import ClientScores
from holdfast.training.client_states import ClientStates
from holdfast.training.drift import measure
from holdfast.training.evaluation import AT_ONCE, Score, mean_score, score, usual_metrics
from holdfast.training.personal import PersonalScores
from holdfast.training.privacy import accountant
from holdfast.training.round_record import RoundRecord
from holdfast.training.sample_pass import SamplePass
from holdfast.training.server import Server
from holdfast.training.slices import CohortCollector, SliceSums
from holdfast.training.update_lengths import far_from_median

log = logging.getLogger("holdfast")


class Diverged(HoldfastError):
    """Every update of a round was NaN or infinite. The run stops; its last checkpoint is kept."""

    status = 1


class Evaluation(NamedTuple):
    """What a run measures after a round."""

    test: Score
    validation: Score | None = None
    clients: ClientScores | None = None  # on the clients' own test samples


class Trainer(ABC):
    """Plays the rounds of one run. Subclasses decide where the clients train."""

    engine_name: str
    engine_reason: str
    clients: ClientStates  # what a checkpoint keeps about each client
    occupied: np.ndarray | range  # the clients that have samples, as far as is known

    def __init__(
        self, config: Config, method: Method, federation: Federation, net: Net, metric: Metric | None = None
    ) -> None:
        """Prepare the rounds.

        Args:
            config: The run.
            method: Its method, with the parts that flags stand for.
            federation: The clients and their data.
            net: The network.
            metric: What the run goes by; by default the metric that the config names.
        """
        self.config, self.method, self.federation, self.net = config, method, federation, net
        self._metric = metric
        self.server = Server(net, method, federation.clients, config.server_lr, config.max_weight)
        self.privacy = accountant(config, method)
        self.noise: Noise | None = None  # what protects clients at the server; None: noise that follows from the seed
        self._client_bytes: int | None = None  # of one client's upload
        self.trips = [(part, trip) for part in method.filling("trips") for trip in part.trips()]

    @cached_property
    def metric(self) -> Metric:
        """What the run goes by."""
        return self._metric or read_metric(self.config.metric, self.federation.data.task)

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics of every evaluation."""
        return usual_metrics(self.federation.data.task, self.metric)

    @cached_property
    def test_pass(self) -> SamplePass:
        """Runs models on the test samples."""
        return SamplePass(self.federation.data.task, lambda: self.federation.test_batches(AT_ONCE), self.captures)

    @cached_property
    def validation_pass(self) -> SamplePass:
        """Runs models on the validation samples."""
        held = self.federation.validation
        assert held is not None
        return SamplePass(self.federation.data.task, lambda: self.federation.held_batches(held, AT_ONCE), self.captures)

    @property
    def captures(self) -> bool:
        """Whether work on the GPU is captured as CUDA graphs."""
        return False

    # -- who trains the clients ----------------------------------------------------------------------------
    @abstractmethod
    def settle(self) -> None:
        """Find out what only the clients know, before the first round and when a run is resumed."""

    @abstractmethod
    def drawable(self) -> np.ndarray | range:
        """Return the clients that may be drawn now."""

    def load(self, t: int) -> None:  # noqa: B027 - most trainers have everything
        """Get what the clients of round ``t`` need; by default nothing."""

    @abstractmethod
    def train(self, broadcast: Broadcast, ids: np.ndarray) -> CohortUpdate:
        """Train a cohort. The new states at the clients count only once they are committed."""

    @abstractmethod
    def train_again(
        self, number: int, broadcast: Broadcast, ids: np.ndarray, state: PerPart, deltas: Tensor
    ) -> CohortUpdate:
        """Make trip ``number`` = 1, 2, ... with clients whose models are ``deltas`` away from the global one."""

    @abstractmethod
    def gradients(self, broadcast: Broadcast, ids: np.ndarray, at: Tensor) -> Tensor:
        """Return the clients' full gradients at one model, [C, P]."""

    @abstractmethod
    def survey(self, broadcast: Broadcast, parts: Sequence[Part]) -> Iterator[tuple[int, PerPart]]:
        """Yield what parts measure at all clients, some at a time: how many, and the results with a client axis."""

    @abstractmethod
    def nobody(self, broadcast: Broadcast) -> CohortUpdate:
        """Return the update of a cohort without clients: with the names and shapes of every upload, and no rows."""

    def draw(self, t: int) -> np.ndarray:
        """Draw the cohort of a round; nobody may be in it if noise hides that."""
        return draw(self.config, self.drawable(), t, again=self.privacy is None)

    def in_time(self, broadcast: Broadcast, ids: np.ndarray) -> np.ndarray:
        """Return the clients of a cohort whose work will arrive: by default all of them."""
        return ids

    def resume_after(self, history: Sequence[RoundRecord]) -> None:  # noqa: B027 - most trainers have no clock
        """Take over from the rounds so far what is not in a checkpoint; by default nothing."""

    def received(self, update: CohortUpdate, round: int) -> CohortUpdate:
        """Return what reaches the server of what clients trained: by default all of it, unchanged."""
        return update

    def slices(self, ids: np.ndarray) -> list[np.ndarray]:
        """Return the clients of a cohort in the groups in which they are trained; by default in one."""
        return [ids]

    @abstractmethod
    def client_scores(self) -> Iterator[Score]:
        """Yield the score of every client's own model, where BatchNorm layers stay at the clients."""

    @abstractmethod
    def scores_at_clients(self, purpose: str) -> ClientScores:
        """Score every client's model on what it holds out for ``validation`` or ``client_test``.

        That is the served model, or the client's own where BatchNorm layers stay at the clients.
        """

    @abstractmethod
    def personal_scores(self) -> PersonalScores:
        """Let every client fine-tune its own copy of the served model, and score the copies."""

    def judge(self) -> Evaluation:
        """Score the served model on everything that a run evaluates it on."""
        clients = self.score_clients()
        return Evaluation(self.evaluate(clients), self.validate(), clients)

    def score_clients(self) -> ClientScores | None:
        """Score every client's model on the client's own test samples; None if clients have none."""
        return None if self.federation.client_test is None else self.scores_at_clients(CLIENT_TEST)

    def evaluate(self, clients: ClientScores | None = None, metrics: Sequence[Metric] | None = None) -> Score:
        """Score the served model on the test data.

        Where every client has its own BatchNorm layers there is no such model. The score is then the mean of the
        clients' own: on their own test samples if they have any, otherwise each on its class mix of the test data.

        Args:
            clients: The scores of the clients, if they are known.
            metrics: What to compute; by default the metrics of every evaluation.

        Returns:
            The scores.
        """
        if not self.net.kept_at_clients():
            found = self.test_pass(self.served_net, self.server.served())
            return score(found, metrics or self.metrics, self.federation.classes)
        clients = self.score_clients() if clients is None else clients
        return mean_score(list(self.client_scores())) if clients is None else clients.mean()

    def validate(self) -> Score | None:
        """Score the served model on the validation data; None if there are none."""
        fed = self.federation
        if fed.validation is None:
            return None
        if self.clients_validate():
            return self.scores_at_clients(VALIDATION).combined(self.metrics)
        return score(self.validation_pass(self.served_net, self.server.served()), self.metrics, fed.classes)

    def clients_validate(self) -> bool:
        """Tell whether validation data is scored at the clients: where every client has its own model."""
        return bool(self.net.kept_at_clients())

    @property
    def served_net(self) -> Net:
        """The network with the running statistics of the global model."""
        return self.net.with_stats(self.server.stats)

    def annotate(self, record: RoundRecord) -> RoundRecord:
        """Add what only the subclass knows about a round."""
        return record

    def class_counts(self, ids: Tensor) -> Tensor:
        """Return the samples of each client and class, [C, classes]; by default the server does not know: ones."""
        return torch.ones(len(ids), len(self.federation.strata_names), dtype=torch.int64, device=ids.device)

    # -- the round -----------------------------------------------------------------------------------------
    def play(self, t: int) -> RoundRecord:
        """Play round ``t`` = 1, 2, ...; the record still lacks the evaluation and the time."""
        ids = self.draw(t)
        self.load(t)
        broadcast, visits = self._consult(self.broadcast(t, self.server.messages()), ids)
        heard = self.in_time(broadcast, ids) if len(ids) else ids
        if len(ids) and not len(heard):
            return self._unheard(broadcast, ids)
        groups = self.slices(heard) if len(heard) else []
        sums = None
        if len(groups) > 1 and not (self.method.reads_deltas or self.config.drift):
            sums = SliceSums(self.server, lambda slice: self._server_view(t, slice, broadcast.lr))
        update, skipped, received = self._train_slices(broadcast, groups, sums)
        model = self.net.travelling
        sent = model + nbytes({"": broadcast.stats})
        down = len(ids) * (sent * visits + self.download_bytes(broadcast))
        up = model * len(ids) * visits + received
        r = self._server_view(t, update, broadcast.lr)
        for number, (part, trip) in enumerate(self.trips, start=1):
            r, sent, received = self._trip(number, trip, r, update.uploads.get(part.name, {}))
            down, up = down + sent, up + received
        far = {} if sums or self.privacy is not None else far_from_median(update.ids, update.deltas)
        counted, uploads = self._admit(r, update.uploads)
        skipped = sorted(skipped + left_out(r.ids, counted.ids))
        counted = replace(counted, update=sums.update() if sums else self.server.aggregate(counted, uploads))
        self.server.close(counted, uploads, sums.absorbed if sums else None)
        if not bool(torch.isfinite(self.server.w).all()):
            raise Diverged(f"round {t}: the server step made the model NaN or infinite; lower its rate, or --lr")
        r = replace(r, update=counted.update)
        sent, received = self._survey(r)
        loss = float(mean_loss(r.n, update.loss)) if len(r.ids) else None
        record = RoundRecord(
            round=t, train_loss=loss, seconds=0.0,
            upload_bytes=up + received, download_bytes=down + sent, cohort=ids.tolist(), skipped=skipped,
            far=far, drift=self._drift(r), epsilon=self._epsilon(t),
        )  # fmt: skip
        return self.annotate(record)

    def download_bytes(self, broadcast: Broadcast) -> int:
        """Return the bytes that a client receives before its local training."""
        return self.net.travelling + nbytes({"": broadcast.stats}) + nbytes(broadcast.messages)

    def _unheard(self, broadcast: Broadcast, ids: np.ndarray) -> RoundRecord:
        """Return the record of a round in which nobody is in time: the model and all states stay as they are."""
        sent = len(ids) * self.download_bytes(broadcast)
        return self.annotate(RoundRecord(int(broadcast.round), None, 0.0, 0, sent, ids.tolist()))

    def _admit(self, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        """Return what of the cohort counts."""
        counted, admitted = self.server.admit(r, uploads)
        if not counted.count:
            raise Diverged(f"round {r.round}: every client's update was refused as out of the method's bounds")
        return counted, admitted

    def broadcast(self, t: int, messages: PerPart) -> Broadcast:
        """Return what every client is sent in round ``t``."""
        like = self.server.w
        lr = torch.tensor(self.config.lr_of_round(t), dtype=like.dtype, device=like.device)
        return Broadcast(like, lr, torch.tensor(t, device=like.device), messages, self.server.stats)

    def _train_slices(
        self, broadcast: Broadcast, groups: list[np.ndarray], sums: SliceSums | None
    ) -> tuple[CohortUpdate, list[int], int]:
        """Train a cohort group by group; also return whose update is not finite, and the bytes received."""
        if not groups:
            return self.nobody(broadcast), [], 0
        ids = torch.from_numpy(np.sort(np.concatenate(groups))).to(self.net.device)
        collector = CohortCollector(ids, len(groups), sums)
        skipped: list[int] = []
        received = 0
        for group in groups:
            left_out, size = self._train_group(broadcast, group, collector)
            skipped, received = skipped + left_out, received + size
        if collector.empty and self.privacy is not None:  # noise hides that nobody's update counts
            return self.nobody(broadcast), sorted(skipped), received
        if collector.empty:
            raise Diverged(f"round {int(broadcast.round)}: no client's update is finite; lower --lr, or add --clip")
        return collector.collected(), sorted(skipped), received

    def _train_group(
        self, broadcast: Broadcast, group: np.ndarray, collector: CohortCollector
    ) -> tuple[list[int], int]:
        """Train some clients and collect what is finite; return who is left out, and the bytes received."""
        update = self.received(self.train(broadcast, group), int(broadcast.round))
        received = self._upload_bytes(update)
        good = finite_rows(update.uploads, update.deltas)
        if STATISTICS in update.uploads:
            good = good & self.net.statistics.possible(update.uploads[STATISTICS])
        skipped: list[int] = update.ids[~good].tolist()
        if skipped:
            update = update.rows(good)
        if len(update.ids):
            self.clients.scatter(update.ids.tolist(), update.states)
            collector.add(replace(update, states={}))
        return skipped, received

    def encoder(self, uploads: PerPart) -> Encoder:
        """Return what writes uploads such as these, of one client, with the delta, as they travel."""
        tensors = {f"uploads/{name}": t for name, t in flatten(uploads).items()}
        return Encoder(self.method, {"delta": self.net.shared(self.net.initial)} | tensors)

    def _upload_bytes(self, update: CohortUpdate) -> int:
        """Return the bytes of what a cohort uploads, as it travels."""
        if not len(update.ids):
            return 0
        if self._client_bytes is None:
            one = tree_map(lambda t: t[0], update.uploads)
            self._client_bytes = nbytes({"": self.encoder(one).template})
        return self._client_bytes * len(update.ids)

    def _server_view(self, t: int, update: CohortUpdate, lr: Tensor) -> Round:
        """Return the round as parts see it at the server."""
        seed, fed = self.config.seed, self.federation

        def key() -> Tensor:
            return rng.key(seed, rng.SERVER, torch.tensor(t, device=self.net.device))

        return Round(
            w=self.server.w, deltas=update.deltas, ids=update.ids, n=update.n, K=update.K,
            weights=self.server.weights(update.n), lr=lr, server_lr=self.config.server_lr, N=fed.clients, round=t,
            rounds=self.config.rounds, net=self.net.with_stats(self.server.stats), key=key,
            noise=self.noise or keyed(key), public=lambda: fed.public_batches(CHUNK, key()),
            occupied=len(self.occupied),
        )  # fmt: skip

    def _consult(self, broadcast: Broadcast, ids: np.ndarray) -> tuple[Broadcast, int]:
        """Let parts ask the cohort before it trains; also return how many times each client was asked."""
        visits = 0

        def visit(at: Tensor) -> Tensor:
            nonlocal visits
            visits += 1
            return self._finite_gradients(int(broadcast.round), self.gradients(broadcast, ids, at))

        w, lr, messages = broadcast.w0, broadcast.lr, dict(broadcast.messages)
        for p in self.method.filling("consult"):
            messages[p.name] = messages.get(p.name, {}) | p.consult(w, lr, self.config.passes, visit)
        return broadcast._replace(messages=messages), visits

    def _finite_gradients(self, t: int, rows: Tensor) -> Tensor:
        """Leave out the gradients that are not finite."""
        good = finite_rows({}, rows)
        if not bool(good.any()):
            raise Diverged(f"round {t}: no client's gradient is finite; lower --lr, or add --clip")
        if bool(good.all()):
            return rows
        log.warning("round %d: %d of %d gradients are not finite and were left out", t, int((~good).sum()), len(rows))
        return rows[good]

    def _drift(self, r: Round) -> dict[str, float]:
        """Measure how far the clients drifted apart, if the run asks for it."""
        if not (self.config.drift and self.config.evaluates(r.round) and len(r.ids)):
            return {}
        view = replace(r, net=self.served_net)  # all models with the same running statistics
        return measure(view, self.server.served(), self.class_counts(r.ids), self.federation)

    def _epsilon(self, t: int) -> float | None:
        """Return what the models of all rounds so far reveal, in evaluated rounds under differential privacy."""
        reveals = self.privacy.epsilon(t) if self.privacy is not None and self.config.evaluates(t) else math.inf
        return reveals if math.isfinite(reveals) else None

    def _trip(self, number: int, trip: Trip, r: Round, uploads: Tensors) -> tuple[Round, int, int]:
        """Train some clients again from their local models; their new deltas replace the old ones."""
        view = r.own(uploads)
        rows = trip.who(view)
        if len(rows) == 0:
            return r, 0, 0
        message = {trip.sum[0].name: trip.message(view)}
        state = {trip.sum[0].name: trip.state(view, rows)}
        broadcast = self.broadcast(r.round, message)
        update = self.train_again(number, broadcast, r.ids[rows].cpu().numpy(), state, r.deltas[rows])
        good = finite_rows(update.uploads, update.deltas)
        places = torch.searchsorted(r.ids, update.ids[good])
        deltas = r.deltas.clone()
        deltas[places] = update.deltas[good]
        sent = len(rows) * nbytes(message) + nbytes(state)
        received = update.deltas.numel() * deltas.element_size() + nbytes(update.uploads)
        return replace(r, deltas=deltas), sent, received

    def _survey(self, r: Round) -> tuple[int, int]:
        """Ask every client what parts want to know about the served model, in rounds where that is due."""
        due = [p for p in self.method.filling("survey") if p.due(r.round, r.rounds)]
        if not due:
            return 0, 0
        served = self.server.served()
        broadcast = Broadcast(served, r.lr, torch.tensor(r.round, device=served.device), {}, self.server.stats)
        sums: PerPart = {}
        sent = received = 0
        for asked, found in self.survey(broadcast, due):
            received += nbytes(found)
            sent += asked * (served.numel() * served.element_size() + nbytes({"": broadcast.stats}))
            for part in due:
                rows = self._possible(r.round, part, found[part.name])
                if rows:
                    total = {name: t.sum(0) for name, t in rows.items()}
                    sums[part.name] = tree_map(torch.add, sums[part.name], total) if part.name in sums else total
        self.server.digest(replace(r, w=served), sums)
        return sent, received

    def _possible(self, t: int, part: Part, rows: Tensors) -> Tensors:
        """Leave out clients whose measurements in a survey are not finite or not possible; empty if nobody is left."""
        first = next(iter(rows.values()))
        good = finite_rows({part.name: rows}, first.reshape(len(first), -1)) & part.possible(rows)
        if bool(good.all()):
            return rows
        log.warning(
            "round %d: %s leaves out %d of %d clients, whose measurements are not finite or not possible",
            t, part.name, int((~good).sum()), len(good),
        )  # fmt: skip
        return {name: tensor[good] for name, tensor in rows.items()} if bool(good.any()) else {}


def left_out(ids: Tensor, admitted: Tensor) -> list[int]:
    """Return the clients of a cohort that were not admitted."""
    missing: list[int] = ids[~torch.isin(ids, admitted)].tolist()
    return missing


def mean_loss(n: Tensor, loss: Tensor) -> Tensor:
    """Return the clients' mean loss, weighted by their samples; losses that are not finite count only if all are."""
    good = torch.isfinite(loss)
    if bool(good.any()):
        n, loss = n[good], loss[good]
    return (n * loss).sum() / n.sum()

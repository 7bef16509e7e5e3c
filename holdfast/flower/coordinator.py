"""The server of a deployment: it plays rounds whose clients are on other machines.

The rounds and the run folder are those of a simulation. Clients that fail are left out or asked again, as the settings
say, and the mean is over the updates that were returned. A client's state counts as of the round in which the server
last accepted its update, and the server says so with every request: nothing is lost or counted twice when a reply is
late.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from flwr.serverapp import Grid
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.errors import HoldfastError
from holdfast.core.gaussian_noise import from_system
from holdfast.core.tensors import PerPart, Tensors, flatten, stack, unflatten
from holdfast.data.prepare import channelled
from holdfast.data.scales import INPUTS, Scales, known_scales, missing_scales, with_scales
from holdfast.engines.cohort import CohortUpdate
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import ArraySpec, Spec, pack, spec_of
from holdfast.flower.messages import GRADIENTS, PERSONAL, SCORE, SUMS, SURVEY, TRAIN, TRAIN_AGAIN
from holdfast.flower.model_arrays import model_tensors
from holdfast.flower.node_data import SPLIT_BY_NODES
from holdfast.flower.registry import NodeRegistry
from holdfast.flower.reply_checks import Check, ClientReply, refuse_impossible
from holdfast.flower.request_sender import CohortRequest, RequestSender
from holdfast.flower.score_arrays import (
    own_score_spec,
    own_scores_of,
    possible_scores,
    refuse_impossible_score,
    score_of,
    score_spec,
)
from holdfast.flower.secure_messages import CENTRE, MASKED, MASKED_MOMENTS
from holdfast.flower.secure_sum import SecureSum
from holdfast.flower.settings import DeploymentSettings
from holdfast.flower.sum_arrays import (
    SCALES,
    combined_scales,
    refuse_impossible_sums,
    scales_of_moments,
    scales_record,
    sum_spec,
)
from holdfast.flower.transport import Transport
from holdfast.flower.upload_shapes import UploadShapes
from holdfast.method.config import Config
from holdfast.method.part import Part
from holdfast.runs.checkpoint import COORDINATOR
from holdfast.runs.setup import RunSetup
from holdfast.training.client_sampling import draw
from holdfast.training.client_scores import ClientScores
from holdfast.training.client_states import ClientStates
from holdfast.training.evaluation import Score
from holdfast.training.personal import PersonalScores, after_the_run
from holdfast.training.round import Trainer
from holdfast.training.round_record import RoundRecord

log = logging.getLogger("holdfast")
Ask = Callable[[CohortRequest, list[int], int], dict[int, ClientReply]]  # as RequestSender.request
SURVEYED = 16  # clients summed at a time, as in simulation


class StateRounds(ClientStates):
    """The round that each client's state is from: the states themselves stay on the nodes."""

    def initial(self, w: Tensor) -> PerPart:
        return {COORDINATOR: {"round": torch.tensor(0)}} if self.stateful else {}

    def round_of(self, client: int) -> int:
        """Return the round whose state counts at a client; 0 if it has none yet."""
        row = self.rows.get(client)
        return int(row[COORDINATOR]["round"]) if row else 0


class Coordinator(Trainer):
    """The server of a run on Flower. It sees test and public data, and no client's samples."""

    clients: StateRounds

    def __init__(self, setup: RunSetup, grid: Grid, settings: DeploymentSettings, secret: bool = False) -> None:
        """Prepare the rounds.

        Args:
            setup: The run.
            grid: Flower's access to the nodes.
            settings: How to deal with nodes that fail.
            secret: Whether what protects clients must not follow from the seed, which the nodes know.
        """
        config, method, net = setup.config, setup.method, setup.net
        settings.check(config)
        self.own_data = setup.federation.split == SPLIT_BY_NODES
        if self.own_data and net.kept_at_clients() and setup.federation.client_test is None:
            raise HoldfastError(
                "with batchnorm local every client's model is scored on its own test samples where nodes bring their "
                "own data: add --client-eval"
            )
        if settings.secure and self.own_data and setup.federation.validation is not None:
            raise HoldfastError(
                "--secure: validation scores of the nodes' own data are of single clients: leave out --validation"
            )
        federation = setup.federation.only((), server=True)
        super().__init__(config, method, federation, net, setup.metric)
        self.engine_name, self.engine_reason = "flower", "Flower's nodes train the clients"
        self.secret = secret and self.privacy is not None
        if self.secret:
            self.noise = from_system
            refuse_repeated_rounds(config)
        self.settings, self.transport = settings, Transport(grid, settings.timeout)
        self.clients, self.occupied = StateRounds(method, net), np.arange(federation.clients)
        self.upload_shapes = UploadShapes(config, method, federation, net)
        own = {"run": torch.tensor(secrets.randbits(63))}
        self.server.states[COORDINATOR] = own | ({"secure": torch.tensor(1)} if settings.secure else {})
        self.started = 0.0  # when the round started
        self._sender: RequestSender | None = None
        self.unscaled = federation
        self.scales = known_scales(federation.data) if self.own_data else Scales()
        self._checkpointed: dict[int, int] = {}  # the round of each client's state in the last checkpoint
        self._trip_of: dict[int, int] = {}  # which trip's delta counts, for each client of the round
        self._lost_states: set[int] = set()

    def draw(self, t: int) -> np.ndarray:
        if not self.secret:
            return super().draw(t)
        return draw(
            self.config, self.drawable(), t, again=False, generator=np.random.default_rng(secrets.randbits(128))
        )

    def drawable(self) -> np.ndarray:
        self.started = time.perf_counter()
        self.occupied = self.sender.registry.occupied
        return self.occupied

    @property
    def sender(self) -> RequestSender:
        """What sends requests to the nodes. The first use waits for them: only then is the run's id known."""
        if self._sender is None:
            started = time.perf_counter()
            registry = NodeRegistry(self.transport, self.run_id, self.unscaled, self.settings.owner_of())
            registry.wait_for_nodes(self.settings)
            self._sender = RequestSender(self.run_id, registry, self.transport, self.settings)
            if self.scales != Scales():
                self._sender.always = {SCALES: scales_record(self.scales)}
            self.transport.waited = time.perf_counter() - started
        return self._sender

    @cached_property
    def secure_sum(self) -> SecureSum | None:
        """What asks the clients of a round under secure aggregation."""
        if not self.settings.secure:
            return None
        return SecureSum(self.sender, self.method, lambda n: self.server.weights(torch.tensor(n)).tolist())

    def _upload_bytes(self, update: CohortUpdate) -> int:
        return super()._upload_bytes(update) if self.secure_sum is None else self.secure_sum.vector_bytes

    @property
    def run_id(self) -> str:
        """The id under which nodes keep their states; it was chosen when the run was first started."""
        return f"{int(self.server.states[COORDINATOR]['run']):016x}"

    # -- what a round asks for -------------------------------------------------------------------------------
    def train(self, broadcast: Broadcast, ids: np.ndarray) -> CohortUpdate:
        self._trip_of, clients = {}, ids.tolist()
        for i in clients:
            if i not in self.clients.changed:
                self._checkpointed[i] = self.clients.round_of(i)
        encoder = self.encoder(self.upload_shapes.train(broadcast))
        request = CohortRequest(
            TRAIN if self.secure_sum is None else MASKED,
            broadcast,
            {"model": pack(model_tensors(self.net, broadcast)), "messages": pack(flatten(broadcast.messages))},
            spec_of(encoder.template | {"loss": broadcast.lr}),
            {i: self.clients.round_of(i) for i in clients},
            self._checkpointed,
            check=partial(refuse_impossible, self.method, self.net),
            decode=lambda tensors: encoder.read(tensors) | {"loss": tensors["loss"]},
        )
        ask = self.sender.request if self.secure_sum is None else self.secure_sum.request
        replies = ask(request, clients, min(self.settings.min_clients, len(clients)))
        self._lost_states |= {i for i, reply in replies.items() if reply.lost_state}
        return self._update(int(broadcast.round), replies)

    def nobody(self, broadcast: Broadcast) -> CohortUpdate:
        uploads = tree_map(lambda t: t.new_zeros(0, *t.shape), self.upload_shapes.train(broadcast))
        return replace(self._update(int(broadcast.round), {}), uploads=uploads)

    def train_again(
        self, number: int, broadcast: Broadcast, ids: np.ndarray, state: PerPart, deltas: Tensor
    ) -> CohortUpdate:
        flat, clients = flatten(state), ids.tolist()
        request = CohortRequest(
            TRAIN_AGAIN,
            broadcast,
            {"messages": pack(flatten(broadcast.messages))},
            self._update_spec(broadcast, self.upload_shapes.train_again(number, broadcast, state)),
            self._trip_of,
            self._checkpointed,
            number,
            {i: {f"{i}/{name}": rows[at] for name, rows in flat.items()} for at, i in enumerate(clients)},
        )
        replies = self.sender.request(request, clients, 0)
        for i, reply in replies.items():
            if all(bool(torch.isfinite(t).all()) for t in reply.tensors.values()):
                self._trip_of[i] = number
        return self._update(int(broadcast.round), replies)

    def gradients(self, broadcast: Broadcast, ids: np.ndarray, at: Tensor) -> Tensor:
        request = CohortRequest(
            GRADIENTS, broadcast, {"model": pack(model_tensors(self.net, broadcast, at))}, spec_of({"gradient": at})
        )
        replies = self.sender.request(request, ids.tolist(), 1)
        return torch.stack([reply.tensors["gradient"].to(at.device) for reply in replies.values()])

    def survey(self, broadcast: Broadcast, parts: Sequence[Part]) -> Iterator[tuple[int, PerPart]]:
        expected = spec_of(flatten(self.upload_shapes.survey(broadcast, parts)))
        names = tuple(p.name for p in parts)
        request = CohortRequest(
            SURVEY, broadcast, {"model": pack(model_tensors(self.net, broadcast))}, expected, parts=names
        )
        clients = self.sender.registry.occupied.tolist()
        replies = list(self.sender.request(request, clients, 1).values())
        for start in range(0, len(replies), SURVEYED):
            rows = [unflatten(reply.tensors) for reply in replies[start : start + SURVEYED]]
            yield len(rows), stack(rows)

    def settle(self) -> None:
        """Scale the nodes' own data: by sums of their samples unless the scales are known already."""
        wanted = missing_scales(self.federation)
        if not self.own_data or not wanted:
            return
        x, y = channelled(self.federation.data.test_x), self.federation.data.test_y
        sizes = {what: (x if what == INPUTS else y).shape[1] for what in wanted}
        found = self._scales(sizes) if self.secure_sum is None else self._scales_of_sums(sizes, self.secure_sum)
        self.scales = Scales(*(new or old for new, old in zip(found, self.scales, strict=True)))
        self.federation = with_scales(self.unscaled, self.scales)
        self.sender.always = {SCALES: scales_record(self.scales)}

    def _scales(self, sizes: dict[str, int]) -> Scales:
        """Return the scales from sums of every client's samples; ``sizes`` has the channels of what is wanted."""
        wanted = tuple(sizes)
        request = CohortRequest(
            SUMS, self.broadcast(1, {}), {}, sum_spec(sizes), parts=wanted, check=refuse_impossible_sums
        )
        replies = self._ask(request, self.sender.request, "are not in the statistics")
        return combined_scales((reply.tensors for reply in replies.values()), wanted)

    def _scales_of_sums(self, sizes: dict[str, int], secure_sum: SecureSum) -> Scales:
        """Return the scales from secure sums: of the samples, and then of the squared differences to their mean."""
        spec = {what: ArraySpec(torch.float64, (size,)) for what, size in sizes.items()}

        def moments(centre: Tensors) -> Tensors:
            request = CohortRequest(
                MASKED_MOMENTS, self.broadcast(1, {}), {CENTRE: pack(centre)}, spec, parts=tuple(sizes)
            )
            replies = self._ask(request, secure_sum.request, "are not in the statistics")
            return next(iter(replies.values())).tensors

        mean = moments({})
        return scales_of_moments(mean, moments(mean))

    def client_scores(self) -> Iterator[Score]:
        expected = score_spec(self.net.classes)
        for reply in self._scores("", expected, refuse_impossible_score).values():
            yield score_of(reply.tensors)

    def scores_at_clients(self, purpose: str) -> ClientScores:
        replies = self._scores(purpose, own_score_spec(self.metrics), possible_scores(self.metrics))
        return own_scores_of({i: reply.tensors for i, reply in replies.items()}, self.metrics)

    def personal_scores(self) -> PersonalScores:
        """Return the scores of copies on the clients' own test samples: the server does not know their class mixes."""
        metrics = [self.metric]
        request = self._at_clients(PERSONAL, after_the_run(self), own_score_spec(metrics), possible_scores(metrics))
        replies = self._ask(request, self.sender.request, "have no fine-tuned copy")
        found = own_scores_of({i: reply.tensors for i, reply in replies.items()}, metrics)
        return PersonalScores({}, dict(zip(found.ids, found.values[self.metric.name], strict=True)))

    def clients_validate(self) -> bool:
        return self.own_data or bool(self.net.kept_at_clients())

    def _scores(self, purpose: str, expected: Spec, check: Check) -> dict[int, ClientReply]:
        """Ask every client to score the served model."""
        broadcast = self.broadcast(1, {})._replace(w0=self.server.served())
        request = self._at_clients(SCORE, broadcast, expected, check, purpose)
        return self._ask(request, self.sender.request, "have no score")

    def _at_clients(
        self, kind: str, broadcast: Broadcast, expected: Spec, check: Check, purpose: str = ""
    ) -> CohortRequest:
        """Return a request about the served model as every client has it, with the layers that it keeps."""
        model = {"model": pack(model_tensors(self.net, broadcast))}
        use = {i: self.clients.round_of(i) for i in self.sender.registry.occupied.tolist()}
        return CohortRequest(kind, broadcast, model, expected, use, purpose=purpose, check=check)

    def _ask(self, request: CohortRequest, ask: Ask, failed: str) -> dict[int, ClientReply]:
        """Ask every client, and warn of those that failed; that is not recorded with a round.

        Args:
            request: What they are asked for.
            ask: Sends the request.
            failed: What is missing of clients that failed.

        Returns:
            The replies by client.
        """
        clients = self.sender.registry.occupied.tolist()
        replies = ask(request, clients, 1)
        if self.sender.failures:
            log.warning(
                "%d of %d clients %s: %s", len(self.sender.failures), len(clients), failed, self.sender.reasons()
            )
        self._forget()
        return replies

    def annotate(self, record: RoundRecord) -> RoundRecord:
        sender, waited, lost = self.sender, self.transport.waited, sorted(self._lost_states)
        overhead = sender.overhead + time.perf_counter() - self.started - waited
        record = replace(record, failed=sender.failures, reset=lost, waiting=waited, overhead=overhead)
        names = tuple(map(sender.registry.name_of, range(self.federation.clients))) if sender.registry.names else ()
        if names != self.federation.client_names:  # nodes have named their clients
            self.federation = replace(self.federation, client_names=names)
        self._forget()
        return record

    def _forget(self) -> None:
        """Empty what a round records about its requests, so that the next one records its own alone."""
        self.sender.failures, self.sender.overhead, self.transport.waited, self._lost_states = {}, 0.0, 0.0, set()

    def _update(self, round: int, replies: dict[int, ClientReply]) -> CohortUpdate:
        """Join the clients' replies, in the order in which the clients were asked."""
        device, w = self.net.device, self.net.initial
        rows = [tree_map(lambda t: t.to(device), r.tensors) for r in replies.values()]
        uploads = [unflatten({k.partition("/")[2]: t for k, t in row.items() if "/" in k}) for row in rows]

        def integers(values: Iterable[int]) -> Tensor:
            return torch.tensor(list(values), dtype=torch.int64, device=device)

        return CohortUpdate(
            ids=integers(replies),
            n=integers(r.n for r in replies.values()),
            K=integers(r.K for r in replies.values()),
            deltas=torch.stack([self._delta(row["delta"]) for row in rows]) if rows else w.new_zeros(0, len(w)),
            uploads=stack(uploads),
            states={COORDINATOR: {"round": integers([round] * len(rows)).cpu()}},
            loss=torch.stack([row["loss"] for row in rows]) if rows else w.new_zeros(0),
        )

    def _delta(self, shared: Tensor) -> Tensor:
        return self.net.whole(shared, torch.zeros_like(self.net.initial))

    def _update_spec(self, broadcast: Broadcast, uploads: PerPart) -> Spec:
        """Return what every client must send after training."""
        tensors: Tensors = {f"uploads/{name}": t for name, t in flatten(uploads).items()}
        return spec_of({"delta": self.net.shared(broadcast.w0), "loss": broadcast.lr} | tensors)


def refuse_repeated_rounds(config: Config) -> None:
    """Refuse checkpoints after which rounds could be played twice: both times would count."""
    if config.checkpoint_every > 1:
        raise HoldfastError(
            "dp needs a checkpoint after every round of a deployment, since a round that is played again reveals more: "
            "leave out --checkpoint-every"
        )

"""A node of a deployment: it trains its own clients, on data that only it has.

A node is a simulation of its own clients. It trains them one after the other with the loop engine, as it is asked to,
and replies with deltas and uploads. Samples, labels, activations and the parts' states stay on the node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.gaussian_noise import from_system
from holdfast.core.tensors import PerPart, Tensors, flatten, unflatten
from holdfast.data.scales import INPUTS, TARGETS, Scales, sums_of, with_scales
from holdfast.engines.cohort import CohortUpdate
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import Refused, pack, unpack, unpack_any
from holdfast.flower.messages import Enrolment, NodeReply, NodeRequest, arrays_of, make_reply, one_line, read_message
from holdfast.flower.model_arrays import model_spec, shared_stats
from holdfast.flower.node_states import NodeStates
from holdfast.flower.score_arrays import own_score_tensors, score_tensors
from holdfast.flower.sum_arrays import SCALES, moment, read_scales, sum_tensors
from holdfast.method.encoding import Encoder
from holdfast.models.batchnorm import STATISTICS
from holdfast.runs.setup import RunSetup
from holdfast.training.personal import CopyTraining, score_copy, tuning
from holdfast.training.simulation import Simulation

T = TypeVar("T")
PUBLIC = "public"  # the record of public data, in messages and in a node's context
LOCAL_MODELS = "stand"  # the records of local models in a node's context, for further trips of a round


class ClientResult(NamedTuple):
    """What one client did for a request."""

    arrays: Tensors  # under names that start with the client's number
    n: int
    K: int
    lost_state: bool = False


OneClient = Callable[[int, int, int], ClientResult]  # (client, use, keep), as in NodeRequest
Finished = tuple[dict[int, ClientResult], list[str]]  # by client, and "client: what happened" of those that failed
R = TypeVar("R", bound=NodeRequest)


class Node:
    """Some clients of a federation.

    Attributes:
        clients: The clients of the node.
        federation: What the node sees: the samples of its clients and no others, scaled as the server says.
        read: The same, as the samples were read.
        scales: What they are scaled by.
        data_ready: When its data had been read.
        started: When the current request arrived.
    """

    def __init__(self, setup: RunSetup, clients: list[int], states: Path | None, data_ready: float = 0.0) -> None:
        """Make a node.

        Args:
            setup: The run, with the samples of the node's clients alone.
            clients: The clients of the node.
            states: The folder for the parts' states on the node's disk, or None.
            data_ready: When the node's data had been read, for the measurement of overhead.
        """
        self.config, self.method, self.net = setup.config, setup.method, setup.net
        self.federation, self.clients, self.folder = setup.federation, clients, states
        self.read, self.scales = setup.federation, Scales()  # the samples as they were read
        self.data_ready, self.started, self.metric = data_ready, 0.0, setup.metric
        self.secret = False  # whether noise that protects clients must not follow from the seed, which the server knows
        self.secure = False  # whether it sends nothing but masked sums over its clients
        self.longest: float | None = None  # norm of a client's update that enters such a sum
        self._training = 0.0  # seconds of the current request spent on training

    # -- the requests ------------------------------------------------------------------------------------------
    def enrol(self, message: Message, context: Context) -> Message:
        """Report which clients are here, and keep the public data that the server sends."""
        request = read_message(NodeRequest, message, {PUBLIC})
        context.state[PUBLIC] = arrays_of(message, PUBLIC)
        n, shape = [self._n(i) for i in self.clients], list(self.federation.shape)
        names = [self.federation.name_of(i) for i in self.clients] if self.federation.client_names else []
        outputs, task = self.federation.classes, str(self.federation.data.task.name)
        return make_reply(message, Enrolment(request.ticket, self.clients, names, n, shape, outputs, task))

    def train(self, message: Message, context: Context) -> Message:
        """Train clients from the server's model."""
        request = self.request(message, {"model", "messages"})
        results, errors = self.train_clients(request, message, context)
        return self.reply(request, message, results, errors)

    def train_clients(self, request: NodeRequest, message: Message, context: Context) -> Finished:
        """Train clients from the server's model.

        Args:
            request: The fields of the message.
            message: The message, which has the model.
            context: The node's own context.

        Returns:
            What the clients would upload, and why others have nothing.
        """
        broadcast = self._broadcast(request, *self._model(message), self._messages(message))
        simulation, states = self._simulation(context, broadcast), NodeStates(context.state, request.run, self.folder)
        stateful = bool(simulation.clients.stateful)
        models = self._local_models(context, request.round) or {}  # of other clients, if the node is asked again
        models |= {"w": broadcast.w0} | broadcast.stats

        def train_client(client: int, use: int, keep: int) -> ClientResult:
            states.keep_only(client, {use, keep})
            restored = self._restore(simulation, states, client, use if stateful else 0)
            update = self._timed(lambda: simulation.train(broadcast, np.array([client])))
            if stateful:
                states.save(client, request.round, tree_map(lambda t: t[0], update.states))
            models[f"{client}-0"] = update.deltas[0]
            encoder = simulation.encoder(tree_map(lambda t: t[0], update.uploads))
            return self._result(client, update, encoder, bool(use) and stateful and not restored)

        found = self._for_each(request, train_client)
        if simulation.trips:
            context.state[f"{LOCAL_MODELS}-{request.round}"] = pack(models)
            others = [n for n in context.state if n.startswith(LOCAL_MODELS) and n != f"{LOCAL_MODELS}-{request.round}"]
            for name in others:
                del context.state[name]
        return found

    def train_again(self, message: Message, context: Context) -> Message:
        """Make a further trip of the round with clients, from their local models."""
        request = self.request(message, {"messages", "state"})
        models = self._local_models(context, request.round)
        if models is None:
            raise Refused(f"the clients of this node did not train in round {request.round}: the node joined later")
        stats = {name: models[name] for name in shared_stats(self.net)}
        broadcast = self._broadcast(request, models["w"], stats, self._messages(message))
        states = unpack_any(arrays_of(message, "state"), "the clients' message")
        simulation = self._simulation(context, broadcast)

        def train_client(client: int, use: int, keep: int) -> ClientResult:
            if f"{client}-{use}" not in models:
                raise Refused(f"client {self.federation.name_of(client)} did not make trip {use}")
            delta = models[f"{client}-{use}"].to(self.net.device)
            rows = {name.partition("/")[2]: t[None] for name, t in states.items() if name.startswith(f"{client}/")}
            state, ids = tree_map(lambda t: t.to(self.net.device), unflatten(rows)), np.array([client])
            update = self._timed(lambda: simulation.train_again(request.trip, broadcast, ids, state, delta[None]))
            models[f"{client}-{request.trip}"] = update.deltas[0]
            return self._result(client, update)

        found = self._for_each(request, train_client)
        context.state[f"{LOCAL_MODELS}-{request.round}"] = pack(models)
        return self.reply(request, message, *found)

    def gradients(self, message: Message, context: Context) -> Message:
        """Compute clients' full gradients at a model."""
        request = self.request(message, {"model"})
        broadcast = self._broadcast(request, *self._model(message), {})
        simulation = self._simulation(context, broadcast)

        def gradient(client: int, use: int, keep: int) -> ClientResult:
            rows = self._timed(lambda: simulation.gradients(broadcast, np.array([client]), broadcast.w0))
            return ClientResult({f"{client}/gradient": rows[0]}, self._n(client), 1)

        return self.reply(request, message, *self._for_each(request, gradient))

    def survey(self, message: Message, context: Context) -> Message:
        """Let parts measure the served model on clients' data."""
        request = self.request(message, {"model"})
        broadcast = self._broadcast(request, *self._model(message), {})
        simulation = self._simulation(context, broadcast)
        parts = [p for p in self.method.filling("survey") if p.name in request.parts]

        def survey_client(client: int, use: int, keep: int) -> ClientResult:
            info, engine = simulation.client_info(np.array([client])), simulation.engines[0]
            rows = self._timed(lambda: engine.survey(broadcast, info, parts))
            return ClientResult({f"{client}/{k}": t[0] for k, t in flatten(rows).items()}, self._n(client), 1)

        return self.reply(request, message, *self._for_each(request, survey_client))

    def score(self, message: Message, context: Context) -> Message:
        """Score clients' models: on what they hold out, or by their class mix on the test data."""
        request = self.request(message, {"model"})
        broadcast = self._broadcast(request, *self._model(message), {})
        simulation, states = self._simulation(context, broadcast), NodeStates(context.state, request.run, self.folder)
        held = self.federation.held(request.purpose) if request.purpose else None
        if request.purpose and held is None:
            raise Refused(f"the clients of this node hold out nothing for {one_line(request.purpose)}")

        def tensors(client: int) -> Tensors:
            if held is None:
                return score_tensors(simulation.client_score(client, broadcast.w0))
            return own_score_tensors(simulation.score_at_client(client, broadcast.w0, held), simulation.metrics)

        def score_client(client: int, use: int, keep: int) -> ClientResult:
            self._restore(simulation, states, client, use)
            found = self._timed(lambda: tensors(client))
            return ClientResult({f"{client}/{name}": t for name, t in found.items()}, self._n(client), 1)

        return self.reply(request, message, *self._for_each(request, score_client))

    def personal(self, message: Message, context: Context) -> Message:
        """Fine-tune clients' own copies of the served model, and score them on the clients' own test samples."""
        request = self.request(message, {"model"})
        broadcast = self._broadcast(request, *self._model(message), {})
        simulation, states = self._simulation(context, broadcast), NodeStates(context.state, request.run, self.folder)
        if not self.config.personal or self.federation.client_test is None:
            raise Refused("the clients of this node have no fine-tuned copies to score")
        train = CopyTraining(simulation, tuning(self.config, self.method))

        def score_client(client: int, use: int, keep: int) -> ClientResult:
            self._restore(simulation, states, client, use)
            scores = self._timed(lambda: score_copy(simulation, train, broadcast, client))
            found = own_score_tensors(scores, [simulation.metric])
            return ClientResult({f"{client}/{name}": t for name, t in found.items()}, self._n(client), 1)

        return self.reply(request, message, *self._for_each(request, score_client))

    def sums(self, message: Message, context: Context) -> Message:
        """Sum up clients' inputs or targets, from which the server computes their mean and standard deviation."""
        request, data = self.request(message, set()), self.read.data
        if not set(request.parts) <= {INPUTS, TARGETS}:
            raise Refused("only inputs and targets can be summed up")

        def sum_up(client: int, use: int, keep: int) -> ClientResult:
            rows = torch.from_numpy(self.read.deal.client(client)).to(self.net.device)
            found = [sum_tensors(self._timed(partial(sums_of, data, rows, what)), what) for what in request.parts]
            return ClientResult({f"{client}/{k}": t for one in found for k, t in one.items()}, self._n(client), 1)

        return self.reply(request, message, *self._for_each(request, sum_up))

    def moments(self, request: NodeRequest, centre: Tensors) -> Finished:
        """Return the first or second moments of clients' inputs or targets.

        Args:
            request: What they are of: inputs, targets.
            centre: What the moments are taken around; empty: the first moments around zero are wanted.

        Returns:
            The moments.
        """
        data = self.read.data

        def measure(client: int, use: int, keep: int) -> ClientResult:
            rows = torch.from_numpy(self.read.deal.client(client)).to(self.net.device)
            found = {what: moment(sums_of(data, rows, what), centre.get(what)) for what in request.parts}
            return ClientResult({f"{client}/{what}": t for what, t in found.items()}, self._n(client), 1)

        return self._for_each(request, measure)

    # -- what they share ---------------------------------------------------------------------------------------
    def request(self, message: Message, arrays: set[str]) -> NodeRequest:
        """Read a request for what clients send one by one."""
        if self.secure:
            raise Refused("this node sends sums over several nodes alone (secure), and the server asks for its clients")
        return self.read_request(NodeRequest, message, arrays)

    def read_request(self, kind: type[R], message: Message, arrays: set[str]) -> R:
        """Read a request; the samples are scaled as it says.

        Args:
            kind: Its fields.
            message: The message.
            arrays: The records of arrays that it must have.

        Returns:
            The fields.
        """
        carried = {SCALES} & set(message.content if message.has_content() else ())
        request = read_message(kind, message, arrays | carried)
        scales = read_scales(arrays_of(message, SCALES)) if carried else Scales()
        if scales != self.scales:
            self.federation, self.scales = with_scales(self.read, scales), scales
        return request

    def _simulation(self, context: Context, broadcast: Broadcast) -> Simulation:
        """Return a simulation of this node's clients that starts from the server's model."""
        record, federation = context.state.get(PUBLIC), self.federation
        if isinstance(record, ArrayRecord) and record:
            public = unpack_any(record, "the public data")
            y = federation.data.task.scaled(public["y"]) if self.scales.target_mean else public["y"]
            federation = federation.with_public(public["x"].to(self.net.device), y.to(self.net.device))
        simulation = Simulation(self.config, self.method, federation, self.net, self.metric)
        simulation.server.w, simulation.prefetcher = broadcast.w0, None  # the server draws the cohort
        simulation.engines[0].training.noise = from_system if self.secret else None
        if broadcast.stats:
            simulation.server.states[STATISTICS] = broadcast.stats
        return simulation

    def _restore(self, simulation: Simulation, states: NodeStates, client: int, use: int) -> bool:
        """Give a client the state of round ``use`` back; return whether there is one. 0: it starts without a state."""
        state = states.load(client, use) if use else None
        if state is not None:
            simulation.clients.rows[client] = tree_map(lambda t: t.to(self.net.device), state)
        return state is not None

    def _model(self, message: Message) -> tuple[Tensor, Tensors]:
        """Return the model that was sent, and its running statistics."""
        found = unpack(arrays_of(message, "model"), model_spec(self.net), "the model")
        return self.net.whole(found.pop("w").to(self.net.device), self.net.initial), found

    def _messages(self, message: Message) -> PerPart:
        return unflatten(unpack_any(arrays_of(message, "messages"), "the message"))

    def _broadcast(self, request: NodeRequest, w: Tensor, stats: Tensors, messages: PerPart) -> Broadcast:
        w, device = w.to(self.net.device), self.net.device
        lr = torch.tensor(request.lr, dtype=w.dtype, device=w.device)
        round = torch.tensor(request.round, device=w.device)
        messages, stats = tree_map(lambda t: t.to(device), (messages, stats))
        return Broadcast(w, lr, round, messages, stats)

    def _local_models(self, context: Context, round: int) -> Tensors | None:
        """Return the global model of a round and the clients' deltas after each trip, or None if there are none."""
        record = context.state.get(f"{LOCAL_MODELS}-{round}")
        return unpack_any(record, "the local models") if isinstance(record, ArrayRecord) else None

    def _result(
        self, client: int, update: CohortUpdate, encoder: Encoder | None = None, lost_state: bool = False
    ) -> ClientResult:
        """Return the result of a client that trained alone, as ``encoder`` writes it."""
        tensors = {"delta": self.net.shared(update.deltas[0])}
        tensors |= {f"uploads/{name}": t[0] for name, t in flatten(update.uploads).items()}
        tensors = {"loss": update.loss[0]} | (tensors if encoder is None else encoder.write(tensors))
        arrays = {f"{client}/{name}": t for name, t in tensors.items()}
        return ClientResult(arrays, int(update.n[0]), int(update.K[0]), lost_state)

    def _timed(self, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = work()
        self._training += time.perf_counter() - started
        return result

    def _n(self, client: int) -> int:
        return int(self.federation.deal.sizes[client])

    def _for_each(self, request: NodeRequest, work: OneClient) -> Finished:
        """Do what is requested for one client after the other; one that fails does not affect the others."""
        results: dict[int, ClientResult] = {}
        errors: list[str] = []
        zeros = [0] * len(request.clients)
        for client, use, keep in zip(request.clients, request.use or zeros, request.keep or zeros, strict=True):
            try:
                if client not in self.clients:
                    raise Refused(f"client {self.federation.name_of(client)} is not on this node")
                results[client] = work(client, use, keep)
            except Exception as error:
                errors.append(f"{client}: {one_line(f'{type(error).__name__}: {error}')}")
        return results, errors

    def reply(
        self,
        request: NodeRequest,
        message: Message,
        results: Mapping[int, ClientResult],
        errors: list[str],
        arrays: Tensors | None = None,
    ) -> Message:
        """Make the reply to a request.

        Args:
            request: The fields of the message.
            message: The message.
            results: What clients did.
            errors: Why others did nothing.
            arrays: What the node sends in place of what its clients send.

        Returns:
            The reply.
        """
        every = {name: t for result in results.values() for name, t in result.arrays.items()}
        reply = NodeReply(
            ticket=request.ticket,
            round=request.round,
            trip=request.trip,
            clients=list(results),
            n=[r.n for r in results.values()],
            K=[r.K for r in results.values()],
            fresh=[i for i, r in results.items() if r.lost_state],
            errors=errors,
            seconds=time.perf_counter() - self.started,
            training=self._training,
        )
        self._training = 0.0
        return make_reply(message, reply, pack(every if arrays is None else arrays))

"""The clients' half: a node plays its own clients, from the data that only it has.

A node is a simulation of its clients alone. It trains what it is asked to, client after client with the loop engine,
and answers with deltas and uploads; samples, labels, activations and the parts' states stay here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, flatten, unflatten
from holdfast.data.federation import Federation
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import Refused, pack, spec, unpack, unpack_any
from holdfast.flower.messages import Answer, Enrolment, Question, arrays, letter, one_line, reply
from holdfast.flower.node_states import NodeStates
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Tensors
from holdfast.models.net import Net
from holdfast.training.simulation import Simulation

T = TypeVar("T")
PUBLIC, STAND = "public", "stand"  # what a node keeps in its context beside the parts' states


@dataclass
class NodeResults:
    """What the clients of a node have to say, one after the other."""

    arrays: Tensors
    clients: list[int]
    n: list[int]
    K: list[int]
    fresh: list[int]
    errors: list[str]


class Node:
    """Some clients of a federation; ``federation`` holds their samples and no others."""

    def __init__(
        self,
        config: Config,
        method: Method,
        net: Net,
        federation: Federation,
        clients: list[int],
        folder: Path | None,
        ready: float = 0.0,
    ) -> None:
        self.config, self.method, self.net, self.clients = config, method, net, clients
        self.federation, self.folder = federation, folder
        self.ready = ready  # when its data had been read
        self.begun, self.training = 0.0, 0.0  # when the message that is being answered came; seconds of training

    # -- the questions -----------------------------------------------------------------------------------------
    def enrol(self, message: Message, context: Context) -> Message:
        """Say which clients are here; keep the public data that the server hands out."""
        ask = letter(Question, message, {PUBLIC})
        context.state[PUBLIC] = arrays(message, PUBLIC)
        sizes = self.federation.deal.sizes
        n = [int(sizes[i]) for i in self.clients]
        shape = list(self.federation.shape)
        return reply(message, Enrolment(ask.ticket, self.clients, n, shape, self.federation.classes))

    def train(self, message: Message, context: Context) -> Message:
        """Local training from the model and the messages of the server."""
        ask = letter(Question, message, {"model", "messages"})
        broadcast = self._job(ask, message, unflatten(unpack_any(arrays(message, "messages"), "the message")))
        home, memory = self._home(context, broadcast), NodeStates(context.state, ask.run, self.folder)
        earlier = context.state.get(f"{STAND}-{ask.round}")  # of other clients, where this node is asked again
        stand = unpack_any(earlier, "where the clients stand") if isinstance(earlier, ArrayRecord) else {}
        stand["w"] = broadcast.w0

        def one(client: int, use: int, keep: int) -> tuple[Tensors, int, int, bool]:
            memory.keep(client, {use, keep})
            known = memory.recall(client, use) if use and home.clients.stateful else None
            if known is not None:
                home.clients.rows[client] = tree_map(lambda t: t.to(self.net.device), known)
            back = self._timed(lambda: home.train(broadcast, np.array([client])))
            if home.clients.stateful:
                memory.store(client, ask.round, tree_map(lambda t: t[0], back.states))
            stand[f"{client}-0"] = back.deltas[0]
            lost = bool(use) and known is None and bool(home.clients.stateful)
            return came_back(client, back.deltas, back.uploads, back.loss), int(back.n[0]), int(back.K[0]), lost

        answer = self._each(ask, message, one)
        if home.trips:
            context.state[f"{STAND}-{ask.round}"] = pack(stand)
            for name in [n for n in context.state if n.startswith(STAND) and n != f"{STAND}-{ask.round}"]:
                del context.state[name]
        return answer

    def again(self, message: Message, context: Context) -> Message:
        """A further trip of the round, from where the clients stand."""
        ask = letter(Question, message, {"messages", "state"})
        record = context.state.get(f"{STAND}-{ask.round}")
        if not isinstance(record, ArrayRecord):
            raise Refused(f"the clients of this node did not train in round {ask.round}: the node came later")
        stand = unpack_any(record, "where the clients stand")
        broadcast = self._told(ask, stand["w"], unflatten(unpack_any(arrays(message, "messages"), "the message")))
        states = unpack_any(arrays(message, "state"), "the clients' message")
        home = self._home(context, broadcast)

        def one(client: int, use: int, keep: int) -> tuple[Tensors, int, int, bool]:
            own = {name.partition("/")[2]: t[None] for name, t in states.items() if name.startswith(f"{client}/")}
            if f"{client}-{use}" not in stand:
                raise Refused(f"client {client} did not make trip {use}")
            here = stand[f"{client}-{use}"].to(self.net.device)
            state = tree_map(lambda t: t.to(self.net.device), unflatten(own))
            back = self._timed(lambda: home.train_again(ask.trip, broadcast, np.array([client]), state, here[None]))
            stand[f"{client}-{ask.trip}"] = back.deltas[0]
            return came_back(client, back.deltas, back.uploads, back.loss), int(back.n[0]), int(back.K[0]), False

        answer = self._each(ask, message, one)
        context.state[f"{STAND}-{ask.round}"] = pack(stand)
        return answer

    def gradients(self, message: Message, context: Context) -> Message:
        """The clients' full gradients at a model."""
        ask = letter(Question, message, {"model"})
        broadcast = self._job(ask, message, {})
        home = self._home(context, broadcast)

        def one(client: int, use: int, keep: int) -> tuple[Tensors, int, int, bool]:
            found = self._timed(lambda: home.gradients(broadcast, np.array([client]), broadcast.w0))
            return {f"{client}/gradient": found[0]}, self._n(client), 1, False

        return self._each(ask, message, one)

    def survey(self, message: Message, context: Context) -> Message:
        """What parts measure on the clients' data with the served model."""
        ask = letter(Question, message, {"model"})
        broadcast = self._job(ask, message, {})
        home, parts = self._home(context, broadcast), [p for p in self.method.filling("survey") if p.name in ask.parts]

        def one(client: int, use: int, keep: int) -> tuple[Tensors, int, int, bool]:
            found = self._timed(lambda: home.engines[0].survey(broadcast, home.client_info(np.array([client])), parts))
            return {f"{client}/{k}": t[0] for k, t in flatten(found).items()}, self._n(client), 1, False

        return self._each(ask, message, one)

    # -- what they share ---------------------------------------------------------------------------------------
    def _home(self, context: Context, broadcast: Broadcast) -> Simulation:
        """This node's clients as a simulation that starts from the server's model."""
        record, federation = context.state.get(PUBLIC), self.federation
        if isinstance(record, ArrayRecord) and record:
            public = unpack_any(record, "the public data")
            federation = federation.with_public(public["x"].to(self.net.device), public["y"].to(self.net.device))
        home = Simulation(self.config, self.method, federation, self.net)
        home.server.w, home.prefetcher = broadcast.w0, None  # the server draws the cohort
        return home

    def _job(self, ask: Question, message: Message, messages: PerPart) -> Broadcast:
        expected = spec({"w": self.net.initial})
        return self._told(ask, unpack(arrays(message, "model"), expected, "the model")["w"], messages)

    def _told(self, ask: Question, w: Tensor, messages: PerPart) -> Broadcast:
        w = w.to(self.net.device)
        round, lr = torch.tensor(ask.round, device=w.device), torch.tensor(ask.lr, dtype=w.dtype, device=w.device)
        return Broadcast(w, lr, round, tree_map(lambda t: t.to(w.device), messages))

    def _timed(self, work: Callable[[], T]) -> T:
        begun = time.perf_counter()
        result = work()
        self.training += time.perf_counter() - begun
        return result

    def _n(self, client: int) -> int:
        return int(self.federation.deal.sizes[client])

    def _each(
        self, ask: Question, message: Message, one: Callable[[int, int, int], tuple[Tensors, int, int, bool]]
    ) -> Message:
        """Every client that was asked for, in turn; one that fails does not take the others with it."""
        g = NodeResults({}, [], [], [], [], [])
        rest = len(ask.clients)
        for client, use, keep in zip(ask.clients, ask.use or [0] * rest, ask.keep or [0] * rest, strict=True):
            try:
                if client not in self.clients:
                    raise Refused(f"client {client} is not on this node")
                found, n, K, lost = one(client, use, keep)
            except Exception as error:
                g.errors.append(f"{client}: {one_line(f'{type(error).__name__}: {error}')}")
                continue
            g.arrays |= found
            g.clients, g.n, g.K = [*g.clients, client], [*g.n, n], [*g.K, K]
            g.fresh += [client] if lost else []
        packed, seconds = pack(g.arrays), time.perf_counter() - self.begun
        answer = Answer(ask.ticket, ask.round, ask.trip, g.clients, g.n, g.K, g.fresh, g.errors, seconds, self.training)
        self.training = 0.0
        return reply(message, answer, packed)


def came_back(client: int, deltas: Tensor, uploads: PerPart, loss: Tensor) -> Tensors:
    """One client's results under names of its own."""
    up = {f"{client}/uploads/{name}": t[0] for name, t in flatten(uploads).items()}
    return {f"{client}/delta": deltas[0], f"{client}/loss": loss[0]} | up

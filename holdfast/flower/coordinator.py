"""The server's half: rounds whose clients are on other machines.

The same rounds as in simulation, and the same run folder. Clients that fail are left out or asked again, as the terms
say; the mean is over those who came back. A client's state counts as of the round in which the server last took its
update, and the server tells it so: nothing is lost or counted twice when a reply is late.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, flatten, stack, unflatten
from holdfast.data.federation import Federation
from holdfast.engines.cohort import CohortUpdate
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import Refused, Spec, pack, spec
from holdfast.flower.messages import AGAIN, GRADIENTS, NUMBERS, SURVEY, TRAIN, Question, TooFew, numbers
from holdfast.flower.registry import NodeRegistry
from holdfast.flower.reply_checks import ClientReply, check
from holdfast.flower.settings import DeploymentSettings
from holdfast.flower.transport import Transport
from holdfast.flower.upload_shapes import UploadShapes
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.method.part import Part, Tensors
from holdfast.models.net import Net
from holdfast.training.client_states import ClientStates
from holdfast.training.round import Trainer
from holdfast.training.round_record import RoundRecord

OURS = "flower"  # the server's own state in a checkpoint, beside the parts'
SURVEYED = 16  # clients summed at once, as in simulation


class StateRounds(ClientStates):
    """Which round each client's state is from: the states themselves stay at the nodes."""

    def initial(self, w: Tensor) -> PerPart:
        return {OURS: {"round": torch.tensor(0)}} if self.stateful else {}


class Coordinator(Trainer):
    """The server of a run on Flower. ``federation`` holds test and public data, and no client's samples."""

    def __init__(
        self, config: Config, method: Method, federation: Federation, net: Net, grid: Grid, terms: DeploymentSettings
    ) -> None:
        terms.refuse(config)
        federation = federation.only((), server=True)
        super().__init__(config, method, federation, net)
        self.engine_name, self.engine_reason = "flower", "Flower's nodes train the clients"
        self.terms, self.post = terms, Transport(grid, terms.timeout)
        self.clients, self.occupied = StateRounds(method), np.arange(federation.clients)
        self.durable: dict[int, int] = {}  # the round of each client's state in the last checkpoint
        self.rehearsal = UploadShapes(config, method, federation, net)
        self.server.states[OURS] = {"run": torch.tensor(secrets.randbits(63))}
        self.grid = grid
        self.roll: NodeRegistry | None = None
        self.failures: dict[int, str] = {}
        self.lost: list[int] = []
        self.round, self.begun, self.nodes_overhead = 0, 0.0, 0.0
        self.trip_of: dict[int, int] = {}  # which trip's delta counts, for each client of the round

    def drawable(self) -> np.ndarray:
        self.begun = time.perf_counter()
        self.occupied = self.enrolled().occupied
        return self.occupied

    def enrolled(self) -> NodeRegistry:
        """The nodes; they are waited for when the first round begins, once it is known which run this is."""
        if self.roll is None:
            self.roll = NodeRegistry(self.grid, self.post, self.run, self.federation)
            begun = time.perf_counter()
            self.roll.gather(self.terms)
            self.post.waited = time.perf_counter() - begun
        return self.roll

    @property
    def run(self) -> str:
        """The name under which nodes keep their states: that of the run's first start."""
        return f"{int(self.server.states[OURS]['run']):016x}"

    # -- what a round asks for -------------------------------------------------------------------------------
    def train(self, broadcast: Broadcast, ids: np.ndarray) -> CohortUpdate:
        self.round, self.trip_of = int(broadcast.round), {}
        shared = {"model": pack({"w": broadcast.w0}), "messages": pack(flatten(broadcast.messages))}
        expected = {"delta": broadcast.w0, "loss": broadcast.lr} | self._uploads(self.rehearsal.train(broadcast))
        for i in ids.tolist():
            if i not in self.clients.changed:
                self.durable[i] = self._counts(i)
        enough = min(self.terms.min_clients, len(ids))
        replies = self._ask_until(enough, TRAIN, broadcast, ids.tolist(), shared, spec(expected))
        self.lost += [i for i, reply in replies.items() if reply.fresh]
        return self._back(replies)

    def train_again(
        self, number: int, broadcast: Broadcast, ids: np.ndarray, state: PerPart, deltas: Tensor
    ) -> CohortUpdate:
        shared = {"messages": pack(flatten(broadcast.messages))}
        expected = {"delta": broadcast.w0, "loss": broadcast.lr} | self._uploads(
            self.rehearsal.again(number, broadcast, state)
        )
        flat = flatten(state)
        own = {i: {f"{i}/{name}": rows[at] for name, rows in flat.items()} for at, i in enumerate(ids.tolist())}
        replies = self._ask_until(0, AGAIN, broadcast, ids.tolist(), shared, spec(expected), number, own)
        for i, reply in replies.items():
            if all(bool(torch.isfinite(t).all()) for t in reply.tensors.values()):
                self.trip_of[i] = number
        return self._back(replies)

    def gradients(self, broadcast: Broadcast, ids: np.ndarray, at: Tensor) -> Tensor:
        shared, expected = {"model": pack({"w": at})}, spec({"gradient": at})
        replies = self._ask_until(1, GRADIENTS, broadcast, ids.tolist(), shared, expected)
        return torch.stack([reply.tensors["gradient"].to(at.device) for reply in replies.values()])

    def survey(self, broadcast: Broadcast, parts: Sequence[Part]) -> Iterator[tuple[int, PerPart]]:
        expected = spec(flatten(self.rehearsal.survey(broadcast, parts)))
        shared, names = {"model": pack({"w": broadcast.w0})}, [p.name for p in parts]
        ids = self.enrolled().occupied.tolist()
        replies = list(self._ask_until(1, SURVEY, broadcast, ids, shared, expected, names=names).values())
        for start in range(0, len(replies), SURVEYED):
            rows = [unflatten(reply.tensors) for reply in replies[start : start + SURVEYED]]
            yield len(rows), stack(rows)

    def annotate(self, record: RoundRecord) -> RoundRecord:
        failures, lost, waited = self.failures, sorted(set(self.lost)), self.post.waited
        overhead = self.nodes_overhead + time.perf_counter() - self.begun - waited
        self.failures, self.lost, self.post.waited, self.nodes_overhead = {}, [], 0.0, 0.0
        return replace(record, failed=failures, reset=lost, waiting=waited, overhead=overhead)

    # -- asking ----------------------------------------------------------------------------------------------
    def _ask_until(
        self, enough: int, kind: str, broadcast: Broadcast, ids: list[int], *what: Any, **more: Any
    ) -> dict[int, ClientReply]:
        """Ask, and ask those who failed again as the terms say; fewer than ``enough`` in the end is an error."""
        found: dict[int, ClientReply] = {}
        for _ in range(1 + self.terms.retries):
            found |= self._ask(kind, broadcast, [i for i in ids if i not in found], *what, **more)
            if len(found) == len(ids) or (self.terms.on_failure == "continue" and len(found) >= enough):
                break
        if len(found) < enough:
            raise TooFew(
                f"round {int(broadcast.round)}: {len(found)} of {len(ids)} clients came back, {enough} are needed: "
                f"{self._why()}; the run can be resumed"
            )
        return {i: found[i] for i in ids if i in found}

    def _ask(
        self, kind: str, broadcast: Broadcast, ids: list[int], shared: dict[str, ArrayRecord], expected: Spec,
        trip: int = 0, own: dict[int, Tensors] | None = None, names: Sequence[str] = (),
    ) -> dict[int, ClientReply]:  # fmt: skip
        """One question to the nodes of these clients: the answers that can be used."""
        roll = self.enrolled()
        roll.update()
        asks: dict[int, Question] = {}
        for node, clients in self._by_node(roll, ids).items():
            use = [self.trip_of.get(i, 0) if trip else self._counts(i) for i in clients]
            asks[node] = Question(
                secrets.token_hex(8), self.run, int(broadcast.round), trip, float(broadcast.lr), clients, use,
                [self.durable.get(i, 0) for i in clients], list(names),
            )  # fmt: skip
        letters: dict[int, RecordDict] = {}
        for node, ask in asks.items():
            records: dict[str, ArrayRecord] = dict(shared)
            if own is not None:
                records["state"] = pack({name: t for i in ask.clients for name, t in own[i].items()})
            letters[node] = RecordDict({NUMBERS: numbers(ask), **records})
        found: dict[int, ClientReply] = {}
        for node, reply in self.post.exchange(kind, int(broadcast.round), letters).items():
            found |= self._read(roll, node, asks[node], reply, expected)
        for i in found:
            self.failures.pop(i, None)
        self.nodes_overhead += max((reply.overhead for reply in found.values()), default=0.0)
        return {i: found[i] for i in ids if i in found}

    def _by_node(self, roll: NodeRegistry, ids: list[int]) -> dict[int, list[int]]:
        clients: dict[int, list[int]] = defaultdict(list)
        for i in ids:
            if i in roll.node_of:
                clients[roll.node_of[i]].append(i)
            else:
                self.failures[i] = "no node has it"
        return clients

    def _read(
        self, roll: NodeRegistry, node: int, ask: Question, reply: Message | str, expected: Spec
    ) -> dict[int, ClientReply]:
        """What a node answered for its clients; the history says what is wrong with the rest."""
        if isinstance(reply, str):
            roll.failed([node])
            self.failures |= dict.fromkeys(ask.clients, reply)
            return {}
        roll.answered(node)
        try:
            found, failed = check(node, ask, reply, expected)
        except Refused as error:
            found, failed = {}, dict.fromkeys(ask.clients, f"refused: {error}")
        self.failures |= failed
        return found

    # -- small things ----------------------------------------------------------------------------------------
    def _counts(self, client: int) -> int:
        """The round whose state counts at a client; 0: it has none yet."""
        row = self.clients.rows.get(client)
        return int(row[OURS]["round"]) if row else 0

    def _uploads(self, uploads: PerPart) -> Tensors:
        return {f"uploads/{name}": t for name, t in flatten(uploads).items()}

    def _back(self, replies: dict[int, ClientReply]) -> CohortUpdate:
        """The answers row by row, in the order in which they were asked for."""
        device, like = self.net.device, self.net.initial
        rows = [tree_map(lambda t: t.to(device), r.tensors) for r in replies.values()]
        uploads = [unflatten({k.partition("/")[2]: t for k, t in row.items() if "/" in k}) for row in rows]

        def whole(values: Iterable[int]) -> Tensor:
            return torch.tensor(list(values), dtype=torch.int64, device=device)

        return CohortUpdate(
            whole(replies), whole(r.n for r in replies.values()), whole(r.K for r in replies.values()),
            torch.stack([row["delta"] for row in rows]) if rows else like.new_zeros(0, len(like)),
            stack(uploads), {OURS: {"round": whole([self.round] * len(rows)).cpu()}},
            torch.stack([row["loss"] for row in rows]) if rows else like.new_zeros(0),
        )  # fmt: skip

    def _why(self) -> str:
        return "; ".join(f"client {i}: {reason}" for i, reason in sorted(self.failures.items())[:5])

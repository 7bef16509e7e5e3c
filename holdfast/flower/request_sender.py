"""Requests to the clients of a round, wherever their nodes are, with retries for those that fail."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, Message, RecordDict

from holdfast.core.tensors import Tensors
from holdfast.engines.local_training import Broadcast
from holdfast.flower.array_codec import Refused, Spec, pack
from holdfast.flower.messages import FIELDS_RECORD, NodeRequest, TooFewClients, to_record
from holdfast.flower.registry import NodeRegistry
from holdfast.flower.reply_checks import Check, ClientReply, Decode, check_reply
from holdfast.flower.settings import DeploymentSettings
from holdfast.flower.transport import Transport

REASONS_SHOWN = 5  # in an error message


@dataclass(frozen=True)
class CohortRequest:
    """What some clients are asked for.

    Attributes:
        kind: The type of the messages.
        broadcast: The model, learning rate and round.
        records: The arrays that every node is sent.
        expected: What every client must send back.
        use: For each client, the round (in a further trip: the trip) whose state it starts from; by default 0.
        keep: For each client, the round whose state the last checkpoint needs; by default 0.
        trip: The trip within the round; 0 is local training.
        states: What each client is sent for itself alone, in a further trip.
        parts: The parts that take part in a survey; or what to sum up.
        purpose: Which samples a score is of; empty: test data.
        check: Refuses a client's tensors that cannot be true.
        decode: Reads a client's tensors, if some travel in another form.
    """

    kind: str
    broadcast: Broadcast
    records: dict[str, ArrayRecord]
    expected: Spec
    use: dict[int, int] = field(default_factory=dict)
    keep: dict[int, int] = field(default_factory=dict)
    trip: int = 0
    states: dict[int, Tensors] | None = None
    parts: tuple[str, ...] = ()
    purpose: str = ""
    check: Check = lambda tensors: None
    decode: Decode = lambda tensors: tensors

    @property
    def round(self) -> int:
        return int(self.broadcast.round)

    def for_node(self, run_id: str, clients: list[int]) -> NodeRequest:
        """Return the fields of the message to a node, with a new ticket."""
        use, keep = ([of.get(i, 0) for i in clients] for of in (self.use, self.keep))
        lr = float(self.broadcast.lr)
        ticket = secrets.token_hex(8)
        return NodeRequest(
            ticket, run_id, self.round, self.trip, lr, clients, use, keep, list(self.parts), self.purpose
        )

    def content(self, fields: NodeRequest, always: dict[str, ArrayRecord]) -> RecordDict:
        """Return the content of the message to a node, with the records that every request carries."""
        records = self.records | always
        if self.states is not None:
            records["state"] = pack({name: t for i in fields.clients for name, t in self.states[i].items()})
        return RecordDict({FIELDS_RECORD: to_record(fields), **records})


class RequestSender:
    """Sends requests to clients and collects the replies that can be used.

    Attributes:
        registry: Which node has which client.
        failures: Why clients have no reply, since this was last emptied.
        overhead: The seconds that the slowest nodes spent on everything but training, since this was last reset.
        always: Records of arrays that every request carries.
    """

    def __init__(self, run_id: str, registry: NodeRegistry, transport: Transport, settings: DeploymentSettings) -> None:
        self.run_id, self.registry, self.transport, self.settings = run_id, registry, transport, settings
        self.failures: dict[int, str] = {}
        self.overhead = 0.0
        self.always: dict[str, ArrayRecord] = {}

    def request(self, request: CohortRequest, clients: list[int], needed: int) -> dict[int, ClientReply]:
        """Ask clients, and ask those that fail again as the settings say.

        If too few have replied and the nodes of all others are gone, wait for one of them before asking again.

        Args:
            request: What they are asked for.
            clients: The clients.
            needed: The fewest replies; fewer are an error.

        Returns:
            The replies by client, in the order of ``clients``.
        """
        replies: dict[int, ClientReply] = {}
        for attempt in range(1 + self.settings.retries):
            missing = [i for i in clients if i not in replies]
            if attempt and len(replies) < needed:
                self.registry.wait_for_any(missing, self.settings.timeout)
            else:
                self.registry.update()
            replies |= self._request_once(request, missing)
            enough = self.settings.on_failure == "continue" and len(replies) >= needed
            if len(replies) == len(clients) or enough:
                break
        if len(replies) < needed:
            raise TooFewClients(
                f"round {request.round}: {len(replies)} of {len(clients)} clients returned an update, but {needed} are "
                f"needed ({self.reasons()}): fix the nodes, then resume the run"
            )
        return {i: replies[i] for i in clients if i in replies}

    def _request_once(self, request: CohortRequest, clients: list[int]) -> dict[int, ClientReply]:
        """Send one message to each node that has some of these clients."""
        by_node, missing = self.registry.by_node(clients)
        self.failures |= dict.fromkeys(missing, "no node has this client")
        sent = {node: request.for_node(self.run_id, theirs) for node, theirs in by_node.items()}
        contents = {node: request.content(fields, self.always) for node, fields in sent.items()}
        replies: dict[int, ClientReply] = {}
        for node, reply in self.transport.exchange(request.kind, request.round, contents).items():
            replies |= self._read(node, sent[node], reply, request)
        for i in replies:
            self.failures.pop(i, None)
        self.overhead += max((reply.overhead for reply in replies.values()), default=0.0)
        return replies

    def _read(
        self, node: int, fields: NodeRequest, reply: Message | str, request: CohortRequest
    ) -> dict[int, ClientReply]:
        """Return the usable replies of a node's clients, and note why the others failed."""
        if isinstance(reply, str):
            self.registry.mark_silent(node)
            self.failures |= dict.fromkeys(fields.clients, reply)
            return {}
        self.registry.mark_replied(node)
        try:
            accepted, failed = check_reply(node, fields, reply, request, self.registry.n)
        except Refused as error:
            accepted, failed = {}, dict.fromkeys(fields.clients, f"refused: {error}")
        self.failures |= failed
        return accepted

    def reasons(self) -> str:
        """Return why clients failed, some of them."""
        shown = sorted(self.failures.items())[:REASONS_SHOWN]
        return "; ".join(f"client {self.registry.name_of(i)}: {reason}" for i, reason in shown)

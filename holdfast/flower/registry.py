"""Which node has which client. Nodes come and go under new ids; a client keeps its number."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Message, RecordDict

from holdfast.data.federation import Federation
from holdfast.data.given_clients import names_to_show
from holdfast.flower.array_codec import Refused, pack
from holdfast.flower.messages import ENROL, FIELDS_RECORD, Enrolment, NodeRequest, one_line, read_message, to_record
from holdfast.flower.node import PUBLIC
from holdfast.flower.settings import DeploymentSettings
from holdfast.flower.transport import Transport

ATTEMPTS = 3  # how many times a node is asked to enrol before pauses begin
SHARE = 0.1  # largest share of the server's time spent on asking nodes that never enrol
MOST_SAMPLES = 2**48  # largest number of samples of a client
log = logging.getLogger("holdfast")


@dataclass
class Invitations:
    """When to ask nodes again that did not enrol: they may be fixed at any time, but must not hold up the others.

    Attributes:
        failures: How many times each node was asked and did not enrol.
        resume_at: When each node may be asked again.
    """

    failures: Counter[int] = field(default_factory=Counter)
    resume_at: dict[int, float] = field(default_factory=dict)

    def due(self, node: int) -> bool:
        """Tell whether a node may be asked now."""
        return time.monotonic() >= self.resume_at.get(node, 0.0)

    def failed(self, node: int, seconds: float) -> None:
        """Note that a node did not enrol, and how long that took."""
        self.failures[node] += 1
        if self.failures[node] >= ATTEMPTS:
            self.resume_at[node] = time.monotonic() + seconds * (1 / SHARE - 1)

    def forget(self, node: int) -> None:
        """Treat a node as if it had never been asked."""
        self.failures.pop(node, None)
        self.resume_at.pop(node, None)


class NodeRegistry:
    """The nodes that have enrolled. Another node may take a client over once its node is gone or did not reply.

    A node that is refused keeps none of the clients it claims. It is asked again, and so are a node that was gone and
    has returned, under the same id or a new one, and a node that did not reply: it may have been restarted.

    Attributes:
        node_of: The node of each client.
        n: The samples of each client that was ever enrolled.
        names: The names of the clients that have one.
    """

    def __init__(
        self, transport: Transport, run_id: str, federation: Federation, owners: Mapping[int, int] | None = None
    ) -> None:
        """Prepare the registry; nobody is asked yet.

        Args:
            transport: What sends messages to the nodes.
            run_id: The id under which nodes keep their states.
            federation: What the server sees.
            owners: The nodes that certain clients must be on; other clients may be on any node.
        """
        self.transport, self.run_id, self.owners = transport, run_id, owners or {}
        self.clients, self.shape, self.classes = federation.clients, list(federation.shape), federation.classes
        public, data = federation.public, federation.data
        self.task = data.task
        self.public = pack({"x": data.x[public], "y": data.y[public]} if len(public) else {})
        self.names = {i: name for i, name in enumerate(federation.client_names) if name != str(i)}
        self.node_of: dict[int, int] = {}
        self.n: dict[int, int] = {}
        self._claims: dict[int, set[int]] = {}  # the clients of each node that has enrolled, even if taken over since
        self._silent: set[int] = set()  # nodes that did not reply to their last request
        self._too_early: set[int] = set()  # nodes refused because another node has their clients
        self._invitations = Invitations()
        self._seen: set[int] = set()  # nodes that were connected at the last update

    @property
    def occupied(self) -> np.ndarray:
        """The clients that may be drawn: all but those known to have no samples."""
        return np.array([i for i in range(self.clients) if self.n.get(i) != 0])

    def name_of(self, client: int) -> str:
        """Return what to call a client: its name, or its number if it has none."""
        return self.names.get(client, str(client))

    def wait_for_nodes(self, settings: DeploymentSettings) -> None:
        """Wait for the nodes at the start of a run, as long as the settings allow."""
        expected = settings.nodes or self.clients
        deadline = time.monotonic() + settings.patience
        while len(self._connected()) < expected and time.monotonic() < deadline:
            time.sleep(0.2)
        self.update()
        while len(self.node_of) < self.clients and time.monotonic() < deadline:
            time.sleep(1.0)
            self.update()
        missing = sorted(set(range(self.clients)) - self.node_of.keys())
        if missing:
            log.warning("no node has the clients %s", ", ".join(map(self.name_of, missing[:20])))

    def wait_for_any(self, clients: Sequence[int], seconds: float) -> None:
        """Wait until one of these clients has a node, but not longer than this."""
        deadline = time.monotonic() + seconds
        self.update()
        while not any(i in self.node_of for i in clients) and time.monotonic() < deadline:
            self.transport.pause(min(1.0, seconds))
            self.update()

    def update(self) -> None:
        """Ask nodes to enrol that have not, and forget those that are gone."""
        connected = self._connected()
        for node in self._seen - connected:
            self._forget(node)
        self._seen = connected
        self.node_of = {i: node for i, node in self.node_of.items() if node in connected}
        asked = [node for node in connected if self._invitations.due(node) and not self._is_enrolled(node)]
        if asked:
            self._invite(sorted(asked, key=lambda node: (node in self._silent, node)))

    def by_node(self, clients: Iterable[int]) -> tuple[dict[int, list[int]], list[int]]:
        """Return the clients of each node, and those that no node has."""
        known: dict[int, list[int]] = defaultdict(list)
        missing: list[int] = []
        for i in clients:
            if i in self.node_of:
                known[self.node_of[i]].append(i)
            else:
                missing.append(i)
        return known, missing

    def mark_silent(self, node: int) -> None:
        """Note that a node did not reply: it must enrol again, and others may take its clients over at once."""
        self._silent.add(node)
        for other in self._too_early:
            self._invitations.forget(other)

    def mark_replied(self, node: int) -> None:
        """Note that a node replied: its clients stay with it."""
        self._silent.discard(node)

    def _connected(self) -> set[int]:
        return set(self.transport.grid.get_node_ids())

    def _forget(self, node: int) -> None:
        """Forget a node that is gone; if it returns, it enrols again."""
        self._claims.pop(node, None)
        self._silent.discard(node)
        self._too_early.discard(node)
        self._invitations.forget(node)
        for other in self._too_early:
            self._invitations.forget(other)

    def _invite(self, asked: list[int]) -> None:
        """Ask nodes to enrol. The first that claims a client gets it; those that are refused have none."""
        requests = {node: NodeRequest(secrets.token_hex(8), self.run_id) for node in asked}
        contents = {
            node: RecordDict({FIELDS_RECORD: to_record(request), PUBLIC: self.public})
            for node, request in requests.items()
        }
        started = time.monotonic()
        replies = self.transport.exchange(ENROL, 0, contents)
        seconds = time.monotonic() - started
        for node in asked:
            try:
                self._enrol(node, requests[node], replies[node])
            except Refused as error:
                self._invitations.failed(node, seconds)
                self.node_of = {i: holder for i, holder in self.node_of.items() if holder != node}
                log.warning("node %d is refused: %s", node, error)

    def _is_enrolled(self, node: int) -> bool:
        """Tell whether a node has enrolled and every client that it has is with a node that replies."""
        return node in self._claims and all(self._has_a_node(client) for client in self._claims[node])

    def _has_a_node(self, client: int) -> bool:
        """Tell whether a client is on a node that replies."""
        return client in self.node_of and self.node_of[client] not in self._silent

    def _enrol(self, node: int, request: NodeRequest, reply: Message | str) -> None:
        """Enrol a node, or refuse what it says about itself. Everything is checked before anything is changed."""
        if isinstance(reply, str):
            raise Refused(reply)
        if reply.metadata.src_node_id != node:
            raise Refused("another node replied")
        enrolment = read_message(Enrolment, reply, set())
        if enrolment.ticket != request.ticket:
            raise Refused("it replies to another request")
        self._check(node, enrolment)
        for client in enrolment.clients:
            holder = self.node_of.get(client)
            if holder is not None and holder != node and holder not in self._silent:
                self._too_early.add(node)
                raise Refused(f"client {self.name_of(client)} is already on node {holder}, which is connected")
        self.node_of |= dict.fromkeys(enrolment.clients, node)
        self.n |= dict(zip(enrolment.clients, enrolment.n, strict=True))
        named = zip(enrolment.clients, enrolment.names, strict=False)
        self.names |= {i: name for i, name in named if name != str(i)}
        self._claims[node] = set(enrolment.clients)
        self._too_early.discard(node)
        self._invitations.forget(node)
        self.mark_replied(node)

    def _check(self, node: int, enrolment: Enrolment) -> None:
        """Refuse a node whose clients or data cannot be those of this federation."""
        if enrolment.task != self.task.name:
            raise Refused(f"its data is for {one_line(enrolment.task)}, the server's for {self.task.name}")
        if enrolment.shape != self.shape or enrolment.classes != self.classes:
            raise Refused(
                f"its samples have shape {enrolment.shape} and {self.task.described(enrolment.classes)}, the server's "
                f"{self.shape} and {self.classes}"
            )
        clients = set(enrolment.clients)
        if not clients <= set(range(self.clients)) or not len(clients) == len(enrolment.clients) == len(enrolment.n):
            raise Refused(f"it claims clients that this federation of {self.clients} does not have")
        if not clients:
            raise Refused("it has no clients")
        for n in enrolment.n:
            if not 0 <= n < MOST_SAMPLES:
                raise Refused(f"it claims {n} samples")
        for client in enrolment.clients:
            if self.owners.get(client, node) != node:
                raise Refused(f"client {self.name_of(client)} must be on node {self.owners[client]}")
        self._check_names(enrolment)

    def _check_names(self, enrolment: Enrolment) -> None:
        """Refuse names that cannot be shown, that another client has, or that differ from what the server knows."""
        if len(enrolment.names) not in (0, len(enrolment.clients)):
            raise Refused(f"it has {len(enrolment.names)} names for {len(enrolment.clients)} clients")
        given = dict(zip(enrolment.clients, enrolment.names, strict=False))
        new = {i: name for i, name in given.items() if name != self.name_of(i)}
        taken = Counter(
            [self.name_of(i) for i in range(self.clients) if i not in new] + list(new.values()) if new else []
        )
        for client, name in new.items():
            if (name,) != names_to_show([name]):
                raise Refused(f"it calls client {client} by a name that is too long or cannot be printed")
            if client in self.names:
                raise Refused(f"it calls client {client} {name}, but its name is {self.names[client]}")
            if taken[name] > 1:
                raise Refused(f"it calls client {client} {name}, and another client has that name")

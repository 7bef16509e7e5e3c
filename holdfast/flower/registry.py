"""Which node has which client. Nodes come and go under new ids; a client keeps its number."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
from flwr.app import Message, RecordDict

from holdfast.data.federation import Federation
from holdfast.flower.array_codec import Refused, pack
from holdfast.flower.messages import ENROL, FIELDS_RECORD, Enrolment, NodeRequest, read_message, to_record
from holdfast.flower.node import PUBLIC
from holdfast.flower.settings import DeploymentSettings
from holdfast.flower.transport import Transport

ATTEMPTS = 3  # how often a node that does not reply is asked to enrol
log = logging.getLogger("holdfast")


class NodeRegistry:
    """The nodes that have enrolled. Another node may take a client over once its node is gone or did not reply.

    Attributes:
        node_of: The node of each client.
        n: The samples of each client that was ever enrolled.
    """

    def __init__(self, transport: Transport, run_id: str, federation: Federation) -> None:
        self.transport, self.run_id = transport, run_id
        self.clients, self.shape, self.classes = federation.clients, list(federation.shape), federation.classes
        public, data = federation.public, federation.data
        self.public = pack({"x": data.x[public], "y": data.y[public]} if len(public) else {})
        self.node_of: dict[int, int] = {}
        self.n: dict[int, int] = {}
        self._attempts: Counter[int] = Counter()  # how often each node was asked to enrol
        self._replied: set[int] = set()  # nodes that replied to the request to enrol
        self._silent: set[int] = set()  # nodes that did not reply to their last request

    @property
    def occupied(self) -> np.ndarray:
        """The clients that may be drawn: all but those known to have no samples."""
        return np.array([i for i in range(self.clients) if self.n.get(i) != 0])

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
            log.warning("no node has the clients %s", ", ".join(map(str, missing[:20])))

    def update(self) -> None:
        """Ask new nodes to enrol, and forget those that are gone."""
        connected = self._connected()
        self.node_of = {i: node for i, node in self.node_of.items() if node in connected}
        new = sorted(node for node in connected - self._replied if self._attempts[node] < ATTEMPTS)
        if not new:
            return
        self._attempts.update(new)
        requests = {node: NodeRequest(secrets.token_hex(8), self.run_id) for node in new}
        contents = {
            node: RecordDict({FIELDS_RECORD: to_record(request), PUBLIC: self.public})
            for node, request in requests.items()
        }
        for node, reply in self.transport.exchange(ENROL, 0, contents).items():
            try:
                self._enrol(node, requests[node], reply)
            except Refused as error:
                log.warning("node %d is refused: %s", node, error)

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
        """Note that a node did not reply: others may take its clients over."""
        self._silent.add(node)

    def mark_replied(self, node: int) -> None:
        """Note that a node replied: its clients stay with it."""
        self._silent.discard(node)

    def _connected(self) -> set[int]:
        return set(self.transport.grid.get_node_ids())

    def _enrol(self, node: int, request: NodeRequest, reply: Message | str) -> None:
        """Enrol a node, or refuse what it says about itself."""
        if isinstance(reply, str):
            raise Refused(reply)
        self._replied.add(node)
        if reply.metadata.src_node_id != node:
            raise Refused("another node replied")
        enrolment = read_message(Enrolment, reply, set())
        if enrolment.ticket != request.ticket:
            raise Refused("it replies to another request")
        if enrolment.shape != self.shape or enrolment.classes != self.classes:
            raise Refused(
                f"its samples have shape {enrolment.shape} and {enrolment.classes} classes, the server's {self.shape} "
                f"and {self.classes}"
            )
        clients = set(enrolment.clients)
        if not clients <= set(range(self.clients)) or not len(clients) == len(enrolment.clients) == len(enrolment.n):
            raise Refused(f"it claims clients that this federation of {self.clients} does not have")
        if not clients:
            raise Refused("it has no clients")
        if min(enrolment.n) < 0:
            raise Refused(f"it claims {min(enrolment.n)} samples")
        for client, n in zip(enrolment.clients, enrolment.n, strict=True):
            previous = self.node_of.get(client)
            if previous is not None and previous != node and previous not in self._silent:
                raise Refused(f"client {client} is already on node {previous}, which is connected")
            self.node_of[client], self.n[client] = node, n
        self.mark_replied(node)

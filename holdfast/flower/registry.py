"""Which node plays which client. Nodes come and go, under new numbers; clients stay who they are."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Iterable

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from holdfast.data.federation import Federation
from holdfast.flower.array_codec import Refused, pack
from holdfast.flower.messages import ENROL, NUMBERS, Enrolment, Question, letter, numbers
from holdfast.flower.node import PUBLIC
from holdfast.flower.settings import DeploymentSettings
from holdfast.flower.transport import Transport

TRIES = 3  # how often a node that does not answer is asked to enrol
log = logging.getLogger("holdfast")


class NodeRegistry:
    """The nodes that have enrolled. A client's node is replaced once it is gone or did not answer."""

    def __init__(self, grid: Grid, post: Transport, run: str, federation: Federation) -> None:
        self.grid, self.post, self.run = grid, post, run
        self.clients, self.shape, self.classes = federation.clients, list(federation.shape), federation.classes
        public, data = federation.public, federation.data
        self.public = pack({"x": data.x[public], "y": data.y[public]} if len(public) else {})
        self.node_of: dict[int, int] = {}
        self.n: dict[int, int] = {}  # samples of each client that was ever here
        self.asked: Counter[int] = Counter()  # how often each node was asked to enrol
        self.known: set[int] = set()  # nodes that answered
        self.silent: set[int] = set()  # nodes whose last answer did not come

    @property
    def occupied(self) -> np.ndarray:
        """The clients that may be drawn: all but those known to have no samples."""
        return np.array([i for i in range(self.clients) if self.n.get(i) != 0])

    def gather(self, terms: DeploymentSettings) -> None:
        """Wait for the nodes at the start of a run."""
        expected = terms.nodes or self.clients
        deadline = time.monotonic() + terms.patience
        while len(list(self.grid.get_node_ids())) < expected and time.monotonic() < deadline:
            time.sleep(0.2)
        self.update()
        while len(self.node_of) < self.clients and time.monotonic() < deadline:
            time.sleep(1.0)
            self.update()
        missing = sorted(set(range(self.clients)) - self.node_of.keys())
        if missing:
            log.warning("no node has the clients %s", ", ".join(map(str, missing[:20])))

    def update(self) -> None:
        """Let nodes that are new enrol, and forget those that are gone."""
        here = set(self.grid.get_node_ids())
        self.node_of = {i: node for i, node in self.node_of.items() if node in here}
        new = sorted(node for node in here - self.known if self.asked[node] < TRIES)
        if not new:
            return
        self.asked.update(new)
        ask = {node: Question(secrets.token_hex(8), self.run) for node in new}
        letters = {node: RecordDict({NUMBERS: numbers(a), PUBLIC: self.public}) for node, a in ask.items()}
        for node, found in self.post.exchange(ENROL, 0, letters).items():
            try:
                self._enter(node, ask[node], found)
            except Refused as error:
                log.warning("node %d is refused: %s", node, error)

    def failed(self, nodes: Iterable[int]) -> None:
        """These nodes did not answer: others may take their clients over."""
        self.silent |= set(nodes)

    def answered(self, node: int) -> None:
        self.silent.discard(node)

    def _enter(self, node: int, ask: Question, found: Message | str) -> None:
        if isinstance(found, str):
            raise Refused(found)
        self.known.add(node)
        if found.metadata.src_node_id != node:
            raise Refused("another node answered")
        said = letter(Enrolment, found, set())
        if said.ticket != ask.ticket:
            raise Refused("it answers another question")
        if said.shape != self.shape or said.classes != self.classes:
            raise Refused(
                f"its samples have shape {said.shape} in {said.classes} classes, the server's {self.shape} in "
                f"{self.classes}"
            )
        here = set(said.clients)
        if not here <= set(range(self.clients)) or not len(here) == len(said.clients) == len(said.n) > 0:
            raise Refused(f"it plays clients that the federation of {self.clients} does not have")
        if min(said.n) < 0:
            raise Refused(f"it claims {min(said.n)} samples")
        for client, n in zip(said.clients, said.n, strict=True):
            before = self.node_of.get(client)
            if before is not None and before != node and before not in self.silent:
                raise Refused(f"client {client} is on node {before}, which is there")
            self.node_of[client], self.n[client] = node, n
        self.answered(node)

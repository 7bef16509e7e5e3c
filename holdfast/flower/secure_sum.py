"""The server's half of secure aggregation: it passes on keys and shares, and sees the sum over the nodes alone.

A round has four stages, each a message to every node that is left: keys, shares of secrets, masked vectors, shares that
unmask their sum. A node may drop out between any two; the sum is then that of the nodes whose vectors arrived. If too
few nodes are left, the sum is started again with new keys; but not once nodes were asked to unmask it, because the
difference of two sums over almost the same clients would show the others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import torch
from flwr.app import Message, RecordDict

from holdfast.core.errors import HoldfastError
from holdfast.flower.array_codec import ArraySpec, Refused, unpack
from holdfast.flower.fixed_point import MOST_NODES, Ring, from_ring, in_range
from holdfast.flower.masks import threshold_of
from holdfast.flower.messages import ARRAYS_RECORD, FIELDS_RECORD, arrays_of, read_message, to_record
from holdfast.flower.reply_checks import ClientReply, check_counts, read_header, reported_errors
from holdfast.flower.request_sender import CohortRequest, RequestSender
from holdfast.flower.secure_messages import (
    KEYS,
    REVEAL,
    SHARES,
    VECTOR,
    MaskedRequest,
    StageReply,
    StageRequest,
)
from holdfast.flower.secure_rules import FEWEST_NODES
from holdfast.flower.sum_member import unmasked
from holdfast.flower.sum_vector import CohortShare, length_of, means
from holdfast.method.method import Method

T = TypeVar("T")


class SumFailed(HoldfastError):
    """Too few nodes are left for a sum, or it cannot be read. The run stops; its last checkpoint is kept."""

    status = 1


class TooFewNodes(SumFailed):
    """Too few nodes are left before anything was to be unmasked: the sum may be started again."""


@dataclass
class SumInProgress:
    """One sum over some nodes.

    Attributes:
        request: What clients are asked for.
        clients: The clients of each node.
        shares: The shares of each client in the cohort.
        ticket: The random id of the sum.
        members: The nodes, by their number in the sum.
        keys: Their public keys, two each.
    """

    request: CohortRequest
    clients: dict[int, list[int]]
    shares: dict[int, CohortShare]
    ticket: str = field(default_factory=lambda: secrets.token_hex(8))
    members: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    @property
    def needed(self) -> int:
        """How many members must be left."""
        return threshold_of(len(self.members))

    def place(self, node: int) -> int:
        """Return the number of a node among the members."""
        return self.members.index(node)


class SecureSum:
    """Asks clients for their updates, and gets nothing but the sum over their nodes.

    Attributes:
        sender: What knows the nodes, and notes why clients failed.
        method: The method.
        weigh: Returns the weights of clients in the mean, from their numbers of samples.
        vector_bytes: The size of the masked vectors that arrived last.
    """

    def __init__(self, sender: RequestSender, method: Method, weigh: Callable[[list[int]], list[float]]) -> None:
        self.sender, self.method, self.weigh = sender, method, weigh
        self.vector_bytes = 0

    def request(self, request: CohortRequest, clients: list[int], needed: int) -> dict[int, ClientReply]:
        """Ask clients for their updates, or for the moments of their samples.

        Args:
            request: What they are asked for; its kind is that of a masked request.
            clients: The clients.
            needed: The fewest of them that a sum must have.

        Returns:
            A reply for every client in the sum. All have the cohort's means in place of what a client would send.
        """
        for attempt in range(1 + self.sender.settings.retries):
            if attempt:
                lost = [i for i in clients if i in self.sender.failures]
                self.sender.registry.wait_for_any(lost or clients, self.sender.settings.timeout)
            self.sender.registry.update()
            try:
                replies = self._sum(request, clients, needed)
                return {i: replies[i] for i in clients if i in replies}
            except TooFewNodes:
                if attempt == self.sender.settings.retries:
                    raise
        raise AssertionError("unreachable")

    def _sum(self, request: CohortRequest, clients: list[int], needed: int) -> dict[int, ClientReply]:
        by_node, missing = self.sender.registry.by_node(clients)
        self.sender.failures |= dict.fromkeys(missing, "no node has this client")
        n = self.sender.registry.n
        asked = [i for theirs in by_node.values() for i in theirs]
        weights, samples = self.weigh([n[i] for i in asked]), sum(n[i] for i in asked)
        shares = {i: (w, 1 / len(asked), n[i] / samples) for i, w in zip(asked, weights, strict=True)}
        sum_ = SumInProgress(request, by_node, shares)
        self._check_left(sum_, len(by_node), FEWEST_NODES)
        if len(by_node) > MOST_NODES:
            raise SumFailed(f"secure aggregation is for {MOST_NODES} nodes at most, not {len(by_node)}: lower --cohort")
        self._collect_keys(sum_)
        sealed = self._collect_shares(sum_)
        vectors, replies = self._collect_vectors(sum_, sealed)
        if len(replies) < needed:
            raise TooFewNodes(self._too_few(request, f"{len(replies)} of {len(clients)} clients", needed))
        total = self._unmask(sum_, sorted(map(sum_.place, sealed)), vectors)
        for i in replies:
            self.sender.failures.pop(i, None)
        self.vector_bytes = sum(vector.nbytes for vector in vectors.values())
        self.sender.overhead += max((reply.overhead for reply in replies.values()), default=0.0)
        found = means(from_ring(total), [shares[i] for i in replies], request.expected, self.method)
        return {i: ClientReply(found, r.n, r.K, r.lost_state, r.overhead) for i, r in replies.items()}

    # -- the stages ----------------------------------------------------------------------------------------------
    def _collect_keys(self, sum_: SumInProgress) -> None:
        """Ask every node for its public keys; who replies is a member."""
        contents = {node: stage_message(StageRequest(sum_.ticket)) for node in sum_.clients}
        found = self._exchange(KEYS, sum_, contents, lambda node, reply: self._stage_reply(sum_, reply, 2))
        self._check_left(sum_, len(found), FEWEST_NODES)
        sum_.members = sorted(found)
        sum_.keys = [key for node in sum_.members for key in found[node]]

    def _collect_shares(self, sum_: SumInProgress) -> dict[int, list[bytes]]:
        """Ask every member to share out its secrets; return what each has encrypted for the others."""
        contents = {
            node: stage_message(StageRequest(sum_.ticket, place, sum_.keys)) for place, node in enumerate(sum_.members)
        }
        size = len(sum_.members)
        found = self._exchange(SHARES, sum_, contents, lambda node, reply: self._stage_reply(sum_, reply, size))
        self._check_left(sum_, len(found), sum_.needed)
        return found

    def _collect_vectors(
        self, sum_: SumInProgress, sealed: Mapping[int, list[bytes]]
    ) -> tuple[dict[int, Ring], dict[int, ClientReply]]:
        """Let clients train; return the masked vectors by member, and the clients in them."""
        requests: dict[int, MaskedRequest] = {}
        for node in sealed:
            texts = [b"" if other == node or other not in sealed else sealed[other][sum_.place(node)]
                     for other in sum_.members]  # fmt: skip
            requests[node] = self._masked_request(sum_, node, texts)
        contents = {node: sum_.request.content(fields, self.sender.always) for node, fields in requests.items()}
        found = self._exchange(
            sum_.request.kind, sum_, contents, lambda node, reply: self._vector(sum_, node, requests[node], reply)
        )
        self._check_left(sum_, sum(bool(replies) for _, replies in found.values()), sum_.needed)
        replies = {i: reply for _, theirs in found.values() for i, reply in theirs.items()}
        return {sum_.place(node): vector for node, (vector, _) in found.items()}, replies

    def _unmask(self, sum_: SumInProgress, present: list[int], vectors: Mapping[int, Ring]) -> Ring:
        """Let the members whose vectors arrived reveal what unmasks their sum."""
        arrived, size = sorted(vectors), len(sum_.members)
        message = StageRequest(sum_.ticket, arrived=arrived)
        contents = {sum_.members[place]: stage_message(message) for place in arrived}
        try:
            shares = self._exchange(REVEAL, sum_, contents, lambda node, reply: self._stage_reply(sum_, reply, size))
            self._check_left(sum_, len(shares), sum_.needed)
        except TooFewNodes as error:
            raise SumFailed(str(error)) from error
        try:
            revealed = {sum_.place(node): found for node, found in shares.items()}
            total = unmasked(sum_.keys, dict(vectors), present, revealed)
            if not in_range(from_ring(total), len(arrived)):
                raise Refused("the shares of a secret do not fit together")
        except Refused as error:
            raise SumFailed(
                f"round {sum_.request.round}: the sum cannot be read, since {error}: look at the nodes, then resume "
                "the run"
            ) from error
        return total

    # -- what they share -------------------------------------------------------------------------------------------
    def _exchange(
        self,
        kind: str,
        sum_: SumInProgress,
        contents: Mapping[int, RecordDict],
        read: Callable[[int, Message], T],
    ) -> dict[int, T]:
        """Send a message to each node; return what could be read, and note why the others are not in the sum."""
        found: dict[int, T] = {}
        registry = self.sender.registry
        for node, reply in self.sender.transport.exchange(kind, sum_.request.round, contents).items():
            try:
                if isinstance(reply, str):
                    registry.mark_silent(node)
                    raise Refused(reply)
                registry.mark_replied(node)
                if reply.metadata.src_node_id != node:
                    raise Refused("another node replied")
                found[node] = read(node, reply)
            except Refused as error:
                self.sender.failures |= dict.fromkeys(sum_.clients[node], str(error))
        return found

    def _stage_reply(self, sum_: SumInProgress, message: Message, size: int) -> list[bytes]:
        reply = read_message(StageReply, message, set())
        if reply.ticket != sum_.ticket:
            raise Refused("it replies to another request")
        if len(reply.found) != size:
            raise Refused(f"it sends {len(reply.found)} keys or shares, not {size}")
        return reply.found

    def _masked_request(self, sum_: SumInProgress, node: int, texts: list[bytes]) -> MaskedRequest:
        """Return the fields of the request to train."""
        clients, n = sum_.clients[node], self.sender.registry.n
        fields = asdict(sum_.request.for_node(self.sender.run_id, clients)) | {"ticket": sum_.ticket}
        return MaskedRequest(
            **fields,
            shares=texts,
            weights=[sum_.shares[i][0] for i in clients],
            declared=[n[i] for i in clients],
            samples=sum(n[i] for i in sum_.shares),
            cohort=len(sum_.shares),
            length=length_of(sum_.request.expected),
        )

    def _vector(
        self, sum_: SumInProgress, node: int, request: MaskedRequest, message: Message
    ) -> tuple[Ring, dict[int, ClientReply]]:
        """Read a node's masked vector and which clients are in it."""
        reply = read_header(node, request, message)
        expected = {VECTOR: ArraySpec(torch.int64, (request.length,))}
        vector = unpack(arrays_of(message, ARRAYS_RECORD), expected, "its sum")[VECTOR]
        overhead, n = max(0.0, reply.seconds - reply.training), self.sender.registry.n
        clients: dict[int, ClientReply] = {}
        for i, count, K in zip(reply.clients, reply.n, reply.K, strict=True):
            check_counts(count, K, n[i])
            clients[i] = ClientReply({}, count, K, i in reply.fresh, overhead)
        self.sender.failures |= reported_errors(request, reply)
        return vector.numpy().view("uint64"), clients

    def _check_left(self, sum_: SumInProgress, left: int, needed: int) -> None:
        if left < needed:
            raise TooFewNodes(self._too_few(sum_.request, f"{left} of {len(sum_.clients)} nodes", needed))

    def _too_few(self, request: CohortRequest, left: str, needed: int) -> str:
        reasons = self.sender.reasons()
        return (
            f"round {request.round}: {left} are left for the secure sum, but {needed} are needed"
            f"{f' ({reasons})' if reasons else ''}: fix the nodes, then resume the run"
        )


def stage_message(fields: StageRequest) -> RecordDict:
    """Return the content of a message without arrays."""
    return RecordDict({FIELDS_RECORD: to_record(fields)})

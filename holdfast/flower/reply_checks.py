"""Checks of a node's reply before the server uses it: whatever was not requested is refused, with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from flwr.app import ArrayRecord, Message

from holdfast.core.tensors import Tensors, unflatten
from holdfast.flower.array_codec import Refused, Spec, unpack
from holdfast.flower.messages import ARRAYS_RECORD, NodeReply, NodeRequest, arrays_of, one_line, read_message
from holdfast.method.method import Method
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net

Check = Callable[[Tensors], None]
Decode = Callable[[Tensors], Tensors]


class Expected(Protocol):
    """What a request expects of every client: see ``CohortRequest``."""

    @property
    def expected(self) -> Spec: ...
    @property
    def check(self) -> Check: ...
    @property
    def decode(self) -> Decode: ...


@dataclass(frozen=True)
class ClientReply:
    """One client's part of a reply, checked.

    Attributes:
        tensors: What the client sent.
        n: The number of its samples.
        K: The number of its local steps.
        lost_state: Whether its state was lost, so that it started without one.
        overhead: The seconds that its node spent on everything but training.
    """

    tensors: Tensors
    n: int
    K: int
    lost_state: bool
    overhead: float


def check_reply(
    node: int, request: NodeRequest, message: Message, asked: Expected, declared: Mapping[int, int]
) -> tuple[dict[int, ClientReply], dict[int, str]]:
    """Check a node's reply.

    Args:
        node: The node that was asked.
        request: What it was asked for.
        message: Its reply.
        asked: What every client must send, how it is read, and what refuses tensors that cannot be true.
        declared: The samples that each client enrolled with; a further trip may be on other samples.

    Returns:
        The replies by client, and for the other clients why they have none.
    """
    reply = read_header(node, request, message)
    arrays = arrays_of(message, ARRAYS_RECORD)
    if {name.partition("/")[0] for name in arrays} != {str(i) for i in reply.clients}:
        raise Refused("it sends arrays of other clients than it replies for")
    overhead = max(0.0, reply.seconds - reply.training)
    accepted, failed = {}, reported_errors(request, reply)
    for i, n, K in zip(reply.clients, reply.n, reply.K, strict=True):
        try:
            check_counts(n, K, n if request.trip else declared.get(i, n))
            tensors = decoded(client_tensors(i, arrays, asked.expected), asked.decode)
            asked.check(tensors)
            accepted[i] = ClientReply(tensors, n, K, i in reply.fresh, overhead)
        except Refused as error:
            failed[i] = f"refused: {error}"
    return accepted, failed


def read_header(node: int, request: NodeRequest, message: Message) -> NodeReply:
    """Read the fields of a node's reply, and refuse those of another reply than the one that was requested.

    Args:
        node: The node that was asked.
        request: What it was asked for.
        message: Its reply.

    Returns:
        The fields.
    """
    if message.metadata.src_node_id != node:
        raise Refused("another node replied")
    reply = read_message(NodeReply, message, {ARRAYS_RECORD})
    if (reply.ticket, reply.round, reply.trip) != (request.ticket, request.round, request.trip):
        raise Refused("it replies to another request")
    if not len(reply.clients) == len(set(reply.clients)) == len(reply.n) == len(reply.K):
        raise Refused("its lists differ in length")
    if not set(reply.clients) <= set(request.clients):
        raise Refused("it replies for clients that were not requested")
    return reply


def check_counts(n: int, K: int, declared: int) -> None:
    """Refuse impossible numbers of samples and steps, and samples that the client did not enrol with."""
    if not (0 < n < 2**48 and 0 < K < 2**48):
        raise Refused(f"it claims {n} samples and {K} steps")
    if n != declared:
        raise Refused(f"it claims {n} samples, but enrolled with {declared}")


def client_tensors(client: int, record: ArrayRecord, expected: Spec) -> Tensors:
    """Return the tensors of one client, without the client's number in their names."""
    arrays = ArrayRecord({name: record[name] for name in record if name.startswith(f"{client}/")})
    tensors = unpack(arrays, {f"{client}/{name}": array for name, array in expected.items()}, "its update")
    return {name.partition("/")[2]: t for name, t in tensors.items()}


def decoded(tensors: Tensors, decode: Decode) -> Tensors:
    """Return the tensors that a client wrote in another form; what cannot have been written is refused."""
    try:
        return decode(tensors)
    except ValueError as error:
        raise Refused(str(error)) from error


def refuse_impossible(method: Method, net: Net, tensors: Tensors) -> None:
    """Refuse a client's uploads that a part knows cannot be true.

    Args:
        method: The method.
        net: The network.
        tensors: What the client sends, by name.
    """
    uploads = unflatten({k.partition("/")[2]: t[None] for k, t in tensors.items() if k.startswith("uploads/")})
    if STATISTICS in uploads and not bool(net.statistics.possible(uploads[STATISTICS]).all()):
        raise Refused("its running statistics are not possible")
    for part in method.parts:
        if part.name in uploads and not bool(part.possible(uploads[part.name]).all()):
            raise Refused(f"its upload to {part.name} is not possible")


def reported_errors(request: NodeRequest, reply: NodeReply) -> dict[int, str]:
    """Return why the remaining clients did not do what was requested, as their node reports it."""
    reasons = {text.partition(": ")[0]: text.partition(": ")[2] for text in reply.errors}
    missing = set(request.clients) - set(reply.clients)
    return {i: f"it raised {one_line(reasons[str(i)])}" if str(i) in reasons else "it gave no reason" for i in missing}

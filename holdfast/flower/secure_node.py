"""A node of a deployment under secure aggregation: it sends keys, shares of secrets and masked sums over its clients.

Nobody can check a masked vector. So the node itself leaves out clients whose update is not finite, not possible, too
long or too large, and those that are not what they enrolled as.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message

from holdfast.core.tensors import Tensors
from holdfast.flower.array_codec import Refused, unpack_any
from holdfast.flower.fixed_point import LARGEST, in_range, to_ring
from holdfast.flower.messages import arrays_of, make_reply, read_message
from holdfast.flower.node import ClientResult, Finished, Node
from holdfast.flower.reply_checks import refuse_impossible
from holdfast.flower.secure_messages import (
    CENTRE,
    KEYS,
    MASKED,
    MASKED_MOMENTS,
    REVEAL,
    SHARES,
    VECTOR,
    MaskedRequest,
    StageReply,
    StageRequest,
)
from holdfast.flower.sum_member import SumMember, masked, new_member, receive, reveal, share
from holdfast.flower.sum_vector import CohortShare, summed

Done = tuple[MaskedRequest, SumMember, Finished]
CheckOne = Callable[[Node, int, ClientResult, MaskedRequest], Tensors]
MEMBER = "sum"  # the record of what a node knows of a sum, in its own context


def make_keys(node: Node, message: Message, context: Context) -> Message:
    """Make new keys for a sum; whatever is left of an earlier one is forgotten."""
    request = read_message(StageRequest, message, set())
    member = new_member(request.ticket)
    keep(context, member)
    return make_reply(message, StageReply(request.ticket, member.public_keys()))


def share_keys(node: Node, message: Message, context: Context) -> Message:
    """Share this node's secrets out among the members of the sum."""
    request = read_message(StageRequest, message, set())
    member, texts = share(kept(context, request.ticket), request.place, request.keys)
    keep(context, member)
    return make_reply(message, StageReply(request.ticket, texts))


def masked_training(node: Node, message: Message, context: Context) -> Message:
    """Train clients and send the masked sum of what they would have sent."""
    request = node.read_request(MaskedRequest, message, {"model", "messages"})
    member = receive(kept(context, request.ticket), request.shares)
    found = node.train_clients(request, message, context)
    return masked_reply(node, message, context, (request, member, found), checked_update)


def masked_moments(node: Node, message: Message, context: Context) -> Message:
    """Send the masked sum of the moments of clients' samples, from which the server finds what they are scaled by."""
    request = node.read_request(MaskedRequest, message, {CENTRE})
    member = receive(kept(context, request.ticket), request.shares)
    found = node.moments(request, unpack_any(arrays_of(message, CENTRE), "the centre"))
    return masked_reply(node, message, context, (request, member, found), checked)


def masked_reply(node: Node, message: Message, context: Context, done: Done, check: CheckOne) -> Message:
    """Mask what clients would have sent, and reply.

    Args:
        node: The node.
        message: The request.
        context: The node's own context.
        done: The fields of the request, what the node knows of the sum, and what its clients would have sent.
        check: Refuses what must not enter the sum.

    Returns:
        The reply.
    """
    request, member, (results, errors) = done
    shares = shares_of(request)
    good: dict[int, ClientResult] = {}
    updates: dict[int, Tensors] = {}
    for client, result in results.items():
        try:
            updates[client] = check(node, client, result, request)
            good[client] = result
        except Refused as error:
            errors.append(f"{client}: {error}")
    vector = summed(updates, shares, request.length, node.method)
    if not in_range(vector):
        raise Refused(f"the sum over its clients is above {LARGEST:g} somewhere")
    member, hidden = masked(member, to_ring(vector))
    keep(context, member)
    return node.reply(request, message, good, errors, {VECTOR: torch.from_numpy(hidden.view("int64"))})


def reveal_shares(node: Node, message: Message, context: Context) -> Message:
    """Reveal the shares that unmask the sum, and forget everything about it."""
    request = read_message(StageRequest, message, set())
    member = kept(context, request.ticket)
    del context.state[MEMBER]
    return make_reply(message, StageReply(request.ticket, reveal(member, request.arrived)))


def shares_of(request: MaskedRequest) -> dict[int, CohortShare]:
    """Return the share of each client in the cohort, as the server says; what cannot be true is refused."""
    n, weights = request.declared, request.weights
    if not len(request.clients) == len(n) == len(weights) or not 0 < sum(n) <= request.samples:
        raise Refused("the server's numbers of samples are not possible")
    if not all(math.isfinite(w) and 0 < w <= 1 for w in weights) or len(n) > request.cohort:
        raise Refused("the server's weights are not possible")
    rows = zip(weights, n, strict=True)
    shares = [(w, 1 / request.cohort, count / request.samples) for w, count in rows]
    return dict(zip(request.clients, shares, strict=True))


def checked(node: Node, client: int, result: ClientResult, request: MaskedRequest) -> Tensors:
    """Return what a client would send, if it may enter a sum that nobody can check."""
    sent = {name.partition("/")[2]: t for name, t in result.arrays.items()}
    declared = request.declared[request.clients.index(client)]
    if result.n != declared:
        raise Refused(f"it has {result.n} samples, but enrolled with {declared}")
    if not all(bool(torch.isfinite(t).all()) for t in sent.values() if t.is_floating_point()):
        raise Refused("what it would send is not finite")
    if not all(in_range(t) for t in sent.values()):
        raise Refused(f"what it would send is above {LARGEST:g} somewhere")
    return sent


def checked_update(node: Node, client: int, result: ClientResult, request: MaskedRequest) -> Tensors:
    """Return a client's update, if it may enter a sum that nobody can check."""
    update = checked(node, client, result, request)
    refuse_impossible(node.method, node.net, update)
    length = float(torch.linalg.vector_norm(update["delta"], dtype=torch.float64))
    if node.longest is not None and length > node.longest:
        raise Refused(f"its update has the norm {length:g}, above {node.longest:g}")
    return update


def keep(context: Context, member: SumMember) -> None:
    """Keep what a node knows of a sum in its own context, which it sends nobody."""
    context.state[MEMBER] = ConfigRecord(asdict(member))


def kept(context: Context, ticket: str) -> SumMember:
    """Return what a node knows of a sum."""
    record = context.state.get(MEMBER)
    if not isinstance(record, ConfigRecord) or record["ticket"] != ticket:
        raise Refused("this node knows nothing of that sum: it joined later, or has revealed its shares")
    values: dict[str, Any] = dict(record)
    return SumMember(**values)


STAGES: dict[str, Callable[[Node, Message, Context], Message]] = {
    KEYS: make_keys,
    SHARES: share_keys,
    MASKED: masked_training,
    MASKED_MOMENTS: masked_moments,
    REVEAL: reveal_shares,
}

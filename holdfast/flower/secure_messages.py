"""The messages of a secure sum: what the server passes on between nodes, and what nodes reply.

The stages of a sum are requests of their own: public keys, shares of secrets, the masked vector (for which the node's
clients train, or sum up their samples), and the shares that unmask the sum. All carry the ticket of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.flower.messages import NodeRequest

KEYS, SHARES, REVEAL = "query.sum_keys", "query.sum_shares", "query.sum_reveal"
MASKED, MASKED_MOMENTS = "train.masked", "query.masked_moments"
CENTRE = "centre"  # the record of what differences are taken to, in a request for moments
VECTOR = "vector"  # the name of the masked vector among a reply's arrays


@dataclass(frozen=True)
class StageRequest:
    """A request for keys, for shares, or to reveal.

    Attributes:
        ticket: The random id of the sum.
        place: The node's number among the members.
        keys: The public keys of all members, two each.
        arrived: The members whose masked vectors arrived.
    """

    ticket: str
    place: int = 0
    keys: list[bytes] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class StageReply:
    """What a node replies to it.

    Attributes:
        ticket: The random id of the sum.
        found: Its two public keys; or its shares by member, encrypted for it or to be revealed, some of them empty.
    """

    ticket: str
    found: list[bytes]


@dataclass(frozen=True)
class MaskedRequest(NodeRequest):
    """A request for the masked sum of what a node's clients would have sent.

    Attributes:
        shares: Every member's encrypted shares for this node; empty: the member is not in the sum.
        weights: The weights of the clients in the mean, which sum to one over the clients of all members.
        declared: The samples that each client enrolled with.
        samples: The samples of the clients of all members.
        cohort: How many clients all members have.
        length: How many numbers a client uploads.
    """

    shares: list[bytes] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    declared: list[int] = field(default_factory=list)
    samples: int = 0
    cohort: int = 0
    length: int = 0

"""A node's half of a secure sum: its keys, the shares of the others' secrets, its masked vector.

The stages come one after the other, each at most once: ``keys``, ``share``, ``masked``, ``reveal``. After the last one
nothing is left, so that a node never says two things about one sum.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from holdfast.flower.array_codec import Refused
from holdfast.flower.fixed_point import MOST_NODES, Ring
from holdfast.flower.masks import (
    SECRET_BYTES,
    Shares,
    agreed,
    joined,
    new_key_pair,
    opened,
    pair_mask,
    public_of,
    sealed,
    share_out,
    stream,
    threshold_of,
)
from holdfast.flower.secure_rules import FEWEST_NODES


@dataclass(frozen=True)
class SumMember:
    """What a node knows of one sum; it never leaves the node.

    Attributes:
        ticket: The random id of the sum.
        mask_key: The private key behind the masks that it shares with others.
        seal_key: The private key behind the encryption of shares.
        secret: The secret of its own mask.
        place: Its number among the members; -1: not known yet.
        keys: The public keys of all members: two each, for masks and for shares.
        own_shares: Of every member, its share of that member's own secret; empty: it has none.
        key_shares: The same of the members' mask keys.
        masked: Whether it has sent its masked vector.
    """

    ticket: str
    mask_key: bytes
    seal_key: bytes
    secret: bytes
    place: int = -1
    keys: list[bytes] = field(default_factory=list)
    own_shares: list[bytes] = field(default_factory=list)
    key_shares: list[bytes] = field(default_factory=list)
    masked: int = 0

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.keys) // 2

    @property
    def present(self) -> list[int]:
        """The members whose shares it has, itself among them."""
        return [member for member, share in enumerate(self.own_shares) if share]

    def public_keys(self) -> list[bytes]:
        """Return its two public keys."""
        return [public_of(self.mask_key), public_of(self.seal_key)]


def new_member(ticket: str) -> SumMember:
    """Make the keys of a node for one sum."""
    return SumMember(ticket, new_key_pair().private, new_key_pair().private, os.urandom(SECRET_BYTES))


def share(member: SumMember, place: int, keys: Sequence[bytes]) -> tuple[SumMember, list[bytes]]:
    """Share out a node's secrets.

    Args:
        member: What the node knows.
        place: Its number among the members.
        keys: The public keys of all members, two each.

    Returns:
        What it knows now, and its encrypted shares by member.
    """
    size = len(keys) // 2
    if member.keys:
        raise Refused("its secrets are shared out already")
    if not FEWEST_NODES <= size <= MOST_NODES or len(keys) % 2:
        raise Refused(f"a secure sum needs {FEWEST_NODES} to {MOST_NODES} nodes, not {size}")
    if len(set(keys)) < len(keys) or not 0 <= place < size:
        raise Refused("the members of the sum are not all different")
    if list(keys[2 * place : 2 * place + 2]) != member.public_keys():
        raise Refused("the server passes on other keys than this node's")
    shares = share_out(member.secret, member.mask_key, size)
    texts = [
        b"" if v == place else sealed(shares[v], agreed(member.seal_key, keys[2 * v + 1]), place, v)
        for v in range(size)
    ]
    own, others = shares[place], [b""] * size
    known = replace(member, place=place, keys=list(keys), own_shares=[*others], key_shares=[*others])
    known.own_shares[place], known.key_shares[place] = own.own, own.key
    return known, texts


def receive(member: SumMember, texts: Sequence[bytes]) -> SumMember:
    """Read the shares of the others' secrets; those without are not in the sum."""
    if not member.keys or member.masked:
        raise Refused("the sum is at another stage")
    if len(texts) != member.size or texts[member.place]:
        raise Refused("the shares are not those of the members")
    known = replace(member, own_shares=[*member.own_shares], key_shares=[*member.key_shares])
    for v, text in enumerate(texts):
        if text:
            found: Shares = opened(text, agreed(member.seal_key, member.keys[2 * v + 1]), v, member.place)
            known.own_shares[v], known.key_shares[v] = found.own, found.key
    needed = threshold_of(member.size)
    if len(known.present) < needed:
        raise Refused(f"only {len(known.present)} of {member.size} nodes are left, and {needed} are needed")
    return known


def masked(member: SumMember, values: Ring) -> tuple[SumMember, Ring]:
    """Mask a vector so that only the sum over the members that are present can be read."""
    if member.masked or not member.present:
        raise Refused("the sum is at another stage")
    total = values + stream(member.secret, len(values))
    for v in member.present:
        if v != member.place:
            total = total + pair_mask(member.place, v, agreed(member.mask_key, member.keys[2 * v]), len(values))
    return replace(member, masked=1), total


def reveal(member: SumMember, arrived: Sequence[int]) -> list[bytes]:
    """Reveal shares: of the own secrets of members whose vectors arrived, and of the mask keys of all others.

    Args:
        member: What the node knows; it must forget it now.
        arrived: The members whose vectors arrived.

    Returns:
        One share of each member that was present when the vectors were masked; empty for the others.
    """
    there = set(arrived)
    if not member.masked:
        raise Refused("the sum is at another stage")
    if len(there) < len(arrived) or not there <= set(member.present) or member.place not in there:
        raise Refused("the server names members that are not in the sum")
    if len(there) < threshold_of(member.size):
        raise Refused(f"the vectors of {len(there)} of {member.size} nodes are too few to be revealed")
    return [
        member.own_shares[v] if v in there else member.key_shares[v] if v in member.present else b""
        for v in range(member.size)
    ]


def unmasked(
    keys: Sequence[bytes], vectors: dict[int, Ring], present: Sequence[int], revealed: dict[int, list[bytes]]
) -> Ring:
    """Return the sum of the vectors that arrived: the server's half of the last stage.

    Args:
        keys: The public keys of all members, two each.
        vectors: The masked vectors that arrived, by member.
        present: The members with which the vectors are masked.
        revealed: The shares that members revealed, by member.

    Returns:
        The sum.
    """
    size = len(keys) // 2
    total: Ring = np.add.reduce(list(vectors.values()))
    for v in present:
        secret = joined([shares[v] for shares in revealed.values() if shares[v]], size)
        if v in vectors:
            total = total - stream(secret, len(total))
            continue
        if public_of(secret) != keys[2 * v]:
            raise Refused("the shares of a secret do not fit together")
        for u in vectors:
            total = total - pair_mask(u, v, agreed(secret, keys[2 * u]), len(total))
    return total

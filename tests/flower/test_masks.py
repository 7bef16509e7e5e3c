"""Secure sums without messages: what members send, what the server makes of it, and what nobody can be made to say."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from flwr.common.secure_aggregation.crypto.shamir import combine_shares

from holdfast.flower.array_codec import Refused
from holdfast.flower.fixed_point import LARGEST, MOST_NODES, STEP, from_ring, in_range, to_ring
from holdfast.flower.masks import agreed, joined, pair_mask, share_out, stream, threshold_of
from holdfast.flower.sum_member import SumMember, masked, new_member, receive, reveal, share, unmasked

LENGTH = 50
VALUES = torch.randn(7, LENGTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Sum:
    """A sum over members in this process, stage by stage; some drop out after a stage."""

    def __init__(self, size: int) -> None:
        self.members = [new_member("ticket") for _ in range(size)]
        self.keys = [key for member in self.members for key in member.public_keys()]
        self.texts: dict[int, list[bytes]] = {}
        self.vectors: dict[int, np.ndarray] = {}
        self.revealed: dict[int, list[bytes]] = {}

    def share(self, gone: Iterable[int] = ()) -> Sum:
        for place, member in enumerate(self.members):
            if place not in gone:
                self.members[place], self.texts[place] = share(member, place, self.keys)
        return self

    def mask(self, gone: Iterable[int] = ()) -> Sum:
        for place in self.texts:
            if place not in gone:
                others = range(len(self.members))
                texts = [self.texts[u][place] if u in self.texts else b"" for u in others]
                member = receive(self.members[place], texts)
                self.members[place], self.vectors[place] = masked(member, to_ring(VALUES[place]))
        return self

    def reveal(self, gone: Iterable[int] = ()) -> Sum:
        for place in self.vectors:
            if place not in gone:
                self.revealed[place] = reveal(self.members[place], sorted(self.vectors))
        return self

    def total(self) -> torch.Tensor:
        return from_ring(unmasked(self.keys, self.vectors, sorted(self.texts), self.revealed))


# -- the sum ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("size", "first", "second", "third"),
    [
        (3, [], [], []),
        (3, [0], [], []),
        (3, [], [1], []),
        (3, [], [], [2]),
        (5, [0], [], [4]),
        (5, [], [1, 3], []),
        (5, [2], [1], []),
        (7, [6], [0], [3]),
    ],
)
def test_the_sum_is_that_of_the_vectors_that_arrived(size, first, second, third):
    """Whoever drops out between two stages: before shares, before vectors, before shares are revealed."""
    found = Sum(size).share(first).mask(second).reveal(third)
    there = [u for u in range(size) if u not in first + second]
    assert sorted(found.vectors) == there
    assert (found.total() - VALUES[there].sum(0)).abs().max() <= len(there) * STEP / 2


def test_it_is_exact_for_numbers_that_are_multiples_of_a_step():
    assert torch.equal(from_ring(to_ring(VALUES[0].round()) + to_ring(VALUES[1].round())), VALUES[:2].round().sum(0))


def test_the_largest_numbers_of_the_most_nodes_stay_in_range():
    most = torch.tensor([LARGEST, -LARGEST])
    total = np.add.reduce([to_ring(most)] * MOST_NODES)
    assert torch.equal(from_ring(total), most.double() * MOST_NODES)
    assert in_range(most)
    assert not any(in_range(torch.tensor([bad])) for bad in (LARGEST + 1, -2 * LARGEST, math.inf, math.nan))


def test_a_masked_vector_looks_like_nothing():
    """Every bit of it is as often 0 as 1, whatever was masked, and no two sums mask alike."""
    zeros = torch.zeros(4096, dtype=torch.float64)
    hidden = []
    for _ in range(2):
        found = Sum(3).share()
        member = receive(found.members[0], [b"", found.texts[1][0], found.texts[2][0]])
        hidden.append(masked(member, to_ring(zeros))[1])
    for vector in hidden:
        bits = np.unpackbits(vector.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / math.sqrt(len(bits))
    assert not set(hidden[0].tolist()) & set(hidden[1].tolist())


def test_two_vectors_are_still_hidden_when_their_sum_is_known():
    """Without the own masks, which are revealed, each is still masked by what it shares with the other."""
    found = Sum(3).share().mask([2]).reveal()
    own = joined([shares[0] for shares in found.revealed.values()], 3)
    rest = from_ring(found.vectors[0] - stream(own, LENGTH))
    assert not torch.allclose(rest, VALUES[0])
    s01, s02 = (pair_mask(0, v, agreed(found.members[0].mask_key, found.keys[2 * v]), LENGTH) for v in (1, 2))
    assert (from_ring(found.vectors[0] - stream(own, LENGTH) - s01 - s02) - VALUES[0]).abs().max() <= STEP / 2


def test_a_vector_that_arrives_too_late_stays_hidden():
    """The others have revealed what it shares with them; its own mask is left."""
    found = Sum(3).share().mask()
    late = found.vectors.pop(2)
    found.reveal()
    key = joined([shares[2] for shares in found.revealed.values()], 3)
    assert key == found.members[2].mask_key
    rest = late - sum(pair_mask(2, v, agreed(key, found.keys[2 * v]), LENGTH) for v in (0, 1))
    assert (from_ring(rest - stream(found.members[2].secret, LENGTH)) - VALUES[2]).abs().max() <= STEP / 2
    assert not torch.allclose(from_ring(rest), VALUES[2], atol=1e3)
    assert (found.total() - VALUES[:2].sum(0)).abs().max() <= STEP


def test_masks_of_a_pair_cancel():
    one, other = new_member("t"), new_member("t")
    s, t = agreed(one.mask_key, other.public_keys()[0]), agreed(other.mask_key, one.public_keys()[0])
    assert not (pair_mask(0, 1, s, LENGTH) + pair_mask(1, 0, t, LENGTH)).any()


def test_masks_use_all_bits_of_a_secret():
    """Flower's own generator folds 32-byte secrets into 32 bits, so that these two would give one mask."""
    secret = bytes(range(32))
    swapped = secret[4:8] + secret[:4] + secret[8:]
    assert not set(stream(secret, 100).tolist()) & set(stream(swapped, 100).tolist())


# -- the secrets -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [3, 4, 5, 8])
def test_a_threshold_of_shares_is_needed_and_enough(size):
    needed, secret = threshold_of(size), bytes(range(32))
    shares = [pair.own for pair in share_out(secret, b"key", size)]
    assert joined(shares[-needed:], size) == secret
    with pytest.raises(Refused, match=f"{needed - 1} shares of a secret are too few: {needed} are needed"):
        joined(shares[: needed - 1], size)


def test_a_share_too_few_gives_another_secret():
    secret = bytes(range(32))
    shares = [pair.own for pair in share_out(secret, b"key", 5)]
    found = set()
    for pair in (shares[:2], shares[1:3], shares[3:]):
        with contextlib.suppress(ValueError):  # the padding of another secret is seldom right
            found.add(combine_shares(pair))
    assert secret not in found
    assert combine_shares(shares[:3]) == secret


@pytest.mark.parametrize("size", [3, 4, 5, 6, 9])
def test_two_groups_of_members_can_never_reveal_both_secrets(size):
    assert 2 * threshold_of(size) > size


def test_no_member_reveals_both_secrets_of_another():
    """A member says for each other one which of two shares it gives, once; the server cannot ask for both."""
    found = Sum(5).share().mask([3, 4])
    for place in found.vectors:
        member = found.members[place]
        said = reveal(member, [0, 1, 2])
        assert [v for v in range(5) if said[v] == member.own_shares[v]] == [0, 1, 2]
        assert [v for v in range(5) if said[v] == member.key_shares[v]] == [3, 4]
        assert not set(member.own_shares) & set(member.key_shares)


@pytest.mark.parametrize(
    ("arrived", "why"),
    [
        ([0], "the vectors of 1 of 5 nodes are too few to be revealed"),
        ([1, 2, 3], "the server names members that are not in the sum"),
        ([0, 1, 1, 2], "the server names members that are not in the sum"),
        ([0, 1, 7], "the server names members that are not in the sum"),
        ([0, 1, 4], "the server names members that are not in the sum"),
    ],
)
def test_what_a_member_does_not_reveal(arrived, why):
    found = Sum(5).share([4]).mask()
    with pytest.raises(Refused) as error:
        reveal(found.members[0], arrived)
    assert str(error.value) == why


def test_stages_come_in_order_and_once():
    found = Sum(3)
    one = found.members[0]
    texts = [b"", b"", b""]
    for early in (lambda: receive(one, texts), lambda: masked(one, to_ring(VALUES[0])), lambda: reveal(one, [0, 1])):
        with pytest.raises(Refused, match="the sum is at another stage"):
            early()
    found.share().mask()
    one = found.members[0]
    with pytest.raises(Refused, match="its secrets are shared out already"):
        share(one, 0, found.keys)
    for late in (lambda: receive(one, texts), lambda: masked(one, to_ring(VALUES[0]))):
        with pytest.raises(Refused, match="the sum is at another stage"):
            late()


def test_members_that_cannot_be():
    found = Sum(3)
    one, keys = found.members[0], found.keys
    wrong = {
        "a secure sum needs 3 to 1024 nodes, not 2": (0, keys[:4]),
        "the members of the sum are not all different": (0, [*keys[:4], *keys[:2]]),
        "the server passes on other keys than this node's": (1, keys),
        "a member's public key is not a key": (0, [*keys[:4], b"no", b"key"]),
    }
    for why, (place, given) in wrong.items():
        with pytest.raises(Refused) as error:
            share(one, place, given)
        assert str(error.value) == why


def test_shares_of_others_cannot_be_swapped_or_forged():
    found = Sum(3).share()
    one = found.members[0]
    wrong = {
        "the shares of member 1 cannot be read": [b"", found.texts[2][0], found.texts[1][0]],
        "the shares of member 2 cannot be read": [b"", found.texts[1][0], b"forged"],
        "the shares are not those of the members": [b"", found.texts[1][0]],
        "only 1 of 3 nodes are left, and 2 are needed": [b"", b"", b""],
    }
    for why, texts in wrong.items():
        with pytest.raises(Refused) as error:
            receive(one, texts)
        assert str(error.value) == why


def test_damaged_shares_are_noticed_where_they_can_be():
    found = Sum(3).share().mask([2]).reveal()
    spoilt = {u: [*shares] for u, shares in found.revealed.items()}
    spoilt[0][2] = bytes(len(spoilt[0][2]))
    with pytest.raises(Refused, match="the shares of a secret do not fit together"):
        unmasked(found.keys, found.vectors, [0, 1, 2], spoilt)


def test_what_a_node_keeps_survives_its_way_through_a_record():
    from flwr.app import Context, RecordDict

    from holdfast.flower.secure_node import keep, kept

    context = Context(1, 1, {}, RecordDict(), {})
    for member in (new_member("t"), Sum(3).share().members[1]):
        keep(context, member)
        assert kept(context, member.ticket) == member
        with pytest.raises(Refused, match="this node knows nothing of that sum"):
            kept(context, "another")
    assert {f.name for f in dataclasses.fields(SumMember)} == set(context.state["sum"])

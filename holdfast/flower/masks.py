"""Masks that cancel in a sum, and the keys behind them: the cryptography of secure aggregation.

Bonawitz et al. 2017, Practical Secure Aggregation for Privacy-Preserving Machine Learning, Fig. 4, in one group of all
members. Member u of the sum sends

    y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)    modulo 2^64

with a secret b_u of its own and a secret s_uv that it shares with member v. The second kind cancels if everybody's
vector arrives. The secrets are shared among the members, so that a threshold of them can reveal b_u of members whose
vector arrived, or the key behind all s_uv of a member whose vector did not; never both of one member.

Keys, their agreement, encryption and Shamir's shares are Flower's. The masks are the key stream of AES-256 in counter
mode: Flower's ``pseudo_rand_gen`` folds a secret of 256 bits into 32, which a server can try one after the other.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat, share_keys_plaintext_separate
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

from holdfast.flower.array_codec import Refused
from holdfast.flower.fixed_point import Ring

SECRET_BYTES = 32


@dataclass(frozen=True)
class KeyPair:
    """A private key and its public key, as bytes."""

    private: bytes
    public: bytes


@dataclass(frozen=True)
class Shares:
    """A member's shares of another member's two secrets."""

    own: bytes  # of b_u
    key: bytes  # of the private key behind all s_uv


def threshold_of(members: int) -> int:
    """Return how many members must remain: more than half, so that no two groups of them can reveal two secrets.

    >>> [threshold_of(n) for n in (3, 4, 5, 10)]
    [2, 3, 3, 6]
    """
    return members // 2 + 1


def new_key_pair() -> KeyPair:
    """Make a key pair."""
    private, public = generate_key_pairs()
    return KeyPair(private_key_to_bytes(private), public_key_to_bytes(public))


def public_of(private: bytes) -> bytes:
    """Return the public key of a private one."""
    try:
        return public_key_to_bytes(bytes_to_private_key(private).public_key())
    except ValueError as error:
        raise Refused("the shares of a secret do not fit together") from error


def agreed(private: bytes, public: bytes) -> bytes:
    """Return the secret that two members share, from one's private key and the other's public key."""
    try:
        return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public))
    except ValueError as error:
        raise Refused("a member's public key is not a key") from error


def share_out(own: bytes, key: bytes, members: int) -> list[Shares]:
    """Split a member's two secrets into shares, one for each member.

    Args:
        own: The secret b_u.
        key: The private key behind all s_uv.
        members: How many members there are.

    Returns:
        The shares by member.
    """
    split = (create_shares(secret, threshold_of(members), members) for secret in (own, key))
    return [Shares(*pair) for pair in zip(*split, strict=True)]


def joined(shares: list[bytes], members: int) -> bytes:
    """Return a secret from the shares of it that were revealed; there must be as many as the threshold.

    Args:
        shares: The shares.
        members: How many members there are.

    Returns:
        The secret.
    """
    needed = threshold_of(members)
    if len(shares) < needed:
        raise Refused(f"{len(shares)} shares of a secret are too few: {needed} are needed")
    if len({len(share) for share in shares}) != 1:
        raise Refused("the shares of a secret differ in length")
    try:
        return combine_shares(shares[:needed])
    except ValueError as error:
        raise Refused("the shares of a secret do not fit together") from error


def sealed(shares: Shares, key: bytes, sender: int, receiver: int) -> bytes:
    """Encrypt shares so that only the receiver can read them.

    Args:
        shares: The shares.
        key: The secret that both share for this purpose.
        sender: The member whose secrets these are shares of.
        receiver: The member they are for.

    Returns:
        The encrypted shares.
    """
    return encrypt(key, share_keys_plaintext_concat(sender, receiver, shares.own, shares.key))


def opened(text: bytes, key: bytes, sender: int, receiver: int) -> Shares:
    """Undo ``sealed``; what another member wrote, or wrote for another one, is refused."""
    try:
        found = share_keys_plaintext_separate(decrypt(key, text))
    except (InvalidToken, TypeError) as error:
        raise Refused(f"the shares of member {sender} cannot be read") from error
    if found[:2] != (sender, receiver):
        raise Refused(f"the shares of member {sender} are of another member, or for another one")
    return Shares(*found[2:])


def stream(secret: bytes, length: int) -> Ring:
    """Return the mask that belongs to a secret: uniform whole numbers of 64 bits."""
    if len(secret) != SECRET_BYTES:
        raise Refused("the shares of a secret do not fit together")
    cipher = Cipher(algorithms.AES256(secret), modes.CTR(bytes(16))).encryptor()  # a secret makes a single stream
    return np.frombuffer(cipher.update(bytes(8 * length)), "<u8").astype(np.uint64)


def pair_mask(member: int, other: int, secret: bytes, length: int) -> Ring:
    """Return the mask that ``member`` adds because of ``other``; the other one's is its negative.

    Args:
        member: The member.
        other: The other one.
        secret: What both share.
        length: The length of the vector.

    Returns:
        The mask.
    """
    mask = stream(base64.urlsafe_b64decode(secret), length)
    return mask if member < other else np.uint64(0) - mask

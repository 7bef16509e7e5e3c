"""What ``--client-speeds`` names: a distribution, or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.params import build, one
from holdfast.speeds.client_speeds import ClientSpeeds
from holdfast.speeds.lognormal import LogNormal
from holdfast.speeds.speed_file import is_file, parse, read_bytes

LAWS = {LogNormal.name: LogNormal}


def law_of(text: str) -> LogNormal | None:
    """Return the distribution that a text names; None for a file."""
    return None if is_file(text) else build(one(text, "distribution of speeds"), LAWS, "distribution of speeds")


def read_speeds(text: str, seed: int, clients: Sequence[int], names: Sequence[str] = ()) -> ClientSpeeds:
    """Return the speeds that a text names.

    Args:
        text: Such as ``lognormal(1000)`` or ``speeds.csv``.
        seed: The seed of what is drawn.
        clients: The clients that have samples; a file must have all of them.
        names: The names of the clients, if they have any.

    Returns:
        The speeds.
    """
    law = law_of(text)
    if law is not None:
        return law.with_seed(seed)
    return parse(Path(text), read_bytes(Path(text)), clients, names)

"""Who the clients are: those that the data brings, by their names, or as many as are usual."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import shortened
from holdfast.data.dataset import DataSet
from holdfast.data.split_sum import read
from holdfast.data.usual_split import GIVEN, USUAL_CLIENTS, USUAL_SPLIT

log = logging.getLogger("holdfast")

NOBODY = -1  # the number of the client of a test sample that belongs to no client
LONGEST = 40  # characters of a client's name where it is shown


def brought_clients(data: DataSet) -> int:
    """Return the number of clients that a data set brings; 0: it is not divided among clients."""
    if data.on_demand is not None:
        return data.on_demand.clients
    if data.clients:
        return len(data.clients)
    return 0 if data.groups is None else len(torch.unique(data.groups))


def decide_clients(
    data: DataSet, split: str | None, clients: int | None, usual: int = USUAL_CLIENTS
) -> tuple[str, int]:
    """Decide how a data set is split, and among how many clients, as far as the user has left it open.

    Args:
        data: The data set.
        split: The split; None: ``given`` if the data brings clients, otherwise the usual one.
        clients: The number of clients; None: those that the data brings under ``given``, otherwise the usual number.
        usual: The usual number.

    Returns:
        The split and the number of clients.
    """
    brought = brought_clients(data)
    if split is None:
        split = GIVEN if brought else USUAL_SPLIT
    if not read(split).by_groups or not brought:
        return split, usual if clients is None else clients
    if clients is not None and data.clients and clients != brought:
        raise HoldfastError(
            f"clients is {clients}, but {data.name} brings {brought}: leave out clients, or use another split, such as "
            "iid"
        )
    return split, brought if clients is None else clients


def client_names(data: DataSet, split: str) -> tuple[str, ...]:
    """Return what to call each client of a federation; empty: clients have their numbers."""
    if not data.clients or not read(split).by_groups:
        return ()
    return names_to_show(data.clients)


def owners_of_tests(held: Sequence[str], numbers: Mapping[str, int], where: str) -> Tensor | None:
    """Return the client of every test sample.

    Args:
        held: The name of the client of every test sample; empty: they are not known.
        numbers: The number of every client.
        where: The data set, for a warning.

    Returns:
        Their numbers, int64 [n]; ``NOBODY`` for whoever has no training samples and thus is no client. None: unknown.
    """
    if not len(held):
        return None
    others = sorted({*held} - numbers.keys())
    if others:
        many, example = sum(name not in numbers for name in held), shortened(repr(others[0]))
        log.warning("%s: %d of %d test samples belong to nobody who has training samples, such as %s: they count in "
                    "the common test score alone", where, many, len(held), example)  # fmt: skip
    return torch.tensor([numbers.get(name, NOBODY) for name in held], dtype=torch.int64)


def check_names(what: str, names: Sequence[str]) -> None:
    """Raise an error if two clients have the same name."""
    twice = [name for name, many in Counter(names).items() if many > 1]
    if twice:
        raise HoldfastError(
            f"{what}: two clients are called {shortened(repr(twice[0]))}; give every client its own name"
        )


def names_to_show(names: Sequence[str]) -> tuple[str, ...]:
    """Return names on one line each and not too long; names that look the same then get their number.

    >>> names_to_show(["Bonn", "Mainz\\n"])
    ('Bonn', 'Mainz')
    """
    shown = [_one_line(name) for name in names]
    many = Counter(shown)
    return tuple(f"{text} (client {i})" if many[text] > 1 else text for i, text in enumerate(shown))


def _one_line(name: str) -> str:
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split()) or "''"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 13]}…{text[-12:]}"

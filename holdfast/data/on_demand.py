"""Data sets whose clients are made on demand: what ``from_clients`` does with a function."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import are_strings, labels, numbered
from holdfast.data.client_maker import ClientMaker, Make
from holdfast.data.dataset import DataSet
from holdfast.data.user_arrays import Inputs, check_alike, from_arrays, read_inputs, with_moments

SAMPLED = 100  # clients from whose samples mean and standard deviation are computed


@dataclass(frozen=True)
class ClientReader:
    """Turns what a function returns for a client into tensors like those of the test data, or raises an error.

    Attributes:
        channels: Where images have their channels.
        like: Inputs of the same type and shape.
        classes: The class names.
    """

    channels: str
    like: Inputs
    classes: tuple[str, ...]

    def __call__(self, who: str, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        if not len(y):
            raise HoldfastError(f"{who} has no samples: give every client at least one")
        inputs = read_inputs(f"x of {who}", x, self.channels)
        check_alike(f"x of {who}", inputs, "the test data", self.like)
        targets = self._targets(f"y of {who}", y)
        if len(targets) != len(inputs[0]):
            raise HoldfastError(f"{who} has {len(inputs[0])} inputs and {len(targets)} labels: give one per sample")
        return inputs[0], targets

    def _targets(self, what: str, y: Any) -> Tensor:
        if are_strings(y):
            return numbered(what, y, self.classes)[0]
        ids = labels(what, y)
        if int(ids.max()) >= len(self.classes):
            raise HoldfastError(
                f"{what} has the label {int(ids.max())}, expected 0 to {len(self.classes) - 1}: give classes="
            )
        return ids


def clients_on_demand(
    make: Make,
    test: tuple[Any, Any] | None,
    clients: int | None,
    *,
    threads: int = 1,
    classes: Sequence[str] | None = None,
    name: str = "clients",
    channels: str = "auto",
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    normalise: bool = True,
) -> DataSet:
    """Make a data set whose clients are made by a function when a round needs them.

    Args:
        make: Returns the inputs and labels of a client; a function of its number alone.
        test: The inputs and labels of a common test set.
        clients: The number of clients; by default ``len(make)``.
        threads: How many clients are made at the same time.
        classes: The class names; by default those of the test labels.
        name: The name of the data set.
        channels: Where images have their channels, as in ``from_arrays``.
        mean: The mean per channel or feature; by default that of 100 clients.
        std: The standard deviation per channel or feature; by default that of 100 clients.
        normalise: Whether to normalise inputs by ``mean`` and ``std``.

    Returns:
        The data set; its training samples are those of client 0.
    """
    if test is None:
        raise HoldfastError("clients made on demand need a common test set: give test=(x, y)")
    clients = len(make) if clients is None and isinstance(make, Sized) else clients
    for what, count in (("clients", clients), ("threads", threads)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise HoldfastError(f"{what} must be a whole number of at least 1, not {count}: set it, as {what}=1000")
    assert clients is not None
    held = from_arrays(*test, *test, classes=classes, name=name, channels=channels, normalise=False)
    reader = ClientReader(channels, (held.test_x, held.fields), held.classes)
    maker = ClientMaker(make, clients, reader, threads)
    maker.client(0)  # made twice, here and below: one that draws random numbers afresh is noticed at once
    x, y = maker.client(0)
    data = replace(held, x=x, y=y, on_demand=maker)
    if not normalise or held.fields:
        return data
    seen = data if len(mean) or len(std) else replace(data, x=maker.cohort(sampled(clients)).x)
    known = with_moments(seen, tuple(map(float, mean)), tuple(map(float, std)))
    return replace(data, mean=known.mean, std=known.std)


def sampled(clients: int) -> np.ndarray:
    """Return the clients whose samples decide the normalisation: all, or 100 at random, always the same."""
    draw = np.random.default_rng(0)
    return np.sort(draw.choice(clients, min(clients, SAMPLED), replace=False))

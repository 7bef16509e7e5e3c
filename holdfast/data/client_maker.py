"""Clients whose samples are made when a round needs them, by a function of the client's number."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.user_files import failure
from holdfast.data.deal import CohortDeal

Make = Callable[[int], tuple[Any, Any]]  # the number of a client -> its inputs and labels
Read = Callable[[str, Any, Any], tuple[Tensor, Tensor]]  # whose, inputs, labels -> checked tensors
SOME = 100  # clients whose samples set the scale of inputs and targets
REMEMBERED = 2**16  # clients whose checksum is kept, to notice that one has changed


class CohortSamples(NamedTuple):
    """The samples of some clients, in host memory, one client after the other."""

    x: Tensor
    y: Tensor
    deal: CohortDeal


@dataclass(frozen=True, eq=False)
class ClientMaker:
    """Makes clients one by one, and keeps none of them.

    Attributes:
        make: Returns the inputs and labels of a client; a function of its number alone.
        clients: The number of clients.
        read: Turns what ``make`` returns into tensors as they are stored, or raises an error.
        threads: How many clients are made at the same time.
        checksums: What some clients were when they were last made: the client and a checksum, by its place.
    """

    make: Make
    clients: int
    read: Read
    threads: int = 1
    checksums: dict[int, tuple[int, int]] = field(default_factory=dict)

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """Make a client; whatever is wrong with it is an error that names it."""
        try:
            made: Any = self.make(i)
        except HoldfastError as error:
            raise HoldfastError(f"client {i}: {error}") from error
        except Exception as error:
            raise failure(f"client {i}: the function that makes clients", error) from error
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            kind = f"{len(made)} values" if isinstance(made, (tuple, list)) else f"of type {type(made).__name__}"
            raise HoldfastError(f"client {i} is {kind}, expected a pair: return (x, y) from the function")
        x, y = self.read(f"client {i}", *made)
        self._check_unchanged(i, x, y)
        return x, y

    def cohort(self, ids: np.ndarray) -> CohortSamples:
        """Make some clients, given in ascending order."""
        if self.threads == 1:
            pairs = [self.client(i) for i in ids.tolist()]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                pairs = list(pool.map(self.client, ids.tolist()))
        offsets = np.cumsum([0, *(len(y) for _, y in pairs)])
        return CohortSamples(
            torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs]), CohortDeal(ids, offsets)
        )

    def some(self) -> CohortSamples:
        """Make the clients by which the scale of inputs and targets is set: all, or 100 at random, always the same."""
        chosen = np.random.default_rng(0).choice(self.clients, min(self.clients, SOME), replace=False)
        return self.cohort(np.sort(chosen))

    def _check_unchanged(self, i: int, x: Tensor, y: Tensor) -> None:
        """Raise an error if a client is not what it was. Labels and two samples are compared, for clients of late."""
        found = zlib.crc32(x[[0, -1]].numpy().tobytes(), zlib.crc32(y.numpy().tobytes(), len(y)))
        known, before = self.checksums.get(i % REMEMBERED, (i, found))
        if known == i and before != found:
            raise HoldfastError(
                f"client {i} has other samples than before: make it from its number alone, with random numbers from "
                f"np.random.default_rng({i}) and the like"
            )
        self.checksums[i % REMEMBERED] = i, found

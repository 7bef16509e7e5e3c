"""The contract of client speeds: what a virtual clock asks about some clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

BYTES = 1e6  # bytes of a megabyte


class Speeds(NamedTuple):
    """The speeds of some clients, float64 [C]; infinite where nothing slows a client down."""

    speed: np.ndarray  # samples per second in local training
    down: np.ndarray  # megabytes per second from the server
    up: np.ndarray  # megabytes per second to the server

    def transfer(self, down: int, up: int) -> np.ndarray:
        """Return the seconds in which each client receives and sends that many bytes."""
        seconds: np.ndarray = down / BYTES / self.down + up / BYTES / self.up
        return seconds

    def training(self, samples: np.ndarray) -> np.ndarray:
        """Return the seconds in which each client trains on that many samples."""
        seconds: np.ndarray = samples / self.speed
        return seconds


class ClientSpeeds(ABC):
    """What is known about the machines of all clients."""

    @property
    @abstractmethod
    def leaves(self) -> bool:
        """Whether a client may be away at all."""

    @abstractmethod
    def of(self, clients: np.ndarray) -> Speeds:
        """Return the speeds of some clients."""

    @abstractmethod
    def present(self, clients: np.ndarray, at: float) -> np.ndarray:
        """Return which clients are there at a time, bool [C]."""

    @abstractmethod
    def next_change(self, clients: np.ndarray, after: float) -> float:
        """Return a later time at which one of them may come; infinite if none ever does."""

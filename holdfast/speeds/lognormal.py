"""lognormal: most clients are about as fast as each other, a few are very slow."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from holdfast.core import rng
from holdfast.core.params import Named, param
from holdfast.speeds.client_speeds import ClientSpeeds, Speeds

COMPUTING, LINK, AWAY = 1, 2, 3  # what is drawn for a client


@dataclass(frozen=True)
class LogNormal(Named):
    """Every client's logarithm of speed is normal around that of the median; so is that of its link.

        speed_i  =  speed * exp(spread * z_i),    z_i ~ N(0, 1)

    Time is cut into periods, in each of which a client is away with probability ``away``, independently.
    """

    name = "lognormal"

    speed: float = param(1000.0, "median samples per second in local training", above=0)
    spread: float = param(0.5, "standard deviation of the logarithm of the speed", low=0)
    down: float = param(5.0, "median megabytes per second from the server", above=0)
    up: float = param(1.0, "median megabytes per second to the server", above=0)
    link_spread: float = param(0.5, "standard deviation of the logarithm of a client's link", low=0)
    away: float = param(0.0, "probability with which a client is away in a period", low=0, below=1)
    period: float = param(3600.0, "seconds of a period", above=0)

    def with_seed(self, seed: int) -> LogNormalSpeeds:
        """Return the speeds that a seed draws."""
        return LogNormalSpeeds(self, seed)


class LogNormalSpeeds(ClientSpeeds):
    """The speeds that a seed draws. A client's own do not depend on how many others there are."""

    def __init__(self, of: LogNormal, seed: int) -> None:
        self.law, self.seed = of, seed

    @property
    def leaves(self) -> bool:
        return self.law.away > 0

    def of(self, clients: np.ndarray) -> Speeds:
        law = self.law
        link = np.exp(law.link_spread * self._normal(LINK, clients))
        return Speeds(law.speed * np.exp(law.spread * self._normal(COMPUTING, clients)), law.down * link, law.up * link)

    def present(self, clients: np.ndarray, at: float) -> np.ndarray:
        words = rng.numbers(self.seed, rng.SPEED, AWAY, math.floor(at / self.law.period), clients)
        there: np.ndarray = words >= self.law.away * (rng.MASK + 1)
        return there

    def next_change(self, clients: np.ndarray, after: float) -> float:
        period = self.law.period
        return (math.floor(after / period) + 1) * period

    def _normal(self, what: int, clients: np.ndarray) -> np.ndarray:
        keys = rng.key(self.seed, rng.SPEED, what, torch.as_tensor(np.asarray(clients, np.int64)))
        drawn: np.ndarray = rng.gaussian(keys).numpy()
        return drawn

"""How many local epochs each client trains in a round: a function of the seed, the round and the client."""

from __future__ import annotations

import numpy as np

from holdfast.core import rng
from holdfast.method.config import Config


def draw_epochs(config: Config, ids: np.ndarray, round: int) -> np.ndarray:
    """Draw the local epochs of some clients, each number of the run's range with the same probability.

    Args:
        config: The run; with a single number of epochs there is nothing to draw.
        ids: The clients.
        round: The number of the round, from 1.

    Returns:
        The epochs of each client, int64 [C].

    >>> draw_epochs(Config(epochs="2-5"), np.arange(8), round=1).tolist()
    [4, 2, 4, 4, 3, 2, 3, 4]
    """
    low, high = config.epoch_range
    return low + rng.numbers(config.seed, rng.EPOCHS, round, ids) % (high - low + 1)

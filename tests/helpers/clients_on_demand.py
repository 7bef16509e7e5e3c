"""Clients made by a function of their number, and the same clients as a list."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast import DataSet, Federation, federate, from_clients

FEATURES, CLASSES = 6, 3
SCALE: dict[str, Any] = {"mean": [0.5] * FEATURES, "std": [2.0] * FEATURES, "classes": ["a", "b", "c"]}


def make(i: int) -> tuple[np.ndarray, np.ndarray]:
    """3 to 13 samples, whose classes are shifted apart."""
    draw = np.random.default_rng([7, i])
    n = 3 + i * 7 % 11
    y = draw.integers(0, CLASSES, n)
    return (draw.normal(size=(n, FEATURES)) + y[:, None]).astype(np.float32), y


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Samples of clients that nobody draws."""
    others = [make(10**6 + i) for i in range(5)]
    return np.concatenate([x for x, _ in others]), np.concatenate([y for _, y in others])


def on_demand(clients: int, make: Any = make, **options: Any) -> DataSet:
    """These clients, made when they are drawn."""
    return from_clients(make, held_out(), clients=clients, **SCALE | options)


def federated(clients: int, make: Any = make, **options: Any) -> Federation:
    """A federation of clients made when they are drawn."""
    return federate(on_demand(clients, make, **options))


def listed(clients: int, make: Any = make, **options: Any) -> Federation:
    """A federation of the same clients, all in memory."""
    pairs = [make(i) for i in range(clients)]
    return federate(from_clients(pairs, held_out(), **SCALE | options))

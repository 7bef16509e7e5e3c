"""What each machine knows of a federation: a node its own clients' samples, the server test and public data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import labels, samples
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, federate, refuse_bad_samples
from holdfast.data.sources import load
from holdfast.data.splits import Deal
from holdfast.method.config import Config

Pair = tuple[Any, Any]  # samples and labels
OwnData = Callable[[int, Mapping[str, Any]], Pair]  # (client, the node's own settings) -> its samples and labels
SPLIT = "nodes"  # the name of a split that no one made: each node brings its own data


@lru_cache(maxsize=1)
def dealt(config: Config) -> Federation:
    """A known data set, dealt as every machine of the run deals it."""
    data = load(config.data, Path(config.data_dir) if config.data_dir else None)
    return federate(data, config.split, config.clients, config.seed, config.public, config.augment)


def brought(pairs: Mapping[int, Pair], config: Config, classes: int) -> Federation:
    """The clients' own data, as a node reads them; the samples must be ready for the network."""
    xs = {i: samples(f"x of client {i}", x) for i, (x, _) in pairs.items()}
    ys = {i: labels(f"y of client {i}", y) for i, (_, y) in pairs.items()}
    for i, x in xs.items():
        if len(x) != len(ys[i]) or len(x) == 0:
            raise HoldfastError(f"client {i} has {len(x)} samples and {len(ys[i])} labels: give as many, at least one")
    x, y = torch.cat([xs[i] for i in sorted(xs)]), torch.cat([ys[i] for i in sorted(ys)])
    names = tuple(map(str, range(classes)))
    refuse_bad_samples(DataSet(config.data, x, y, x, y, names))
    offsets = np.cumsum([0, *(len(xs[i]) if i in xs else 0 for i in range(config.clients))])
    deal = Deal(np.arange(len(y)), offsets)
    data = DataSet(config.data, x, y, x[:0], y[:0], names)
    return Federation(data, deal, SPLIT, config.seed, torch.empty(0, dtype=torch.int64), config.augment)


def held(test: Pair, public: Pair | None, config: Config, classes: int) -> Federation:
    """What the server has: a test set, and perhaps public data."""
    test_x, test_y = samples("test x", test[0]), labels("test y", test[1])
    names = tuple(map(str, range(classes)))
    refuse_bad_samples(DataSet(config.data, test_x, test_y, test_x, test_y, names))
    data = DataSet(config.data, test_x[:0], test_y[:0], test_x, test_y, names)
    nobody = Deal(np.arange(0), np.zeros(config.clients + 1, np.int64))
    fed = Federation(data, nobody, SPLIT, config.seed, torch.empty(0, dtype=torch.int64), config.augment)
    return fed if public is None else fed.with_public(samples("public x", public[0]), labels("public y", public[1]))


def clients_of(config: Config, node: Mapping[str, Any]) -> list[int]:
    """The clients of a node, from its own settings ``partition-id`` and ``num-partitions``."""
    number, nodes = node.get("partition-id"), node.get("num-partitions")
    if not isinstance(number, int) or not isinstance(nodes, int) or not 0 <= number < nodes:
        raise HoldfastError(
            "the node does not know its place: start it with --node-config 'partition-id=0 num-partitions=3', counted "
            "from 0"
        )
    return list(range(number, config.clients, nodes))


def own_classes(classes: int | Sequence[str] | None) -> int:
    if classes is None:
        raise HoldfastError("with data of one's own, client_app and server_app need classes=, their number")
    return classes if isinstance(classes, int) else len(classes)

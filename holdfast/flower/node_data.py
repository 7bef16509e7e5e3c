"""The data that each machine sees: a node its own clients' samples, the server test and public data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import labels
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, read_augmentations, refuse_bad_samples
from holdfast.data.given_clients import check_names, names_to_show
from holdfast.data.loss_weights import with_loss_weights
from holdfast.data.splits import Deal
from holdfast.data.user_arrays import check_alike, read_inputs
from holdfast.method.config import Config
from holdfast.runs.setup import deal

Pair = tuple[Any, Any]  # samples and labels
ReadData = Callable[[int, Mapping[str, Any]], Pair]  # (client, the node's settings) -> its samples and labels
CLIENT_NAMES = "clients"  # the setting of a node that names its clients
SPLIT_BY_NODES = "nodes"  # the name of the split when each node brings its own data


@lru_cache(maxsize=1)
def split_data(config: Config) -> Federation:
    """Return the federation of a data set by name; every machine of the run computes the same one."""
    return with_loss_weights(deal(config), config.class_weights, config.pos_weight)


def node_federation(
    pairs: Mapping[int, Pair], config: Config, classes: int, client_names: tuple[str, ...] = ()
) -> Federation:
    """Make the federation that a node sees from its clients' own data.

    Args:
        pairs: The samples and labels of each client of the node; the samples must be ready for the network. A
            dictionary or a tuple of arrays is several inputs.
        config: The run.
        classes: The number of classes.
        client_names: What to call each client of the federation, if clients have names.

    Returns:
        The federation. Clients of other nodes have no samples in it.
    """
    who = {i: f"client {client_names[i] if client_names else i}" for i in pairs}
    inputs = {i: read_inputs(f"x of {who[i]}", x) for i, (x, _) in sorted(pairs.items())}
    ys = {i: labels(f"y of {who[i]}", y) for i, (_, y) in sorted(pairs.items())}
    first = min(inputs)
    for i, own in inputs.items():
        check_alike(f"x of {who[i]}", own, f"x of {who[first]}", inputs[first])
        if len(own[0]) != len(ys[i]):
            raise HoldfastError(
                f"{who[i]} has {len(own[0])} samples and {len(ys[i])} labels: return one label per sample, and at "
                "least one sample"
            )
    x, y = torch.cat([own for own, _ in inputs.values()]), torch.cat(list(ys.values()))
    names = tuple(map(str, range(classes)))
    refuse_bad_samples(DataSet(config.data, x, y, x, y, names))
    offsets = np.cumsum([0, *(len(ys[i]) if i in ys else 0 for i in range(config.client_count))])
    held = Deal(np.arange(len(y)), offsets)
    data = DataSet(config.data, x, y, x[:0], y[:0], names, fields=inputs[first][1])
    return replace(_split_by_nodes(data, held, config), client_names=client_names)


def server_federation(test: Pair, public: Pair | None, config: Config, classes: int) -> Federation:
    """Make the federation that the server sees when each node brings its own data.

    Args:
        test: The samples and labels of the test set.
        public: The samples and labels of the public data, if any.
        config: The run.
        classes: The number of classes.

    Returns:
        The federation. No client has samples in it.
    """
    inputs, test_y = read_inputs("test x", test[0]), labels("test y", test[1])
    test_x, fields = inputs
    names = tuple(map(str, range(classes)))
    refuse_bad_samples(DataSet(config.data, test_x, test_y, test_x, test_y, names))
    data = DataSet(config.data, test_x[:0], test_y[:0], test_x, test_y, names, fields=fields)
    nobody = Deal(np.arange(0), np.zeros(config.client_count + 1, np.int64))
    federation = _split_by_nodes(data, nobody, config)
    if public is None:
        return federation
    known = read_inputs("public x", public[0])
    check_alike("public x", known, "test x", inputs)
    return federation.with_public(known[0], labels("public y", public[1]))


def _split_by_nodes(data: DataSet, held: Deal, config: Config) -> Federation:
    """Make a federation of a machine's own samples, without public data."""
    private, shared = read_augmentations(data, config.augment, config.augment_public)
    none = torch.empty(0, dtype=torch.int64)
    federation = Federation(data, held, SPLIT_BY_NODES, config.deal_seed, none, private, augment_public=shared)
    return with_loss_weights(federation, config.class_weights, config.pos_weight)


def clients_of(config: Config, node_config: Mapping[str, Any]) -> list[int]:
    """Return the clients of a node, from its settings ``partition-id`` and ``num-partitions``."""
    number, nodes = node_config.get("partition-id"), node_config.get("num-partitions")
    if not isinstance(number, int) or not isinstance(nodes, int) or not 0 <= number < nodes:
        raise HoldfastError(
            f"the node has partition-id {number} and num-partitions {nodes}, but needs its number, counted from 0, and "
            "the number of nodes: start it with --node-config 'partition-id=0 num-partitions=3'"
        )
    return list(range(number, config.client_count, nodes))


def declared_names(node_config: Mapping[str, Any], clients: Sequence[int], count: int) -> tuple[str, ...]:
    """Return what a node calls its clients in its setting ``clients``, such as ``clients="Bonn, Ulm"``.

    Args:
        node_config: The node's settings.
        clients: Its clients, in the order of the names.
        count: The number of clients of the federation.

    Returns:
        A name for every client of the federation, those of other nodes by their number; empty if the node names none.
    """
    names = [name.strip() for name in str(node_config.get(CLIENT_NAMES, "")).split(",") if name.strip()]
    if not names:
        return ()
    if len(names) != len(clients):
        raise HoldfastError(
            f"the node names {len(names)} clients, but has {len(clients)}: write one name for each, separated by "
            f"commas, in {CLIENT_NAMES} of --node-config"
        )
    check_names(CLIENT_NAMES, names)
    own = dict(zip(clients, names_to_show(names), strict=True))
    return tuple(own.get(i, str(i)) for i in range(count))


def class_count(classes: int | Sequence[str] | None) -> int:
    """Return the number of classes that the user states for the nodes' own data."""
    if classes is None:
        raise HoldfastError(
            "client_app and server_app do not know the number of classes of your own data: set it with classes="
        )
    return classes if isinstance(classes, int) else len(classes)

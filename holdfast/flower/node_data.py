"""The data that each machine sees: a node its own clients' samples, the server test and public data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.data.arrays import labels
from holdfast.data.dataset import DataSet
from holdfast.data.federation import Federation, read_augmentations, refuse_bad_samples
from holdfast.data.given_clients import check_names, names_to_show
from holdfast.data.loss_weights import with_loss_weights
from holdfast.data.normalisation import FEDERATED, OFF, PUBLISHED
from holdfast.data.prepare import channelled
from holdfast.data.splits import Deal
from holdfast.data.targets import output_names, stored_targets, task_of
from holdfast.data.user_arrays import Inputs, check_alike, read_inputs
from holdfast.data.validation import CLIENT_TEST, CLIENTS, HeldOut, hold_out_of_clients
from holdfast.method.config import Config
from holdfast.runs.setup import deal as deal_data
from holdfast.tasks.task import CLASS, TOKENS, Task

Pair = tuple[Any, Any]  # samples and targets
Outputs = int | Sequence[str] | None  # how many outputs a network has, or their names
ReadData = Callable[[int, Mapping[str, Any]], Pair]  # (client, the node's settings) -> its samples and labels
CLIENT_NAMES = "clients"  # the setting of a node that names its clients
SPLIT_BY_NODES = "nodes"  # the name of the split when each node brings its own data


@lru_cache(maxsize=1)
def split_data(config: Config) -> Federation:
    """Return the federation of a data set by name; every machine of the run computes the same one."""
    return with_loss_weights(deal_data(config), config.class_weights, config.pos_weight)


def node_federation(
    pairs: Mapping[int, Pair],
    config: Config,
    classes: Outputs = None,
    client_names: tuple[str, ...] = (),
    tests: Mapping[int, Pair] | None = None,
) -> Federation:
    """Make the federation that a node sees from its clients' own data.

    Args:
        pairs: The samples and targets of each client of the node. A dictionary or a tuple of arrays is several inputs.
        config: The run.
        classes: The outputs of the network, as a number or by name.
        client_names: What to call each client of the federation, if clients have names.
        tests: Test samples and targets of each client; by default a fraction of its samples, if the run scores clients.

    Returns:
        The federation. Clients of other nodes have no samples in it.
    """
    who = {i: f"client {client_names[i] if client_names else i}" for i in pairs}
    own = {i: read_inputs(f"x of {who[i]}", pairs[i][0]) for i in sorted(pairs)}
    first = min(own)
    task = task_of(config.task, pairs[first][1], own[first][0])
    ys = {i: read_targets(f"y of {who[i]}", pairs[i][1], task) for i in own}
    for i, inputs in own.items():
        check_alike(f"x of {who[i]}", inputs, f"x of {who[first]}", own[first])
        if len(inputs[0]) != len(ys[i]):
            raise HoldfastError(
                f"{who[i]} has {len(inputs[0])} samples and {len(ys[i])} labels: return one label per sample, and at "
                "least one sample"
            )
    xs, held = {i: x for i, (x, _) in own.items()}, HeldOut(config.validation, CLIENTS, client_fraction(config))
    deal, judged = dealt(ys, config.client_count, 0), None
    tested = None
    if tests is not None and held.client_test:
        more = {i: read_pair(f"test samples of {who[i]}", tests[i], task, own[first]) for i in sorted(tests)}
        tested = dealt({i: y for i, (_, y) in more.items()}, config.client_count, len(deal.index))
        xs, ys = ({**a, **{-1 - i: pair[k] for i, pair in more.items()}} for k, a in enumerate((xs, ys)))
    elif held.client_test:
        deal, tested = hold_out_of_clients(deal, held.client_test, config.deal_seed, CLIENT_TEST)
    if held.validation:
        deal, judged = hold_out_of_clients(deal, held.validation, config.deal_seed)
    x, y = torch.cat(list(xs.values())), torch.cat(list(ys.values()))
    data = DataSet(config.data, x, y, x[:0], y[:0], outputs_of(classes, task, y), fields=own[first][1], task=task)
    refuse_bad_samples(replace(data, test_x=x, test_y=y))
    found = _split_by_nodes(data, deal, config, held)
    return replace(found, client_names=client_names, validation=judged, client_test=tested)


def dealt(ys: Mapping[int, Tensor], clients: int, start: int) -> Deal:
    """Return the deal of samples that are stored client after client, from number ``start`` on."""
    sizes = [len(ys[i]) if i in ys else 0 for i in range(clients)]
    return Deal(np.arange(start, start + sum(sizes)), np.cumsum([0, *sizes]))


def client_fraction(config: Config) -> float:
    """Return the fraction of samples that clients hold out as their test samples; 0 if the run does not score them."""
    return config.client_test if config.client_eval else 0.0


def read_targets(what: str, y: Any, task: Task) -> Tensor:
    """Read a user's targets as the task stores them."""
    return labels(what, y) if task.has_classes else stored_targets(what, y, task)


def read_pair(what: str, pair: Pair, task: Task, like: Inputs) -> tuple[Tensor, Tensor]:
    """Read samples and targets.

    Args:
        what: What they are, for errors.
        pair: The samples and targets.
        task: What is predicted.
        like: Samples of the same kind.

    Returns:
        Both, as they are stored.
    """
    inputs, y = read_inputs(what, pair[0]), read_targets(what, pair[1], task)
    check_alike(what, inputs, "the training samples", like)
    if len(inputs[0]) != len(y):
        raise HoldfastError(f"{what}: {len(inputs[0])} samples have {len(y)} labels: return one label per sample")
    return inputs[0], y


def outputs_of(classes: Outputs, task: Task, y: Tensor) -> tuple[str, ...]:
    """Return the names of the network's outputs.

    Args:
        classes: What the user says: their number or their names.
        task: What is predicted.
        y: Targets. They say how many labels or numbers there are, but not how many classes or tokens.

    Returns:
        The names; numbers if they have none.
    """
    if classes is None and task.targets in (CLASS, TOKENS):
        noun = "classes" if task.has_classes else "tokens"
        raise HoldfastError(
            f"client_app and server_app do not know the number of {noun} of your own data: set it with classes="
        )
    if isinstance(classes, int) and task.targets in (CLASS, TOKENS):
        return tuple(map(str, range(classes)))
    return output_names(y, task, None if classes is None or isinstance(classes, int) else tuple(classes))


def server_federation(
    test: Pair,
    public: Pair | None,
    config: Config,
    classes: Outputs = None,
    normalise: str = FEDERATED,
    scale: tuple[Sequence[float], Sequence[float]] = ((), ()),
) -> Federation:
    """Make the federation that the server sees when each node brings its own data.

    Args:
        test: The samples and targets of the test set.
        public: The samples and labels of the public data, if any.
        config: The run.
        classes: The outputs of the network, as a number or by name.
        normalise: Where the mean and standard deviation of inputs come from: ``federated``, ``published`` or ``off``.
        scale: The mean and standard deviation per channel or feature, if they are published.

    Returns:
        The federation. No client has samples in it.
    """
    inputs = read_inputs("test x", test[0])
    test_x, fields = inputs
    task = task_of(config.task, test[1], test_x)
    test_y = read_targets("test y", test[1], task)
    data = DataSet(
        config.data, test_x, test_y, test_x, test_y, outputs_of(classes, task, test_y), fields=fields, task=task
    )
    refuse_bad_samples(data)
    mean, std = check_scale(normalise, scale, test_x)
    data = replace(data, x=test_x[:0], y=test_y[:0], normalise=OFF if fields else normalise, mean=mean, std=std)
    nobody = dealt({}, config.client_count, 0)
    held = HeldOut(config.validation, CLIENTS, client_fraction(config))
    found = _split_by_nodes(data, nobody, config, held)
    if public is None:
        return found
    known = read_inputs("public x", public[0])
    check_alike("public x", known, "test x", inputs)
    return found.with_public(known[0], read_targets("public y", public[1], task))


def check_scale(
    normalise: str, scale: tuple[Sequence[float], Sequence[float]], x: Tensor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Check how the user wants inputs to be normalised.

    Args:
        normalise: The choice.
        scale: The mean and standard deviation, if the user gives them.
        x: Inputs.

    Returns:
        The mean and standard deviation; empty unless they are published.
    """
    mean, std = (tuple(map(float, values)) for values in scale)
    if normalise not in (FEDERATED, PUBLISHED, OFF):
        raise HoldfastError(
            f"normalise must be {FEDERATED}, {PUBLISHED} or {OFF} where nodes bring their own data, not {normalise}; "
            "use one of them"
        )
    if normalise != PUBLISHED:
        if mean or std:
            raise HoldfastError(f"mean and std are given, but normalise is {normalise}; use normalise={PUBLISHED}")
        return (), ()
    channels = channelled(x).shape[1]
    if not len(mean) == len(std) == channels or not all(s > 0 for s in std):
        raise HoldfastError(
            f"normalise={PUBLISHED} needs mean and std with {channels} numbers each, one per channel or feature, with "
            "std above 0; give both"
        )
    return mean, std


def _split_by_nodes(data: DataSet, deal: Deal, config: Config, held: HeldOut) -> Federation:
    """Make a federation of a machine's own samples, without public data."""
    private, shared = read_augmentations(data, config.augment, config.augment_public)
    data = replace(data, y=data.task.scaled(data.y), test_y=data.task.scaled(data.test_y))
    nobody = Deal(np.arange(0), np.zeros_like(deal.offsets))
    federation = Federation(
        data,
        deal,
        SPLIT_BY_NODES,
        config.deal_seed,
        torch.empty(0, dtype=torch.int64),
        private,
        augment_public=shared,
        validation=nobody if held.validation else None,
        client_test=nobody if held.client_test else None,
        held_out=held,
    )
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

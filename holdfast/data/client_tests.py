"""Test samples of every client: those that the data brings, or a fraction held out of the client's own samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.data.dataset import DataSet
from holdfast.data.deal import Deal, group_by_owner
from holdfast.data.given_clients import NOBODY
from holdfast.data.split_sum import read
from holdfast.data.validation import CLIENT_TEST, hold_out_of_clients, refuse_nothing


def with_client_tests(
    data: DataSet, deal: Deal, split: str, fraction: float, seed: int
) -> tuple[DataSet, Deal, Deal | None]:
    """Give every client test samples that it does not train on.

    If clients are those of the data, and the data says whose test samples are whose, clients get these. They are stored
    after the training samples, so that they are read like all other samples of a client. Clients without training
    samples have no test samples either.

    Args:
        data: The data set.
        deal: The samples of every client.
        split: The split that made the deal.
        fraction: How much to hold out of every client otherwise; 0: clients have no test samples.
        seed: The seed of the choice.

    Returns:
        The data set, what is left for training, and the test samples.
    """
    if not fraction:
        return data, deal, None
    if not 0 < fraction < 1:
        raise HoldfastError(f"client_test must be a fraction in (0, 1), not {fraction:g}; use one such as 0.2")
    if data.test_groups is None or not read(split).by_groups:
        deal, held = hold_out_of_clients(deal, fraction, seed, CLIENT_TEST)
        refuse_nothing(held, fraction, CLIENT_TEST)
        return data, deal, held
    owner = data.test_groups.cpu().numpy()
    if len(owner) and not NOBODY <= owner.min() <= owner.max() < deal.clients:
        raise HoldfastError(
            f"the test samples of {data.name} belong to clients {owner.min()} to {owner.max()}, but there are "
            f"{deal.clients}, numbered from 0; fix test_groups"
        )
    tested = np.flatnonzero((owner != NOBODY) & (deal.sizes[owner] > 0))
    found = group_by_owner(owner[tested], deal.clients, deal.noise)
    held = Deal(len(data.y) + tested[found.index], found.offsets, deal.noise)
    x, y = torch.cat([data.x, data.test_x]), torch.cat([data.y, data.test_y])
    return replace(data, x=x, y=y), deal, held

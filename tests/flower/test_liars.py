"""Nodes that lie within the rules of the messages, and what robust means and bounds make of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from helpers.flower_toys import MemoryGrid, changed, on_grid
from holdfast import Method
from holdfast.flower.messages import TRAIN
from holdfast.runs.setup import prepare_simulation

FIVE = {"clients": 5, "cohort": 5, "split": "iid", "model": "linear", "rounds": 3, "epochs": 1}


def lying_grid(method: str, factor: float) -> MemoryGrid:
    """Five nodes, the second of which multiplies everything that its client uploads."""

    def trouble(request, reply):
        numbers = request.content["numbers"]
        if request.metadata.message_type != TRAIN or numbers["clients"] != [1]:
            return reply
        arrays = reply.content["arrays"]
        lies = {name: array.numpy() * np.float32(factor) for name, array in arrays.items() if not name.endswith("loss")}
        return changed(reply, **{name: lie.astype(arrays[name].numpy().dtype) for name, lie in lies.items()})

    return MemoryGrid({**FIVE, "data": "digits", "batch": 64, "device": "cpu", "method": method}, 5, trouble)


def test_one_node_of_five_owns_the_plain_mean():
    honest = on_grid("fedavg", nodes=5, **FIVE).history[-1].test_accuracy
    assert honest > 0.7
    assert on_grid("fedavg", lying_grid("fedavg", -100.0), nodes=5, **FIVE).history[-1].test_accuracy < 0.5


@pytest.mark.parametrize("factor", [-100.0, 1e30])
@pytest.mark.parametrize("method", ["median", "trimmed(0.2)", "scaffold+geometric_median", "norm_bound+trimmed(0.2)"])
def test_it_does_not_own_a_robust_one(method, factor):
    honest = on_grid(method, nodes=5, **FIVE).history[-1].test_accuracy
    lied = on_grid(method, lying_grid(method, factor), nodes=5, **FIVE)
    assert lied.history[-1].test_accuracy > honest - 0.15
    assert torch.isfinite(lied.w).all()


def test_a_node_that_is_left_out_is_named():
    method = "norm_bound(3, drop=true)"
    lied = on_grid(method, lying_grid(method, -100.0), nodes=5, **FIVE)
    assert [record.skipped for record in lied.history] == [[1]] * 3


def test_the_cap_bounds_who_enrols_with_many_samples():
    """An enrolled count is believed, up to the cap."""
    deltas, n, lie = {}, {}, 10**12

    def trouble(request, reply):
        numbers = dict(reply.content["numbers"])
        if request.metadata.message_type == TRAIN:
            for client, count in zip(numbers["clients"], numbers["n"], strict=True):
                deltas[client], n[client] = reply.content["arrays"][f"{client}/delta"].numpy(), count
        numbers["n"] = [
            lie if client == 1 else count for client, count in zip(numbers["clients"], numbers["n"], strict=True)
        ]
        return Message(RecordDict({**reply.content, "numbers": ConfigRecord(numbers)}), reply_to=request)

    settings = {**FIVE, "rounds": 1, "max_weight": 0.5}
    grid = MemoryGrid({**settings, "data": "digits", "batch": 64, "device": "cpu", "method": "fedavg"}, 5, trouble)
    ran = on_grid("fedavg", grid, nodes=5, **settings)
    others = [i for i in range(5) if i != 1]
    rest = sum(n[i] * deltas[i] for i in others) / sum(n[i] for i in others)
    moved = (
        ran.w.numpy() - prepare_simulation(ran.config.changed(engine="loop"), Method.parse("fedavg")).server.w.numpy()
    )
    assert np.allclose(moved, 0.5 * deltas[1] + 0.5 * rest, atol=1e-6)

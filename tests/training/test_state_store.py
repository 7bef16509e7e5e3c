"""States on disk are the states in memory."""

from __future__ import annotations

import gc

import pytest
import torch

import holdfast
from holdfast.training.state_store import DiskStore

STATE = {"a": {"x": torch.arange(3.0), "n": torch.tensor(2)}, "b": {"y": torch.ones(2, 2, dtype=torch.float64)}}


def test_what_is_put_comes_back_and_goes_with_the_store():
    disk = DiskStore(torch.device("cpu"))
    disk[7] = STATE
    disk[3] = {"a": {"x": torch.zeros(1)}}
    assert list(disk) == [3, 7]
    assert len(disk) == 2
    for part, tensors in STATE.items():
        for name, t in tensors.items():
            found = disk[7][part][name]
            assert torch.equal(found, t)
            assert found.dtype == t.dtype
    del disk[3]
    assert disk.get(3) is None
    folder = disk.folder
    assert folder.exists()
    del disk
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("method", ["scaffold", "feddyn(0.1)", "moon", "fedagg"])
def test_a_run_is_the_same_with_its_states_on_disk(method, tmp_path):
    settings = {"rounds": 3, "clients": 6, "cohort": 3, "epochs": 1, "model": "linear"}
    memory = holdfast.run(method, **settings)
    disk = holdfast.run(method, states="disk", **settings)
    assert torch.equal(memory.w, disk.w)
    holdfast.run(method, states="disk", out=tmp_path / "run", **settings | {"rounds": 2})
    again = holdfast.run(method, out=tmp_path / "run", resume=True, states="disk", rounds=3)
    assert torch.equal(memory.w, again.w)

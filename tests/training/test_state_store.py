"""States on disk are the states in memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import holdfast
from holdfast.training.state_store import PREFIX, DiskStore

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


def test_folders_of_dead_processes_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os, torch\nfrom holdfast.training.state_store import DiskStore\n"
    code += "disk = DiskStore(torch.device('cpu'))\ndisk[0] = {'a': {'x': torch.ones(2)}}\nos.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)})
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    assert [p.name for p in left.iterdir()] == ["0.npz"]
    alive, foreign = tmp_path / f"{PREFIX}{os.getppid()}-a", tmp_path / f"{PREFIX}mine-b"
    alive.mkdir()
    foreign.mkdir()
    disk = DiskStore(torch.device("cpu"))
    assert {*tmp_path.iterdir()} == {alive, foreign, disk.folder}


@pytest.mark.parametrize("method", ["scaffold", "feddyn(0.1)", "moon", "fedagg"])
def test_a_run_is_the_same_with_its_states_on_disk(method, tmp_path):
    settings = {"rounds": 3, "clients": 6, "cohort": 3, "epochs": 1, "model": "linear"}
    memory = holdfast.run(method, **settings)
    disk = holdfast.run(method, states="disk", **settings)
    assert torch.equal(memory.w, disk.w)
    holdfast.run(method, states="disk", out=tmp_path / "run", **settings | {"rounds": 2})
    again = holdfast.run(method, out=tmp_path / "run", resume=True, states="disk", rounds=3)
    assert torch.equal(memory.w, again.w)

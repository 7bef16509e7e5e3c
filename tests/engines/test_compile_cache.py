"""A compiled step comes from PyTorch's cache on the disk in the next process, and never from an entry of other code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.places import ROOT

pytestmark = pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="needs a C++ compiler")

STEPS = """
import json, sys
from unittest import mock
import torch
from torch._dynamo.utils import counters
from torch._inductor import codecache, config
from holdfast.engines.cuda_graph import in_place

config.cpp.simdlen = 1  # to find out what the processor can do would take long
config.cpp_cache_precompile_headers = False

def linear(x, w, rate):  # a step of least squares
    return w - rate * x.T @ (x @ w - 1)

def changed(x, w, rate):
    return w + rate * x.T @ (x @ w - 1)

def found(step):
    counters.clear()
    x, w = torch.arange(12.0).reshape(4, 3) / 12, torch.ones(3, 1)
    rate = torch.tensor(0.1)
    run = in_place(lambda inputs, w: step(inputs[0], w, inputs[1]), (x, rate), w, compiled=True)
    expected = step(x, w.clone(), rate)
    run()
    assert torch.allclose(w, expected), (w, expected)
    return [counters["inductor"][f"fxgraph_cache_{what}"] for what in ("hit", "miss")]

print(json.dumps(found(linear)))
if sys.argv[1:]:
    with mock.patch.object(codecache, "torch_key", lambda: b"another version of PyTorch"):
        print(json.dumps(found(linear)))
    print(json.dumps(found(changed)))
"""


def test_the_next_process_finds_what_was_compiled_and_nothing_stale(tmp_path: Path):
    """The second process finds the step, but neither with another PyTorch nor for a step whose code was changed."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def hits_and_misses(*words: str) -> list[list[int]]:
        command = [sys.executable, "-c", STEPS, *words]
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line) for line in ran.stdout.splitlines()]

    assert hits_and_misses() == [[0, 1]]
    assert hits_and_misses("and stale ones") == [[1, 0], [0, 1], [0, 1]]

"""Clients side by side are the clients one after the other; long runs compile, and stay as they were decided."""

from __future__ import annotations

import shutil

import pytest
import torch
import torch._inductor

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.engines import choose
from holdfast.engines.choose import LONG_RUN, compiles, workers
from holdfast.method.config import Config
from holdfast.method.config_text import read_config

SETTINGS = {"rounds": 2, "clients": 6, "cohort": 4, "epochs": 1, "model": "cnn(width=4)", "engine": "loop"}


@pytest.mark.parametrize("method", ["fedavg", "scaffold+fedbug(0.4)", "fnr(0.5)", "fedagg", "fednlr+moon", "ccvr"])
def test_workers_change_nothing(method):
    settings = SETTINGS | ({"public": 0.1} if method.startswith("fnr") else {})
    one = holdfast.run(method, workers=1, **settings)
    three = holdfast.run(method, workers=3, **settings)
    assert torch.equal(one.w, three.w)
    assert [r.train_loss for r in one.history] == [r.train_loss for r in three.history]


def test_dropout_is_the_same_in_every_thread():
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 10)
    )
    settings = {k: v for k, v in SETTINGS.items() if k != "model"}
    found = [holdfast.run("fedavg", model=model, workers=n, **settings).w for n in (1, 4)]
    assert torch.equal(*found)


def test_an_error_in_a_worker_reaches_the_user(monkeypatch):
    def fail(*_: object) -> None:
        raise holdfast.HoldfastError("a client fails")

    monkeypatch.setattr("holdfast.engines.local_training.LocalTraining.end", fail)
    with pytest.raises(holdfast.HoldfastError, match="a client fails"):
        holdfast.run("fedavg", workers=2, **SETTINGS)


def test_how_many_workers():
    assert workers(5, False, "cuda", 2) == 5
    assert workers(None, True, "cuda", 10) == 1
    assert workers(None, False, "cpu", 10) == 1
    assert workers(None, True, "cpu", 10) == min(10, torch.get_num_threads())


def test_when_a_step_is_compiled(monkeypatch):
    assert compiles(True, "cpu", 1)
    assert not compiles(False, "cuda", 10**9)
    assert compiles(None, "cuda", 1)
    monkeypatch.setattr(choose.shutil, "which", lambda name: "/usr/bin/g++")
    assert compiles(None, "cpu", LONG_RUN)
    assert not compiles(None, "cpu", LONG_RUN - 1)
    monkeypatch.setattr(choose.shutil, "which", lambda name: None)
    assert not compiles(None, "cpu", LONG_RUN)


def test_a_resumed_run_does_not_decide_anew(tmp_path):
    """With its new number of rounds the run would compile; it goes on as it began."""
    settings = {"clients": 4, "cohort": 2, "epochs": 1, "model": "linear", "engine": "vector"}
    holdfast.run("fedavg", rounds=1, out=tmp_path / "run", **settings)
    assert read_config(tmp_path / "run" / "config.toml")["compile"] is False
    stopped: list[bool] = []

    def stop() -> bool:
        stopped.append(True)
        return True

    result = holdfast.run(out=tmp_path / "run", resume=True, rounds=10**6, stop=stop)
    assert result.config.compile is False
    assert Config(**read_config(tmp_path / "run" / "config.toml")).compile is False


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # of PyTorch's own imports
def test_a_compiled_run_on_the_cpu_is_the_run():
    settings = {"rounds": 2, "clients": 5, "cohort": 3, "epochs": 2, "model": "mlp(width=8)", "precision": "fp64"}
    method = "scaffold+fedbug(0.4)+clip(1)"
    loop = holdfast.run(method, engine="loop", **settings)
    compiled = holdfast.run(method, engine="vector", compile=True, **settings)
    moved = (loop.w - loop.net.initial).norm()
    assert float((compiled.w - loop.w).norm() / moved) < 1e-12


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "C++ compile error\n\nCommand:\ng++ a.cpp\na.cpp:1: fatal error: error writing to /t/a.s: No space left",
            None,
        ),
        ("No working C++ compiler found", "RuntimeError: No working C++ compiler found"),
    ],
)
def test_a_step_that_cannot_be_compiled(said, reason, monkeypatch):
    from torch._inductor.exc import InductorError

    def fail(*_, **__):
        raise InductorError(RuntimeError(said), None)

    monkeypatch.setattr(torch._inductor, "compile", fail)
    message = f"cannot compile the training step: {reason or 'error writing to /t/a.s: No space left'}; what was "
    with raises_exactly(f"{message}recorded is kept: fix that, or add --no-compile"):
        holdfast.run("fedavg", engine="vector", compile=True, rounds=1, model="linear", device="cpu")

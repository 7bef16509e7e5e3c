"""Devices by name, and GPUs dealt to processes; with stand-ins, since no GPU is needed to test who gets which."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.commands import TINY, call, config, good
from helpers.exact_errors import raises_exactly
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.pool import ProcessPool
from holdfast.core.devices import VISIBLE, deal_gpus, name_on_machine, pick_device, starting_on
from holdfast.core.expression import show
from holdfast.method.config import Config
from holdfast.reproduce.run_names import run_name
from holdfast.runs.folder import RunFolder
from holdfast.runs.resume import first_difference, resumed_config


def gpus(patch: pytest.MonkeyPatch, many: int, visible: str | None = None) -> None:
    """Let PyTorch report so many GPUs."""
    patch.setattr(torch.cuda, "is_available", lambda: many > 0)
    patch.setattr(torch.cuda, "device_count", lambda: many)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    if visible is None:
        patch.delenv(VISIBLE, raising=False)
    else:
        patch.setenv(VISIBLE, visible)


@pytest.mark.parametrize(
    ("many", "asked", "got"),
    [(0, "auto", "cpu"), (2, "auto", "cuda"), (2, "cuda", "cuda"), (2, "cuda:1", "cuda:1"), (2, "cpu", "cpu")],
)
def test_a_device_by_name(monkeypatch: pytest.MonkeyPatch, many: int, asked: str, got: str) -> None:
    gpus(monkeypatch, many)
    assert str(pick_device(asked)) == got


@pytest.mark.parametrize(
    ("many", "asked", "why"),
    [
        (2, "cuda:7", "device cuda:7 was requested, but there are 2 GPUs: use cuda:0 to cuda:1"),
        (1, "cuda:1", "device cuda:1 was requested, but there is 1 GPU: use cuda:0"),
        (0, "cuda:0", "device cuda:0 was requested, but PyTorch sees no CUDA GPU: use --device cpu"),
    ],
)
def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch, many: int, asked: str, why: str) -> None:
    gpus(monkeypatch, many)
    with raises_exactly(why):
        pick_device(asked)
    said = call("run", "fedavg", *TINY, "--device", asked)
    assert (said.code, said.err) == (2, f"holdfast: {why}\n")


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:01", "cuda:N", "cuda:1:2", "cpu:0", "gpu"])
def test_names_that_are_none(name: str) -> None:
    with raises_exactly(f"device must be one of auto, cpu, cuda, cuda:N, mps, not {show(name)}"):
        Config(device=name)


@pytest.mark.parametrize(("jobs", "many"), [(1, 2), (2, 2), (5, 2), (8, 3), (3, 8)])
def test_processes_are_dealt_evenly(monkeypatch: pytest.MonkeyPatch, jobs: int, many: int) -> None:
    gpus(monkeypatch, many)
    dealt = deal_gpus(jobs, ["auto", "cuda"])
    counts = Counter(dealt)
    assert len(dealt) == jobs
    assert len(counts) == min(jobs, many)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_only_visible_gpus_are_dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2, visible="5, GPU-3f")
    assert deal_gpus(3, ["auto"]) == ["5", "GPU-3f", "5"]
    assert name_on_machine(torch.device("cuda")) == "cuda:5"
    assert name_on_machine(torch.device("cuda:1")) == "cuda:GPU-3f"


@pytest.mark.parametrize(("many", "devices"), [(0, ["auto"]), (1, ["auto"]), (4, ["auto", "cuda:1"])])
def test_nothing_is_dealt(monkeypatch: pytest.MonkeyPatch, many: int, devices: list[str]) -> None:
    """There is nothing to choose from, or the user has chosen."""
    gpus(monkeypatch, many)
    assert deal_gpus(3, devices) == [None, None, None]


@pytest.mark.parametrize("before", [None, "0,1"])
def test_a_process_is_bound_while_it_starts(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    gpus(monkeypatch, 2, before)
    with starting_on("1"):
        assert os.environ[VISIBLE] == "1"
    assert os.environ.get(VISIBLE) == before
    with starting_on(None):
        assert os.environ.get(VISIBLE) == before


def test_which_gpu_it_is_does_not_matter_to_a_run() -> None:
    """Neither to its folder's name, nor to what its checkpoints cover, nor when it is resumed."""
    first, second, cpu = (Config(device=name) for name in ("cuda:0", "cuda:1", "cpu"))
    assert run_name(first) == run_name(second)
    folder = RunFolder(Path("none"))
    assert first_difference(first, vars(second)) is None
    assert first_difference(first, vars(cpu)) == ("device", "cuda:0", "cpu")
    assert first_difference(Config(), vars(cpu)) == ("device", "auto", "cpu")
    assert resumed_config(first, {"device": "cuda:1"}).device == "cuda:1"
    Path("none").mkdir(exist_ok=True)
    Path("none/history.jsonl").write_text("")
    assert folder.checksums(first, 0) == folder.checksums(second, 0) == folder.checksums(Config(device="cuda"), 0)
    assert folder.checksums(first, 0) != folder.checksums(cpu, 0)


class TellGpu(Executor):
    """Runs nothing, and says which GPU its process sees."""

    def run(self, *_: object) -> tuple[str, str]:
        return "diverged", f"{os.environ[VISIBLE]} {os.getpid()}"


class Ends(Observer):
    def __init__(self) -> None:
        self.whys: list[str] = []

    def end(self, task: object, state: str, why: str) -> None:
        self.whys.append(why)


def test_jobs_take_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process sees one GPU, the next one another."""
    gpus(monkeypatch, 2)
    tasks: Any = [SimpleNamespace(config=Config()) for _ in range(4)]
    watch = Ends()
    assert ProcessPool(2, TellGpu(), light=False).run(tasks, watch, lambda: False)
    assert len(watch.whys) == 4
    assert {why.split()[0] for why in watch.whys} == {"0", "1"}
    assert len(set(watch.whys)) == 2, "a process keeps its GPU"
    assert VISIBLE not in os.environ


def test_a_run_records_where_it_ran() -> None:
    good("run", "fedavg", *TINY, "--out", "here")
    assert (config("here")["device"], config("here")["ran_on"]) == ("auto", "cpu")


pytestmark = pytest.mark.usefixtures("elsewhere")

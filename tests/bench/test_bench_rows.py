"""The suites about rows, seeds, evaluations, first rounds and cells: small, on a CPU, and without a compiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch._inductor

from holdfast.bench import checkpoints, evaluation_share, first_round, skewed, table_cells
from holdfast.bench.workload import images
from holdfast.data.federation import Federation


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(shape: tuple[int, ...], samples: int, clients: int, **more: Any) -> Federation:
        return images((3, 8, 8), 20, clients, **(more | {"tests": 30}))

    for module in (skewed, evaluation_share, table_cells):
        monkeypatch.setattr(module, "images", small)
    monkeypatch.setattr(skewed, "BATCH", 10)
    monkeypatch.setattr(skewed, "EPOCHS", 2)
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)


def test_rounds_of_every_kind_of_clients(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(skewed, "CNN", "linear")
    rows = list(skewed.rounds(device="cpu"))
    assert [row.what for row in rows] == [
        "equal clients", "dirichlet(0.3)", "--participation 0.1 of 100 clients, equal clients",
        "--participation 0.1 of 100 clients, dirichlet(0.3)",
    ]  # fmt: skip
    assert all(row.ours > 0 for row in rows)
    assert rows[0].note.startswith("10 rows, 40 client-steps a round; first round ")
    assert list(skewed.rounds("resnet", "cpu")) == []


def test_seeds_against_equal_clients_at_the_same_width(monkeypatch: pytest.MonkeyPatch):
    skew = skewed.TimedClients(skewed.SKEWED, 10, skewed.ALL, 1)
    monkeypatch.setattr(skewed, "SHARED", [("linear", skew), ("mlp", skew)])
    monkeypatch.setattr(skewed, "NAMES", {"linear": "L"})
    (row,) = skewed.seeds("lin", "cpu")
    assert (row.what, row.unit) == ("L, dirichlet(0.3)", "us")
    assert row.base is not None
    assert row.ours > 0
    assert f"{row.ours / row.base:.3g} times equal clients" in row.note


def test_the_share_of_evaluations(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation_share, "RESNET", "linear")
    monkeypatch.setattr(evaluation_share, "NAMES", {"linear": "L"})
    (row,) = evaluation_share.rows("linear", "cpu")
    assert 0 < row.ours < 100
    assert row.base is not None
    assert "ms, uncaptured " in row.note


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("package", [True, False], ids=["checkpoints", "none"])
def test_cells_are_those_of_the_papers(package: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_cells, "find_spec", lambda name: package or None)
    own = {"model": "linear", "clients": 10, "precision": "fp32", "device": "cpu", "augment": False, "batch": 10}
    rows = list(table_cells.rows("fedbug", 1, compile=True, engine="vector", **own))
    name = "CIFAR-10, 10% participation, Dir(0.3), FedAvg / 40%"
    assert [row.what for row in rows] == [f"fedbug, table 1: {name}, tf32, 300 rounds"]
    assert rows[0].ours > 0
    assert f"3 runs of {name} share steps of" in rows[0].note
    assert not list(Path().iterdir())


def test_every_cell_is_in_its_paper():
    found = [table_cells.found(known, {}).config for known in table_cells.CELLS]
    assert [(c.model, c.rounds, c.precision) for c in found] == [("cnn", 300, "tf32"), ("vgg9", 500, "bf16")]


def test_the_first_round_with_an_empty_and_with_a_warm_cache(monkeypatch: pytest.MonkeyPatch):
    caches: list[str] = []

    def answer(command: list[str], env: dict[str, str]) -> dict[str, float]:
        assert command == [sys.executable, "-m", "holdfast.bench.first_round", "cnn", "cpu"]
        assert Path(env["TORCHINDUCTOR_CACHE_DIR"]).is_dir()
        caches.append(env["TORCHINDUCTOR_CACHE_DIR"])
        return {"first": 2.0, "later": 0.1, "before": 3.0, "traced": 0.5, "compiled": 1.0}

    monkeypatch.setattr(first_round, "answer", answer)
    empty, warm = first_round.rows("cnn", "cpu")
    assert (empty.what, warm.what) == ("cnn on cpu, empty cache", "cnn on cpu, warm cache")
    assert warm.note == "traced in 0.5 s, compiled in 1.0 s; a later round 100 ms; before the first 3.0 s"
    assert caches[0] == caches[1]


def test_what_the_engine_says_about_tracing_is_added_up(monkeypatch: pytest.MonkeyPatch):
    def small(*_: object) -> Federation:
        return images((3, 8, 8), 5, 10)

    monkeypatch.setattr("holdfast.bench.workload.images", small)
    found = first_round.measure("linear", "cpu")
    assert found["first"] > found["traced"] > 0
    assert found["compiled"] > 0
    assert found["later"] > 0


def test_checkpoints_on_a_gpu_need_their_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(checkpoints, "find_spec", lambda name: None)
    assert list(checkpoints.rows_on_gpu()) == []
    assert capsys.readouterr().out == (
        "\nskipped: checkpoints on the GPU, which need safetensors: pip install safetensors\n"
    )


def test_a_case_of_checkpoints_has_its_settings(monkeypatch: pytest.MonkeyPatch):
    asked: list[dict[str, Any]] = []

    def share(method: str, model: str, fed: object, prompt: bool, **settings: Any) -> tuple[float, float]:
        asked.append(settings)
        return 1.0, 2.0

    monkeypatch.setattr(checkpoints, "share", share)
    monkeypatch.setattr(checkpoints, "images", lambda *_: None)
    assert [row.what for row in checkpoints.rows_on_gpu()] == ["fedavg, cnn", "scaffold, cnn"]
    assert all(s == {"device": "cuda", "precision": "tf32", "epochs": 10, "batch": 50} for s in asked)

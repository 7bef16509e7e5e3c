"""Texts on Flower: as in simulation on nodes in this process, and on real processes on the loopback."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import holdfast
from helpers.flower_toys import on_grid
from helpers.play import speeches
from holdfast.flower.local_cluster import ClusterOptions, LinkSecurity, deploy
from holdfast.method.config import Config


def settings(folder: Path, predict: str) -> dict[str, Any]:
    """A play with four speakers in files of their own, two of them in a round."""
    folder.mkdir()
    for name, text in speeches(200).items():
        (folder / f"{name}.txt").write_text(text)
    return {
        "data": f"text('{folder}', predict={predict}, length=20, stride=10)", "split": "given", "clients": 4,
        "model": "lstm(embedding=4, hidden=8, layers=1)", "epochs": 1, "batch": 8, "lr": 1.0, "device": "cpu",
        "cohort": 2,
    }  # fmt: skip


@pytest.mark.parametrize("predict", ["next-character", "next-token"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_nodes_train_as_in_simulation(method: str, predict: str, tmp_path: Path) -> None:
    how = settings(tmp_path / "plays", predict) | {"rounds": 2}
    there = on_grid(method, **how)
    here = holdfast.run(method, engine="loop", **how)
    for a, b in zip(there.history, here.history, strict=True):
        assert a.cohort == b.cohort
        assert a.test == pytest.approx(b.test, rel=1e-5)
        assert ("perplexity" in a.test) == (predict == "next-token")
    assert there.predict("to be or not").tolist() == here.predict("to be or not").tolist()


def test_a_local_deployment_on_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    how = settings(tmp_path / "plays", "next-token") | {"rounds": 1}
    config = Config(**how, method="fedavg", engine="flower")
    values = {k: v for k, v in asdict(config).items() if v is not None}
    out = tmp_path / "run"
    deploy(values | {"timeout": 120.0}, ClusterOptions(out, 2, LinkSecurity(tls=False, auth=False)))
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    here = holdfast.run("fedavg", engine="loop", **how)
    assert [line["cohort"] for line in lines] == [record.cohort for record in here.history]
    for name in ("loss", "perplexity"):
        assert lines[0]["test"][name] == pytest.approx(here.history[0].test[name], rel=1e-5)
    assert holdfast.load_run(out).predict("to be or not").tolist() == here.predict("to be or not").tolist()

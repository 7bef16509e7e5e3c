"""A run says itself where it was made: the device, the day, and the versions of the code and of torch."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import torch

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.comparison.compare import tabulate
from holdfast.comparison.executor import Executor
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.stored_run import read_run
from holdfast.core import commit as commits
from holdfast.core.commit import commit, described
from holdfast.method.config import Config
from holdfast.method.method import Method
from holdfast.reports.page_text import made
from holdfast.reports.study import read_study
from holdfast.runs.provenance import DATA, MADE
from holdfast.runs.summary_file import read_summary, write_summary

TINY = {"data": "digits", "model": "linear", "clients": 4, "cohort": 2, "steps": 1, "rounds": 2, "device": "cpu"}


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As if the code lay in a folder that is no checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commits, "ROOT", tmp_path)
    monkeypatch.delenv("HOLDFAST_COMMIT", raising=False)
    commit.cache_clear()
    yield tmp_path
    commit.cache_clear()


def test_a_summary_says_where_it_was_made(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMMIT", "abc1234\n")
    holdfast.run(out="here", on_round=lambda record: os.environ.update(HOLDFAST_COMMIT="later"), **TINY)
    commit.cache_clear()
    found = json.loads(Path("here/summary.json").read_text())
    want = {"device": "cpu", "date": date.today().isoformat(), "holdfast": holdfast.__version__}
    want |= {"torch": torch.__version__, "commit": "abc1234"}
    assert {name: found[name] for name in MADE} == want, "the code is that of the start"


def test_looking_at_a_finished_run_does_not_make_it_anew(copied: Path) -> None:
    first = holdfast.run(out="here", **TINY).summary
    assert first["commit"] == ""
    old = {k: v for k, v in first.items() if k != "torch"} | {"date": "2001-01-01"}
    Path("here/summary.json").write_text(json.dumps(old))
    again = holdfast.run(out="here", resume=True).summary
    assert (again["date"], "torch" in again) == ("2001-01-01", False)
    Path("here/summary.json").write_text("{")
    message = "is damaged, it is not valid JSON: delete it; --resume writes it again"
    with raises_exactly(f"{Path('here/summary.json')} {message}"):
        holdfast.run(out="here", resume=True)


def test_the_commit_is_of_this_code_and_no_other(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for args in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *args], check=True)
    said = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv("HOLDFAST_COMMIT", "other")
    assert commit()
    assert said.startswith(commit()), "git comes first"
    Path("site-packages").mkdir()
    assert described(copied / "site-packages") == "", "a folder in the checkout of someone else"
    monkeypatch.setenv("GIT_DIR", str(copied / "nowhere"))
    assert described(copied) == commit(), "a hook's environment speaks of another checkout"
    monkeypatch.delenv("GIT_DIR")
    Path("code").write_text("1")
    subprocess.run(["git", "add", "code"], check=True)
    before = Path(".git/index").stat().st_mtime_ns
    assert described(copied) == f"{commit()}-dirty"
    assert Path(".git/index").stat().st_mtime_ns == before, "looking changes nothing"


def test_a_run_that_diverges_says_it_too(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_COMMIT", "abc1234")
    task = PlannedRun(
        0, 0, "x", Config().changed(**TINY | {"model": "mlp", "steps": 5, "lr": 1e30}), Method(), Path("here")
    )
    assert Executor().run(task, lambda record: None, lambda: False)[0] == "diverged"
    found = read_run(Path("here"), 0)
    assert found.why == "round 1: no client's update is finite; lower --lr, or add --clip"
    assert "\n" not in found.why
    assert (found.made["device"], found.made["commit"], set(found.made)) == ("cpu", "abc1234", {*MADE, DATA})
    Path("here/diverged.txt").write_text("round 1: as it was kept before\n")
    assert (read_run(Path("here"), 0).why, read_run(Path("here"), 0).made) == ("round 1: as it was kept before", {})
    for text in ("{", "[1]", "no JSON"):
        Path("here/diverged.txt").write_text(f"round 1: as it is kept now\n{text}\n")
        with raises_exactly(f"{Path('here/diverged.txt')} is damaged: delete that run's folder to run it again"):
            read_run(Path("here"), 0)


def test_a_comparison_says_what_its_runs_say(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And never what the process is that collects them, on another day and with other versions."""
    holdfast.compare(["fedavg"], seeds=2, out="here", **TINY)
    said = {"device": "B200", "date": "2001-01-01", "holdfast": "0.0.9", "torch": "1.0", "commit": "abc1234"}
    kept = Path("here/fedavg/seed-0")
    write_summary(kept, read_summary(kept, "") | said)
    monkeypatch.setattr(holdfast, "__version__", "99")
    monkeypatch.setattr(torch, "__version__", "98")
    compared = tabulate("here")
    ran = json.loads(Path("here/fedavg/seed-1/summary.json").read_text())
    want = {name: ", ".join(sorted({said[name], ran[name]})) for name in said if name != "commit"}
    assert {name: compared.record[name] for name in MADE} == want | {"commit": "abc1234"}
    assert made(compared.study)[:2] == [f"Holdfast {want['holdfast']}", "commit abc1234"]
    footer = made(read_study(Path("here/fedavg/seed-0")))
    assert footer == ["Holdfast 0.0.9", "commit abc1234", "torch 1.0", "B200", "2001-01-01"]
    assert f"<footer>{' · '.join(footer)}</footer>" in holdfast.report("here/fedavg/seed-0").read_text()
    write_summary(kept, {k: v for k, v in read_summary(kept, "").items() if k not in MADE})
    assert made(read_study(Path("here/fedavg/seed-0"))) == ["Holdfast"], "an older run does not say"

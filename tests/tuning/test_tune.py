"""Searches that run: what they find, what decides, and that a search which is killed ends like one that is not."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import holdfast
from helpers.commands import facts, good
from helpers.searches import SMALL, essence, result
from helpers.toys import Number
from holdfast import DataSet
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.study_schema import MetricFacts
from holdfast.training.round_record import RoundRecord
from holdfast.tuning.importance import importance
from holdfast.tuning.sampling import Proposer, Tried, batches
from holdfast.tuning.search_axis import SearchAxis
from holdfast.tuning.trial_store import TrialStore
from holdfast.tuning.tune_observers import TuneObserver
from holdfast.tuning.tune_tables import tune_notes, tune_tables

pytestmark = pytest.mark.usefixtures("elsewhere")
TINY: dict[str, Any] = {"model": "linear", "clients": 6, "cohort": 2, "steps": 2, "rounds": 3, "batch": 16}


# -- the known optimum ------------------------------------------------------------------------------------------------
def bowls() -> DataSet:
    """Four clients, each with a target of its own; the mean of all is 0 and their standard deviation 1."""
    y = torch.tensor([[target] for target in (-1.0, 1.0, -1.0, 1.0) for _ in range(20)])
    groups = torch.arange(4).repeat_interleave(20)
    data = holdfast.from_arrays(torch.ones(80, 1), y, test_x=torch.ones(4, 1), test_y=y[::20], task="regression")
    return replace(data, groups=groups)


@pytest.mark.parametrize(
    ("method", "search", "settings", "name", "optimum"),
    [
        # One step of gradient 2w from w = 1 with rate lr: w = 1 - 2*lr, and the loss 1 + w^2 is smallest at lr = 1/2.
        ("fedavg", {"lr": (0.02, 2, "log")}, {}, "lr", 0.5),
        # The server multiplies that step: w = 1 - 2*lr*eta, so that eta = 1/(2*lr) = 5.
        ("fedavgm(beta=0)", {"fedavgm.eta": (0.5, 50, "log")}, {"lr": 0.1}, "fedavgm.eta", 5.0),
    ],
    ids=["setting", "part"],
)  # fmt: skip
def test_it_finds_the_known_optimum_of_a_quadratic_federation(
    method: str, search: dict[str, Any], settings: dict[str, Any], name: str, optimum: float
):
    found = holdfast.tune(
        [method], bowls(), Number(1.0), search=search, trials=32, seeds=1, out="here", split="given", rounds=1,
        batch=64, cohort=4, engine="loop", epochs=1, **settings,
    )  # fmt: skip
    assert set(found.best[method]) == {name}
    assert found.best[method][name] == pytest.approx(optimum, rel=0.1)


# -- what decides -----------------------------------------------------------------------------------------------------
def test_shuffled_test_labels_change_no_choice():
    digits = holdfast.load("digits")
    shuffled = replace(digits, test_y=digits.test_y[torch.randperm(len(digits.test_y))])
    first, second = (
        holdfast.tune(["fedavg", "prox"], data, trials=5, seeds=1, out=out, **TINY)
        for data, out in ((digits, "first"), (shuffled, "second"))
    )
    assert first.best == second.best
    for one, other in zip(first.entries, second.entries, strict=True):
        assert one.trials == other.trials
        assert one.validation == other.validation
        assert one.test != other.test


def test_every_method_gets_the_same_budget_and_the_tables_say_so():
    found = holdfast.tune(["fedavg", "fedbug+prox"], trials=5, seeds=2, out="here", **TINY)
    assert found.study is not None
    scores, settings, budget = tune_tables(found.study)
    assert [row[:5] for row in budget.rows] == [["fedavg", "5", "1", "0", "1"], ["fedbug+prox", "5", "1", "0", "3"]]
    assert [row[5] for row in budget.rows] == ["7", "7"]  # 5 trials of a round, and one that has two more
    assert [row[:2] for row in settings.rows] == [
        ["fedavg", "lr"], ["fedbug+prox", "lr"], ["fedbug+prox", "fedbug.share"], ["fedbug+prox", "prox.mu"],
    ]  # fmt: skip
    assert [row[0] for row in scores.rows] == ["fedavg", "fedbug+prox"]
    assert "rungs: 5 and 1 trials ran to rounds 1 and 3; every method may take 7 rounds in its search" in tune_notes(
        found.study
    )
    for entry in found.entries:
        assert entry.low <= entry.test.mean <= entry.high
        usual, others = entry.trials[0], entry.trials[1:]
        assert usual.values["lr"] == 0.1, "the first trial has the usual values"
        assert len({str(t.values) for t in (usual, *others)}) == 5


def test_a_trial_that_continues_keeps_its_rounds():
    """The best trial is the very run that it would have been without a pause."""
    found = holdfast.tune(["scaffold"], trials=3, seeds=1, out="here", **TINY)
    (entry,) = found.entries
    holdfast.run("scaffold", out="whole", seed=0, split_seed=0, validation=0.1, **(TINY | entry.best))
    assert facts(f"here/scaffold/trial-{entry.trial:03d}") == facts("whole")


def test_fresh_seeds_are_not_the_one_of_the_search():
    found = holdfast.tune(["fedavg"], trials=2, seeds=2, first_seed=7, out="here", **TINY)
    assert found.entries[0].runs == ["fedavg/best/seed-8", "fedavg/best/seed-9"]
    assert found.record["plan"]["search_seed"] == 7


def test_the_command_trains_with_the_best_setting():
    good("tune", "fedavg", *SMALL, "--out", "here", "--quiet")
    (entry,) = result("here")["entries"]
    good(*shlex.split(entry["command"])[1:], "--out", "again", "--quiet")
    assert facts("again") == facts("here/fedavg/best/seed-1")


def test_a_grid_is_even_and_within_the_trials():
    found = holdfast.tune(
        ["fedavg"], trials=7, sampler="grid", search={"server_lr": [0.5, 1.0]}, seeds=1, out="here", **TINY
    )
    tried = [tuple(t.values.values()) for t in found.entries[0].trials]
    assert tried == list(itertools.product([0.001, 0.0316, 1.0], [0.5, 1.0]))


def test_a_best_value_at_the_edge_of_its_range_is_named():
    found = holdfast.tune(
        ["fedavg"], trials=2, sampler="grid", search={"lr": (1e-3, 0.03, "log")}, seeds=1, out="here", **TINY
    )
    assert found.study is not None
    edge = "fedavg: at the edge of its range: lr=0.03 of lr=0.001..0.03 log: a wider --search may do better"
    assert edge in tune_notes(found.study)


def test_a_method_of_which_every_trial_diverges_has_no_score():
    """An infinite model cannot be averaged; the other method is not harmed."""
    search = {"prox.mu": (1e30, 1e38, "log")}
    with_prox = holdfast.tune(
        ["fedavg", "prox"], trials=2, seeds=1, search=search, sampler="random", out="here", **TINY
    )
    fedavg, prox = with_prox.entries
    assert fedavg.test.mean is not None
    assert prox.diverged == 2 or prox.test.mean is not None


# -- the pieces -------------------------------------------------------------------------------------------------------
AXES = [SearchAxis("lr", 0.1, 1e-3, 1.0, log=True), SearchAxis("batch", 32, 8.0, 128.0, log=True, whole=True)]


def tried(points: int) -> list[Tried]:
    """Trials of which the learning rate alone decides, best at 0.1."""
    proposer = Proposer(AXES, "random", 3, MetricFacts())
    found = [proposer.propose(n, [], points) for n in range(points)]
    return [Tried(p, {1: 1 - abs(torch.tensor(p["lr"] / 0.1).log10().item())}) for p in found]


def test_the_parameter_that_decides_is_the_important_one():
    found = importance(tried(20), AXES, MetricFacts())
    assert found is not None
    assert found["lr"] > 0.8
    assert sum(found.values()) == pytest.approx(1)
    assert importance(tried(5), AXES, MetricFacts()) is None, "too few trials"


def test_proposals_follow_from_seed_number_and_scores_alone():
    first, second, other = (Proposer(AXES, "tpe", seed, MetricFacts()) for seed in (0, 0, 1))
    seen = tried(12)
    assert [first.propose(n, seen, 16) for n in (12, 13)] == [second.propose(n, seen, 16) for n in (12, 13)]
    assert first.propose(12, seen, 16) != first.propose(13, seen, 16)
    assert first.propose(12, seen, 16) != other.propose(12, seen, 16)
    better = [Tried(t.point, {1: -t.scores[1]}) for t in seen]
    assert first.propose(12, seen, 16) != first.propose(12, better, 16), "it learns from the scores"
    assert [n for batch in batches(23, "tpe") for n in batch] == list(range(23))


def test_methods_try_the_same_values_of_what_they_share():
    longer = [*AXES, SearchAxis("prox.mu", 0.01, 1e-4, 1.0, log=True)]
    short, long = (Proposer(axes, "tpe", 0, MetricFacts()).propose(4, [], 9) for axes in (AXES, longer))
    assert long.items() >= short.items()


# -- killed -----------------------------------------------------------------------------------------------------------
class Killed(BaseException):
    """Nothing catches it: the process is gone."""


def until_killed(monkeypatch: pytest.MonkeyPatch, when: int, *args: str) -> bool:
    """Search, and die instead of step number ``when``: a rename, or a record in the store. False: it ended before."""
    calls = iter(range(1, 10**6))

    def mortal(step: Any) -> Any:
        def stepping(*given: Any) -> Any:
            if next(calls) == when:
                raise Killed
            return step(*given)

        return stepping

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", mortal(os.replace))
        for name in ("add", "report", "finish"):
            patch.setattr(TrialStore, name, mortal(getattr(TrialStore, name)))
        try:
            good("tune", *args)
        except Killed:
            return True
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that nobody killed."""
    folder = tmp_path_factory.mktemp("tune") / "whole"
    good("tune", "fedavg", "prox", *SMALL, "--out", str(folder), "--quiet")
    return folder


def test_a_search_that_is_killed_again_and_again_is_the_same_search(monkeypatch: pytest.MonkeyPatch, whole: Path):
    """Every time it gets a few steps further; the steps differ, so that it dies in all kinds of places."""
    args = ("fedavg", "prox", *SMALL, "--out", "here", "--quiet")
    kills = 0
    for when in itertools.cycle((3, 17, 8, 29, 5, 23, 2, 13)):
        if not until_killed(monkeypatch, when, *args):
            break
        kills += 1
        assert kills < 100, "it gets nowhere"
    assert kills > 5
    assert essence("here") == essence(whole)


def test_a_search_with_two_workers_that_gets_sigkill_is_the_same_search(whole: Path):
    """It is killed while both have runs, and resumed with one worker: their number changes nothing."""
    command = [sys.executable, "-m", "holdfast", "tune", "fedavg", "prox", *SMALL, "--jobs", "2", "--out", "here"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while len(list(Path("here").glob("*/trial-*/history.jsonl"))) < 4:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(0.3)  # for its workers to notice
    kept = [
        path.parent.parent / "history.jsonl" for path in Path("here").glob("*/trial-*/checkpoint/round-000001.json")
    ]
    before = {path: path.read_bytes().splitlines()[0] for path in kept}
    good("tune", "--resume", "--out", "here", "--quiet")
    assert essence("here") == essence(whole)
    assert {path: path.read_bytes().splitlines()[0] for path in kept} == before, "a round was trained twice"


def test_no_round_is_trained_twice():
    class Rounds(TuneObserver):
        seen: list[tuple[Path, int]] = []  # noqa: RUF012 - for this test alone

        def round(self, task: PlannedRun, record: RoundRecord) -> None:
            self.seen.append((task.folder, record.round))

    watch = Rounds()
    stopped = holdfast.tune(
        ["fedavg"], trials=5, seeds=2, out="here", watch=watch, stop=lambda: len(watch.seen) >= 7, **TINY
    )
    assert not stopped.finished
    assert len(watch.seen) == 8
    holdfast.tune(["fedavg"], trials=5, seeds=2, out="here", watch=watch, **TINY)
    assert len(watch.seen) == len(set(watch.seen)) == 5 + 2 + 2 * 3


def test_a_finished_search_is_only_read_again(whole: Path):
    shutil.copytree(whole, "here")
    before = {p: p.stat().st_mtime_ns for p in Path("here").glob("*/**/*") if p.is_file()}
    said = good("tune", "fedavg", "prox", *SMALL, "--out", "here", "--json")
    assert {p: p.stat().st_mtime_ns for p in Path("here").glob("*/**/*") if p.is_file()} == before
    assert [e["best"] for e in said.json["entries"]] == [e["best"] for e in result(whole)["entries"]]
    assert "train it: holdfast run" in said.err


def test_optuna_reads_the_trials(whole: Path):
    import optuna

    storage = optuna.storages.RDBStorage(f"sqlite:///{whole}/trials.sqlite")
    study = optuna.load_study(study_name="prox", storage=storage)
    (entry,) = [e for e in result(whole)["entries"] if e["method"] == "prox"]
    assert study.best_params == entry["best"]
    assert study.best_value == entry["validation"]
    assert sorted(t.state.name for t in study.trials) == ["COMPLETE", *["PRUNED"] * 4]
    storage.remove_session()
    storage.engine.dispose()


def test_the_files_are_what_they_say(whole: Path):
    assert (whole / "tune.png").read_bytes().startswith(b"\x89PNG")
    text = (whole / "tune.md").read_text()
    assert "## Best settings" in text
    assert "![Scores of all trials](tune.png)" in text
    assert json.loads((whole / "tune_plan.json").read_text())["format"] == 1
    assert not list(whole.glob("*/trial-*/checkpoint")), "checkpoints of trials have no further use"

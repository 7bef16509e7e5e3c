"""A comparison: paired by seed, resumed without repeating anything, and what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume
from hypothesis import given as given_by
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

import holdfast
from helpers.commands import call, facts, good, lines, refused
from helpers.comparisons import TINY, found, stamps
from helpers.places import ROOT
from helpers.studies import study, typed
from helpers.toys import Bowl
from holdfast.cli.compare import command as compare_command
from holdfast.cli.compare import numbers, resume_command
from holdfast.cli.options import given
from holdfast.comparison.compare import tabulate
from holdfast.comparison.comparison_progress import LiveTable
from holdfast.comparison.observers import LineLog, Observer, overview
from holdfast.comparison.plan import ComparisonRequest, make_plan, sweep_from_text
from holdfast.comparison.plan import Plan as ComparePlan
from holdfast.comparison.plan_schema import ExecutionOptions
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.stats import usual_targets
from holdfast.comparison.study_schema import Study, StudyProgress
from holdfast.comparison.sweep_edges import edges
from holdfast.comparison.tables import describe, federation
from holdfast.core.errors import HoldfastError
from holdfast.data.sources import load
from holdfast.engines.batches import BatchPlan
from holdfast.method.config import FIELDS, Config
from holdfast.method.method import as_method
from holdfast.method.part import parts
from holdfast.training.round_record import RoundRecord
from holdfast.training.simulation import Simulation

COMMAND = Path(sys.executable).with_name("holdfast")
SET: dict[str, Any] = {"model": "linear", "clients": 6, "cohort": 2, "steps": 2, "rounds": 3}
CLOCK = ("seconds", "kappa", "out")


pytestmark = pytest.mark.usefixtures("elsewhere")


def scores(folder: str) -> list[Any]:
    return [[e["label"], e["scores"]["final"]["values"], e["by_class"]["values"]] for e in found(folder)["entries"]]


# -- the command --------------------
def test_a_comparison_is_its_runs(tmp_path: Path):
    said = good(
        "compare", "fedavg", "fedbug(0.4)", *TINY, "--seeds", "3", "--out", "here", "--targets", "0.1,1", "--json"
    )
    assert said.json == found("here")
    first, second = said.json["entries"]
    assert (first["label"], second["label"]) == ("fedavg", "fedbug(0.4)")
    assert second["runs"] == ["fedbug-0.4/seed-0", "fedbug-0.4/seed-1", "fedbug-0.4/seed-2"]
    for entry in (first, second):
        for run, final, by_class in zip(
            entry["runs"], entry["scores"]["final"]["values"], entry["by_class"]["values"], strict=True
        ):
            alone = tmp_path / "alone" / run
            method, seed = entry["method"], run[-1]
            good("run", method, *TINY, "--seed", seed, "--out", str(alone), "--quiet")
            assert facts(alone) == facts(Path("here") / run), "a comparison's run is an ordinary run"
            assert lines(alone)[-1]["test"]["accuracy"] == final
            summary = json.loads((alone / "summary.json").read_text())
            assert summary["accuracy_by_class"] == by_class
    gaps = [a - b for a, b in zip(*(e["scores"]["final"]["values"] for e in (second, first)), strict=True)]
    assert second["difference"]["mean"] == pytest.approx(statistics.fmean(gaps))
    assert second["difference"]["to"] == "fedavg"
    assert first["difference"] is None
    assert second["targets"][1] == {"target": 1, "rounds": [None] * 3, "seconds": [None] * 3, "bytes": [None] * 3}
    assert first["curves"]["rounds"] == [1, 2, 3]
    assert len(said.json["split"]["counts"]) == 6
    assert said.json["settings"]["cohort"] == 2
    assert "fedavg" in said.err
    assert "∞" in (Path("here") / "compare.md").read_text()


def test_every_method_gets_the_same_cohorts_and_batches(monkeypatch: pytest.MonkeyPatch):
    seen: dict[tuple[str, int], list[torch.Tensor]] = {}
    plan = Simulation.plan

    def spy(self: Simulation, *args: Any, **kwargs: Any) -> BatchPlan:
        made = plan(self, *args, **kwargs)
        seen.setdefault((self.config.method, self.config.seed), []).append(made.index)
        return made

    monkeypatch.setattr(Simulation, "plan", spy)
    good("compare", "fedavg", "fedbug(0.4)", "scaffold", *TINY, "--seeds", "2", "--out", "here", "--quiet")
    for seed in (0, 1):
        cohorts = [
            [line["cohort"] for line in lines(f"here/{m}/seed-{seed}")] for m in ("fedavg", "fedbug-0.4", "scaffold")
        ]
        assert cohorts[0] == cohorts[1] == cohorts[2]
        for other in ("fedbug(0.4)", "scaffold"):
            assert all(torch.equal(a, b) for a, b in zip(seen["fedavg", seed], seen[other, seed], strict=True))
    assert not torch.equal(seen["fedavg", 0][0], seen["fedavg", 1][0])


def test_the_data_is_loaded_once_and_each_federation_dealt_once(monkeypatch: pytest.MonkeyPatch):
    import holdfast.comparison.executor as executor

    calls = {"load": 0, "deal": 0}
    load, deal = executor.load, executor.deal

    def counted(name: str, function: Any) -> Any:
        def wrapper(*args: Any) -> Any:
            calls[name] += 1
            return function(*args)

        return wrapper

    monkeypatch.setattr(executor, "load", counted("load", load))
    monkeypatch.setattr(executor, "deal", counted("deal", deal))
    good("compare", "fedavg", "fedbug", "scaffold", *TINY, "--seeds", "3", "--out", "here", "--quiet")
    assert calls == {"load": 1, "deal": 3}


def test_two_jobs_find_what_one_finds():
    args = ("compare", "fedavg", "scaffold", *TINY, "--seeds", "2", "--quiet")
    good(*args, "--out", "one")
    good(*args, "--out", "two", "--jobs", "2")
    assert scores("one") == scores("two")
    for run in ("fedavg/seed-0", "scaffold/seed-1"):
        assert facts(f"one/{run}") == facts(f"two/{run}")


def test_the_same_command_does_nothing_again_and_more_seeds_add_runs():
    args = ("compare", "fedavg", "fedbug", *TINY, "--out", "here", "--quiet")
    good(*args, "--seeds", "2")
    before = stamps("here")
    good(*args, "--seeds", "2")
    assert stamps("here") == before
    good(*args, "--seeds", "3")
    after = stamps("here")
    assert {k: after[k] for k in before} == before
    assert found("here")["seeds"] == [0, 1, 2]
    (Path("here") / "compare.md").unlink()
    said = good("compare", "--tables", "here", "--targets", "0.2", "--json")
    assert said.json["targets"] == [0.2]
    assert (Path("here") / "compare.md").exists()
    assert stamps("here") == after


def start(*args: str) -> subprocess.Popen:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [COMMAND, "compare", *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def rounds(folder: str) -> int:
    return sum(p.read_bytes().count(b"\n") for p in Path(folder).glob("*/seed-*/history.jsonl"))


def wait_for(process: subprocess.Popen, there: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


UNEVEN = ("fedavg", "scaffold", *TINY[:-2], "--sweep", "rounds=2,25", "--seeds", "2")  # every other run is short


def summaries(folder: str) -> set[Path]:
    return {p.parent for p in Path(folder).glob("*/seed-*/summary.json")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that nobody killed."""
    folder = tmp_path_factory.mktemp("compare") / "whole"
    good("compare", *UNEVEN, "--out", str(folder), "--quiet")
    return folder


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_killed_comparison_resumes(jobs: str, whole: Path):
    process = start(*UNEVEN, "--jobs", jobs, "--out", "here")
    wait_for(process, lambda: bool(summaries("here")) and rounds("here") > 4)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    settled = rounds("here")
    time.sleep(0.3)
    assert rounds("here") == settled, "processes keep running after their parent was killed"
    finished = summaries("here")
    assert 0 < len(finished) < len(summaries(str(whole))), "it was killed halfway"
    before = {k: v for k, v in stamps("here").items() if Path(k).parent in finished}
    good("compare", *UNEVEN, "--jobs", jobs, "--out", "here", "--quiet")
    assert {k: stamps("here")[k] for k in before} == before, "finished runs are not repeated"
    assert scores("here") == scores(str(whole))
    for run in whole.glob("*/seed-*"):
        assert facts(run) == facts(Path("here") / run.relative_to(whole))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_stops_and_says_how_to_resume(jobs: str):
    sweep = ("--sweep", "split=iid,dirichlet(0.3, balanced=true)", "--targets", "0.5,0.9", "--light", "--set", "lr=0.2")
    long = ("fedavg", "scaffold", *TINY, "--rounds", "400", *sweep, "--seeds", "2", "--jobs", jobs, "--out", "here")
    process = start(*long)
    wait_for(process, lambda: rounds("here") >= 10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"stopped; resume with: {shlex.join(['holdfast', 'compare', *long])}\n" in err, "the command that was given"
    assert "Traceback" not in err
    assert not Path("here/compare.json").exists()
    assert "report on what is done so far: holdfast report here\n" in err
    good("report", "here")


def test_a_resumed_comparison_says_how_far_it_is(capsys: pytest.CaptureFixture):
    methods, settings = ["fedavg", "scaffold", "fedbug"], SET | {"rounds": 4, "out": "here"}
    played: list[int] = []

    class Count(LineLog):
        def round(self, task: PlannedRun, record: RoundRecord) -> None:
            played.append(record.round)

    def starts(stop: int, **more: Any) -> str:
        played.clear()
        holdfast.compare(methods, **settings | more, watch=Count(), stop=lambda: len(played) + 1 >= stop)
        return capsys.readouterr().err.splitlines()[0]

    assert starts(6, seeds=2) == "6 runs"
    assert starts(1, seeds=2) == "6 runs: 1 done, 1 resuming at round 3, 4 to start"
    shutil.rmtree("here/scaffold/seed-0/checkpoint")
    assert starts(99, seeds=2) == "6 runs: 1 done, 5 to start", "nothing to resume from"
    assert starts(99, seeds=2) == "6 runs: 6 done"
    assert starts(99, seeds=1, out="there") == "3 runs"


def test_several_runs_that_resume(tmp_path: Path):
    method = as_method("fedavg")
    tasks = [PlannedRun(0, 0, "fedavg", Config(seed=s), method, tmp_path / str(s)) for s in range(3)]
    for task, kept in zip(tasks, (4, 11, 11), strict=True):
        folder = task.folder / "checkpoint"
        folder.mkdir(parents=True)
        for number in (kept - 1, kept):
            (folder / f"round-{number:06d}.json").write_text("")
    assert overview(tasks, ["started"] * 3) == "3 runs: 3 resuming at rounds 5 to 12"
    assert overview(tasks[1:], ["started"] * 2) == "2 runs: 2 resuming at round 12"
    assert overview(tasks[:1], ["new"]) == "1 run"
    table = LiveTable(Console(file=StringIO()))
    table.begin(tasks, ["new", "started", "new"])
    table.close()
    assert "3 runs: 1 resuming at round 12, 2 to start" in table.live.console.file.getvalue()
    assert table.rows[0].rounds == {1: 11}


def test_a_row_of_the_live_table_is_a_line_at_80_columns(tmp_path: Path):
    console = Console(file=StringIO(), width=80)
    table = LiveTable(console)
    tasks = [
        PlannedRun(row, 0, label, Config(rounds=150), as_method(label), tmp_path / label)
        for row, label in enumerate(("fedavg", "fedbug(0.4)+scaffold"))
    ]
    table.begin(tasks, ["new", "new"])
    table.close()
    for task in tasks:
        table.rows[task.row].scores[0] = 0.5
        table.round(task, RoundRecord(149, 1.0, 0.1, 1, 1, [0], {"accuracy": 0.716}))
    console.file.truncate(0)
    console.print(table.view())
    told = [line for line in console.file.getvalue().splitlines() if "seed" in line]
    assert [line.split()[0] for line in told] == ["fedavg", "fedbug(0.4)+scaffold"]
    assert all(line.endswith("seed 0, round 149: 71.6%") for line in told), told


def test_the_command_to_resume_names_the_folder_and_overwrites_nothing():
    folder = Path("runs/compare digits")
    assert resume_command(["fedavg", "--jobs", "2"], folder, unnamed=False) == "holdfast compare fedavg --jobs 2"
    said = shlex.split(
        resume_command(["--overwrite", "--jobs", "2", "--", "fedavg", "fedbug(0.4)"], folder, unnamed=True)
    )
    assert said == ["holdfast", "compare", "--jobs", "2", "--out", str(folder), "--", "fedavg", "fedbug(0.4)"]


def plan_of(command: str) -> ComparePlan:
    """The plan of a command line, as the command itself reads it."""
    words = shlex.split(command)
    assert words[:2] == ["holdfast", "compare"]
    p = compare_command.make_context("compare", words[2:]).params
    settings = given({k: v for k, v in p.items() if k in FIELDS})
    execution = ExecutionOptions(numbers(p["targets"]), p["jobs"], p["light"])
    sweep = sweep_from_text(p["sweep"])
    return make_plan(ComparisonRequest(p["methods"], settings, p["seeds"], p["first_seed"], sweep, execution))


positive = st.floats(1e-300, 1e300)
fractions = st.floats(1e-9, 1)


@given_by(
    settings=st.fixed_dictionaries(
        {},
        optional={
            "server_lr": positive, "clip": positive, "lr_decay": fractions, "participation": fractions,
            "public": st.one_of(st.just("test"), st.floats(0, 0.99)), "augment": st.booleans(),
            "graphs": st.booleans(), "compile": st.sampled_from([None, True, False]),
            "data_dir": st.sampled_from(["a b", "it's", "$HOME"]),
        },
    ),
    sweep=st.fixed_dictionaries(
        {},
        optional={
            "lr": st.lists(positive, min_size=1, max_size=3, unique=True),
            "split": st.just(["iid", "dirichlet(0.3, balanced=true)+quantity(0.123456789)"]),
            "cohort": st.just([None, 3]), "drift": st.just([True, False]),
        },
    ),
    mu=fractions,
    execution=st.builds(
        ExecutionOptions, st.one_of(st.none(), st.tuples(fractions).map(list)), st.integers(1, 3), st.booleans()
    ),
    seeds=st.tuples(st.integers(1, 4), st.integers(0, 99)),
)  # fmt: skip
def test_the_command_makes_the_same_comparison(
    settings: dict[str, Any], sweep: dict[str, Any], mu: float, execution: ExecutionOptions, seeds: tuple[int, int]
):
    assume("participation" not in settings or "cohort" not in sweep)
    methods = ["fedavg", as_method(f"prox({mu!r})")]
    plan = make_plan(ComparisonRequest(methods, settings, *seeds, sweep, execution))
    assert plan_of(plan.command(Path("some where"))) == plan


def test_the_command_of_a_page_resumes_it():
    args = ("fedavg", *TINY, "--lr", "0.123456789", "--sweep", "clip=1.00000001,2", "--seeds", "1", "--out", "here")
    good("compare", *args, "--quiet")
    before = stamps("here")
    good(*shlex.split(found("here")["command"])[1:], "--quiet")
    assert stamps("here") == before


def test_a_terminal_gets_one_live_table():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    args = [COMMAND, "compare", "fedavg", "scaffold", *TINY, "--seeds", "2", "--out", "here"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "TERM": "xterm"}
    process = subprocess.Popen(args, env=env, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other side was closed
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert process.wait(60) == 0
    table = shown.decode().rpartition("difference so far")[2].split("Test accuracy")[0]
    entries = found("here")["entries"]
    for entry in entries:
        row = next(line for line in table.splitlines() if entry["label"] in line)
        assert "100%" in row
        assert f"{100 * entry['scores']['final']['mean']:.2f}%" in row
    assert f"{100 * entries[1]['difference']['mean']:+.2f}" in table


def test_a_folder_is_for_one_command_at_a_time():
    process = start("fedavg", "scaffold", *TINY, "--rounds", "2000", "--seeds", "1", "--out", "here")
    wait_for(process, lambda: rounds("here") >= 3)
    said = call("compare", "fedavg", "scaffold", *TINY, "--rounds", "2000", "--seeds", "1", "--out", "here")
    process.kill()
    process.communicate()
    assert said.code == 2
    assert said.err.startswith(f"holdfast: here is in use by another command (process {process.pid}, started ")
    assert said.err.endswith("): wait until it ends, or stop it\n")


def test_a_method_that_diverges_is_reported_as_such():
    args = (
        "compare",
        "fedavg",
        "mean(uniform)",
        *TINY,
        "--model",
        "mlp(16)",
        "--sweep",
        "lr=0.1,1e30",
        "--seeds",
        "2",
        "--out",
        "here",
    )
    said = good(*args)
    ok, bad, _, worse = found("here")["entries"]
    assert ok["scores"]["final"]["mean"] > 0
    assert [d["seed"] for d in bad["diverged"]] == [0, 1]
    assert bad["scores"]["final"] == {"mean": None, "std": None, "values": [None, None]}
    assert (bad["difference"], worse["difference"]) == (None, None)
    assert "diverged (2 of 2 seeds)" in (Path("here") / "compare.md").read_text()
    assert "lower --lr" in " ".join(said.err.split())
    before = stamps("here")
    good(*args)
    assert stamps("here") == before, "a run that diverged is not repeated"


def test_a_sweep_names_its_best_points_and_warns():
    said = good(
        "compare", "fedavg", "fedbug", *TINY, "--sweep", "lr=0.001,0.1", "--seeds", "1", "--out", "here", "--json"
    )
    labels = [e["label"] for e in said.json["entries"]]
    assert labels == ["fedavg, lr=0.001", "fedavg, lr=0.1", "fedbug, lr=0.001", "fedbug, lr=0.1"]
    means = {e["label"]: e["scores"]["final"]["mean"] for e in said.json["entries"]}
    for method, label in said.json["best_points"].items():
        assert means[label] == max(v for k, v in means.items() if k.startswith(method))
    assert "optimistic" in said.err
    assert "no interval" in said.err
    to = [e["difference"] and e["difference"]["to"] for e in said.json["entries"]]
    assert to == [None, None, "fedavg, lr=0.001", "fedavg, lr=0.1"], "each with the first method at its own point"


def test_a_sweep_says_that_its_best_is_at_the_edge():
    args = ("compare", "fedavg", "fedbug", *TINY, "--seeds", "1", "--out")
    says = "best at the edge of the sweep: lr=0.1 for fedavg, fedbug: a wider sweep may do better"
    wide = good(*args, "here", "--sweep", "lr=0.000001,0.1")
    assert says in " ".join(wide.err.split())
    assert f"- {says}\n" in Path("here/compare.md").read_text()
    assert f"<li>B{says[1:]}.</li>" in holdfast.report("here").read_text()
    assert "edge" not in good(*args, "lone", "--sweep", "lr=0.1").err
    assert "edge" not in good(*args, "who", "--sweep", "split=iid,shards(2)").err


def test_where_the_edge_of_a_sweep_is():
    template = study(("a",), seeds=1, rounds=1, drift=False)

    def swept(**sweep: list[Any]) -> Study:
        """The best point of a has the first values, that of b the second."""
        points = [dict(zip(sweep, values, strict=True)) for values in zip(*sweep.values(), strict=True)]
        names = [{"label": f"{m}{i}", "method": m, "settings": p} for m in "ab" for i, p in enumerate(points)]
        entries = [template["entries"][0] | name for name in names]
        return typed(template | {"sweep": sweep, "entries": entries, "best_points": {"a": "a0", "b": "b1"}})

    said, wider = "best at the edge of the sweep: ", ": a wider sweep may do better"
    assert edges(swept(lr=[0.1, 0.03, 0.3])) == [f"{said}lr=0.03 for b{wider}"]
    assert edges(swept(lr=[0.1, 0.3, 0.03], batch=[8, 16, 32])) == [f"{said}lr=0.3 for b; batch=8 for a{wider}"]
    assert edges(swept(lr_decay=[1.0, 0.9])) == [f"{said}lr_decay=0.9 for b{wider}"], "none is greater than 1"
    assert edges(swept(clients=[5, 10])) == edges(swept(augment=[True, False])) == edges(swept(steps=[None, 3])) == []
    assert edges(replace(swept(lr=[0.1, 0.3]), progress=StudyProgress(4, 3, 1))) == [], (
        "the best point may still change"
    )


def test_targets_of_a_sweep_are_those_of_the_best_point():
    said = good("compare", "fedavg", *TINY, "--sweep", "lr=0.000001,0.3", "--seeds", "1", "--out", "here", "--json")
    found = said.json
    poor, rich = (entry["scores"]["best"]["mean"] for entry in found["entries"])
    assert rich > poor
    assert found["targets"] == usual_targets(rich)


def test_the_points_of_one_method_are_compared_with_its_first():
    said = good("compare", "fedavg", *TINY, "--sweep", "lr=0.01,0.1", "--seeds", "2", "--out", "here", "--json")
    to = [e["difference"] and e["difference"]["to"] for e in said.json["entries"]]
    assert to == [None, "fedavg, lr=0.01"]


def test_sweep_values_that_nearly_agree_stay_distinct():
    tiny = (*TINY, "--sweep", "lr=0.1,0.10000002", "--targets", "0.5,0.50000002", "--seeds", "1")
    said = good("compare", "fedavg", *tiny, "--out", "here", "--json")
    assert [e["label"] for e in said.json["entries"]] == ["fedavg, lr=0.1", "fedavg, lr=0.10000002"]
    for entry in said.json["entries"]:
        (run,) = entry["runs"]
        assert entry["curves"]["test_loss"] == [[line["test"]["loss"] for line in lines(Path("here") / run)]]
    first, second = (e["curves"]["test_loss"] for e in said.json["entries"])
    assert first != second
    header = (Path("here") / "compare.csv").read_text().splitlines()[0].split(",")
    assert {"rounds_to_0.5", "rounds_to_0.50000002"} <= {*header}


def test_swept_settings_are_reported_as_swept_and_not_by_their_defaults():
    sweep = ("--sweep", "split=iid,shards(2)", "--sweep", "rounds=2,3")
    said = good("compare", "fedavg", "prox(0.1)", *TINY[:-2], *sweep, "--seeds", "2", "--out", "here")
    assert found("here")["settings"] == {"data": "digits", "clients": 6, "cohort": 2, "model": "linear", "steps": 2}
    texts = [said.err, *((Path("here") / f"compare.{kind}").read_text() for kind in ("md", "tex"))]
    for text in texts:
        assert (
            "digits, 6 clients, 2 per round; linear, steps 2; swept split: iid, shards(2); swept rounds: 2, 3" in text
        )
        assert not re.search(r"dirichlet|30 rounds", text)


@pytest.mark.parametrize(
    ("settings", "sweep", "words"),
    [
        ({}, {}, ["dirichlet(0.3) over 20 clients", "5 per round"]),
        ({}, {"clients": [20, 40]}, ["dirichlet(0.3)"]),
        ({}, {"clients": [20, 22]}, ["dirichlet(0.3)", "5 per round"]),
        ({"cohort": 3}, {"clients": [20, 40]}, ["dirichlet(0.3)", "3 per round"]),
        ({}, {"clients": [20, 22], "split": ["iid", "shards(2)"]}, ["5 per round"]),
        ({}, {"model": ["mlp", "linear"], "cohort": [2, 3]}, ["dirichlet(0.3) over 20 clients"]),
        ({}, {"participation": [0.2, 0.3]}, ["dirichlet(0.3) over 20 clients"]),
        ({"participation": 0.123456789}, {}, ["dirichlet(0.3) over 20 clients", "each with probability 0.123456789"]),
    ],
)
def test_the_federation_is_described_as_far_as_all_runs_share_it(settings: dict, sweep: dict, words: list[str]):
    common = make_plan(ComparisonRequest(["fedavg"], settings, sweep=sweep)).decided(load("digits")).settings()
    assert federation(common) == words
    assert not common.keys() & sweep.keys()


def test_tables_say_what_is_set_and_only_that():
    plan = make_plan(ComparisonRequest(["fedavg"], {"attack": "sign_flip(0.2)", "max_weight": 0.4}))
    said = describe(typed(study(settings=plan.decided(load("digits")).settings())))
    assert "; mlp, 30 rounds, max_weight 0.4, attack sign_flip(0.2); " in said


def test_a_swept_split_is_compared_with_the_first_method_on_the_same_split():
    sweep = "split=iid,dirichlet(0.3, balanced=true)"
    said = good("compare", "fedavg", "fedbug", *TINY, "--sweep", sweep, "--seeds", "2", "--out", "here", "--json")
    to = [e["difference"] and e["difference"]["to"] for e in said.json["entries"]]
    assert to == [None, None, "fedavg, split=iid", "fedavg, split=dirichlet(0.3, balanced=true)"]


# -- from Python --------------------
def test_compare_from_python_with_your_own_data_and_model(tmp_path: Path):
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    data = holdfast.from_arrays(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long(), name="mine")
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    rounds = []

    class Ears(Observer):
        def round(self, task: Any, record: Any) -> None:
            rounds.append(record.round)

    settings = {k: v for k, v in SET.items() if k != "model"}
    result = holdfast.compare(
        ["fedavg", holdfast.Method.parse("fedbug(0.2)")],
        data,
        model,
        seeds=2,
        out=tmp_path / "a",
        watch=Ears(),
        **settings,
    )
    assert result.finished
    assert rounds == [1, 2, 3] * 4
    assert [e["label"] for e in result.entries] == ["fedavg", "fedbug(share=0.2)"]
    assert result.record["settings"]["data"] == "mine"
    assert "fedbug" in result.markdown()
    assert result.record["command"] is None
    for text in (result.markdown(), holdfast.report(tmp_path / "a").read_text(encoding="utf-8")):
        assert "Started from Python with its own data (mine) and model (Sequential): no command can repeat it." in text
        assert "holdfast compare" not in text
    assert tabulate(tmp_path / "a").record["own"] == {"data": "mine", "model": "Sequential"}, "it is kept"
    again = holdfast.compare(
        ["fedavg", "fedbug(share=0.2)"], data, model, seeds=2, out=tmp_path / "b", jobs=2, **settings
    )
    assert [e["scores"] for e in again.entries] == [e["scores"] for e in result.entries]
    stopped = holdfast.compare(["fedavg"], data, seeds=1, out=tmp_path / "c", stop=lambda: True, rounds=5)
    assert not stopped.finished
    assert stopped.entries == []
    page = holdfast.report(tmp_path / "c").read_text(encoding="utf-8")
    assert (
        "Started from Python with its own data (mine): no command can repeat it. Call it again in the same way" in page
    )
    assert "Resume it with:" not in page
    with pytest.raises(HoldfastError, match=r"^data must be a name or a DataSet, not a Tensor$"):
        holdfast.compare(["fedavg"], x)


def test_a_part_of_your_own_has_no_command():
    assert "toy-bowl" in parts()
    plan = make_plan(ComparisonRequest(["fedavg", Bowl(), Bowl() + "prox(0.1)"]))
    assert (plan.command(Path("here")), plan.from_python) == (None, {"parts": "toy-bowl"})


def test_light_comparisons_keep_no_checkpoints():
    good("compare", "fedavg", "fedbug", *TINY, "--seeds", "1", "--out", "here", "--light", "--quiet")
    assert not list(Path("here").glob("*/*/checkpoint"))
    before = stamps("here")
    good("compare", "fedavg", "fedbug", *TINY, "--seeds", "1", "--out", "here", "--light", "--quiet")
    assert stamps("here") == before


def test_the_notes_explain_seconds_and_ratios():
    for seeds, means in (("1", False), ("2", True)):
        said = good("compare", "fedavg", *TINY, "--seeds", seeds, "--out", seeds, "--targets", "0.01")
        for text in (said.err, (Path(seeds) / "compare.md").read_text()):
            assert "including evaluation and the warm-up and compilation in a run's first round" in " ".join(
                text.split()
            )
            assert ("κ and ρ are means of each seed's ratio, not ratios of the means." in text) == means
        (entry,) = found(seeds)["entries"]
        played = [[line["seconds"] for line in lines(Path(seeds) / run)] for run in entry["runs"]]
        final = entry["scores"]["final"]["values"]
        whole = [a * 1e4 / sum(p) for a, p in zip(final, played, strict=True)]
        assert entry["kappa"]["mean"] == pytest.approx(statistics.fmean(whole))
        usual = [min(p[0], statistics.median(p[1:])) for p in played]
        assert entry["targets"][0]["seconds"] == pytest.approx(usual), "the first round counts without its warm-up"
        assert entry["seconds"]["values"] == pytest.approx([sum(p) for p in played]), "whole runs have theirs"


# -- bad input --------------------
@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), 'compare needs methods: holdfast compare fedavg "fedbug(0.4)"'),
        (
            ("fedavg", "fedbug(0.4)", "fedbug(share=0.4)"),
            "fedbug(0.4) and fedbug(share=0.4) are the same method: leave one out",
        ),
        (("fedavg", "--seeds", "0"), "seeds must be a whole number of at least 1, not 0"),
        (
            ("fedavg", "--seeds", "x"),
            "--seeds must be a whole number, not x",
        ),
        (("fedavg", "--first-seed", "-1"), "first_seed must be a whole number of at least 0, not -1"),
        (("fedavg", "--jobs", "0"), "jobs must be a whole number of at least 1, not 0"),
        (("fedavg", "--targets", "1.5"), "a target must be an accuracy in (0, 1], such as 0.8, not 1.5"),
        (("fedavg", "--targets", "high"), "--targets high: expected accuracies such as 0.8,0.9"),
        (("fedavg", "--sweep", "lr"), "--sweep lr: expected NAME=VALUE,VALUE,..., such as lr=0.01,0.1"),
        (("fedavg", "--sweep", "lr=0.1,0.10"), "the sweep of lr lists 0.1 twice: remove one"),
        (("fedavg", "--sweep", "lr=0.1", "--lr", "0.2"), "lr is both swept and set to 0.2: leave one of them out"),
        (("fedavg", "--sweep", "seed=1,2"), "seed cannot be swept: use --seeds and --first-seed"),
        (("fedavg", "--sweep", "lr=0.1", "--sweep", "lr=0.2"), "lr is swept twice: write --sweep lr=a,b,c once"),
        (
            ("fedavg", "--set", "seed=3"),
            "seed cannot be set for a whole comparison: use --seeds and --first-seed",
        ),
        (
            ("fedavg", "--tables", "nowhere"),
            "--tables FOLDER takes no methods and settings: the folder has them; leave them out",
        ),
        (("--tables", "nowhere"), "nowhere holds no comparison: give the folder of one"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(args: tuple[str, ...], said: str):
    assert refused("compare", *args, *(() if "--tables" in args else ("--out", "here"))) == f"holdfast: {said}\n"
    assert not Path("here").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("fedavgg",), "unknown method 'fedavgg'; did you mean fedavg or fedagg?"),
        (("fedavg", "momentum(2)"), "momentum: beta must be a number in [0, 1), not 2"),
        (("fedavg", "--optimizer", "adagrad"), "unknown local optimiser 'adagrad'; known: adam, adamw, momentum, sgd"),
        (("fedavg", "--sweep", "lrr=1"), "unknown setting 'lrr'; did you mean lr?"),
        (("fedavg", "--sweep", "lr=-1"), "lr must be a number above 0, not -1.0"),
        (("fedavg", "--sweep", "lr=0.1,fast"), "lr must be a number above 0, not fast"),
        (("fedavg", "fedbug+scaffold+fedbug"), "fedbug appears twice in the sum: keep one of them"),
        (
            ("fedavg", "fnr"),
            "fnr needs public data: hold some out with --public 0.05 or federate(..., public=0.05)",
        ),
        (
            ("fedavg", "fedavgm", "--server-lr", "2"),
            "--server-lr 2 has no effect: fedavgm makes the server step itself; leave the flag out (see: holdfast "
            "methods fedavgm)",
        ),
    ],
)
def test_bad_methods_and_settings_are_found_before_anything_runs(args: tuple[str, ...], said: str):
    assert refused("compare", *args, "--out", "here") == f"holdfast: {said}\n"
    assert not Path("here").exists()


def test_another_comparison_is_refused():
    good("compare", "fedavg", "fedbug", *TINY, "--seeds", "2", "--out", "here", "--quiet")
    before = stamps("here")
    more = "; only more of them may be added at the end"
    for args, said in (
        (("fedavg", "fedbug", *TINY, "--lr", "0.3", "--seeds", "2"), "lr = 0.1, not 0.3"),
        (("fedavg", "scaffold", *TINY, "--seeds", "2"), f"the methods fedavg, fedbug{more}"),
        (("fedavg", "fedbug", *TINY, "--seeds", "1"), f"the seeds 0, 1{more}"),
        (("fedavg", "fedbug", *TINY, "--seeds", "2", "--sweep", "lr=0.1,0.2"), "the sweep none"),
    ):
        assert refused("compare", *args, "--out", "here") == (
            f"holdfast: here holds another comparison, with {said}: choose another --out, or start over with "
            "--overwrite\n"
        )
    assert stamps("here") == before
    good("compare", "fedavg", "scaffold", *TINY, "--seeds", "1", "--out", "here", "--overwrite", "--quiet")
    assert {p.parent.parent.name for p in Path("here").glob("*/*/summary.json")} == {"fedavg", "scaffold"}


def test_folders_of_others_are_left_alone():
    Path("here").mkdir()
    (Path("here") / "thesis.txt").write_text("years of work")
    for flag in ((), ("--overwrite",)):
        assert refused("compare", "fedavg", "fedbug", *TINY, "--out", "here", *flag) == (
            "holdfast: here is not empty and holds no comparison: choose another --out\n"
        )
    assert [p.name for p in Path("here").iterdir() if p.name != ".lock"] == ["thesis.txt"]
    (Path("here") / "plan.json").write_text("{")
    said = refused("compare", "fedavg", "fedbug", *TINY, "--out", "here")
    assert re.fullmatch(r"holdfast: cannot read here/plan\.json: .*; start over with --overwrite\n", said), said
    for text, problem in (
        ("[]", "the file must be an object"),
        ("{}", "methods is missing"),
        ('{"methods": "fedavg"}', "sweep is missing"),
    ):
        (Path("here") / "plan.json").write_text(text)
        assert refused("compare", "fedavg", "fedbug", *TINY, "--out", "here") == (
            f"holdfast: here/plan.json is damaged, {problem}: start over with --overwrite\n"
        )
    (Path("here") / "plan.json").write_text('{"format": 4}')
    assert refused("compare", "fedavg", "fedbug", *TINY, "--out", "here") == (
        "holdfast: here/plan.json has format 4, but this version reads formats up to 3: update Holdfast\n"
    )


def test_no_out_makes_a_new_folder():
    good("compare", "fedavg", "fedbug", *TINY, "--seeds", "1", "--quiet")
    assert call("compare", "fedavg", "fedbug", *TINY, "--seeds", "1", "--quiet").code == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["compare-digits-001", "compare-digits-002"]


def test_the_commands_of_the_page_run():
    page = (ROOT / "docs" / "compare.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for b in blocks for line in b.replace("\\\n", " ").splitlines()]
    small = ("--model", "mlp(8)", "--rounds", "1", "--seeds", "1", "--jobs", "1", "--quiet")
    ran = 0
    for number, words in enumerate(commands):
        if words[:2] == ["holdfast", "compare"] and "--tables" not in words:
            good(*words[1:], *small, "--out", str(number))
            ran += 1
    assert ran >= 3
    for table in page.split("\n### ")[1:]:
        rows = re.findall(r"^\| (\S+) \|", table.partition("\n\n- ")[0], re.MULTILINE)
        assert rows == ["method", "---", *commands[0][2 : commands[0].index("--split")]], "of the command above it"
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "compare.md", "exec"), {"__name__": "__main__"})
    assert Path("runs/by-hand/compare.json").exists()


def test_your_own_data_under_a_known_name_is_another_comparison(tmp_path: Path) -> None:
    x = torch.randn(60, 4)
    mine = holdfast.from_arrays(x, (x[:, 0] > 0).long(), name="digits")
    small = {
        "clients": 4,
        "cohort": 2,
        "steps": 1,
        "rounds": 1,
        "model": "linear",
        "seeds": 1,
        "out": tmp_path / "here",
    }
    holdfast.compare(["fedavg"], mine, **small)
    with pytest.raises(
        HoldfastError,
        match=r"with data from Python \(digits\), not data given by name: choose another --out, ",
    ):
        holdfast.compare(["fedavg", "prox(0.1)"], "digits", **small)
    holdfast.compare(["fedavg", "prox(0.1)"], mine, **small)


def test_targets_are_given_or_left_out() -> None:
    with pytest.raises(HoldfastError, match=r"^targets is empty: list scores such as 0\.8, or leave it out$"):
        holdfast.compare(["fedavg"], targets=[])


def test_a_comparison_killed_before_it_had_its_plan_starts_again():
    Path("here").mkdir()
    Path("here/plan.json.part").write_text("{")
    good("compare", "fedavg", "fedavgm", *TINY, "--seeds", "1", "--out", "here")
    assert not Path("here/plan.json.part").exists()

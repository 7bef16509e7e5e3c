"""The papers' tables, run again: published numbers beside ours, nothing invented, nothing run twice."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
import torch

from helpers.commands import call, good, refused
from helpers.comparisons import stamps
from helpers.data_files import write_idx
from helpers.places import ROOT
from helpers.toy_paper import TOY, rep, tables
from holdfast.reproduce.outcomes import Outcome, outcome, published_counts
from holdfast.reproduce.store import SHARED, read
from holdfast.reproduce.table_json import table_from_json
from holdfast.runs.summary_file import read_summary, write_summary


def test_published_ours_and_the_difference(toy: Path) -> None:
    (one,) = tables("--table", "1", "--scale", "full", "--seeds", "2", "--out", "here")
    first, second, mars, cifar = (row["cells"] for row in one["rows"])
    runs = [json.loads(p.read_text()) for p in sorted(Path("here", first[0]["folder"]).glob("seed-*/summary.json"))]
    want = [100 * run["last5"] for run in runs]
    assert first[0]["ours"]["values"] == pytest.approx(want)
    assert first[0]["difference"] == pytest.approx(sum(want) / 2 - 20.0)
    assert (first[0]["published"], first[0]["spread"], first[1]["spread"]) == (20.0, 0.5, None)
    assert (second[0]["published"], second[0]["difference"], second[0]["status"]) == (None, None, "run")
    assert [(c["status"], c["why"]) for c in mars] == [("absent", "no data from there")] * 2
    assert [(c["status"], c["why"]) for c in cifar] == [("data absent", "cifar100 was not found")] * 2
    assert "ours" not in cifar[0]
    assert one["reproduction"]
    text = Path("here/reproduce.md").read_text()
    assert "\n| --- | --- | --- | ---: | ---: | ---: |\n" in text, "row, column and method are words"
    assert f"| 20 ± 0.5 | {sum(want) / 2:.2f} ± " in text
    assert "FULL SCALE, the paper's setting" in text
    assert "Accuracy of two methods\n" in text
    assert "Data not found for 2 cells: cifar100 (2). 2 cells were not run: no data from there.\n" in text
    assert "| CIFAR-100 |" not in text, "what is absent is counted, not listed"


def test_only_requested_cells_are_shown(toy: Path) -> None:
    rep("--table", "II", "--scale", "full", "--out", "here")
    said = rep("--table", "1", "--rows", "2", "--columns", "40%", "--scale", "full", "--out", "here")
    assert said.out.count("\n| IID") == 1, "row 1 shares its runs with table II, and was not asked for"
    assert "| IID, FedProx, the usual | 40% | " in said.out
    assert "\n7 cells were not requested.\n" in said.out
    assert "cifar100" not in said.out
    assert "published numbers: " not in said.out, "a comparison needs both columns"
    (one,) = tables("--table", "1", "--rows", "2", "--columns", "40%", "--scale", "full", "--out", "here")
    assert (one["columns"], [row["name"] for row in one["rows"]]) == (["40%"], ["IID, FedProx, the usual"])
    assert [[c["method"] for c in row["cells"]] for row in one["rows"]] == [["prox(0.01)+fedbug(0.4)"]]
    assert (one["expect"], one["not_asked"]) == ([], 7)
    stored = {t.table: t for t in read(Path("here/reproduce.json"))}
    statuses = [[c.status for c in row.cells] for row in stored["1"].rows]
    assert statuses == [["run", "not run"], ["not run", "run"], ["absent"] * 2, ["data absent"] * 2]
    assert stored["1"].expect == ["40% > 0%"]
    kept = Path("here/reproduce.md").read_text()
    assert "| IID, FedAvg | 0% | " in kept
    assert "2 cells were not run. Data not found for 2 cells: cifar100 (2)." in kept


def test_a_claim_about_some_cells_says_so(toy: Path) -> None:
    said = rep("--table", "1", "--rows", "1", "--scale", "full", "--out", "here")
    assert "published numbers: 1 of 1." in said.out
    assert "Under this reading: **open**: the baseline's level is not reached; published" in said.out


def test_tables_without_the_rows_are_left_out(toy: Path) -> None:
    said = rep("--table", "1", "--table", "II", "--rows", "easy", "--out", "here")
    assert said.code == 0
    assert "table II" in said.out
    assert "table 1:" not in said.out
    assert "no such rows or columns in table 1\n" in said.err
    assert [t.table for t in read(Path("here/reproduce.json"))] == ["II"]
    assert "no such rows" not in rep("--rows", "easy", "--out", "here").err, "no table was named"


def test_other_seeds_are_kept(toy: Path) -> None:
    rep("--table", "1", "--rows", "1", "--seeds", "2", "--out", "here")
    (one,) = tables("--table", "1", "--rows", "1", "--out", "here")
    assert one["rows"][0]["cells"][0]["seeds"] == [0]
    (kept,) = read(Path("here/reproduce.json"))
    assert kept.runs[0].seeds == [0, 1]


def test_runs_from_elsewhere_need_no_data_here(toy: Path) -> None:
    """A folder that was filled where the data is can be looked at where it is not."""
    args = ("--table", "1", "--rows", "4", "--set", "model=linear", "--out", "here")
    (toy / "toy.toml").write_text(TOY.replace('data = "cifar100"', 'data = "mnist"'))
    write_idx(Path("data/MNIST/raw"), ("train", "t10k"), 10)
    (there,) = tables(*args)
    shutil.rmtree("data")
    (here,) = tables(*args)
    assert here["rows"] == there["rows"]
    assert here["rows"][0]["cells"][0]["status"] == "run"


def test_a_stopped_command_names_the_one_that_resumes(toy: Path) -> None:
    args = ["toy", "--papers", "papers", "--table", "1", "--rows", "IID, FedAvg", "--set", "rounds=3000", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.reproduce", *args, "--out", "here"], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while not list(Path("here").glob("*/seed-0/history.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    command = f"python -m holdfast.reproduce {shlex.join(args)} --out here"
    assert f"stopped; resume with: {command}\n" in said


def test_other_scales_are_never_called_a_reproduction(toy: Path) -> None:
    said = rep("--table", "1", "--rows", "1", "--out", "small")
    assert "SMALL SCALE, not the paper's setting: NOT a reproduction" in said.out
    assert "rounds: 3" in said.out
    assert "ours (small: not a reproduction)" in said.out
    said = rep("--table", "1", "--rows", "1", "--scale", "smoke", "--out", "smoke")
    assert "SMOKE TEST" in said.out
    assert "Accuracy of two methods (in the paper; here: digits, linear)\n" in said.out
    assert "Thawing helps. Under this reading: **not tested**: " in said.out
    (one,) = read(Path("smoke/reproduce.json"))
    assert one.runs[0].difference is None
    said = rep("--table", "1", "--rows", "1", "--scale", "full", "--set", "rounds=2", "--out", "changed")
    assert "CHANGED, rounds = 2" in said.out
    assert "ours (full, changed: not a reproduction)" in said.out
    (one,) = read(Path("changed/reproduce.json"))
    assert not one.reproduction
    (one,) = tables("--table", "1", "--rows", "1", "--scale", "full", "--set", "precision=fp64", "--device", "cpu")
    assert one["reproduction"], "arithmetic is told, and changes nothing of the setting"
    assert one["changed"] == {"precision": "fp64"}


def test_never_is_infinity_and_claims_follow_the_stated_rule(toy: Path) -> None:
    (two,) = tables("--table", "II", "--scale", "full", "--out", "here")
    hard, easy = (row["cells"] for row in two["rows"])
    assert hard[0]["published"] == "inf"
    assert hard[0]["ours"] == {"mean": None, "std": None, "values": [None]}
    assert easy[0]["ours"]["mean"] == 1
    assert easy[0]["difference"] == 0
    assert easy[1]["ours"]["mean"] == pytest.approx(hard[1]["ours"]["mean"])
    assert "| ∞ | ∞ | – |" in Path("here/reproduce.md").read_text()
    assert "| 1 | 1 | +0 |" in Path("here/reproduce.md").read_text(), "rounds are whole"
    assert outcome(table_from_json(two), {}) == Outcome("open", tests=2, why="fewer than three seeds"), "one seed"
    assert published_counts(table_from_json(two)) == (1, 1), "fewer rounds are better"


def test_nothing_is_run_twice(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here")
    before = stamps("here")
    tables("--table", "1,II", "--out", "here")
    after = stamps("here")
    assert {k: after[k] for k in before} == before
    folders = {Path(k).parts[1] for k in after}
    assert len(folders) == 4, "two methods, with and without FedBug; table II is FedAvg again"
    tables("--out", "here", "--collect", "--note", "Looked at again.")
    assert stamps("here") == after
    assert {t.remark for t in read(Path("here/reproduce.json"))} == {"Looked at again."}
    tables("--out", "here", "--collect")
    assert {t.remark for t in read(Path("here/reproduce.json"))} == {"Looked at again."}
    assert [t.table for t in read(Path("here/reproduce.json"))] == ["1", "II", "fig1"]
    assert "analytical: computed by `holdfast theory fedbug`" in Path("here/reproduce.md").read_text()


def summaries(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*/seed-*/summary.json"))


def test_numbers_keep_when_and_where_they_were_measured(toy: Path) -> None:
    """Not of the command that looks at them: that may be a later one, on another machine."""
    tables("--table", "1", "--rows", "1", "--columns", "1", "--out", "here")
    (file,) = summaries("here")
    elsewhere = {"date": "2001-01-01", "torch": "1.0", "commit": "abc1234", "device": "Abacus"}
    write_summary(file.parent, read_summary(file.parent, "") | elsewhere)
    (one,) = tables("--table", "1", "--rows", "2", "--seeds", "2", "--out", "here", "--note", "Of two days.")
    assert [len(c["made"]) for c in one["rows"][0]["cells"]] == [2, 2], "one for every seed"
    (kept,) = read(Path("here/reproduce.json"))
    old = kept.runs[0].made
    assert [{name: made[name] for name in elsewhere} for made in old] == [elsewhere]
    today, cells = date.today().isoformat(), "(2 cells)"
    assert (
        f"\n\nMeasured 2001-01-01 (1 cell) and {today} {cells} on Abacus (1 cell) and cpu {cells}, "
        f"torch 1.0 (1 cell) and {torch.__version__} {cells}, commit "
    ) in Path("here/reproduce.md").read_text()


def test_unknown_facts_about_a_run_are_left_out(toy: Path) -> None:
    args = ("--table", "1", "--rows", "1", "--out", "here")
    tables(*args)
    for file in summaries("here"):
        known = {k: v for k, v in read_summary(file.parent, "").items() if k not in ("date", "torch", "commit")}
        write_summary(file.parent, known)
    assert re.search(r"\n\nMeasured on cpu, data [0-9a-f]{8}\.\n", rep(*args, "--collect").out)
    for file in summaries("here"):
        known = read_summary(file.parent, "")
        del known["device"], known["holdfast"], known["data_checksum"]
        write_summary(file.parent, known)
    assert "Measured" not in rep(*args, "--collect").out
    assert rep(*args, "--collect", "--note", "From an attic.").out.endswith("\n\nFrom an attic.\n\n")


def test_without_runs_there_is_no_provenance(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here", "--note", "Digits are small.")
    said = rep("--table", "1,II,fig1", "--rows", "2", "--columns", "2", "--collect", "--out", "here", "--note", "x").out
    assert "Measured" not in said.partition("table II")[0]
    assert "Measured" not in rep("--table", "fig1", "--out", "here", "--note", "x").out


def test_collect_runs_nothing(toy: Path) -> None:
    tables("--table", "1", "--rows", "1", "--out", "here")
    before = stamps("here")
    (one,) = tables("--table", "1", "--out", "here", "--collect")
    assert {c["status"] for row in one["rows"] for c in row["cells"]} == {"run", "not run", "absent", "data absent"}
    assert stamps("here") == before
    assert "runs\n" not in rep("--table", "1", "--out", "here", "--collect").err


def test_two_jobs_find_what_one_finds(toy: Path) -> None:
    (one,) = tables("--table", "1", "--rows", "IID", "--out", "one")
    (two,) = tables("--table", "1", "--rows", "IID", "--out", "two", "--jobs", "2")
    ours = [[c["ours"] for row in t["rows"][:2] for c in row["cells"]] for t in (one, two)]
    assert ours[0] == ours[1]


def test_a_killed_reproduction_resumes(toy: Path) -> None:
    args = ["toy", "--papers", "papers", "--table", "1", "--scale", "full", "--set", "rounds=60", "--out", "here"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.reproduce", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while not list(Path("here").glob("*/seed-0/summary.json")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = [p.parent for p in Path("here").glob("*/seed-0/summary.json")]
    before = {k: v for k, v in stamps("here").items() if Path(k).parent in done}
    assert 0 < len(done) < 4
    assert call("reproduce", *args, "--quiet").code == 0
    assert {k: stamps("here")[k] for k in before} == before
    assert len(list(Path("here").glob("*/seed-0/summary.json"))) == 4


def test_other_folders_are_left_alone(toy: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert refused("reproduce", "toy", "--papers", "papers", "--out", "mine") == (
        "holdfast: mine is not empty and holds no reproduce.json: choose another --out\n"
    )


BLOCK = """
from importlib.machinery import PathFinder

ABSENT = {"click", "rich", "scipy", "sklearn", "matplotlib", "plotly", "PIL", "pandas", "pyarrow", "torchmetrics"}
ABSENT |= {"datasets", "dill"}
find = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, path=None, target=None: None if name.split(".")[0] in ABSENT else find(name, path, target)
)
"""


def test_torch_and_numpy_are_enough(toy: Path, tmp_path: Path) -> None:
    """Where nothing else is installed, reproductions and comparisons run, also in several processes."""
    write_idx(tmp_path / "data" / "MNIST" / "raw", ("train", "t10k"), 10)
    (toy / "toy.toml").write_text(TOY.replace('data = "digits"', 'data = "mnist"'))
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BLOCK)
    env = os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "HOLDFAST_CACHE": str(tmp_path / "cache")}
    args = [
        "toy",
        "--papers",
        "papers",
        "--table",
        "1",
        "--rows",
        "IID",
        "--seeds",
        "2",
        "--jobs",
        "2",
        "--out",
        "here",
    ]
    said = subprocess.run(
        [sys.executable, "-m", "holdfast.reproduce", *args], env=env, capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0, said.stderr
    assert "8/8" in said.stderr
    assert "NOT a reproduction" in said.stdout
    code = """
import holdfast
if __name__ == "__main__":
    small = {"clients": 4, "rounds": 2, "out": "compared"}
    found = holdfast.compare(["fedavg", "fedbug"], "mnist", "linear", seeds=2, jobs=2, **small)
    print(found.entries[1]["difference"]["p"])
"""
    Path("script.py").write_text(code)
    said = subprocess.run([sys.executable, "script.py"], env=env, capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout) == (0, "None\n"), said.stderr
    assert "scipy is not installed" in Path("compared/compare.md").read_text()
    assert good("compare", "--tables", "compared", "--json").json["entries"][1]["difference"]["p"] is not None


def test_cells_that_share_a_run_are_explained(toy: Path) -> None:
    rep("--table", "1", "--rows", "2", "--out", "here")
    assert SHARED not in Path("here/reproduce.md").read_text()
    rep("--table", "II", "--out", "here")
    rep("--table", "1", "--rows", "2", "--out", "here")
    text = Path("here/reproduce.md").read_text()
    assert "| IID, FedAvg | 0% | " in text, "the run of table II"
    assert text.startswith(f"{SHARED}\n## toy, table ")


def test_runs_that_exploded_are_marked(toy: Path) -> None:
    words = ("--table", "1", "--rows", "1", "--columns", "1", "--scale", "full", "--set", "rounds=4", "--out", "here")
    (calm,) = tables(*words)
    assert "exploded" not in calm["rows"][0]["cells"][0]
    (one,) = tables(*words, "--set", "lr=50")
    assert one["rows"][0]["cells"][0]["exploded"] == [0]
    text = Path("here/reproduce.md").read_text()
    assert text.count(" (EXPLODED) | ") == 1
    assert text.count(
        "\n\nNumbers marked EXPLODED are from runs that exploded: for 3 rounds in a row the training loss was above 10 "
        "times that of the start.\n"
    ) == 1  # fmt: skip
    assert table_from_json(one).cells[0].exploded


def test_another_number_in_the_history_of_a_finished_run(toy: Path) -> None:
    words = ("--table", "1", "--rows", "1", "--scale", "full", "--out", "here")
    rep(*words)
    path = min(Path("here").glob("*/seed-0/history.jsonl"))
    text = path.read_text()
    path.write_text(text.replace('"upload_bytes": ', '"upload_bytes": 1', 1))
    rounds = text.count("\n")
    changed = f"{path} was changed since round {rounds} was recorded; the last good round is 0: restore the file, or "
    for more in ((), ("--collect",)):
        said = call("reproduce", "toy", "--papers", "papers", *words, *more)
        assert (said.code, said.err) == (2, f"holdfast: {changed}delete that run's folder to run it again\n")

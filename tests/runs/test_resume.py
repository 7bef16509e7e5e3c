"""A run that is killed, stopped or extended ends with the very same history as one that was not."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import holdfast
from helpers.commands import TINY, call, config, facts, files, good, lines, refused
from holdfast.runs.folder import RunFolder

COMMAND = Path(sys.executable).with_name("holdfast")
STATEFUL = "scaffold+moon+fedavgm"
ROUNDS = 40
LONG = ("--clients", "12", "--cohort", "4", "--epochs", "1", "--rounds", str(ROUNDS), "--model", "mlp(32)")
ENDLESS = 120.0
CLOCK = ("date", "seconds", "kappa", "rho", "out")  # what depends on time and place


pytestmark = pytest.mark.usefixtures("elsewhere")


def start(*args: str) -> subprocess.Popen:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([COMMAND, "run", *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rounds(folder: str) -> int:
    path = Path(folder) / "history.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(process: subprocess.Popen, folder: str, least: int) -> None:
    """Until the history has so many lines."""
    end = time.monotonic() + ENDLESS
    while rounds(folder) < least:
        assert process.poll() is None, "ended before it could be stopped"
        assert time.monotonic() < end
        time.sleep(0.002)


def sound(folder: Path | str) -> None:
    """Two checkpoints, all files they name, and nothing else."""
    manifests = sorted((Path(folder) / "checkpoint").glob("*.json"))
    assert 1 <= len(manifests) <= 2
    named = [json.loads(m.read_text()) for m in manifests]
    wanted = {name for m in named for part in ("server", "clients") for name in m[part]}
    found = {p.name for p in (Path(folder) / "checkpoint").iterdir()}
    assert found == wanted | {m.name for m in manifests}
    assert all(name.endswith(".safetensors") for name in wanted)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An uninterrupted run of a method, once."""

    @cache
    def run(method: str) -> Path:
        folder = tmp_path_factory.mktemp("whole") / "run"
        good("run", method, *LONG, "--quiet", "--out", str(folder))
        return folder

    return run


# -- killed --------------------
@pytest.mark.parametrize(("method", "moments"), [("fedavg", [(3, 0.0)]), (STATEFUL, [(4, 0.013), (12, 0.005)])])
def test_killed_in_the_middle_of_a_round_and_resumed(
    whole: Callable[[str], Path], method: str, moments: list[tuple[int, float]]
):
    args = (method, *LONG)
    for least, delay in moments:
        process = start(*args, "--out", "killed")
        wait_for(process, "killed", least)
        time.sleep(delay)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not Path("killed/summary.json").exists()
        args = ("--resume",)
    said = good("run", "--resume", "--out", "killed")
    assert re.search(r"^resuming after round [1-9]\d*$", said.err, re.MULTILINE)
    assert len(facts("killed")) == ROUNDS
    assert facts("killed") == facts(whole(method))
    sound("killed")
    ends = [json.loads((f / "summary.json").read_text()) for f in (Path("killed"), whole(method))]
    one, other = ({k: v for k, v in end.items() if k not in {*CLOCK, "checksum"}} for end in ends)
    assert one == other


class Killed(BaseException):
    """Nothing catches it: the process is gone."""


def run_until_killed(monkeypatch: pytest.MonkeyPatch, when: int, *args: str) -> bool:
    """Run, and die instead of the rename number ``when``. False: it ended before."""
    rename, calls = os.replace, iter(range(1, 10**6))

    def replace(*pair: str) -> None:
        if next(calls) == when:
            raise Killed
        rename(*pair)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        try:
            good("run", *args)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("every", ["1", "2"])
def test_killed_before_any_rename_and_resumed(monkeypatch: pytest.MonkeyPatch, every: str):
    """Whatever was last on disk when the process died, the old checkpoint loads and the history ends the same."""
    some = ("scaffold", *TINY, "--rounds", "3", "--checkpoint-every", every, "--out")
    good("run", *some, "whole")
    when = 0
    while run_until_killed(monkeypatch, when := when + 1, *some, "killed"):
        resume = ("--resume", "--quiet", "--out") if Path("killed/config.toml").exists() else some
        good("run", *resume, "killed")
        assert facts("killed") == facts("whole"), when
        sound("killed")
        shutil.rmtree("killed")
    assert when > 8


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_failing_write_keeps_the_old_checkpoint(monkeypatch: pytest.MonkeyPatch, when: int):
    good("run", "scaffold", *TINY, "--rounds", "2", "--out", "here")
    before = files("here/checkpoint")
    shutil.copytree("here", "copy")
    extend = ("--resume", "--out", "here", "--rounds", "3", "--quiet")
    assert run_until_killed(monkeypatch, 2 + when, *extend), "two renames reopen the run, then files are written"
    assert files("here/checkpoint").items() >= before.items()
    good("run", *extend)
    good("run", "--resume", "--out", "copy", "--rounds", "3", "--quiet")
    assert facts("here") == facts("copy")


@pytest.mark.parametrize("tail", ['{"round": 4, "test_acc', "\0\0\0", '{"round": 4}\n{"round": 5}\n', ""])
def test_what_stands_behind_the_checkpoint_is_cut_off(tail: str):
    """A line that was being written when the process died."""
    good("run", "scaffold", *TINY, "--rounds", "3", "--out", "here")
    with open("here/history.jsonl", "a") as file:
        file.write(tail)
    good("run", "--resume", "--out", "here", "--rounds", "5", "--quiet")
    good("run", "scaffold", *TINY, "--rounds", "5", "--out", "whole")
    assert facts("here") == facts("whole")


# -- stopped --------------------
def test_ctrl_c_stops_after_the_round_and_the_run_can_be_resumed(whole: Callable[[str], Path]):
    process = start(STATEFUL, *LONG, "--json", "--out", "stopped")
    wait_for(process, "stopped", 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    done = rounds("stopped")
    assert process.returncode == 130
    assert 2 <= done < ROUNDS
    assert "Traceback" not in err
    assert "\nstopped; to resume: holdfast run --resume --out stopped\n" in err
    assert json.loads(out.splitlines()[-1])["rounds"] == done
    assert not Path("stopped/summary.json").exists()
    assert max(Path("stopped/checkpoint").glob("*.json")).stem == f"round-{done:06d}"
    good("run", "--resume", "--out", "stopped", "--quiet")
    assert facts("stopped") == facts(whole(STATEFUL))


@dataclass(frozen=True)
class CtrlC(holdfast.Part):
    """Presses Ctrl-C so many times in round 2, in the middle of the training."""

    name = "toy-ctrl-c"

    times: int = holdfast.param(1, "how often")

    def begin(self, c: holdfast.Client) -> holdfast.Tensors:
        if int(c.round) == 2 and int(c.id) == 0 and os.environ.get("PRESS"):
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)
        return {}


@pytest.mark.parametrize(("times", "kept"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("every", ["1", "10"])
def test_one_ctrl_c_ends_the_round_and_a_second_one_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, times: int, kept: int, every: str
):
    some = (f"toy-ctrl-c({times})+scaffold", *TINY, "--cohort", "6", "--engine", "loop", "--rounds", "4")
    some = (*some, "--checkpoint-every", every, "--out")
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setenv("PRESS", "yes")
        said = call("run", *some, "here")
    assert said.code == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert len(lines("here")) == kept
    good("run", "--resume", "--out", "here", "--quiet")
    good("run", *some, "whole")
    assert facts("here") == facts("whole")


def test_an_extended_run_that_is_stopped_is_not_finished(monkeypatch: pytest.MonkeyPatch):
    some = (*TINY, "--cohort", "6", "--engine", "loop", "--out", "here", "--rounds")
    good("run", "toy-ctrl-c", *some, "1")
    monkeypatch.setenv("PRESS", "yes")
    assert call("run", "--resume", "--out", "here", "--rounds", "4", "--quiet").code == 130
    assert len(lines("here")) == 2
    assert not Path("here/summary.json").exists(), "that of the shorter run"


# -- finished, extended, changed --------------------
def test_a_finished_run_is_left_as_it_is_and_says_so():
    good("run", "scaffold", *TINY, "--out", "here")
    before, stamps = files("here"), {p: p.stat().st_mtime_ns for p in Path("here").rglob("*")}
    said = good("run", "--resume", "--out", "here")
    assert "\nalready finished after 2 rounds: nothing to do\n" in said.err
    assert files("here") == before
    assert {p: p.stat().st_mtime_ns for p in Path("here").rglob("*")} == stamps


def test_a_finished_run_still_gives_its_summary():
    first = good("run", "scaffold", *TINY, "--out", "here", "--json")
    assert good("run", "--resume", "--out", "here", "--quiet", "--json").json == first.json


@pytest.mark.parametrize("method", ["fedavg", STATEFUL, "feddyn+fedbug(0.5)+clip(1)", "fedcm+fedexp", "fedadam"])
@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_more_rounds_extend_a_run(method: str, engine: str):
    some = (*TINY, "--engine", engine, "--lr-decay", "0.9", "--rounds")
    good("run", method, *some, "2", "--out", "here")
    said = good("run", "--resume", "--out", "here", "--rounds", "4", "--quiet", "--json")
    good("run", method, *some, "4", "--out", "whole")
    assert facts("here") == facts("whole")
    assert said.json["rounds"] == config("here")["rounds"] == 4


def test_fewer_rounds_than_there_are_is_refused():
    good("run", "fedavg", *TINY, "--rounds", "3", "--out", "here")
    assert refused("run", "--resume", "--out", "here", "--rounds", "2") == (
        "holdfast: here already has 3 rounds, more than 2: leave out --rounds, or start over with --overwrite\n"
    )
    assert len(lines("here")) == config("here")["rounds"] == 3


@pytest.mark.parametrize(
    ("args", "difference"),
    [
        (("prox",), "method = fedavg, not prox"), (("--lr", "0.3"), "lr = 0.1, not 0.3"),
        (("--seed", "1"), "seed = 0, not 1"), (("--cohort", "3"), "cohort = 2, not 3"),
        (("--model", "mlp"), "model = linear, not mlp"), (("--clip", "1"), "clip = none, not 1"),
        (("--set", "split=iid"), "split = dirichlet(0.3), not iid"),
        (("--precision", "fp64"), "precision = fp32, not fp64"), (("--engine", "loop"), "engine = auto, not loop"),
        (("--config", "my.toml"), "batch = 32, not 64"),
    ],
)  # fmt: skip
def test_another_setting_is_refused(args: tuple[str, ...], difference: str):
    good("run", "fedavg", *TINY, "--out", "here")
    Path("my.toml").write_text("batch = 64\n")
    assert refused("run", "--resume", "--out", "here", *args) == (
        f"holdfast: the run to resume has {difference}: leave that setting out, or start over with --overwrite\n"
    )


def test_the_same_settings_are_welcome():
    some = (*TINY, "--clients", "50", "--cohort", "30", "--lr", "0.2", "--out", "here")
    good("run", "fedavg", *some)
    good("run", "fedavg", *some, "--resume")
    good("run", "--cohort", "30", "--resume", "--out", "here", "--rounds", "3", "--quiet")
    assert len(lines("here")) == 3


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_resuming_from_python_with_a_model_and_a_part_of_ones_own(engine: str):
    g = torch.Generator().manual_seed(0)
    data = holdfast.from_arrays(torch.randn(80, 5, generator=g), torch.arange(80) % 4)
    federation = holdfast.federate(data, "iid", clients=5)
    model = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.3), nn.ReLU(), nn.Linear(6, 4))
    some = {"cohort": 3, "batch": 4, "epochs": 2, "engine": engine}
    whole = holdfast.run(STATEFUL, federation, model, rounds=4, **some)
    holdfast.run(STATEFUL, federation, model, rounds=2, out="here", **some)
    result = holdfast.run(STATEFUL, federation, model, rounds=4, out="here", resume=True, **some)
    assert torch.equal(result.w, whole.w)
    assert [r.train_loss for r in result.history] == [r.train_loss for r in whole.history]


def test_stop_ends_a_run_from_python():
    result = holdfast.run("fedavg", rounds=5, steps=1, out="here", stop=lambda: rounds("here") >= 1)
    assert len(result.history) == 2
    assert not Path("here/summary.json").exists()


def test_old_checkpoints_are_cleaned_up():
    good("run", STATEFUL, *TINY, "--rounds", "8", "--out", "here")
    sound("here")
    assert len(list(Path("here/checkpoint").glob("server-*"))) == 2
    assert len(list(Path("here/checkpoint").glob("client-*"))) <= 6 + 2


@pytest.mark.parametrize("settings", [{"engine": "vector"}, {"engine": "loop"}, {"engine": "vector", "compile": False}])
def test_the_config_of_the_result_is_the_config_on_disk(settings: dict[str, Any]):
    """Whatever is decided when a run starts, such as whether to compile, is decided before anything is written."""
    tiny = {"model": "linear", "clients": 6, "cohort": 2, "steps": 2, "rounds": 2}
    result = holdfast.run("fedavg", out="here", **tiny, **settings)
    assert result.config == RunFolder(Path("here")).stored()
    assert holdfast.run(out="here", resume=True, rounds=3).config == RunFolder(Path("here")).stored()

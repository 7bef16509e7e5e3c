"""Checkpoints are written while the next rounds are trained; nothing that a kill leaves behind is other than before."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from campaign.process import Child
from helpers.commands import TINY, call, facts, files, good, lines
from holdfast.method.config import Config
from holdfast.method.method import as_method
from holdfast.runs import checkpoint, run_options
from holdfast.runs.checkpoint_writer import CheckpointWriter
from holdfast.runs.setup import prepare_simulation
from holdfast.runs.snapshot import take

pytestmark = pytest.mark.usefixtures("elsewhere")
SUMS = ("scaffold+moon+fedavgm", "feddyn", "fedcm+latest", "fedgen", "fedadam+adam")


class LateWriter(CheckpointWriter):
    """Writes at the last moment: when the next checkpoint is due, or at the end."""

    work: Callable[[], None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        self.work = work

    def wait(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            super().start(work)
        super().wait()


class PromptWriter(CheckpointWriter):
    """Writes before the next round starts."""

    def start(self, work: Callable[[], None]) -> None:
        super().start(work)
        self.wait()


def states(folder: str) -> dict[str, bytes | None]:
    """The files of a run's checkpoints, without the manifests, which cover the clock."""
    return {Path(p).name: content for p, content in files(f"{folder}/checkpoint").items() if p.endswith("safetensors")}


@pytest.mark.parametrize("method", SUMS)
@pytest.mark.parametrize("how", [("--engine", "vector"), ("--engine", "loop", "--states", "disk")])
def test_a_late_checkpoint_holds_the_round_it_is_of(
    monkeypatch: pytest.MonkeyPatch, method: str, how: tuple[str, ...]
) -> None:
    """Whatever the next rounds do to the model and the states, the files are byte for byte those of a prompt writer."""
    words = ("run", method, *TINY, "--public", "0.05", "--rounds", "5", *how, "--checkpoint-every", "2", "--out")
    for name, writer in (("late", LateWriter), ("prompt", PromptWriter)):
        with monkeypatch.context() as patch:
            patch.setattr(run_options, "CheckpointWriter", writer)
            good(*words, name)
    late, prompt = (states(name) for name in ("late", "prompt"))
    assert {"server-000004.safetensors", "server-000005.safetensors"} <= late.keys()
    assert late == prompt
    assert facts("late") == facts("prompt")


@pytest.mark.parametrize("kept", ["memory", "disk"])
def test_a_snapshot_does_not_change(kept: str) -> None:
    """Not even if the model and the states are overwritten in place, or a client's state is replaced."""
    config = Config(method="scaffold", model="linear", clients=4, cohort=2, steps=1, states=kept)
    simulation = prepare_simulation(config, as_method("scaffold"))
    simulation.play(1)
    changed = set(simulation.clients.changed)
    w, c = simulation.server.w.clone(), simulation.server.states["scaffold"]["c"].clone()
    before = {i: simulation.clients.rows[i]["scaffold"]["c"].clone() for i in changed}
    snapshot = take(1, simulation.server, simulation.clients)
    simulation.server.w.zero_()
    simulation.server.states["scaffold"]["c"].fill_(7)
    for i in changed:
        simulation.clients.rows[i] = {"scaffold": {"c": torch.zeros_like(w)}}
    assert torch.equal(snapshot.server["model"], w)
    assert torch.equal(snapshot.server["scaffold/c"], c)
    assert snapshot.clients.keys() == changed
    assert all(torch.equal(snapshot.clients[i]["scaffold"]["c"], before[i]) for i in changed)
    assert not simulation.clients.changed


def killing_at(rename: int) -> Callable[[], None]:
    """Let a process kill itself instead of making this rename, whichever thread comes to it."""
    real, count, lock = os.replace, [0], threading.Lock()

    def replace(*pair: str) -> None:
        with lock:
            count[0] += 1
            if count[0] == rename:
                os.kill(os.getpid(), signal.SIGKILL)
        real(*pair)

    def patch() -> None:
        os.replace = replace

    return patch


def test_killed_at_any_rename_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real SIGKILL, which ends both threads, while a writer that is late is at any of its renames."""
    words = ("run", "scaffold", *TINY, "--rounds", "3", "--out")
    good(*words, "whole")
    monkeypatch.setattr(run_options, "CheckpointWriter", LateWriter)
    kept = set()
    for rename in range(1, 100):
        child = Child(lambda: good(*words, "killed"), killing_at(rename))
        ended = child.wait()
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended
        started = Path("killed/config.toml").exists()
        if Path("killed/checkpoint").exists():
            newest = checkpoint.newest(Path("killed/checkpoint"))
            done = newest.round if newest else 0
            assert done <= len(lines("killed")) <= done + 2, "the history comes first; one checkpoint may be missing"
            kept.add(done)
        good(*(("run", "--resume", "--quiet", "--out") if started else words), "killed")
        assert facts("killed") == facts("whole"), rename
        shutil.rmtree("killed")
    assert rename > 8
    assert kept == {0, 1, 2, 3}


def test_a_full_disk_ends_the_run_in_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the next checkpoint is far away; nothing is written after the error, and the run can be resumed."""
    written = threading.Event()

    def full(*_: object) -> None:
        written.set()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "here/checkpoint/round-000002.json")

    def after_the_error(self: CheckpointWriter) -> None:
        if self.thread is not None:
            assert written.wait(10)
            self.thread.join()
        check(self)

    check = CheckpointWriter.check
    some = ("fedavg", *TINY, "--rounds", "50", "--checkpoint-every", "2", "--out", "here")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", full)
        patch.setattr(CheckpointWriter, "check", after_the_error)
        said = call("run", *some)
    assert said.code == 2
    assert said.err == (
        "holdfast: cannot use here/checkpoint/round-000002.json: no space left on device; what was recorded is kept: "
        "fix that, then holdfast run --resume --out here\n"
    )
    assert len(lines("here")) == 2
    good("run", "--resume", "--quiet", "--out", "here")
    assert len(lines("here")) == 50


def test_one_piece_at_a_time() -> None:
    """The second waits for the first, and the end of the block for both."""
    done: list[int] = []
    free = threading.Event()

    def first() -> None:
        free.wait(10)
        done.append(1)

    with CheckpointWriter() as writer:
        writer.keep(int, lambda _: first())
        assert done == []
        threading.Timer(0.05, free.set).start()
        writer.keep(int, lambda _: done.append(2))
        assert done[0] == 1
    assert done == [1, 2]


def test_ctrl_c_waits_for_what_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    free = threading.Event()
    writer = CheckpointWriter()
    writer.start(lambda: free.wait(10) and done.append(1))
    assert writer.thread is not None
    real, presses = writer.thread.join, iter([1, 2])

    def join() -> None:
        if next(presses, None):
            raise KeyboardInterrupt
        free.set()
        real()

    monkeypatch.setattr(writer.thread, "join", join)
    with pytest.raises(KeyboardInterrupt):
        writer.wait()
    assert done == [1]

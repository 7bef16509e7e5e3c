"""One command at a time in a folder: who holds it is named, and a dead owner's lock is taken over."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from helpers.commands import good, lines
from helpers.exact_errors import raises_exactly
from holdfast.core.errors import HoldfastError
from holdfast.core.folder_lock import LOCK, STALE, FolderInUse, FolderLock, LockOwner
from holdfast.runs.folder import RunFolder
from holdfast.training.round_record import RoundRecord

pytestmark = pytest.mark.usefixtures("elsewhere")

HOLD = """
import sys, time
from pathlib import Path
from holdfast.core.folder_lock import FolderLock
with FolderLock(Path("here")):
    print("held", flush=True)
    time.sleep(60)
"""


def holder() -> subprocess.Popen[str]:
    """A process that holds the folder ``here``."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_live_owner_is_named_and_a_dead_one_gives_way_at_once():
    process = holder()
    try:
        started = LockOwner(**json.loads(Path("here", LOCK).read_text())).started
        with pytest.raises(HoldfastError) as error, FolderLock(Path("here")):
            pass
        assert str(error.value) == (
            f"here is in use by another command (process {process.pid}, started {started}): wait until it ends, or "
            "stop it"
        )
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert Path("here", LOCK).exists(), "a killed process leaves its lock"
        with FolderLock(Path("here")):
            owner = LockOwner(**json.loads(Path("here", LOCK).read_text()))
            assert (owner.pid, owner.host) == (os.getpid(), platform.node())
    finally:
        process.kill()
        process.communicate()
    assert not Path("here").exists() or not list(Path("here").iterdir())


def test_the_same_process_cannot_take_a_folder_twice():
    with FolderLock(Path("here")):
        with pytest.raises(HoldfastError, match="here is in use by another command"), FolderLock(Path("here")):
            pass
        assert Path("here", LOCK).exists(), "the refused one leaves the lock of the other alone"


def test_an_owner_on_another_host_counts_until_its_heartbeat_is_stale():
    """Where several machines share a disk, the system's lock may be seen by one of them only."""
    Path("here").mkdir()
    elsewhere = replace(LockOwner.this_process(), host="far-away", pid=7, started="2026-01-01 00:00:00")
    path = Path("here", LOCK)
    path.write_text(json.dumps(asdict(elsewhere)))
    with pytest.raises(HoldfastError) as error, FolderLock(Path("here")):
        pass
    assert "(process 7 on far-away, started 2026-01-01 00:00:00)" in str(error.value)
    os.utime(path, (time.time() - STALE - 1,) * 2)
    with FolderLock(Path("here")):
        assert LockOwner(**json.loads(path.read_text())).pid == os.getpid()


def test_the_heartbeat_touches_the_lock(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.core.folder_lock.HEARTBEAT", 0.05)
    with FolderLock(Path("here")):
        path = Path("here", LOCK)
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 5
        while path.stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "\0"])
def test_a_lock_that_says_nothing_is_taken_over(content: str):
    Path("here").mkdir()
    Path("here", LOCK).write_text(content)
    with FolderLock(Path("here")):
        pass


def test_the_clock_of_this_host_does_not_count(monkeypatch: pytest.MonkeyPatch):
    """The owner's host and the file system agree on the time, this host is an hour ahead."""
    Path("here").mkdir()
    elsewhere = replace(LockOwner.this_process(), host="far-away", pid=7)
    Path("here", LOCK).write_text(json.dumps(asdict(elsewhere)))
    ahead = time.time() + 3600
    monkeypatch.setattr("holdfast.core.folder_lock.time.time", lambda: ahead)
    with pytest.raises(FolderInUse, match="here is in use by another command"), FolderLock(Path("here")):
        pass
    assert [p.name for p in Path("here").iterdir()] == [LOCK]


@pytest.mark.parametrize("how", ["replaced", "deleted", "rewritten"])
def test_an_owner_that_was_suspended_notices_that_it_lost_the_folder(how: str):
    """Its run writes nothing more: the folder has another writer now."""
    folder = RunFolder(Path("here"))
    line: Any = None
    with folder.reserve() as lock:
        lock.check()
        path = Path("here", LOCK)
        other = json.dumps(asdict(replace(LockOwner.this_process(), host="far-away")))
        if how == "deleted":
            path.unlink()
        elif how == "replaced":
            path.unlink()
            path.write_text(other)
        else:
            path.write_text(other)
        with raises_exactly(
            "here was taken over by another command while this one was suspended: leave it to the other"
        ):
            folder.append(line)
        assert not Path("here/history.jsonl").exists()


def test_threads_may_check_at_the_same_time():
    """The thread that writes checkpoints and the one that trains do."""
    with FolderLock(Path("here")) as lock, ThreadPoolExecutor(2) as threads:
        found = [threads.submit(lambda: [lock.check() for _ in range(1000)]) for _ in range(2)]
        assert all(len(each.result()) == 1000 for each in found)


def test_a_run_that_replaces_another_keeps_its_lock():
    """Deleting the files of the run before must not let a second writer in."""
    small: dict[str, Any] = {"steps": 1, "model": "linear", "out": "here"}
    held: list[bool] = []

    def on_round(record: RoundRecord) -> None:
        with pytest.raises(FolderInUse), FolderLock(Path("here")):
            pass
        held.append(Path("here", LOCK).exists())

    holdfast.run(rounds=1, **small)
    holdfast.run(rounds=2, overwrite=True, on_round=on_round, **small)
    assert held == [True, True]
    assert not Path("here", LOCK).exists()


# -- runs --------------------
RUN = (Path(sys.executable).with_name("holdfast"), "run", "scaffold", "--model", "linear", "--steps", "1", "--quiet",
       "--no-compile")  # fmt: skip


def wait_for(path: Path, rounds: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < rounds:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_processes_cannot_share_a_run():
    first = subprocess.Popen([*RUN, "--rounds", "100000", "--out", "rr"])
    try:
        wait_for(Path("rr/history.jsonl"), 3)
        for more in (["--resume"], ["--overwrite"]):
            second = subprocess.run([*RUN[:2], "--out", "rr", *more], capture_output=True, text=True)
            assert second.returncode == 2
            assert second.stderr.startswith(f"holdfast: rr is in use by another command (process {first.pid}, started ")
            assert second.stderr.count("\n") == 1
        assert first.poll() is None, "the first one plays on"
    finally:
        first.kill()
        first.wait()
    done = len(lines("rr"))
    good("run", "--resume", "--out", "rr", "--rounds", str(done + 2), "--quiet")
    assert [line["round"] for line in lines("rr")] == list(range(1, done + 3))


def test_commands_that_start_together_get_a_folder_each():
    command = [*RUN, "--rounds", "2"]
    started = [subprocess.Popen([*command, "--seed", str(seed)]) for seed in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert sorted(p.name for p in Path("runs").iterdir()) == [f"scaffold-digits-00{n}" for n in (1, 2, 3)]
    assert all(len(lines(folder)) == 2 for folder in Path("runs").iterdir())

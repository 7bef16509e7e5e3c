"""Windows and macOS, by stand-ins: what only POSIX has is taken away, and what the others have is imitated."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.commands import call
from helpers.exact_errors import raises_exactly
from helpers.places import ROOT
from holdfast.comparison import pool
from holdfast.core.devices import current_device, pick_device
from holdfast.core.folder_lock import LOCK, STALE, FolderInUse, FolderLock
from holdfast.core.host_memory import ASSUMED, MemoryStatus, host_memory
from holdfast.core.tensors import double
from holdfast.engines.choose import choose, compiles
from holdfast.engines.slice_width import total_memory
from holdfast.flower.processes import require_process_control
from holdfast.method.config import Config

pytestmark = pytest.mark.usefixtures("elsewhere")
POSIX_ONLY = ("sysconf", "fork", "forkpty", "killpg", "getpgid", "getsid", "setsid", "uname", "getuid", "geteuid")
POSIX_SIGNALS = ("SIGHUP", "SIGQUIT", "SIGKILL", "SIGUSR1", "SIGALRM", "SIGCHLD")

# Python imports this file in every process that starts: Holdfast, not its libraries, sees what Windows has.
BARE = f"""
import builtins, os, signal, types
imported = builtins.__import__
def without(module, names):
    bare = types.ModuleType(module.__name__)
    vars(bare).update({{name: value for name, value in vars(module).items() if name not in names}})
    return bare
stands_for = {{"os": without(os, {POSIX_ONLY}), "signal": without(signal, {POSIX_SIGNALS})}}
def as_on_windows(name, space=None, *rest, **named):
    if space is None or not space.get("__name__", "").startswith("holdfast"):
        return imported(name, space, *rest, **named)
    if name in ("fcntl", "resource", "termios", "pwd", "grp"):
        raise ImportError(name)
    return stands_for.get(name) or imported(name, space, *rest, **named)
builtins.__import__ = as_on_windows
"""
COMMANDS = """
from holdfast.cli.main import main
from holdfast.core import host_memory
assert not hasattr(host_memory.os, "sysconf")
tiny = ["--clients", "4", "--cohort", "2", "--epochs", "1", "--model", "linear"]
for command in (
    ["run", "fedavg", *tiny, "--rounds", "1", "--out", "first"],
    ["run", "--resume", "--out", "first", "--rounds", "2"],
    ["run", "scaffold", *tiny, "--rounds", "1", "--engine", "vector", "--states", "disk", "--out", "second"],
    ["compare", "fedavg", "prox", *tiny, "--rounds", "1", "--seeds", "1", "--jobs", "2", "--out", "study"],
):
    try:
        main(command)
    except SystemExit as end:
        assert not end.code, (command, end.code)
"""


def test_runs_and_comparisons_use_nothing_that_only_posix_has(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(BARE, encoding="utf-8")
    (tmp_path / "commands.py").write_text(f"if __name__ == '__main__':\n{indented(COMMANDS)}", encoding="utf-8")
    env = os.environ | {"PYTHONPATH": f"{bare}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "commands.py"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(Path("first/history.jsonl").read_text().splitlines()) == 2
    assert len(list(Path("study").glob("*/seed-0/summary.json"))) == 2


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-8"])
def test_a_terminal_without_all_characters_is_printed_to(encoding: str) -> None:
    """Windows prints to files and pipes in the encoding of the country."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", SAY], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = "\u2713 caf\u00e9".encode(encoding, "backslashreplace")
    assert done.stdout.split(b"\n")[0].rstrip() == shown + b" \xff"


SAY = r"""
import sys, click, holdfast.cli.main
main = sys.modules["holdfast.cli.main"]
main.holdfast.main = lambda *args, **settings: click.echo("\u2713 caf\u00e9 \udcff")
main.main([])
"""


# -- memory ----------------------------------------------------------------------------------------------------------
def test_memory_without_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    assert total_memory(torch.device("cpu")) == host_memory() == ASSUMED


@pytest.mark.parametrize(("works", "found"), [(True, 12 * 2.0**30), (False, ASSUMED)])
def test_memory_on_windows(monkeypatch: pytest.MonkeyPatch, works: bool, found: float) -> None:
    def fill_in(reference: Any) -> int:
        status = reference._obj
        assert status.length == ctypes.sizeof(MemoryStatus) == 64  # as Windows documents it
        status.total = 12 * 2**30
        return int(works)

    monkeypatch.delattr(os, "sysconf")
    kernel = SimpleNamespace(GlobalMemoryStatusEx=fill_in)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    assert host_memory() == found


# -- locks -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def windows_locks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, int]]:
    """The lock of Windows, which belongs to one open file; a byte that is locked cannot be read by others."""
    held: dict[int, int] = {}  # the file on disk -> the open file that has the lock

    def locking(number: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        assert os.lseek(number, 0, os.SEEK_CUR) > 2**20, "a byte of the file itself could not be read by others"
        if held.setdefault(os.fstat(number).st_ino, number) != number:
            raise PermissionError(13, "Permission denied")

    fake = ModuleType("msvcrt")
    fake.__dict__.update(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    return held


@pytest.fixture
def undeletable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is open cannot be deleted."""
    unlink = Path.unlink

    def refuse_if_open(path: Path, missing_ok: bool = False) -> None:
        numbers = Path("/proc/self/fd").iterdir()
        if path.name == LOCK and any(n.exists() and n.resolve() == path.resolve() for n in numbers):
            raise PermissionError(13, "The process cannot access the file", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_if_open)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs to know which files are open")
def test_a_lock_on_windows(windows_locks: dict[int, int], undeletable: None) -> None:
    with FolderLock(Path("here")) as lock:
        with pytest.raises(FolderInUse, match="here is in use by another command"), FolderLock(Path("here")):
            pass
        lock.check()
        Path("here/kept").touch()
    assert [p.name for p in Path("here").iterdir()] == ["kept"]
    windows_locks.clear()  # the system releases the lock of a file that is closed
    with FolderLock(Path("here")):
        pass


def test_a_dead_owner_on_windows_gives_way_at_once(windows_locks: dict[int, int]) -> None:
    with FolderLock(Path("here")):
        left = Path("here", LOCK).read_bytes()
    windows_locks.clear()
    Path("here").mkdir(exist_ok=True)
    Path("here", LOCK).write_bytes(left.replace(b'"pid": ', b'"pid": 9'))
    with FolderLock(Path("here")):
        pass


def test_without_any_system_lock_the_heartbeat_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with FolderLock(Path("here")):
        left = Path("here", LOCK).read_bytes()
    Path("here").mkdir(exist_ok=True)
    path = Path("here", LOCK)
    path.write_bytes(left.replace(b'"pid": ', b'"pid": 9'))
    with pytest.raises(FolderInUse, match="here is in use by another command"), FolderLock(Path("here")):
        pass
    os.utime(path, (path.stat().st_mtime - STALE - 1,) * 2)
    with FolderLock(Path("here")):
        pass


# -- processes -------------------------------------------------------------------------------------------------------
def test_pipes_of_another_class_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows they are PipeConnections."""
    pipes: Any = [object(), object()]
    monkeypatch.setattr(pool, "wait", lambda given, timeout: given[1:])
    assert pool.ready(pipes) == pipes[1:]


def test_a_local_deployment_is_refused_without_process_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "deploy local needs the processes of Linux or macOS: on Windows, run it in WSL"
    monkeypatch.delattr(os, "killpg")
    with raises_exactly(why):
        require_process_control()


# -- Apple's GPU -----------------------------------------------------------------------------------------------------
@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU of Apple's."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)


def test_mps_is_used_if_it_is_asked_for(apple: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick_device("mps") == torch.device("mps")
    assert pick_device("auto") == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 2**34)
    assert total_memory(torch.device("mps")) == 2.0**34
    assert choose("auto", False, "mps", 10)[0] == choose("auto", True, "mps", 10)[0] == "loop"
    assert not compiles(None, "mps", 10**9)


def test_mps_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    why = "device mps was requested, but PyTorch sees no GPU of Apple's: use --device cpu"
    assert call("run", "fedavg", "--device", "mps").err == f"holdfast: {why}\n"


@pytest.mark.parametrize("precision", ["fp64", "tf32"])
def test_precisions_that_mps_lacks(precision: str) -> None:
    why = f"device mps has no {precision}: leave precision out, or use the device cpu"
    with raises_exactly(why):
        Config(device="mps", precision=precision)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Use"),
            "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64",
        ),
        (
            NotImplementedError("The operator 'aten::x' is not currently implemented for the MPS device. If you want"),
            "The operator 'aten::x' is not currently implemented for the MPS device",
        ),
    ],
)
def test_what_mps_cannot_compute_is_one_line(apple: None, error: Exception, reason: str) -> None:
    with raises_exactly(f"device mps cannot compute this ({reason}): use --device cpu"), current_device("mps"):
        raise error
    for device, other in (("mps", TypeError("of the user's")), ("cpu", error)):
        with pytest.raises(type(other)) as found, current_device(device):
            raise other
        assert found.value is other


def test_float64_is_computed_on_the_cpu_for_mps() -> None:
    """``Tensor.double`` of the stand-in would fail."""
    there: Any = SimpleNamespace(device=torch.device("mps"), cpu=lambda: torch.tensor([1, 2]))
    assert double(there).dtype == torch.float64

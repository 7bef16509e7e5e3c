"""The engine ``flower``: Flower's simulation runtime with Ray, on the loopback only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from helpers.own_files import OWN, write_files
from holdfast import HoldfastError, federate, load, run
from holdfast.runs.history import read_history

SMALL = {"clients": 4, "cohort": 2, "epochs": 1, "rounds": 3, "device": "cpu"}
HOLDFAST = [sys.executable, "-m", "holdfast", "run"]


def flags(**values):
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def listening(pids):
    """Return the addresses at which processes accept connections, as the kernel writes them."""
    sockets = set()
    for pid in pids:
        with suppress(FileNotFoundError):  # the process has ended
            for entry in Path(f"/proc/{pid}/fd").glob("*"):
                with suppress(OSError):
                    sockets.add(str(entry.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].split(":")[0])
    return found


def marked(text):
    """Return the processes whose environment contains a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_the_engine_flower_gives_the_history_of_the_loop_and_resumes(tmp_path, monkeypatch):
    """A stateful method, stopped after two rounds and resumed in a new process; nothing listens beyond the loopback."""
    monkeypatch.setenv("HOLDFAST_TEST_MARK", str(tmp_path))
    out = tmp_path / "run"
    first = [*HOLDFAST, "scaffold", "--engine", "flower", "--out", str(out), "--quiet", *flags(**SMALL | {"rounds": 2})]
    process = subprocess.Popen(first)
    heard, deadline = set(), time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        heard |= listening(marked(f"HOLDFAST_TEST_MARK={tmp_path}"))
        time.sleep(0.5)
    assert process.poll() == 0
    assert heard
    assert heard <= {"0100007F", "0000000000000000FFFF00000100007F"}, heard  # 127.0.0.1, also as IPv6 has it
    again = [*HOLDFAST, "--resume", "--out", str(out), "--rounds", "3", "--json", "--quiet"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["rounds"] == 3
    expected = run("scaffold", engine="loop", **SMALL)
    for a, b in zip(read_history(out / "history.jsonl", 3), expected.history, strict=True):
        assert (a.cohort, a.failed, a.reset) == (b.cohort, {}, [])
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)


def test_your_own_federation_needs_an_app():
    with pytest.raises(HoldfastError) as error:
        run("fedavg", federate(load("digits"), clients=4), engine="flower")
    assert str(error.value) == (
        "engine flower needs data sets by name or as file.py:function, and models likewise or as a factory, since its "
        "workers make them; for your own objects, write an app with holdfast.flower.client_app"
    )


FACTORY = """
from torch import nn
import holdfast

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], 5), nn.Tanh(), nn.Linear(5, classes))

if __name__ == "__main__":
    for engine in ("flower", "loop"):
        holdfast.run(model=build, engine=engine, out=engine, clients=4, cohort=2, epochs=1, rounds=1, device="cpu")
"""


def test_the_engine_flower_takes_a_factory(tmp_path):
    (tmp_path / "script.py").write_text(FACTORY)
    subprocess.run([sys.executable, "script.py"], check=True, timeout=180, cwd=tmp_path)
    assert_same_round(tmp_path)


def test_the_engine_flower_takes_files(tmp_path):
    write_files(tmp_path)
    words = ["toy-damp", *OWN, *flags(**SMALL | {"rounds": 1}), "--quiet"]
    for engine in ("flower", "loop"):
        command = [*HOLDFAST, *words, "--engine", engine, "--out", engine]
        subprocess.run(command, check=True, timeout=120, cwd=tmp_path)
    assert_same_round(tmp_path)


def assert_same_round(folder):
    (a,), (b,) = (read_history(folder / engine / "history.jsonl", 1) for engine in ("flower", "loop"))
    assert (a.cohort, a.failed) == (b.cohort, {})
    assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)

"""Child processes end with their parent, however it ends. A server that dies is told apart from one that is done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.flower import local_cluster
from holdfast.flower.app import OUTCOME, report_outcome
from holdfast.flower.local_cluster import ClusterOptions, DeploymentFailed
from holdfast.flower.watchdog import kill_all, marked

# A parent with two children. Each starts a grandchild in a session of its own, as Flower does.
# Signals are as in a terminal: tests that run in the background may have been started with some of them ignored.
PARENT = """
import signal, sys, time
from pathlib import Path
from holdfast.flower.processes import Processes

for ended_by in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(ended_by, signal.SIG_DFL)
child = "import subprocess, time; subprocess.Popen(['sleep', '300'], start_new_session=True); time.sleep(300)"
logs = Path(sys.argv[1])
with Processes({"PATH": "/usr/bin:/bin"}, logs) as processes:
    for name in ("one", "two"):
        processes.start(name, [sys.executable, "-c", child])
    (logs.parent / "token").write_text(processes.token)
    print(processes.watchdog.pid, flush=True)
    time.sleep(float(sys.argv[2]))
"""


def start_parent(folder, seconds):
    """Start the parent and wait for its grandchildren; return it, its token and the id of its watchdog."""
    logs = folder / "logs"
    logs.mkdir()
    words = [sys.executable, "-c", PARENT, str(logs), str(seconds)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with parent.stdout as stdout:
        watchdog = int(stdout.readline())
    token = (folder / "token").read_text()
    wait_until(lambda: len(marked(token)) >= 4)
    return parent, token, watchdog


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_children_and_grandchildren_end_with_their_parent(how, tmp_path):
    parent, token, watchdog = start_parent(tmp_path, seconds=300)
    parent.send_signal(how)
    parent.wait(timeout=20)
    wait_until(lambda: not marked(token))
    wait_until(lambda: gone(watchdog))
    assert (tmp_path / "logs").exists() == (how == signal.SIGTERM)  # the parent stops in its own way and keeps its logs


def test_a_parent_that_is_done_leaves_no_process_and_keeps_its_logs(tmp_path):
    parent, token, watchdog = start_parent(tmp_path, seconds=0.5)
    assert parent.wait(timeout=20) == 0
    assert not marked(token)
    assert gone(watchdog)
    assert (tmp_path / "logs" / "one.log").exists()


def test_only_processes_with_the_mark_are_killed():
    other = subprocess.Popen(["sleep", "30"], env=os.environ | {"HOLDFAST_STARTED": "another"})
    try:
        kill_all("none", {other.pid})  # it leads no session, so its number may have had another owner
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


# -- how a server ended --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", [KeyboardInterrupt, SystemExit])
def test_a_server_that_is_told_to_stop_does_not_report_success(how, tmp_path):
    """Flower interrupts the server when its SuperLink is gone."""
    path = tmp_path / "outcome.json"
    with pytest.raises(how), report_outcome({OUTCOME: str(path)}):
        raise how
    assert not path.exists()


def test_what_a_server_reports(tmp_path):
    path = tmp_path / "outcome.json"
    with report_outcome({OUTCOME: str(path)}):
        pass
    assert json.loads(path.read_text()) == {"error": None, "status": 0, "expected": True}
    with pytest.raises(HoldfastError), report_outcome({OUTCOME: str(path)}):
        raise HoldfastError("too few: wait")
    assert json.loads(path.read_text()) == {"error": "too few: wait", "status": 2, "expected": True}
    with pytest.raises(ValueError, match="x"), report_outcome({OUTCOME: str(path)}):
        raise ValueError("x")
    assert json.loads(path.read_text()) == {
        "error": "the server raised ValueError: x", "status": 1, "expected": False,
    }  # fmt: skip


class Link:
    """A SuperLink; ``dead`` says whether it has ended."""

    dead = False

    def poll(self):
        return -9 if self.dead else None


class FakeCluster:
    """A cluster without processes. ``script`` says what happens to each run that is submitted."""

    def __init__(self, work, script):
        self.work, self.out, self.script = work, work / "run", script
        self.link, self.submitted, self.starts = Link(), [], 0
        self.processes = self

    def submit(self, values):
        self.submitted.append(values)
        return self.script[len(self.submitted) - 1](self, Path(values[OUTCOME])) or 1

    def start(self):
        self.starts, self.link = self.starts + 1, Link()

    def stop(self):
        pass

    def running_command(self, name):
        return {1}

    def link_runs(self):
        return not self.link.dead

    def owners(self, clients):
        return None

    def last_line(self, name):
        return "killed"


def dies(cluster, outcome):
    cluster.link.dead = True


def dies_and_the_server_fails(cluster, outcome):
    cluster.link.dead = True
    outcome.write_text(json.dumps({"error": "the server raised ConnectError", "status": 1, "expected": False}))


def dies_while_flwr_waits(cluster, outcome):
    cluster.link.dead = True
    raise HoldfastError("flwr run failed: connection refused")


def refuses(cluster, outcome):
    outcome.write_text(json.dumps({"error": "too few clients", "status": 1, "expected": True}))


def succeeds(cluster, outcome):
    outcome.write_text(json.dumps({"error": None, "status": 0, "expected": True}))


@pytest.mark.parametrize("death", [dies, dies_and_the_server_fails, dies_while_flwr_waits])
def test_a_run_whose_superlink_dies_is_started_again_up_to_the_limit(death, tmp_path):
    cluster = FakeCluster(tmp_path, [death, death, succeeds])
    local_cluster._run(cluster, {"clients": 2, "overwrite": True}, ClusterOptions(tmp_path / "run", 2, restarts=2))
    assert cluster.starts == 2
    assert [v["overwrite"] for v in cluster.submitted] == [True, False, False]
    assert len({v[OUTCOME] for v in cluster.submitted}) == 3, "what an earlier server still writes is not read"


@pytest.mark.parametrize("death", [dies, dies_and_the_server_fails, dies_while_flwr_waits])
def test_without_restarts_the_death_of_the_superlink_is_one_line(death, tmp_path):
    with pytest.raises(HoldfastError) as error:
        local_cluster._run(FakeCluster(tmp_path, [death]), {"clients": 2}, ClusterOptions(tmp_path / "run", 2))
    assert str(error.value) == (
        "the SuperLink ended (killed): resume the run with --resume, or let it restart with --restarts"
    )


def test_an_error_of_the_run_itself_is_not_tried_again(tmp_path):
    cluster = FakeCluster(tmp_path, [refuses, succeeds])
    with pytest.raises(DeploymentFailed) as error:
        local_cluster._run(cluster, {"clients": 2}, ClusterOptions(tmp_path / "run", 2, restarts=2))
    assert (str(error.value), error.value.status) == ("too few clients", 1)


def test_restarts_cannot_be_negative(tmp_path):
    with pytest.raises(HoldfastError) as error:
        ClusterOptions(tmp_path, 2, restarts=-1)
    assert str(error.value) == "--restarts must be 0 or more, not -1: 0 means never"

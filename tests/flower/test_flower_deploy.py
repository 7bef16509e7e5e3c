"""Real processes on the loopback: a SuperLink, SuperNodes and a run; some of them are killed.

Flower's nodes start a process for each message, so that a round takes many seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_digits

from holdfast import load_run, run
from holdfast.flower import certificates
from holdfast.flower.local_cluster import ClusterOptions, LinkSecurity, LocalCluster, deploy
from holdfast.flower.processes import ancestors
from holdfast.method.config import Config
from holdfast.runs.history import read_history

SMALL = {"clients": 2, "cohort": 2, "epochs": 1, "model": "mlp", "device": "cpu"}
HOLDFAST = [sys.executable, "-m", "holdfast"]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Temporary files go to a folder of the test; no process that uses it may be left at the end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield tmp_path
    assert not left_over(tmp_path)


def left_over(folder):
    """Return the processes whose Flower home is in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"FLWR_HOME={folder}".encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def settings(method, **more):
    config = Config(**{**SMALL, **more, "method": method, "engine": "flower"})
    return {k: v for k, v in asdict(config).items() if v is not None}


def history(out):
    path = out / "history.jsonl"
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    return read_history(path, lines) if lines else []


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert (a.cohort, a.failed, a.reset) == (b.cohort, {}, [])
        assert (a.upload_bytes, a.download_bytes) == (b.upload_bytes, b.download_bytes)
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)


def kill(local, name):
    """Kill one of the processes and everything it has started."""
    root = local.processes.running[name].pid
    for pid in {root, *(pid for pid, parents in ancestors().items() if root in parents)}:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)


def test_two_trips_over_tls_with_keys_and_intruders_refused(work):
    """FNR-FL as in simulation. A node with an unknown key, one without any and one without TLS are turned away."""
    intruders = {}

    def on_start(local):
        certificates.make_node_key(work / "unknown")
        command = local.node_command(0, work / "unknown")
        secret = command.index("--auth-supernode-private-key")
        open_link = [w for w in command[:secret] if w not in ("--root-certificates", str(local.certs / "ca.crt"))]
        intruders["unknown key"] = local.processes.start("unknown", [*command, "--max-retries", "1"])
        intruders["no key"] = local.processes.start("nokey", [*command[:secret], "--max-retries", "1"])
        intruders["no TLS"] = local.processes.start("plain", [*open_link, "--insecure", "--max-retries", "1"])

    how = {"public": 0.05, "rounds": 1}
    out = work / "run"
    codes = {}

    def on_wait():
        codes.update({name: p.poll() for name, p in intruders.items()})

    options = ClusterOptions(out, 2, LinkSecurity(tls=True, auth=True), on_start=on_start, on_wait=on_wait)
    deploy(settings("fnr(epochs=1)", **how) | {"timeout": 120.0}, options)
    assert all(codes.values()), codes  # each ended by itself, with an error
    same(history(out), run("fnr(epochs=1)", engine="loop", **SMALL | how).history)
    assert json.loads((out / "summary.json").read_text())["failed_updates"] == 0


def test_three_nodes_whose_updates_the_server_never_sees(work):
    """Keys, shares, masked vectors and what unmasks their sum go through real nodes, a process for each message."""
    how = {"clients": 3, "cohort": 3, "rounds": 1}
    deploy(settings("scaffold", **how) | {"secure": True, "timeout": 120.0}, ClusterOptions(work / "run", 3))
    found, wanted = history(work / "run")[0], run("scaffold", engine="loop", **SMALL | how).history[0]
    assert (found.cohort, found.failed) == (wanted.cohort, {})
    assert found.upload_bytes > 2 * wanted.upload_bytes
    assert found.test_loss == pytest.approx(wanted.test_loss, rel=1e-5)
    assert found.train_loss == pytest.approx(wanted.train_loss, rel=1e-5)


def test_a_table_of_hospitals(work):
    """Every node reads the table and trains its own hospital; the model takes raw rows, as in a simulation."""
    rows = [
        f"{20 + i % 50},{'fm'[i % 2]},{('Ulm', 'Köln')[i % 3 > 0]},{'yes' if i % 50 > 20 else 'no'}" for i in range(90)
    ]
    table = work / "patients.csv"
    table.write_text("\n".join(["age,sex,hospital,ill", *rows, ""]), encoding="utf-8")
    how = {"data": f"csv('{table}', label='ill', client='hospital')", "split": "given", "rounds": 1}
    deploy(settings("fedavg", **how) | {"timeout": 120.0}, ClusterOptions(work / "run", 2))
    wanted = run("fedavg", engine="loop", **SMALL | how)
    same(history(work / "run"), wanted.history)
    frame = pandas.DataFrame({"sex": ["m", "f"], "age": [70, 20]})
    np.testing.assert_allclose(load_run(work / "run").predict_proba(frame), wanted.predict_proba(frame), atol=1e-5)


@pytest.mark.parametrize(
    ("label", "more"),
    [
        ("label=price, drop=[ill, cough]", {"client_eval": True, "personal": 1, "model": "linear", "lr": 0.01}),
        ("label=[ill, cough], drop=price", {"validation": 0.2, "pos_weight": "balanced"}),
    ],
)
def test_numbers_and_labels_of_hospitals(work, label, more):
    """A regression with fine-tuned copies, and several labels with validation data, as in a simulation."""
    draw = np.random.default_rng(0)
    age, ward = draw.integers(20, 80, 60), draw.integers(0, 2, 60)
    columns = {
        "age": age, "ward": np.array(["A", "B"])[ward], "hospital": np.array(["Ulm", "Köln"])[draw.integers(0, 2, 60)],
        "ill": age > 50, "cough": draw.random(60) < 0.3, "price": 10.5 + 20 * age + 300 * ward,
    }  # fmt: skip
    table = work / "patients.csv"
    pandas.DataFrame(columns).to_csv(table, index=False)
    how = {"data": f"csv('{table}', {label}, client=hospital)", "split": "given", "rounds": 1, **more}
    deploy(settings("fedavg", **how) | {"timeout": 120.0}, ClusterOptions(work / "run", 2))
    wanted, found = run("fedavg", engine="loop", **SMALL | how), load_run(work / "run")
    same(history(work / "run"), wanted.history)
    assert found.task.name == wanted.task.name == ("regression" if "price, drop" in label else "multilabel")
    for name, score in wanted.summary["final_scores"].items():
        assert found.summary["final_scores"][name] == pytest.approx(score, rel=1e-4)
    assert found.history[-1].validation == pytest.approx(wanted.history[-1].validation, rel=1e-4)
    if "client_eval" in more:
        assert list(wanted.client_scores()) == list(found.client_scores()) == ["Köln", "Ulm"]
        for a, b in zip(found.client_scores().values(), wanted.client_scores().values(), strict=True):
            assert [a.samples, a.score, a.personal] == pytest.approx([b.samples, b.score, b.personal], rel=1e-4)
    np.testing.assert_allclose(found.predict(pandas.read_csv(table)), wanted.predict(pandas.read_csv(table)), rtol=1e-4)


def test_a_node_killed_in_mid_round_and_the_server_killed_between_rounds(work):
    """The round continues without the node; it returns under a new id, with its state; the server resumes."""
    out, done = work / "run", []
    places = {}

    def on_start(local):
        places["local"] = local

    def on_wait():
        local, rounds = places["local"], len(history(out))
        if rounds == 1 and not done and "ROUND 2" in (local.work / "node-1.log").read_text():
            kill(local, "node-1")
            local.processes.stop("node-1")
            local.start_node(1)
            done.append("node")
        if rounds == 3 and done == ["node"]:
            kill(local, "superlink")
            done.append("server")

    options = ClusterOptions(out, 2, restarts=1, on_start=on_start, on_wait=on_wait)
    deploy(settings("scaffold", rounds=4) | {"timeout": 40.0}, options)
    assert done == ["node", "server"]
    found = history(out)
    assert [list(r.failed) for r in found] == [[], [1], [], []]
    assert [r.reset for r in found] == [[]] * 4
    assert [r.cohort for r in found] == [[0, 1]] * 4
    assert found[-1].test_loss < found[0].test_loss


SHORT_HEARTBEATS = """
import sys
from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection
from flwr.supernode.cli import flower_supernode
heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = 10
sys.exit(flower_supernode())
"""  # Flower then notices within 20 s that a node is gone, instead of 60 s


def test_a_node_returns_with_its_key_and_another_key_cannot_take_its_clients(work, monkeypatch):
    """Another registered node claims the client of one that was killed. The client waits until its own key is back.

    Flower refuses the key until it has noticed that the old process is gone; a supervisor restarts the node until then.
    """
    command = LocalCluster.node_command

    def node_command(local, number, key):
        plain = command(local, number, key)
        return [sys.executable, "-c", SHORT_HEARTBEATS, *plain[1:]] if number == 1 else plain

    monkeypatch.setattr(LocalCluster, "node_command", node_command)
    out, found = work / "run", {}

    def on_start(local):
        found["local"], found["owner"] = local, local.node_ids[1]

    def on_wait():
        local = found["local"]
        if "thief" not in found and "ROUND 1" in (local.work / "node-1.log").read_text():
            kill(local, "node-1")
            certificates.make_node_key(work / "thief")
            found["thief"] = local.register(work / "thief.pub")
            local.processes.start("thief", local.node_command(1, work / "thief"))
        if "thief" in found and local.processes.running["node-1"].poll() is not None:
            local.processes.stop("node-1")
            local.start_node(1)

    security = LinkSecurity(tls=True, auth=True)
    options = ClusterOptions(out, 2, security, on_start=on_start, on_wait=on_wait)
    patient = {"timeout": 30.0, "on_failure": "retry", "min_clients": 2, "retries": 12}
    deploy(settings("scaffold", rounds=2) | patient, options)
    assert found["local"].node_ids[1] == found["owner"], "its key was registered once"
    refusal = f" node {found['thief']} is refused: client 1 must be on node {found['owner']}\n"
    assert refusal in (out / "flower" / "server.log").read_text()
    log = (out / "flower" / "thief.log").read_text()
    assert "query.enrol message" in log
    assert "train message" not in log
    same(history(out), run("scaffold", engine="loop", **SMALL | {"rounds": 2}).history)


def test_only_the_superlink_is_killed_and_the_server_has_time_to_notice(work):
    """Flower then interrupts the server. That is no success; the run is restarted, and the keys registered again."""
    out, done = work / "run", []
    places = {}

    def on_start(local):
        places["local"] = local

    def on_wait():
        local = places["local"]
        if len(history(out)) == 1 and not done:
            os.kill(local.processes.running["superlink"].pid, signal.SIGKILL)
            deadline = time.monotonic() + 120
            while local.processes.running_command("flwr-serverapp") and time.monotonic() < deadline:
                time.sleep(0.2)
            done.append("link")

    security = LinkSecurity(tls=True, auth=True)
    options = ClusterOptions(out, 2, security, restarts=2, on_start=on_start, on_wait=on_wait)
    deploy(settings("scaffold", rounds=2) | {"timeout": 60.0}, options)
    assert done == ["link"]
    same(history(out), run("scaffold", engine="loop", **SMALL | {"rounds": 2}).history)
    assert json.loads((out / "summary.json").read_text())["rounds"] == 2


TROUBLE = """
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp

from holdfast.flower.messages import TRAIN


def trouble(message, context):
    reply, client = good(message, context), context.node_config["partition-id"]
    if message.metadata.message_type != TRAIN:
        return reply
    if client == 0:
        raise RuntimeError("no more disk")
    if client == 1:
        arrays = {**reply.content["arrays"], "1/delta": Array(np.zeros(3, "float32"))}
        reply.content["arrays"] = ArrayRecord(arrays)
    if client == 2:
        time.sleep(60)
    return reply


class Troubled(ClientApp):
    def __call__(self, message, context):
        return trouble(message, context)


good, app = app, Troubled()
"""


def test_the_app_of_deploy_init_with_own_data_and_with_clients_that_fail(work):
    """Four nodes with files of their own: one raises, one sends another shape, one is late, the fourth is well."""
    x, y = load_digits(return_X_y=True)
    x = x.astype("float32") / 16
    np.savez(work / "test.npz", x=x[1000:], y=y[1000:])
    app, out = work / "app", work / "run"
    words = ["deploy", "init", app, "--method", "fedavg", "--data", "own", "--classes", "10", "--nodes", "4"]
    words += ["--epochs", "1", "--rounds", "1", "--cohort", "4", "--timeout", "40", "--model", "linear"]
    subprocess.run([*HOLDFAST, *map(str, words)], check=True, timeout=180)
    project = app / "pyproject.toml"
    project.write_text(project.read_text().replace("runs/federation", str(out)))
    client = app / "federation" / "client_app.py"
    client.write_text(client.read_text() + TROUBLE)
    local = LocalCluster(work / "flower", out, 4, LinkSecurity())
    local.processes.env["HOLDFAST_TEST"] = str(work / "test.npz")
    with local.processes:
        local.start_link()
        for number in range(4):
            np.savez(work / f"{number}.npz", x=x[number:1000:4], y=y[number:1000:4])
            local.start_node(number, samples=str(work / f"{number}.npz"))
        local.launch(app)
        deadline = time.monotonic() + 400
        while not (out / "summary.json").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
    (record,) = history(out)
    assert record.failed[0].startswith("its app raised an exception")
    assert record.failed[1] == "refused: its update 1/delta is float32[3], not float32[650]"
    assert record.failed[2] == "no reply within 40 s"
    assert sorted(record.failed) == [0, 1, 2]
    assert record.test_accuracy > 0.15


def test_a_deployment_that_is_killed_leaves_no_process_behind_and_can_be_resumed(work):
    """No process continues the run, and the history after --resume is that of an uninterrupted run."""
    out = work / "run"
    words = ["deploy", "local", "scaffold", "--nodes", "2", "--rounds", "3", "--epochs", "1", "--cohort", "2"]
    words += ["--device", "cpu", "--out", str(out), "--quiet"]
    process = subprocess.Popen([*HOLDFAST, *words])
    deadline = time.monotonic() + 400
    while not history(out) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(left_over(work)) >= 5
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while left_over(work) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left_over(work)
    again = ["deploy", "local", "--resume", "--nodes", "2", "--out", str(out), "--quiet"]
    subprocess.run([*HOLDFAST, *again], check=True, timeout=300)
    same(history(out), run("scaffold", engine="loop", **SMALL | {"rounds": 3}).history)
    assert (out / "history.jsonl").read_bytes().count(b"\n") == 3
    wait_for_no_folder(work)


def wait_for_no_folder(work):
    """A deployment's temporary folder has the nodes' keys; it must not outlive the deployment."""
    deadline = time.monotonic() + 60
    while list(work.glob("holdfast-*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not list(work.glob("holdfast-*"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopping_leaves_no_process_behind(work, how):
    words = ["deploy", "local", "fedavg", "--nodes", "2", "--out", str(work / "run")]
    process = subprocess.Popen([*HOLDFAST, *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 180
    while len(left_over(work)) < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(left_over(work)) >= 3
    process.send_signal(how)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.strip().endswith("holdfast: stopped")

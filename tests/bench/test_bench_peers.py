"""The other frameworks' adapters: the processes that carry them, and one short run of each that is installed."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from holdfast.bench import measured_process, peers
from holdfast.bench.measured_process import alone, answer
from holdfast.core.errors import HoldfastError


def script(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_installed_is_the_version_or_none():
    assert peers.installed("torch") == torch.__version__
    assert peers.installed("no-such-framework") is None


def test_every_peer_has_a_package():
    assert set(peers.PEERS) == set(peers.PACKAGES)


def test_the_workload_is_as_described():
    parts = peers.data()
    x = torch.cat([x for x, _ in parts])
    assert len(parts) == 100
    assert x.shape == (60000, 1, 28, 28)
    assert (x.min().item(), x.max().item()) == (-2.0, 2.0)
    assert {int(c) for _, y in parts for c in y} == set(range(10))


def test_training_is_one_epoch_of_sgd():
    x, y = torch.ones(40, 1), torch.zeros(40, dtype=torch.long)
    net = torch.nn.Linear(1, 2)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    peers.train(net, x, y)
    once = 0.1 * 0.5  # all samples are alike: the gradient of a step is p - 1 for class 0, and p = 1/2 at first
    twice = once + 0.1 * (1 - 1 / (1 + torch.tensor(-4 * once).exp()))
    torch.testing.assert_close(net.weight[:, 0], torch.stack([twice, -twice]))


def test_the_first_round_is_not_counted():
    assert peers.per_round([100.0, 101.0, 102.5, 106.0], 3) == 1.0
    with pytest.raises(HoldfastError, match="2 of 4 rounds"):
        peers.per_round([100.0, 101.0], 3)


def test_the_last_line_is_the_answer():
    assert answer(script("print('noise'); print('{\"a\": 1}')"), os.environ) == {"a": 1}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('print(\'{"error": "broken"}\'); raise SystemExit(1)', "^broken$"),
        ("raise SystemExit('gone')", "^no answer, exit status 1: gone$"),
        ("print('no json')", "^no answer, exit status 0: no message$"),
        ("print(1)", "^no answer, exit status 0: no message$"),
    ],
)
def test_a_failure_is_one_line(code, message):
    with pytest.raises(HoldfastError, match=message):
        answer(script(code), os.environ)


@pytest.mark.parametrize("prefix", [[], alone()], ids=["plain", "alone"])
def test_at_the_limit_everything_ends(prefix, tmp_path, monkeypatch):
    monkeypatch.setattr(measured_process, "GRACE", 0.1)
    child = f"import time; time.sleep(3); open({str(tmp_path / 'late')!r}, 'w')"
    parent = script(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    with pytest.raises(HoldfastError, match=r"no answer after 1 s"):
        answer([*prefix, *parent], os.environ, limit=1.0)
    time.sleep(3)
    assert not (tmp_path / "late").exists()


def test_alone_there_is_only_loopback():
    if not alone():
        pytest.skip("namespaces are not allowed here")
    near = (
        "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_connection(a.getsockname()); print('{}')"
    )
    far = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('192.0.2.1', 9)); print('{}')"
    assert answer([*alone(), *script(near)], os.environ) == {}
    with pytest.raises(HoldfastError, match="unreachable"):
        answer([*alone(), *script(far)], os.environ)


def test_alone_ends_with_the_process_that_asked(tmp_path):
    if not alone():
        pytest.skip("namespaces are not allowed here")
    began, late = tmp_path / "began", tmp_path / "late"
    slow = script(f"import time; open({str(began)!r}, 'w'); time.sleep(2); open({str(late)!r}, 'w')")
    asking = (
        f"import os; from holdfast.bench.measured_process import *; answer([*alone(), *{slow!r}], os.environ, 60.0)"
    )
    with subprocess.Popen(script(asking)) as asker:
        while not began.exists():
            assert asker.poll() is None
            time.sleep(0.05)
        asker.kill()
    time.sleep(2.5)
    assert not late.exists()


def test_the_command_answers_with_an_error_line():
    command = [sys.executable, "-m", "holdfast.bench.peers", "flowr", "linear", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"].startswith("unknown peer 'flowr'; did you mean flower")


def test_compare_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(peers, "installed", lambda name: None)
    results = peers.compare(["linear"], 1)
    assert [result["peer"] for result in results] == ["flower", "fluke", "pfl"]
    assert results[0]["error"] == "not installed; pip install flwr[simulation]"
    assert all(set(result) == {"peer", "error"} for result in results)


def test_compare_goes_on_after_a_failure(monkeypatch):
    monkeypatch.setattr(peers, "installed", lambda name: "1")
    results = peers.compare(["linear", "mlp"], 1, ["spring"])
    assert [result["model"] for result in results] == ["linear", "mlp"]
    assert all(result["error"].startswith("unknown peer 'spring'") for result in results)


@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peer_runs(peer):
    if peers.installed(peer) is None:
        pytest.skip(f"{peer} is not installed")
    (result,) = peers.compare(["linear"], 1, [peer], limit=120)
    assert result.get("error") is None
    assert result["version"] == peers.installed(peer)
    assert 0 < result["seconds_per_round"] < 60

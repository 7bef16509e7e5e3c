"""Values and places that no one expects: one line on stderr, exit code 2, no traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.commands import TINY, call, good, lines, refused
from helpers.toy_paper import TOY
from holdfast.comparison.executor import Executor
from holdfast.comparison.observers import Observer
from holdfast.comparison.pool import ProcessPool
from holdfast.core.errors import HoldfastError
from holdfast.core.expression import LARGEST
from holdfast.core.os_errors import kept_on_os_errors
from holdfast.flower.host_names import check_host
from holdfast.method.config import Config

pytestmark = pytest.mark.usefixtures("elsewhere")

FAST = TINY[:-1]
COMMAND = Path(sys.executable).with_name("holdfast")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--batch", str(2**63)),
            "batch must be a whole number of at least 1 that fits 64 bits, not 9223372036854775808",
        ),
        (
            ("--model", "mlp(width=1000000000)"),
            "the model mlp(width=1000000000) does not fit in memory: choose a smaller one",
        ),
        (("--seed", "9" * 5000), f"seed must be a whole number in [0, 4294967295], not '{'9' * 59}..."),
    ],
    ids=["batch", "model", "digits"],
)
def test_numbers_too_large_for_training(args: tuple[str, ...], message: str):
    assert refused("run", "fedavg", *FAST, *args) == f"holdfast: {message}\n"


def test_a_clip_beyond_single_precision_clips_nothing():
    good("run", "fedavg", *TINY, "--clip", "1e300", "--out", "clipped")
    good("run", "fedavg", *TINY, "--clip", "1e30", "--out", "large")
    assert [line["test"]["loss"] for line in lines("clipped")] == [line["test"]["loss"] for line in lines("large")]


def test_an_expression_of_a_megabyte_is_refused_at_once():
    text = "fedbug+" * 150_000
    message = f"cannot read {text[:40]!r}...: it has {len(text)} characters, but at most {LARGEST} are read; shorten it"
    assert refused("run", text, *FAST) == f"holdfast: {message}\n"


def test_a_name_that_is_too_long():
    name = "n" * 300
    assert refused("run", "fedavg", *FAST, "--out", name) == (
        f"holdfast: cannot use {'n' * 97}...: file name too long; what was recorded is kept: fix that, then holdfast "
        f"run --resume --out {name}\n"
    )


def test_a_loop_of_links():
    Path("one").symlink_to("other")
    Path("other").symlink_to("one")
    assert refused("run", "fedavg", *FAST, "--out", "one").startswith("holdfast: cannot use one: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written():
    Path("closed").mkdir(mode=0o500)
    assert "permission denied" in refused("run", "fedavg", *FAST, "--out", "closed/run")


def limited() -> None:
    """Let no file grow beyond some kilobytes: a full disk, as far as a process can tell."""
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


def test_a_disk_that_is_full_costs_nothing_and_the_run_resumes():
    run = [COMMAND, "run", "fedavg", *FAST, "--rounds", "60", "--out", "here dir"]
    full = subprocess.run(run, capture_output=True, text=True, preexec_fn=limited)
    assert full.returncode == 2, full.stderr
    assert full.stderr.splitlines()[-1] == (
        "holdfast: cannot use here dir/history.jsonl: file too large; what was recorded is kept: fix that, then "
        "holdfast run --resume --out 'here dir'"
    )
    assert "Traceback" not in full.stderr
    good("run", "--resume", "--out", "here dir", "--quiet")
    good("run", "fedavg", *TINY, "--rounds", "60", "--out", "whole")
    scores = [[line["test"]["loss"] for line in lines(folder)] for folder in ("here dir", "whole")]
    assert scores[0] == scores[1]


def test_a_disk_that_is_full_during_a_comparison():
    words = ["fedavg", "fedbug(0.4)", *TINY, "--rounds", "60", "--seeds", "1"]
    full = subprocess.run([COMMAND, "compare", *words], capture_output=True, text=True, preexec_fn=limited)
    assert full.returncode == 2, full.stderr
    words += ["--out", "runs/compare-digits-001"]
    assert one_line_with_resume(full.stderr, shlex.join(["holdfast", "compare", *words]))
    good("compare", *words)
    assert {len(lines(path.parent)) for path in Path(words[-1]).rglob("history.jsonl")} == {60}


def test_a_disk_that_is_full_during_a_comparison_in_several_processes():
    """No file may grow to the size of the data, nor may shared memory: each process gets a copy of the data."""
    words = ["fedavg", "prox", *TINY, "--rounds", "60", "--seeds", "1", "--jobs", "2", "--out", "here"]
    full = subprocess.run([COMMAND, "compare", *words], capture_output=True, text=True, preexec_fn=limited)
    assert full.returncode == 2, full.stderr
    assert one_line_with_resume(full.stderr, shlex.join(["holdfast", "compare", *words]))
    assert "/history.jsonl: file too large; " in full.stderr
    words[words.index("60")] = "2"
    words[-1] = "short"
    fits = subprocess.run([COMMAND, "compare", *words], capture_output=True, text=True, preexec_fn=limited)
    assert (fits.returncode, fits.stderr) == (0, "")


class FullDisk(Executor):
    """Writes nothing, since the disk is full."""

    def run(self, *_: object) -> tuple[str, str]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "here/history.jsonl")


def test_a_disk_that_is_full_in_a_process_of_a_comparison():
    tasks: Any = [SimpleNamespace(config=Config()) for _ in range(2)]
    with pytest.raises(HoldfastError) as error, kept_on_os_errors("run it again"):
        ProcessPool(2, FullDisk(), light=False).run(tasks, Observer(), lambda: False)
    assert str(error.value) == (
        "cannot use here/history.jsonl: no space left on device; what was recorded is kept: fix that, then run it again"
    )


def test_a_disk_that_is_full_during_a_reproduction():
    Path("papers").mkdir()
    Path("papers/toy.toml").write_text(TOY)
    args = ["toy", "--papers", "papers", "--table", "1", "--rows", "IID, FedAvg", "--scale", "smoke"]
    args += ["--set", "rounds=60", "--out", "here dir", "--quiet"]
    full = subprocess.run([COMMAND, "reproduce", *args], capture_output=True, text=True, preexec_fn=limited)
    assert full.returncode == 2, full.stderr
    assert one_line_with_resume(full.stderr, shlex.join(["holdfast", "reproduce", *args]))
    good("reproduce", *args)
    assert {len(lines(path.parent)) for path in Path("here dir").rglob("history.jsonl")} == {60}


def test_a_disk_that_is_full_during_a_deployment(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("flwr")

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "here/history.jsonl")

    monkeypatch.setattr("holdfast.flower.local_cluster.deploy", fails)
    words = ("deploy", "local", "scaffold", *TINY[:4], "--nodes", "2", "--tls", "--out", "a b")
    assert refused(*words, "--overwrite", "--quiet").endswith(
        ": no space left on device; what was recorded is kept: fix that, then holdfast deploy local scaffold --model "
        "linear --clients 6 --nodes 2 --tls --out 'a b' --quiet --resume\n"
    )


def test_a_disk_that_is_full_at_the_server_of_a_deployment():
    pytest.importorskip("flwr")
    from holdfast.flower.app import report_outcome

    with pytest.raises(OSError, match="No space"), report_outcome({"outcome": "outcome.json"}):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "here/history.jsonl")
    assert json.loads(Path("outcome.json").read_text()) == {
        "error": "the server cannot use here/history.jsonl: no space left on device; what was recorded is kept: fix "
        "that, then add --resume",
        "status": 2,
        "expected": False,
    }


def one_line_with_resume(text: str, resume: str) -> bool:
    """Tell whether an error is one line about a file that is too large, with the command that resumes."""
    line = re.escape(f": file too large; what was recorded is kept: fix that, then {resume}")
    return re.fullmatch(f"holdfast: cannot use [^:]+{line}\n", text) is not None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("args", [("methods",), ("models",), ("run", "fedavg", *TINY, "--json")])
def test_an_output_that_cannot_be_written(args: tuple[str, ...]):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "holdfast: cannot use the output: no space left on device; check the path\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_cannot_be_written_without_click():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "holdfast.reproduce", "--list"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "holdfast: cannot use the output: no space left on device; check the path\n"


@pytest.mark.parametrize(
    "args",
    [
        ("report", "run", "--out", "a file/page.html"),
        ("report", "run", "--out", "."),
        ("split", "iid", "--clients", "4", "--png", "a file/split.png"),
        ("split", "iid", "--clients", "4", "--png", "."),
        ("bench", "scale", "--json", "."),
    ],
    ids=" ".join,
)
def test_a_file_that_cannot_be_written_is_one_line(args: tuple[str, ...]):
    Path("a file").write_text("")
    if args[0] == "report":
        good("run", "fedavg", *TINY, "--out", "run")
    ended = call(*args)
    assert ended.code == 2
    assert ended.err.startswith("holdfast: ")
    assert ended.err.count("\n") == 1


def test_brackets_in_a_folder_name_are_no_markup(monkeypatch: pytest.MonkeyPatch):
    """A stopped run prints how to resume it, quoted for a shell."""
    monkeypatch.setattr("holdfast.core.interrupts.stop_on_interrupt", stopped_at_once)
    ended = call("run", "fedavg", *FAST, "--out", "[/x] y")
    assert ended.code == 130
    assert "stopped; to resume: holdfast run --resume --out '[/x] y'\n" in ended.err


def stopped_at_once(*_: object, **__: object):
    from contextlib import nullcontext

    return nullcontext(lambda: True)


# -- names that are not ASCII, or not UTF-8 --------------------
@pytest.mark.parametrize("args", [("keys", "here"), ("init", "here", "--method", "fedavg")], ids=["keys", "init"])
@pytest.mark.parametrize(
    ("host", "shown", "remedy"),
    [
        ("müller.example", "'müller.example'", "give its ASCII form, xn--mller-kva.example"),
        ("a b", "'a b'", "give one such as server.example.org or 192.0.2.1"),
        ("", "''", "give one such as server.example.org or 192.0.2.1"),
        ("\udcff", "'\\udcff'", "give one such as server.example.org or 192.0.2.1"),
        ("a" * 300, f"'{'a' * 60}'...", "give one such as server.example.org or 192.0.2.1"),
    ],
    ids=["umlaut", "blank", "empty", "bytes", "long"],
)
def test_a_host_that_is_no_name(args: tuple[str, ...], host: str, shown: str, remedy: str):
    message = f"--host {shown} is no host name or address: {remedy}"
    assert refused("deploy", *args, "--host", host) == f"holdfast: {message}\n"


@pytest.mark.parametrize("host", ["server", "Server-1.example.org", "*.example.org", "192.0.2.1", "2001:db8::1"])
def test_hosts_that_are_names(host: str):
    check_host(host)


@pytest.mark.parametrize(("flag", "name"), [("--data-dir", "data_dir"), ("--data", "data")])
def test_a_setting_that_is_not_utf8(flag: str, name: str):
    message = f"{name} must be valid UTF-8, not 'a\\udcff': choose another name"
    assert refused("run", "fedavg", *FAST, flag, "a\udcff") == f"holdfast: {message}\n"


@pytest.fixture
def pictures() -> str:
    """Write pictures of two classes, one of them with a name that is not UTF-8."""
    image = pytest.importorskip("PIL.Image")
    for folder in (b"pictures/a\xff", b"pictures/b"):
        os.makedirs(folder)
        for number in range(12):
            image.new("L", (8, 8), number * 20).save(os.fsdecode(folder + b"/%d.png" % number))
    return "folder(path=pictures, grey=true)"


def test_a_class_and_a_folder_whose_names_are_not_utf8(pictures: str):
    out = os.fsdecode(b"out\xff")
    commands = [
        ["split", "--data", pictures, "--clients", "4"],
        ["split", "--data", pictures, "--clients", "4", "--json"],
        ["run", "fedavg", "--data", pictures, *TINY, "--json", "--out", out],
        ["run", "--resume", "--rounds", "3", "--out", out],
        ["report", out],
        ["compare", "fedavg", "prox", "--data", pictures, *TINY, "--seeds", "1", "--out", f"{out}-2"],
        ["report", f"{out}-2"],
    ]
    script = "import json, sys\nfrom holdfast.cli.main import main\nfor words in json.loads(sys.argv[1]):\n"
    script += "    try:\n        main(words)\n    except SystemExit as end:\n        assert not end.code, words\n"
    env = os.environ | {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:strict"}
    ended = subprocess.run([sys.executable, "-c", script, json.dumps(commands)], capture_output=True, env=env)
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"the report is in out\xff/report.html\n" in ended.stdout
    assert json.loads(Path(out, "split.json").read_text())["classes"] == ["a\\xff", "b"]
    assert "class_a\\xff" in Path(f"{out}-2", "compare.csv").read_text(encoding="utf-8")

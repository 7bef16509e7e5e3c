"""Values and places that no one expects: one line on stderr, exit code 2, no traceback."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import TINY, call, good, lines, refused
from holdfast.core.expression import LARGEST

pytestmark = pytest.mark.usefixtures("elsewhere")

FAST = TINY[:-1]
COMMAND = Path(sys.executable).with_name("holdfast")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--clip", "1e300"), "run: clip must be a number above 0 that fits single precision, not 1e+300"),
        (
            ("--batch", str(2**63)),
            "run: batch must be a whole number of at least 1 that fits 64 bits, not 9223372036854775808",
        ),
        (
            ("--model", "mlp(width=1000000000)"),
            "the model mlp(width=1000000000) does not fit in memory: choose a smaller one",
        ),
        (("--seed", "9" * 5000), f"run: seed must be a whole number in [0, 4294967295], not '{'9' * 59}..."),
    ],
    ids=["clip", "batch", "model", "digits"],
)
def test_numbers_too_large_for_training(args: tuple[str, ...], message: str):
    assert refused("run", "fedavg", *FAST, *args) == f"holdfast: {message}\n"


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
    assert full.stderr.splitlines()[-1].endswith(
        "file too large; what was recorded is kept: fix that, then holdfast run --resume --out 'here dir'"
    )
    assert "Traceback" not in full.stderr
    good("run", "--resume", "--out", "here dir", "--quiet")
    good("run", "fedavg", *TINY, "--rounds", "60", "--out", "whole")
    scores = [[line["test_loss"] for line in lines(folder)] for folder in ("here dir", "whole")]
    assert scores[0] == scores[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("args", [("methods",), ("models",), ("run", "fedavg", *TINY, "--json")])
def test_an_output_that_cannot_be_written(args: tuple[str, ...]):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 2
    assert ended.stderr == "holdfast: cannot use the output: no space left on device; check the path\n"


def test_brackets_in_a_folder_name_are_no_markup(monkeypatch: pytest.MonkeyPatch):
    """A stopped run prints how to resume it, quoted for a shell."""
    monkeypatch.setattr("holdfast.core.interrupts.stop_on_interrupt", stopped_at_once)
    ended = call("run", "fedavg", *FAST, "--out", "[/x] y")
    assert ended.code == 130
    assert "stopped; to resume: holdfast run --resume --out '[/x] y'\n" in ended.err


def stopped_at_once(*_: object, **__: object):
    from contextlib import nullcontext

    return nullcontext(lambda: True)

"""What cannot be searched ends with one line and exit code 2, and nothing is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import holdfast
from helpers.commands import files, good, refused
from helpers.exact_errors import raises_exactly
from helpers.searches import SMALL
from holdfast.tuning.optuna_package import optuna_package

pytestmark = pytest.mark.usefixtures("elsewhere")
OVER = ": choose another --out, or start over with --overwrite"


def line(*args: str) -> str:
    """The line with which a search ends."""
    return refused("tune", *args).removeprefix("holdfast: ").strip()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), 'tune needs methods: holdfast tune fedavg "fedbug+prox"'),
        (
            ("fedavg", "--lr", "0.1", "--steps", "1", "--batch", "8"),
            "nothing to search for fedavg: of what has a range (epochs, batch, lr) everything is set; leave one of "
            "them out, or search another: --search 'server_lr=0.3..3 log'",
        ),
        (
            ("fedavg", "--rounds", "30", "--budget", "29"),
            "a budget of 29 rounds is too small: one run takes 30; raise the budget to 30 or more, or lower rounds",
        ),
        (("fedavg", "--budget", "99", "--trials", "9"), "trials and budget cannot be used together: set one of them"),
        (("fedavg", "--trials", "0"), "trials must be a whole number of at least 1, not 0"),
        (("fedavg", "--reduction", "0"), "reduction must be a whole number of at least 1, not 0"),
        (("fedavg", "--seeds", "0"), "seeds must be a whole number of at least 1, not 0"),
        (("fedavg", "--jobs", "0"), "jobs must be a whole number of at least 1, not 0"),
        (("fedavg", "--sampler", "best"), "the sampler must be one of tpe, grid, random, not best"),
        (
            ("fedavg", "--sampler", "grid", "--trials", "7"),
            "a grid of two values for each of epochs, batch, lr has 8 trials, more than 7: allow more --trials, or set "
            "some of them",
        ),
        (
            ("fedavg", "--validation", "0"),
            "tune chooses by validation data, and validation is 0: leave it out, or set it to 0.1",
        ),
        (("prox", "--search", "prox.mu=-1..1"), "the range -1..1 of prox.mu leaves its bounds, at least 0: narrow it"),
        (("fedavg", "--seed", "3"), "unknown option '--seed'; did you mean --seeds?"),
        (("fedavg", "--resume"), "--resume needs the folder of the search: add --out FOLDER"),
        (("--resume", "--out", "nothing"), "nothing holds no search of tune: check --out"),
        (
            ("fedavg", "--resume", "--out", "nothing"),
            "--resume takes no methods, settings or budget: the folder has them; leave them out",
        ),
    ],
)
def test_one_line(args: tuple[str, ...], message: str):
    assert line(*args) == message


def test_an_unknown_metric():
    assert line("fedavg", "--metric", "acuracy").startswith("unknown metric 'acuracy'; did you mean accuracy")
    assert "rmse" in line("fedavg", "--metric", "rmse")


def test_the_folder_of_another_search_is_left_alone():
    args = ("fedavg", *SMALL, "--trials", "2", "--seeds", "1", "--out", "here")
    good("tune", *args, "--quiet")
    another = "here holds another search, with "
    assert line(*args, "--lr-decay", "0.9") == f"{another}lr_decay = 1.0, not 0.9{OVER}"
    assert line(*args, "--trials", "3") == f"{another}trials 2, not 3{OVER}"
    assert line(*args, "--search", "lr=0.1..1") == f"{another}the ranges lr=0.001..1 log of fedavg{OVER}"
    assert line(*args, "--sampler", "random") == f"{another}sampler tpe, not random{OVER}"
    assert line(*args, "--seeds", "2") == f"{another}seeds [1], not [1, 2]{OVER}"
    assert line("prox", *args) == f"{another}the methods fedavg{OVER}"
    before = files("here")
    good("tune", *args, "--quiet")
    assert set(files("here")) == set(before)
    good("tune", *args, "--seeds", "2", "--overwrite", "--quiet")
    assert Path("here/fedavg/best/seed-2/summary.json").exists()


def test_the_folder_of_something_else_is_left_alone():
    Path("here").mkdir()
    Path("here/notes.txt").write_text("mine")
    assert line("fedavg", "--out", "here") == "here is not empty and holds no search of tune: choose another --out"
    assert line("fedavg", "--out", "here/notes.txt") == (
        "here/notes.txt is a file, not a folder for a search: choose another --out"
    )


def test_damaged_files_are_named():
    args = ("fedavg", *SMALL, "--trials", "2", "--seeds", "1", "--out", "here")
    good("tune", *args, "--quiet")
    text = Path("here/tune_plan.json").read_text()
    stored = json.loads(text)
    Path("here/tune_plan.json").write_text(json.dumps(stored | {"format": 99}))
    assert line(*args) == "here/tune_plan.json has format 99, but this version reads formats up to 1: update Holdfast"
    Path("here/tune_plan.json").write_text(json.dumps(stored | {"trials": "many"}))
    assert line(*args) == (
        "here/tune_plan.json is damaged, trials must be a whole number, not 'many': start over with --overwrite"
    )
    Path("here/tune_plan.json").write_text(text)
    Path("here/trials.sqlite").write_bytes(b"no database" * 100)
    assert line(*args) == "here/trials.sqlite is damaged: start over with --overwrite"


def test_python_objects_are_needed_again():
    data = holdfast.load("digits")
    settings = {"model": "linear", "clients": 6, "steps": 1, "rounds": 1}
    holdfast.tune(["fedavg"], data, trials=1, seeds=1, out="here", **settings)
    assert line("--resume", "--out", "here") == (
        "the search in here was started from Python with its own data (digits): call holdfast.tune again with the same "
        "arguments"
    )
    federation = holdfast.federate(data, clients=6)
    with raises_exactly("tune deals the federation itself: give it the data set, and split and clients"):
        holdfast.tune(["fedavg"], federation)  # type: ignore[arg-type]
    with raises_exactly("tune needs a list of methods, such as fedavg and fedbug"):
        holdfast.tune("fedavg")


def test_without_optuna(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    optuna_package.cache_clear()
    assert line("fedavg") == "tune needs the package optuna: pip install 'holdfast[tune]'"
    monkeypatch.undo()
    optuna_package.cache_clear()

"""Models, data and parts from files of the user: recorded with their checksums, resumed, and never executed unasked."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import holdfast
from helpers.commands import config, facts, good, refused
from helpers.exact_errors import raises_exactly
from helpers.own_files import DATA, NET, OWN, PART, SMALL, write_files
from holdfast import Config
from holdfast.core.user_files import file_reference, import_file
from holdfast.method.config_text import config_to_toml
from holdfast.runs.code_files import placed, recorded

pytestmark = pytest.mark.usefixtures("elsewhere")
MARK = "import pathlib; pathlib.Path('executed').touch()\n"


@pytest.fixture(autouse=True)
def files_here(elsewhere) -> Path:
    write_files()
    return Path.cwd()


def run(*more: str, out: str = "here") -> None:
    good("run", "toy-damp(0.3)+prox", *OWN, *SMALL, "--out", out, *more)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# -- a run ------------------------------------------------------------------------------------------------------------
def test_a_run_records_its_files(files_here):
    run("--model", "net.py:build(width=3)")
    stored = config("here")
    assert stored["model"] == "net.py:build(width=3)"
    assert stored["data"] == "mydata.py:load"
    assert stored["imports"] == "damp.py"
    assert stored["files"].splitlines() == [
        f"{name} {sha(text)} {files_here / name}"
        for name, text in (("net.py", NET), ("mydata.py", DATA), ("damp.py", PART))
    ]
    assert {p.name: p.read_text() for p in Path("here/files").iterdir()} == {
        "net.py": NET, "mydata.py": DATA, "damp.py": PART,
    }  # fmt: skip


def test_a_file_is_what_it_names():
    run()
    x, y = import_file(Path("mydata.py")).load()
    federation = holdfast.federate(holdfast.from_arrays(x, y), Config().split, clients=4)
    build = import_file(Path("net.py")).build
    part = import_file(Path("damp.py")).Damp(0.3) + "prox"
    again = holdfast.run(part, federation, build, cohort=2, steps=2, rounds=2)
    assert [r.train_loss for r in again.history] == [line["train_loss"] for line in facts("here")]


def test_weights_follow_from_the_seed():
    first, second, same = (
        holdfast.run("fedavg", model="net.py:build", data="mydata.py:load", clients=4, rounds=1, lr=1e-30, seed=s).w
        for s in (0, 1, 0)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, second)


def test_a_file_in_another_folder_with_a_path():
    write_files(Path("code"))
    Path("net.py").unlink()
    good("run", "fedavg", "--model", "code/net.py:build", *SMALL, "--out", "here")
    assert config("here")["model"] == "net.py:build"


@pytest.mark.parametrize("function", ["split_already", "data_set"])
def test_what_a_data_function_may_return(function):
    good("run", "fedavg", "--data", f"mydata.py:{function}", *SMALL, "--out", "here")
    assert config("here")["data"] == f"mydata.py:{function}"


def test_other_commands_import_files_too():
    assert "damps the gradient" in good("methods", "--import", "damp.py").out
    assert good("methods", "toy-damp", "--import", "damp.py", "--json").json["group"] == "yours"
    assert good("split", "--data", "mydata.py:load", "--clients", "3", "--split", "iid", "--json").json["clients"] == 3


# -- resuming --------------------------------------------------------------------------------------------------------
def test_resuming_needs_no_flags_and_changes_nothing():
    run("--rounds", "4", out="whole")
    run()
    good("run", "--resume", "--out", "here", "--rounds", "4", "--quiet")
    assert facts("here") == facts("whole")


def test_a_file_that_is_gone_may_be_elsewhere(files_here):
    run("--rounds", "4", out="whole")
    run()
    Path("code").mkdir()
    Path("net.py").rename("code/net.py")
    assert refused("run", "--resume", "--out", "here", "--rounds", "4", "--quiet") == (
        f"holdfast: {files_here}/net.py is missing, which the run was started with: restore it, or give its new place "
        "with --model, --data, --metric or --import\n"
    )
    good("run", "--resume", "--out", "here", "--rounds", "4", "--quiet", "--model", "code/net.py:build")
    assert facts("here") == facts("whole")
    assert f" {files_here}/code/net.py\n" in config("here")["files"]


def test_a_file_that_has_changed(files_here):
    run()
    Path("damp.py").write_text(PART + "# a comment\n")
    assert refused("run", "--resume", "--out", "here", "--rounds", "4", "--quiet") == (
        f"holdfast: {files_here}/damp.py has changed since the run was started: restore it (the run folder keeps a "
        "copy in files/damp.py)\n"
    )
    assert refused("run", "--resume", "--out", "here", "--quiet", "--import", "damp.py") == (
        f"holdfast: {files_here}/damp.py differs from the file that the run was started with: give that one, or start "
        "over with --overwrite\n"
    )


def test_other_functions_and_other_files_are_other_settings():
    run()
    assert refused("run", "--resume", "--out", "here", "--quiet", "--model", "net.py:plain") == (
        "holdfast: the run to resume has model = net.py:build, not net.py:plain: leave that setting out, or start over "
        "with --overwrite\n"
    )
    Path("other.py").write_text(NET)
    assert refused("run", "--resume", "--out", "here", "--quiet", "--model", "other.py:build") == (
        "holdfast: the run to resume has model = net.py:build, not other.py:build: leave that setting out, or start "
        "over with --overwrite\n"
    )


def test_a_run_folder_that_is_moved_with_its_copies():
    run("--rounds", "4", out="whole")
    run()
    shutil.move("here", "there")
    for name in ("net.py", "mydata.py", "damp.py"):
        Path(name).unlink()
    named = ("--model", "there/files/net.py:build", "--data", "there/files/mydata.py:load")
    good("run", "--resume", "--out", "there", "--rounds", "4", "--quiet", *named, "--import", "there/files/damp.py")
    assert facts("there") == facts("whole")


def test_a_config_is_enough_to_run_it_again():
    run()
    good("run", "--config", "here/config.toml", "--out", "again", "--quiet")
    assert facts("again") == facts("here")


# -- nothing is executed unasked -------------------------------------------------------------------------------------
def test_copies_are_not_executed_unless_they_are_named(files_here):
    """A run folder may come from somebody else, with a config that names its own files."""
    run()
    for name in ("net.py", "mydata.py", "damp.py"):
        Path(f"here/files/{name}").write_text(MARK)
    text = "\n".join(f"{n} {sha(MARK)} {files_here}/here/files/{n}" for n in ("net.py", "mydata.py", "damp.py"))
    stored = {k: v for k, v in config("here").items() if k not in ("format", "checksum")}
    Path("here/config.toml").write_text(config_to_toml(Config(**{**stored, "files": text})))
    assert refused("run", "--resume", "--out", "here", "--rounds", "4", "--quiet") == (
        f"holdfast: the run in here wants to execute {files_here}/here/files/net.py, which is part of that folder: if "
        "you trust it, name it with --model, --data, --metric or --import\n"
    )
    good("report", "here")
    assert not Path("executed").exists()


def test_a_relative_place_in_a_stored_config_is_not_executed():
    run()
    stored = {k: v for k, v in config("here").items() if k not in ("format", "checksum")}
    relative = stored["files"].replace(f"{Path.cwd()}/", "")
    Path("here/config.toml").write_text(config_to_toml(Config(**{**stored, "files": relative})))
    assert refused("run", "--resume", "--out", "here", "--rounds", "4", "--quiet") == (
        "holdfast: the run in here wants to execute net.py, which is part of that folder: if you trust it, name it "
        "with --model, --data, --metric or --import\n"
    )


def test_reporting_executes_nothing():
    run()
    for name in ("net.py", "mydata.py", "damp.py"):
        Path(name).write_text(MARK)
    good("report", "here")
    for name in ("net.py", "mydata.py", "damp.py"):
        Path(name).unlink()
    good("report", "here")
    assert not Path("executed").exists()


# -- objects from Python ---------------------------------------------------------------------------------------------
class Net2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1))


PYTHON = {"clients": 4, "cohort": 2, "steps": 2, "rounds": 2}


def test_a_class_is_a_factory():
    first, second, same = (holdfast.run("fedavg", model=Net2, **PYTHON, seed=s).w for s in (0, 1, 0))
    assert torch.equal(first, same)
    assert not torch.equal(first, second)


def test_a_run_with_a_factory_resumes_from_python_and_says_so_on_the_command_line():
    whole = holdfast.run("fedavg", model=Net2, **{**PYTHON, "rounds": 4})
    holdfast.run("fedavg", model=Net2, **PYTHON, out="here")
    assert config("here")["model"] == "Net2"
    assert refused("run", "--resume", "--out", "here", "--quiet") == (
        "holdfast: the run in here was started from Python with the model Net2: resume it with holdfast.run(..., "
        "out=..., resume=True) and model=\n"
    )
    again = holdfast.run(model=Net2, out="here", resume=True, rounds=4)
    assert torch.equal(again.w, whole.w)


def test_a_run_with_a_federation_of_ones_own_says_so_on_the_command_line():
    data = replace(holdfast.load("digits"), name="arrays")
    holdfast.run("fedavg", holdfast.federate(data, clients=4), Net2(), cohort=2, steps=2, rounds=2, out="here")
    assert refused("run", "--resume", "--out", "here", "--quiet") == (
        "holdfast: the run in here was started from Python with the data arrays and the model Net2: resume it with "
        "holdfast.run(..., out=..., resume=True) and federation= and model=\n"
    )


# -- bad input -------------------------------------------------------------------------------------------------------
TAKES = "but is called with shape and classes at most"
RETURNS = "expected a DataSet, (x, y) or (x, y, test_x, test_y): return one of these"
BAD_FILES = {
    ("--model", "net.py"): "the model net.py is a file: name a function in it as well, such as net.py:build",
    ("--data", "mydata.py"): (
        "the data set mydata.py is a file: name a function in it as well, such as mydata.py:load"
    ),
    ("--model", "nte.py:build"): "cannot read the file HERE/nte.py: No such file or directory; check the path",
    ("--import", "dmap.py"): "cannot read the file HERE/dmap.py: No such file or directory; check the path",
    ("--model", "net.py:biuld"): "unknown function 'biuld' in HERE/net.py; did you mean build?",
    ("--model", "net.py:WIDTH"): (
        "the model HERE/net.py:WIDTH is of type int: name a function or a class that returns it"
    ),
    ("--model", "net.py:needy"): (
        f"the model net.py:needy needs depth, {TAKES}: give the others defaults, or use a function or an instance that "
        "needs none"
    ),
    ("--model", "net.py:nothing"): (
        "the model net.py:nothing returned None, expected an nn.Module: return the network"
    ),
    ("--model", "net.py:build(depth=3)"): (
        "the model HERE/net.py:build(depth=3) got an unexpected keyword argument 'depth': it takes shape, classes, "
        "width"
    ),
    ("--model", "net.py:build(3)"): ("the model HERE/net.py:build(3) has arguments without names: write name=value"),
    ("--model", "net.py:build(width=3"): "cannot read 'build(width=3': expected ',' or ')', found the end",
    ("--model", "net.py:build+mlp"): (
        "'build+mlp' is a sum, but a model is one name with its parameters: keep one of them"
    ),
    ("--model", "net.py:broken"): "the model net.py:broken raised KeyError: 'three' (net.py, line 23)",
    ("--data", "mydata.py:three"): f"the data set mydata.py:three returned 3 values, {RETURNS}",
    ("--data", "mydata.py:nothing"): f"the data set mydata.py:nothing returned None, {RETURNS}",
    ("--data", "mydata.py:ragged"): (
        "the data set mydata.py:ragged: y has 3 entries and x has 60; give one label or group per sample"
    ),
    ("--data", "mydata.py:broken"): "the data set mydata.py:broken raised OSError: no disk (mydata.py, line 34)",
    ("--data", "mydata.py:load(size=3)"): (
        "the data set HERE/mydata.py:load(size=3) got an unexpected keyword argument 'size': it takes n"
    ),
    ("--import", "syntax.py"): (
        "cannot import HERE/syntax.py: it raised SyntaxError: invalid syntax (syntax.py, line 1)"
    ),
    ("--import", "raises.py"): (
        "cannot import HERE/raises.py: it raised ModuleNotFoundError: No module named 'no_such_module' (raises.py, "
        "line 2)"
    ),
    ("--import", "exits.py"): "cannot import HERE/exits.py: it raised SystemExit: 3 (exits.py, line 1)",
    ("--import", "prox.py"): "HERE/prox.py defines a part called prox, which is one of the library: rename it",
    ("--import", "my part.py"): (
        "the file my part.py needs a name of letters, digits, - and _ that ends in .py: rename it"
    ),
    ("--import", "net.py", "--import", "code/net.py"): "two different files are called net.py: rename one of them",
    ("--set", "files=x"): "files is recorded by the library, as lines of name, checksum and path: leave it out",
}


@pytest.mark.parametrize("args", BAD_FILES)
def test_bad_files(args, files_here):
    Path("syntax.py").write_text("def\n")
    Path("raises.py").write_text("\nimport no_such_module\n")
    Path("exits.py").write_text("raise SystemExit(3)\n")
    Path("prox.py").write_text(PART.replace("toy-damp", "prox"))
    Path("my part.py").write_text(PART)
    Path("code").mkdir()
    Path("code/net.py").write_text(NET + "\n")
    message = BAD_FILES[args].replace("HERE", str(files_here))
    assert refused("run", "fedavg", *SMALL, *args, "--out", "out") == f"holdfast: {message}\n"
    assert good("methods", "prox", "--json").json["group"] != "yours"


def test_two_copies_of_one_file_are_one_file():
    write_files(Path("code"))
    good("run", "fedavg", "--model", "net.py:build", "--import", "code/net.py", *SMALL, "--out", "here")
    assert config("here")["imports"] == "net.py"


def test_a_changed_file_is_imported_again_within_a_process():
    first = import_file(Path("net.py"))
    assert import_file(Path("net.py")) is first
    Path("net.py").write_text(NET + "MORE = 1\n")
    assert import_file(Path("net.py")).MORE == 1


# -- the texts -------------------------------------------------------------------------------------------------------
def test_names_in_the_config_and_places_in_commands(files_here):
    before = Config(model="net.py:build(width=3)", imports="damp.py, net.py")
    after = recorded(before)
    assert (after.model, after.imports) == ("net.py:build(width=3)", "damp.py, net.py")
    assert recorded(after) == after
    there = placed(after)
    assert there.model == f"{files_here}/net.py:build(width=3)"
    assert there.imports == f"{files_here}/damp.py, {files_here}/net.py"


def test_what_names_no_file():
    assert file_reference("mlp(width=3)", "model") is None
    assert file_reference("folder('a.py:b')", "data set") is None


def test_files_must_be_readable_at_the_start():
    with raises_exactly(f"cannot read the file {Path.cwd()}/gone.py: No such file or directory; check the path"):
        holdfast.run("fedavg", imports="gone.py")

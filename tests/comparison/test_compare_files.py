"""Comparisons with files of code and with models from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import holdfast
from helpers.commands import config, good, refused
from helpers.exact_errors import raises_exactly
from helpers.own_files import NET, OWN, PART, SMALL, write_files
from holdfast.comparison.tables import SAME_WEIGHTS
from holdfast.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("elsewhere")
MARK = "import pathlib; pathlib.Path('executed').touch()\n"
PYTHON = {"clients": 4, "cohort": 2, "steps": 2, "rounds": 2, "seeds": 2}


@pytest.fixture(autouse=True)
def files_here(elsewhere) -> Path:
    write_files()
    return Path.cwd()


def compare(*more: str) -> None:
    good("compare", "fedavg", "toy-damp(0.3)", *OWN, *SMALL, "--seeds", "2", "--out", "here", *more)


def test_several_processes_import_the_files_too():
    compare("--jobs", "2")
    good("compare", "fedavg", "toy-damp(0.3)", *OWN, *SMALL, "--seeds", "2", "--out", "one")
    for folder in ("fedavg/seed-0", "toy-damp-0.3/seed-1"):
        models = [next(Path(out, folder, "checkpoint").glob("server-000002*")).read_bytes() for out in ("here", "one")]
        assert models[0] == models[1]


def test_a_sweep_over_models_in_files():
    words = [word for word in OWN if word not in ("--model", "net.py:build")]
    sweep = ("--sweep", "model=net.py:build,net.py:plain,mlp")
    good("compare", "fedavg", "toy-damp", *words, *SMALL, "--seeds", "1", "--out", "here", *sweep)
    stored = {p.parent.parent.name: config(p.parent) for p in Path("here").glob("*/seed-0/config.toml")}
    assert {c["model"] for c in stored.values()} == {"net.py:build", "net.py:plain", "mlp"}
    assert all(("net.py" in c["files"]) == (c["model"] != "mlp") for c in stored.values())
    assert all("damp.py" in c["files"] for c in stored.values())


def test_a_comparison_is_resumed_with_the_same_files_alone(files_here):
    compare()
    compare("--rounds", "2")
    Path("damp.py").write_text(PART + "# a comment\n")
    words = ("compare", "fedavg", "toy-damp(0.3)", *OWN, *SMALL, "--seeds", "3", "--out", "here")
    assert refused(*words) == (
        f"holdfast: {files_here}/damp.py has changed since the run in here/fedavg/seed-0 was started: restore it, or "
        "start over with --overwrite\n"
    )


def test_the_command_of_a_comparison_names_the_files(files_here):
    compare()
    command = holdfast.Comparison.record
    del command
    text = Path("here/compare.md").read_text()
    assert f"--model {files_here}/net.py:build" in text
    assert f"--import {files_here}/damp.py" in text
    assert "--files" not in text


def test_reports_and_tables_execute_nothing():
    compare()
    for name in ("net.py", "mydata.py", "damp.py"):
        Path(name).write_text(MARK)
    good("compare", "--tables", "here", "--quiet")
    good("report", "here")
    Path("here/compare.json").unlink()  # as if it were not finished
    for name in ("net.py", "mydata.py", "damp.py"):
        Path(name).unlink()
    good("report", "here")
    assert not Path("executed").exists()


def test_two_files_of_one_name_in_a_sweep():
    Path("code").mkdir()
    Path("code/net.py").write_text(NET + "\n")
    words = ("--sweep", "model=net.py:build,code/net.py:plain", "--out", "here")
    assert refused("compare", "fedavg", *SMALL, *words) == (
        "holdfast: two different files are called net.py: rename one of them\n"
    )


# -- models from Python ----------------------------------------------------------------------------------------------
class Small(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1))


def starts(out: str) -> list[torch.Tensor]:
    """The models of two seeds after rounds of steps that are too small to matter."""
    found = (next(Path(out, f"fedavg/seed-{s}/checkpoint").glob("server-*2.safetensors")) for s in (0, 1))
    return [next(iter(load_file(path).values())) for path in found]


def test_a_factory_gives_every_seed_its_own_weights_and_an_instance_does_not():
    made = holdfast.compare(["fedavg"], model=Small, out="made", lr=1e-30, **PYTHON)
    instance = holdfast.compare(["fedavg"], model=Small(10), out="instance", lr=1e-30, **PYTHON)
    first, second = starts("made")
    assert not torch.allclose(first, second)
    assert torch.equal(*starts("instance"))
    note = SAME_WEIGHTS.format(model="Small")
    assert note in instance.markdown()
    assert note in holdfast.report("instance").read_text(encoding="utf-8")
    assert note not in made.markdown()
    assert made.record["own"] == {"model factory": "Small"}
    assert RunFolder(Path("made/fedavg/seed-0")).stored().model == "Small"


def test_a_factory_in_several_processes():
    first = holdfast.compare(["fedavg", "prox"], model=Small, out="a", **PYTHON)
    second = holdfast.compare(["fedavg", "prox"], model=Small, out="b", jobs=2, **PYTHON)
    assert [e["scores"] for e in first.entries] == [e["scores"] for e in second.entries]


def test_a_factory_that_cannot_be_sent_to_other_processes():
    def build(classes: int) -> nn.Module:
        return Small(classes)

    with pytest.raises(holdfast.HoldfastError) as error:
        holdfast.compare(["fedavg", "prox"], model=build, out="a", jobs=2, **PYTHON)
    why = str(error.value).partition("(")[2].partition("): define")[0]
    assert "build" in why
    assert str(error.value).replace(why, "WHY") == (
        "the model or the data cannot be sent to the processes of --jobs (WHY): define them at the top level of a "
        "module, or use one job"
    )


def test_an_instance_does_not_continue_what_a_factory_began():
    holdfast.compare(["fedavg"], model=Small, out="here", **PYTHON)
    with raises_exactly(
        "here holds another comparison, with model given by name, not model from Python (Small): choose another --out, "
        "or start over with --overwrite"
    ):
        holdfast.compare(["fedavg"], model=Small(10), out="here", **PYTHON)

"""The seed of the split and the seed of the run, the clients that data brings, and commands that repeat a run."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from helpers.commands import TINY, config, facts, good, refused
from helpers.exact_errors import raises_exactly
from holdfast.comparison.single_run import study_of_run
from holdfast.method.config import Config
from holdfast.method.part import Part
from holdfast.runs.setup import deal

pytestmark = pytest.mark.usefixtures("elsewhere")
SHORT: dict[str, Any] = {"model": "linear", "steps": 2, "rounds": 2}
HOSPITALS = """
import numpy as np
import holdfast

def load():
    draw = np.random.default_rng(5)
    x = draw.normal(40, 3, (100, 4))
    y = (x[:, 0] > 40).astype(int)
    names = np.array(["Aachen", "Bonn", "Charité", "Dresden", "Essen"])[draw.integers(0, 5, 100)]
    return holdfast.from_arrays(x, y, groups=names)
"""


def hospitals() -> holdfast.DataSet:
    space: dict[str, Any] = {}
    exec(HOSPITALS, space)
    data = space["load"]()
    assert isinstance(data, holdfast.DataSet)
    return data


def repeated(folder: str) -> str:
    """The folder of the run that the command on the page of a run makes."""
    command = study_of_run(Path(folder)).command
    assert command is not None
    words = shlex.split(command)
    assert words[0] == "holdfast"
    good(*words[1:], "--quiet", "--out", f"{folder}-again")
    return f"{folder}-again"


def test_the_seed_of_the_split_is_its_own() -> None:
    first, second = (holdfast.federate(holdfast.load("digits"), seed=s) for s in (0, 7))
    runs = {(f.seed, s): holdfast.run("fedavg", f, seed=s, **SHORT) for f in (first, second) for s in (0, 1)}
    assert {key: (r.config.split_seed, r.config.seed) for key, r in runs.items()} == {key: key for key in runs}
    assert len({r.summary["final"] for r in runs.values()}) == 4
    for (split, seed), r in runs.items():
        named = holdfast.run("fedavg", split_seed=split, seed=seed, **SHORT)
        assert named.summary["final"] == r.summary["final"]
        assert (named.summary["split_seed"], named.summary["seed"]) == (split, seed)
    plain = holdfast.run("fedavg", seed=1, **SHORT)
    both = holdfast.run("fedavg", split_seed=1, seed=1, **SHORT)
    assert plain.config.split_seed == 1
    assert plain.summary["final"] == both.summary["final"]


def test_what_follows_the_split_seed() -> None:
    def federation(**settings: Any) -> holdfast.Federation:
        noisy = {"split": "dirichlet(0.3)+noise(0.5)", "clients": 5, "public": 0.1, "validation": 0.2}
        return deal(Config(**noisy | settings))

    one, same, other = federation(seed=1, split_seed=4), federation(seed=2, split_seed=4), federation(seed=1)
    assert np.array_equal(one.deal.index, same.deal.index)
    assert np.array_equal(one.public, same.public)
    assert one.validation is not None
    assert same.validation is not None
    assert np.array_equal(one.validation.index, same.validation.index)
    assert one.deal.noise is not None
    assert same.deal.noise is not None
    assert other.deal.noise is not None
    assert np.array_equal(one.deal.noise.sigma, same.deal.noise.sigma)
    assert not np.array_equal(one.public, other.public)
    assert one.seed == 4
    assert other.seed == 1


def test_the_command_of_a_run_repeats_it() -> None:
    digits = holdfast.load("digits")
    holdfast.run("fedavg", holdfast.federate(digits, seed=7), out="python", **SHORT)
    assert facts(repeated("python")) == facts("python")
    more = holdfast.federate(
        holdfast.load("digits(normalise=off)"), "iid", 6, 5, public=0.1, augment="flip(0.5)", validation=0.2
    )
    holdfast.run("feddf(steps=3)", more, out="more", **SHORT)
    assert {key: config("more")[key] for key in ("data", "public", "augment", "validation", "split_seed")} == {
        "data": "digits(normalise=off)", "public": 0.1, "augment": "flip(0.5)", "validation": 0.2, "split_seed": 5,
    }  # fmt: skip
    assert facts(repeated("more")) == facts("more")
    good("run", "scaffold", *TINY, "--split-seed", "3", "--seed", "1", "--out", "flags")
    assert config("flags")["split_seed"] == 3
    assert facts(repeated("flags")) == facts("flags")
    good("run", "fedavg", *TINY, "--seed", "2", "--out", "plain")
    assert config("plain")["split_seed"] == 2
    assert "split-seed" not in str(study_of_run(Path("plain")).command)
    assert facts(repeated("plain")) == facts("plain")


def test_the_command_repeats_a_given_split_and_another_one_of_the_same_data() -> None:
    Path("hospitals.py").write_text(HOSPITALS)
    words = ("run", "feddyn(0.1)", "--data", "hospitals.py:load", "--model", "linear", "--rounds", "2", "--quiet")
    good(*words, "--out", "given")
    found = config("given")
    assert (found["split"], found["clients"], found["normalisation"]) == ("given", 5, "federated")
    assert facts(repeated("given")) == facts("given")
    good(*words, "--split", "dirichlet(0.3)", "--clients", "20", "--out", "dealt")
    assert config("dealt")["clients"] == 20
    assert facts(repeated("dealt")) == facts("dealt")
    summary = json.loads(Path("given/summary.json").read_text())
    assert {key: summary[key] for key in ("split", "clients", "normalisation")} == {
        "split": "given", "clients": 5, "normalisation": "federated",
    }  # fmt: skip
    said, remedy = refused(*words, "--clients", "20", "--out", "wrong"), "leave out clients, or use another split"
    assert said == f"holdfast: clients is 20, but hospitals.py:load brings 5: {remedy}, such as iid\n"


def test_methods_count_the_clients_that_the_data_brings() -> None:
    counted: list[int] = []

    @dataclass(frozen=True)
    class Counting(Part):
        name = "counting-clients"
        summary = "notes the number of clients"

        def init_server(self, w: Any, N: int) -> Any:
            counted.append(N)
            return {}

        def absorb(self, s: Any, r: Any) -> Any:
            counted.append(r.N)
            return {}

    holdfast.run(Counting(), holdfast.federate(hospitals()), **SHORT)
    assert counted
    assert set(counted) == {5}
    for method in ("feddyn(0.1)", "scaffold"):
        plain = holdfast.run(method, holdfast.federate(hospitals()), **SHORT)
        stated = holdfast.run(method, holdfast.federate(hospitals(), "given", 5), **SHORT)
        assert plain.summary["final_scores"] == stated.summary["final_scores"]
        assert plain.config.cohort_size == 2
        assert {i for record in plain.history for i in record.cohort} <= set(range(5))


def test_names_are_on_disk_and_in_the_terminal() -> None:
    Path("hospitals.py").write_text(HOSPITALS)
    good("run", "fedavg", "--data", "hospitals.py:load", "--model", "linear", "--rounds", "1", "--quiet", "--out", "a")
    names = ["Aachen", "Bonn", "Charité", "Dresden", "Essen"]
    assert json.loads(Path("a/split.json").read_text())["names"] == names
    assert study_of_run(Path("a")).split.names == names
    said = good("split", "--data", "hospitals.py:load")
    assert all(name in said.out for name in names)
    told = good("split", "--data", "hospitals.py:load", "--json").json
    assert (told["names"], told["split"], told["clients"]) == (names, "given", 5)
    assert [sum(row) for row in told["counts"]] == np.bincount(hospitals().groups).tolist()  # type: ignore[arg-type]
    good("split", "--data", "hospitals.py:load", "--png", "split.png")
    assert Path("split.png").stat().st_size > 1000


def test_resuming_keeps_split_clients_and_statistics() -> None:
    fed = holdfast.federate(hospitals(), seed=7, public=0.2)
    whole = holdfast.run("scaffold", fed, out="whole", **SHORT | {"rounds": 4})
    holdfast.run("scaffold", fed, out="parts", **SHORT)
    with raises_exactly(
        "the run to resume has split_seed = 7, not 8: leave that setting out, or start over with --overwrite"
    ):
        other = holdfast.federate(hospitals(), seed=8, public=0.2)
        holdfast.run("scaffold", other, out="parts", resume=True, rounds=4)
    again = holdfast.run("scaffold", fed, out="parts", resume=True, rounds=4)
    assert again.summary["final_scores"] == whole.summary["final_scores"]
    assert again.facts.mean == list(fed.data.mean)
    with raises_exactly("split_seed is decided by the federation: leave it out, or pass seed to federate()"):
        holdfast.run("fedavg", fed, split_seed=3, **SHORT)
    with raises_exactly(
        "client_eval is decided by the federation: leave it out, or pass client_test=0.2 to federate()"
    ):
        holdfast.run("fedavg", fed, client_eval=True, **SHORT)


def test_a_run_of_an_earlier_version_has_one_seed() -> None:
    good("run", "fedavg", *TINY, "--seed", "3", "--out", "old")
    path = Path("old/config.toml")
    kept = [line for line in path.read_text().splitlines() if not line.startswith(("split_seed", "normalisation"))]
    text = "\n".join(line for line in kept if not line.startswith("checksum"))
    path.write_text(text.replace("format = 4", "format = 2").replace("format = 5", "format = 2") + "\n")
    good("run", "--resume", "--rounds", "3", "--quiet", "--out", "old")
    good("run", "fedavg", *TINY, "--rounds", "3", "--seed", "3", "--out", "new")
    assert facts("old") == facts("new")
    assert config("old")["split_seed"] == 3

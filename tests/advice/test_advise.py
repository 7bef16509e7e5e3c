"""``advise`` from end to end, on real runs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import holdfast
from helpers.commands import good, refused
from helpers.places import ROOT
from helpers.small_race import decided, small_data, small_race
from holdfast.advice.advise import ANSWER, QUESTION, Advice
from holdfast.advice.answer import Answer, Confirmation, Cost, Rival
from holdfast.advice.answer_text import close_rivals, reasons
from holdfast.advice.candidates import FIELD
from holdfast.advice.experience import PastRace, ordered, own_races, remember, shipped_races
from holdfast.advice.federation_look import FederationLook, look
from holdfast.comparison.observers import Observer
from holdfast.comparison.study_schema import PairedDifference
from holdfast.core.errors import HoldfastError
from holdfast.core.typed_json import from_json, to_json
from holdfast.method.held_out import HELD_OUT
from holdfast.reports.advice_page import html


def answer_of(advice: Advice) -> Answer:
    assert advice.answer is not None
    return advice.answer


def test_the_answer_names_a_method_its_cost_and_what_it_beat(finished):
    answer = answer_of(finished)
    assert answer.method in {"fedavg", *(r.method for r in answer.raced)}
    assert {s.method.partition("(")[0] for s in answer.screened} == {"scaffold", "prox"}
    assert answer.baseline.method == "fedavg"
    text = str(finished)
    assert text.splitlines()[0].startswith("4 clients hold ")
    assert answer.spent in text


def test_the_file_gives_the_answer_back(finished):
    stored = json.loads((finished.folder / ANSWER).read_text())
    assert from_json(Answer, stored) == answer_of(finished)


def test_a_race_that_was_stopped_goes_on_to_the_same_answer(finished, tmp_path):
    rounds = iter(range(10**6))
    stopped = small_race(tmp_path / "race", stop=lambda: next(rounds) == 37)
    assert not stopped.finished
    assert str(stopped) == f"the race in {tmp_path / 'race'} is not finished: start it again with the same folder"
    small_race(tmp_path / "race")
    assert decided(tmp_path / "race") == decided(finished.folder)


def test_a_finished_race_is_not_run_again(finished, tmp_path, monkeypatch):
    shutil.copytree(finished.folder, tmp_path / "race")
    monkeypatch.setattr("holdfast.comparison.executor.carry_out", lambda *_: pytest.fail("it ran again"))
    small_race(tmp_path / "race")
    assert decided(tmp_path / "race") == decided(finished.folder)


def test_a_race_that_gets_sigkill_goes_on_to_the_same_answer(finished, tmp_path):
    """It is killed in the middle of the screening; no run that was finished is run again."""
    words = "import sys, pathlib; from helpers.small_race import small_race; small_race(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", words, str(tmp_path / "race")]
    known = {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    process = subprocess.Popen(command, env=os.environ | known, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300
    while len(list((tmp_path / "race").glob("runs/*/*/summary.json"))) < 7:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "race").glob("runs/*/*/summary.json")}
    small_race(tmp_path / "race")
    assert decided(tmp_path / "race") == decided(finished.folder)
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_shuffled_test_labels_change_no_choice(finished, tmp_path):
    flipped = small_race(tmp_path / "race", small_data(lambda y: 1 - y))
    own, other = decided(finished.folder), decided(flipped.folder)
    for found in (own, other):
        for name in ("gain", "scores", "baseline"):
            (found["confirmation"] or {}).pop(name, None)
    assert own == other


def test_a_federation_of_one_s_own(finished, tmp_path):
    federation = holdfast.federate(small_data(), "dirichlet(0.5)", clients=4, seed=0, validation=0.3)
    advice = holdfast.advise(
        federation, "linear", budget="110 rounds", methods=["scaffold", "prox(0.1)"], rounds=3, cohort=2, epochs=1,
        out=tmp_path / "race", experience=False,
    )  # fmt: skip
    assert decided(advice.folder) == decided(finished.folder)


def test_a_method_that_refuses_a_learning_rate_loses_that_run_alone(tmp_path):
    """FedAgg refuses rates above its largest one, which tuning may come to."""
    said = list[str]()
    watch = Observer()
    watch.say = said.append  # type: ignore[method-assign]
    race = small_race(tmp_path / "race", methods=["fedagg", "prox(0.1)"], lr=0.4, watch=watch)
    assert any(line.startswith("left out: fedagg, lr ") for line in said)
    (fedagg,) = [s for s in answer_of(race).screened if s.method == "fedagg"]
    assert fedagg.score is not None
    assert fedagg.lr <= 0.5


def test_what_the_answer_costs_is_said_where_fedavg_leads_too(tmp_path):
    answer = answer_of(small_race(tmp_path / "race", methods=["prox(1000)"]))
    assert answer.confirmation is None
    assert answer.cost is not None
    (run, *_) = (tmp_path / "race" / "runs").glob("fedavg-*/rounds-3-seed-*/history.jsonl")
    traffic = [line["download_bytes"] + line["upload_bytes"] for line in map(json.loads, run.read_text().splitlines())]
    assert answer.cost.bytes == sum(traffic) / len(traffic)
    told = reasons(replace(answer, cost=Cost(0.2, 3e6)))
    assert told[1:] == ["All 3 rounds of FedAvg take about 0.6s on this machine and 9 MB of traffic."]


def test_the_method_is_named_whose_cost_is_said(finished):
    """It led, but FedAvg is the answer."""
    leader, found = Rival("scaffold", 0.1, 0.9, 5, None, None), [0.5, 0.6]
    confirmed = Confirmation([1000, 1001], 0.4, None, found, found, Cost(0.2, 4e6), Cost(0.1, 2e6))
    told = reasons(replace(answer_of(finished), recommended=False, raced=[leader], confirmation=confirmed))
    assert told[-2:] == [
        "All 3 rounds of scaffold take about 0.6s on this machine and 12 MB of traffic.",
        "A round takes 2 times as long as FedAvg's, and 2 times the traffic.",
    ]


def test_the_page_has_the_answer(finished):
    page = html(answer_of(finished))
    for text in ("When to look again", "Your federation", "The screening", "scaffold"):
        assert text in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_the_command_prints_the_answer_and_the_command_to_train_with(tmp_path):
    words = ["--methods", "scaffold; prox(0.1)", "--rounds", "2", "--budget", "150 rounds", "--model", "linear"]
    words += ["--clients", "4", "--cohort", "2", "--steps", "2", "--no-experience", "--out", str(tmp_path / "race")]
    said = good("advise", *words, "--json")
    answer = said.json
    trained = shlex.split(answer["command"])
    assert trained[:3] == ["holdfast", "run", answer["method"]]
    assert (tmp_path / "race" / "advice.html").exists()
    again = good(*trained[1:], "--quiet", "--json", "--out", str(tmp_path / "trained")).json
    assert again["rounds"] == 2
    assert f"Train with:\n  {answer['command']}\n" in said.err


def test_what_came_close_is_what_cannot_be_told_from_the_leader(finished):
    def rival(method: str, low: float, high: float, out: int | None = None) -> Rival:
        gap = PairedDifference("final", method, (low + high) / 2, low, high, 0.5, 5)
        return Rival(method, 0.1, 0.8, 5, out, gap)

    leader = Rival("scaffold", 0.1, 0.9, 5, None, None)
    raced = [leader, rival("prox(0.1)", -0.01, 0.02), rival("sam", 0.06, 0.42), rival("moon", -0.1, 0.2, out=3)]
    (line,) = close_rivals(replace(answer_of(finished), raced=raced))
    assert line == "prox(0.1): 80.00 over 5 seeds, -0.50 [-2.00, +1.00] points from the leader"
    lost = replace(answer_of(finished), recommended=True, raced=[leader, rival("fedavg", -0.01, 0.02)])
    assert close_rivals(lost) == [], "it has been beaten with confidence since"


PULL = """
from dataclasses import dataclass

import holdfast


@dataclass(frozen=True)
class ToyTug(holdfast.Part):
    \"\"\"direction = g + mu * (w - w0)\"\"\"

    name = "toy-tug"
    mu: float = holdfast.param(0.1, "strength", low=0)

    def direction(self, c, g, w):
        return g + self.mu * (w - c.w0), {}


def misses(y, predictions):
    return float((predictions.argmax(1) != y).mean())
"""


@pytest.mark.usefixtures("elsewhere")
def test_parts_and_metrics_of_a_file():
    Path("tug.py").write_text(PULL)
    words = ["--methods", "toy-tug", "--import", "tug.py", "--metric", "tug.py:misses(lower_is_better=true)"]
    words += ["--rounds", "2", "--budget", "150 rounds", "--model", "linear", "--clients", "4", "--cohort", "2"]
    answer = good("advise", *words, "--steps", "2", "--no-experience", "--out", "race", "--quiet", "--json").json
    assert answer["screened"][0]["method"] == "toy-tug"
    assert not answer["metric"]["higher_is_better"]
    trained = shlex.split(answer["command"])
    assert Path(trained[trained.index("--import") + 1]) == Path("tug.py").resolve()


# ------------------------------------------------------------------------------------------------ bad input
def test_another_question_is_refused(finished):
    before = (finished.folder / QUESTION).read_text()
    with pytest.raises(HoldfastError) as error:
        small_race(finished.folder, rounds=4)
    assert str(error.value) == (
        f"{finished.folder} holds a race with other settings: choose another --out, or add --overwrite"
    )
    assert (finished.folder / QUESTION).read_text() == before


def test_a_budget_too_small_is_refused_before_anything_is_written(finished, tmp_path):
    """Two methods beside FedAvg, of 1.5 times its cost: 5 short runs of 2 rounds each, 3 seeds, and 5 fresh ones."""
    message = (
        "a budget of 99 rounds is too small: a race of 3 rounds on this data takes about 100 rounds; raise --budget, "
        "or lower --rounds"
    )
    assert 5 * 2 * (1 + 2 * 1.5) + (3 + 5) * 3 * (1 + 1.5) == 100
    shutil.copytree(finished.folder, tmp_path / "race")
    for out in (tmp_path / "race", tmp_path / "new"):
        with pytest.raises(HoldfastError) as error:
            small_race(out, budget="99 rounds", overwrite=True)
        assert str(error.value) == message
    assert decided(tmp_path / "race") == decided(finished.folder)
    assert not (tmp_path / "new").exists()


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(HoldfastError) as error:
        small_race(tmp_path)
    assert str(error.value) == f"{tmp_path} is not empty and holds no race: choose another --out"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation": 0.0}, "advise chooses by validation data: set --validation above 0, such as 0.2"),
        ({"method": "fedavg"}, "advise finds the method: pass methods=[...] to race only some"),
        ({"methods": ["fedavg"]}, "a race needs at least one method beside fedavg: name it, or leave --methods out"),
    ],
)
def test_bad_settings(tmp_path, settings, message):
    with pytest.raises(HoldfastError) as error:
        small_race(tmp_path / "race", **settings)
    assert str(error.value) == message


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--budget", "20 rounds"),
            "a budget of 20 rounds is too small: a race of 30 rounds on this data takes about 800 rounds; raise "
            "--budget, or lower --rounds",
        ),
        (("--methods", "scafold"), "unknown method 'scafold'; did you mean scaffold?"),
        (("--metric", "acuracy"), "unknown metric 'acuracy'; did you mean accuracy?"),
        (("--executor", "rays"), "--executor must be process, ray, ray://host:port or slurm, not rays"),
        (("--jobs", "0"), "--jobs must be a whole number of at least 1, not 0"),
    ],
)
def test_the_command_refuses_in_one_line_and_leaves_nothing(words, message):
    assert refused("advise", *words, "--out", "race") == f"holdfast: {message}\n"
    assert not list(Path().iterdir())


@pytest.mark.parametrize("command", HELD_OUT)
def test_the_help_names_the_share_that_is_held_out(command):
    said = " ".join(good(command, "--help").out.split())
    assert f"by which everything is chosen [default: {HELD_OUT[command]}]" in said


def test_a_federation_without_validation_data_is_refused(tmp_path):
    federation = holdfast.federate(small_data(), "iid", clients=4)
    with pytest.raises(HoldfastError) as error:
        holdfast.advise(federation, "linear", out=tmp_path / "race")
    assert str(error.value) == "advise chooses by validation data: pass validation=0.2 to federate()"


# ------------------------------------------------------------------------------------- the look, and experience
def test_a_look_at_clients_that_hold_one_class_each():
    x = torch.tensor([[0.0], [0.1], [4.0], [4.1]]).repeat(10, 1)
    y = torch.tensor([0, 0, 1, 1]).repeat(10)
    groups = ["a" if label == 0 else "b" for label in y.tolist()]
    data = holdfast.from_arrays(x, y, x, y, groups=groups, normalise="off")
    found = look(holdfast.federate(data), cohort=2)
    assert (found.clients, found.samples, found.label_skew, found.classes) == (2, [20, 20, 20], 0.5, 1.0)
    assert found.features == pytest.approx(20**0.5, rel=1e-2)  # the means are one deviation from the centre
    assert found.sentences()[1].startswith("Their labels differ strongly: a client's mix amounts to about 1.0 of 2")


SKEWED = FederationLook(10, 2, [9, 100, 200], 0.7, 2.0, 10, 0.3)
EVEN = FederationLook(10, 2, [90, 100, 110], 0.05, 9.5, 10, 0.05)


def test_experience_orders_the_field_by_similar_federations():
    races = [
        PastRace("a", "iid", SKEWED.vector(), {"scaffold": 0.5}),
        PastRace("b", "iid", EVEN.vector(), {"nova": 0.2}),
    ]
    assert [c.method for c in ordered(FIELD, SKEWED, races[:1])][:2] == ["fedavg", "scaffold"]
    assert [c.method for c in ordered(FIELD, EVEN, races[1:])][:2] == ["fedavg", "nova"]
    assert ordered(FIELD, EVEN, []) == list(FIELD)


def test_the_shipped_races_are_of_this_field_and_order_it():
    races = shipped_races()
    assert {race.data for race in races} >= {"digits", "mnist"}
    for race in races:
        assert len(race.look) == len(EVEN.vector())
        assert all(0 <= value <= 1 for value in race.look)
        assert set(race.gains) <= {c.method for c in FIELD[1:]}
        assert all(abs(gain) <= 1 for gain in race.gains.values())
    order = ordered(FIELD, SKEWED, races)
    assert order[0] == FIELD[0]
    assert sorted(c.method for c in order) == sorted(c.method for c in FIELD)
    assert order != list(FIELD)


def test_a_race_of_the_same_federation_replaces_the_older_one(own_experience):
    assert own_races() == []
    remember(PastRace("digits", "iid", SKEWED.vector(), {"scaffold": 0.5}))
    remember(PastRace("digits", "iid", EVEN.vector(), {"scaffold": 0.1}))
    remember(PastRace("digits", "iid", SKEWED.vector(), {"scaffold": 0.4}))
    assert [race.gains["scaffold"] for race in own_races()] == [0.1, 0.4]
    assert json.loads(own_experience.read_text())["races"][0] == to_json(own_races()[0])


def test_a_race_whose_experience_cannot_be_kept_has_its_answer(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("HOLDFAST_EXPERIENCE", str(tmp_path / "file" / "experience.json"))
    said = list[str]()
    watch = Observer()
    watch.say = said.append  # type: ignore[method-assign]
    race = small_race(tmp_path / "race", methods=["scaffold"], experience=True, watch=watch)
    assert race.finished
    assert said[-1].startswith("this race is not kept as experience: ")


def test_a_damaged_file_of_experience_is_named(own_experience: Path):
    own_experience.parent.mkdir()
    own_experience.write_text("{")
    with pytest.raises(HoldfastError) as error:
        own_races()
    assert str(error.value).startswith(f"cannot read the past races in {own_experience}: ")
    assert str(error.value).endswith("; delete the file")

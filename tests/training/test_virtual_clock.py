"""Clients that are slow, late or away: the clock by hand, and what it changes in a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from helpers.exact_errors import raises_exactly
from helpers.toys import FEDERATION, Anchor, assert_same, mlp, quadratic, train
from holdfast import Part
from holdfast.speeds.client_speeds import ClientSpeeds, Speeds
from holdfast.testing.laws import assert_agree, facts
from holdfast.training.virtual_clock import VirtualClock, Work

SIZES = {0: 4, 1: 7, 3: 12, 4: 19}  # samples of the toy federation's clients; the third has none
EXACT = "client,speed\n0,10\n1,10\n3,10\n4,10\n"


class Fixed(ClientSpeeds):
    """Clients that are always there, with links of a megabyte per second."""

    def __init__(self, *speeds: float) -> None:
        self.speeds = np.array(speeds)

    leaves = False

    def of(self, clients: np.ndarray) -> Speeds:
        return Speeds(self.speeds[clients], np.ones(len(clients)), np.ones(len(clients)))

    def present(self, clients: np.ndarray, at: float) -> np.ndarray:
        raise NotImplementedError

    def next_change(self, clients: np.ndarray, after: float) -> float:
        raise NotImplementedError


@pytest.fixture
def speeds(tmp_path: Path) -> str:
    """Every client trains on ten samples per second and has a perfect link."""
    (tmp_path / "speeds.csv").write_text(EXACT)
    return str(tmp_path / "speeds.csv")


# -- the clock --------------------
@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 60), st.floats(0, 200))
def test_steps_within_some_samples_are_as_many_as_fit(n: int, batch: int, K: int, most: float):
    size = min(n, batch)
    work = Work(np.array([n]), np.array([size]), np.array([K]))
    per_pass = -(-n // size)
    taken = [min(size, n - size * (k % per_pass)) for k in range(K)]
    assert work.seen().tolist() == [sum(taken)]
    expected = sum(sum(taken[: k + 1]) <= most for k in range(K))
    assert work.steps_within(np.array([most])).tolist() == [expected]


def test_a_round_by_hand():
    """Clients of 10 samples, batches of 4, two passes; 10, 5 and 1 samples per second; 0.5 MB each way in 1 s."""
    work = Work(np.array([10, 10, 10]), np.array([4, 4, 4]), np.array([6, 6, 6]))
    ids = np.arange(3)
    open_end = VirtualClock(Fixed(10, 5, 1)).timetable(ids, work, 500_000, 500_000)
    assert (open_end.seconds, open_end.late, open_end.shortened) == (21.0, [], [])
    drop = VirtualClock(Fixed(10, 5, 1), deadline=5.0).timetable(ids, work, 500_000, 500_000)
    assert (drop.ids.tolist(), drop.steps.tolist(), drop.late, drop.seconds) == ([0, 1], [6, 6], [2], 5.0)
    keep = VirtualClock(Fixed(10, 5, 1), deadline=4.0, keep=True).timetable(ids, work, 500_000, 500_000)
    assert (keep.ids.tolist(), keep.steps.tolist(), keep.late, keep.shortened) == ([0, 1], [6, 4], [2], [1])
    in_time = VirtualClock(Fixed(10, 5, 1), deadline=99.0, keep=True).timetable(ids, work, 500_000, 500_000)
    assert (in_time.seconds, in_time.late, in_time.shortened) == (21.0, [], [])


# -- runs --------------------
@pytest.mark.parametrize("engine", ["loop", "vector"])
@pytest.mark.parametrize("settings", [{}, {"deadline": 1e9}, {"deadline": 1e9, "late": "keep"}])
def test_with_infinite_speed_nothing_changes(tmp_path: Path, engine: str, settings: dict):
    (tmp_path / "speeds.csv").write_text("client\n0\n1\n3\n4\n")
    way = {"engine": engine, "epochs": "1-3"}
    plain = train("scaffold+fedbug", **way)
    clocked = train("scaffold+fedbug", client_speeds=str(tmp_path / "speeds.csv"), **settings, **way)
    for found, expected in zip(clocked.after, plain.after, strict=True):
        assert_same(found, expected)
    assert [r.virtual_seconds for r in clocked.history] == [0.0] * 3
    assert [f | {"virtual_seconds": None} for f in facts(clocked)] == facts(plain)


def test_a_round_lasts_as_long_as_its_slowest_client(speeds: str):
    ran = train("fedavg", client_speeds=speeds, epochs=2)
    for record in ran.history:
        assert record.virtual_seconds == pytest.approx(max(2 * SIZES[i] / 10 for i in record.cohort))


def test_transfer_is_that_of_the_bytes_that_travel(tmp_path: Path):
    (tmp_path / "s.csv").write_text("client,down,up\n" + "".join(f"{i},0.001,0.0005\n" for i in SIZES))
    for method in ("fedavg", "scaffold", "topk(0.1)", "quantize(4)"):
        ran = train(method, client_speeds=str(tmp_path / "s.csv"), cohort=4, rounds=2)
        for r in ran.history:
            expected = r.download_bytes / 4 / 1000 + r.upload_bytes / 4 / 500
            assert r.virtual_seconds == pytest.approx(expected, rel=1e-12), method


def test_late_clients_are_as_if_they_had_not_been_drawn(speeds: str):
    """Two passes over 4, 7, 12 and 19 samples at ten per second: only the first two clients are done after 2 s."""
    ran = train("scaffold", client_speeds=speeds, deadline=2.0, cohort=4, rounds=2)
    assert [(r.cohort, r.late, r.virtual_seconds) for r in ran.history] == [([0, 1, 3, 4], [3, 4], 2.0)] * 2
    states = {name.split("/")[0] for name in ran.after[-1] if name[0].isdigit()}
    assert states == {"0", "1"}, "the others keep what they had: nothing"
    by_hand = quadratic(None, (8.0, 1), (-4.0, 3), epochs=1, rounds=1, client_speeds=late_second(speeds), deadline=1.0)
    assert float(by_hand.after[1]["w"]) == pytest.approx(4.0, rel=1e-12), "the first client's delta alone: 8 / 2"


def late_second(speeds: str) -> str:
    path = Path(speeds).with_name("two.csv")
    path.write_text("client,speed\n0,1\n1,1\n")
    return str(path)


def test_what_is_kept_of_a_late_client_by_hand(speeds: str):
    """Client 1 takes two of its three steps in two seconds: from 0 to -4 * (1 - 1/4) = -3."""
    settings = {"epochs": 1, "client_speeds": late_second(speeds), "deadline": 2.0, "late": "keep"}
    ran = quadratic(None, (8.0, 1), (-4.0, 3), **settings)
    assert float(ran.after[1]["w"]) == pytest.approx(0.25 * 4.0 + 0.75 * -3.0, rel=1e-12)
    (record,) = ran.history
    assert (record.late, record.shortened, record.virtual_seconds) == ([], [1], 2.0)


WAYS = {"vector": {"engine": "vector"}, "rows": {"engine": "vector", "compile": True, "step_rows": 2}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("late", ["drop", "keep"])
@pytest.mark.parametrize("work", [{"epochs": "1-4"}, {"steps": 7}], ids=["epochs", "steps"])
@pytest.mark.parametrize("method", ["scaffold+fedbug", "fednova", "anchor"])
def test_engines_agree_about_late_clients(monkeypatch, speeds: str, method: str, late: str, way: str, work: dict):
    import torch._inductor

    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    sum: str | Part = Anchor() if method == "anchor" else method
    settings = {"client_speeds": speeds, "deadline": 2.3, "late": late, "cohort": 4, "rounds": 2, **work}
    loop, other = (train(sum, **settings, **how) for how in ({"engine": "loop"}, WAYS[way]))
    assert any(r.late or r.shortened for r in loop.history)
    assert_agree(loop, other)


def test_clients_on_time_do_not_notice_late_ones(speeds: str):
    """What a client uploads does not depend on who else stops early."""
    keep = train("scaffold", client_speeds=speeds, deadline=2.0, late="keep", cohort=4, rounds=1)
    plain = train("scaffold", cohort=4, rounds=1)
    assert keep.history[0].shortened == [3, 4]
    for name, t in plain.after[1].items():
        if name.startswith(("0/", "1/")):
            assert keep.after[1][name].equal(t), name


def test_nobody_is_in_time(speeds: str):
    ran = train("scaffold+fedavgm", client_speeds=speeds, deadline=0.1, cohort=4, rounds=2)
    for found in ran.after[1:]:
        assert_same(found, ran.after[0])
    first = ran.history[0]
    assert (first.train_loss, first.upload_bytes, first.late, first.virtual_seconds) == (None, 0, [0, 1, 3, 4], 0.1)
    assert first.download_bytes > 0
    assert first.test, "the model is evaluated all the same"


def test_who_is_away_is_not_drawn_and_waiting_takes_time(tmp_path: Path):
    """Client 4 is there in the first second, client 0 from the third on, the others in the ninth."""
    (tmp_path / "s.csv").write_text("client,speed,available\n0,10,3-100\n1,10,9-10\n3,10,9-10\n4,10,0-1\n")
    ran = train("fedavg", client_speeds=str(tmp_path / "s.csv"), epochs=1, rounds=3, cohort=4)
    assert [(r.cohort, r.away) for r in ran.history] == [([4], 3), ([0], 3), ([0], 3)]
    assert [r.virtual_seconds for r in ran.history] == pytest.approx([1.9, 1.1 + 0.4, 0.4])
    message = (
        "no client is available any more after 101.2 virtual seconds: lower --rounds, or lengthen the traces of "
        "--client-speeds"
    )
    (tmp_path / "s.csv").write_text("client,speed,available\n0,10,0-5\n1,10,0-5\n3,10,0-5\n4,0.1875,0-5\n")
    with raises_exactly(message.replace("101.2", "101.333")):
        train("fedavg", client_speeds=str(tmp_path / "s.csv"), epochs=1, rounds=3, cohort=4)


@pytest.mark.parametrize(
    "settings",
    [{}, {"deadline": 2.0}, {"deadline": 2.0, "late": "keep"}],
    ids=["no deadline", "drop", "keep"],
)
def test_a_resumed_run_is_an_uninterrupted_one(tmp_path: Path, settings: dict):
    speeds = {"client_speeds": "lognormal(10, 1, up=0.01, away=0.4, period=1)", "cohort": 2, "precision": "fp64"}
    settings = {**settings, **speeds, "batch": 5, "epochs": "1-2"}
    whole = holdfast.run("scaffold", FEDERATION, mlp(), rounds=6, **settings)
    holdfast.run("scaffold", FEDERATION, mlp(), rounds=3, out=tmp_path, **settings)
    rest = holdfast.run("scaffold", FEDERATION, mlp(), rounds=6, out=tmp_path, resume=True)
    assert rest.w.equal(whole.w)
    assert [r.flat() | {"seconds": 0} for r in rest.history] == [r.flat() | {"seconds": 0} for r in whole.history]
    assert any(r.away for r in whole.history)
    assert rest.summary["virtual_seconds"] == whole.summary["virtual_seconds"] > 0


def test_a_changed_file_is_refused_when_a_run_is_resumed(tmp_path: Path, speeds: str):
    run = {"rounds": 1, "out": tmp_path / "run", "precision": "fp64"}
    holdfast.run("fedavg", FEDERATION, mlp(), client_speeds=speeds, cohort=2, **run)
    Path(speeds).write_text(EXACT.replace("3,10", "3,11"))
    with raises_exactly(f"{speeds} has changed since the run was started: restore it, or start over with --overwrite"):
        holdfast.run("fedavg", FEDERATION, mlp(), out=tmp_path / "run", resume=True, rounds=2)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (
            "fedavg", {"deadline": 3},
            "deadline has no effect without client_speeds: add --client-speeds, or leave it out",
        ),
        (
            "fedavg", {"client_speeds": "lognormal", "late": "keep"},
            "late has no effect without deadline: add --deadline, or leave it out",
        ),
        (
            "fnr", {"client_speeds": "lognormal"},
            "fnr asks clients for more than one update per round, which client_speeds does not time: leave out one of "
            "them",
        ),
        (
            "dp(noise=1)", {"client_speeds": "lognormal"},
            "dp accounts for cohorts that chance alone decides, but client_speeds decides who is there and in time: "
            "leave out one of them",
        ),
        ("fedavg", {"client_speeds": "uniform"}, "unknown distribution of speeds 'uniform'; known: lognormal"),
        (
            "fedavg", {"client_speeds": "lognormal(-1)"},
            "lognormal: speed must be a number above 0, not -1",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(method: str, settings: dict, message: str):
    with raises_exactly(message):
        train(method, **settings)


def test_real_machines_have_speeds_of_their_own():
    with raises_exactly(
        "client_speeds slows down simulated clients, but with engine flower real machines train: leave out "
        "client_speeds"
    ):
        holdfast.run("fedavg", engine="flower", client_speeds="lognormal", clients=4)

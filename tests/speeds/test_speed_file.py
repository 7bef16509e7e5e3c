"""Files of client speeds: what they may hold, and that mistakes are named in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from helpers.exact_errors import raises_exactly
from holdfast.speeds.client_speeds import ClientSpeeds
from holdfast.speeds.speed_choice import read_speeds
from holdfast.speeds.speed_file import Trace

TIMES = "available must be times in seconds such as {}, in order, not {}"
CSV_TIMES, JSON_TIMES = "0-3600 7200-9000", "[[0, 3600], [7200, 9000]]"


def read(path: Path, content: str, clients: tuple[int, ...] = (0,), names: tuple[str, ...] = ()) -> ClientSpeeds:
    path.write_text(content)
    return read_speeds(str(path), 0, clients, names)


def test_both_formats_say_the_same(tmp_path: Path):
    lines = "client,speed,down,up,available,repeat\n1,50,2.5,0.5,0-10 20-30,100\n0,,,,,\nleft,7,1,1,5-6,\n"
    rows = [
        {"client": 1, "speed": 50, "down": 2.5, "up": 0.5, "available": [[0, 10], [20, 30]], "repeat": 100},
        {"client": 0},
        {"client": "left", "speed": 7, "down": 1, "up": 1, "available": [[5, 6]]},
    ]
    names = ("first", "second", "left")
    for name, content in (("a.csv", lines), ("a.json", json.dumps(rows))):
        found, who = read(tmp_path / name, content, (0, 1, 2), names), np.arange(3)
        assert found.leaves
        speeds = found.of(who)
        assert [t.tolist() for t in speeds] == [[math.inf, 50, 7], [math.inf, 2.5, 1], [math.inf, 0.5, 1]]
        there = {t: found.present(who, t).tolist() for t in (0, 5, 10, 20, 125, 205.5)}
        assert there == {
            0: [True, True, False], 5: [True, True, True], 10: [True, False, False], 20: [True, True, False],
            125: [True, True, False], 205.5: [True, True, False],
        }  # fmt: skip
        assert found.next_change(np.array([1]), 12) == 20
        assert found.next_change(np.array([1, 2]), 30) == 100
        assert found.next_change(np.array([2]), 5) == math.inf


def test_transfer_and_training_take_the_time_of_bytes_and_samples(tmp_path: Path):
    speeds = read(tmp_path / "a.csv", "client,speed,down,up\n0,50,2,0.5\n").of(np.array([0]))
    assert speeds.transfer(4_000_000, 1_000_000).tolist() == [4.0]
    assert speeds.training(np.array([125])).tolist() == [2.5]


def test_a_trace_begins_again():
    trace = Trace(((2.0, 4.0), (6.0, 7.0)), repeat=10.0)
    assert [trace.present(t) for t in (1.9, 2.0, 4.0, 6.5, 12.0, 14.0)] == [False, True, False, True, True, False]
    assert [trace.next_start(t) for t in (0.0, 2.0, 6.0, 12.5)] == [2.0, 6.0, 12.0, 16.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "client,sped\n0,1\n", "{path}: unknown column 'sped'; did you mean speed?"),
        ("a.csv", "client,speed\n0,fast\n", "{path}, line 2: speed must be a number above 0, or left out, not fast"),
        ("a.csv", "client,up\n0,0\n", "{path}, line 2: up must be a number above 0, or left out, not 0"),
        ("a.csv", "client,up\n0,inf\n", "{path}, line 2: up must be a number above 0, or left out, not inf"),
        ("a.csv", "client\n0\n0\n", "{path}, line 3: client 0 has a line before: keep one of them"),
        ("a.csv", "client\n-1\n", "{path}, line 2: client must be a client's number or name, not -1"),
        ("a.csv", "speed\n5\n", "{path}, line 2: client must be a client's number or name, not nothing"),
        ("a.csv", "client\n1\n", "{path} has no line for client 0: every client that has samples needs one"),
        (
            "a.csv", "client,speed\n0\n",
            "{path}, line 2: it has more or fewer fields than the first line: write one per column",
        ),
        ("a.csv", "client,available\n0,10\n", "{path}, line 2: " + TIMES.format(CSV_TIMES, "10")),
        ("a.csv", "client,available\n0,5-3\n", "{path}, line 2: " + TIMES.format(CSV_TIMES, "5-3")),
        ("a.csv", "client,available\n0,0-5 4-9\n", "{path}, line 2: " + TIMES.format(CSV_TIMES, "0-5 4-9")),
        (
            "a.csv", "client,available,repeat\n0,0-5,4\n",
            "{path}, line 2: the last time, 5, is after repeat, 4: raise repeat",
        ),
        (
            "a.csv", "client,repeat\n0,4\n",
            "{path}, line 2: repeat has no effect without available: leave it out",
        ),
        ("a.json", "[{]", "{path} is not valid JSON: write it again"),
        ("a.json", "[1]", '{path} must be a list with an object for every client, such as {{"client": 0}}'),
        (
            "a.json", '[{"client": true}]',
            "{path}, entry 1: client must be a client's number or name, not true",
        ),
        (
            "a.json", '[{"client": 0, "available": [[0]]}]',
            "{path}, entry 1: " + TIMES.format(JSON_TIMES, "[[0]]"),
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, name: str, content: str, message: str):
    path = tmp_path / name
    with raises_exactly(message.replace("{path}", str(path)).replace("{{", "{").replace("}}", "}")):
        read(path, content)


def test_several_clients_that_are_missing_are_counted(tmp_path: Path):
    path = tmp_path / "a.csv"
    with raises_exactly(f"{path} has no line for client b and 1 more: every client that has samples needs one"):
        read(path, "client\na\n", (0, 1, 2), ("a", "b", "c"))
    with raises_exactly(f"cannot read {path}/no.csv: Not a directory; check --client-speeds"):
        read_speeds(f"{path}/no.csv", 0, (0,))
    path.write_bytes(b"client\n\xff\n")
    with pytest.raises(Exception, match="is not valid CSV in UTF-8") as caught:
        read_speeds(str(path), 0, (0,))
    assert "\n" not in str(caught.value)


def test_a_client_s_speed_follows_from_the_seed_and_the_client_alone():
    many = read_speeds("lognormal(100, 0.5, down=4, up=2, away=0.3, period=10)", 3, ())
    ids = np.arange(20_000)
    speeds = many.of(ids)
    for mine, alone in zip(speeds, many.of(ids[[7, 3]]), strict=True):
        assert mine[[7, 3]].tolist() == alone.tolist()
    assert np.median(speeds.speed) == pytest.approx(100, rel=0.03)
    assert np.log(speeds.speed).std() == pytest.approx(0.5, rel=0.03)
    assert np.allclose(speeds.down, 2 * speeds.up), "one link per client"
    assert abs(np.corrcoef(np.log(speeds.speed), np.log(speeds.up))[0, 1]) < 0.03
    other = read_speeds("lognormal(100, 0.5)", 4, ()).of(ids)
    assert abs(np.corrcoef(np.log(speeds.speed), np.log(other.speed))[0, 1]) < 0.03
    assert many.present(ids, 12.0).mean() == pytest.approx(0.7, abs=0.015)
    assert np.array_equal(many.present(ids, 10.0), many.present(ids, 19.9)), "for a whole period"
    assert not np.array_equal(many.present(ids, 10.0), many.present(ids, 20.0))
    assert many.next_change(ids, 12.0) == 20.0

"""The page about slow clients: its commands run, its two files say the same, its table is that of the code."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import good
from helpers.places import ROOT
from holdfast.method.method import Method
from holdfast.method.part import parts
from holdfast.speeds.lognormal import LogNormal
from holdfast.speeds.speed_choice import read_speeds
from holdfast.speeds.speed_file import COLUMNS

PAGE = (ROOT / "docs" / "slow_clients.md").read_text(encoding="utf-8")
QUICK = ("--rounds", "2", "--steps", "1", "--cohort", "2", "--model", "linear", "--quiet")


def block(language: str) -> str:
    return re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for number, line in enumerate(block("sh").splitlines()):
        good(*shlex.split(line)[1:], *QUICK, "--out", f"run-{number}")
    table = (tmp_path / "run-2" / "compare.csv").read_text()
    assert ",virtual_seconds," in table
    assert "virtual s |" in (tmp_path / "run-2" / "compare.md").read_text()


def test_its_files_say_the_same(tmp_path: Path):
    found = []
    for kind in ("csv", "json"):
        path = tmp_path / f"speeds.{kind}"
        path.write_text(block(kind))
        found.append(read_speeds(str(path), 0, (0, 1, 2)))
    ids, day = np.arange(3), np.arange(0, 3e5, 1800.0)
    assert all(np.array_equal(*pair) for pair in zip(*(f.of(ids) for f in found), strict=True))
    assert all(np.array_equal(*(f.present(ids, t) for f in found)) for t in day)
    assert found[0].present(ids, 90_000).tolist() == [True, True, False], "in the second day"


def test_its_tables_are_those_of_the_code():
    expected = [(f.name, f"{f.default:g}", f.metadata["doc"]) for f in fields(LogNormal)]
    assert re.findall(r"^\| `(\w+)` \| ([\d.]+) \| (.*) \|$", PAGE, re.MULTILINE) == expected
    described = re.findall(r"`(\w+)`", "".join(re.findall(r"^(\| `.*?) \|[^|]*\|$", PAGE, re.MULTILINE)))
    assert set(COLUMNS) <= set(described)


def test_it_names_the_parts_that_are_refused():
    named = re.search(r"more than one update per round\*\* \((.*?)\):", PAGE, re.DOTALL)[1]
    sums = {name for name in parts() if not name.startswith("toy")} | {"fedagg(mode=fixed_point)"}
    refused = {s for s in sums if any(map(Method.parse(s).filling, ("consult", "trips", "survey")))}
    assert set(re.findall(r"`(.*?)`", named)) == refused

"""Every table and every reading of every paper runs at smoke scale."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from holdfast.reproduce.expectations import Expectation
from holdfast.reproduce.markdown import LEAK, table_markdown
from holdfast.reproduce.paper_file import load_paper, shelf
from holdfast.reproduce.reproduction import reproduce
from holdfast.reproduce.table_schema import CellRecord

EVERY = [(name, table.id) for name in shelf() for table in load_paper(name).table]

READINGS = [(name, reading.name) for name in shelf() for reading in load_paper(name).reading]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize(("paper", "table"), EVERY, ids=lambda v: v)
def test_every_table_runs_at_smoke_scale(paper: str, table: str, shared: Path) -> None:
    found = reproduce(paper, table, scale="smoke", out=shared / paper, light=True)
    assert found.finished
    (one,) = found.tables
    statuses = {c.status for c in one.cells}
    assert statuses <= {"run", "absent"}, statuses
    assert statuses or one.why_not
    for c in one.cells:
        if c.status == "run":
            check_values(c, shared / paper)


@pytest.mark.parametrize(("paper", "reading"), READINGS, ids=lambda v: v)
def test_every_reading_runs_at_smoke_scale(paper: str, reading: str, shared: Path) -> None:
    """The methods that the first claim tests, in the first row: cells that the reading does not change are shared."""
    first = next(t for t in load_paper(paper).table if t.baselines)
    names = {Expectation.parse(text).left for text in first.expect}
    columns = [c.name for c in first.columns if c.name in {*names, *first.baselines}][:3]
    found = reproduce(
        paper, first.id, rows=["1"], columns=columns, scale="smoke", reading=reading, out=shared / paper, light=True
    )
    assert found.finished
    (one,) = found.tables
    assert one.reading.name == reading
    assert {c.status for c in one.cells} == {"run"}
    for c in one.cells:
        check_values(c, shared / paper)


def check_values(c: CellRecord, out: Path) -> None:
    """Every number is there; only a target that the run's best round misses was never reached."""
    assert c.runs is not None
    assert c.runs.ours is not None
    target = re.search(r"_to\((.+)\)", c.runs.measure)
    for seed, value in zip(c.runs.seeds, c.runs.ours.values, strict=True):
        lines = (out / c.runs.folder / f"seed-{seed}" / "history.jsonl").read_text().splitlines()
        best = max(json.loads(line)["test"]["accuracy"] for line in lines)
        missed = target is not None and best < float(target[1])
        assert (value is None) == missed, (c.method, c.runs.measure, best, value)
        assert missed or (value is not None and math.isfinite(value))


def test_only_leaking_runs_are_marked(shared: Path) -> None:
    honest = reproduce("fnr", "leak-2", rows=["4"], columns=["FedAvg"], scale="smoke", out=shared / "fnr").tables
    assert "LEAK" not in table_markdown(honest[0])
    both = reproduce("fnr", "leak-2", rows=["4"], scale="smoke", out=shared / "fnr").tables
    marks = {line.split(" | ")[1]: line.count("(LEAK)") for line in table_markdown(both[0]).splitlines()[2:4]}
    assert marks == {"FNR-FL, leaking": 1, "FedAvg": 0}
    assert table_markdown(both[0]).endswith(f"\n\n{LEAK}")

"""``holdfast bench``: what it prints and refuses. Speed itself is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_cli import call, good

from holdfast.bench import ceiling, cpu, main, scale
from holdfast.bench.apart import Apart
from holdfast.bench.row import Row, markdown
from holdfast.bench.workload import fastest, images, plain_round


def test_a_table_per_suite():
    rows = [Row("one", "a", 2.0, "ms", 5.0, "note"), Row("one", "b", 0.5, "s"), Row("two", "c", 1234.5)]
    assert markdown(rows) == (
        "**one**\n\n| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|\n"
        "| a | 5 ms | 2 ms | 2.5 | note |\n| b |  | 0.5 s |  |  |\n"
        "\n**two**\n\n| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|\n| c |  | 1234 ms |  |  |\n"
    )


def test_suites_are_printed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    def rows() -> Iterator[Row]:
        yield Row("clients", "100", 1.0)
        yield Row("clients", "1000", 1.5)

    monkeypatch.setattr(scale, "rows", rows)
    main.main(["scale", "--json", str(tmp_path / "found.json")])
    assert "| 1000 |  | 1.5 ms |  |  |" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [r["what"] for r in found["rows"]] == ["100", "1000"]
    assert found["machine"]["torch"]


def test_a_case_measures_both(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ceiling, "multiply_rate", lambda *_: 1e9)
    monkeypatch.setattr(ceiling, "copy_rate", lambda *_: 1e9)
    fed = images((1, 8, 8), 20, 12)
    (row,) = cpu.case("linear", 1, {"vector": {"engine": "vector"}}, fed)
    assert row.base is not None
    assert row.base > 0
    assert row.ours > 0
    assert "GFLOP" in row.note


def test_plain_pytorch_trains_every_client_for_an_epoch(monkeypatch: pytest.MonkeyPatch):
    fed = images((1, 8, 8), 20, 3)
    assert fastest(plain_round("linear", fed, 3, 8, "cpu", "fp32"), 1) > 0


def test_work_in_another_process_leaves_our_tensors_where_they_are():
    fed = images((1, 8, 8), 20, 3)
    with Apart(plain_round, "linear", fed, 3, 8, "cpu", "fp32") as work:
        assert work(2) > 0
    assert not work.process.is_alive()
    assert not fed.data.x.is_shared()


def test_memory_of_a_slice_is_measured():
    assert scale.peak(4) >= 0


def bad(*args: str) -> str:
    said = call(*args)
    assert said.code == 2
    return said.err


def test_bad_input(tmp_path: Path):
    assert "unknown suite 'cpuu'" in bad("bench", "cpuu")
    assert "there is no folder" in bad("bench", "scale", "--json", str(tmp_path / "no" / "f.json"))
    assert "two whole numbers" in bad("bench", "scale", "--rounds", "x")
    assert "needs a CUDA GPU" in bad("bench", "gpu")


def test_help_names_the_suites():
    assert "rounds on the CPU against plain PyTorch" in " ".join(good("bench", "--help").out.split())


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "benchmarks").glob("*.json")), ids=lambda p: p.stem
)
def test_the_page_shows_what_was_printed(path: Path):
    page = (Path(__file__).parents[1] / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = [Row(**row) for row in json.loads(path.read_text())["rows"]]
    assert rows
    for row in rows:
        assert row.line() in page, row.what

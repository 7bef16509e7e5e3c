"""``holdfast bench``: what it prints and refuses. Speed itself is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import good, refused
from helpers.places import ROOT
from holdfast.bench import checkpoints, cpu, disk, hardware_limit, scaling, short_runs, startup, suites
from holdfast.bench.baseline_process import BaselineProcess
from holdfast.bench.timing import Timing
from holdfast.bench.workload import fastest, images, plain_round


def text(rows: list[Timing]) -> str:
    return "\n".join(row.text(before) for before, row in zip([None, *rows], rows, strict=False))


def test_a_table_per_suite_and_no_columns_for_a_baseline_that_is_not_there():
    rows = [Timing("one", "a", 2.0, "ms", 5.0, "note"), Timing("one", "b", 1.0, "ms", 0.5), Timing("two", "c", 1234.5)]
    assert text([*rows, Timing("two", "d", 0.5, "", note="note"), Timing("two", "e", 1.0, "s", 3.0)]) == (
        "\n**one**\n\n| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|\n"
        "| a | 5 ms | 2 ms | 2.5 | note |\n| b | 0.5 ms | 1 ms | 0.5 |  |\n"
        "\n**two**\n\n| | Holdfast | |\n|---|---|---|\n| c | 1234 ms |  |\n| d | 0.5 | note |\n"
        "\n**two**\n\n| | baseline | Holdfast | ratio | |\n|---|---|---|---|---|\n| e | 3 s | 1 s | 3 |  |"
    )


def test_suites_are_printed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    def rows() -> Iterator[Timing]:
        yield Timing("clients", "100", 1.0)
        yield Timing("clients", "1000", 1.5)

    monkeypatch.setattr(scaling, "rows", rows)
    suites.main(["scale", "--json", str(tmp_path / "found.json")])
    printed = capsys.readouterr().out
    assert printed.endswith(
        "\n\n**clients**\n\n| | Holdfast | |\n|---|---|---|\n| 100 | 1 ms |  |\n| 1000 | 1.5 ms |  |\n"
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert [r["what"] for r in found["rows"]] == ["100", "1000"]
    assert found["machine"]["torch"]


def test_what_the_start_leaves_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(startup, "command", lambda code, env=None: 0.5)
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "none"))
    for args, folder in (([], tmp_path / "none"), (["--data-dir", str(tmp_path)], tmp_path)):
        suites.main(["start", *args])
        printed = capsys.readouterr().out
        assert "| holdfast --help | 0.5 s |  |\n\nskipped: the first and second start on CIFAR-10" in printed
        remedy = "give its folder with --data-dir, or fetch it: holdfast data fetch cifar10"
        assert f"which is not in {folder}; {remedy}\n" in printed


def test_the_start_on_data_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(startup, "command", lambda code, env=None: 0.5)
    monkeypatch.setattr(startup.subprocess, "run", lambda command, **_: started.append(command[-1]))
    started: list[str] = []
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta"]:
        (tmp_path / "cifar-10-batches-py").mkdir(exist_ok=True)
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(b"")
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    assert [row.what for row in startup.rows(None)][1:] == [
        "CIFAR-10, first start to the end of the first step", "CIFAR-10, second start to the end of the first step",
    ]  # fmt: skip
    assert f"data_dir={str(tmp_path)!r}" in started[0]
    assert capsys.readouterr().out == ""


def test_the_first_start_is_code_that_runs(monkeypatch: pytest.MonkeyPatch):
    """On the digits, since CIFAR-10 may not be here."""
    exec(startup.FIRST.format(folder=None).replace('"cifar10"', '"digits"').replace('"cnn"', '"linear"'), {})


@pytest.mark.usefixtures("elsewhere")
def test_the_cost_of_a_write_that_survives_a_power_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkpoints, "CASES", (("scaffold", "linear"),))
    printed = good("bench", "disk").out
    assert printed.splitlines()[2:4] == [f"**{disk.SUITE}**", ""]
    row, shares = disk.rows()
    assert (shares.what, shares.unit) == ("scaffold, linear", "%")
    assert shares.base is not None
    assert 0 < shares.ours < 100
    assert 0 < shares.base < 100
    assert (row.what, row.unit, row.note) == ("1 MB", "ms", "the fastest of 20")
    assert row.ours > 0
    assert row.base is not None
    assert row.base > 0
    assert not list(Path().iterdir())


def test_a_case_measures_both(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hardware_limit, "multiply_rate", lambda *_: 1e9)
    monkeypatch.setattr(hardware_limit, "copy_rate", lambda *_: 1e9)
    fed = images((1, 8, 8), 20, 12)
    (row,) = cpu.case("linear", 1, {"vector": {"engine": "vector"}}, fed)
    assert row.base is not None
    assert row.base > 0
    assert row.ours > 0
    assert "GFLOP" in row.note


def test_short_runs_are_measured_against_plain_pytorch():
    both = list(short_runs.rows(images((1, 8, 8), 20, 12), models=("linear",), rounds=2, times=1))
    assert [row.what for row in both] == ["linear, a round", "linear, in all"]
    assert all(row.base is not None and row.base > 0 and row.ours > 0 for row in both)


def test_plain_pytorch_trains_every_client_for_an_epoch(monkeypatch: pytest.MonkeyPatch):
    fed = images((1, 8, 8), 20, 3)
    assert fastest(plain_round("linear", fed, 3, 8, "cpu", "fp32"), 1) > 0


def test_work_in_another_process_leaves_our_tensors_where_they_are():
    fed = images((1, 8, 8), 20, 3)
    with BaselineProcess(plain_round, "linear", fed, 3, 8, "cpu", "fp32") as work:
        assert work(2) > 0
    assert not work.process.is_alive()
    assert not fed.data.x.is_shared()


def test_memory_of_a_slice_is_measured():
    assert scaling.peak(4) >= 0


def test_rounds_of_very_many_clients_are_measured():
    seconds, busy, megabytes = scaling.rounds_on_demand("scaffold", "disk", 10**7, cohort=3)
    assert seconds > 0
    assert busy > 0
    assert megabytes > 0


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("cpuu",), "unknown suite 'cpuu'; did you mean cpu?"),
        (("scale", "--json", "no/f.json"), "cannot write no/f.json: there is no folder no; create it first"),
        (("scale", "--rounds", "x"), "--rounds must be two whole numbers such as 30,30, not x"),
        (("gpu",), "the suite gpu needs a CUDA GPU, but PyTorch finds none: leave the suite out"),
    ],
)
def test_bad_input(args: tuple[str, ...], message: str):
    assert refused("bench", *args) == f"holdfast: {message}\n"


@pytest.mark.usefixtures("elsewhere")
def test_an_unknown_option_is_one_line():
    assert refused("bench", "--fast").startswith("holdfast: unrecognized arguments: --fast; see: ")


def test_help_names_the_suites():
    assert "rounds on the CPU against plain PyTorch" in " ".join(good("bench", "--help").out.split())


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.json")), ids=lambda p: p.stem)
def test_the_page_shows_what_was_printed(path: Path):
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = [Timing(**row) for row in json.loads(path.read_text())["rows"]]
    assert rows
    for table in text(rows).removeprefix("\n").split("\n\n**"):
        assert table in page

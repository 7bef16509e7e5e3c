"""Damaged files of runs and comparisons: report, compare and resume end with one line, whatever is in the files."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import TINY, call, good, refused

pytestmark = pytest.mark.usefixtures("elsewhere")

METHODS = ("fedavg", "prox", *TINY, "--seeds", "2")
SEED = "fedavg/seed-0"
ODD: tuple[Any, ...] = (None, True, -1, 7, 1.5, "text", "", [], ["x"], [None], {}, {"x": 1})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    good("compare", *METHODS, "--out", str(folder / "both"))
    good("run", "scaffold", *TINY, "--out", str(folder / "run"))
    return folder


@pytest.fixture
def both(sound: Path) -> Path:
    shutil.copytree(sound / "both", "both")
    return Path("both")


@pytest.fixture
def run(sound: Path) -> Path:
    shutil.copytree(sound / "run", "run")
    return Path("run")


def one_line(*args: str) -> None:
    """Check that a command succeeds, or ends with one line; a traceback is raised here."""
    ended = call(*args)
    assert ended.code in (0, 2), ended.err
    if ended.code:
        assert ended.err.splitlines()[-1].startswith("holdfast: ")
        assert ended.err.count("\n") == 1, ended.err


def damaged_texts(text: str, rng: random.Random) -> Iterator[str | bytes]:
    """Yield a file empty, cut, with flipped bits, as other JSON, and with values of other types."""
    yield from ("", "[]", "7", "null", '"x"', "{}", '{"format": "x"}', text + text, text[: len(text) // 2], b"\xff")
    for _ in range(4):
        content = bytearray(text.encode())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield bytes(content)
    if text.count("\n") > 1 and not text.startswith("{\n"):
        text = text.splitlines()[0]
    for _ in range(24):
        value = json.loads(text)
        at = value
        while True:  # walk to a random place
            keys = list(at) if isinstance(at, dict) else range(len(at))
            key = rng.choice(list(keys))
            if not at[key] or not isinstance(at[key], (dict, list)) or rng.random() < 0.4:
                break
            at = at[key]
        if rng.random() < 0.2:
            del at[key]
        else:
            at[key] = rng.choice(ODD)
        yield json.dumps(value) + "\n"


def damage(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize(
    "name", ["compare.json", "plan.json", f"{SEED}/summary.json", f"{SEED}/history.jsonl", f"{SEED}/split.json"]
)
def test_damaged_files_of_a_comparison(both: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr("holdfast.reports.static_charts.save", no_image)
    path, rng = both / name, random.Random(name)
    original = path.read_text()
    unfinished = name != "compare.json"
    for content in damaged_texts(original, rng):
        shutil.rmtree("again", ignore_errors=True)
        shutil.copytree("both", "again")
        damage(Path("again") / name, content)
        one_line("report", "again")
        if unfinished:
            (Path("again") / "compare.json").unlink(missing_ok=True)
            one_line("report", "again")
        one_line("compare", "--tables", "again", "--quiet")
        one_line("compare", *METHODS, "--out", "again")


@pytest.mark.parametrize("name", ["summary.json", "history.jsonl", "split.json"])
def test_damaged_files_of_a_run(run: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr("holdfast.reports.static_charts.save", no_image)
    original = (run / name).read_text()
    for content in damaged_texts(original, random.Random(name)):
        shutil.rmtree("again", ignore_errors=True)
        shutil.copytree("run", "again")
        damage(Path("again") / name, content)
        one_line("report", "again")
        one_line("run", "--resume", "--out", "again", "--quiet", "--json")


def no_image(chart: Any, folder: Path) -> None:
    """Draw nothing: charts take most of the time of a report."""
    (folder / f"{chart.key}.svg").write_text("<svg/>")


# -- a folder where a file should be --------------------
@pytest.mark.parametrize("name", ["compare.json", "plan.json", f"{SEED}/summary.json", f"{SEED}/config.toml"])
def test_a_folder_in_place_of_a_file_of_a_comparison(both: Path, name: str):
    (both / name).unlink()
    (both / name).mkdir()
    for args in (
        ("report", "both"),
        ("compare", "--tables", "both", "--quiet"),
        ("compare", *METHODS, "--out", "both"),
    ):
        one_line(*args)


@pytest.mark.parametrize("name", ["config.toml", "history.jsonl", "split.json", "summary.json", "checkpoint"])
def test_a_folder_in_place_of_a_file_of_a_run(run: Path, name: str):
    if name == "checkpoint":
        shutil.rmtree(run / name)
        (run / name).write_text("")
    else:
        (run / name).unlink()
        (run / name).mkdir()
    one_line("report", "run")
    one_line("run", "--resume", "--out", "run", "--quiet", "--rounds", "3")
    one_line("run", "scaffold", *TINY, "--out", "run", "--overwrite")


# -- a finished run whose history is cut short --------------------
def cut(folder: Path) -> Path:
    path = folder / "history.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    return path


def test_the_report_on_a_run_whose_history_was_cut(run: Path):
    message = f"{cut(run)} has 1 rounds, but the run finished after 2: restore the file, or start over with --overwrite"
    assert refused("report", "run") == f"holdfast: {message}\n"


def test_the_resume_of_a_run_whose_history_was_cut(run: Path):
    message = "ends at round 1, its last good round, but the checkpoint is of round 2: restore the file, or start over"
    path = cut(run)
    assert refused("run", "--resume", "--out", "run") == f"holdfast: {path} {message} with --overwrite\n"


def test_the_resume_of_a_finished_run_without_a_checkpoint(run: Path):
    path = cut(run)
    shutil.rmtree(run / "checkpoint")
    assert refused("run", "--resume", "--out", "run") == (
        f"holdfast: {run / 'checkpoint'} holds no checkpoint, though {path} has rounds: restore it, or start over with "
        "--overwrite\n"
    )


def test_a_damaged_run_is_noticed_before_more_seeds_are_run(both: Path):
    path = both / SEED / "summary.json"
    path.write_text("{")
    message = f"{path} is damaged, it is not valid JSON: delete that run's folder to run it again"
    assert refused("compare", *METHODS[:-1], "3", "--out", "both") == f"holdfast: {message}\n"


def test_a_table_that_cannot_be_written_leaves_nothing_half_written(both: Path):
    (both / "compare.tex").unlink()
    (both / "compare.tex").mkdir()
    ended = call("compare", *METHODS, "--out", "both")
    assert ended.code == 2
    assert ended.err == (
        "holdfast: cannot use both/compare.tex: is a directory; what was recorded is kept: fix that, then holdfast "
        f"{shlex.join(['compare', *METHODS, '--out', 'both'])}\n"
    )
    assert not list(both.glob("*.part"))


def test_the_tables_of_a_comparison_with_a_history_that_was_cut(both: Path):
    path = cut(both / SEED)
    message = f"{path} has 1 rounds, but the run finished after 2: restore the file, or delete that run's folder to run"
    assert refused("compare", "--tables", "both") == f"holdfast: {message} it again\n"


# -- a digit that was changed --------------------
def raise_loss(path: Path, line: int) -> None:
    """Change a number in a history, which stays valid."""
    lines = path.read_text().splitlines(keepends=True)
    record = json.loads(lines[line - 1])
    lines[line - 1] = json.dumps(record | {"train_loss": record["train_loss"] + 0.5}) + "\n"
    path.write_text("".join(lines))


@pytest.mark.parametrize(
    "args",
    [
        ("compare", *METHODS, "--out", "both"),
        ("compare", "--tables", "both", "--quiet"),
        ("report", "both"),
    ],
    ids=["again", "tables", "report"],
)
@pytest.mark.parametrize(("line", "good_round"), [(1, 0), (2, 1)])
def test_another_number_in_the_history_of_a_finished_run(both: Path, args: tuple[str, ...], line: int, good_round: int):
    (both / "compare.json").unlink()  # a report reads the runs then
    path = both / SEED / "history.jsonl"
    raise_loss(path, line)
    assert refused(*args) == (
        f"holdfast: {path} was changed since round 2 was recorded; the last good round is {good_round}: restore the "
        "file, or delete that run's folder to run it again\n"
    )


def test_the_history_of_a_diverged_run_that_was_cut(both: Path):
    path = both / SEED / "history.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    (both / SEED / "summary.json").unlink()
    (both / SEED / "diverged.txt").write_text("round 3: no client's update is finite\n")
    assert refused("compare", *METHODS, "--out", "both") == (
        f"holdfast: {path} was changed since round 2 was recorded; the last good round is 1: restore the file, or "
        "delete that run's folder to run it again\n"
    )


def test_another_number_is_noticed_before_anything_is_run(both: Path):
    path = both / SEED / "history.jsonl"
    raise_loss(path, 1)
    assert refused("compare", *METHODS[:-1], "3", "--out", "both") == (
        f"holdfast: {path} was changed since round 2 was recorded; the last good round is 0: restore the file, or "
        "delete that run's folder to run it again\n"
    )
    shutil.rmtree(both / SEED)
    good("compare", *METHODS[:-1], "3", "--out", "both")


def test_another_number_in_the_history_of_a_finished_run_is_not_reported(run: Path):
    path = run / "history.jsonl"
    raise_loss(path, 2)
    assert refused("report", "run") == (
        f"holdfast: {path} was changed since round 2 was recorded; the last good round is 1: restore the file, or "
        "start over with --overwrite\n"
    )


@pytest.mark.parametrize("kind", ["deleted", "manifest", "manifests"])
def test_a_finished_run_needs_no_checkpoint(both: Path, kind: str):
    place = both / SEED / "checkpoint"
    if kind == "deleted":
        shutil.rmtree(place)
    for path in sorted(place.glob("round-*.json"))[-1 if kind == "manifest" else 0 :]:
        path.write_text("{")
    good("compare", *METHODS, "--out", "both")


@pytest.mark.parametrize("name", ["final", "upload_bytes", "seed"])
def test_another_number_in_a_summary(both: Path, run: Path, name: str):
    for folder in (both / SEED, run):
        path = folder / "summary.json"
        summary = json.loads(path.read_text())
        path.write_text(json.dumps(summary | {name: summary[name] + 1}))
    changed = "is damaged, it was changed since it was written"
    again = "delete that run's folder to run it again"
    assert refused("compare", *METHODS, "--out", "both") == f"holdfast: {both / SEED}/summary.json {changed}: {again}\n"
    for args in (("report", "run"), ("run", "--resume", "--out", "run", "--quiet")):
        assert refused(*args) == f"holdfast: run/summary.json {changed}: delete it; --resume writes it again\n"


def test_a_report_spares_what_is_not_ours_beside_its_images(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("holdfast.reports.static_charts.save", no_image)
    (run / "report_files").mkdir()
    (run / "report_files" / "photo.jpg").write_bytes(b"mine")
    (run / "report_files" / "old.svg").write_text("<svg/>")
    good("report", "run")
    assert (run / "report_files" / "photo.jpg").read_bytes() == b"mine"
    assert not (run / "report_files" / "old.svg").exists()

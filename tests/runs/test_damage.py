"""A run on disk that is no longer what Holdfast wrote is refused: one line, the file, the last good round.

Every case below gave exit code 0 and another history before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.commands import TINY, facts, good, refused

pytestmark = pytest.mark.usefixtures("elsewhere")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1, old
    path.write_text(text.replace(old, new, 1))


def resume() -> str:
    return refused("run", "--resume", "--out", "run", "--rounds", "6")


def test_a_sound_run_is_resumed(run_copy: Path):
    good("run", "--resume", "--out", "run", "--rounds", "6", "--quiet")
    good("run", "scaffold", *TINY, "--rounds", "6", "--out", "whole")
    assert facts("run") == facts("whole")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("lr = 0.1", "lr = 0.2"),
        lambda text: text[: text.index("lr = ")],
        lambda text: text.replace("rounds = 4", "rounds = 9"),
        lambda text: text.replace("batch = 32", "batch = 16"),
    ],
    ids=["digit", "cut", "rounds", "batch"],
)
def test_a_changed_config(run_copy: Path, damage: Callable[[str], str]):
    path = run_copy / "config.toml"
    path.write_text(damage(path.read_text()))
    message = f"the config {path} was changed since it was written: restore it; the last good round is 4"
    assert resume() == f"holdfast: {message}\n"


def test_a_config_of_another_run(run_copy: Path):
    good("run", "scaffold", *TINY, "--lr", "0.2", "--rounds", "4", "--out", "other")
    shutil.copy("other/config.toml", run_copy / "config.toml")
    message = f"{run_copy / 'config.toml'} is not the config that this run was started with: restore it"
    assert resume() == f"holdfast: {message}; the last good round is 4\n"


@pytest.mark.parametrize(("line", "good_round"), [(4, 3), (1, 0), (3, 0)])
def test_a_changed_digit_in_the_history(run_copy: Path, line: int, good_round: int):
    """The two newest checkpoints are kept: a change before both leaves no good round."""
    path = run_copy / "history.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    record = json.loads(lines[line - 1])
    lines[line - 1] = json.dumps(record | {"train_loss": record["train_loss"] + 0.5}) + "\n"
    path.write_text("".join(lines))
    newest = run_copy / "checkpoint" / "round-000004.json"
    remedy = f"delete {newest} to resume from it" if good_round else "start over with --overwrite"
    assert resume() == (
        f"holdfast: {path} was changed since round 4 was recorded; the last good round is {good_round}: restore the "
        f"file, or {remedy}\n"
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"round": 4', '"round": 3'),
        lambda text: json.dumps(json.loads(text) | {"clients": {}}),
        lambda text: json.dumps(json.loads(text) | {"run": {}}),
        lambda text: text.replace('"format": 3', '"format": 1'),
    ],
    ids=["round", "clients", "run", "format"],
)
def test_a_changed_manifest(run_copy: Path, damage: Callable[[str], str]):
    path = run_copy / "checkpoint" / "round-000004.json"
    path.write_text(damage(path.read_text()))
    message = f"{path} is missing or damaged; the last good round is 3: delete {path} to resume from it"
    assert resume() == f"holdfast: {message}\n"


def test_a_stray_manifest(run_copy: Path):
    path = run_copy / "checkpoint" / "round-999999.json"
    shutil.copy(run_copy / "checkpoint" / "round-000004.json", path)
    message = f"{path} is missing or damaged; the last good round is 4: delete {path} to resume from it"
    assert resume() == f"holdfast: {message}\n"
    path.unlink()
    good("run", "--resume", "--out", "run", "--rounds", "6", "--quiet")


def test_a_folder_in_place_of_an_old_file_of_the_checkpoint_stops_nothing(run_copy: Path):
    """The newest checkpoint does not name these files. They would be deleted some rounds later; folders stay."""
    newest = json.loads((run_copy / "checkpoint" / "round-000004.json").read_text())
    old = [p for p in (run_copy / "checkpoint").iterdir() if p.name not in newest["server"] | newest["clients"]]
    old.remove(run_copy / "checkpoint" / "round-000004.json")
    assert {p.name.partition("-")[0] for p in old} >= {"round", "server"}
    for path in old:
        path.unlink()
        path.mkdir()
    good("run", "--resume", "--out", "run", "--rounds", "6", "--quiet")
    good("run", "scaffold", *TINY, "--rounds", "6", "--out", "whole")
    assert facts("run") == facts("whole")
    assert all(path.is_dir() for path in old)


def test_a_split_that_was_not_written_comes_with_the_resume(run_copy: Path, sound_run: Path):
    (run_copy / "split.json").unlink()
    good("run", "--resume", "--out", "run", "--rounds", "5", "--quiet")
    assert (run_copy / "split.json").read_text() == (sound_run / "split.json").read_text()


# -- what is not ours is never deleted --------------------
def test_overwriting_spares_what_is_not_ours_in_our_folders(run_copy: Path):
    (run_copy / "checkpoint" / "thesis.txt").write_text("years")
    (run_copy / "report_files").mkdir()
    (run_copy / "report_files" / "photo.jpg").write_bytes(b"mine")
    good("run", "fedavg", *TINY, "--out", "run", "--overwrite")
    assert (run_copy / "checkpoint" / "thesis.txt").read_text() == "years"
    assert (run_copy / "report_files" / "photo.jpg").read_bytes() == b"mine"
    assert not list((run_copy / "checkpoint").glob("client-*")), "FedAvg keeps nothing at clients"


@pytest.mark.parametrize(
    "files",
    [
        {"checkpoint/thesis.txt": "years"},
        {"config.toml": 'title = "a site of mine"\n'},
        {"config.toml": "lr = 0.1\n", "history.jsonl": ""},
        {"config.toml": 'method = "fedavg"\ndata = "digits"\nsplit = "iid"\nrounds = 3\n'},
        {"history.jsonl": "", "notes.txt": "mine"},
    ],
    ids=["checkpoint", "foreign", "partial", "no history", "beside"],
)
def test_a_folder_that_is_not_provably_a_run_is_left_alone(files: dict[str, str]):
    for name, text in files.items():
        Path("mine", name).parent.mkdir(parents=True, exist_ok=True)
        Path("mine", name).write_text(text)
    message = "mine is not empty and holds no run: choose another --out"
    assert refused("run", "fedavg", *TINY[:-1], "--out", "mine", "--overwrite") == f"holdfast: {message}\n"

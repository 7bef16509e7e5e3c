"""Folders written by the last version of format 1, stopped halfway, resume as if nothing had happened.

The folders in ``format1`` and the ends of the uninterrupted runs in ``ends.json`` were made by that version, in double
precision. The part ``fedcm`` was called ``momentum`` then, in sums and in the names of states.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import holdfast
from helpers.places import ROOT
from holdfast.core.errors import HoldfastError

OLD = ROOT / "tests" / "runs" / "format1"
ENDS = json.loads((OLD / "ends.json").read_text())
RUNS = {"fedcm": "fedcm", "momentum": "fedcm(0.2)+clip(5)", "scaffold": "scaffold", "fedcm-vector": "fedcm(0.3)"}


def copied(name: str, place: Path) -> Path:
    return Path(shutil.copytree(OLD / name, place / name))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_resumes(name: str, tmp_path: Path):
    folder = copied(name, tmp_path)
    result = holdfast.run(out=folder, resume=True)
    expected = ENDS[name]
    assert torch.allclose(result.w, torch.tensor(expected["w"], dtype=torch.float64), rtol=0, atol=1e-12)
    assert len(result.history) == len(expected["history"]) == 6
    for record, old in zip(result.history, expected["history"], strict=True):
        assert (record.cohort, record.upload_bytes, record.download_bytes, record.skipped) == (
            old["cohort"], old["upload_bytes"], old["download_bytes"], old["skipped"],
        )  # fmt: skip
        assert record.test_accuracy == old["test_accuracy"]
        assert record.train_loss == pytest.approx(old["train_loss"], rel=1e-9)
        assert record.test_loss == pytest.approx(old["test_loss"], rel=1e-9)
    assert result.config.method == RUNS[name]


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_is_of_the_new_format(name: str, tmp_path: Path):
    folder = copied(name, tmp_path)
    holdfast.run(out=folder, resume=True)
    config = tomllib.loads((folder / "config.toml").read_text())
    assert (config["format"], config["method"]) == (3, RUNS[name])
    manifest = json.loads(max((folder / "checkpoint").glob("round-*.json")).read_text())
    assert manifest["format"] == 3
    server = load_file(folder / "checkpoint" / next(iter(manifest["server"])))
    assert not [state for state in server if state.startswith("momentum/")]
    assert holdfast.run(out=folder, resume=True, rounds=7).history[-1].round == 7


def test_the_old_folders_are_of_the_old_format():
    for name in RUNS:
        assert "format" not in tomllib.loads((OLD / name / "config.toml").read_text())
    newest = max((OLD / "momentum" / "checkpoint").glob("server-*.safetensors"))
    assert "momentum/D" in load_file(newest)


def test_the_old_name_is_answered_with_the_new_one():
    with pytest.raises(HoldfastError) as error:
        holdfast.run("momentum(0.2)")
    assert str(error.value) == "unknown method 'momentum': it is now called fedcm"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s | {"other/c": torch.zeros(3)}, "holds the state other/c, which this run's method does not have"),
        (
            lambda s: {k: t for k, t in s.items() if k != "scaffold/c"},
            "lacks the state scaffold/c of this run's method",
        ),
        (
            lambda s: s | {"scaffold/c": s["scaffold/c"][:-1]},
            "holds the state scaffold/c of shape [649] (torch.float64), not [650] (torch.float64)",
        ),
    ],
    ids=["extra", "missing", "shape"],
)
def test_states_that_the_method_does_not_have_are_refused(change, message, tmp_path: Path):
    """Checksums are those of the changed file, so that only the names and shapes are wrong."""
    import zlib

    folder = copied("scaffold", tmp_path)
    path = max((folder / "checkpoint").glob("server-*.safetensors"))
    save_file(change(load_file(path)), path)
    manifest = max((folder / "checkpoint").glob("round-*.json"))
    record = json.loads(manifest.read_text())
    record["server"][path.name] = zlib.crc32(path.read_bytes())
    manifest.write_text(json.dumps(record))
    with pytest.raises(HoldfastError) as error:
        holdfast.run(out=folder, resume=True)
    assert str(error.value) == f"{path} {message}: resume with the method it was started with"


@pytest.mark.parametrize(("file", "number"), [("config.toml", 4), ("checkpoint", 4)])
def test_a_newer_format_is_refused(file: str, number: int, tmp_path: Path):
    folder = copied("scaffold", tmp_path)
    path = folder / file
    if file == "checkpoint":
        path = max(path.glob("round-*.json"))
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": number}))
        what, rest = f"{path} has", ""
    else:
        path.write_text(f"format = {number}\n" + path.read_text())
        what, rest = f"the config {path} has", "; the last good round is 3"
    with pytest.raises(HoldfastError) as error:
        holdfast.run(out=folder, resume=True)
    assert str(error.value) == f"{what} format 4, but this version reads up to 3: upgrade Holdfast{rest}"

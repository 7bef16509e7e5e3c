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
from helpers.commands import call
from helpers.places import ROOT
from holdfast.core.errors import HoldfastError
from holdfast.method.config_text import CHECKSUM_SINCE, checksum

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
    assert (config["format"], config["method"]) == (4, RUNS[name])
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


@pytest.mark.parametrize("version", [2, 3, 4])
def test_only_the_first_format_used_the_old_name(version: int, tmp_path: Path):
    """Since then, momentum names the local optimiser, in stored runs too."""
    settings = {"rounds": 2, "epochs": 1, "model": "linear", "clients": 4, "precision": "fp64", "lr": 0.05}
    sums = "momentum(0.5, keep=true)", "fedcm(0.5)"
    folder, counter = tmp_path / "run", iter(range(2))
    holdfast.run(sums[0], out=folder, stop=lambda: next(counter) == 0, **settings)
    aged(folder, version)
    resumed = holdfast.run(out=folder, resume=True)
    whole, other = (holdfast.run(sum, **settings) for sum in sums)
    assert resumed.config.method == sums[0]
    assert torch.equal(resumed.w, whole.w)
    assert not torch.equal(resumed.w, other.w)


def test_a_file_of_the_user_uses_the_names_of_today(tmp_path: Path):
    file, out = tmp_path / "my.toml", tmp_path / "run"
    file.write_text('method = "momentum(0.5)"\nrounds = 1\nepochs = 1\nmodel = "linear"\nclients = 4\n')
    assert call("run", "--config", str(file), "--out", str(out), "--quiet").code == 0
    assert tomllib.loads((out / "config.toml").read_text())["method"] == "momentum(0.5)"


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


@pytest.mark.parametrize(("file", "number"), [("config.toml", 5), ("checkpoint", 4)])
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
    assert (
        str(error.value) == f"{what} format {number}, but this version reads up to {number - 1}: upgrade Holdfast{rest}"
    )


# -- runs that would continue with another meaning -------------------------------------------------------------------
PARTICIPATION = "participation added one client to a round in which nobody was drawn, rather than drawing again"
LATEST = "latest counted clients without samples"


def refusal(folder: Path, before: str) -> str:
    return (
        f"the run in {folder} was started by an earlier version, in which {before}: start over with --overwrite, or "
        "finish it with that version"
    )


def aged(folder: Path, version: int = 2) -> None:
    """Write the config of a run as an earlier version did."""
    path = folder / "config.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("format = ", "checksum = "))]
    text = "\n".join([f"format = {version}"] * (version > 1) + lines) + "\n"
    path.write_text(text + (f'checksum = "{checksum(text)}"\n' if version >= CHECKSUM_SINCE else ""))


def participating(folder: Path, version: int) -> Path:
    """Change the run in a folder so that chance decides who takes part."""
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("cohort = 3", "participation = 0.5"))
    aged(folder, version)
    return folder


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_run_with_participation_is_refused(version: int, tmp_path: Path):
    folder = participating(copied("scaffold", tmp_path), version)
    for more in ({}, {"rounds": 9}):
        with pytest.raises(HoldfastError) as error:
            holdfast.run(out=folder, resume=True, **more)
        assert str(error.value) == refusal(folder, PARTICIPATION)
    assert call("run", "--resume", "--out", str(folder)).code == 2


@pytest.mark.parametrize("version", [3, 4])
def test_a_run_of_today_with_participation_resumes(version: int, tmp_path: Path):
    folder = participating(copied("scaffold", tmp_path), version)
    assert len(holdfast.run(out=folder, resume=True).history) == 6


def test_an_old_run_without_a_round_starts_with_the_meaning_of_today(tmp_path: Path):
    folder = participating(copied("scaffold", tmp_path), 2)
    shutil.rmtree(folder / "checkpoint")
    (folder / "history.jsonl").write_text("")
    assert len(holdfast.run(out=folder, resume=True).history) == 6


def test_a_finished_old_run_can_be_read_but_not_extended(tmp_path: Path):
    folder = tmp_path / "run"
    first = holdfast.run(out=folder, participation=0.5, clients=6, rounds=2, epochs=1, model="linear")
    aged(folder)
    assert torch.equal(holdfast.run(out=folder, resume=True).w, first.w)
    with pytest.raises(HoldfastError) as error:
        holdfast.run(out=folder, resume=True, rounds=3)
    assert str(error.value) == refusal(folder, PARTICIPATION)


@pytest.mark.parametrize(("clients", "split", "empty"), [(6, "iid", False), (6, "dirichlet(0.01)", True)])
def test_an_old_run_with_latest_is_refused_if_a_client_is_empty(clients: int, split: str, empty: bool, tmp_path: Path):
    settings = {"clients": clients, "split": split, "cohort": 2, "rounds": 4, "epochs": 1, "model": "linear"}
    folder = tmp_path / "stopped"
    counter = iter(range(4))
    holdfast.run("latest", out=folder, stop=lambda: next(counter) == 1, **settings)
    counts = json.loads((folder / "split.json").read_text())["counts"]
    assert (min(map(sum, counts)) == 0) == empty
    aged(folder)
    if empty:
        with pytest.raises(HoldfastError) as error:
            holdfast.run(out=folder, resume=True)
        assert str(error.value) == refusal(folder, LATEST)
    else:
        assert torch.equal(holdfast.run(out=folder, resume=True).w, holdfast.run("latest", **settings).w)


@pytest.mark.parametrize(("method", "changed"), [("nova", False), ("nova+fedbug", True), ("fedagg+nova", True)])
def test_an_old_run_with_nova_is_refused_if_rates_were_rescaled(method: str, changed: bool, tmp_path: Path):
    settings = {"clients": 6, "cohort": 2, "rounds": 3, "epochs": 1, "model": "linear"}
    folder, counter = tmp_path / "stopped", iter(range(3))
    holdfast.run(method, out=folder, stop=lambda: next(counter) == 1, **settings)
    aged(folder, 3)
    if changed:
        with pytest.raises(HoldfastError) as error:
            holdfast.run(out=folder, resume=True)
        assert str(error.value) == refusal(folder, "nova counted local steps, whatever their rates")
    else:
        assert torch.equal(holdfast.run(out=folder, resume=True).w, holdfast.run(method, **settings).w)


def test_a_folder_that_does_not_say_who_is_empty_is_refused(tmp_path: Path):
    folder = copied("scaffold", tmp_path)
    path = folder / "config.toml"
    path.write_text(path.read_text().replace('"scaffold"', '"scaffold+latest"'))
    (folder / "split.json").unlink()
    with pytest.raises(HoldfastError) as error:
        holdfast.run(out=folder, resume=True)
    assert str(error.value) == refusal(folder, LATEST)


def test_a_deployment_refuses_an_old_run_before_it_starts_anything(tmp_path: Path):
    folder = participating(copied("scaffold", tmp_path), 2)
    found = call("deploy", "local", "--resume", "--out", str(folder))
    assert found.code == 2
    assert refusal(folder, PARTICIPATION) in " ".join(found.err.split())


def test_a_comparison_does_not_add_to_runs_of_another_meaning(tmp_path: Path):
    """Finished runs count too, since new ones are compared with them; what is there can still be reported."""
    folder = tmp_path / "comparison"
    settings = {"participation": 0.5, "clients": 6, "rounds": 2, "epochs": 1, "model": "linear", "seeds": 1}
    holdfast.compare(["fedavg", "scaffold"], out=folder, **settings)
    done = folder / "fedavg" / "seed-0"
    aged(done)
    holdfast.compare(["fedavg", "scaffold"], out=folder, **settings)
    plan = (folder / "plan.json").read_bytes()
    with pytest.raises(HoldfastError) as error:
        holdfast.compare(["fedavg", "scaffold"], out=folder, **settings | {"seeds": 2})
    assert (folder / "plan.json").read_bytes() == plan
    assert str(error.value) == (
        f"the run in {done} is from an earlier version, in which {PARTICIPATION}: choose another --out, or finish with "
        "that version"
    )
    assert call("report", str(folder)).code == 0

"""The trackers: what they kept is what the history says, after a stop and a resumption, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast
from helpers.commands import TINY, call, good, lines
from helpers.exact_errors import raises_exactly
from holdfast.runs.trackers import FIGURES, figures
from holdfast.training.round_record import RoundRecord

TRACKERS = ("tensorboard", "mlflow")
SMALL = {"epochs": 1, "cohort": 3, "drift": True, "model": "linear"}
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # in MLflow itself


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def tensorboard(folder: Path) -> dict[str, dict[int, float]]:
    """What TensorBoard would show: figure -> round -> value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    read = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    for tag, rows in read.items():
        assert len({e.step for e in rows}) == len(rows), tag
    return {tag: {e.step: e.value for e in rows} for tag, rows in read.items()}


def mlflow_run(folder: Path, uri: str | None = None) -> tuple[Any, Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri or f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("holdfast").experiment_id])
    return client, found


def mlflow(folder: Path, uri: str | None = None) -> dict[str, dict[int, float]]:
    client, found = mlflow_run(folder, uri)
    history = {name: client.get_metric_history(found.info.run_id, name) for name in found.data.metrics}
    return {name: {m.step: m.value for m in rows} for name, rows in history.items()}


READ = {"tensorboard": tensorboard, "mlflow": mlflow}


def same(folder: Path, name: str) -> bool:
    """Whether the tracker has what the history has; TensorBoard rounds to fp32."""
    found, wanted = READ[name](folder), expected(folder)
    assert found.keys() == wanted.keys()
    return all(found[k] == pytest.approx(wanted[k], rel=1e-6 if name == "tensorboard" else 0) for k in wanted)


def ended(folder: Path, name: str) -> tuple[str, ...]:
    """Of an MLflow run its id, its name, two settings, and how it ended."""
    if name == "tensorboard":
        return ()
    _, run = mlflow_run(folder)
    return run.info.run_id, run.info.run_name, run.data.params["method"], run.data.params["rounds"], run.info.status


def expected(folder: Path) -> dict[str, dict[int, float]]:
    """The same from ``history.jsonl``."""
    found: dict[str, dict[int, float]] = {}
    for line in lines(folder):
        flat = {name: line[name] for name in FIGURES} | {f"drift/{k}": v for k, v in line["drift"].items()}
        flat |= {f"test_{name}": value for name, value in line["test"].items()}
        for name, value in flat.items():
            if value is not None:
                found.setdefault(name, {})[line["round"]] = value
    return found


@pytest.mark.parametrize("name", TRACKERS)
def test_the_tracker_has_what_the_history_has(tmp_path: Path, name: str) -> None:
    holdfast.run("fedbug(0.4)", out=tmp_path / "a", rounds=5, eval_every=2, track=name, **SMALL)
    assert same(tmp_path / "a", name)
    found = READ[name](tmp_path / "a")
    assert set(found["test_accuracy"]) == {2, 4, 5}
    assert set(found["train_loss"]) == {1, 2, 3, 4, 5}
    assert "drift/cosine" in found


@pytest.mark.parametrize("name", TRACKERS)
def test_a_resumed_run_goes_on_in_the_same_place(tmp_path: Path, name: str) -> None:
    plain = holdfast.run("fedbug(0.4)", rounds=5, **SMALL)

    def fall(record: RoundRecord) -> None:
        if record.round == 3:
            raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        holdfast.run(
            "fedbug(0.4)", out=tmp_path / "a", rounds=5, checkpoint_every=2, track=name, on_round=fall, **SMALL
        )
    before = ended(tmp_path / "a", name)
    resumed = holdfast.run(out=tmp_path / "a", resume=True)  # from round 2; round 3 was logged before
    assert [r.test_accuracy for r in resumed.history] == [r.test_accuracy for r in plain.history]
    assert same(tmp_path / "a", name)
    if name == "mlflow":
        assert before == (*ended(tmp_path / "a", name)[:-1], "KILLED")
        assert before[1:4] == ("a", "fedbug(0.4)", "5")
        assert ended(tmp_path / "a", name)[-1] == "FINISHED"
    again = holdfast.run(out=tmp_path / "a", resume=True)  # nothing to do
    assert len(again.history) == 5
    assert same(tmp_path / "a", name)


def test_the_users_own_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path / 'mine.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    holdfast.run("fedavg", out=tmp_path / "a", rounds=2, track="mlflow", **SMALL)
    assert not (tmp_path / "a" / "mlflow" / "mlflow.db").exists()
    assert mlflow(tmp_path / "a", uri) == expected(tmp_path / "a")


def test_tracking_may_begin_and_end(tmp_path: Path) -> None:
    out = tmp_path / "a"
    holdfast.run("fedavg", out=out, rounds=2, **SMALL)
    holdfast.run(out=out, rounds=4, track="tensorboard", resume=True)
    holdfast.run(out=out, rounds=5, track=None, resume=True)
    assert set(tensorboard(out)["train_loss"]) == {3, 4}
    assert len(lines(out)) == 5


def test_an_overwritten_run_leaves_nothing(tmp_path: Path) -> None:
    for rounds in (3, 2):
        good(
            "run", *TINY, "--rounds", str(rounds), "--track", "tensorboard", "--out", str(tmp_path / "a"), "--overwrite"
        )
    assert same(tmp_path / "a", "tensorboard")


def test_figures_of_a_round_without_evaluation() -> None:
    record = RoundRecord(3, 0.5, 0.1, 10, 20, [0], drift={"cosine": 0.25})
    assert figures(record) == {
        "train_loss": 0.5, "seconds": 0.1, "upload_bytes": 10, "download_bytes": 20, "drift/cosine": 0.25,
    }  # fmt: skip


def test_what_cannot_be_tracked_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_exactly("track=mlflow needs the folder of the run: set out"):
        holdfast.run("fedavg", track="mlflow")
    said = call("run", *TINY, "--track", "paper", "--out", str(tmp_path / "a"))
    assert said.code == 2
    assert said.err == "holdfast: track must be one of tensorboard, mlflow, wandb, not paper\n"
    monkeypatch.setattr("holdfast.runs.trackers.find_spec", lambda name: None)
    for name in (*TRACKERS, "wandb"):
        said = call("run", *TINY, "--track", name, "--out", str(tmp_path / "a"))
        assert said.code == 2
        assert said.out == ""
        assert said.err == f"holdfast: --track {name} needs the package {name}: pip install 'holdfast[{name}]'\n"
    assert not (tmp_path / "a").exists()


def test_nothing_else_changes(tmp_path: Path) -> None:
    tracked = holdfast.run("fedavg", out=tmp_path / "a", rounds=2, track="tensorboard", **SMALL)
    plain = holdfast.run("fedavg", rounds=2, **SMALL)
    assert [r.test_loss for r in tracked.history] == [r.test_loss for r in plain.history]
    assert tracked.summary["final"] == plain.summary["final"]


def test_a_store_that_refuses_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'old'}")  # MLflow gave such stores up
    said = call("run", *TINY, "--track", "mlflow", "--out", str(tmp_path / "a"))
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"holdfast: MLflow at file://{tmp_path / 'old'} failed: ")
    assert said.err.endswith("; fix it, or resume without tracking: --resume --set track=none\n")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    good("run", "--resume", "--set", "track=none", "--out", str(tmp_path / "a"), "--quiet")
    assert len(lines(tmp_path / "a")) == 2


# -- W&B, offline --------------------
def offline(folder: Path) -> list[tuple[Any, dict[str, dict[int, float]]]]:
    """What each start of a run has kept for W&B, the oldest first: the run, and figure -> round -> value."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    found = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime):
        store, run, figures = DataStore(), None, dict[str, dict[int, float]]()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                run = record.run
            for item in record.history.item:
                name = item.key or "/".join(item.nested_key)
                if not name.startswith("_"):
                    figures.setdefault(name, {})[record.history.step.num] = json.loads(item.value_json)
        store.close()
        found.append((run, figures))
    return found


def test_wandb_has_what_the_history_has_also_after_a_stop(tmp_path: Path) -> None:
    good("run", "scaffold", *TINY, "--drift", "--track", "wandb", "--out", str(tmp_path / "a"))
    good("run", "--resume", "--out", str(tmp_path / "a"), "--rounds", "3", "--quiet")
    (first, early), (second, late) = offline(tmp_path / "a")
    merged = {name: early.get(name, {}) | late.get(name, {}) for name in early | late}
    assert merged == expected(tmp_path / "a")
    assert first.run_id == second.run_id
    assert (first.display_name, first.project, first.run_group) == ("a", "holdfast", "")
    assert {c.key: json.loads(c.value_json) for c in first.config.update}["method"] == "scaffold"


def test_a_comparison_is_a_group(tmp_path: Path) -> None:
    words = ("fedavg", *TINY, "--sweep", "lr=0.1,0.2", "--seeds", "1", "--rounds", "1", "--track")
    good("compare", *words, "wandb", "--out", str(tmp_path / "study"))
    (one,), (two,) = (offline(path.parent) for path in sorted((tmp_path / "study").rglob("config.toml")))
    assert [run.run_group for run, _ in (one, two)] == ["study", "study"]
    entries = sorted(path.name for path in (tmp_path / "study").iterdir() if path.is_dir())
    assert [run.job_type for run, _ in (one, two)] == entries
    assert [list(run.tags) for run, _ in (one, two)] == [[entry] for entry in entries]


def test_a_comparison_is_a_tag_in_mlflow(tmp_path: Path) -> None:
    run = tmp_path / "study" / "fedavg" / "seed-3"
    holdfast.run("fedavg", out=run, rounds=1, track="mlflow", **SMALL)
    tags = mlflow_run(run)[1].data.tags
    assert (tags["comparison"], tags["entry"]) == ("study", "fedavg")


def test_a_run_that_wandb_kept_can_be_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        good("run", *TINY, "--track", "wandb", "--out", str(tmp_path / "a"), "--overwrite")
    assert len(offline(tmp_path / "a")) == 1


def test_wandb_that_refuses_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def refuse(**_: object) -> None:
        raise wandb.errors.UsageError("No API key.\nLog in. And so on")

    monkeypatch.setattr(wandb, "init", refuse)
    said = call("run", *TINY, "--track", "wandb", "--out", str(tmp_path / "a"))
    assert (said.code, said.err) == (
        2,
        "holdfast: wandb failed: No API key; fix it, set WANDB_MODE=offline, or resume without tracking: --resume "
        "--set track=none\n",
    )

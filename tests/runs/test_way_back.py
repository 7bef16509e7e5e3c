"""A way back: the best checkpoint by validation data stays, and unusual rounds are named."""

from __future__ import annotations

import os
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import holdfast
from helpers.commands import good
from helpers.exact_errors import raises_exactly
from helpers.toys import mlp, ragged
from holdfast.comparison.single_run import study_of_run
from holdfast.core import files
from holdfast.runs import checkpoint
from holdfast.runs.early_stopping import best_round, scores
from holdfast.runs.history import read_history
from holdfast.runs.run_progress import RunProgress
from holdfast.training.round_record import RoundRecord
from holdfast.training.update_lengths import far_from_median

SETTINGS: dict[str, Any] = {
    "data": "digits", "model": "linear", "clients": 4, "cohort": 3, "steps": 2, "batch": 16, "validation": 0.2,
    "device": "cpu", "lr": 20.0,
}  # fmt: skip


def best_of(history: list[RoundRecord]) -> int:
    from holdfast.metrics.metric_names import metric_named

    found = best_round(scores(history, "accuracy", "validation"), metric_named("accuracy"))
    assert found is not None
    return found


@pytest.mark.parametrize("every", [1, 3])
def test_the_model_of_the_best_round_stays(tmp_path: Path, every: int):
    served: dict[int, torch.Tensor] = {}
    trainers: list[Any] = []
    result = holdfast.run(
        "scaffold", out=tmp_path, rounds=9, checkpoint_every=every,
        on_start=lambda trainer, done: trainers.append(trainer),
        on_round=lambda record: served.update({record.round: trainers[0].server.served().clone()}), **SETTINGS,
    )  # fmt: skip
    best = best_of(result.history)
    assert best < 8, "a seed in which it is neither of the two newest"
    loaded = holdfast.load_run(tmp_path, best=True)
    assert loaded.w.equal(served[best])
    assert holdfast.load_run(tmp_path).w.equal(served[9])
    assert loaded.score is not None
    assert loaded.score.values["accuracy"] == result.history[best - 1].test["accuracy"]
    rounds = sorted(int(path.stem.split("-")[1]) for path in (tmp_path / "checkpoint").glob("round-*.json"))
    assert rounds[0] == best
    assert len(rounds) == checkpoint.KEEP + 1
    named = {n for m in checkpoint.readable(tmp_path / "checkpoint") for n in (*m.server, *m.clients)}
    assert named == {path.name for path in (tmp_path / "checkpoint").glob("*.safetensors")}


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("places", [range(6, 18), range(18, 40, 2)], ids=["early", "late"])
def test_the_best_checkpoint_survives_a_kill_at_any_moment(tmp_path: Path, monkeypatch, places: range):
    replace, settings = os.replace, SETTINGS | {"rounds": 7}
    whole = holdfast.run("fedavg", out=tmp_path / "whole", **settings)
    for place in places:
        out, count = tmp_path / f"at-{place}", iter(range(10_000))

        def dying(*args: Any, count=count, place=place) -> None:
            if next(count) >= place:
                raise Killed
            replace(*args)

        monkeypatch.setattr(files.os, "replace", dying)
        with suppress(Killed):
            holdfast.run("fedavg", out=out, **settings)
        monkeypatch.setattr(files.os, "replace", replace)
        newest = checkpoint.newest(out / "checkpoint")
        if newest is None:
            continue
        best = best_of(read_history(out / "history.jsonl", newest.round))
        assert (out / "checkpoint" / checkpoint.manifest_name(best)).exists(), place
        assert holdfast.load_run(out, best=True).w.isfinite().all()
        rest = holdfast.run("fedavg", out=out, resume=True)
        assert rest.w.equal(whole.w)
        assert holdfast.load_run(out, best=True).w.equal(holdfast.load_run(tmp_path / "whole", best=True).w)


def test_predict_and_export_can_use_the_best_model(tmp_path: Path):
    import numpy as np

    flags = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    good("run", "fedavg", *flags, "--rounds", "4", "--out", str(tmp_path / "run"), "--quiet")
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 8, 8), np.float32))
    for more, name in (((), "newest"), (("--best",), "best")):
        good("predict", str(tmp_path / "run"), "--data", str(tmp_path / "x.npy"), "--out", str(tmp_path / name), *more)
    x = np.zeros((2, 1, 8, 8), np.float32)
    expected = holdfast.load_run(tmp_path / "run", best=True).predict_proba(x)[0]
    found = (tmp_path / "best").read_text().splitlines()[1].split(",")[2:]
    assert [float(p) for p in found] == pytest.approx(expected, abs=1e-6)


def test_without_validation_no_round_is_the_best(tmp_path: Path):
    holdfast.run("fedavg", out=tmp_path, rounds=2, **SETTINGS | {"validation": 0.0})
    with raises_exactly(
        f"the run in {tmp_path} has no validation scores, by which a round would be the best: run it with "
        "--validation 0.1"
    ):
        holdfast.load_run(tmp_path, best=True)


def test_the_checkpoint_of_the_best_round_may_be_lost(tmp_path: Path):
    result = holdfast.run("scaffold", out=tmp_path, rounds=9, **SETTINGS)
    best = best_of(result.history)
    (tmp_path / "checkpoint" / checkpoint.manifest_name(best)).unlink()
    with raises_exactly(
        f"the run in {tmp_path} has no checkpoint of its best round, {best}: leave out best, or run it again"
    ):
        holdfast.load_run(tmp_path, best=True)


# -- unusual rounds --------------------
def test_an_update_far_from_the_median_s_is_recorded(tmp_path: Path):
    settings = {"precision": "fp64", "cohort": 4, "rounds": 2, "attack": "scaled(0.25, factor=-50)", "out": tmp_path}
    result = holdfast.run("median", ragged(), mlp(), **settings)
    for record in result.history:
        ((liar, times),) = record.far.items()
        assert 10 < times < 500
    assert result.summary["far_updates"] == 2
    (sentence,) = study_of_run(tmp_path).split.left_out or []
    assert sentence == f"The update of client {liar} was far longer than the median's in 2 rounds."
    honest = holdfast.run("median", ragged(), mlp(), **settings | {"attack": None, "out": None})
    assert [r.far for r in honest.history] == [{}, {}]


def test_a_median_needs_three_clients_and_a_length():
    ids = torch.tensor([3, 5, 8])
    assert far_from_median(ids, torch.tensor([[1.0], [-20.0], [1.0]])) == {5: 20.0}
    assert far_from_median(ids[:2], torch.tensor([[1.0], [-20.0]])) == {}
    assert far_from_median(ids, torch.tensor([[0.0], [0.0], [1.0]])) == {}


def test_progress_says_what_is_unusual():
    shown, text = RunProgress("fedavg"), StringIO()
    shown.console = Console(file=text, width=200)
    for round, loss in enumerate((2.0, 1.0, 1.0, 4.5), start=1):
        far = {3: 120.0} if round == 2 else {}
        shown.round(RoundRecord(round, loss, 0.1, 0, 0, [1, 2, 3], far=far))
    assert text.getvalue().splitlines() == [
        "round 2: the update of client 3 is 120 times as long as the median",
        "round 4: the training loss jumped to 4.5 times its usual value",
    ]

"""Comparisons that the last release left: folders and results of format 1 are read, renamed and finished."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast
from helpers.commands import good
from helpers.comparisons import stamps
from helpers.places import ROOT
from helpers.studies import study, typed, write
from holdfast.comparison.compare import tabulate
from holdfast.comparison.old_formats import modern_study
from holdfast.comparison.study_folder import StudyFolder
from holdfast.core.errors import HoldfastError
from holdfast.core.typed_json import to_json

OLD = ROOT / "tests/runs/format1"
METHODS = ["fedavg", "fedcm", "fedcm(0.2)", "scaffold"]
# Those of the run that was stopped.
SETTINGS: dict[str, Any] = {
    "model": "linear", "clients": 6, "cohort": 3, "rounds": 6, "steps": 3, "batch": 16, "lr": 0.1, "precision": "fp64",
    "engine": "loop", "device": "cpu", "split": "dirichlet(0.5)", "seeds": 2,
}  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A comparison that was stopped in the third of its eight runs, with momentum(0.2)."""
    return shutil.copytree(OLD / "comparison", tmp_path / "comparison")


def folders(path: Path) -> list[str]:
    return sorted(p.parent.name for p in path.glob("*/seed-0"))


def test_an_old_comparison_resumes_where_it_stopped(old: Path) -> None:
    finished = {k: v for k, v in stamps(old).items() if Path(k).parent.parent.name in ("fedavg", "fedcm")}
    result = holdfast.compare(METHODS, out=old, **SETTINGS)
    assert result.finished
    assert {k: stamps(old)[k] for k in finished} == finished, "finished runs are not repeated"
    ends = json.loads((OLD / "ends.json").read_text())["comparison"]
    for entry, want in zip(result.entries, ends.values(), strict=True):
        assert entry["scores"]["final"]["values"] == pytest.approx(want, abs=1e-9)
    assert [e["label"] for e in result.entries] == METHODS
    assert folders(old) == ["fedavg", "fedcm", "fedcm-0.2", "scaffold"]


def test_opening_an_old_folder_brings_it_up_to_date(old: Path) -> None:
    before = json.loads((old / "plan.json").read_text())
    assert "format" not in before
    plan = StudyFolder(old).plan()
    assert [text for text, _ in plan.methods] == METHODS
    assert folders(old) == ["fedavg", "fedcm", "fedcm-0.2"]
    after = json.loads((old / "plan.json").read_text())
    measured = {"metric": "accuracy", "higher_is_better": True, "percent": True, "task": "classification"}
    how = before["how"] | {"executor": "process"}
    assert after == before | {"format": 3, "methods": METHODS, "measured": measured, "how": how}
    written = (old / "plan.json").stat().st_mtime_ns
    StudyFolder(old).stored()
    assert (old / "plan.json").stat().st_mtime_ns == written, "once is enough"


def test_an_interrupted_update_is_finished(old: Path) -> None:
    (old / "momentum-0.2").rename(old / "fedcm-0.2")  # and then it was killed
    assert StudyFolder(old).stored().methods == METHODS
    assert folders(old) == ["fedavg", "fedcm", "fedcm-0.2"]


def test_no_folder_is_replaced_by_the_update(old: Path) -> None:
    (old / "fedcm-0.2").mkdir()
    with pytest.raises(HoldfastError) as error:
        StudyFolder(old).stored()
    assert str(error.value) == (
        f"{old}/momentum-0.2 is now called fedcm-0.2, which exists too: move one of them away"
    )  # fmt: skip
    assert "format" not in json.loads((old / "plan.json").read_text())


def test_the_report_of_an_old_comparison(old: Path) -> None:
    page = good("report", str(old)).out
    text = (old / "report.html").read_text(encoding="utf-8")
    assert "report.html" in page
    assert "fedcm(0.2)" in text
    assert "momentum" not in text.partition("<script>")[0]


def test_an_old_name_has_its_new_meaning_in_a_new_command(old: Path) -> None:
    """The folder holds fedcm(0.2), which was called momentum(0.2). Today this is the local optimiser."""
    result = holdfast.compare([*METHODS, "momentum(0.2)"], out=old, **SETTINGS)
    assert [e["method"] for e in result.entries] == [*METHODS, "momentum(0.2)"]
    assert folders(old) == ["fedavg", "fedcm", "fedcm-0.2", "momentum-0.2", "scaffold"]
    by_name = {e["method"]: e["scores"]["final"]["values"] for e in result.entries}
    alone = holdfast.run("momentum(0.2)", **{k: v for k, v in SETTINGS.items() if k != "seeds"})
    assert by_name["momentum(0.2)"][0] == alone.history[-1].test_accuracy
    assert by_name["momentum(0.2)"] != by_name["fedcm(0.2)"]


def old_study() -> dict[str, Any]:
    """A result of format 1 with a sweep."""
    made = study(("momentum(0.2)", "momentum+clip(5)", "sam(0.1)"), seeds=2, rounds=2, drift=False)
    folders = ("momentum-0.2-lr-0.1", "momentum-clip-5-lr-0.1", "sam-0.1-lr-0.1")
    for e, folder in zip(made["entries"], folders, strict=True):
        e |= {"label": f"{e['method']}, lr=0.1", "settings": {"lr": 0.1}}
        e["runs"] = [f"{folder}/seed-{s}" for s in range(2)]
        if e["difference"]:
            e["difference"]["to"] = "momentum(0.2), lr=0.1"
    return made | {
        "format": 1,
        "sweep": {"lr": [0.1]},
        "command": "holdfast compare 'momentum(0.2)' 'momentum+clip(5)' 'sam(0.1)' --sweep lr=0.1 --out my-momentum",
        "best_points": {e["method"]: e["label"] for e in made["entries"]},
    }


def test_an_old_result_is_read_with_todays_names(tmp_path: Path) -> None:
    found = StudyFolder(write(tmp_path, old_study())).result()
    assert found.format == 3
    assert found.methods == ["fedcm(0.2)", "fedcm+clip(5)", "sam(0.1)"]
    assert [e.label for e in found.entries] == ["fedcm(0.2), lr=0.1", "fedcm+clip(5), lr=0.1", "sam(0.1), lr=0.1"]
    assert [e.runs[1] for e in found.entries] == [
        "fedcm-0.2-lr-0.1/seed-1", "fedcm-clip-5-lr-0.1/seed-1", "sam-0.1-lr-0.1/seed-1"
    ]  # fmt: skip
    assert [e.difference and e.difference.to for e in found.entries] == [None, *["fedcm(0.2), lr=0.1"] * 2]
    assert found.best_points == {e.method: e.label for e in found.entries}
    assert found.command == (
        "holdfast compare 'fedcm(0.2)' 'fedcm+clip(5)' 'sam(0.1)' --sweep lr=0.1 --out my-momentum"
    )
    assert "momentum" not in json.dumps(to_json(found)).replace("my-momentum", "")


def test_a_result_without_old_names_only_gets_a_new_number() -> None:
    for old in (1, 2):
        made = typed(study(seeds=1, rounds=2, drift=False, format=old))
        assert to_json(modern_study(made)) == to_json(made) | {"format": 3}


def test_a_result_that_knows_accuracy_alone(tmp_path: Path) -> None:
    """Formats 1 and 2 have other keys; in format 2 part names mean what they mean today."""
    made = study(("momentum(0.2)", "fedavg"), seeds=1, rounds=2, drift=False)
    before = json.loads(json.dumps(made)) | {"format": 2}
    for e in before["entries"]:
        e["accuracy"] = e.pop("scores")
        e["curves"]["test_accuracy"] = e["curves"].pop("test")
    found = StudyFolder(write(tmp_path, before)).result()
    assert found == typed(made)
    assert found.methods == ["momentum(0.2)", "fedavg"]
    assert (found.metric, found.higher_is_better, found.percent, found.chosen_on) == ("accuracy", True, True, "test")


def test_a_plan_of_format_2_is_read_and_left_as_it_is(old: Path) -> None:
    holdfast.compare(METHODS, out=old, **SETTINGS)
    plan = json.loads((old / "plan.json").read_text()) | {"format": 2}
    del plan["measured"]
    (old / "plan.json").write_text(json.dumps(plan))
    assert StudyFolder(old).stored().facts.measured.metric == "accuracy"
    assert json.loads((old / "plan.json").read_text()) == plan


def test_the_tables_of_an_old_comparison(old: Path) -> None:
    holdfast.compare(METHODS, out=old, **SETTINGS)
    record = json.loads((old / "compare.json").read_text())
    assert record["format"] == 3
    tables = (old / "compare.md").read_text()
    assert tabulate(old).record == record
    assert (old / "compare.md").read_text() == tables

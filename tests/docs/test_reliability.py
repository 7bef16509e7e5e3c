"""The campaign that tries to break the library works, and notices what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands import TINY, good
from helpers.places import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the campaign forks")


def test_a_campaign_with_one_case_per_part_has_no_findings(tmp_path: Path):
    page = tmp_path / "page.md"
    ended = subprocess.run(
        [sys.executable, "-m", "campaign", "--most", "1", "--seed", "3", "--out", str(page)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert len([line for line in lines if ": 1 cases" in line]) == 9
    assert lines[-1] == "| together | 9 | | 0 |"
    text = page.read_text(encoding="utf-8")
    assert "\nNo findings.\n" in text
    stored = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert text.partition("## Last result")[0] == stored.partition("## Last result")[0]


def test_another_number_in_a_history_or_a_summary_is_noticed(tmp_path: Path):
    from campaign.cases import difference

    whole, other = tmp_path / "whole", tmp_path / "other"
    good("run", "fedavg", *TINY, "--out", str(whole))
    shutil.copytree(whole, other)
    change(other / "history.jsonl", '"seconds": ', '"seconds": 1')
    assert difference(other, whole) == ""
    change(other / "summary.json", '"upload_bytes": ', '"upload_bytes": 1')
    assert difference(other, whole) == "another summary in ."
    change(other / "history.jsonl", '"upload_bytes": ', '"upload_bytes": 1')
    assert difference(other, whole) == "another history in ."
    shutil.rmtree(other)
    assert difference(other, whole) == "other runs: [], not ['.']"


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("code", "err", "refused"),
    [
        (2, "holdfast: no\n", True),
        (1, "holdfast: no\n", False),
        (2, "holdfast: no\nand more\n", False),
        (2, "Traceback\n", False),
        (2, "", False),
    ],
)
def test_only_one_line_with_exit_code_2_is_a_refusal(code: int, err: str, refused: bool):
    from campaign.process import Ended

    assert Ended(code, err).refused is refused


@pytest.mark.parametrize(
    "kind", ["a flipped bit", "another digit", "cut in half", "emptied", "deleted", "a folder in its place"]
)
def test_each_kind_of_damage_changes_the_file(tmp_path: Path, kind: str):
    import random

    from campaign.damage import KINDS, damage

    path, data = tmp_path / "file.json", json.dumps({"round": 1}).encode()
    path.write_bytes(data)
    damage(random.Random(0), path, kind)
    assert kind in KINDS
    assert not path.is_file() or path.read_bytes() != data
    assert path.exists() == (kind != "deleted")

"""A small race, run once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.small_race import small_race
from holdfast.advice.advise import Advice


@pytest.fixture(autouse=True)
def own_experience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Past races are kept in a file of the test."""
    path = tmp_path / "past" / "experience.json"
    monkeypatch.setenv("HOLDFAST_EXPERIENCE", str(path))
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    """A finished race."""
    return small_race(tmp_path_factory.mktemp("race") / "finished")

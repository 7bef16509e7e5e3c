"""The small paper in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.toy_paper import TOY


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "data"))
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "toy.toml").write_text(TOY)
    return folder

"""The lists of data sets and networks in a terminal of 80 columns: no name, path or number is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.commands import good
from holdfast.data.loading import listing


def shown(*words: str) -> str:
    text = good(*words).out
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    return text


@pytest.mark.usefixtures("elsewhere")
def test_data_sets_with_what_is_missing_below_the_data_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    root, text = Path("data"), shown("data", "list", "--data-dir", "data")
    assert text.startswith("data folder: data\n")
    words = text.split()
    for status in listing(root):
        assert status.name in words
        assert status.present or str(status.folder.relative_to(root)) in words
        assert {name.rstrip(",") for name in status.missing[:2]} <= {word.rstrip(",") for word in words}


def test_networks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    blocks = {"layer": 100, "stage": 3, "block": 48}
    row = {
        "name": "mnist-example-cnn",
        "parameters": 21_289_802,
        "mflop": 3043.5,
        "blocks": blocks,
        "text": "One. " * 9,
    }
    monkeypatch.setattr("holdfast.cli.models.describe_networks", lambda shape, classes: [row])
    words = shown("models").split()
    assert {"mnist-example-cnn", "21,289,802", "3,043.5"} <= set(words)
    assert words.count("One.") == 9

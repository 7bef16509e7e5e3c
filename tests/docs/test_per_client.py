"""The lines of Python on the page about scores by client run as they stand there."""

from __future__ import annotations

import re

import pytest

from helpers.places import ROOT


def test_the_lines_run(capsys: pytest.CaptureFixture[str]):
    page = (ROOT / "docs" / "per_client.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(block, "per_client.md", "exec"), {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [words[0] for words in printed] == ["0", "1", "2", "3", "4"]
    assert all(0 <= float(score) <= 1 and int(samples) > 0 for _, score, samples in printed)

"""What the tables measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.toy_paper import rep
from holdfast.comparison.stored_run import StoredRun
from holdfast.core.errors import HoldfastError
from holdfast.reproduce.measure import PLAIN, REACHED, WORDS, Measure


@pytest.mark.parametrize(("text", "mean"), [("last2", 0.35), ("curve", 0.25), ("last9", 0.25)])
def test_means_over_rounds(text: str, mean: float) -> None:
    history = [{"test": {} if a is None else {"accuracy": a}} for a in (0.1, 0.2, None, 0.3, 0.4)]
    run = StoredRun(0, history, {}, "")
    assert Measure.parse(text, "here").value(run) == pytest.approx(mean)
    assert Measure.parse(text, "here").scaled(mean, "%") == pytest.approx(100 * mean)


def test_measures_are_described_in_words(toy: Path) -> None:
    for rounds, words in ("5", "mean accuracy of the last 5 rounds"), ("3", "mean accuracy over all rounds"):
        said = rep("--table", "1", "--rows", "1", "--set", f"rounds={rounds}", "--out", f"of-{rounds}")
        assert f"\nprogress: accuracy of the newest round; in the tables: {words}\n" in said.err
        for text in (said.out, said.err, Path(f"of-{rounds}/reproduce.md").read_text()):
            assert f"; measure: {words}" in text
        assert "last5" not in said.out + said.err
    rep("--table", "1", "--rows", "1", "--out", "here")
    said = rep("--table", "II", "--out", "here")
    assert "progress" not in said.err, "it shares its runs with table 1: none is left"
    to = "rounds to reach an accuracy of"
    assert f"; measure: {to} 99.9%, accuracy · 10⁴ per second, {to} 5%" in said.out
    assert f"  measure: {to} 99.9% [rounds]; split=iid\n" in rep("--list").out


def test_every_measure_has_words() -> None:
    for name in (*PLAIN, *REACHED):
        assert name in WORDS


def test_measures() -> None:
    assert Measure.parse("rounds_to(0.6)", "x") == Measure("rounds_to", 0.6)
    assert Measure.parse("drift.cosine", "x") == Measure("drift.cosine")
    for text in ("final(0.5)", "seconds_to", "drift.", "nothing", "rounds_to(x)"):
        with pytest.raises(HoldfastError, match="unknown measure"):
            Measure.parse(text, "x")
    assert [Measure(name).less_is_better for name in ("final", "kappa", "rounds_to", "seconds")] == [
        False,
        False,
        True,
        True,
    ]
    assert Measure("final").scaled(0.5, "%") == 50
    assert Measure("bytes").scaled(2e6, "MB") == 2

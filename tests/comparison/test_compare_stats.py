"""A comparison's statistics, against scipy and by hand."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from holdfast.comparison.stats import paired, reach, spread, usual_targets, verdict
from holdfast.comparison.study_schema import PairedDifference, Spread

seeds = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=9)


@given_by(seeds)
def test_the_paired_difference_is_that_of_scipy(pairs: list[tuple[float, float]]) -> None:
    a, b = ([p[i] for p in pairs] for i in (0, 1))
    gaps = [x - y for x, y in pairs]
    got = paired(a, b)
    assert got is not None
    assert got.mean == pytest.approx(statistics.fmean(gaps))
    assert got.n == len(pairs)
    assert got.low <= got.mean <= got.high
    if statistics.stdev(gaps) > 1e-6:  # scipy warns of equal differences
        test = scipy_stats.ttest_rel(a, b)
        interval = test.confidence_interval(0.95)
        assert got.p == pytest.approx(test.pvalue, rel=1e-6, abs=1e-12)
        assert (got.low, got.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


def test_a_difference_by_hand():
    """Differences 1, 2, 3: mean 2, deviation 1, standard error 1/sqrt(3), t(2) at 97.5% = 4.302653."""
    got = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    half = 4.302653 / math.sqrt(3)
    assert got is not None
    assert (got.mean, got.low, got.high) == pytest.approx((2, 2 - half, 2 + half), abs=1e-6)
    assert got.p == pytest.approx(0.0741799, abs=1e-6)  # 1 - t / sqrt(t^2 + 2) with t = 2 sqrt(3)
    assert verdict(got) == "no difference seen"


def test_equal_differences_leave_no_doubt():
    same = paired([0.5, 0.7], [0.5, 0.7])
    more = paired([0.75, 1.0], [0.5, 0.75])
    less = paired([0.5, 0.75], [0.75, 1.0])
    assert same == PairedDifference("final", "", mean=0, low=0, high=0, p=1.0, n=2)
    assert more == PairedDifference("final", "", mean=0.25, low=0.25, high=0.25, p=0.0, n=2)
    assert [verdict(d) for d in (same, more, less)] == ["no difference seen", "better", "worse"]


def test_one_seed_has_no_verdict_and_a_diverged_one_no_difference():
    one = paired([0.8], [0.7])
    assert one is not None
    assert (one.low, one.high, one.p, verdict(one)) == (None, None, None, "")
    assert paired([0.8, None], [0.7, 0.6]) is None
    assert verdict(None) == ""


def test_means_over_seeds():
    assert spread([0.2, 0.4, 0.9]) == Spread(0.5, pytest.approx(math.sqrt(0.13)), [0.2, 0.4, 0.9])
    assert spread([0.5]).std is None
    assert spread([0.5, None]) == Spread(None, None, [0.5, None])


def test_what_it_takes_to_reach_a_target():
    history = [
        {
            "round": t,
            "test": {} if a is None else {"accuracy": a},
            "seconds": 0.5,
            "upload_bytes": 3,
            "download_bytes": 4,
        }
        for t, a in enumerate([0.1, None, 0.7, 0.6, 0.9], start=1)
    ]
    assert reach(history, 0.7) == (3, 1.5, 21)
    assert reach(history, 0.05) == (1, 0.5, 7)
    assert reach(history, 0.95) == (None, None, None)
    assert usual_targets(0.8) == [0.4, 0.64, 0.76]
    assert usual_targets(None) == []

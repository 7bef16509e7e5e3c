"""Threads that take turns."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from holdfast.core.turns import TurnTaker


def test_only_one_runs_at_a_time_and_in_the_order_in_which_they_are_told_to():
    log: list[tuple[str, int]] = []

    def work(name: str):
        def run(ask) -> str:
            for i in range(3):
                log.append((name, i))
                assert ask(i) == 10 * i
            return name

        return run

    takers = [TurnTaker(work(name)) for name in "abc"]
    assert log == [], "nobody starts by itself"
    asked = [taker.go() for taker in takers]
    while any(a is not None for a in asked):
        asked = [taker.go(10 * a) for taker, a in zip(takers, asked, strict=True)]
    assert log == [(name, i) for i in range(3) for name in "abc"]
    assert [taker.result for taker in takers] == ["a", "b", "c"]
    assert [taker.error for taker in takers] == [None] * 3


def test_an_error_stays_with_its_work():
    def fails(ask) -> None:
        ask("what?")
        raise ValueError("no")

    taker = TurnTaker(fails)
    assert taker.go() == "what?"
    assert taker.go() is None
    assert isinstance(taker.error, ValueError)
    assert taker.result is None


def test_a_refusal_is_raised_where_the_question_was_asked():
    def asks(ask) -> str:
        with suppress(KeyError):
            ask("a")
        return ask("b")

    taker = TurnTaker(asks)
    assert (taker.go(), taker.go(refusal=KeyError("a")), taker.go("answer")) == ("a", "b", None)
    assert taker.result == "answer"


@pytest.mark.parametrize("questions", [0, 1])
def test_closing_unwinds_what_is_open(questions: int):
    closed: list[str] = []

    def work(ask) -> None:
        try:
            while True:
                ask("more?")
        finally:
            closed.append("closed")

    before = threading.active_count()
    taker = TurnTaker(work)
    for _ in range(questions):
        taker.go()
    taker.close()
    assert closed == ["closed"] * questions, "what has not begun need not end"
    assert threading.active_count() == before
    taker.close()

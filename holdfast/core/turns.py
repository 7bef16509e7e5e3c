"""Work in threads that take turns: only one of them runs at any time, and where they hand over is fixed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")


class TurnTaker(Generic[Question, Answer, Result]):
    """Work in a thread of its own that runs only while ``go`` waits for it.

    Args:
        work: What to do; it is given a function that asks a question and waits for the answer.

    Attributes:
        result: What the work returned; None before its end, and if it failed.
        error: How it failed, if it did.

    >>> taker = TurnTaker(lambda ask: ask("how many?") + ask("and?"))
    >>> taker.go(), taker.go(2), taker.go(3), taker.result
    ('how many?', 'and?', None, 5)
    """

    def __init__(self, work: Callable[[Callable[[Question], Answer]], Result]) -> None:
        self.result: Result | None = None
        self.error: BaseException | None = None
        self._work, self._cancelled = work, False
        self._question: Question | None = None
        self._answer: Answer | None = None
        self._refusal: BaseException | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the work has ended."""
        return not self._thread.is_alive()

    def go(self, answer: Answer | None = None, refusal: BaseException | None = None) -> Question | None:
        """Let the work run until it asks something, and return the question.

        Args:
            answer: The answer to its last question; the first time there is none.
            refusal: An error that it gets instead.

        Returns:
            The question; None if the work has ended.
        """
        self._answer, self._refusal, self._question = answer, refusal, None
        self._go.release()
        self._back.acquire()
        if self._question is None:
            self._thread.join()
        return self._question

    def close(self) -> None:
        """Interrupt the work at its next question, if it has not ended."""
        self._cancelled = True
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._cancelled:
                self.result = self._work(self._ask)
        except BaseException as error:
            self.error = error
        finally:
            self._question = None
            self._back.release()

    def _ask(self, question: Question) -> Answer:
        self._question = question
        self._back.release()
        self._go.acquire()
        if self._cancelled:
            raise KeyboardInterrupt
        if self._refusal is not None:
            raise self._refusal
        answer: Answer = self._answer  # type: ignore[assignment]
        return answer

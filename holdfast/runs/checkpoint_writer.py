"""Writes checkpoints in a thread while the next rounds are trained: one at a time, each whole before the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class CheckpointWriter:
    """Does one piece of writing at a time, beside the thread that gives it.

    Within ``with``; the end of the block waits until everything is written. What went wrong in the thread is raised in
    the thread that gave the work: with the next piece, or at the end. Nothing is written after an error.
    """

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.wait()
        except Exception:
            if kind is None:  # an error of the block itself goes first
                raise

    def keep(self, copy: Callable[[], T], write: Callable[[T], None]) -> None:
        """Copy a state, once the one before is written, and start to write it."""
        self.wait()
        copied = copy()
        self.start(lambda: write(copied))

    def start(self, work: Callable[[], None]) -> None:
        """Do a piece of writing in the thread."""
        self.thread = threading.Thread(target=self._carry_out, args=(work,), name="checkpoint", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """Raise what went wrong so far, without waiting."""
        if self.error is not None:
            raise self.error

    def wait(self) -> None:
        """Wait until everything is written, even if Ctrl-C comes meanwhile: nobody else may write until then."""
        pressed: KeyboardInterrupt | None = None
        while self.thread is not None:
            try:
                self.thread.join()
                self.thread = None
            except KeyboardInterrupt as error:
                pressed = error
        self.check()
        if pressed is not None:
            raise pressed

    def _carry_out(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.error = error

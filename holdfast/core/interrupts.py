"""Ctrl-C as a request: the first one asks to stop, the second one interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_interrupt(say: Callable[[str], object], message: str, last_words: str = "") -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C within this block into a request to stop; the second one raises KeyboardInterrupt.

    Args:
        say: Shows a line to the user.
        message: What happens now that a stop is requested, such as "stopping after this round".
        last_words: A line to show before a second Ctrl-C interrupts, such as how to resume.

    Returns:
        A function that tells whether a stop was requested.
    """
    requests: list[bool] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if requests:
            if last_words:
                say(last_words)
            raise KeyboardInterrupt
        requests.append(True)
        say(f"{message} (press Ctrl-C again to stop at once)")

    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(requests)
    finally:
        signal.signal(signal.SIGINT, before)

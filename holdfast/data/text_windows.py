"""Cut token numbers into samples: a window and the token after it, or the next token at every position."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from holdfast.tasks.next_token import NOTHING

Windows = tuple[np.ndarray, np.ndarray]  # inputs [n, length] and targets: [n], or [n, length]


def next_of_window(tokens: np.ndarray, length: int, stride: int) -> Windows:
    """Return every window of a text with the token after it; a text that is too short has none.

    Args:
        tokens: The text.
        length: The tokens of a window.
        stride: The distance between the starts of two windows.

    Returns:
        The windows [n, length], and the tokens after them [n].

    >>> x, y = next_of_window(np.array([1, 2, 3, 4]), 2, 1)
    >>> x.tolist(), y.tolist()
    ([[1, 2], [2, 3]], [3, 4])
    """
    if len(tokens) <= length:
        return np.empty((0, length), np.int64), np.empty(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::stride]
    return np.ascontiguousarray(windows[:, :-1]), windows[:, -1].copy()


def next_of_every_token(tokens: np.ndarray, length: int, stride: int) -> Windows:
    """Return the windows of a text with the next token at every position.

    The last window may be shorter: it is filled with token 0, where the target is -100, which does not count.

    Args:
        tokens: The text.
        length: The tokens of a window.
        stride: The distance between the starts of two windows.

    Returns:
        The windows [n, length], and the tokens after each of their tokens [n, length].

    >>> x, y = next_of_every_token(np.array([1, 2, 3, 4]), 2, 2)
    >>> x.tolist(), y.tolist()
    ([[1, 2], [3, 0]], [[2, 3], [4, -100]])
    """
    starts = range(0, max(len(tokens) - 1, 0), stride)
    x = np.zeros((len(starts), length), np.int64)
    y = np.full((len(starts), length), NOTHING, np.int64)
    for row, start in enumerate(starts):
        known = tokens[start : start + length + 1]
        x[row, : len(known) - 1], y[row, : len(known) - 1] = known[:-1], known[1:]
    return x, y


def joined(windows: Iterable[Windows], empty: Windows) -> Windows:
    """Join the windows of several texts; ``empty`` has none, in the right shape."""
    found = [empty, *windows]
    return np.concatenate([x for x, _ in found]), np.concatenate([y for _, y in found])

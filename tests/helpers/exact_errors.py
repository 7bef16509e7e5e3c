"""Errors compared as a whole: a message is one line that names the offender, what was expected, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.core.errors import HoldfastError


@contextmanager
def raises_exactly(message: str) -> Iterator[None]:
    """The block must raise a ``HoldfastError`` with exactly this one-line message."""
    with pytest.raises(HoldfastError) as caught:
        yield
    found = str(caught.value)
    assert found == message, found
    assert "\n" not in found

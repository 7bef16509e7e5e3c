"""Results of ``holdfast theory`` that need a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table that is printed after the claims."""

    title: str
    heading: Sequence[str]
    rows: Sequence[Sequence[float | str]]

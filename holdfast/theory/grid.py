"""Numbers of ``holdfast theory`` that are more than one claim can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table that is printed behind the claims."""

    title: str
    heading: Sequence[str]
    rows: Sequence[Sequence[float | str]]

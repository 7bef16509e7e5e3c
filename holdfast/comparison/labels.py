"""How the entries of a comparison are called: labels, how they wrap, and folder names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.comparison.part_sweeps import axes_of, value_to_text


@dataclass(frozen=True)
class EntryName:
    """One row of a comparison by name.

    Attributes:
        text: The method as the user wrote it.
        settings: The point of the sweep.
        label: Both together.
        folder: The folder of its runs, relative to that of the comparison.
    """

    text: str
    settings: dict[str, Any]
    label: str
    folder: str


def entry_names(methods: Sequence[str], sweep: Mapping[str, Sequence[Any]]) -> list[EntryName]:
    """Name every method at every point of a sweep that concerns it, the first method first.

    >>> [e.folder for e in entry_names(["fedavg", "prox(0.1)"], {"lr": [0.1, 1.0]})]
    ['fedavg-lr-0.1', 'fedavg-lr-1', 'prox-0.1-lr-0.1', 'prox-0.1-lr-1']
    >>> [e.label for e in entry_names(["fedavg", "prox"], {"prox.mu": [0.01, 0.1]})]
    ['fedavg', 'prox, prox.mu=0.01', 'prox, prox.mu=0.1']
    """
    names: list[EntryName] = []
    for text in methods:
        axes = axes_of(text, sweep)
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            label = ", ".join([text, *(f"{k}={value_to_text(k, v)}" for k, v in point.items())])
            names.append(EntryName(text, point, label, unique_name(slug(label), {n.folder for n in names})))
    return names


def slug(text: str) -> str:
    """Turn a text into a readable folder name.

    >>> slug("fedbug(0.4)+prox(0.01), lr=0.1")
    'fedbug-0.4-prox-0.01-lr-0.1'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.").lower()[:80] or "method"


def unique_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number appended if it is taken.

    >>> unique_name("a", {"a", "a-2"})
    'a-3'
    """
    numbered = (name if n == 1 else f"{name}-{n}" for n in itertools.count(1))
    return next(candidate for candidate in numbered if candidate not in taken)

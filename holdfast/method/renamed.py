"""Parts that had another name in an earlier version: users are told the new one, stored runs are translated."""

from __future__ import annotations

import re

from holdfast.core.errors import HoldfastError

RENAMED = {"momentum": "fedcm"}  # old name -> new name; "momentum" is kept free for local momentum


def renamed(name: str) -> HoldfastError | None:
    """Return the error for a name that is no longer used, or None if the name was never another one's."""
    if name not in RENAMED:
        return None
    return HoldfastError(f"unknown method {name!r}: it is now called {RENAMED[name]}")


def modern(text: str) -> str:
    """Rewrite a sum from an earlier version with today's part names; everything else stays as it was written.

    >>> modern("momentum(0.2) + clip(5)"), modern("fedcm+sam")
    ('fedcm(0.2) + clip(5)', 'fedcm+sam')
    """
    for old, new in RENAMED.items():
        text = re.sub(rf"(?<![\w.'\"=-]){re.escape(old)}(?=\s*(?:\(|\+|$))", new, text)
    return text

"""Parts that had another name in runs of format 1: what is stored under the old name is translated."""

from __future__ import annotations

import re

RENAMED = {"momentum": "fedcm"}  # old name -> new name; today, "momentum" names another part


def modern(text: str) -> str:
    """Rewrite a sum of format 1 with today's part names; everything else stays as it was written.

    >>> modern("momentum(0.2) + clip(5)"), modern("fedcm+sam")
    ('fedcm(0.2) + clip(5)', 'fedcm+sam')
    """
    for old, new in RENAMED.items():
        text = re.sub(rf"(?<![\w.'\"=-]){re.escape(old)}(?=\s*(?:\(|\+|$))", new, text)
    return text

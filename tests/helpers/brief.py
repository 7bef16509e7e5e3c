"""Methods with parameters that suit tiny runs."""

from __future__ import annotations

# What trains at the server does little of it, and Krum expects no liar, so that three clients are enough.
BRIEF = {
    "dp": "dp(0.1, noise=0)",  # with noise, something comes from nothing
    "ccvr": "ccvr(features=20, steps=10)",
    "feddf": "feddf(steps=5)",
    "fedftg": "fedftg(iterations=2, noise=4, width=8)",
    "fedgen": "fedgen(steps=5, noise=4, width=8)",
    "fnr": "fnr(epochs=2)",
    "krum": "krum(f=0)",
    "multikrum": "multikrum(f=0)",
}


def brief(name: str) -> str:
    """Return a part or recipe as a sum that is quick and content with cohorts of three."""
    return BRIEF.get(name, name)


def least_cohort(name: str) -> int:
    """Return the smallest cohort in which a brief method can tell clients apart: two, but three for Krum."""
    return 3 if "krum" in name else 2

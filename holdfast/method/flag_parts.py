"""Parts that settings stand for: ``--clip 1`` is the part ``clip(1)`` at the end of the sum."""

from __future__ import annotations

from holdfast.method.config import FLAG_PARTS, Config
from holdfast.method.method import Method
from holdfast.method.part import parts


def with_flag_parts(method: Method, config: Config) -> Method:
    """Return the method with the parts that the config's flags add to it."""
    known = parts()
    for setting, name in FLAG_PARTS.items():
        value = getattr(config, setting)
        if value:
            method = method + known[name](value)  # type: ignore[call-arg]
    return method

"""Any method on Flower: the clients' half in a ClientApp, the server's half in a ServerApp.

Needs the extra ``holdfast[flower]``. ``docs/deploy.md`` shows how to use it on several machines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.flower.app import client_app, server_app

__all__ = ["client_app", "server_app"]


def __getattr__(name: str) -> Any:
    """Import Flower when it is used, after having made it quiet."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.flower' has no attribute {name!r}")
    need_flower()
    from holdfast.flower import app

    return getattr(app, name)


def need_flower() -> None:
    """Say what is missing where Flower is not installed."""
    from importlib.util import find_spec

    from holdfast.core.errors import HoldfastError
    from holdfast.flower.environment import quiet

    if find_spec("flwr") is None:
        raise HoldfastError("this needs Flower, which is not installed: pip install 'holdfast[flower]'")
    quiet()

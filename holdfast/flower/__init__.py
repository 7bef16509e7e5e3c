"""Any method on Flower: the clients' half in a ClientApp, the server's half in a ServerApp.

Needs the extra ``holdfast[flower]``; ``docs/deploy.md`` shows how to use it on several machines. Imports runs and
everything below.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.flower.app import client_app, server_app
    from holdfast.flower.ray_backend import ray_trainer

__all__ = ["client_app", "ray_trainer", "server_app"]
_MODULES = {"client_app": "app", "server_app": "app", "ray_trainer": "ray_backend"}


def __getattr__(name: str) -> Any:
    """Import Flower when it is first used, after its environment is set."""
    if name not in _MODULES:
        raise AttributeError(f"module 'holdfast.flower' has no attribute {name!r}")
    require_flower()
    return getattr(importlib.import_module(f"holdfast.flower.{_MODULES[name]}"), name)


def require_flower() -> None:
    """Raise an error if Flower is not installed; otherwise set its environment."""
    from holdfast.flower.environment import set_environment

    if find_spec("flwr") is None:
        raise HoldfastError("this needs Flower, which is not installed: pip install 'holdfast[flower]'")
    set_environment()

"""Any method on Flower: the clients' half in a ClientApp, the server's half in a ServerApp.

Needs the extra ``holdfast[flower]``. ``docs/deploy.md`` shows how to use it on several machines.
"""

from __future__ import annotations

from holdfast.flower.app import client_app, server_app

__all__ = ["client_app", "server_app"]

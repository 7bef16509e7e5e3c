"""On what terms the server works with nodes that may fail: how long it waits, and what it does about the missing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from holdfast.named import Named, param


@dataclass(frozen=True)
class Terms(Named):
    """The fields are flags of ``holdfast deploy local`` and settings of a Flower app."""

    name = "deploy"

    nodes: int | None = param(None, "machines; client i is on node i modulo their number; default: one each", low=1)
    min_clients: int = param(1, "fewest clients whose updates make a round", low=1)
    on_failure: str = param(
        "continue", "when clients fail: continue with the others, or ask again", choices=("continue", "retry")
    )
    retries: int = param(3, "how often clients that failed are asked again, where they are", low=0)
    timeout: float = param(300.0, "seconds to wait for the replies to a question", above=0)
    patience: float = param(120.0, "seconds to wait for the nodes to appear at the start", above=0)

    @classmethod
    def known(cls, values: dict[str, Any]) -> Terms:
        """From settings of which some are ours."""
        names = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in values.items() if k in names})

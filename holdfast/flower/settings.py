"""On what terms the server works with nodes that may fail: how long it waits, and what it does about the missing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, param
from holdfast.method.config import Config


@dataclass(frozen=True)
class DeploymentSettings(Named):
    """The fields are flags of ``holdfast deploy local`` and settings of a Flower app."""

    name = "deploy"

    nodes: int | None = param(
        None, "machines; client i is on node i modulo their number; default: 3, or one per client", low=1
    )
    min_clients: int = param(1, "fewest clients whose updates make a round", low=1)
    on_failure: str = param(
        "continue", "when clients fail: continue with the others, or ask again", choices=("continue", "retry")
    )
    retries: int = param(3, "how often clients that failed are asked again, where they are", low=0)
    timeout: float = param(300.0, "seconds to wait for the replies to a question", above=0)
    patience: float = param(120.0, "seconds to wait for the nodes to appear at the start", above=0)

    @classmethod
    def known(cls, values: dict[str, Any]) -> DeploymentSettings:
        """From settings of which some are ours."""
        return cls(**{k: v for k, v in values.items() if k in DEPLOYMENT_FIELDS})

    def refuse(self, config: Config) -> None:
        """Object to a run that could never meet these terms, or that is for simulation."""
        if self.min_clients > config.cohort_size:
            raise HoldfastError(f"min_clients {self.min_clients} is more than the cohort of {config.cohort_size}")
        if self.nodes is not None and self.nodes > config.clients:
            raise HoldfastError(f"{self.nodes} nodes for {config.clients} clients: a node needs one at least")
        if config.personal:
            raise HoldfastError("personal evaluation is for simulation: leave --personal out")


DEPLOYMENT_FIELDS = {f.name: f for f in fields(DeploymentSettings)}

"""How the server deals with nodes that may fail: how long it waits, and what it does about missing updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, param
from holdfast.method.config import Config


@dataclass(frozen=True)
class DeploymentSettings(Named):
    """The settings of a deployment: flags of ``holdfast deploy`` and settings of a Flower app."""

    name = "deploy"

    nodes: int | None = param(
        None, "number of nodes; client i is on node i modulo this number; default: 3, or one per client", low=1
    )
    min_clients: int = param(1, "fewest clients that must return an update in a round", low=1)
    on_failure: str = param(
        "continue", "when clients fail: continue without them, or retry first", choices=("continue", "retry")
    )
    retries: int = param(3, "how many times clients that failed are asked again", low=0)
    timeout: float = param(300.0, "seconds to wait for the replies to a request", above=0)
    patience: float = param(120.0, "seconds to wait for the nodes at the start", above=0)

    @classmethod
    def among(cls, values: Mapping[str, Any]) -> DeploymentSettings:
        """Make the settings from a mapping that may hold others as well, with ``-`` or ``_`` in their names."""
        named = {name.replace("-", "_"): value for name, value in values.items()}
        return cls(**{name: value for name, value in named.items() if name in DEPLOYMENT_FIELDS})

    def check(self, config: Config) -> None:
        """Refuse a run that could never satisfy these settings, or that only a simulation can do."""
        if self.min_clients > config.cohort_size:
            raise HoldfastError(
                f"min_clients {self.min_clients} is larger than the cohort of {config.cohort_size}: lower "
                "--min-clients, or raise --cohort"
            )
        if self.nodes is not None and self.nodes > config.clients:
            raise HoldfastError(
                f"{self.nodes} nodes are more than the {config.clients} clients, and every node needs one: lower "
                "--nodes, or raise --clients"
            )
        if config.personal:
            raise HoldfastError("personal fine-tuning works only in simulation: leave out --personal")


DEPLOYMENT_FIELDS = {f.name: f for f in fields(DeploymentSettings)}

"""How the server deals with nodes that may fail: how long it waits, and what it does about missing updates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.params import Named, param
from holdfast.flower.secure_rules import check_secure
from holdfast.method.config import Config

MOST_WEIGHT = 0.5  # the largest share of a client in a mean, unless --max-weight says otherwise
OWNER = re.compile(r"[0-9]{1,9}=[0-9]{1,20}")  # a pair of the setting owners


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
    owners: str | None = param(
        None, "node that a client must be on, as pairs CLIENT=NODE_ID; other clients may be on any node"
    )
    secure: bool = param(False, "secure aggregation: the server sees sums over at least two nodes alone")
    secure_norm: float | None = param(
        None, "with secure: norm of a client's update above which its node leaves it out", above=0
    )

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
        if self.nodes is not None and self.nodes > config.client_count:
            raise HoldfastError(
                f"{self.nodes} nodes are more than the {config.client_count} clients, and every node needs one: lower "
                "--nodes, or raise --clients"
            )
        for client in self.owner_of():
            if client >= config.client_count:
                raise HoldfastError(
                    f"owners: there is no client {client} among {config.client_count}: number them from 0, or raise "
                    "--clients"
                )
        if config.personal and not config.client_eval:
            raise HoldfastError(
                "over the network fine-tuned copies are scored on clients' own test samples: add --client-eval"
            )
        check_secure(config, self)

    def owner_of(self) -> dict[int, int]:
        """Return the id of the node that each client must be on, for the clients that must be on a certain node.

        >>> DeploymentSettings(owners="0=812 1=3771").owner_of()
        {0: 812, 1: 3771}
        """
        pairs = (self.owners or "").split()
        for pair in pairs:
            if not OWNER.fullmatch(pair):
                raise HoldfastError(
                    f"owners: '{pair[:50]}' is not a pair CLIENT=NODE_ID: write, for example, '0=812 1=3771'"
                )
        numbers = [(int(client), int(node)) for client, node in (pair.split("=") for pair in pairs)]
        owners = dict(numbers)
        if len(owners) < len(numbers):
            raise HoldfastError("owners: a client has two nodes: keep one pair for each client")
        return owners


DEPLOYMENT_FIELDS = {f.name: f for f in fields(DeploymentSettings)}

"""What secure aggregation refuses: what would show single clients, and what could never have enough nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.method.config import Config
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.method import Method
from holdfast.method.one_row import why_not_summed

if TYPE_CHECKING:
    from holdfast.flower.settings import DeploymentSettings

FEWEST_NODES = 3  # with two, each would know the other's update


def check_secure(config: Config, settings: DeploymentSettings) -> None:
    """Refuse a run that secure aggregation cannot hide single clients in.

    Args:
        config: The run.
        settings: The settings of the deployment.
    """
    if not settings.secure:
        if settings.secure_norm is not None:
            raise HoldfastError("--secure-norm bounds what enters a secure sum: add --secure")
        return
    why = why_not_summed(with_flag_parts(Method.parse(config.method), config))
    if why:
        raise HoldfastError(f"--secure: {why}, and secure aggregation shows it sums alone: leave one of them out")
    for asked, problem in refused_settings(config, settings):
        if asked:
            raise HoldfastError(f"--secure: {problem}")
    nodes = settings.nodes or config.client_count
    if nodes < FEWEST_NODES:
        raise HoldfastError(f"--secure needs {FEWEST_NODES} nodes, not {nodes}: raise --nodes")
    most = on_two_nodes(config.client_count, nodes)
    if config.cohort_size <= most:
        raise HoldfastError(
            f"--secure needs clients of {FEWEST_NODES} nodes in every round, and a cohort of {config.cohort_size} may "
            f"be on two: use --cohort {most + 1}"
        )


def refused_settings(config: Config, settings: DeploymentSettings) -> list[tuple[bool, str]]:
    """Return which settings cannot be used, and why."""
    again = "the difference of two sums over almost the same clients shows the others"
    return [
        (config.client_eval, "scores by client show single clients: leave out --client-eval"),
        (config.drift, "drift is measured from single clients' updates: leave out --drift"),
        (
            config.batchnorm == "local",
            "with --batchnorm local single clients' models are scored: use average or frozen",
        ),
        (
            config.participation is not None,
            "a round may draw the clients of one node alone: use --cohort in place of --participation",
        ),
        (settings.on_failure == "retry", f"{again}: use --on-failure continue"),
        (config.checkpoint_every > 1, f"a round may be played again, and {again}: leave out --checkpoint-every"),
    ]


def on_two_nodes(clients: int, nodes: int) -> int:
    """Return how many clients two nodes can have together, with client i on node i modulo the number of nodes.

    >>> on_two_nodes(6, 3), on_two_nodes(7, 3), on_two_nodes(5, 5)
    (4, 5, 2)
    """
    sizes = sorted((len(range(node, clients, nodes)) for node in range(nodes)), reverse=True)
    return sum(sizes[:2])

"""How many clients to train at a time, so that a large cohort does not need more memory than a small one."""

from __future__ import annotations

import torch

from holdfast.core.host_memory import host_memory
from holdfast.engines.local_training import LocalTraining

ORDINARY = 100  # a cohort of up to this size is trained at once wherever it fits
ENOUGH = 2**30  # bytes: on a CPU larger slices are no faster


def clients_that_fit(training: LocalTraining, batch: int) -> int:
    """Estimate how many clients the vector engine should train at a time.

    They must fit into half of the device's memory; the total counts, so that the answer never varies. On a CPU a slice
    of more than ``ORDINARY`` clients also stays within ``ENOUGH`` bytes.

    Args:
        training: The local training under a method.
        batch: The samples per step.

    Returns:
        The number of clients, at least one.
    """
    net = training.net
    models = 1 + len(training.by_hook["teachers"]) + len(training.by_hook["begin"])
    item = net.initial.element_size()
    vectors = (8 + 2 * len(training.method.parts)) * net.layout.size * item
    activations = 4 * models * batch * (net.footprint + net.inputs) * item
    each = vectors + activations
    most = max(1, int(total_memory(net.device) / 2 // each))
    return most if net.device.type != "cpu" else min(most, max(ORDINARY, ENOUGH // each))


def clients_to_keep(training: LocalTraining) -> int:
    """Estimate how many clients' results the loop engine should keep at a time: deltas, uploads and states."""
    each = (2 + 3 * len(training.method.parts)) * training.net.layout.size * training.net.initial.element_size()
    return max(ORDINARY, ENOUGH // each)


def total_memory(device: torch.device) -> float:
    """Return the bytes of the device's memory."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory())
    return host_memory()

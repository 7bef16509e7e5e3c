"""What a model has beside its trained weights: checkpoints do not hold it, so a run records its checksum."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.tensors import Tensors
from holdfast.models.net import Net
from holdfast.runs.model_facts import ModelFacts


def frozen_checksum(net: Net) -> str:
    """Return the SHA-256 checksum of a model's frozen parameters and constant buffers; empty if it has none.

    Running statistics of BatchNorm count only where checkpoints do not hold those of the global model.
    """
    counters = net.statistics.counters(net.stats) if net.stats else {}
    averaged = net.statistics.buffers(net.stats) if net.stats and net.batchnorm == "average" else {}
    frozen: Tensors = {name: p for name, p in net.module.named_parameters() if not p.requires_grad}
    frozen |= {name: b for name, b in net.module.named_buffers() if name not in counters | averaged}
    if not frozen:
        return ""
    total = hashlib.sha256()
    for name, tensor in sorted(frozen.items()):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        total.update(_bytes(tensor))
    return total.hexdigest()


def check_frozen(folder: Path, stored: ModelFacts | None, net: Net) -> None:
    """Raise an error if a model's frozen weights are not those with which a run was started.

    Args:
        folder: The run's folder.
        stored: What the folder says about the model; runs of earlier versions do not say everything.
        net: The model.
    """
    if stored is None or stored.frozen is None or stored.frozen == frozen_checksum(net):
        return
    raise HoldfastError(
        f"the model's frozen parameters or constant buffers are not those of the run in {folder}, which does not store "
        "them: give the module that it was started with, with the same parameters frozen and the same weights in them"
    )


def _bytes(tensor: Tensor) -> bytes:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return bytes(raw.numpy())

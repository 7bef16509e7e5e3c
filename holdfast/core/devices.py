"""Which device a run computes on, and how several processes share the GPUs of a machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch

from holdfast.core.errors import HoldfastError

VISIBLE = "CUDA_VISIBLE_DEVICES"  # the GPUs that a process sees, by their names on the machine


def pick_device(name: str) -> torch.device:
    """Return the device of this name; ``auto`` is a CUDA GPU if PyTorch sees one, else the CPU."""
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise HoldfastError("device mps was requested, but PyTorch sees no GPU of Apple's: use --device cpu")
        return torch.device(name)
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if there else "cpu"
    if name != "cpu" and not there:
        raise HoldfastError(f"device {name} was requested, but PyTorch sees no CUDA GPU: use --device cpu")
    device = torch.device(name)
    if device.index is not None and device.index >= there:
        found = (
            "there is 1 GPU: use cuda:0" if there == 1 else f"there are {there} GPUs: use cuda:0 to cuda:{there - 1}"
        )
        raise HoldfastError(f"device {name} was requested, but {found}")
    return device


@contextmanager
def current_device(name: str) -> Iterator[None]:
    """Make the GPU of this name the current one of this thread, which streams and captured graphs use.

    What Apple's GPU cannot compute within this block is an error in one line.
    """
    device = pick_device(name)
    try:
        with nullcontext() if device.index is None else torch.cuda.device(device):
            yield
    except (TypeError, NotImplementedError) as error:
        if device.type != "mps" or "MPS" not in str(error):
            raise
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise HoldfastError(f"device mps cannot compute this ({reason}): use --device cpu") from error


def visible_gpus() -> list[str]:
    """Return the GPUs that this process sees, as ``CUDA_VISIBLE_DEVICES`` names them."""
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    named = [word.strip() for word in os.environ.get(VISIBLE, "").split(",") if word.strip()]
    return (named or [str(number) for number in range(there)])[:there]


def deal_gpus(jobs: int, devices: Iterable[str]) -> list[str | None]:
    """Deal the GPUs to processes, one to each in turn, so that every GPU gets as many as any other, or one less.

    Args:
        jobs: The number of processes.
        devices: The ``device`` settings of all runs. If one names a GPU by its number, none is dealt: it must see all.

    Returns:
        The GPU of each process as ``CUDA_VISIBLE_DEVICES`` names it; None leaves a process as it is.
    """
    gpus = visible_gpus()
    if len(gpus) < 2 or any(":" in device for device in devices):
        return [None] * jobs
    return [gpus[number % len(gpus)] for number in range(jobs)]


@contextmanager
def starting_on(gpu: str | None) -> Iterator[None]:
    """Let processes that are started within this block see this GPU alone; None changes nothing."""
    if gpu is None:
        yield
        return
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = gpu
    try:
        yield
    finally:
        if before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = before


def name_on_machine(device: torch.device) -> str:
    """Name a device as the machine does: a process that is bound to ``cuda:1`` knows it as its first."""
    if device.type != "cuda":
        return device.type
    gpus = visible_gpus()
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"cuda:{gpus[index] if index < len(gpus) else index}"

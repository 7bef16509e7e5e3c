"""Where client states are kept between rounds: in memory, or on disk when they outgrow it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils._pytree import tree_map

from holdfast.core.tensors import PerPart, flatten, unflatten

StateStore = MutableMapping[int, PerPart]  # client -> its state
PREFIX = "holdfast-states-"  # of the folders, followed by the number of the process


class DiskStore(StateStore):
    """One file per client in a temporary folder (in $TMPDIR), deleted with the store. Reading gives new tensors.

    A file is never changed, only replaced, so that a second name for it keeps the state that it has.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        clean_up_after_dead_processes()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self.known: set[int] = set()
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __getitem__(self, client: int) -> PerPart:
        if client not in self.known:
            raise KeyError(client)
        return read_state(self.path(client), self.device)

    def __setitem__(self, client: int, state: PerPart) -> None:
        arrays = {key: t.cpu().numpy() for key, t in flatten(state).items()}
        self.path(client).unlink(missing_ok=True)
        np.savez(self.path(client), **arrays)  # type: ignore[arg-type]
        self.known.add(client)

    def __delitem__(self, client: int) -> None:
        self.known.remove(client)
        self.path(client).unlink()

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.known))

    def __len__(self) -> int:
        return len(self.known)

    def path(self, client: int) -> Path:
        """Return the file of a client's state."""
        return self.folder / f"{client}.npz"


class FrozenFiles(Mapping[int, PerPart]):
    """States of a ``DiskStore`` as they were; one is in memory at a time, and their files go with this object."""

    def __init__(self, paths: Mapping[int, Path]) -> None:
        """Give the present files second names; where the file system has none, copy them."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.paths = {client: self.folder / path.name for client, path in paths.items()}
        for client, path in paths.items():
            try:
                os.link(path, self.paths[client])
            except OSError:
                shutil.copyfile(path, self.paths[client])

    def __getitem__(self, client: int) -> PerPart:
        return read_state(self.paths[client], torch.device("cpu"))

    def __iter__(self) -> Iterator[int]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def frozen_states(store: StateStore, clients: Sequence[int]) -> Mapping[int, PerPart]:
    """Return the states of some clients as they are now, in host memory or on disk, whatever the store does later.

    States in host memory are not copied: a store replaces the state of a client and never changes it.
    """
    if isinstance(store, DiskStore):
        return FrozenFiles({client: store.path(client) for client in clients})
    return {client: tree_map(lambda t: t.detach().cpu(), store[client]) for client in clients}


def read_state(path: Path, device: torch.device) -> PerPart:
    """Read the state of a client."""
    with np.load(path, allow_pickle=False) as file:
        return unflatten({key: torch.from_numpy(file[key]).to(device) for key in file.files})


def make_store(kind: str, device: torch.device) -> StateStore:
    """Make a store of this kind: ``memory`` or ``disk``."""
    return DiskStore(device) if kind == "disk" else {}


def clean_up_after_dead_processes() -> None:
    """Delete the folders of processes that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        number = folder.name.removeprefix(PREFIX).partition("-")[0]
        if number.isdecimal() and not process_exists(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def process_exists(pid: int) -> bool:
    """Tell whether a process of this number is running on this machine; True where that cannot be known."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True

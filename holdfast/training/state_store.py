"""Where the clients' states are kept between rounds: in memory, or on disk when they outgrow it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import numpy as np
import torch

from holdfast.engines.client_update import PerPart

StateStore = MutableMapping[int, PerPart]  # client -> its state


class DiskStore(StateStore):
    """One file per client in a temporary folder (below $TMPDIR), which goes with the store. Reads give new tensors."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-states-"))
        self.known: set[int] = set()
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __getitem__(self, client: int) -> PerPart:
        if client not in self.known:
            raise KeyError(client)
        state: PerPart = {}
        with np.load(self._path(client), allow_pickle=False) as file:
            for key in file.files:
                part, name = key.split("/", 1)
                state.setdefault(part, {})[name] = torch.from_numpy(file[key]).to(self.device)
        return state

    def __setitem__(self, client: int, state: PerPart) -> None:
        flat = {f"{part}/{name}": t.cpu().numpy() for part, tensors in state.items() for name, t in tensors.items()}
        np.savez(self._path(client), **flat)  # type: ignore[arg-type]
        self.known.add(client)

    def __delitem__(self, client: int) -> None:
        self.known.remove(client)
        self._path(client).unlink()

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.known))

    def __len__(self) -> int:
        return len(self.known)

    def _path(self, client: int) -> Path:
        return self.folder / f"{client}.npz"


def store(kind: str, device: torch.device) -> StateStore:
    """The store of this kind: ``memory`` or ``disk``."""
    return DiskStore(device) if kind == "disk" else {}

"""Where client states are kept between rounds: in memory, or on disk when they outgrow it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import numpy as np
import torch

from holdfast.core.tensors import PerPart, flatten, unflatten

StateStore = MutableMapping[int, PerPart]  # client -> its state


class DiskStore(StateStore):
    """One file per client in a temporary folder (in $TMPDIR), deleted with the store. Reading gives new tensors."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-states-"))
        self.known: set[int] = set()
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __getitem__(self, client: int) -> PerPart:
        if client not in self.known:
            raise KeyError(client)
        with np.load(self._path(client), allow_pickle=False) as file:
            return unflatten({key: torch.from_numpy(file[key]).to(self.device) for key in file.files})

    def __setitem__(self, client: int, state: PerPart) -> None:
        arrays = {key: t.cpu().numpy() for key, t in flatten(state).items()}
        np.savez(self._path(client), **arrays)  # type: ignore[arg-type]
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


def make_store(kind: str, device: torch.device) -> StateStore:
    """Make a store of this kind: ``memory`` or ``disk``."""
    return DiskStore(device) if kind == "disk" else {}

"""The parts' states at a node's clients, each under the round in which it was made.

A node cannot know whether its reply arrived. So a new state does not replace the old one: the server says, when it asks
the next time, the state of which round counts, and which one its last checkpoint counts on; all others are dropped.
States live in Flower's ``Context.state``, which ends with the run or with the SuperNode. With a folder they are also on
the node's disk, and outlive both.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from flwr.app import ArrayRecord, RecordDict

from holdfast.core.tensors import PerPart, flatten, unflatten
from holdfast.flower.array_codec import pack, unpack_any


class NodeStates:
    """The states of one run; ``run`` is the name that the server gave it."""

    def __init__(self, records: RecordDict, run: str, folder: Path | None) -> None:
        self.records, self.run = records, run
        self.folder = None if folder is None else folder / run

    def recall(self, client: int, round: int) -> PerPart | None:
        """The state that a client had after this round, or None where it is not here."""
        record = self.records.get(self._name(client, round))
        if isinstance(record, ArrayRecord):
            return unflatten(unpack_any(record, f"the state of client {client}"))
        path = self._path(client, round)
        if path is None or not path.exists():
            return None
        from safetensors.torch import load_file

        return unflatten(load_file(path))

    def store(self, client: int, round: int, state: PerPart) -> None:
        self.records[self._name(client, round)] = pack(flatten(state))
        path = self._path(client, round)
        if path is not None:
            from safetensors.torch import save

            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(".part")
            aside.write_bytes(save({k: t.detach().cpu().contiguous() for k, t in flatten(state).items()}))
            os.replace(aside, path)

    def keep(self, client: int, rounds: Collection[int]) -> None:
        """Drop the states of all other rounds."""
        kept = {self._name(client, r) for r in rounds}
        for name in [n for n in self.records if n.startswith(self._name(client)) and n not in kept]:
            del self.records[name]
        if self.folder is not None:
            for path in self.folder.glob(f"{self._name(client)}*.safetensors"):
                if path.stem not in kept:
                    path.unlink()

    def _name(self, client: int, round: int | None = None) -> str:
        return f"client-{client:06d}-" + ("" if round is None else f"{round:06d}")

    def _path(self, client: int, round: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{self._name(client, round)}.safetensors"

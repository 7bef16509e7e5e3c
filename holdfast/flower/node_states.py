"""The parts' states at a node's clients, each kept under the round in which it was made.

A node cannot know whether its reply arrived, so a new state does not replace the old one. With its next request the
server says which round's state counts, and which one its last checkpoint needs; all others are dropped. States live in
Flower's ``Context.state``, which ends with the run or with the SuperNode. With a folder they are also on the node's
disk, and outlive both.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from flwr.app import ArrayRecord, RecordDict

from holdfast.core.files import write_atomically
from holdfast.core.tensors import PerPart, flatten, unflatten
from holdfast.flower.array_codec import pack, unpack_any


class NodeStates:
    """The client states of one run at one node.

    Attributes:
        records: Flower's ``Context.state``.
        folder: The folder of the run's states on the node's disk, or None.
    """

    def __init__(self, records: RecordDict, run: str, folder: Path | None) -> None:
        """Give access to the states of the run with the id ``run``; ``folder`` holds the states of all runs."""
        self.records = records
        self.folder = None if folder is None else folder / run

    def load(self, client: int, round: int) -> PerPart | None:
        """Return the state that a client had after this round, or None if it is not here."""
        record = self.records.get(self._name(client, round))
        if isinstance(record, ArrayRecord):
            return unflatten(unpack_any(record, f"the state of client {client}"))
        path = self._path(client, round)
        if path is None or not path.exists():
            return None
        from safetensors.torch import load_file

        return unflatten(load_file(path))

    def save(self, client: int, round: int, state: PerPart) -> None:
        """Keep the state of a client after this round, beside those of other rounds."""
        self.records[self._name(client, round)] = pack(flatten(state))
        path = self._path(client, round)
        if path is not None:
            from safetensors.torch import save

            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, save({k: t.detach().cpu().contiguous() for k, t in flatten(state).items()}))

    def keep_only(self, client: int, rounds: Collection[int]) -> None:
        """Drop a client's states of all other rounds."""
        kept = {self._name(client, r) for r in rounds}
        prefix = self._name(client)
        for name in [n for n in self.records if n.startswith(prefix) and n not in kept]:
            del self.records[name]
        if self.folder is not None:
            for path in self.folder.glob(f"{prefix}*.safetensors"):
                if path.stem not in kept:
                    path.unlink()

    def _name(self, client: int, round: int | None = None) -> str:
        return f"client-{client:06d}-" + ("" if round is None else f"{round:06d}")

    def _path(self, client: int, round: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{self._name(client, round)}.safetensors"

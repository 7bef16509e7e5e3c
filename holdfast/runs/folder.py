"""A run on disk: ``config.toml``, ``history.jsonl``, ``checkpoint/``, ``summary.json``."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE, naming, refuse_file, sync, write_atomically
from holdfast.core.folder_lock import LOCK, FolderLock
from holdfast.method.config import Config, lasting_settings, with_role
from holdfast.method.config_text import config_to_toml, read_config
from holdfast.runs.code_files import write_copies
from holdfast.runs.history import read_history, to_line
from holdfast.runs.provenance import made_of
from holdfast.runs.run_files import (
    CHECKPOINT,
    CLIENT_TABLE,
    CONFIG,
    DIVERGED,
    HISTORY,
    MODEL_FACTS,
    SPLIT,
    SUMMARY,
    delete_own_files,
    is_run,
    only_own_files,
)
from holdfast.runs.summary_file import read_summary, write_summary
from holdfast.training.round_record import RoundRecord

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.models.net import Net
    from holdfast.runs.checkpoint import Manifest
    from holdfast.runs.snapshot import Snapshot

LISTED = 200  # the most clients whose counts are kept


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock: FolderLock | None = None  # ours, while this process carries out the run

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def finished(self) -> bool:
        return (self.path / SUMMARY).exists()

    @property
    def described(self) -> bool:
        """Whether the files are here that describe the federation and the model."""
        return (self.path / SPLIT).exists() and (self.path / MODEL_FACTS).exists()

    def check_free(self, overwrite: bool) -> None:
        """Raise an error unless a new run may be kept here."""
        refuse_file(self.path, "a run")
        if not self.path.exists() or all(self._precedes_config(p) for p in self.path.iterdir()):
            return
        if is_run(self.path):
            if not overwrite:
                state = "a finished" if self.finished else "an unfinished"
                raise HoldfastError(f"{self.path} already holds {state} run: add --resume or --overwrite")
        elif not (overwrite and not (self.path / CONFIG).exists() and only_own_files(self.path)):
            raise HoldfastError(f"{self.path} is not empty and holds no run: choose another --out")

    def _precedes_config(self, path: Path) -> bool:
        """Tell whether a file is all that a run killed before it had its config may leave, besides others like it."""
        empty_history = path.name == HISTORY and path.is_file() and path.stat().st_size == 0
        return empty_history or path.name in (LOCK, CONFIG + ASIDE)

    def create(self, config: Config, overwrite: bool) -> None:
        """Start a new run here; an earlier one is replaced only with ``overwrite``."""
        self.check_free(overwrite)
        if self.path.exists() and overwrite:
            self.remove()
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / HISTORY).write_text("")
        write_atomically(self.path / CONFIG, config_to_toml(config))
        write_copies(config, self.path)

    def describe(self, federation: Federation, net: Net, holders: Federation | None = None) -> None:
        """Keep who holds what for the report, and what the model is called with: the data may be gone later.

        Args:
            federation: The clients and the scales of the data.
            net: The network.
            holders: Knows the samples of the clients; None if only the nodes know them.
        """
        from holdfast.runs.frozen_weights import frozen_checksum  # here, so that other commands start quickly
        from holdfast.runs.model_facts import facts_of, to_text

        holders = holders if holders is not None and len(holders.deal.index) else None
        found: dict[str, Any] = {"classes": list((holders or federation).strata_names)}
        if federation.clients <= LISTED and federation.on_demand is None:
            found |= {"names": list(federation.client_names)} if federation.client_names else {}
            if holders is not None:
                found["counts"] = holders.deal.counts(holders.strata, len(holders.strata_names)).tolist()
        write_atomically(self.path / SPLIT, json.dumps(found) + "\n")
        facts = replace(facts_of(federation, net.module), frozen=frozen_checksum(net))
        write_atomically(self.path / MODEL_FACTS, to_text(facts))

    def stored(self) -> Config:
        """Return the config of the run that is here."""
        if not (self.path / CONFIG).exists():
            raise HoldfastError(f"{self.path} holds no run to resume: check --out")
        try:
            return Config(**read_config(self.path / CONFIG, stored=True))
        except HoldfastError as error:
            raise HoldfastError(f"{error}; {self._last_good_round()}") from error

    def reopen(self, config: Config, done: int) -> list[RoundRecord]:
        """Resume the run that is here: cut the history back to the checkpoint's round and return it."""
        records = read_history(self.path / HISTORY, done)
        lines = (self.path / HISTORY).read_bytes().count(b"\n")
        if done == 0 and (self.finished or lines > config.checkpoint_every):
            raise HoldfastError(
                f"{self.checkpoint} holds no checkpoint, though {self.path / HISTORY} has rounds: restore it, or start "
                "over with --overwrite"
            )
        if config.rounds < done:
            raise HoldfastError(
                f"{self.path} already has {done} rounds, more than {config.rounds}: leave out --rounds, or start over "
                "with --overwrite"
            )
        if config.rounds == done and self.finished:
            return records
        for name in (SUMMARY, CLIENT_TABLE):
            (self.path / name).unlink(missing_ok=True)
        write_atomically(self.path / HISTORY, "".join(to_line(r) for r in records))
        write_atomically(self.path / CONFIG, config_to_toml(config))
        return records

    def reserve(self) -> FolderLock:
        """Return the lock of this folder, to be held while a process carries out the run."""
        self.lock = FolderLock(self.path)
        return self.lock

    def append(self, record: RoundRecord) -> None:
        """Add a line to the history; the checkpoint that covers it takes care that it is on the disk."""
        if self.lock is not None:
            self.lock.check()
        with naming(self.path / HISTORY), (self.path / HISTORY).open("a", encoding="utf-8") as file:
            file.write(to_line(record))

    def keep(self, config: Config, snapshot: Snapshot, best: int | None = None) -> None:
        """Write a checkpoint, once the history that it covers is on the disk; that of the ``best`` round stays."""
        from holdfast.runs import checkpoint

        if self.lock is not None:
            self.lock.check()
        with naming(self.path / HISTORY), (self.path / HISTORY).open("rb") as file:
            sync(file)
        checkpoint.save(self.checkpoint, snapshot, self.checksums(config, snapshot.round), best)

    def finish(self, summary: dict[str, Any]) -> None:
        write_summary(self.path, summary)

    def made(self) -> dict[str, str]:
        """Return where a finished run was made, as far as its summary says."""
        return made_of(read_summary(self.path, "delete it; --resume writes it again"))

    def give_up(self, why: str, made: dict[str, str]) -> None:
        """Note that the run diverged, so that it is not tried again."""
        write_atomically(self.path / DIVERGED, f"{' '.join(why.split())}\n{json.dumps(made)}\n")

    def remove(self) -> None:
        """Delete the run, and the folder if nothing else is in it; our lock stays, if we have one."""
        delete_own_files(self.path, frozenset() if self.lock is None else frozenset({LOCK}))

    # -- what a checkpoint covers ---------------------------------------------------------------------------
    def checksums(self, config: Config, rounds: int) -> dict[str, int]:
        """Return checksums of the settings that may not change and of the history after that many rounds."""
        fixed = lasting_settings(config, without=(*with_role("free", "extends"), "split_seed"))  # see runs/resume.py
        lines = read_bytes(self.path / HISTORY).splitlines(keepends=True)[:rounds]
        return {
            "config": zlib.crc32(json.dumps(fixed, sort_keys=True).encode()),
            "history": zlib.crc32(b"".join(lines)),
        }

    def check_covered(self, config: Config) -> None:
        """Raise an error if settings or history are not those of the newest checkpoint."""
        from holdfast.runs import checkpoint  # here, so that commands that do not train start quickly

        manifest = checkpoint.newest(self.checkpoint)
        if manifest is None or not manifest.run:
            return
        self._check_config(config, manifest)
        if self._matches(config, manifest):
            return
        read_history(self.path / HISTORY, manifest.round)  # names the line if it cannot be read at all
        good = self._last_match(config, manifest)
        newest = self.checkpoint / f"round-{manifest.round:06d}.json"
        remedy = f"delete {newest} to resume from it" if good else "start over with --overwrite"
        raise self._changed(manifest, good, remedy)

    def check_finished(self, remedy: str) -> None:
        """Raise an error if the settings or the history of a finished run were changed since.

        A finished run needs no checkpoint: one that was deleted says nothing, and damaged manifests are passed over.

        Args:
            remedy: What to do if the history cannot be restored.
        """
        from holdfast.runs import checkpoint

        manifest = next(iter(checkpoint.readable(self.checkpoint)), None)
        if manifest is None or not manifest.run:
            return
        config = self.stored()
        self._check_config(config, manifest)
        if not self._matches(config, manifest):
            raise self._changed(manifest, self._last_match(config, manifest), remedy)

    def _check_config(self, config: Config, manifest: Manifest) -> None:
        if self.checksums(config, manifest.round)["config"] != manifest.run["config"]:
            raise HoldfastError(
                f"{self.path / CONFIG} is not the config that this run was started with: restore it; "
                f"{self._last_good_round()}"
            )

    def _changed(self, manifest: Manifest, good: int, remedy: str) -> HoldfastError:
        """Return the error for a history that is not the one that a manifest covers."""
        return HoldfastError(
            f"{self.path / HISTORY} was changed since round {manifest.round} was recorded; the last good round is "
            f"{good}: restore the file, or {remedy}"
        )

    def _last_match(self, config: Config, manifest: Manifest) -> int:
        """Return the last round before a manifest's at which the history is as recorded; 0 if there is none."""
        from holdfast.runs import checkpoint

        manifests = checkpoint.readable(self.checkpoint)
        return next((m.round for m in manifests if m.round < manifest.round and self._matches(config, m)), 0)

    def _matches(self, config: Config, manifest: Manifest) -> bool:
        return self.checksums(config, manifest.round) == manifest.run

    def _last_good_round(self) -> str:
        """Name the round of the newest checkpoint that can be read."""
        from holdfast.runs import checkpoint

        manifests = checkpoint.readable(self.checkpoint)
        return f"the last good round is {manifests[0].round if manifests else 0}"


def stored_names(path: Path) -> Callable[[int], str]:
    """Return what to call the clients of the run in a folder: by their names, or by their numbers."""
    try:
        names = json.loads((path / SPLIT).read_text(encoding="utf-8"))["names"]
        known = dict(enumerate(map(str, names)))
    except (OSError, ValueError, KeyError, TypeError):
        return str
    return lambda client: known.get(client, str(client))


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HoldfastError(
            f"cannot read {path}: {error.strerror}; restore the file, or start over with --overwrite"
        ) from error


@contextmanager
def folder_for(out: Path | None, method: str, data: str, root: Path = Path("runs")) -> Iterator[Path]:
    """Give the folder of a run: the one that the user chose, or a new one named ``runs/fedbug-0.4-digits-001``.

    Making a new folder claims it: two commands that start together get two folders. A folder that is still empty at
    the end, since nothing was started, is removed.

    Args:
        out: The folder that the user chose, if any.
        method: The method, for the name.
        data: The data set, for the name.
        root: Where new folders are made.

    Returns:
        The folder, within ``with``.
    """
    if out is not None:
        yield out
        return
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{method} {data}").strip("-.").lower()[:60]
    new_root = not root.exists()
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = root / f"{words}-{number:03d}"
        try:
            folder.mkdir()
            break
        except FileExistsError:
            number += 1
    try:
        yield folder
    finally:
        with suppress(OSError):  # not empty: something was started
            folder.rmdir()
            if new_root:
                root.rmdir()

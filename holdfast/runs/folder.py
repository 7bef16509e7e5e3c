"""A run on disk: ``config.toml``, ``history.jsonl``, ``checkpoint/``, ``summary.json``."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.method.config import FIELDS, Config, read_config
from holdfast.runs.history import Record, read_history
from holdfast.runs.provenance import made_of

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.method import Method
    from holdfast.method.part import Part

CONFIG, HISTORY, CHECKPOINT, SUMMARY = "config.toml", "history.jsonl", "checkpoint", "summary.json"
DIVERGED = "diverged.txt"  # why a run of a comparison ended early; below, as JSON, where it was made
FLOWER = "flower"  # what machines other than the server leave behind in a local deployment
SPLIT = "split.json"  # the names of the classes, and how many samples of each every client has
PAGES = ("report.html", "report_files", "tensorboard", "mlflow")
OURS = (CONFIG, HISTORY, CHECKPOINT, SUMMARY, DIVERGED, SPLIT, FLOWER, *PAGES)
LISTED = 200  # clients; the counts of larger federations are not kept
# What a resumed run may set anew.
MAY_CHANGE = ("rounds", "checkpoint_every", "data_dir", "personal", "personal_what", "states", "drift", "track")


class RunFolder:
    """One folder, opened for one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def finished(self) -> bool:
        return (self.path / SUMMARY).exists()

    def create(self, config: Config, overwrite: bool) -> None:
        """Start a new run here; an older one is kept unless it may be overwritten."""
        for path in (self.path, *self.path.parents):
            if path.exists() and not path.is_dir():
                raise HoldfastError(f"{path} is a file, not a folder for a run: choose another --out")
        if (self.path / CONFIG).exists():
            if not overwrite:
                raise HoldfastError(f"{self.path} already holds a {self._state()} run: add --resume or --overwrite")
            self.remove()
        elif overwrite and self.path.exists() and self._cut_off():
            self.remove()
        elif self.path.exists() and any(self.path.iterdir()):
            raise HoldfastError(f"{self.path} is not empty and holds no run: choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / HISTORY).write_text("")
        write_whole(self.path / CONFIG, config.to_toml())

    def note_split(self, federation: Federation) -> None:
        """Keep who holds what, for the report: the data may be gone by then."""
        found: dict[str, Any] = {"classes": list(federation.data.classes)}
        if federation.clients <= LISTED:
            found["counts"] = federation.deal.counts(federation.data.y.cpu().numpy(), federation.classes).tolist()
        write_whole(self.path / SPLIT, json.dumps(found) + "\n")

    def stored(self) -> Config:
        """The config of the run that is here."""
        if not (self.path / CONFIG).exists():
            raise HoldfastError(f"{self.path} holds no run to resume")
        return Config(**read_config(self.path / CONFIG))

    def reopen(self, config: Config, done: int) -> list[Record]:
        """Go on with the run that is here: cut the history back to the checkpoint's round and return it."""
        records = read_history(self.path / HISTORY, done)
        if done == 0 and (self.path / HISTORY).read_bytes().count(b"\n") > config.checkpoint_every:
            raise HoldfastError(
                f"{self.checkpoint} holds no checkpoint, though {self.path / HISTORY} has rounds: restore it, or start "
                "anew with --overwrite"
            )
        if config.rounds < done:
            raise HoldfastError(
                f"the run here has {done} rounds already, more than {config.rounds}: leave --rounds out, or start anew "
                "with --overwrite"
            )
        if config.rounds == done and self.finished:
            return records
        (self.path / SUMMARY).unlink(missing_ok=True)
        write_whole(self.path / HISTORY, "".join(r.line() for r in records))
        write_whole(self.path / CONFIG, config.to_toml())
        return records

    def append(self, record: Record) -> None:
        with (self.path / HISTORY).open("a", encoding="utf-8") as file:
            file.write(record.line())

    def finish(self, summary: dict[str, Any]) -> None:
        write_whole(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def made(self) -> dict[str, str]:
        """Where a finished run was made, as far as it says."""
        try:
            return made_of(json.loads((self.path / SUMMARY).read_text(encoding="utf-8")))
        except (ValueError, AttributeError) as error:
            raise HoldfastError(f"{self.path / SUMMARY} is damaged: delete it; --resume writes it again") from error

    def give_up(self, why: str, made: dict[str, str]) -> None:
        """Note that the run diverged, so that it is not tried again."""
        write_whole(self.path / DIVERGED, f"{' '.join(why.split())}\n{json.dumps(made)}\n")

    def _cut_off(self) -> bool:
        """Whether nothing is here but what a start leaves that was killed."""
        return {p.name.removesuffix(".part") for p in self.path.iterdir()} <= set(OURS)

    def _state(self) -> str:
        return "finished" if self.finished else "started"

    def remove(self) -> None:
        """Delete the run, and the folder where nothing else is in it."""
        for name in OURS:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
        if not any(self.path.iterdir()):
            self.path.rmdir()


def same_run(stored: Config, asked: dict[str, Any], method: str | Part | Method | None = None) -> Config:
    """The stored run with the settings it may change; any other difference is an error."""
    from holdfast.method.method import as_method

    if method is not None and str(method) != stored.method and as_method(method) != as_method(stored.method):
        asked = asked | {"method": str(method)}
    for name, value in asked.items():
        if name in FIELDS and name not in MAY_CHANGE and value != getattr(stored, name):
            raise HoldfastError(
                f"the run here has {name} = {getattr(stored, name)}, not {value}: resume it without that setting, or "
                "start anew with --overwrite"
            )
    return stored.changed(**{k: v for k, v in asked.items() if k in MAY_CHANGE})


def fresh_folder(root: Path, method: str, data: str) -> Path:
    """A new folder name below ``root`` that says what runs there: ``runs/fedbug-0.4-digits-001``."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{method} {data}").strip("-.").lower()[:60]
    number = 1
    while (root / f"{words}-{number:03d}").exists():
        number += 1
    return root / f"{words}-{number:03d}"


def write_whole(path: Path, text: str) -> None:
    """Write aside and rename, so that no one ever sees half a file."""
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)

"""A run on disk: ``config.toml``, ``history.jsonl``, ``checkpoint/``, ``summary.json``."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config import FIELDS, Config, read_config
from holdfast.errors import HoldfastError
from holdfast.history import Record, read_history

if TYPE_CHECKING:
    from holdfast.method import Method
    from holdfast.part import Part

CONFIG, HISTORY, CHECKPOINT, SUMMARY = "config.toml", "history.jsonl", "checkpoint", "summary.json"
FLOWER = "flower"  # what machines other than the server leave behind in a local deployment
OURS = (CONFIG, HISTORY, CHECKPOINT, SUMMARY, FLOWER, "report.html")
MAY_CHANGE = ("rounds", "checkpoint_every", "data_dir", "personal", "personal_what")  # what a resumed run may set anew


class RunFolder:
    """One folder, opened for one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def create(self, config: Config, overwrite: bool) -> None:
        """Start a new run here; an older one is kept unless it may be overwritten."""
        for path in (self.path, *self.path.parents):
            if path.exists() and not path.is_dir():
                raise HoldfastError(f"{path} is a file, not a folder for a run: choose another --out")
        if (self.path / CONFIG).exists():
            if not overwrite:
                raise HoldfastError(f"{self.path} already holds a {self._state()} run: add --resume or --overwrite")
            self._remove()
        elif overwrite and self.path.exists() and {p.name for p in self.path.iterdir()} <= set(OURS):
            self._remove()  # a start that was cut off
        elif self.path.exists() and any(self.path.iterdir()):
            raise HoldfastError(f"{self.path} is not empty and holds no run: choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / HISTORY).write_text("")
        _replace(self.path / CONFIG, config.to_toml())

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
        if config.rounds == done and (self.path / SUMMARY).exists():
            return records
        (self.path / SUMMARY).unlink(missing_ok=True)
        _replace(self.path / HISTORY, "".join(r.line() for r in records))
        _replace(self.path / CONFIG, config.to_toml())
        return records

    def append(self, record: Record) -> None:
        with (self.path / HISTORY).open("a", encoding="utf-8") as file:
            file.write(record.line())

    def finish(self, summary: dict[str, Any]) -> None:
        _replace(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def _state(self) -> str:
        return "finished" if (self.path / SUMMARY).exists() else "started"

    def _remove(self) -> None:
        for name in OURS:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def same_run(stored: Config, asked: dict[str, Any], method: str | Part | Method | None = None) -> Config:
    """The stored run with the settings it may change; any other difference is an error."""
    from holdfast.method import as_method

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


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)

"""A run on disk: ``config.toml``, ``history.jsonl``, ``checkpoint/``, ``summary.json``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE, refuse_file, write_atomically
from holdfast.method.config import Config
from holdfast.method.config_text import config_to_toml, read_config
from holdfast.runs.history import read_history, to_line
from holdfast.runs.provenance import made_of
from holdfast.training.round_record import RoundRecord

if TYPE_CHECKING:
    from holdfast.data.federation import Federation

CONFIG, HISTORY, CHECKPOINT, SUMMARY = "config.toml", "history.jsonl", "checkpoint", "summary.json"
DIVERGED = "diverged.txt"  # why a run of a comparison ended early; its second line says where it was made, as JSON
FLOWER = "flower"  # what the other machines of a local deployment leave behind
SPLIT = "split.json"  # the names of the classes, and how many samples of each every client has
PAGES = ("report.html", "report_files", "tensorboard", "mlflow")
OURS = (CONFIG, HISTORY, CHECKPOINT, SUMMARY, DIVERGED, SPLIT, FLOWER, *PAGES)
LISTED = 200  # the most clients whose counts are kept


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def finished(self) -> bool:
        return (self.path / SUMMARY).exists()

    def check_free(self, overwrite: bool) -> None:
        """Raise an error unless a new run may be kept here."""
        refuse_file(self.path, "a run")
        if (self.path / CONFIG).exists():
            if not overwrite:
                state = "a finished" if self.finished else "an unfinished"
                raise HoldfastError(f"{self.path} already holds {state} run: add --resume or --overwrite")
        elif self.path.exists() and any(self.path.iterdir()) and not (overwrite and self._only_leftovers()):
            raise HoldfastError(f"{self.path} is not empty and holds no run: choose another --out")

    def create(self, config: Config, overwrite: bool) -> None:
        """Start a new run here; an earlier one is replaced only with ``overwrite``."""
        self.check_free(overwrite)
        if self.path.exists() and overwrite:
            self.remove()
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / HISTORY).write_text("")
        write_atomically(self.path / CONFIG, config_to_toml(config))

    def write_split(self, federation: Federation) -> None:
        """Keep who holds what for the report, when the data may be gone."""
        found: dict[str, Any] = {"classes": list(federation.data.classes)}
        if federation.clients <= LISTED:
            found["counts"] = federation.deal.counts(federation.data.y.cpu().numpy(), federation.classes).tolist()
        write_atomically(self.path / SPLIT, json.dumps(found) + "\n")

    def stored(self) -> Config:
        """Return the config of the run that is here."""
        if not (self.path / CONFIG).exists():
            raise HoldfastError(f"{self.path} holds no run to resume: check --out")
        return Config(**read_config(self.path / CONFIG))

    def reopen(self, config: Config, done: int) -> list[RoundRecord]:
        """Resume the run that is here: cut the history back to the checkpoint's round and return it."""
        records = read_history(self.path / HISTORY, done)
        if done == 0 and (self.path / HISTORY).read_bytes().count(b"\n") > config.checkpoint_every:
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
        (self.path / SUMMARY).unlink(missing_ok=True)
        write_atomically(self.path / HISTORY, "".join(to_line(r) for r in records))
        write_atomically(self.path / CONFIG, config_to_toml(config))
        return records

    def append(self, record: RoundRecord) -> None:
        with (self.path / HISTORY).open("a", encoding="utf-8") as file:
            file.write(to_line(record))

    def finish(self, summary: dict[str, Any]) -> None:
        write_atomically(self.path / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def made(self) -> dict[str, str]:
        """Return where a finished run was made, as far as its summary says."""
        try:
            return made_of(json.loads((self.path / SUMMARY).read_text(encoding="utf-8")))
        except (ValueError, AttributeError) as error:
            raise HoldfastError(f"{self.path / SUMMARY} is damaged: delete it; --resume writes it again") from error

    def give_up(self, why: str, made: dict[str, str]) -> None:
        """Note that the run diverged, so that it is not tried again."""
        write_atomically(self.path / DIVERGED, f"{' '.join(why.split())}\n{json.dumps(made)}\n")

    def _only_leftovers(self) -> bool:
        """Tell whether the folder holds only what a killed start leaves behind."""
        return {p.name.removesuffix(ASIDE) for p in self.path.iterdir()} <= set(OURS)

    def remove(self) -> None:
        """Delete the run, and the folder if nothing else is in it."""
        for name in OURS:
            path = self.path / name
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
        if not any(self.path.iterdir()):
            self.path.rmdir()


def new_folder(root: Path, method: str, data: str) -> Path:
    """Return an unused folder name in ``root`` that says what runs there: ``runs/fedbug-0.4-digits-001``."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{method} {data}").strip("-.").lower()[:60]
    number = 1
    while (root / f"{words}-{number:03d}").exists():
        number += 1
    return root / f"{words}-{number:03d}"

"""The command line, called in this process, and what it leaves on disk."""

from __future__ import annotations

import json
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main

TINY = ("--model", "linear", "--clients", "6", "--cohort", "2", "--steps", "2", "--rounds", "2", "--quiet")


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out.splitlines()[-1])


def call(*args: str) -> Said:
    """The command line in this process. What would be a traceback in a terminal is raised here."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(list(args))
    return Said(int(end.value.code or 0), out.getvalue(), err.getvalue())


def good(*args: str) -> Said:
    said = call(*args)
    assert said.code == 0, said.err
    return said


def lines(folder: Path | str) -> list[dict[str, Any]]:
    """The history of a run."""
    return [json.loads(line) for line in (Path(folder) / "history.jsonl").read_text().splitlines()]


def facts(folder: Path | str) -> list[dict[str, Any]]:
    """The history of a run without the clock."""
    return [line | {"seconds": None} for line in lines(folder)]


def config(folder: Path | str) -> dict[str, Any]:
    return tomllib.loads((Path(folder) / "config.toml").read_text())


Files = dict[str, bytes | None]


def files(folder: Path | str = ".") -> Files:
    """Everything below a folder."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(Path(folder).rglob("*"))}


def refused(*args: str, code: int = 2) -> str:
    """The one line with which a command ends, having written nothing."""
    before = files()
    said = call(*args)
    assert said.code == code, said
    assert said.out == ""
    assert said.err.startswith("holdfast: ")
    assert said.err.count("\n") == 1, said.err
    assert files() == before
    return said.err

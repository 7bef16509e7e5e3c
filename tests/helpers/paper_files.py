"""The papers' files as tests read them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import holdfast

FOLDER = Path(holdfast.__file__).parent / "papers"
PAPERS = ("fedbug", "fedmrur", "fednlr", "fedagg", "fnr")
PUBLIC = ("niid-bench", "fednova", "fedopt", "fedavg-mnist")  # tables that the field knows
FILES = PAPERS + PUBLIC


@cache
def paper(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def table(name: str, number: str) -> dict[str, Any]:
    return next(t for t in paper(name)["table"] if t["id"] == number)


def printed(t: dict[str, Any]) -> list[dict[str, Any]]:
    """The columns with published numbers: all but the controls, which are ours."""
    return [c for c in t.get("columns", ()) if "control" not in c]


def row(name: str, number: str, title: str) -> dict[str, Any]:
    return next(r for r in table(name, number)["row"] if r["name"] == title)


def published(name: str, number: str, title: str, column: str) -> float:
    columns = [c["name"] for c in table(name, number)["columns"]]
    return float(row(name, number, title)["published"][columns.index(column)])


def settings(name: str, number: str, title: str, column: int = 0) -> dict[str, Any]:
    t = table(name, number)
    return merged(paper(name), t, row(name, number, title), t["columns"][column])


def merged(
    p: dict[str, Any], t: dict[str, Any], r: dict[str, Any], c: dict[str, Any], scale: str = ""
) -> dict[str, Any]:
    last = p["scale"][scale] if scale else {}
    return {**p["setting"], **t.get("set", {}), **r.get("set", {}), **c.get("set", {}), **last}


def summed(*levels: dict[str, Any]) -> str:
    return "+".join(level["method"] for level in levels if level.get("method")) or "fedavg"


def cells(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Table, row and column of all that can be run."""
    for t in paper(name)["table"]:
        if not t.get("absent") and not t.get("theory"):
            yield from ((t, r, c) for r in t["row"] for c in t["columns"])

"""A comparison on disk: ``plan.json``, a run folder per entry and seed, and when all are done ``compare.*``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.comparison.plan import ExecutionOptions, Plan, make_plan, shown
from holdfast.comparison.runner import LOCK
from holdfast.comparison.task import FREE
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_atomically
from holdfast.runs.folder import CONFIG, RunFolder

PLAN, RESULT = "plan.json", "compare.json"
TABLES = ("compare.md", "compare.csv", "compare.tex")


class StudyFolder:
    """One folder, opened for one comparison."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, plan: Plan, overwrite: bool) -> None:
        """Whether the comparison may be kept here: the folder is new, or holds it already, or less of it."""
        for path in (self.path, *self.path.parents):
            if path.exists() and not path.is_dir():
                raise HoldfastError(f"{path} is a file, not a folder for a comparison: choose another --out")
        if (self.path / PLAN).exists():
            if not overwrite:
                same_comparison(self.path, self.stored(), plan.record())
        elif self.path.exists() and any(p.name != LOCK for p in self.path.iterdir()):
            raise HoldfastError(f"{self.path} is not empty and holds no comparison: choose another --out")

    def write_plan(self, plan: Plan, facts: dict[str, Any]) -> None:
        """Keep the plan, with what is known of the data."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / PLAN, json.dumps(plan.record() | facts, indent=1) + "\n")

    def stored(self) -> dict[str, Any]:
        """The plan that is here."""
        if not (self.path / PLAN).exists():
            raise HoldfastError(f"{self.path} holds no comparison")
        try:
            found: dict[str, Any] = json.loads((self.path / PLAN).read_text(encoding="utf-8"))
            if not {"methods", "sweep", "seeds", "settings", "classes", "counts"} <= found.keys():
                raise ValueError("a key is missing")
        except (ValueError, AttributeError) as error:
            raise HoldfastError(f"{self.path / PLAN} is damaged: {error}; start anew with --overwrite") from error
        return found

    def plan(self) -> Plan:
        """The plan that is here, built again."""
        found = self.stored()
        seeds = found["seeds"]
        settings = {k: v for k, v in found["settings"].items() if v is not None and k not in found["sweep"]}
        how = ExecutionOptions(**found.get("how", {}))
        return make_plan(found["methods"], settings, len(seeds), seeds[0], found["sweep"], how, found.get("own"))

    def clear(self) -> None:
        """Delete the comparison, and nothing else that may be here."""
        for config in self.path.glob(f"*/seed-*/{CONFIG}"):
            RunFolder(config.parent).remove()
        for name in (PLAN, RESULT, *TABLES):
            (self.path / name).unlink(missing_ok=True)


def same_comparison(path: Path, stored: dict[str, Any], asked: dict[str, Any]) -> None:
    """A comparison may get more methods or seeds at its end; anything else makes it another one."""
    another = f"{path} holds another comparison, with "
    remedy = ": choose another --out, or add --overwrite"
    for name, value in asked["settings"].items():
        old = stored["settings"].get(name)
        if name not in FREE and value != old:
            raise HoldfastError(f"{another}{name} = {old}, not {value}{remedy}")
    for name in ("data", "model"):
        old, new = (plan.get("own", asked["own"]).get(name, "") for plan in (stored, asked))
        if old != new:
            told = [f"{name} from Python ({text})" if text else f"{name} by its name" for text in (old, new)]
            raise HoldfastError(f"{another}{told[0]}, not {told[1]}{remedy}")
    if stored["sweep"] != asked["sweep"]:
        sweep = "; ".join(f"{k}={','.join(map(shown, v))}" for k, v in stored["sweep"].items()) or "none"
        raise HoldfastError(f"{another}the sweep {sweep}{remedy}")
    for name in ("methods", "seeds"):
        old, new = stored[name], asked[name]
        if new[: len(old)] != old:
            raise HoldfastError(f"{another}the {name} {', '.join(map(str, old))}; it may only get more of them{remedy}")

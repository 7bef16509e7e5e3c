"""From run folders to ``compare.json``: everything that is known of a comparison, in the end or so far."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.comparison.plan import Entry, Plan
from holdfast.comparison.stats import paired, reach, spread, usual_targets, verdict
from holdfast.comparison.task import read_summary
from holdfast.core.errors import HoldfastError
from holdfast.runs.folder import DIVERGED, HISTORY, SUMMARY
from holdfast.runs.provenance import MADE, made_of

FORMAT = 1
CURVES = ("test_accuracy", "test_loss", "train_loss")


@dataclass(frozen=True)
class StoredRun:
    """One run as it lies on disk; ``summary`` is empty until it is finished, ``why`` says that it diverged."""

    seed: int
    history: list[dict[str, Any]]
    summary: dict[str, Any]
    why: str
    made: dict[str, str] = field(default_factory=dict)  # where, as far as it is known

    def get(self, name: str) -> Any:
        return self.summary.get(name)

    @property
    def traffic(self) -> int | None:
        return self.summary["upload_bytes"] + self.summary["download_bytes"] if self.summary else None


def read_run(folder: Path, seed: int) -> StoredRun:
    """A run that is done."""
    if (folder / SUMMARY).exists():
        summary = read_summary(folder)
        return StoredRun(seed, read_lines(folder / HISTORY), summary, "", made_of(summary))
    if (folder / DIVERGED).exists():
        why, made = read_diverged(folder / DIVERGED)
        return StoredRun(seed, read_lines(folder / HISTORY), {}, why, made)
    raise HoldfastError(f"{folder} holds no finished run: run the comparison again to finish it")


def read_diverged(path: Path) -> tuple[str, dict[str, str]]:
    """Why a run ended early, and where it was made; a file of an older version says only why."""
    why, _, made = path.read_text(encoding="utf-8").partition("\n")
    try:
        return why, made_of(json.loads(made.strip() or "{}"))
    except (ValueError, AttributeError) as error:
        raise damaged(path) from error


def read_begun(folder: Path, seed: int) -> StoredRun:
    """A run that is done, or as far as it is; one that is still to come has no history."""
    if (folder / SUMMARY).exists() or (folder / DIVERGED).exists():
        return read_run(folder, seed)
    history = read_lines(folder / HISTORY, growing=True) if (folder / HISTORY).exists() else []
    return StoredRun(seed, history, {}, "")


def damaged(path: Path) -> HoldfastError:
    return HoldfastError(f"{path} is damaged: delete that run's folder to run it again")


def read_lines(path: Path, growing: bool = False) -> list[dict[str, Any]]:
    """The rounds of a history. Where it is ``growing``, half a line at its end is a round that is being written."""
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in (text.rpartition("\n")[0] if growing else text).splitlines()]
    except (OSError, ValueError) as error:
        raise damaged(path) from error


def collect(
    plan: Plan,
    out: Path,
    facts: dict[str, Any],
    read: Callable[[Path, int], StoredRun] = read_run,
) -> dict[str, Any]:
    """The whole of ``compare.json``; with ``read_begun`` what is known so far: no means until all seeds are done."""
    runs = {entry.folder: [read(out / entry.folder / f"seed-{s}", s) for s in plan.seeds] for entry in plan.entries}
    targets = plan.how.targets
    if targets is None:
        first = [entry for entry in plan.entries if entry.text == plan.entries[0].text]  # at every point of a sweep
        best = [spread([r.get("best_accuracy") for r in runs[entry.folder]])["mean"] for entry in first]
        targets = usual_targets(max((b for b in best if b is not None), default=None))
    entries = [entry_record(plan, entry, runs, targets) for entry in plan.entries]
    split = {"counts": facts["counts"]} if facts.get("counts") else {}
    found = {
        "format": FORMAT,
        **made(run for own in runs.values() for run in own),
        "command": plan.command(out),
        "own": plan.own,
        "settings": plan.settings(),
        "sweep": {name: list(values) for name, values in plan.sweep.items()},
        "seeds": list(plan.seeds),
        "targets": list(targets),
        "classes": facts["classes"],
        "split": split,
        "entries": entries,
    }
    return found | ({"best_points": best_points(entries)} if plan.sweep else {})


def made(runs: Iterable[StoredRun]) -> dict[str, str]:
    """Where, when and with what the runs were made, as they say it themselves; empty where none of them does."""
    said = [run.made for run in runs]
    return {name: ", ".join(sorted({one[name] for one in said if name in one})) for name in MADE}


def entry_record(
    plan: Plan, entry: Entry, runs: dict[str, list[StoredRun]], targets: Sequence[float]
) -> dict[str, Any]:
    own, reference = runs[entry.folder], plan.reference(entry)
    accuracy = {name: spread([r.get(f"{name}_accuracy") for r in own]) for name in ("final", "best", "last5")}
    difference = None
    if entry != reference:
        base = [r.get("final_accuracy") for r in runs[reference.folder]]
        difference = paired(accuracy["final"]["values"], base)
    told = None if difference is None else {"of": "final", "to": reference.label} | difference
    personal = [r.get("personal_accuracy") for r in own]
    return {
        "label": entry.label,
        "method": entry.text,
        "settings": entry.settings,
        "runs": [f"{entry.folder}/seed-{r.seed}" for r in own],
        "accuracy": accuracy,
        "difference": told,
        "verdict": verdict(told),
        "diverged": [{"seed": r.seed, "why": r.why} for r in own if r.why],
        "leaks_test_data": any(r.get("leaks_test_data") for r in own),
        "targets": [to_target(own, target) for target in targets],
        **{name: spread([r.get(name) for r in own]) for name in ("kappa", "rho", "seconds")},
        "bytes": spread([r.traffic for r in own]),
        **({"personal": spread(personal)} if any(p is not None for p in personal) else {}),
        "by_class": by_class(own),
        "curves": curves(own),
        "drift": drift(own),
    }


def to_target(runs: Sequence[StoredRun], target: float) -> dict[str, Any]:
    reached = [reach(r.history, target) for r in runs]
    rounds, seconds, traffic = (list(column) for column in zip(*reached, strict=True))
    return {"target": target, "rounds": rounds, "seconds": seconds, "bytes": traffic}


def by_class(runs: Sequence[StoredRun]) -> dict[str, Any]:
    values = [r.get("accuracy_by_class") for r in runs]
    if any(v is None for v in values):
        return {"mean": None, "values": values}
    return {"mean": [spread(column)["mean"] for column in zip(*values, strict=True)], "values": values}


def curves(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """At evaluated rounds; a run that diverged, or is not finished, ends in None."""
    rounds = sorted({line["round"] for r in runs for line in r.history if line["test_accuracy"] is not None})
    found: dict[str, Any] = {"rounds": rounds}
    for name in CURVES:
        found[name] = [along(rounds, {line["round"]: line[name] for line in r.history}) for r in runs]
    return found


def drift(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Every figure of the drift diagnostics that was recorded, over the rounds in which it was."""
    told = [{line["round"]: line.get("drift") or {} for line in r.history} for r in runs]
    names = sorted({name for run in told for figures in run.values() for name in figures})
    found: dict[str, Any] = {}
    for name in names:
        rounds = sorted({t for run in told for t, figures in run.items() if name in figures})
        values = [along(rounds, {t: figures.get(name) for t, figures in run.items()}) for run in told]
        found[name] = {"rounds": rounds, "values": values}
    return found


def along(rounds: Sequence[int], known: dict[int, float | None]) -> list[float | None]:
    return [known.get(t) for t in rounds]


def best_points(entries: Sequence[dict[str, Any]]) -> dict[str, str]:
    """For every method the label of the point with the highest mean final accuracy, of those that did not diverge."""
    best: dict[str, dict[str, Any]] = {}
    for entry in entries:
        mean = entry["accuracy"]["final"]["mean"]
        if mean is not None:
            held = best.get(entry["method"])
            if held is None or mean > held["accuracy"]["final"]["mean"]:
                best[entry["method"]] = entry
    return {method: entry["label"] for method, entry in best.items()}

"""Which files a run writes: only these are ever deleted."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import ASIDE
from holdfast.core.folder_lock import LOCK
from holdfast.method.config_text import read_config

CONFIG, HISTORY, CHECKPOINT, SUMMARY = "config.toml", "history.jsonl", "checkpoint", "summary.json"
DIVERGED = "diverged.txt"  # why a run of a comparison ended early; its second line says where it was made, as JSON
FLOWER = "flower"  # what the other machines of a local deployment leave behind
COPIES = "files"  # copies of the user's files of code, to be read and never executed
SPLIT = "split.json"  # the names of the classes, and how many samples of each every client has
MODEL_FACTS = "model.json"  # what the trained model is called with, and the meaning of its outputs
CLIENT_TABLE = "clients.json"  # the score of every client on its own test samples
EXPORT = "export"  # where the trained model is exported to, a folder per format, unless the user chooses another
PATTERNS = (
    CONFIG, HISTORY, SUMMARY, DIVERGED, SPLIT, MODEL_FACTS, CLIENT_TABLE, LOCK, "report.html", "report_files/*.png",
    "report_files/*.svg", f"{CHECKPOINT}/round-[0-9]*.json", f"{CHECKPOINT}/server-[0-9]*.safetensors",
    f"{CHECKPOINT}/client-[0-9]*.safetensors", f"{FLOWER}/*.log", f"{FLOWER}/node*/*/client-[0-9]*.safetensors",
    f"{EXPORT}/*/model.*", f"{EXPORT}/*/weights.pt", f"{EXPORT}/*/README.md", "tensorboard/events.out.tfevents.*",
    "mlflow/mlflow.db*", "mlflow/run_id", "mlflow/artifacts/**/*", "wandb/**/*",
    f"{COPIES}/*.py",
)  # fmt: skip


def is_run(folder: Path) -> bool:
    """Tell whether a folder provably holds a run of ours: a config with our settings, and a history."""
    try:
        values = read_config(folder / CONFIG)
    except HoldfastError:
        return False
    return {"method", "data", "model", "rounds"} <= values.keys() and (folder / HISTORY).is_file()


def own_files(folder: Path) -> set[Path]:
    """Return the files in a folder that a run writes, finished or not."""
    return {
        path
        for pattern in PATTERNS
        for ending in ("", ASIDE)
        for path in folder.glob(pattern + ending)
        if path.is_file() or path.is_symlink()
    }


def only_own_files(folder: Path) -> bool:
    """Tell whether a folder holds nothing but files that a run writes."""
    return {p for p in folder.rglob("*") if not p.is_dir()} <= own_files(folder)


def delete_own_files(folder: Path, but: frozenset[str] = frozenset()) -> None:
    """Delete the files that a run writes, ``but`` for those of these names, and the folders that are empty then."""
    files = {path for path in own_files(folder) if path.name not in but}
    for path in files:
        path.unlink(missing_ok=True)
    parents = {parent for path in files for parent in path.relative_to(folder).parents}
    for parent in sorted(parents, key=lambda p: -len(p.parts)):
        place = folder / parent
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()

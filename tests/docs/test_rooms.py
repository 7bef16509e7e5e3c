"""The house: a newcomer finds a room by its name, and never meets one word for two things."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from helpers.places import ROOT

PACKAGE = ROOT / "holdfast"
# Modules that may share a name: a command with the room it serves, and the theory of a method with its part.
SHARED_NAMES = {
    "run": {"cli", "runs"},
    "compare": {"cli", "comparison"},
    "fedagg": {"parts", "theory"},
    "fedbug": {"parts", "theory"},
    "fednlr": {"parts", "theory"},
}


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p.stem not in ("__init__", "__main__"))


def test_no_two_modules_share_a_name():
    homes: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        homes[path.stem].add(str(path.parent.relative_to(PACKAGE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == SHARED_NAMES


def test_no_two_classes_share_a_name():
    homes: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_every_room_says_what_lives_there_and_what_it_may_import():
    for folder in [p for p in PACKAGE.iterdir() if (p / "__init__.py").exists()]:
        doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
        assert doc, f"{folder.name} has no docstring"
        assert "import" in doc.lower(), f"{folder.name} does not say what it may import"


def test_no_test_imports_another_test():
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name.split(".")[-1].startswith("test_")], path

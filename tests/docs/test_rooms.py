"""The house: a newcomer finds a room by its name, and never meets one word for two things."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path

import holdfast
from helpers.places import ROOT
from holdfast.method.part import HOOKS

PACKAGE = ROOT / "holdfast"
# Modules that may share a name: a command with the room it serves, and the theory of a method with its part.
SHARED_NAMES = {
    "run": {"cli", "runs"},
    "compare": {"cli", "comparison"},
    "advise": {"cli", "advice"},
    "split": {"cli", "data"},
    "tune": {"cli", "tuning"},
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


def test_the_map_of_the_design_page_is_complete():
    """Every module and folder of a room stands in its lines of the map, and nothing else that looks like one."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    lines = page.partition("    holdfast/\n")[2].partition("    tests/")[0].splitlines()
    drawn: dict[str, set[str]] = defaultdict(set)
    room = ""
    for line in lines:
        if line[6:7].strip():
            room, _, line = line.strip().partition("/")
        drawn[room] |= set(re.findall(r"(?<![\w'.])_?[a-z][a-z0-9_]*/?", line))
    for folder in [p for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"]:
        files = {p.stem for p in folder.glob("*.py")} - {"__init__", "__main__"}
        folders = {f"{p.name}/" for p in folder.iterdir() if p.is_dir() and p.name != "__pycache__"}
        assert (files | folders) - drawn[folder.name] == set(), f"missing in the map of {folder.name}"
        names = {name for name in drawn[folder.name] if "_" in name or name.endswith("/")}
        assert names - files - folders == set(), f"in the map of {folder.name}, but not in the folder"


def lacking(function: Callable[..., object]) -> list[str]:
    """What the docstring of a function lacks: all need one, and with more than two parameters its sections."""
    doc = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    needed = ["Args:"] if len([name for name in signature.parameters if name not in ("self", "cls")]) > 2 else []
    if needed and signature.return_annotation not in (None, "None"):
        needed.append("Returns:")
    return [section for section in needed if section not in doc] if doc else ["a docstring"]


def described(cls: type) -> list[str]:
    """What is missing in a public class: a docstring, its attributes, and the docstrings of its own public methods."""
    doc = cls.__doc__ or ""
    missing = ["a docstring"] if not doc or doc.startswith(f"{cls.__name__}(") else []
    if is_dataclass(cls):
        attributes = doc.partition("Attributes:")[2]
        unsaid = [f.name for f in fields(cls) if not f.metadata.get("doc") and f" {f.name}:" not in attributes]
        missing += [f"the attribute {name}" for name in unsaid]
    for name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or (is_dataclass(cls) and name in {f.name for f in fields(cls)}):
            continue
        if isinstance(member, property) and not member.__doc__:
            missing.append(f"the docstring of {name}")
        elif inspect.isfunction(function) and cls is holdfast.Part and name in HOOKS:
            missing += [] if function.__doc__ else [f"the docstring of the hook {name}"]
        elif inspect.isfunction(function):
            missing += [f"{name}: {section}" for section in lacking(function)]
    return missing


def test_everything_public_is_documented():
    """The arguments of a part's hooks are explained on the design page; each hook says what it is for."""
    missing: dict[str, list[str]] = {}
    for name in holdfast.__all__:
        public = getattr(holdfast, name)
        if inspect.isclass(public) and not hasattr(public, "__origin__"):
            missing[name] = described(public)
        elif inspect.isfunction(public):
            missing[name] = lacking(public)
        else:
            assert name == "Tensors", "the only name that is neither a class nor a function"
    assert {name: found for name, found in missing.items() if found} == {}
    assert {hook for hook in HOOKS if not getattr(holdfast.Part, hook).__doc__} == set()

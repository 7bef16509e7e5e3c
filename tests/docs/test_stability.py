"""What the page of stability says about formats and versions is what the code and the package say."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from helpers.places import DOCS, ROOT
from holdfast.advice import answer
from holdfast.comparison import study_schema
from holdfast.method import config_text
from holdfast.reproduce import table_json
from holdfast.runs import checkpoint, model_facts
from holdfast.tuning import tune_schema

PAGE = (DOCS / "stability.md").read_text(encoding="utf-8")
FORMATS = {
    "config.toml": config_text.FORMAT,
    "checkpoint/round-*.json": checkpoint.FORMAT,
    "plan.json": study_schema.FORMAT,
    "compare.json": study_schema.FORMAT,
    "tune_plan.json": tune_schema.TUNE_FORMAT,
    "tune.json": tune_schema.TUNE_FORMAT,
    "reproduce.json": table_json.FORMAT,
    "advice.json": answer.FORMAT,
    "model.json": model_facts.FORMAT,
}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOWEST = dict(
    line.split("==")
    for line in (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    if line[:1].isalpha()
)


def test_the_formats_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (`.*`) \| [^|]+ \| (\d+) \|$", PAGE, re.MULTILINE)
    said = {name: int(number) for names, number in rows for name in re.findall(r"`([^`]+)`", names)}
    assert said == FORMATS


EXTRAS = ("tables", "metrics", "tune", "tensorboard", "test")  # what make test-lowest installs


def requirements() -> dict[str, str]:
    """The lowest version of every package that the library and the extras of ``test`` need."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    found = [re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", each) for each in wanted]
    return {m[1]: m[2] for m in found if m}


@pytest.mark.parametrize("name", sorted(LOWEST.keys() - {"pyparsing"}))
def test_the_lowest_versions_are_those_that_the_package_allows(name: str) -> None:
    allowed, pinned = requirements()[name], LOWEST[name]
    assert (pinned + ".").startswith(allowed + ".")


def test_every_dependency_has_a_lowest_version() -> None:
    assert {re.split(r"[\[<>=]", each)[0] for each in PROJECT["dependencies"]} <= set(LOWEST)


def test_pages_name_the_lowest_pytorch() -> None:
    lowest = requirements()["torch"]
    for page in (ROOT / "README.md", DOCS / "start.md", DOCS / "stability.md"):
        assert f"PyTorch {lowest}" in page.read_text(encoding="utf-8")

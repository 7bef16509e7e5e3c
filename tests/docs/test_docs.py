"""The documentation keeps its word: a page for every method, tables that agree with the code, commands that run."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from helpers.places import ROOT
from holdfast.cli.main import main
from holdfast.cli.methods import parameters
from holdfast.core.expression import show
from holdfast.method.method import Method
from holdfast.method.part import Part

DOCS = ROOT / "docs"
METHODS = DOCS / "methods"
PAGES = sorted(p for p in METHODS.glob("*.md") if p.name != "README.md")
PAPERS = ("fedbug", "fednlr", "fedagg", "fnr", "fedmrur")
SMALL = ("--rounds", "1", "--epochs", "1", "--quiet")
FEW = ("--clients", "4", "--cohort", "2")


def cli(*args: str) -> str:
    """What a command prints; it must end well."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        main(list(args))
    assert not end.value.code, err.getvalue()
    return out.getvalue()


def index() -> dict[str, str]:
    """The page of every method that the index links by its name."""
    return dict(re.findall(r"\[`([\w-]+)`\]\(([\w-]+\.md)\)", (METHODS / "README.md").read_text(encoding="utf-8")))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def rows(page: Path) -> dict[str, dict[str, list[str]]]:
    """Every table of parameters on a page, by the text above it: the cells of each row by the parameter's name."""
    pattern = r"^(Of [^\n]*):\n\n\| name \| default \| range \| meaning \|\n\|[-|]+\|\n((?:\|.*\n)+)"
    text = page.read_text(encoding="utf-8")
    found = {}
    for title, table in re.findall(pattern, text, re.MULTILINE):
        cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]
        found[title] = {row[0].strip("`"): row[1:] for row in cells}
    return found


def methods() -> list[str]:
    """Every method that comes with the library; other tests make parts of their own."""
    return [row["name"] for row in json.loads(cli("methods", "--json")) if row["group"] != "yours"]


def limits(parameter: dict[str, Any]) -> str:
    return parameter["range"] or ("true or false" if isinstance(parameter["default"], bool) else "any")


def disagreement(cells: list[str], parameter: dict[str, Any], own: Part) -> str:
    """What a row says wrongly of a parameter; a recipe's own default is written as `0.1` in `recipe`."""
    default, *changed = re.findall(r"`([^`]*)`", cells[0])
    code = getattr(own, parameter["name"]) if changed else parameter["default"]
    if same(default) != same(show(code)):
        return f"default {default}, in the code {show(code)}"
    if cells[1] != limits(parameter):
        return f"range {cells[1]}, in the code {limits(parameter)}"
    return (
        "" if changed or cells[2] == parameter["meaning"] else f"meaning {cells[2]}, in the code {parameter['meaning']}"
    )


def same(text: str) -> float | str:
    """Numbers by their value: 1 is 1.0."""
    try:
        return float(text)
    except ValueError:
        return text


def test_every_method_has_a_page_linked_from_the_index() -> None:
    linked = index()
    missing = [name for name in methods() if name not in linked]
    assert not missing, f"no page in docs/methods/README.md for {', '.join(missing)}"
    strangers = [name for name in linked if name not in methods()]
    assert not strangers, f"the index names methods that do not exist: {', '.join(strangers)}"
    assert set(linked.values()) == {p.name for p in PAGES}


def test_parameter_tables_agree_with_the_code() -> None:
    linked = index()
    for name in methods():
        page = METHODS / linked[name]
        made = {part.name: part for part in Method.parse(name).parts}
        for own in made.values():
            tables = [table for title, table in rows(page).items() if f"`{own.name}`" in title]
            for parameter in parameters(type(own)()):
                where = f"{page.name}, {own.name}, {parameter['name']}"
                found = [table[parameter["name"]] for table in tables if parameter["name"] in table]
                assert found or not tables, f"{where}: not in the table"
                wrong = [disagreement(cells, parameter, own) for cells in found]
                assert not any(wrong), f"{where}: {wrong}"
            assert tables or not parameters(type(own)()), f"{page.name}: no table of {own.name}"
            known = {parameter["name"] for part in made.values() for parameter in parameters(type(part)())}
            strangers = {n for table in tables for n in table} - known
            assert not strangers, f"{page.name}: there is no parameter {', '.join(strangers)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_have_every_section(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for section in ("The update", "Parameters", "What differs from the paper", "When to use it", "Cost per round"):
        assert f"\n## {section}\n" in text, f"{page.name} lacks the section {section}"
    assert blocks(page, "sh"), f"{page.name} has no command to run"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """Each once, for one round: later flags override those on the page. Clients are few if it does not say how many."""
    for number, block in enumerate(blocks(page, "sh")):
        words = shlex.split(block.replace("\\\n", " "))
        assert words[:2] == ["holdfast", "run"], f"{page.name}: {block}"
        out = tmp_path / str(number)
        cli(*words[1:], *SMALL, *([] if "--clients" in words else FEW), "--out", str(out))
        assert (out / "summary.json").exists()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", ["advise", "data", "models", "scores"])
def test_python_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_EXPERIENCE", str(tmp_path / "experience.json"))
    page = DOCS / f"{name}.md"
    for block in blocks(page, "python"):
        if "import datasets" in block:
            try:
                import datasets  # noqa: F401
            except ImportError:
                continue
        exec(compile(block, str(page), "exec", dont_inherit=True), {"__name__": page.stem})


def test_the_page_about_tasks_runs_from_top_to_bottom() -> None:
    space: dict[str, Any] = {"__name__": "tasks"}
    for block in blocks(DOCS / "tasks.md", "python"):
        exec(compile(block, "tasks.md", "exec", dont_inherit=True), space)


@pytest.mark.usefixtures("elsewhere")
def test_the_lines_about_tables_run_from_top_to_bottom() -> None:
    section = (DOCS / "data.md").read_text(encoding="utf-8").partition("\n### Tables\n")[2].partition("\n##")[0]
    found = re.findall(r"^```(\w+)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert [language for language, _ in found] == ["python", "sh"]
    space: dict[str, Any] = {"__name__": "tables"}
    exec(compile(found[0][1], "data.md", "exec", dont_inherit=True), space)
    assert space["data"].clients == ("Berlin", "Köln", "Ulm")
    answers = [cli(*shlex.split(line)[1:]) for line in found[1][1].splitlines()]
    assert answers[-1].startswith("sample,class,ill,well\n0,")


@pytest.mark.usefixtures("elsewhere")
def test_the_page_about_using_a_model_runs_from_top_to_bottom() -> None:
    text = (DOCS / "use.md").read_text(encoding="utf-8")
    space: dict[str, Any] = {"__name__": "use"}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                exec(compile(block, "use.md", "exec", dont_inherit=True), space)
        for line in block.splitlines() if language == "sh" else ():
            assert cli(*shlex.split(line)[1:]) or "--out" in line
    assert space["names"] == [str(label) for label in space["y"][:5]]
    assert Path("classes.csv").read_text(encoding="utf-8").startswith("sample,class,0,1,")
    for folder in ("digits-run/export/torch", "weights", "digits-run/export/onnx", "weather-model"):
        assert "| method | fedavg |" in Path(folder, "README.md").read_text(encoding="utf-8")


def test_the_table_of_models_is_that_of_the_command() -> None:
    text = (DOCS / "models.md").read_text(encoding="utf-8")
    on_tokens = {row["name"]: row for row in json.loads(cli("models", "--json", "--shape", "80", "--classes", "80"))}
    for row in json.loads(cli("models", "--json")):
        row = on_tokens[row["name"]] if "error" in row else row
        units = ", ".join(f"{n} {unit}{'s' if n != 1 else ''}" for unit, n in row["blocks"].items())
        assert f"| `{row['name']}` | {row['parameters']:,} | {row['mflop']:,.1f} | {units} |" in text, row["name"]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(DOCS)))
def test_links_and_paths(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:", target) and not target.startswith("#"):
            assert (page.parent / target.split("#")[0]).exists(), f"{page.name}: no {target}"
    absolute = re.findall(r"(?<![\w.:/`<>])/(?:home|root|work|tmp|usr|Users|mnt)\b\S*", text)
    assert not absolute, f"{page.name} names paths of one machine: {absolute}"


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_pages_have_a_small_picture(name: str) -> None:
    picture = DOCS / "pictures" / f"{name}.png"
    assert f"(../pictures/{name}.png)" in (METHODS / f"{name}.md").read_text(encoding="utf-8")
    assert picture.stat().st_size < 100_000


def test_the_study_is_the_one_the_pages_report() -> None:
    """Every row of the study stands on the page of its method, in the numbers of the file."""
    found = json.loads((DOCS / "digits_study.json").read_text(encoding="utf-8"))["results"]
    homes = {"fedavg": "README", "fedbug": "fedbug", "fednlr": "fednlr", "fedagg": "fedagg", "fnr": "fnr"}
    for rows in found.values():
        for name, row in rows.items():
            page = METHODS / f"{homes.get(name, 'fedmrur')}.md"
            want = f"| `{row['method']}` | {row['lr']:g} | {100 * row['mean']:.1f} ± {100 * row['std']:.1f} |"
            assert want in page.read_text(encoding="utf-8"), f"{page.name} lacks {want}"

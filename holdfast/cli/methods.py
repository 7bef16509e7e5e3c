"""``holdfast methods [NAME]``: what there is, and what each does."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from typing import Any

import click

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import show
from holdfast.core.params import limits
from holdfast.method.method import Method
from holdfast.method.part import Part, parts
from holdfast.method.recipes import RECIPES


@click.command("methods")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(name: str | None, as_json: bool) -> None:
    """List the methods, or show one: parameters, equation, paper, what it cannot be summed with."""
    if name is None:
        rows = table()
        click.echo(json.dumps(rows)) if as_json else print_table(rows)
        return
    known = {*RECIPES, *parts()}
    if name not in known:
        raise unknown("method", name, known)
    found = page(name)
    click.echo(json.dumps(found)) if as_json else print_page(found)


def table() -> list[dict[str, Any]]:
    """Every recipe, then every part that is not a recipe of its own."""
    known = parts()
    rows = [row(name, recipe.sum or "(plain averaging)", recipe.paper, made(name)) for name, recipe in RECIPES.items()]
    rest = [n for n in known if n not in RECIPES and not n.startswith("toy-")]
    return rows + [row(n, n, known[n].paper, (known[n],)) for n in sorted(rest)]


def made(name: str) -> tuple[type[Part], ...]:
    return tuple(type(p) for p in Method.parse(name).parts)


def row(name: str, sum: str, paper: str, classes: tuple[type[Part], ...]) -> dict[str, Any]:
    hooks = list(dict.fromkeys(h for cls in classes for h in cls.hooks()))
    return {"name": name, "sum": sum, "hooks": hooks, "paper": paper}


def page(name: str) -> dict[str, Any]:
    """Everything about one method."""
    known = parts()
    sum = Method.parse(name)
    paper = RECIPES[name].paper if name in RECIPES else known[name].paper
    return {
        "name": name,
        "sum": str(sum) if sum.parts else "fedavg: the empty sum",
        "paper": paper,
        "parts": [
            {
                "name": part.name,
                "text": reflow(inspect.cleandoc(part.__doc__ or "")),
                "hooks": list(part.hooks()),
                "parameters": parameters(part),
                "cannot_be_summed_with": excluded(type(part), known),
            }
            for part in sum.parts
        ],
    }


def reflow(text: str) -> str:
    """Paragraphs as single lines, for the terminal to wrap; indented lines (equations) stay as they are."""
    paragraphs = [p.strip("\n") for p in text.split("\n\n")]
    return "\n\n".join(p if p.startswith(" ") else " ".join(p.split("\n")) for p in paragraphs)


def parameters(part: Part) -> list[dict[str, Any]]:
    """The parameters with the values they have unless given: a recipe may set others than its part."""
    return [
        {"name": f.name, "default": getattr(part, f.name), "range": limits(f), "meaning": f.metadata.get("doc", "")}
        for f in fields(part)
    ]


def excluded(cls: type[Part], known: dict[str, type[Part]]) -> dict[str, str]:
    """The parts that cannot stand in one sum with this one, and why."""
    found = {}
    for name, other in known.items():
        if name == cls.name or name.startswith("toy-"):
            continue
        try:
            Method((cls(), other()))
        except HoldfastError as error:
            found[name] = str(error)
    return found


def print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    view = Table("name", "sum", "hooks", "paper", title="Methods: sum them with +", title_justify="left")
    for r in rows:
        view.add_row(r["name"], r["sum"], ", ".join(r["hooks"]), r["paper"])
    Console().print(view)


def print_page(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{found['name']}[/] = {found['sum']}\n{found['paper']}\n", markup=True)
    for part in found["parts"]:
        console.print(f"[bold]{part['name']}[/]  fills {', '.join(part['hooks'])}")
        console.print(part["text"] + "\n", markup=False)
        if part["parameters"]:
            view = Table("parameter", "default", "range", "meaning")
            for p in part["parameters"]:
                view.add_row(p["name"], show(p["default"]), p["range"], p["meaning"])
            console.print(view)
        if part["cannot_be_summed_with"]:
            console.print("cannot be summed with:")
            for name, why in part["cannot_be_summed_with"].items():
                console.print(f"  {name}: {why}", markup=False)
        console.print()

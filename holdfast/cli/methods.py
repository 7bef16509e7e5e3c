"""``holdfast methods [NAME]``: list the methods, or describe one."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from dataclasses import MISSING, fields
from typing import Any

import click

from holdfast.cli.options import import_all, imports
from holdfast.core.errors import unknown
from holdfast.core.expression import show
from holdfast.core.params import limits, search_range
from holdfast.method.catalogue import GROUPS, MethodEntry, methods
from holdfast.method.composition import composition, sentences
from holdfast.method.method import Method, why_after, why_not_both
from holdfast.method.part import Part, parts

SUM = re.compile(r"[+(]")  # what a sum has and a name has not
READ = {"mean": "its mean", "total": "its sum", "one by one": "one by one"}
NAME, SUMMARY = 16, 41  # widths of the columns; with the citation they fit 80 columns


@click.command("methods")
@click.argument("name", required=False)
@imports
@click.option("--verbose", is_flag=True, help="show each method's sum and the hooks that it fills")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(name: str | None, imports: tuple[str, ...], verbose: bool, as_json: bool) -> None:
    """List the methods, or describe one: parameters, equations, paper, and what it cannot be summed with.

    Of a sum, such as "scaffold+fedbug", it says what clients send and keep, and what the server sees of them.
    """
    import_all(imports)
    entries = methods()
    if name is None:
        click.echo(json.dumps([row(entry) for entry in entries])) if as_json else print_list(entries, verbose)
        return
    entry = next((entry for entry in entries if entry.name == name), None)
    if entry is None and SUM.search(name):
        described = composed(Method.parse(name))
        click.echo(json.dumps(described)) if as_json else print_composed(described)
        return
    if entry is None:
        raise unknown("method", name, [entry.name for entry in entries])
    described = page(entry)
    click.echo(json.dumps(described)) if as_json else print_page(described)


def composed(method: Method) -> dict[str, Any]:
    """Return what a sum sends, shows and keeps."""
    found = composition(method)
    uploads = [{"part": u.part, "name": u.name, "what": u.what, "enters": u.enters} for u in found.uploads]
    return {"sum": str(method), "uploads": uploads, "linear": found.linear, "says": sentences(found)}


def print_composed(described: dict[str, Any]) -> None:
    """Print what a sum sends, shows and keeps."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(described["sum"], style="bold", markup=False)
    view = Table("every client sends", "of", "which is", "and the server reads")
    for upload in described["uploads"]:
        view.add_row(upload["name"], upload["part"] or "the model", upload["what"], READ[upload["enters"]])
    console.print(view)
    for heading, text in described["says"].items():
        console.print(f"{heading}: {text}", markup=False)


def row(entry: MethodEntry) -> dict[str, Any]:
    """Return a method's line of the list as JSON."""
    return {
        "name": entry.name,
        "group": entry.group,
        "summary": entry.summary,
        "sum": entry.sum or "(plain averaging)",
        "hooks": hooks(entry),
        "paper": entry.paper,
    }


def hooks(entry: MethodEntry) -> list[str]:
    """Return the hooks that a method fills, each once."""
    own = parts().get(entry.name)
    classes = [own] if own else [type(part) for part in Method.parse(entry.name).parts]
    return list(dict.fromkeys(hook for cls in classes for hook in cls.hooks()))


def print_list(entries: list[MethodEntry], verbose: bool) -> None:
    """Print a line per method, grouped: name, what it does, paper."""
    for group, heading in GROUPS.items():
        members = [entry for entry in entries if entry.group == group]
        if members:
            click.secho(heading, bold=True)
        for entry in members:
            summary = textwrap.shorten(entry.summary, SUMMARY, placeholder="...")
            click.echo(f"  {entry.name:{NAME}} {summary:{SUMMARY}}  {entry.citation}".rstrip())
            if verbose:
                details = row(entry)
                click.echo(f"      sum:   {details['sum']}\n      hooks: {', '.join(details['hooks']) or '-'}")
    click.echo("Describe one: holdfast methods NAME. Sum them with +: fedbug(0.4)+feddyn.")


def page(entry: MethodEntry) -> dict[str, Any]:
    """Return everything about one method."""
    method = Method.parse(entry.name)
    return {
        "name": entry.name,
        "group": entry.group,
        "summary": entry.summary,
        "sum": str(method) if method.parts else "the empty sum",
        "paper": entry.paper,
        "parts": [
            {
                "name": part.name,
                "text": reflow(inspect.cleandoc(part.__doc__ or "")),
                "hooks": [hook for hook in part.hooks() if part.fills(hook)],
                "parameters": parameters(part),
                "cannot_be_summed_with": excluded(part),
                "must_come_after": preceding(part),
            }
            for part in method.parts
        ],
    }


def reflow(text: str) -> str:
    """Join the lines of each paragraph, for the terminal to wrap; indented lines (equations) are kept as they are.

    Code stands between single backticks.

    >>> reflow("Uses ``mu``\\nas it is.")
    'Uses `mu` as it is.'
    """
    paragraphs = [p.strip("\n") for p in text.replace("``", "`").split("\n\n")]
    return "\n\n".join(p if p.startswith(" ") else " ".join(p.split("\n")) for p in paragraphs)


def parameters(part: Part) -> list[dict[str, Any]]:
    """Return the parameters with their values in this part: a recipe's defaults may differ from the part's own."""
    return [
        {
            "name": f.name,
            "default": getattr(part, f.name),
            "range": limits(f),
            "meaning": f.metadata.get("doc", ""),
            "searched": str(search_range(f) or "") or None,
            "not_searched": None if search_range(f) else f.metadata.get("search") or None,
        }
        for f in fields(part)
    ]


def others(part: Part) -> dict[str, Part]:
    """Return every other part with its default parameters, by name; those that need parameters are left out."""
    known = {name: cls for name, cls in sorted(parts().items()) if cls is not type(part)}
    return {name: cls() for name, cls in known.items() if all(f.default is not MISSING for f in fields(cls))}


def searched(parameter: dict[str, Any]) -> str:
    """Say over which range ``holdfast tune`` searches a parameter, or why it does not."""
    reason = parameter["not_searched"]
    return parameter["searched"] or (f"no: {reason}" if reason else "no")


def excluded(part: Part) -> dict[str, str]:
    """Return the parts that cannot be in one sum with this one, and why."""
    reasons = {name: why_not_both(part, other) for name, other in others(part).items()}
    return {name: why for name, why in reasons.items() if why}


def preceding(part: Part) -> dict[str, str]:
    """Return the parts that must come before this one in a sum, and why."""
    reasons = {name: why_after(part, other) for name, other in others(part).items()}
    return {name: why for name, why in reasons.items() if why}


def print_page(described: dict[str, Any]) -> None:
    """Print everything about one method."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    named = "" if described["sum"] == described["name"] else f" = {described['sum']}"
    rest = f"{named}\n{described['summary']}\n{described['paper']}\n"
    console.print(Text.assemble((described["name"], "bold"), rest))
    for part in described["parts"]:
        console.print(Text.assemble((part["name"], "bold"), f"  fills {', '.join(part['hooks'])}"))
        console.print(part["text"] + "\n", markup=False)
        if part["parameters"]:
            view = Table("parameter", "default", "range", "searched by tune", "meaning")
            for p in part["parameters"]:
                view.add_row(p["name"], show(p["default"]), p["range"], searched(p), p["meaning"])
            console.print(view)
        for key in ("cannot_be_summed_with", "must_come_after"):
            if part[key]:
                console.print(key.replace("_", " ") + ":")
            for name, why in part[key].items():
                console.print(f"  {name}: {why}", markup=False)
        console.print()

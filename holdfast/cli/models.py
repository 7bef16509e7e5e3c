"""``holdfast models``: the networks there are."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("models")
@click.option("--shape", default="3x32x32", metavar="CxHxW", show_default=True, help="the shape of an input")
@click.option("--classes", default=10, type=click.IntRange(1), show_default=True, help="number of classes")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(shape: str, classes: int, as_json: bool) -> None:
    """List the networks with parameters, MFLOPs per sample and blocks, for one shape of input."""
    rows = table(read_shape(shape), classes)
    if as_json:
        click.echo(json.dumps(rows))
        return
    from rich.console import Console
    from rich.table import Table

    view = Table(
        "name", "parameters", "MFLOP", "blocks", "what it is", title=f"Networks for {shape}", title_justify="left"
    )
    for r in rows:
        if "error" in r:
            view.add_row(r["name"], "-", "-", "-", r["error"])
        else:
            blocks = ", ".join(f"{n} {unit}{'s' * (n != 1)}" for unit, n in r["blocks"].items())
            view.add_row(r["name"], f"{r['parameters']:,}", f"{r['mflop']:,.1f}", blocks, r["text"])
    Console().print(view)


def read_shape(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if not all(p.isdigit() and int(p) > 0 for p in parts):
        raise click.UsageError(f"--shape {text}: expected something like 3x32x32")
    return tuple(int(p) for p in parts)


def table(shape: tuple[int, ...], classes: int) -> list[dict[str, Any]]:
    """A row per network; those that cannot take the shape say why."""
    from holdfast.core.errors import HoldfastError
    from holdfast.models.cost import mflops, parameters
    from holdfast.models.net import Net
    from holdfast.models.zoo import make, models

    rows: list[dict[str, Any]] = []
    for name, cls in sorted(models().items()):
        text = (cls.__doc__ or "").strip().split("\n")[0]
        try:
            module = make(name, shape, classes)
            layout = Net(module, shape, classes).layout
        except HoldfastError as error:
            rows.append({"name": name, "error": str(error)})
            continue
        blocks = {unit: layout.blocks(unit) for unit in layout.units}
        rows.append(
            {
                "name": name,
                "parameters": parameters(module),
                "mflop": mflops(module, shape),
                "blocks": blocks,
                "text": text,
            }
        )
    return rows

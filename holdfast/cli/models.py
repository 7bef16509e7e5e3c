"""``holdfast models``: list the networks."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli.options import WholeNumber, import_all, imports
from holdfast.core.errors import HoldfastError


@click.command("models")
@click.option("--shape", default="3x32x32", metavar="CxHxW", show_default=True, help="shape of one input")
@click.option("--classes", default=10, type=WholeNumber(low=1), show_default=True, help="number of classes")
@imports
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def command(shape: str, classes: int, imports: tuple[str, ...], as_json: bool) -> None:
    """List the networks with their parameters, MFLOP per sample and blocks, for one input shape."""
    import_all(imports)
    rows = describe_networks(read_shape(shape), classes)
    if as_json:
        click.echo(json.dumps(rows))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    title = f"Networks for inputs of {shape}"
    numbers = (Column(name, justify="right", no_wrap=True) for name in ("parameters", "MFLOP"))
    table = Table(
        Column("name", no_wrap=True), *numbers, "blocks", "description", title=title, title_justify="left",
        box=SIMPLE_HEAD, show_edge=False, pad_edge=False,
    )  # fmt: skip
    for r in rows:
        if "error" in r:
            table.add_row(r["name"], "-", "-", "-", r["error"])
        else:
            blocks = ", ".join(f"{n} {unit}{'s' * (n != 1)}" for unit, n in r["blocks"].items())
            table.add_row(r["name"], f"{r['parameters']:,}", f"{r['mflop']:,.1f}", blocks, r["text"])
    Console(markup=False, emoji=False).print(table)


def read_shape(text: str) -> tuple[int, ...]:
    """Read a shape such as ``3x32x32``."""
    parts = text.lower().split("x")
    if not all(p.isdigit() and int(p) > 0 for p in parts):
        raise HoldfastError(f"--shape {text}: expected whole numbers above 0 joined by x; use something like 3x32x32")
    return tuple(int(p) for p in parts)


def describe_networks(shape: tuple[int, ...], classes: int) -> list[dict[str, Any]]:
    """Return a row per network, with an error for those that do not accept the shape."""
    import torch

    from holdfast.core.errors import HoldfastError
    from holdfast.models.cost import mflops, parameters
    from holdfast.models.net import Net
    from holdfast.models.zoo import TokenModel, make, models

    rows: list[dict[str, Any]] = []
    for name, cls in sorted(models().items()):
        text = (cls.__doc__ or "").strip().split("\n")[0]
        try:
            module = make(name, shape, classes)
            tokens = torch.zeros(2, *shape, dtype=torch.int64) if issubclass(cls, TokenModel) else None
            layout = Net(module, shape, classes, example=tokens).layout
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

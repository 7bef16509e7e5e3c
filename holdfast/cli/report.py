"""``holdfast report FOLDER``: a page that shows a run or a comparison."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="the page  [default: report.html in FOLDER]")
def command(folder: Path, out: Path | None) -> None:
    """Write one HTML page about the run or the comparison in FOLDER.

    It works offline. Its charts stand beside it as PNG and SVG, in a folder named after the page.
    """
    from holdfast.reports.page import report

    click.echo(f"the report is {report(folder, out)}")

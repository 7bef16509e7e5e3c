"""``holdfast report FOLDER``: a page about a run or a comparison."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="the HTML file to write; missing folders are made  [default: report.html in FOLDER]",
)
def command(folder: Path, out: Path | None) -> None:
    """Write an HTML page about the run or the comparison in FOLDER, finished or not.

    The page works offline. Its charts are also written as PNG and SVG, into a folder named after the page.
    """
    from holdfast.reports.page import report

    click.echo(f"the report is in {report(folder, out)}")

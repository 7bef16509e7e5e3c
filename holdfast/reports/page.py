"""``holdfast report``: one page about a run or a comparison that works offline, with its charts as images beside it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.comparison.study_schema import Study
from holdfast.comparison.tables import from_python, same_weights
from holdfast.core.errors import HoldfastError
from holdfast.reports import client_tables, page_tables, page_text, static_charts
from holdfast.reports.page_sections import sections
from holdfast.reports.study import read_study

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = files("holdfast.reports") / "templates"


def report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the page about the run or the comparison in a folder, finished or not.

    Args:
        folder: The folder of the run or comparison.
        out: The HTML file, by default ``report.html`` in ``folder``. The charts are written as PNG and SVG into a
            folder beside it, named after the page.

    Returns:
        The path of the page.
    """
    folder = Path(folder)
    study = read_study(folder)
    path = Path(out) if out is not None else folder / "report.html"
    if path.suffix.lower() not in (".html", ".htm"):
        raise HoldfastError(f"--out {path} must be an HTML file, such as report.html")
    image_folder = path.with_name(f"{path.stem}_files")
    try:
        image_folder.mkdir(parents=True, exist_ok=True)
        for old in (*image_folder.glob("*.png"), *image_folder.glob("*.svg")):
            old.unlink()
        path.write_text(html(study, image_folder), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise HoldfastError(f"cannot write the report {path}: {error.strerror}; choose another --out") from error
    return path


def html(study: Study, image_folder: Path) -> str:
    """Return the page, and write its charts as static images into a folder."""
    from jinja2 import Environment, StrictUndefined
    from plotly.offline import get_plotlyjs

    parts = sections(study)
    charts = [chart for part in parts for chart in part.charts]
    for chart in charts:
        static_charts.save(chart, image_folder)
    plotly, script = get_plotlyjs(), template_text("page.js")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template_text("page.html")).render(
        study=study,
        title=page_text.title(study),
        facts=page_text.facts(study),
        tiles=page_text.tiles(study),
        missing=page_text.missing(study),
        progress=page_tables.progress(study),
        results=page_tables.results(study),
        scores=page_tables.scores(study),
        never=page_text.never(study),
        from_python=from_python(study),
        same_weights=same_weights(study),
        setup=page_text.setup(study),
        made=page_text.made(study),
        lead=page_text.results(study),
        remarks=page_text.result_remarks(study),
        breakable=breakable,
        foot=page_text.foot(study),
        sections=parts,
        over_clients=client_tables.spread_over_clients(study),
        by_client=client_tables.clients_by_name(study),
        unscored=client_tables.unscored(study),
        few_clients=client_tables.OPEN,
        images={chart.key: data_uri(image_folder / f"{chart.key}.svg") for chart in charts},
        image_folder=image_folder.name,
        charts=[asdict(chart) for chart in charts],
        style=template_text("page.css"),
        plotly=plotly,
        script=script,
        hashes=[sha256(plotly), sha256(script)],
        hues=len(static_charts.HUES),
        lap=static_charts.lap,
    )


def breakable(label: str) -> Markup:
    """Return a text as HTML in which a sum may break between its parts, and before the settings of a part."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"(\+|\()(?=\S)", r"\1<wbr>", str(escape(label))))


def template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def sha256(script: str) -> str:
    """Return the hash by which the page's security policy allows a script; no other script may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def data_uri(path: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()

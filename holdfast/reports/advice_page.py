"""The page of ``holdfast advise``: one page that answers which method to use, and opens offline."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.advice import answer_text
from holdfast.advice.answer import Answer, Rival
from holdfast.comparison.score_text import ScoreText
from holdfast.core.errors import HoldfastError
from holdfast.reports.page import breakable, template_text
from holdfast.reports.static_charts import HUES, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "advice.html"


@dataclass(frozen=True)
class Row:
    """A line of a table on the page."""

    method: str
    cells: list[str]


def write_page(answer: Answer, folder: Path) -> Path:
    """Write the page about an answer into the folder of its race, and return its path."""
    path = folder / PAGE
    try:
        path.write_text(html(answer), encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"cannot write the page {path}: {error.strerror}") from error
    return path


def html(answer: Answer) -> str:
    """Return the page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(template_text("advice.html")).render(
        answer=answer,
        headline=answer_text.headline(answer),
        reasons=answer_text.reasons(answer),
        close=answer_text.close_rivals(answer),
        close_title=answer_text.CLOSE,
        again=answer_text.again(answer),
        raced=[raced_row(rival, answer) for rival in answer.raced],
        screened=screened_rows(answer),
        chart=data_uri(chart(answer)) if answer.confirmation else "",
        breakable=breakable,
        style=template_text("page.css"),
    )


def raced_row(rival: Rival, answer: Answer) -> Row:
    """Return the line of a method that was raced."""
    text = ScoreText(answer.metric.percent, sign="%")
    gap = ScoreText(answer.metric.percent)
    behind = answer_text.behind(rival, gap) if rival.behind else "–"
    fate = f"fell out after {rival.out}" if rival.out else "to the end"
    return Row(rival.method, [f"{rival.lr:.3g}", text.value(rival.mean), str(rival.seeds), behind, fate])


def screened_rows(answer: Answer) -> list[Row]:
    """Return a line for every method of the screening, the best first."""
    text, sign = ScoreText(answer.metric.percent, sign="%"), -1 if answer.metric.higher_is_better else 1
    found = sorted((answer.baseline, *answer.screened), key=lambda s: (s.score is None, sign * (s.score or 0.0)))
    return [
        Row(
            s.method,
            [f"{s.lr:.3g}{' (edge)' if s.at_edge else ''}", text.value(s.score) if s.score is not None else "diverged"],
        )
        for s in found
    ]


def chart(answer: Answer) -> Figure:
    """Draw the leader and FedAvg on fresh seeds: a line per seed."""
    import matplotlib
    from matplotlib.figure import Figure

    found, scale = answer.confirmation, 100 if answer.metric.percent else 1
    assert found is not None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.2, 0.42 * len(found.seeds) + 1.2), layout="constrained", facecolor="white")
        ax = figure.subplots()
        ax.spines[["top", "right", "left"]].set_visible(False)
        for row, (own, other) in enumerate(zip(found.scores, found.baseline, strict=True)):
            if own is not None and other is not None:
                ax.plot([scale * other, scale * own], [row, row], color=HUES[0], linewidth=1.5, zorder=1)
        for scores, hue, label in (
            (found.baseline, HUES[0], "FedAvg"),
            (found.scores, HUES[1], answer.raced[0].method),
        ):
            known = [(scale * score, row) for row, score in enumerate(scores) if score is not None]
            ax.scatter([x for x, _ in known], [y for _, y in known], s=36, color=hue, label=label, zorder=2)
        ax.set_yticks(range(len(found.seeds)), [f"seed {seed}" for seed in found.seeds])
        ax.invert_yaxis()
        ax.set_xlabel(f"test {answer.metric.spoken}" + (" [%]" if answer.metric.percent else ""))
        ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


def data_uri(figure: Figure) -> str:
    """Return a figure as an image that stands in the page itself."""
    import matplotlib

    image = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(image, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(image.getvalue()).decode()

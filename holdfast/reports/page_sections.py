"""The sections of the page: which charts it shows, and a sentence or two above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.comparison.labels import slug
from holdfast.comparison.study_schema import Study, StudyEntry
from holdfast.comparison.tables import NEVER, splits_of_seeds
from holdfast.method.config import with_role
from holdfast.method.config_text import setting_to_text
from holdfast.reports import charts, formatting, static_charts
from holdfast.reports.charts import BarChart, Chart
from holdfast.reports.client_charts import client_charts
from holdfast.reports.page_text import never
from holdfast.reports.sweep_charts import sweep_charts

WARM_UP = "Time leaves the warm-up out: a run's first round counts as the median of its others if it took longer."
HOLLOW = f"A hollow bar with {NEVER} at its end is the mean over the seeds that reached the target; the others did not."


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        id: Its anchor.
        title: Its heading.
        lead: The text below the heading.
        charts: Its charts.
        columns: How many charts are side by side if the window is wide enough.
    """

    id: str
    title: str
    lead: str
    charts: Sequence[Chart]
    columns: int = 1


def sections(study: Study) -> list[Section]:
    """Return the sections that have charts."""
    ends, spoken = diverged(study), study.goes_by.spoken
    losses = ("loss", "Loss") if study.metric != "loss" else ("training", "Training loss")
    curves = " ".join([*curve_text(study), *ends])
    costs = charts.costs(study)
    drift = " ".join(["How the clients of a round drift apart, round by round.", *ends])
    every = [
        Section(slug(study.metric), f"{spoken[0].upper()}{spoken[1:]}", curves, charts.scores(study)),
        Section("sweep", "Sweep", sweep_text(study), sweep_charts(study)),
        Section(losses[0], losses[1], curves, charts.losses(study), columns=2),
        Section("cost", f"Cost to reach a target {spoken}", cost_text(study, costs), costs, cost_columns(study)),
        Section("classes", "Classes", "", charts.by_class(study)),
        Section("clients", "Clients", client_text(study), client_charts(study), columns=2),
        Section("split", "Split", split_text(study), charts.split(study)),
        Section("drift", "Drift", drift, charts.drift(study) + charts.feature_norms(study), columns=2),
    ]
    return [section for section in every if section.charts]


def curve_text(study: Study) -> list[str]:
    if len(study.seeds) == 1:
        return []
    whole = study.progress is None and not any(map(ends_early, study.entries))
    runs = f"{len(study.seeds)} seeds" if whole else "the runs that have reached a round"
    return [f"Lines are means over {runs}; bands show one standard deviation."]


def ends_early(entry: StudyEntry) -> bool:
    """Tell whether some run of an entry stopped before the others."""
    return any(None in row for row in entry.curves.train_loss) and not entry.diverged


def sweep_text(study: Study) -> str:
    bands = " Bands show one standard deviation over seeds." if len(study.seeds) > 1 else ""
    flat = any(name not in e.settings for name in study.sweep for e in study.entries)
    alike = " The line of a method that does not have the parameter is flat." if flat else ""
    return f"Final {study.goes_by.spoken} against each swept setting.{bands}{alike}"


def cost_text(study: Study, costs: Sequence[BarChart]) -> str:
    means = ["Bars are means over all seeds."] if len(study.seeds) > 1 else []
    hollow = any(True in bar.hollow for chart in costs for bar in chart.series)
    spoken = study.goes_by.spoken
    at_most = [] if study.higher_is_better else [f"A target is reached once the {spoken} is at most that."]
    return " ".join([*at_most, *never(study), *means, *[HOLLOW] * hollow, WARM_UP])


def cost_columns(study: Study) -> int:
    """Return one column if there are more methods than colours: the bars need space for names."""
    return 1 if len(study.entries) > len(static_charts.HUES) else 3


def diverged(study: Study) -> list[str]:
    """Say where the lines end of methods with seeds that diverged."""
    sentences = []
    for e in study.entries:
        end = charts.end(study, e)
        seeds = f"{len(e.diverged)} of {formatting.plural(len(study.seeds), 'seed')} diverged"
        where = f"its line ends at round {end}, the last that all of them finished" if end else "it has no line"
        sentences += [f"{e.label}: {seeds}, so {where}."] if e.diverged else []
    return sentences


def client_text(study: Study) -> str:
    means = [e.clients for e in study.entries if e.clients is not None]
    own = "Every client's model is scored on test samples of the client's own, which nobody trains on."
    return " ".join([own, *curve_text(study)]) if means else ""


def split_text(study: Study) -> str:
    """Say which seed and which point of a sweep the split belongs to."""
    first, seeds = study.entries[0].settings, study.seeds
    point = [f"{name} {setting_to_text(first[name])}" for name in study.sweep if name in with_role("federation")]
    one = splits_of_seeds(study)[:1] != ["a split per seed"]
    which = ", ".join(point + ([] if one else [f"seed {seeds[0]}"]))
    others = " Other points of the sweep have another split." if point else ""
    first_words = f"How the data is split among the clients{f' ({which})' if which else ''}.{others}"
    return " ".join([first_words, *(study.split.left_out or [])])

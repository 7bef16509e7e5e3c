"""The tables and notes of a search, for the terminal and as Markdown."""

from __future__ import annotations

from holdfast.comparison.part_sweeps import value_to_text
from holdfast.comparison.score_text import NONE, ScoreText
from holdfast.comparison.table_texts import escaped_markdown, markdown_table
from holdfast.comparison.tables import number
from holdfast.comparison.text_table import TextTable
from holdfast.tuning.tune_schema import TunedEntry, TuneStudy

EDGE = "at the edge of its range: {edge}: a wider --search may do better"
CHOSEN = (
    "chosen by validation {metric} with seed {seed}; the test data were used by the fresh seeds alone, which vary the "
    "initialisation, the cohorts and the batches, and not who holds which data (split seed {split_seed})"
)
HALVED = "rungs: {entrants} trials ran to rounds {rungs}; every method may take {rounds} rounds in its search"
WHOLE = "{trials} trials ran all {rounds} rounds"
IMPORTANCE = "importance: share in the variation of the scores after round {rung}, over all trials (fANOVA)"
DIVERGED = "{method}: {diverged} of {trials} trials diverged"


def tune_tables(study: TuneStudy) -> list[TextTable]:
    """Return scores on fresh seeds, best settings, and what each method was given."""
    return [scores_table(study), settings_table(study), budget_table(study)]


def scores_table(study: TuneStudy) -> TextTable:
    """Return the test scores of the best settings on fresh seeds."""
    metric = study.goes_by
    text, sign = ScoreText(metric.percent), " %" if metric.percent else ""
    several = len(study.entries) > 1
    head = ["method", f"test{sign}", "95% interval", f"validation{sign}"]
    head += ["difference", "its 95% interval", "verdict"] if several else []
    rows = []
    for e in study.entries:
        row = [e.method, text.spread(e.test) if e.best else "diverged", interval(e, text), text.value(e.validation)]
        d = e.difference
        compared = [text.difference(d.mean), text.interval(d), e.verdict or NONE] if d else [NONE] * 3
        rows.append(row + (compared if several else []))
    seeds = study.plan.seeds
    between = " and " if len(seeds) == 2 else " to "
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}{between}{seeds[-1]}"
    direction = "" if metric.higher_is_better else " (lower is better)"
    spare = ("validation" + sign, "its 95% interval")
    return TextTable(f"Test {metric.spoken} of the best setting, {which}{direction}", head, rows, spare=spare)


def interval(entry: TunedEntry, text: ScoreText) -> str:
    """Write the interval of a mean."""
    if entry.low is None or entry.high is None:
        return NONE
    return f"[{text.value(entry.low)}, {text.value(entry.high)}]"


def settings_table(study: TuneStudy) -> TextTable:
    """Return the best value of every searched parameter, with its range and its importance."""
    rows = []
    for e in study.entries:
        for axis in study.plan.spaces[e.method] if e.best else ():
            share = None if e.importance is None else e.importance.get(axis.name)
            value = value_to_text(axis.name, (e.best or {})[axis.name])
            rows.append([e.method, axis.name, value, str(axis).partition("=")[2], percent(share)])
    return TextTable(
        "Best settings", ["method", "parameter", "best", "searched", "importance"], rows, spare=("searched",)
    )


def percent(share: float | None) -> str:
    """Write a share."""
    return NONE if share is None else f"{100 * share:.0f} %"


def budget_table(study: TuneStudy) -> TextTable:
    """Return what each method was given, and what it used."""
    rows = []
    for e in study.entries:
        finished = sum(study.plan.rungs[-1] == t.last_rung for t in e.trials)
        counts = [len(e.trials), finished, e.diverged, len(study.plan.spaces[e.method]), e.rounds]
        rows.append([e.method, *map(str, counts), number(e.seconds)])
    head = ["method", "trials", "to the end", "diverged", "parameters", "rounds", "s"]
    return TextTable("Budget of the search", head, rows, spare=("s", "diverged"))


def tune_notes(study: TuneStudy) -> list[str]:
    """Return what a reader must know besides the numbers."""
    plan = study.plan
    lines = [f"{e.method}: {EDGE.format(edge=edge)}" for e in study.entries for edge in e.edges]
    lines += [
        DIVERGED.format(method=e.method, diverged=e.diverged, trials=len(e.trials)) for e in study.entries if e.diverged
    ]
    lines.append(
        CHOSEN.format(metric=study.goes_by.spoken, seed=plan.search_seed, split_seed=plan.settings["split_seed"])
    )
    lines.append(rungs_note(study))
    if any(e.importance for e in study.entries):
        lines.append(IMPORTANCE.format(rung=plan.rungs[0]))
    return lines


def rungs_note(study: TuneStudy) -> str:
    """Say how far trials ran, and that every method was given the same."""
    plan, most = study.plan, max(study.entries, key=lambda e: len(e.trials))
    if len(plan.rungs) == 1:
        return WHOLE.format(trials=len(most.trials), rounds=plan.rungs[0])
    reached = [sum(str(rung) in t.scores for t in most.trials) for rung in plan.rungs]
    return HALVED.format(
        entrants=listed_numbers(reached), rungs=listed_numbers(plan.rungs), rounds=max(e.rounds for e in study.entries)
    )


def listed_numbers(numbers: list[int]) -> str:
    """Write numbers as a list.

    >>> listed_numbers([27, 9, 3])
    '27, 9 and 3'
    """
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def tune_title(study: TuneStudy) -> str:
    """Return one line on what was searched."""
    s = study.plan.settings
    split = f"{s['split']} over {s['clients']} clients"
    return f"{s['data']}, {split}; {s['model']}, {s['rounds']} rounds; sampler {study.plan.sampler}"


def tune_markdown(study: TuneStudy, picture: str) -> str:
    """Return the tables, notes and commands as Markdown.

    Args:
        study: The search.
        picture: The file name of its picture.

    Returns:
        The text.
    """
    command = f"`{study.command}`" if study.command else "Started from Python with objects of its own."
    parts = ["# Search for the best settings", escaped_markdown(tune_title(study)), escaped_markdown(command)]
    for table in tune_tables(study):
        parts += [f"## {escaped_markdown(table.title)}", markdown_table(table.head, table.rows)]
    parts += ["## Notes", "\n".join(f"- {escaped_markdown(line)}" for line in tune_notes(study))]
    commands = [e.command for e in study.entries if e.command]
    parts += ["## Train with the best settings", "```sh\n" + "\n".join(commands) + "\n```"] if commands else []
    return "\n\n".join([*parts, f"![Scores of all trials]({picture})"]) + "\n"

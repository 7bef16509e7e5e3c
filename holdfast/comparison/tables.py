"""A comparison as tables of text, and the notes that belong to them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.comparison.client_spread import spread_tables
from holdfast.comparison.part_sweeps import value_to_text
from holdfast.comparison.score_text import NONE, ScoreText
from holdfast.comparison.stats import ACCURACY, leaders, same_mean
from holdfast.comparison.study_schema import Study, StudyEntry, TargetCost
from holdfast.comparison.sweep_edges import edges
from holdfast.comparison.text_table import TextTable, label_of, percent_sign
from holdfast.data.usual_split import GIVEN
from holdfast.method.config import with_role
from holdfast.method.config_text import setting_to_text
from holdfast.runs.explosion import explanation

NEVER = "∞"
OPTIMISTIC = (
    "The best point of a sweep was chosen by its {metric} on the test data, which makes that {metric} optimistic. Run "
    "the chosen points again with new seeds (--first-seed) before you report them, or choose by --validation 0.1."
)
BY_VALIDATION = (
    "The best point of a sweep was chosen by its final {metric} on the validation data; the test data had no part in "
    "the choice."
)
ONE_SEED = "With one seed there is no interval, no test and no verdict: use --seeds 5."
NO_SCIPY = (
    "There are no intervals and tests because scipy is not installed. Install it, then add them with `holdfast compare "
    "--tables FOLDER`."
)
LEAK = "Rows marked LEAK use test data in training: their {metric} is meaningless."
MANY = "Each interval is computed on its own: of 20 methods that change nothing, one is expected to look different."
SAME_WEIGHTS = (
    "The model is an object from Python, and every seed starts from its weights: pass a factory, such as the class "
    "{model}, for weights of its own in each seed."
)
CLOCK = (
    "Seconds{kappa} are wall-clock time over whole rounds, including evaluation and the warm-up and compilation in a "
    "run's first round. Compare methods by rounds and MB. Seconds to reach a target leave the warm-up out: a run's "
    "first round counts as the median of its others if it took longer."
)
VIRTUAL = (
    "Virtual seconds are those of the virtual clock: what the rounds would take with clients as fast as "
    "--client-speeds says."
)
RATIOS = "κ and ρ are means of each seed's ratio, not ratios of the means."
TIE = "their means are shown as the same, or the 95% interval of their paired difference includes 0."
DESCRIBED = (*with_role("headline", "cohort"), "split_seed")  # settings described in other words
MANY_FROM = 5  # differences from which ``MANY`` is worth a note


def tables(study: Study) -> list[TextTable]:
    """Return the tables of the terminal, and accuracy by class."""
    return [*short_tables(study), *classes(study)]


def short_tables(study: Study) -> list[TextTable]:
    """Return scores and differences, other scores and cost, and as far as there are such, the cost to reach the targets
    and scores by client."""
    return [scores(study), cost(study), *([targets(study)] if study.targets else []), *spread_tables(study)]


def scores(study: Study) -> TextTable:
    """Return final scores and differences; the last row is the floor."""
    text = ScoreText(study.percent)
    several = len({e.difference.to for e in study.entries if e.difference}) > 1
    head = ["method", f"final{percent_sign(study)}", "difference", "95% interval", "p", "verdict"]
    head += ["compared with"] if several else []
    rows = []
    for e in study.entries:
        d = e.difference
        row = [label_of(e), text.spread(e.scores.final)]
        if e.diverged:
            row[1] = f"diverged ({len(e.diverged)} of {len(e.runs)} seeds)"
        row += [text.difference(d.mean), text.interval(d), p_value(d.p), e.verdict or NONE] if d else [NONE] * 4
        rows.append(row + ([d.to if d else NONE] if several else []))
    if study.floor is not None:
        rows.append([study.floor.name, text.value(study.floor.value), *[NONE] * (len(head) - 2)])
    title = f"Test {study.goes_by.spoken}{direction(study)}"
    return TextTable(title, head, rows, spare=("p", "compared with", "95% interval", "verdict"))


def direction(study: Study) -> str:
    """Say that lower scores are better, where they are."""
    return "" if study.higher_is_better else " (lower is better)"


def targets(study: Study) -> TextTable:
    head = ["method", *(ScoreText(study.percent, sign="%").target(target) for target in study.targets)]
    rows = [[label_of(e), *map(reached, e.targets)] for e in study.entries]
    what = "Rounds, virtual seconds, seconds and MB" if has_clock(study) else "Rounds, seconds and MB"
    title = f"{what} {until(study)} ({NEVER}: not within the run)"
    return TextTable(title, head, rows, spare=tuple(head[1:-1]))


def until(study: Study) -> str:
    """Say what reaching a target means."""
    if study.metric == ACCURACY.metric:
        return "to reach an accuracy"
    return f"until {study.goes_by.spoken} is {'at least' if study.higher_is_better else 'at most'}"


def cost(study: Study) -> TextTable:
    """Return other scores and the cost of whole runs; κ and ρ belong to accuracy."""
    text, ratios, clock = ScoreText(study.percent), has_ratios(study), has_clock(study)
    rows = []
    for e in study.entries:
        megabytes = None if e.bytes.mean is None else e.bytes.mean / 1e6
        means = [e.virtual.mean if e.virtual else None] * clock + [e.seconds.mean, megabytes]
        means += [None if r is None else r.mean for r in (e.kappa, e.rho)] if ratios else []
        rows.append([label_of(e), text.spread(e.scores.best), text.spread(e.scores.last5), *map(number, means)])
    explained = [f"best {chosen(study)}"]
    explained += ["κ: accuracy · 10⁴ per second, ρ: accuracy · 10⁴ per MB"] if ratios else []
    last = f"last {last_scores(study)}{' (%)' * study.percent}"
    head = ["method", f"best{percent_sign(study)}", last, *["virtual s"] * clock, "s", "MB", *["κ", "ρ"] * ratios]
    title = f"Other scores and cost ({'; '.join(explained)})"
    return TextTable(title, head, rows, spare=("ρ", "κ", "MB", "s", "virtual s"))


def has_ratios(study: Study) -> bool:
    """Tell whether a study has κ and ρ."""
    return any(e.kappa is not None for e in study.entries)


def has_clock(study: Study) -> bool:
    """Tell whether a study has times on a virtual clock."""
    return any(e.virtual is not None for e in study.entries)


def chosen(study: Study) -> str:
    """Say what the best round was chosen by."""
    return "round by validation" if study.chosen_on == "validation" else "round chosen on test data"


def classes(study: Study, most: int = 20) -> list[TextTable]:
    if len(study.classes) > most or not any(e.by_class for e in study.entries):
        return []
    rows = []
    for e in study.entries:
        mean = e.by_class.mean if e.by_class else None
        cells = [NONE] * len(study.classes) if mean is None else [percent_of(m) for m in mean]
        rows.append([label_of(e), *cells])
    return [TextTable("Final accuracy by class, %", ["method", *study.classes], rows)]


def notes(study: Study) -> list[str]:
    """Return what a reader must know besides the numbers."""
    differences = [e.difference for e in study.entries if e.difference]
    lines = [f"{e.label}, seed {d.seed}: diverged, {d.why}" for e in study.entries for d in e.diverged]
    lines += [f"{e.label}, seed {x.seed}: {explanation(x.round)}" for e in study.entries for x in e.exploded]
    if len(study.seeds) == 1:
        lines.append(ONE_SEED)
    elif differences and all(d.low is None for d in differences):
        lines.append(NO_SCIPY)
    elif len(differences) >= MANY_FROM:
        lines.append(MANY)
    lines += leading(study)
    if study.best_points:
        lines += best_point_lines(study)
        lines += [*edges(study), how_chosen(study)]
    lines += filter(None, [same_weights(study)])
    lines += [LEAK.format(metric=study.goes_by.spoken)] if any(e.leaks_test_data for e in study.entries) else []
    clock = CLOCK.format(kappa=", and therefore κ," if has_ratios(study) else "")
    virtual = [VIRTUAL] * has_clock(study)
    return [*lines, clock, *virtual, *([RATIOS] if len(study.seeds) > 1 and has_ratios(study) else [])]


def leading(study: Study) -> list[str]:
    """Name the methods that tie for the best final score; nothing if there is no tie."""
    tied = [e.label for e in leaders(candidates(study), study.goes_by)]
    if len(tied) < 2 or len(study.entries) < 2:
        return []
    which = "highest" if study.higher_is_better else "lowest"
    return [f"{listed(tied)} tie for the {which} final {study.goes_by.spoken}: {TIE}"]


def candidates(study: Study) -> list[StudyEntry]:
    """Return the entries of which one may be called the best: in a sweep the best points, else all complete ones."""
    complete = [e for e in study.entries if e.complete]
    return [e for e in complete if not study.best_points or e.label in study.best_points.values()]


def best_point_lines(study: Study) -> list[str]:
    """Name the best point of every method that has several, and the points with the same mean."""
    lines, metric = [], study.goes_by
    for method, label in (study.best_points or {}).items():
        points = [e for e in study.entries if e.method == method]
        if len(points) == 1:
            continue
        best = next(e for e in points if e.label == label)
        same = [
            e.label for e in points if e is not best and same_mean(e.scores.chosen_by, best.scores.chosen_by, metric)
        ]
        lines.append(f"best point of {method}: {label}" + (f", with the same mean as {listed(same)}" if same else ""))
    return lines


def how_chosen(study: Study) -> str:
    """Say what the best points of a sweep were chosen by."""
    text = BY_VALIDATION if study.chosen_on == "validation" else OPTIMISTIC
    return text.format(metric=study.goes_by.spoken)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return names as a list in a sentence, with semicolons if there are commas in them.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a, b and c', 'a, b, c and 3 more')
    >>> listed(["a, lr=1", "b"])
    'a, lr=1; and b'
    """
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    gap, last = (", ", " and ") if not any(", " in name for name in names) else ("; ", "; and ")
    return names[0] if len(names) == 1 else gap.join(names[:-1]) + last + names[-1]


def describe(study: Study) -> str:
    """Return one line on what was compared."""
    s, seeds = study.settings, study.seeds
    training = [s["model"]] if "model" in s else []
    training += [f"{s['rounds']} rounds"] if "rounds" in s else []
    training += [f"{name} {setting_to_text(value)}" for name, value in s.items() if name not in DESCRIBED]
    between = " and " if len(seeds) == 2 else " to "
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}{between}{seeds[-1]}"
    which = ", ".join([which, *splits_of_seeds(study)])
    parts = [", ".join([s["data"], *federation(s)]), ", ".join(training), *swept(study), which, study.device]
    return "; ".join(filter(None, parts))


def federation(settings: dict[str, Any]) -> list[str]:
    """Describe the split and the cohorts, as far as all runs share them."""
    clients = f"{settings['clients']} clients" if "clients" in settings else ""
    split = " over ".join(filter(None, (settings.get("split"), clients)))
    cohort = f"{settings['cohort']} per round" if settings.get("cohort") else ""
    if settings.get("participation"):
        cohort = f"each with probability {setting_to_text(settings['participation'])}"
    return [part for part in (split, cohort) if part]


def splits_of_seeds(study: Study) -> list[str]:
    """Say whether every seed has a split of its own; nothing if there is one seed, or if splits are swept."""
    if len(study.seeds) == 1 or "split_seed" in study.sweep:
        return []
    fixed = study.settings.get("split_seed")
    if fixed is not None:
        return [f"one split (split seed {fixed})"]
    return ["one split"] if study.settings.get("split") == GIVEN else ["a split per seed"]


def swept(study: Study) -> list[str]:
    """Describe what the runs do not share, such as ``swept split: iid, shards(2)``."""
    return [f"swept {name}: {values_text(name, values)}" for name, values in study.sweep.items()]


def values_text(name: str, values: Sequence[Any]) -> str:
    """List the values of a swept setting or parameter."""
    return ", ".join(value_to_text(name, value) for value in values)


def from_python(study: Study) -> str:
    """Say why no command makes a comparison again; empty where one does."""
    own = " and ".join(f"{what} ({name})" for what, name in study.own.items())
    return f"Started from Python with its own {own}: no command can repeat it." if own else ""


def same_weights(study: Study) -> str:
    """Say that all seeds start from the weights of one object, where they do."""
    model = study.own.get("model")
    return SAME_WEIGHTS.format(model=model) if model and len(study.seeds) > 1 else ""


# ------------------------------------------------------------------------------------------------ cells


def percent_of(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f}"


def p_value(p: float | None) -> str:
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def reached(cost: TargetCost) -> str:
    """Return rounds, seconds and megabytes as means over seeds; virtual seconds come first."""
    virtual = [] if cost.virtual is None else [cost.virtual]
    seeds = zip(cost.rounds, *virtual, cost.seconds, cost.bytes, strict=True)

    def means(known: Sequence[tuple[float, ...]]) -> str:
        rounds, *virtual, seconds, traffic = map(statistics.fmean, zip(*known, strict=True))
        shown = [f"{number(v)} virtual s" for v in virtual]
        return f"{number(rounds)} ({', '.join([*shown, f'{number(seconds)} s', f'{number(traffic / 1e6)} MB'])})"

    return unless_never([None if None in seed else seed for seed in seeds], means)


def unless_never(values: Sequence[Any], show: Callable[[Sequence[Any]], str]) -> str:
    """Show a cost seed by seed: infinite as soon as one seed never reached the target, with the others in brackets."""
    known = [v for v in values if v is not None]
    if not known:
        return NEVER
    return show(known) if len(known) == len(values) else f"{NEVER} ({len(known)} of {len(values)}: {show(known)})"


def last_scores(study: Study) -> str:
    """Return the number of evaluated rounds in the "mean of the last five": fewer where a run has fewer."""
    scored = [e for e in study.entries if e.scores.last5.mean is not None]
    counts = {min(5, len(e.curves.rounds)) for e in scored}
    low, high = min(counts, default=5), max(counts, default=5)
    return str(low) if low == high else f"{low} to {high}"

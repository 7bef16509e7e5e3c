"""A single run as a study: a comparison with one entry and one seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from holdfast.comparison.class_checks import checked_classes
from holdfast.comparison.plan import flags, metric_facts, notable_settings, shown_defaults
from holdfast.comparison.plan_schema import DataFacts
from holdfast.comparison.result import EntryRuns, made, measured, study_entry, targets_of, with_engine
from holdfast.comparison.stats import reach
from holdfast.comparison.stored_run import StoredRun
from holdfast.comparison.study_schema import ClientCounts, MetricFacts, Study
from holdfast.core.errors import HoldfastError
from holdfast.core.shell_words import command_line
from holdfast.core.typed_json import JsonMismatch, from_json
from holdfast.method.config import Config
from holdfast.method.config_text import config_to_toml
from holdfast.metrics.metric_names import metric_named
from holdfast.runs.client_table import read_client_table
from holdfast.runs.folder import RunFolder, stored_names
from holdfast.runs.history import read_history, summarize
from holdfast.runs.loss_jumps import jumps
from holdfast.runs.provenance import made_of
from holdfast.runs.run_files import HISTORY, SPLIT, SUMMARY
from holdfast.runs.session_objects import session_objects
from holdfast.runs.summary_file import check_length, read_summary

WRITE_AGAIN = "delete it; --resume writes it again"
LEFT_OUT = 10  # clients named on a page because their updates were left out
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # those that the run reached are shown


def study_of_run(folder: Path) -> Study:
    """Read the run in a folder, finished or as far as it is."""
    config = RunFolder(folder).stored()
    run = read_any_run(folder, config)
    metric = metric_of_run(run, config)
    targets = targets_of_run(run, metric)
    facts = read_facts(folder / SPLIT) if (folder / SPLIT).exists() else DataFacts([], None)
    by_class = run.get("accuracy_by_class") or []
    own = {} if config.imports else session_objects(config)  # what is imported may be named by the command
    study = Study(
        **made([run]),
        **measured([run], metric),
        command=None if own else run_command(config),
        own=own,
        settings=notable_settings(config, config.cohort_size if config.participation is None else None),
        defaults=with_engine(shown_defaults(config), [run]),
        seeds=[config.seed],
        targets=targets,
        classes=facts.classes or [str(c) for c in range(len(by_class))],
        split=ClientCounts(facts.counts, facts.names, left_out(run, stored_names(folder))),
        entries=[study_entry(EntryRuns(config.method, config.method, {}, {".": run}), None, targets, metric)],
        config=config_to_toml(config),
        rounds_done=len(run.history),
        stopped_early=run.get("stopped_early"),
    )
    return checked_classes(study, folder / SPLIT, WRITE_AGAIN)


def metric_of_run(run: StoredRun, config: Config) -> MetricFacts:
    """Return what a run goes by."""
    metric = metric_named(config.metric or run.summary["metric"])
    return metric_facts(metric, run.summary.get("task", MetricFacts.task))


def targets_of_run(run: StoredRun, metric: MetricFacts) -> list[float]:
    """Return those of the fixed targets that the run reached; where these make no sense, the usual ones."""
    if not (metric.percent and metric.higher_is_better):
        return targets_of([EntryRuns("", "", {}, {"": run})], metric)
    return [t for t in TARGETS if reach(run.history, t, metric)[0] is not None]


def read_any_run(folder: Path, config: Config) -> StoredRun:
    """Read a run with its summary, or with a summary of the rounds so far."""
    path = folder / HISTORY
    try:
        rounds = path.read_bytes().count(b"\n")
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; give the folder of a run") from error
    records = read_history(path, rounds)
    if not records:
        raise HoldfastError(f"the run in {folder} has no rounds yet: report it after its first round")
    measured = next((name for r in records for name in r.test), "accuracy")
    summary = summarize(records, metric_named(config.metric or measured))
    if (folder / SUMMARY).exists():
        summary |= (stored := read_summary(folder, WRITE_AGAIN))
        check_length(folder, len(records), stored, "start over with --overwrite")
        RunFolder(folder).check_finished("start over with --overwrite")
    return StoredRun(
        config.seed, [asdict(record) for record in records], summary, "", made_of(summary), read_client_table(folder)
    )


def left_out(run: StoredRun, name_of: Callable[[int], str]) -> list[str]:
    """Say which clients' updates were left out, those of most rounds first: they failed, were not finite, or late; and
    what else was unusual.
    """
    failed = Counter(int(i) for line in run.history for i in line.get("failed", {}))
    skipped = Counter(int(i) for line in run.history for i in line.get("skipped", ()))
    why = {int(i): text for line in run.history for i, text in line.get("failed", {}).items()}
    late = Counter(int(i) for line in run.history for i in line.get("late", ()))
    sentences = []
    for client, many in (failed + skipped).most_common(LEFT_OUT):
        times = "once" if many == 1 else f"in {many} rounds"
        reason = why.get(client, "it was not finite")
        sentences.append(f"The update of client {name_of(client)} was left out {times}: {reason}.")
    others = len(failed + skipped) - len(sentences)
    sentences += [f"So were updates of {others} more clients."] * (others > 0)
    for client, many in late.most_common(LEFT_OUT):
        sentences.append(f"Client {name_of(client)} was late {'once' if many == 1 else f'in {many} rounds'}.")
    return [*sentences, *unusual(run, name_of)]


def unusual(run: StoredRun, name_of: Callable[[int], str]) -> list[str]:
    """Say in which rounds the loss jumped, and whose updates were far longer than the median's."""
    trained = [line for line in run.history if len(line["cohort"]) > len(line.get("late") or ())]
    rounds = [str(trained[place - 1]["round"]) for place in jumps([line["train_loss"] for line in trained])]
    sentences = [f"The training loss jumped in round{'s' * (len(rounds) > 1)} {', '.join(rounds)}."] if rounds else []
    far = Counter(int(i) for line in run.history for i in line.get("far") or ())
    for client, many in far.most_common(LEFT_OUT):
        times = "once" if many == 1 else f"in {many} rounds"
        sentences.append(f"The update of client {name_of(client)} was far longer than the median's {times}.")
    return sentences


def run_command(config: Config) -> str:
    """Return the command that makes this run again."""
    config = config.changed(split_seed=None) if config.split_seed == config.seed else config
    return command_line(["holdfast", "run", config.method, *flags(config, ("method",))])


def read_facts(path: Path) -> DataFacts:
    """Read ``split.json``: the classes, and the samples per client and class unless there are too many clients."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return from_json(DataFacts, {"counts": None} | value if isinstance(value, dict) else value)
    except OSError as error:
        raise HoldfastError(f"cannot read {path}: {error.strerror}; {WRITE_AGAIN}") from error
    except JsonMismatch as error:
        raise HoldfastError(f"{path} is damaged, {error}: {WRITE_AGAIN}") from error
    except ValueError as error:
        raise HoldfastError(f"{path} is damaged, it is not valid JSON: {WRITE_AGAIN}") from error

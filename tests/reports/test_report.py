"""``holdfast report``: what the page says, its files, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import statistics
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import holdfast
from helpers.commands import call, good, lines
from helpers.studies import EVIL, lucky, study, typed, write
from holdfast.cli.compare import command as compare_command
from holdfast.cli.options import given
from holdfast.cli.run import command as run_command
from holdfast.comparison import tables as terminal
from holdfast.comparison.compare import tabulate
from holdfast.comparison.observers import Observer
from holdfast.comparison.planned_run import PlannedRun
from holdfast.comparison.score_text import ScoreText
from holdfast.comparison.single_run import TARGETS, study_of_run
from holdfast.comparison.stats import spread
from holdfast.comparison.study_schema import Study, StudyEntry, TargetCost
from holdfast.comparison.tables import NEVER
from holdfast.method.config import FIELDS
from holdfast.method.config_text import config_to_toml
from holdfast.reports import charts, page_tables, static_charts
from holdfast.reports.formatting import percent
from holdfast.reports.page_sections import HOLLOW, cost_columns, diverged, split_text
from holdfast.reports.page_text import facts, missing, tiles
from holdfast.reports.study import read_study
from holdfast.training.drift import MEASURES
from holdfast.training.round_record import RoundRecord

CURVES = ("test", "test_loss", "train_loss")


class Reader(HTMLParser):
    """The texts and the elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.code = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.code = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.code = False

    def handle_data(self, data: str) -> None:
        if not self.code:
            self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(t for t in self.texts if t)

    def links(self) -> list[str]:
        return [a[k] or "" for _, a in self.tags for k in ("href", "src") if k in a]


def read(path: Path) -> Reader:
    return Reader(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "a"
    holdfast.run("fedbug(0.4)", out=folder, drift=True, rounds=12, epochs=2, split="dirichlet(0.2)", lr=0.2)
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison, with its report."""
    folder = write(tmp_path_factory.mktemp("compare"), study())
    holdfast.report(folder)
    return folder


# -- what the page says ----------------------------------------------------------------------------------------------
def test_a_run(ran: Path) -> None:
    page = holdfast.report(ran)
    assert page == ran / "report.html"
    found = read(page)
    summary = json.loads((ran / "summary.json").read_text())
    assert percent(summary["final"]) in found.text
    assert percent(summary["best"]) in found.text
    assert "dirichlet(0.2) over 20 clients" in found.text
    assert "each seed's ratio" not in found.text
    for measure in MEASURES:
        assert measure.meaning in found.text
    assert (ran / "config.toml").read_text().splitlines()[0] in found.text


def test_a_comparison(compared: Path) -> None:
    found = read(compared / "report.html")
    made = json.loads((compared / "compare.json").read_text())
    for e in made["entries"]:
        final = e["scores"]["final"]
        assert e["label"] in found.text
        assert f"{100 * final['mean']:.1f} ± {100 * final['std']:.1f} %" in found.text
    assert made["command"] in found.text
    assert "3 seeds" in found.text
    assert "including evaluation and the warm-up and compilation in a run's first round" in found.text
    assert "both times 10 000, and means of each seed's ratio." in found.text
    assert "Least time" not in found.text, "it would name the method that did not have to warm up"
    for measure in MEASURES:
        assert measure.meaning in found.text


def test_every_chart_has_static_images(compared: Path) -> None:
    found = read(compared / "report.html")
    plots = [
        a["id"].removeprefix("plot-")
        for tag, a in found.tags
        if tag == "div" and (a.get("id") or "").startswith("plot-")
    ]
    assert len(plots) == len(set(plots)) == 1 + 2 + 3 + 1 + 1 + len(MEASURES)
    beside = compared / "report_files"
    assert {p.name for p in beside.iterdir()} == {f"{key}.{kind}" for key in plots for kind in ("png", "svg")}
    for key in plots:
        assert f"report_files/{key}.png" in found.links()
        with Image.open(beside / f"{key}.png") as image:
            assert image.width > 1000
        assert ET.parse(beside / f"{key}.svg").getroot().tag.endswith("svg")
    inline = [link for link in found.links() if link.startswith("data:image/svg+xml")]
    assert len(inline) == len(plots)


def test_the_page_needs_nothing_else(compared: Path) -> None:
    found = read(compared / "report.html")
    assert all(link.startswith(("data:", "report_files/")) for link in found.links())
    assert not [tag for tag, a in found.tags if tag in ("link", "iframe", "object")]


def test_the_same_study_gives_the_same_page_anywhere(compared: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "mine.html"
    assert str(page) in good("report", str(compared), "--out", str(page)).out
    assert (tmp_path / "new" / "mine_files" / "accuracy.svg").exists()
    text = page.read_text(encoding="utf-8").replace("mine_files/", "report_files/")
    assert text == (compared / "report.html").read_text(encoding="utf-8")


def test_names_are_texts(tmp_path: Path) -> None:
    made = study(("fedavg", EVIL), seeds=1, rounds=2, drift=False)
    made["settings"] |= {"data": EVIL, "split": EVIL, EVIL: EVIL}
    made |= {"command": EVIL, "classes": [EVIL] * 10, "device": EVIL, "date": EVIL, "holdfast": EVIL, "torch": EVIL}
    page = holdfast.report(write(tmp_path, made))
    found = read(page)
    assert EVIL in found.text
    assert sum(tag == "script" for tag, _ in found.tags) == 3  # the data, plotly, and the page's own
    assert not [a for _, a in found.tags if "onerror" in a]
    svg = (tmp_path / "report_files" / "accuracy.svg").read_text()
    assert "<script" not in svg
    assert "".join(EVIL.split()) in "".join("".join(ET.fromstring(svg).itertext()).split()), "in full, on several lines"


# -- what there is ---------------------------------------------------------------------------------------------------
def test_what_is_missing_is_left_out(tmp_path: Path) -> None:
    made = study(seeds=1, rounds=2, drift=False, split={}, targets=[])
    for e in made["entries"]:
        e |= {"by_class": {"mean": None, "values": []}, "targets": [], "difference": None}
    found = read(holdfast.report(write(tmp_path, made)))
    ids = [a.get("id") for tag, a in found.tags if tag == "section"]
    assert ids == [None, "results", "accuracy", "loss", "setup"]
    assert "±" not in found.text


def test_a_method_that_diverged(tmp_path: Path) -> None:
    made = study(rounds=2, drift=False)
    worst = made["entries"][1]
    nothing = {"mean": None, "std": None, "values": [None] * 3}
    worst |= dict.fromkeys(("kappa", "rho", "seconds", "bytes"), nothing)
    worst |= {
        "difference": None,
        "by_class": {"mean": None, "values": [None] * 3},
        "scores": dict.fromkeys(("final", "best", "last5"), nothing),
    }
    made["entries"][2]["verdict"] = "no difference seen"
    worst |= {"diverged": [{"seed": s, "why": "NaN"} for s in range(3)], "leaks_test_data": True}
    worst["targets"] = [{"target": t, **dict.fromkeys(("rounds", "seconds", "bytes"), [None] * 3)} for t in (0.6, 0.9)]
    worst["curves"] = {"rounds": []} | {name: [[], [], []] for name in CURVES}
    found = read(holdfast.report(write(tmp_path, made)))
    assert "diverged with seed 2" in found.text
    assert "leaks test data: its accuracy is meaningless" in found.text
    assert "no difference seen" in found.text


def test_a_target_never_reached_has_the_sign_of_the_terminal(compared: Path) -> None:
    """The slowest methods do not reach 90 %: table and chart use the sign of the comparison's own tables."""
    made = read_study(compared)
    found = read(compared / "report.html")
    assert f"{NEVER}: not within the run." in found.text
    assert "never" not in found.text.lower()
    bars = {bar.label: bar for bar in charts.costs(made)[0].series}
    rows = {row.label: row for row in page_tables.results(made).rows}
    seen = set()
    for e in made.entries:
        for i, target in enumerate(e.targets):
            cell, small = rows[e.label].cells[2 + i]
            in_terminal = terminal.reached(target)
            seen.add(in_terminal.split()[0] == NEVER)
            assert (cell == NEVER) == in_terminal.startswith(NEVER)
            assert bars[e.label].texts[i] == (f"{cell} ({small[0]})" if small else cell)
    assert seen == {True, False}
    assert page_tables.reached([None, 3, 5]) == (NEVER, ["2 of 3: 4"])
    assert terminal.reached(TargetCost(0.9, [None, 3], [None, 1.0], [None, 10**6])) == (
        f"{NEVER} (1 of 2: 3.00 (1.00 s, 1.00 MB))"
    )


def test_the_mean_of_some_seeds_is_a_hollow_bar(tmp_path: Path) -> None:
    """Two of three seeds reached the target, sooner than any other method: an ordinary bar would look best."""
    made = lucky(study(drift=False))
    for chart in charts.costs(typed(made)):
        assert [bar.hollow for bar in chart.series] == [[False, False], [False, True], [False, False], [False, False]]
        assert chart.series[1].texts[1].startswith(f"{NEVER} (2 of 3: ")
        drawn = static_charts.draw(chart).axes[0].containers
        assert [[bar.get_facecolor()[3] < 0.2 for bar in own] for own in drawn[::2]] == [b.hollow for b in chart.series]
        assert [[bar.get_edgecolor()[3] == 1 for bar in own] for own in drawn[1::2]] == [b.hollow for b in chart.series]
    assert HOLLOW in read(holdfast.report(write(tmp_path, made))).text
    for e in made["entries"]:
        e["targets"][1] = e["targets"][0]
    page = read(holdfast.report(write(tmp_path, made))).text
    assert "Bars are means over all seeds." in page
    assert "hollow" not in page


def test_more_methods_than_colours_look_different(tmp_path: Path) -> None:
    """Chips, tables, lines and bars of the second eight differ from those of the first, all in the same place."""
    made = study(tuple(f"method{i}" for i in range(18)), seeds=1, rounds=3, drift=False)
    found = read(holdfast.report(write(tmp_path, made)))
    swatches = [a["class"] for tag, a in found.tags if tag == "i"]
    assert swatches[:18] == swatches[18:36] == swatches[36:], "chips, results, other scores"
    assert len({*swatches}) == 18
    lines = static_charts.draw(charts.scores(typed(made))[0]).axes[0].lines
    assert [line.get_linestyle() for line in lines] == ["-"] * 8 + ["--"] * 8 + [":"] * 2
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 18
    ax = static_charts.draw(charts.costs(typed(made))[0]).axes[0]
    hatches = [own[0].get_hatch() or "" for own in ax.containers[::2]]
    assert hatches == [""] * 8 + ["////"] * 8 + ["----"] * 2
    assert [e["label"] for e in made["entries"]] == [text.get_text().split()[-1] for text in ax.texts[::2]]
    assert [cost_columns(typed(study(tuple("abcdefghi"[:many]), seeds=1, rounds=1))) for many in (8, 9)] == [3, 1], (
        "space for names"
    )


def test_least_traffic_names_all_methods_with_the_least() -> None:
    made = study(drift=False)
    for e, most in zip(made["entries"], (2e6, 2e6, 2e6, 4e6), strict=True):
        e["bytes"] = {"mean": most, "std": 0.0, "values": [most] * 3}
    assert tiles(typed(made))[-1] == ("Least traffic", "2.0 MB", "fedavg, fedbug(0.4) and fednlr")
    made["entries"][-1]["bytes"] = made["entries"][0]["bytes"]
    assert tiles(typed(made))[-1] == ("Least traffic", "2.0 MB", "the same for all")


@pytest.mark.parametrize(("rounds", "last"), [(3, "3"), (9, "5")])
def test_the_mean_of_the_last_scores_says_of_how_many(tmp_path: Path, rounds: int, last: str) -> None:
    many = read(holdfast.report(write(tmp_path / "many", study(rounds=rounds, drift=False)))).text
    one = read(holdfast.report(write(tmp_path / "one", study(("fedavg",), rounds=rounds, drift=False)))).text
    for text in (many, one):
        assert f" Last {last} Time" in text
        assert f"the mean over the last {last} evaluated rounds" in text
    assert f"mean of the last {last}:" in one


def test_a_run_says_how_many_scores_its_mean_has(tmp_path: Path) -> None:
    args = ("run", "fedavg", "--model", "linear", "--clients", "4", "--cohort", "2", "--steps", "1")
    for rounds, last in (("2", 2), ("6", 5)):
        assert f"mean of the last {last} 0." in good(*args, "--rounds", rounds, "--out", str(tmp_path / rounds)).err


def test_a_sweep_says_what_its_points_are_compared_with(tmp_path: Path) -> None:
    settings = {"sweep": {"lr": [0.1, 0.2]}, "seeds": 2, "rounds": 1, "clients": 6, "cohort": 2, "steps": 1}
    two = holdfast.compare(["fedavg", "scaffold"], out=tmp_path / "two", **settings)
    one = holdfast.compare(["fedavg"], out=tmp_path / "one", **settings)
    assert two.entries[3]["difference"]["to"] == "fedavg, lr=0.2"
    assert (
        "Differences from the first method at the same point of the sweep are in percentage points"
        in read(holdfast.report(two.folder)).text
    )
    assert one.entries[1]["difference"]["to"] == "fedavg, lr=0.1"
    assert (
        "Differences from the first point on the same federation are in percentage points"
        in read(holdfast.report(one.folder)).text
    )


def test_a_sweep_is_not_described_by_defaults(tmp_path: Path) -> None:
    settings = {"seeds": 2, "clients": 6, "cohort": 2, "steps": 1}
    sweep = {"split": ["shards(2)", "iid"], "rounds": [1, 2], "lr": [0.1]}
    made = holdfast.compare(["fedavg"], out=tmp_path / "a", sweep=sweep, **settings)
    assert facts(made.study) == [
        "6 clients", "2 per round", "mlp", "swept split: shards(2), iid", "swept rounds: 1, 2", "swept lr: 0.1",
        "2 seeds", "a split per seed",
    ]  # fmt: skip
    page = read(holdfast.report(made.folder)).text
    assert "(split shards(2), seed 0). Other points of the sweep have another split." in page
    assert "split shards(2), iid (swept) rounds 1, 2 (swept)" in page
    assert not re.search(r"dirichlet|30 rounds", page)
    assert split_text(typed(study(seeds=1))) == "How the data is split among the clients."
    assert split_text(typed(study(sweep={"lr": [0.1, 0.2]}))) == "How the data is split among the clients (seed 0)."


# -- comparisons that are not finished -------------------------------------------------------------------------------
ROUNDS, SEEDS = 4, 2


def stopped(folder: Path, rounds: int, targets: list[float] | None = None) -> Path:
    """A comparison of three methods that is stopped after ``rounds`` rounds in all."""
    played: list[int] = []

    class Count(Observer):
        def round(self, task: PlannedRun, record: RoundRecord) -> None:
            played.append(record.round)

    holdfast.compare(
        ["fedavg", "fedbug(0.4)", "scaffold"], seeds=SEEDS, rounds=ROUNDS, clients=6, cohort=2, epochs=1, drift=True,
        out=folder, targets=targets, watch=Count(), stop=lambda: len(played) + 1 >= rounds,
    )  # fmt: skip
    assert len(played) == rounds
    assert not (folder / "compare.json").exists()
    return folder


def test_a_comparison_that_is_not_finished(tmp_path: Path) -> None:
    folder = stopped(tmp_path, rounds=4 * ROUNDS + 2)  # seed 0 of all, seed 1 of the first, half of the second's
    page = read(holdfast.report(folder)).text
    assert "4 of 6 runs are done; 1 is started, 1 is not started yet." in page
    assert "Results and costs need all seeds of a method: so far only fedavg has them." in page
    made = read_study(folder)
    assert [[r.label, *(text for text, _ in r.cells[:2])] for r in page_tables.progress(made).rows] == [
        ["fedavg", "2 of 2", "8 of 8"],
        ["fedbug(0.4)", "1 of 2", "6 of 8"],
        ["scaffold", "1 of 2", "4 of 8"],
    ]
    assert [r.label for r in page_tables.results(made).rows] == ["fedavg", "majority class"]
    assert [r.label for r in page_tables.scores(made).rows] == ["fedavg"]
    curves = {line.label: line for line in charts.scores(made)[0].series}
    history = {
        (m, s): [line["test"]["accuracy"] for line in lines(folder / m / f"seed-{s}")]
        for m, s in (("fedavg", 0), ("fedavg", 1), ("fedbug-0.4", 0), ("fedbug-0.4", 1), ("scaffold", 0))
    }
    for label, name in {"fedavg": "fedavg", "fedbug(0.4)": "fedbug-0.4", "scaffold": "scaffold"}.items():
        runs = [h for (m, _), h in history.items() if m == name]
        want = [statistics.fmean(run[t] for run in runs if t < len(run)) for t in range(ROUNDS)]
        assert curves[label].y == pytest.approx(want)
    assert len(charts.drift(made)[0].series) == 3
    for chart in charts.costs(made):
        assert [bar.label for bar in chart.series] == ["fedavg"]
    final = [history["fedavg", s][-1] for s in range(SEEDS)]
    assert ScoreText(True, 1, " %").spread(spread(final)) in page
    assert shlex.split(made.command)[-2:] == ["--out", str(folder)]


def test_the_command_to_resume_is_complete_and_appears_once(tmp_path: Path) -> None:
    asked = ["--targets", "0.3,0.125", "--jobs", "2", "--light"]
    settings = {"rounds": 2, "clients": 6, "cohort": 2, "epochs": 1, "out": tmp_path, "seeds": 2}
    more = {"targets": [0.3, 0.125], "jobs": 2, "light": True}
    one = holdfast.compare(["fedavg"], **settings, **more)
    assert shlex.split(one.record["command"])[-7:-2] == asked
    assert shlex.split(tabulate(tmp_path).record["command"])[-7:-2] == asked
    holdfast.compare(["fedavg", "fedbug"], **settings, **more, stop=lambda: True)
    made = read_study(tmp_path)
    assert made.progress is not None
    assert made.targets == [0.3, 0.125]
    words = shlex.split(made.command)
    assert words[-7:-2] == asked
    compare_command.make_context("compare", words[2:])  # it is understood
    assert read(holdfast.report(tmp_path)).text.count("holdfast compare") == 1
    holdfast.compare(["fedavg", "fedbug"], **settings)
    made = read_study(tmp_path)
    assert made.progress is None
    assert not {"--targets", "--jobs", "--light"} & {*shlex.split(made.command)}, "this time none was asked"
    assert read(holdfast.report(tmp_path)).text.count("holdfast compare") == 1


def test_a_comparison_without_a_finished_method(tmp_path: Path) -> None:
    folder = stopped(tmp_path, rounds=ROUNDS + 2, targets=[0.5])
    with (folder / "fedbug-0.4/seed-0/history.jsonl").open("a") as file:
        file.write('{"round": 3, "test_acc')  # being written
    found = read(holdfast.report(folder))
    assert "1 of 6 runs is done; 1 is started, 4 are not started yet." in found.text
    assert "Results and costs need all seeds of a method: so far no method has them." in found.text
    ids = [a.get("id") for tag, a in found.tags if tag == "section"]
    assert ids == ["missing", "accuracy", "loss", "split", "drift", "setup"]
    assert "· ·" not in read(holdfast.report(stopped(tmp_path / "young", rounds=2))).text, "no device is known yet"
    assert [line.label for line in charts.scores(read_study(folder))[0].series] == ["fedavg", "fedbug(0.4)"]


def test_a_comparison_that_grows_is_not_finished(tmp_path: Path) -> None:
    settings = {"rounds": 2, "clients": 6, "cohort": 2, "epochs": 1, "out": tmp_path}
    holdfast.compare(["fedavg", "scaffold"], seeds=1, **settings)
    assert missing(read_study(tmp_path)) == []
    holdfast.compare(["fedavg", "scaffold"], seeds=2, stop=lambda: True, **settings)
    assert missing(read_study(tmp_path))[0] == "2 of 4 runs are done; 1 is started, 1 is not started yet."
    holdfast.compare(["fedavg", "scaffold"], seeds=2, **settings)
    assert missing(read_study(tmp_path)) == []
    holdfast.compare(["fedavg", "scaffold", "fedbug"], seeds=2, stop=lambda: True, **settings)
    assert missing(read_study(tmp_path))[0] == "4 of 6 runs are done; 1 is started, 1 is not started yet."


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    stops = iter([False, True])
    holdfast.run("fedavg", out=tmp_path / "a", rounds=5, epochs=1, stop=lambda: next(stops))
    assert facts(study_of_run(tmp_path / "a"))[-1] == "2 of 5 rounds so far"


def test_a_run_on_your_own_data_shows_its_split(tmp_path: Path) -> None:
    data = holdfast.load("digits")
    federation = holdfast.federate(data, "shards(2)", clients=5)
    holdfast.run("fedavg", federation, out=tmp_path / "a", rounds=1, epochs=1)
    kept = json.loads((tmp_path / "a" / "split.json").read_text())
    assert kept["counts"] == federation.deal.counts(data.y.numpy(), 10).tolist()
    assert charts.split(study_of_run(tmp_path / "a"))[0].values == [
        list(map(float, c)) for c in zip(*kept["counts"], strict=True)
    ]


def test_large_federations_have_no_heat_map(tmp_path: Path) -> None:
    holdfast.run("fedavg", out=tmp_path / "a", rounds=1, epochs=1, clients=201, cohort=2, split="iid")
    assert "counts" not in json.loads((tmp_path / "a" / "split.json").read_text())
    assert not charts.split(study_of_run(tmp_path / "a"))


def test_the_targets_of_a_run_are_those_it_reached(ran: Path) -> None:
    found = study_of_run(ran)
    history = lines(ran)
    assert found.targets == [t for t in TARGETS if max(r["test"]["accuracy"] for r in history) >= t]
    assert found.targets
    for target in found.entries[0].targets:
        first = next(i for i, r in enumerate(history) if r["test"]["accuracy"] >= target.target)
        assert target.rounds == [history[first]["round"]]
        clock = [r["seconds"] for r in history]
        clock[0] = min(clock[0], statistics.median(clock[1:]))  # without warm-up
        assert target.seconds == [pytest.approx(sum(clock[: first + 1]))]
        assert target.bytes == [sum(r["upload_bytes"] + r["download_bytes"] for r in history[: first + 1])]


def test_the_command_makes_the_same_run(ran: Path) -> None:
    """The command line reads it back as exactly the settings of the run."""
    words = shlex.split(read_study(ran).command)
    assert words[:2] == ["holdfast", "run"]
    flags = run_command.make_context("run", words[2:]).params
    values = given({k: v for k, v in flags.items() if k in FIELDS})
    asked = holdfast.Config(**values)
    recorded = {"split_seed": asked.deal_seed, "normalisation": "published", "ran_on": "cpu"}
    decided = asked.changed(**recorded)
    assert config_to_toml(decided) == (ran / "config.toml").read_text()


def curved(rows: list[list[float | None]], **more: Any) -> tuple[Study, StudyEntry]:
    """A study, and its only entry, which has these curves."""
    made = study(("a",), seeds=len(rows), rounds=1, drift=False)
    rounds = [*range(1, len(rows[0]) + 1)]
    made["entries"][0] |= {"curves": {"rounds": rounds} | dict.fromkeys(CURVES, rows), **more}
    found = typed(made | {"seeds": [7, 8, 9][: len(rows)]})
    return found, found.entries[0]


def test_means_and_bands() -> None:
    study, entry = curved([[1.0, 2.0, None], [3.0, None, None]])
    (found,) = charts.scores(study)[0].series
    assert found.y == [2.0, 2.0, None], "of the runs that have reached the round"
    assert found.spread == [pytest.approx(2**0.5), None, None]
    high = charts.line(study, entry, 0, [1, 2, 3], [[1.0, 2.0, None], [None, None, None]])
    assert high.y == [None, 2.0, None], "an infinite loss has no mean"
    assert charts.line(study, entry, 0, [1, 3], [[1.0, None], [None, None]], charts.mean).y == [1.0, None]


def test_the_line_of_a_method_ends_where_its_first_seed_diverged() -> None:
    rows = [[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, None, None], [0.5, 0.6, 0.7, None]]
    drift = {"cosine": {"rounds": [1, 2, 3, 4], "values": rows}}
    study, _ = curved(rows, diverged=[{"seed": 8, "why": "NaN"}, {"seed": 9, "why": "NaN"}], drift=drift)
    for chart in (*charts.scores(study), *charts.losses(study), *charts.drift(study)):
        (found,) = chart.series
        assert (found.x, found.y) == ([1, 2], [pytest.approx(0.3), pytest.approx(0.4)]), "no mean over the other seeds"
    assert diverged(study) == [
        "a: 2 of 3 seeds diverged, so its line ends at round 2, the last that all of them finished."
    ]
    study, _ = curved([[0.1, 0.2], [None, None]], diverged=[{"seed": 8, "why": "NaN"}], drift=drift)
    assert not charts.scores(study)
    assert diverged(study) == ["a: 1 of 2 seeds diverged, so it has no line."]


def test_the_page_says_where_lines_end(tmp_path: Path) -> None:
    """One of two seeds diverges: what the page draws of it is what both had."""
    settings = {"clients": 6, "cohort": 2, "steps": 3, "rounds": 4, "model": "mlp(16)", "seeds": 2, "drift": True}
    made = holdfast.compare(["fedavg", "mean(uniform)"], out=tmp_path, **settings)
    bad = tmp_path / made.entries[1]["runs"][1]
    (bad / "history.jsonl").write_text("".join((bad / "history.jsonl").read_text().splitlines(keepends=True)[:2]))
    (bad / "summary.json").unlink()
    shutil.rmtree(bad / "checkpoint")  # those of rounds that it would not have had
    (bad / "diverged.txt").write_text("round 3: no client's update is finite\n")
    tabulate(tmp_path)
    page = read(holdfast.report(tmp_path)).text
    said = "mean(uniform): 1 of 2 seeds diverged, so its line ends at round 2, the last that all of them finished."
    assert page.count(said) == 3, "for accuracy, loss and drift"
    found = read_study(tmp_path)
    for chart in (*charts.scores(found), *charts.losses(found), *charts.drift(found)):
        assert {line.label: line.x for line in chart.series} == {"fedavg": [1, 2, 3, 4], "mean(uniform)": [1, 2]}


# -- what it refuses -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 4}, "has format 4, but this version reads formats up to 3: update Holdfast"),
        ({"entries": []}, "is damaged, it has no entries: REMEDY"),
        ({"targets": None}, "is damaged, targets must be a list: REMEDY"),
        ({"entries": [{"label": "a"}]}, "is damaged, entries[0].method is missing: REMEDY"),
        ({"colour": "red"}, "is damaged, colour is unknown: REMEDY"),
        ({"seeds": [0, "1"]}, "is damaged, seeds[1] must be a whole number, not '1': REMEDY"),
        ({"split": {"counts": [[True]]}}, "is damaged, split.counts[0][0] must be a whole number, not True: REMEDY"),
    ],
)
def test_a_damaged_comparison(tmp_path: Path, change: dict, says: str) -> None:
    write(tmp_path, study() | change)
    outcome = call("report", str(tmp_path))
    assert outcome.code == 2
    remedy = f"write it again with `holdfast compare --tables {tmp_path}`"
    assert outcome.err == f"holdfast: {tmp_path}/compare.json {says.replace('REMEDY', remedy)}\n"


def test_refusals_are_one_line(tmp_path: Path, ran: Path) -> None:
    (tmp_path / "empty").mkdir()
    for run in ("reproduced/cell/seed-0", "reproduced/cell/seed-1", "many/b", "many/a/fedavg/seed-0"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.toml").write_text("")
    (tmp_path / "reproduced" / "reproduce.json").write_text("{}")
    (tmp_path / "many" / "a" / "plan.json").write_text("{}")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "plan.json").write_text("{}")
    stopped(tmp_path / "planned", rounds=1)
    for run in (tmp_path / "planned").glob("*/seed-*"):
        shutil.rmtree(run)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "compare.json").write_text("{")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "compare.json").write_text("[]")
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "config.toml").write_text("")
    (tmp_path / "young" / "history.jsonl").write_text("")
    (tmp_path / "file").write_text("")
    cases = {
        "nowhere": f"{tmp_path}/nowhere is not a folder: give the folder of a run or a comparison",
        "empty": f"{tmp_path}/empty holds neither a run (config.toml and history.jsonl) nor a comparison "
        "(compare.json, or plan.json until it is finished): give the folder of one",
        "reproduced": f"{tmp_path}/reproduced holds a reproduction: its tables are in {tmp_path}/reproduced/"
        "reproduce.md; a single run can be reported, such as `holdfast report "
        f"{tmp_path}/reproduced/cell/seed-0`",
        "many": f"{tmp_path}/many holds neither a run (config.toml and history.jsonl) nor a comparison (compare.json, "
        f"or plan.json until it is finished); try `holdfast report {tmp_path}/many/a`",
        "begun": f"{tmp_path}/begun/plan.json is damaged, methods is missing: start over with --overwrite",
        "planned": f"the comparison in {tmp_path}/planned has no evaluated rounds yet: report it after its first round",
        "broken": f"cannot read {tmp_path}/broken/compare.json: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1); write it again with `holdfast compare --tables "
        f"{tmp_path}/broken`",
        "list": f"{tmp_path}/list/compare.json is damaged, the file must be an object: write it again with `holdfast "
        f"compare --tables {tmp_path}/list`",
        "young": f"the run in {tmp_path}/young has no rounds yet: report it after its first round",
    }
    refusals = [((str(tmp_path / name),), says) for name, says in cases.items()]
    for out, says in (
        (tmp_path / "page.pdf", f"--out {tmp_path}/page.pdf must be an HTML file, such as report.html"),
        (
            tmp_path / "file" / "page.html",
            f"cannot write the report {tmp_path}/file/page.html: Not a directory; choose another --out",
        ),
    ):
        refusals.append(((str(ran), "--out", str(out)), says))
    for words, says in refusals:
        outcome = call("report", *words)
        assert outcome.code == 2, words
        assert outcome.err == f"holdfast: {says}\n"


def test_the_headline_says_whether_the_difference_is_sure(tmp_path: Path) -> None:
    made = study()
    for entry in made["entries"][1:]:
        entry["verdict"] = "no difference seen"
        entry["scores"]["final"]["mean"] = 0.99
    page = holdfast.report(write(tmp_path, made)).read_text(encoding="utf-8")
    assert "no difference seen: 95 % interval" in page

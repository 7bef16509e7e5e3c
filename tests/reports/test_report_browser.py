"""The report in a headless browser: nothing fails, nothing is fetched, charts are drawn, and hovering shows numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from helpers.browser import CHROMIUM, Browser
from helpers.studies import EVIL, LABELS, errors, lucky, study, write
from holdfast.training.drift import MEASURES

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
PHONE = 390
MARKS = {"lines": ".scatterlayer path.js-line", "bars": ".barlayer path", "heat": ".heatmaplayer image, .hm"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def with_verdicts(made: dict[str, Any]) -> dict[str, Any]:
    """As wide as results usually get: verdicts, and a third target."""
    for e in made["entries"]:
        e |= {"verdict": "no difference seen"} if e["difference"] else {}
        e["targets"] = [*e["targets"], e["targets"][-1] | {"target": 0.95}]
    return made | {"targets": [*made["targets"], 0.95]}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pages")
    holdfast.run("fedbug(0.4)", out=root / "run", drift=True, rounds=6, epochs=1)
    labels = ("fedavg", EVIL, *(f"method{i}" for i in range(9)))  # more methods than colours
    evil = study(labels, seeds=2, rounds=3, drift=False, classes=[EVIL] * 10)
    return {
        "compare": holdfast.report(write(root / "compare", with_verdicts(lucky(study())))),
        "run": holdfast.report(root / "run"),
        "evil": holdfast.report(write(root / "evil", evil)),
        "errors": holdfast.report(write(root / "errors", swept(errors(("fedavg, lr=0.1", "fedavg, lr=0.3"))))),
    }


def swept(made: dict[str, Any]) -> dict[str, Any]:
    """The entries as two points of a sweep of one method."""
    for e, lr in zip(made["entries"], (0.1, 0.3), strict=True):
        e |= {"method": "fedavg", "settings": {"lr": lr}}
    return made | {"sweep": {"lr": [0.1, 0.3]}, "best_points": {"fedavg": "fedavg, lr=0.3"}}


@pytest.mark.parametrize("name", ["compare", "run", "evil", "errors"])
@pytest.mark.parametrize("width", [1200, PHONE])
def test_charts_are_drawn_and_nothing_fails(browser: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    browser.open(pages[name], width)
    charts = browser.run("JSON.parse(document.getElementById('charts').textContent).map(c => [c.key, c.kind])")
    assert len(charts) >= 8
    for key, kind in charts:
        assert browser.run(f"document.querySelectorAll('#plot-{key} :is({MARKS[kind]})').length") > 0, key
        box = browser.run(
            f"(r => [r.width, r.height])(document.querySelector('#plot-{key} svg').getBoundingClientRect())"
        )
        assert box[0] > 200, key
        assert box[1] > 60, key
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [pages[name].resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["compare", "run", "evil", "errors"])
def test_tables_fit_on_a_desktop_and_scroll_on_a_phone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    sizes = "[...document.querySelectorAll('.scroll')].map(s => [s.scrollWidth, s.clientWidth])"
    browser.open(pages[name], 1200)
    for needed, given in browser.run(sizes):
        assert needed <= given
    browser.open(pages[name], PHONE)
    names = "[...document.querySelectorAll('#results tbody th')].map(t => t.getBoundingClientRect().width)"
    assert max(browser.run(names)) <= PHONE / 2, "the names leave space for the numbers"


def test_all_measures_are_there(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["compare"])
    for m in MEASURES:
        lines = browser.run(f"document.querySelectorAll('#plot-drift-{m.name.replace('_', '-')} path.js-line').length")
        assert lines == 2 * len(LABELS)  # a curve and a band each


def middle(browser: Browser, key: str) -> tuple[float, float]:
    """Scroll a chart into view, and give the middle of its plot in the window."""
    browser.run(f"document.getElementById('plot-{key}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    drag = f"document.querySelector('#plot-{key} .nsewdrag')"
    x, y = browser.run(f"(r => [r.left + r.width / 2, r.top + r.height / 2])({drag}.getBoundingClientRect())")
    return x, y


@pytest.mark.parametrize(
    ("key", "says"), [("accuracy", ["round 1", *LABELS, "±", "%"]), ("split", ["class c", "client", "samples"])]
)
def test_hovering_shows_numbers(browser: Browser, pages: dict[str, Path], key: str, says: list[str]) -> None:
    browser.open(pages["compare"])
    said = f"document.querySelector('#plot-{key} .hoverlayer').textContent"
    assert browser.run(said) == ""
    browser.hover(*middle(browser, key))
    text = browser.run(f"""new Promise((done, failed) => {{
        const end = Date.now() + 5000;
        const look = () => {said} ? done({said}) : Date.now() > end ? failed('silent') : setTimeout(look, 20);
        look();
    }})""")
    for word in says:
        assert word in text


def test_light_and_dark_switch_while_the_page_is_open(browser: Browser, pages: dict[str, Path]) -> None:
    looks = []
    colours = """[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
        document.querySelector('#plot-accuracy path.js-line:not([style*="stroke-width: 0"])').style.stroke,
        document.querySelector('#plot-accuracy .xtick text').style.fill]"""
    browser.open(pages["compare"])
    for dark in (False, True, False):
        browser.look(dark)
        browser.run("new Promise(done => setTimeout(done, 100))")
        looks.append(browser.run(colours))
    assert looks[0] == looks[2]
    assert all(light != dark for light, dark in zip(looks[0], looks[1], strict=True))
    assert browser.complaints() == []


@pytest.mark.parametrize("widths", [(1200, 700), (700, PHONE), (PHONE, 1000)])
def test_charts_follow_the_width_of_the_window(
    browser: Browser, pages: dict[str, Path], widths: tuple[int, int]
) -> None:
    browser.open(pages["compare"], widths[0])
    browser.size(widths[1], 900)
    browser.run("new Promise(done => setTimeout(done, 600))")
    charts = browser.run("JSON.parse(document.getElementById('charts').textContent).map(c => c.key)")
    for key in charts:
        drawn, place = browser.run(
            f"(p => [p.querySelector('svg').getBoundingClientRect().width, p.clientWidth])"
            f"(document.getElementById('plot-{key}'))"
        )
        assert abs(drawn - place) < 2, key
    assert browser.run("document.documentElement.scrollWidth") <= widths[1]
    assert browser.complaints() == []


def test_the_legend_hides_a_method_everywhere(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["compare"])
    drawn = "['accuracy', 'drift-cosine'].map(k => document.querySelectorAll(`#plot-${k} path.js-line`).length)"
    before = browser.run(drawn)
    browser.run("document.querySelectorAll('.legend button')[1].click()")
    assert browser.run(drawn) == [n - 2 for n in before]
    assert browser.run("document.querySelectorAll('.legend button')[1].ariaPressed") == "false"
    browser.run("document.querySelectorAll('.legend button')[1].click()")
    assert browser.run(drawn) == before


def test_the_bars_of_some_seeds_are_outlined(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["compare"])
    look = "p => [+getComputedStyle(p).fillOpacity < 0.2, parseFloat(getComputedStyle(p).strokeWidth) > 1]"
    for key in ("rounds", "seconds", "bytes"):
        found = browser.run(f"[...document.querySelectorAll('#plot-to-target-{key} .barlayer path')].map({look})")
        assert found[3:6] == [[False, False], [True, True], [True, True]], "the second method at three targets"
        assert found[:3] + found[9:] == [[False, False]] * 6


def test_a_method_looks_the_same_everywhere(browser: Browser, pages: dict[str, Path]) -> None:
    """With more methods than colours, the ninth differs from the first in chips, rows, lines and named bars."""
    browser.open(pages["evil"])
    look = "(s => [s.backgroundColor, s.backgroundImage, s.opacity])(getComputedStyle(i))"
    chips, rows = (
        browser.run(f"[...document.querySelectorAll('{where} i')].map(i => {look})")
        for where in (".legend", "#results .scroll:first-of-type")
    )
    assert chips == rows
    assert [c[1] != "none" for c in chips] == [False] * 8 + [True] * 3
    assert chips[0][0] == chips[8][0]
    traces = "document.getElementById('plot-accuracy').data.filter(t => t.meta)"
    lines = browser.run(f"{traces}.map(t => t.line.dash)")
    assert lines == ["solid"] * 8 + ["dash"] * 3
    place = "document.querySelector('#plot-to-target-rounds')"
    striped = browser.run(
        f"[...{place}.querySelectorAll('.barlayer .trace')].map(t => !!t.querySelector('[style*=url]'))"
    )
    assert striped == [False] * 8 + [True] * 3
    assert "method8" in browser.run(f"{place}.querySelector('.barlayer').textContent")


def test_names_do_not_become_code(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["evil"])
    assert browser.run("window.hacked") is None
    assert EVIL in browser.run("document.querySelector('.legend').textContent")
    assert browser.run("document.querySelectorAll('.plot img, .plot script').length") == 0
    browser.hover(*middle(browser, "accuracy"))
    assert browser.run("window.hacked") is None


def test_static_images_are_shown_without_scripts_and_in_print(browser: Browser, pages: dict[str, Path]) -> None:
    seen = "[...document.querySelectorAll('.static')].filter(i => i.offsetHeight > 50 && i.naturalWidth > 100).length"
    charts = "document.querySelectorAll('.static').length"
    browser.open(pages["compare"])
    assert browser.run(seen) == 0
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.run(seen) == browser.run(charts) > 10
    browser.send("Emulation.setEmulatedMedia", media="")
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["compare"])
        assert browser.run(seen) == browser.run(charts)
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)

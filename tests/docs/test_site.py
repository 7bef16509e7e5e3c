"""The documentation site: it builds without a warning, loads nothing from elsewhere, and searches from the disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from helpers.browser import CHROMIUM, Browser
from helpers.places import DOCS, ROOT

RESULTS = """new Promise(done => {
  const count = () => document.querySelectorAll(".md-search-result__item").length
  const timer = setInterval(() => { if (count()) { clearInterval(timer); done(count()) } }, 50)
  setTimeout(() => done(count()), 60000)
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it; in strict mode every warning is an error."""
    pytest.importorskip("mkdocs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.mark.filterwarnings("ignore")  # of the packages that build the site
def test_the_site_loads_nothing_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"", text), page


def test_every_page_is_in_the_menu(site: Path):
    menu = (site / "start.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="([\w./-]+\.html)"', menu))
    missing = {f"{p.relative_to(DOCS).with_suffix('.html')}" for p in DOCS.glob("*.md")} - linked
    assert missing <= {"start.html"}  # the page itself


def test_the_reference_has_every_public_name(site: Path):
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    described = {line.rpartition(".")[2] for line in page.splitlines() if line.startswith("::: ")}
    assert set(holdfast.__all__) - described <= {"Tensors"}


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_search_works_from_the_disk(site: Path, tmp_path: Path):
    browser = Browser(tmp_path / "profile")
    try:
        browser.send("Page.navigate", url=(site / "start.html").as_uri() + "?q=scaffold")
        browser.wait_for("Page.loadEventFired")
        found = browser.run(RESULTS)
    finally:
        browser.close()
    assert found > 3

"""Brings what lies outside ``docs/`` into the site: the README as the home page, and every file that a page links.

Links in the repository stay as they are, so that they work there too; here they are rewritten to the site's pages.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {  # file of the repository -> page of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "results/README.md": "results-files.md",
    "docs": "index.md",
    "docs/methods": "methods/README.md",
    "examples": "examples.md",
}
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".cff": "yaml", ".ipynb": "json"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the page of every method."""
    methods = next(section["Methods"] for section in config.nav if "Methods" in section)
    pages = sorted(p.name for p in (ROOT / "docs" / "methods").glob("*.md") if p.name != "README.md")
    methods.extend(f"methods/{name}" for name in pages)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside ``docs/``."""
    for source, target in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    for source in sorted(set(linked_sources(files))):
        files.append(File.generated(config, page_of(source), content=listing(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to pages of the site."""
    here = page.file.src_uri
    if here.startswith("source/"):
        return markdown

    def target_of(path: str) -> str:
        return posixpath.relpath(page_of(path), posixpath.dirname(here) or ".")

    return rewritten(markdown, home_of(here), target_of)


def rewritten(markdown: str, home: str, target_of: Callable[[str], str]) -> str:
    """Return a page with its links to files of the repository changed; ``home`` is the folder that they start from."""

    def change(match: re.Match[str]) -> str:
        path = in_repository(home, match[2])
        return match[0] if path is None else f"{match[1]}{target_of(path)}{match[3] or ''}{match[4]}"

    return LINK.sub(change, markdown)


def linked_sources(files: Files) -> Iterator[str]:
    """Yield the files outside ``docs/`` that pages link and that have no page of their own."""
    for file in files.documentation_pages():
        home = home_of(file.src_uri)
        for match in LINK.finditer(file.content_string):
            path = in_repository(home, match[2])
            if path and path not in PAGES and not path.startswith("docs/"):
                yield path


def in_repository(home: str, link: str) -> str | None:
    """Return the path in the repository that a link leads to; None if it leads elsewhere."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path = posixpath.normpath(posixpath.join(home, link))
    return path if (ROOT / path).exists() else None


def home_of(page: str) -> str:
    """Return the folder of the repository in which a page's text lies."""
    source = next((s for s, target in PAGES.items() if target == page and (ROOT / s).is_file()), f"docs/{page}")
    return posixpath.dirname(source)


def page_of(path: str) -> str:
    """Return the page of the site that shows a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def listing(path: str) -> str:
    """Return a page that shows a source file."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(p.name for p in file.iterdir() if not p.name.startswith(("_", ".")))
        return f"# {path}\n\nA folder of the repository:\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = file.read_text(encoding="utf-8")
    return f"# {file.name}\n\n`{path}`\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text}````\n"

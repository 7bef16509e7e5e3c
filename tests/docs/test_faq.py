"""The messages that the page of questions quotes are those that its commands print."""

from __future__ import annotations

import re
import shlex

import pytest

from helpers.commands import refused
from helpers.places import DOCS

PAGE = (DOCS / "faq.md").read_text(encoding="utf-8")
PAIRS = re.findall(r"```sh\nholdfast (.*?)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_quotes_errors():
    assert len(PAIRS) >= 5


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("command", "message"), PAIRS, ids=[command for command, _ in PAIRS])
def test_errors_on_the_page_are_real(command: str, message: str):
    assert refused(*shlex.split(command)) == message

"""What a run prints in a terminal of 80 columns: whole words and whole numbers."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

import holdfast
from holdfast.cli.run import show
from holdfast.runs.live_line import LiveLine
from holdfast.runs.run_progress import RunProgress, describe

STATE = "accuracy 0.8298  loss 0.3862  balanced_accuracy 0.7164  0.85 s/round"
LONG = "fedbug(0.4)+feddyn(0.01)+prox(0.01)+clip(1.0)+decay(0.0001)+moon(mu=1.0)+fedavgm(0.9)"


def rendered(name: str, width: int) -> list[str]:
    out = StringIO()
    console = Console(file=out, force_terminal=False, width=width)
    live = LiveLine(console)
    live.add_task(name, total=30, completed=5, state=STATE)
    console.print(live.get_renderable())
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_wide_terminal_has_one_line() -> None:
    (line,) = rendered("fedavg", 120)
    assert re.fullmatch(r"fedavg [━╸╺ ]+  ?5/30 -:--:-- " + re.escape(STATE), line)


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("name", ["fedavg", LONG])
def test_what_does_not_fit_beside_the_bar_is_below_it(name: str, width: int) -> None:
    lines = rendered(name, width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    words = " ".join(lines).split()
    assert set(STATE.split()) <= set(words)
    assert "5/30" in words
    assert name in "".join(lines).replace(" ", "")


def test_the_end_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"rounds": 2, "steps": 1, "model": "linear", "metric": "balanced_accuracy"}
    seen: list[str] = []
    fed = holdfast.federate(holdfast.load("digits"), "dirichlet(0.3)", clients=5, validation=0.1, client_test=0.2)
    result = holdfast.run(
        "fedbug(0.4)+prox(0.01)", fed, stop_after=1, personal=1,
        on_start=lambda trainer, done: seen.append(describe(trainer)), **settings,
    )  # fmt: skip
    progress, out = RunProgress("fedavg"), StringIO()
    progress.console = Console(file=out, force_terminal=True, width=80, color_system=None)
    progress.begin(seen[0], 2, 2)
    progress.__exit__()
    show(result, progress)
    lines = re.sub(r"\x1b\[[0-9?;]*[a-zA-Z]", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert " ".join(seen[0].split()) in text
    assert "chosen on validation data" in text
    assert "on the clients' own test samples: balanced_accuracy" in text
    scores = {name: row.score for name, row in result.client_scores().items()}
    assert f"worst tenth {min(scores.values()):.4f} (client {min(scores, key=scores.__getitem__)}), " in text

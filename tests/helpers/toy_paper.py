"""A small paper for tests, and the command that reproduces it."""

from __future__ import annotations

from typing import Any

from helpers.commands import Said, call

TOY = """
title = "Toy: a paper for tests (2026)"
notes = "Nothing is left open."

[setting]
data = "digits"
model = "linear"
clients = 6
cohort = 2
steps = 3
rounds = 4

[scale.small]
rounds = 3

[scale.smoke]
participation = 0.5
epochs = 1
rounds = 2

[[table]]
id = "1"
caption = "Accuracy of two methods"
claim = "Thawing helps."
measure = "last5"
unit = "%"
baseline = "0%"
expect = ["40% > 0%"]
columns = [
  { name = "0%", method = "" },
  { name = "40%", method = "fedbug(0.4)" },
]

[[table.row]]
name = "IID, FedAvg"
set = { split = "iid" }
published = [20.0, 30.5]
spread = [0.5, nan]

[[table.row]]
name = "IID, FedProx, the usual"
method = "prox(0.01)"
set = { split = "iid" }
published = [nan, 31.0]
note = "the first number cannot be read"

[[table.row]]
name = "on Mars"
published = [1.0, 2.0]
absent = "no data from there"

[[table.row]]
name = "CIFAR-100"
set = { data = "cifar100", model = "cnn" }
published = [1.0, 2.0]

[[table]]
id = "II"
caption = "Rounds to 11% and to 99.9%"
claim = "FedAvg is quick."
measure = "rounds_to(0.999)"
unit = "rounds"
set = { split = "iid" }
columns = [{ name = "FedAvg" }, { name = "kappa", measure = "kappa", unit = "" }]
level_of = "1"
expect = ["easy > hard"]
[[table.row]]
name = "hard"
published = [inf, nan]
[[table.row]]
name = "easy"
measure = "rounds_to(0.05)"
published = [1, nan]

[[table]]
id = "fig1"
caption = "A picture of the theory"
claim = "Theory agrees."
theory = "fedbug"
"""


def rep(*args: str, paper: str = "toy") -> Said:
    return call("reproduce", paper, "--papers", "papers", *args)


def tables(*args: str) -> list[dict[str, Any]]:
    said = rep(*args, "--json")
    assert said.code == 0, said.err
    return said.json

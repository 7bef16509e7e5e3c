"""The answer of ``advise``: what ``advice.json`` holds, and what it says in words."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.advice.federation_look import FederationLook
from holdfast.comparison.study_schema import MetricFacts, PairedDifference

FORMAT = 1


@dataclass(frozen=True)
class Setting:
    """A method at its best setting.

    Attributes:
        method: The sum.
        lr: Its learning rate.
        at_edge: Whether that is the smallest or largest rate that was tried.
        score: Its validation score after screening, in the unit of the metric; None if it diverged.
    """

    method: str
    lr: float
    at_edge: bool
    score: float | None


@dataclass(frozen=True)
class Rival:
    """A method that was raced.

    Attributes:
        method: The sum at its best setting.
        lr: Its learning rate.
        mean: Its mean validation score over its seeds; None if it diverged in the first.
        seeds: How many seeds it ran.
        out: After how many seeds it fell out; None if it stayed to the end.
        behind: The leader's score minus its own, paired by seed; None for the leader.
    """

    method: str
    lr: float
    mean: float | None
    seeds: int
    out: int | None
    behind: PairedDifference | None


@dataclass(frozen=True)
class Cost:
    """What a round costs.

    Attributes:
        seconds: Time on this machine.
        bytes: Traffic, up and down.
    """

    seconds: float
    bytes: float


@dataclass(frozen=True)
class Confirmation:
    """The leader against FedAvg on fresh seeds.

    Attributes:
        seeds: The seeds.
        chance: The one-sided p-value on validation data, which decided.
        gain: The gain on the test data, which decided nothing; None where a run diverged.
        scores: The test scores of the leader, seed by seed.
        baseline: Those of FedAvg.
        cost: What a round of the leader costs.
        baseline_cost: What a round of FedAvg costs.
    """

    seeds: list[int]
    chance: float
    gain: PairedDifference | None
    scores: list[float | None]
    baseline: list[float | None]
    cost: Cost
    baseline_cost: Cost


@dataclass(frozen=True)
class Answer:
    """What a race found.

    Attributes:
        data: The name of the data set.
        split: How it is dealt.
        model: The name of the model.
        rounds: The rounds of the training that is wanted.
        metric: What was scored.
        look: The federation.
        method: What to use.
        lr: With which learning rate.
        recommended: Whether that is better than FedAvg with confidence; if not, ``method`` is FedAvg.
        level: The probability of recommending a method that is not better.
        baseline: FedAvg at its best setting.
        screened: Every method of the screening at its best setting.
        raced: The methods of the race, the leader first.
        confirmation: The leader against FedAvg; None if FedAvg leads.
        budget: What the race might cost.
        spent: What it cost.
        command: The command that trains with the answer; None if it needs objects from Python.
        cost: What a round of FedAvg costs, where nothing was confirmed; the confirmation has it otherwise.
        format: The format of this file.
    """

    data: str
    split: str
    model: str
    rounds: int
    metric: MetricFacts
    look: FederationLook
    method: str
    lr: float
    recommended: bool
    level: float
    baseline: Setting
    screened: list[Setting]
    raced: list[Rival]
    confirmation: Confirmation | None
    budget: str
    spent: str
    command: str | None
    cost: Cost | None = None
    format: int = FORMAT

"""Learning-rate schedules: those of PyTorch, round by round, however a run is started, stopped and resumed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
    StepLR,
)

import holdfast
from helpers.commands import refused
from helpers.exact_errors import raises_exactly
from helpers.toys import FEDERATION, assert_same, mlp, train
from holdfast.method.config import Config
from holdfast.training.round import Trainer

ROUNDS = 23
LR = 0.3
Make = Callable[[SGD, int], LRScheduler]  # (optimiser, rounds after the warm-up)
SAME: dict[str, Make] = {
    "constant": lambda o, n: ConstantLR(o, 1.0),
    "exponential(0.9)": lambda o, n: ExponentialLR(o, 0.9),
    "step(every=4, factor=0.5)": lambda o, n: StepLR(o, 4, 0.5),
    "step(7, 0.1)": lambda o, n: StepLR(o, 7, 0.1),
    "cosine": lambda o, n: CosineAnnealingLR(o, n),
    "cosine(final=0.1)": lambda o, n: CosineAnnealingLR(o, n, eta_min=0.1 * LR),
}


def torch_rates(make: Make, warmup: int) -> list[float]:
    """The rates of PyTorch's scheduler, stepped once per round."""
    optimiser = SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    main = make(optimiser, ROUNDS - warmup)
    schedule = main
    if warmup:
        rise = LinearLR(optimiser, start_factor=1 / (warmup + 1), total_iters=warmup)
        schedule = SequentialLR(optimiser, [rise, main], milestones=[warmup])
    rates = []
    for _ in range(ROUNDS):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def with_warmup(text: str, warmup: int) -> str:
    if not warmup:
        return text
    return f"{text[:-1]}, warmup={warmup})" if text.endswith(")") else f"{text}(warmup={warmup})"


@pytest.mark.filterwarnings("ignore:.*epoch parameter.*:UserWarning")  # SequentialLR warns about its own call
@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("text", SAME)
def test_the_rates_are_those_of_pytorch(text: str, warmup: int):
    config = Config(lr=LR, rounds=ROUNDS, lr_schedule=with_warmup(text, warmup))
    ours = [config.lr_of_round(t) for t in range(1, ROUNDS + 1)]
    assert ours == pytest.approx(torch_rates(SAME[text], warmup), rel=1e-12)


def test_lr_decay_is_short_for_exponential_bit_for_bit():
    short, long = Config(lr=LR, lr_decay=0.998), Config(lr=LR, lr_schedule="exponential(0.998)")
    for t in range(1, 2001):
        assert short.lr_of_round(t) == long.lr_of_round(t) == LR * 0.998 ** (t - 1)
    assert Config(lr=LR).lr_of_round(7) == LR


def test_after_an_explicit_horizon_the_rate_stays_at_its_final_value():
    config = Config(lr=1.0, rounds=9, lr_schedule="cosine(0.25, rounds=4)")
    falling = [0.25 + 0.75 * (1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)]
    assert [config.lr_of_round(t) for t in range(1, 10)] == pytest.approx([*falling, *[0.25] * 5], rel=1e-15)


# -- in a run --------------------
@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_clients_train_with_the_rate_of_the_round(engine: str):
    seen: list[Trainer] = []
    rates: list[float] = []

    def start(trainer: Trainer, done: int) -> None:
        seen.append(trainer)
        inner = trainer.train

        def train(broadcast, ids):
            rates.append(float(broadcast.lr))
            return inner(broadcast, ids)

        trainer.train = train

    settings = {"engine": engine, "precision": "fp64", "rounds": 4, "cohort": 2, "lr": 0.2}
    holdfast.run("fedavg", FEDERATION, mlp(), on_start=start, lr_schedule="cosine(warmup=1)", **settings)
    assert rates == pytest.approx([0.1, 0.2, 0.15, 0.05], rel=1e-12)


def test_a_run_with_lr_decay_is_that_with_its_schedule():
    one, other = (train("scaffold", **s) for s in ({"lr_decay": 0.7}, {"lr_schedule": "exponential(0.7)"}))
    for found, expected in zip(one.after, other.after, strict=True):
        assert_same(found, expected)
    plain = train("scaffold")
    assert not torch.equal(plain.after[3]["w"], one.after[3]["w"])
    assert torch.equal(plain.after[1]["w"], one.after[1]["w"])


@pytest.mark.parametrize(
    ("schedule", "rounds"), [("step(2, 0.5, warmup=1)", 5), ("cosine(rounds=8)", 5), ("cosine(warmup=1)", 3)]
)
def test_a_resumed_run_continues_exactly(schedule: str, rounds: int, tmp_path):
    """Extended, where the rates do not depend on the number of rounds; otherwise stopped and resumed."""
    settings = {"precision": "fp64", "cohort": 2, "lr_schedule": schedule}
    whole = holdfast.run("scaffold", FEDERATION, mlp(), rounds=rounds, **settings)
    asked = iter([False, True])
    begun = holdfast.run("scaffold", FEDERATION, mlp(), out=tmp_path, rounds=3, stop=lambda: next(asked), **settings)
    assert len(begun.history) == 2
    rest = holdfast.run("scaffold", FEDERATION, mlp(), out=tmp_path, resume=True, rounds=rounds)
    assert torch.equal(rest.w, whole.w)
    assert [r.train_loss for r in rest.history] == [r.train_loss for r in whole.history]


def test_a_cosine_over_all_rounds_cannot_be_extended(tmp_path):
    settings = {"cohort": 2, "out": tmp_path}
    holdfast.run("fedavg", FEDERATION, mlp(), rounds=2, lr_schedule="cosine(final=0.1)", **settings)
    with raises_exactly(
        "the run to resume has lr_schedule = cosine(final=0.1), whose rates depend on its 2 rounds: leave out rounds, "
        "or start over with --overwrite"
    ):
        holdfast.run("fedavg", FEDERATION, mlp(), rounds=4, resume=True, **settings)
    assert len(holdfast.run("fedavg", FEDERATION, mlp(), rounds=2, resume=True, **settings).history) == 2


# -- bad input --------------------
BAD = {
    "cosinus": "unknown learning-rate schedule 'cosinus'; did you mean cosine?",
    "poly": "unknown learning-rate schedule 'poly'; known: constant, cosine, exponential, step",
    "cosine+step": "'cosine+step' is a sum, but a learning-rate schedule is one name with its parameters: keep one of "
    "them",
    "exponential(1.5)": "exponential: factor must be a number in (0, 1], not 1.5",
    "step(every=0)": "step: every must be a whole number of at least 1, not 0",
    "cosine(final=2)": "cosine: final must be a number in [0, 1], not 2",
    "constant(0.5)": "constant: warmup must be a whole number of at least 0, not 0.5",
    "step(evry=3)": "unknown parameter 'evry' of step; did you mean every?",
    "constant(warmup=2)": "lr_schedule: constant with warmup=2 never reaches the full rate in 2 rounds: lower warmup, "
    "or raise rounds",
    "cosine(rounds=1, warmup=1)": "lr_schedule: cosine with warmup=1 never reaches the full rate in 1 round: lower "
    "warmup, or raise rounds",
    "cosine(rounds=1)": "lr_schedule: cosine(rounds=1) ends with a rate of 0 after 1 of 2 rounds: raise its rounds, or "
    "set final above 0",
    "": "cannot read '': expected a name, found the end",
}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("text", BAD)
def test_a_bad_schedule_is_one_line(text: str):
    said = refused("run", "fedavg", "--model", "linear", "--rounds", "2", "--lr-schedule", text)
    assert said == f"holdfast: {BAD[text]}\n"


@pytest.mark.usefixtures("elsewhere")
def test_a_schedule_and_lr_decay_exclude_each_other():
    both = ("run", "fedavg", "--lr-schedule", "cosine", "--lr-decay", "0.9")
    assert refused(*both) == "holdfast: lr_schedule and lr_decay cannot be used together: set one of them\n"

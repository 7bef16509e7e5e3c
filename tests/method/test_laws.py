"""Laws that hold for every part, every recipe and many sums. Parts and recipes added later are found by themselves."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch._inductor
from torch import nn

from helpers.brief import brief
from helpers.toys import (
    ENGINES,
    Keeper,
    Number,
    Quadratic,
    Ran,
    Still,
    assert_close,
    assert_same,
    points,
    ragged,
    train,
)  # fmt: skip
from holdfast import DataSet, Federation, HoldfastError, Method, federate
from holdfast.core.expression import parse
from holdfast.core.params import make
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES
from holdfast.testing.laws import (
    assert_agree,
    assert_changes_nothing,
    assert_continues,
    assert_repeats,
    assert_unmoved,
    neutral_texts,
)

PARTS = {name: cls for name, cls in parts().items() if cls.__module__.startswith("holdfast.parts")}
# Each method once: most recipes are one part under its paper's name.
ALONE = list({str(Method.parse(name)): name for name in [*PARTS, *RECIPES]}.values())
SUMS = [
    "scaffold+fedbug+clip(1)+decay",
    "feddyn+fedbug",
    "mofedsam+normalized+fedlc",
    "moon+sam+nova+prox",
    "fedbug+fedlc+moon+sam+scaffold+feddyn+fedcm(0.5)+prox(0.1)+clip(1)+decay(0.01)+nova+momentum(0.5, keep=true)",
    "fedbug+scaffold+adam(keep=true)+clip(1)",
    "fedagg+nova+momentum(0.5, nesterov=true)",
    "fednlr+feddyn+adamw(keep=true)",
]
METHODS = [*map(brief, ALONE), *SUMS]
every_method = pytest.mark.parametrize("method", METHODS)
every_engine = pytest.mark.parametrize("engine", ENGINES)


@cache
def once(method: str, engine: str) -> Ran:
    """A run of six rounds that several laws look at."""
    return train(method, engine=engine, rounds=6)


def started(method: str, engine: str, rounds: int, **settings: object) -> Ran:
    """The first rounds of the same run: it is stopped, so that its last round is still to come."""
    left = iter(range(1, 7))
    return train(method, engine=engine, rounds=6, stop=lambda: next(left) == rounds, **settings)


# -- loop = vector ---------------------------------------------------------------------------------------------------
@every_method
def test_loop_equals_vector(method):
    assert_agree(once(method, "loop"), once(method, "vector"))


@every_method
@pytest.mark.parametrize("settings", [{"steps": 5}, {"cohort": None, "participation": 0.6}], ids=["steps", "chance"])
def test_loop_equals_vector_with(settings, method):
    assert_agree(*(train(method, engine=engine, rounds=2, **settings) for engine in ENGINES))


def small_images() -> Federation:
    """Three clients of small images, augmented, whose features are noisy."""
    g = torch.Generator().manual_seed(2)
    x, y = torch.randint(0, 256, (24, 1, 6, 6), generator=g, dtype=torch.uint8), torch.arange(24) % 3
    data = DataSet("images", x, y, x, y, ("a", "b", "c"), mean=(0.5,), std=(0.25,))
    return federate(data, "quantity(0.5)+noise(0.5)", clients=3, augment=True)


def random_network() -> nn.Module:
    """Dropout, two kinds of norm, and a convolution."""
    lower = [nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*lower, nn.Linear(64, 5), nn.LayerNorm(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 3))


@pytest.mark.parametrize("method", ["fedavg", SUMS[4]])
def test_loop_equals_vector_on_everything_random(method):
    model = random_network()
    assert_agree(*(train(method, small_images(), model, engine=engine, rounds=2) for engine in ENGINES))


@every_method
@pytest.mark.parametrize("slice", [1, 2])
def test_slices_change_nothing(slice, method):
    sliced = started(method, "vector", 2, slice=slice)
    assert_close(sliced.after[2], once(method, "vector").after[2], 1e-10)


@pytest.mark.parametrize("method", ["fedagg", "scaffold+fedbug+clip(1)+decay", *SUMS[-3:]])
def test_tracing_the_step_changes_nothing(method, monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    chance = {"cohort": None, "participation": 0.6, "rounds": 2}
    traced = train(method, engine="vector", compile=True, **chance)
    assert_agree(train(method, engine="loop", **chance), traced)


@pytest.mark.parametrize("way", [{"engine": "loop"}, {"engine": "vector"}, {"engine": "vector", "compile": True}])
def test_a_part_may_keep_the_model_that_it_is_given(way, monkeypatch):
    """A step that writes over the model must not reach what a part has kept of it."""
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    settings = {"lr": 0.5, "batch": 1, "epochs": 1, "rounds": 1, "cohort": 1} | way
    kept = train(Quadratic() + Keeper(), points((8.0, 4)), Number(0.0), **settings)
    w = last = before = 0.0
    for _ in range(4):  # by hand
        w, last, before = w - 0.5 * ((w - 8.0) + 0.5 * (w - last) + 0.25 * (w - before)), w, last
    assert float(kept.after[1]["w"]) == pytest.approx(w, abs=1e-12)


# -- nothing comes from nothing --------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("method", [m for m in METHODS if not Method.parse(m).filling("trips")])
def test_nobody_moves_then_nothing_moves(method, engine):
    ran = train(Still() + Method.parse(method), engine=engine, rounds=1)
    assert_unmoved(ran, served_too=not Method.parse(method).filling("survey"))  # it changes what is served


@every_engine
@pytest.mark.parametrize("method", [m for m in METHODS if Method.parse(m).filling("trips")])
def test_steps_too_short_to_move_move_nothing(method, engine):
    assert_unmoved(train(method, engine=engine, rounds=1, lr=1e-300), served_too=False)


# -- strength zero is FedAvg -----------------------------------------------------------------------------------------
NEUTRAL_PARTS = neutral_texts(list(PARTS.values()))
OTHERS_OFF = ["mean(samples)", "clip(1e9)", "fednlr(mu0=1, a1=0, a2=0)"]
EVERYTHING_OFF = "prox(0)+sam(0)+moon(0)+fedlc(0)+fedbug(0)+fedcm(1)+clip(1e9)+decay(0)+mean+fedavgm(0)+momentum(0)"


@every_engine
@pytest.mark.parametrize("method", [*NEUTRAL_PARTS, *OTHERS_OFF, EVERYTHING_OFF])
def test_strength_zero_is_fedavg(method, engine):
    neutral = started(method, engine, 3)
    assert len(neutral.after) == 4
    assert_changes_nothing(neutral, once("fedavg", engine))


def test_parts_of_the_core_have_a_strength_zero():
    named = {method.split("(")[0] for method in NEUTRAL_PARTS}
    assert named >= {"prox", "decay", "sam", "fedcm", "moon", "fedlc", "fedbug", "fedavgm", "momentum"}


def test_feddyn_has_no_strength_zero():
    with pytest.raises(HoldfastError, match=r"feddyn: alpha must be .* above 0"):
        Method.parse("feddyn(0)")


# -- a recipe is its sum ---------------------------------------------------------------------------------------------
@every_engine
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_its_sum(recipe, engine):
    calls = parse(RECIPES[recipe].sum) if RECIPES[recipe].sum else []
    (given,) = parse(brief(recipe))
    written_out = Method(tuple(make(PARTS[call.name], call.args, call.kwargs | given.kwargs) for call in calls))
    assert_same(*(train(method, engine=engine, rounds=2).after[2] for method in (brief(recipe), written_out)))


@pytest.mark.parametrize(
    ("recipe", "sum"),
    [
        ("fedavg+prox", "prox(0.01)"),
        ("fedprox(0.3)", "prox(mu=0.3)"),
        ("fedcm(alpha=0.3)", "fedcm(0.3)"),
        ("fedsam(0.3)", "sam(rho=0.3)"),
        ("fednova", "nova"),
        ("mofedsam(0.3, rho=0.2)", "fedcm(alpha=0.3)+sam(0.2)"),
        ("mofedsam(rho=0.2)+normalized", "fedcm(0.1)+sam(0.2)+normalized"),
    ],
)
def test_a_recipe_deals_its_arguments(recipe, sum):
    assert Method.parse(recipe) == Method.parse(sum)


# -- who and when does not matter ------------------------------------------------------------------------------------
@every_engine
@every_method
def test_permuting_clients_changes_nothing(method, engine):
    names = (2, 0, 3, 1)
    # Batches are whole and rounds are few, since ids do decide the order of batches, and ties in who goes out again.
    everyone = {"cohort": 4, "batch": 100, "epochs": 3, "rounds": 2, "engine": engine}
    plain, renamed = (train(method, ragged(n), **everyone).after[-1] for n in ((0, 1, 2, 3), names))
    new_name = {f"{old}": f"{new}" for old, new in enumerate(names)}
    expected = {}
    for name, state in plain.items():
        owner, *rest = name.split("/")
        expected["/".join([new_name.get(owner, owner), *rest])] = state
    assert_close(renamed, expected, 1e-10)


@every_engine
@every_method
def test_resuming_changes_nothing(method, engine, tmp_path):
    started(method, engine, 3, out=tmp_path)
    assert_continues(once(method, engine), train(method, engine=engine, rounds=6, out=tmp_path, resume=True), 3)


@every_engine
@pytest.mark.parametrize("method", SUMS)
def test_adding_rounds_later_changes_nothing(method, engine, tmp_path):
    train(method, engine=engine, rounds=3, out=tmp_path)
    assert_continues(once(method, engine), train(method, engine=engine, rounds=6, out=tmp_path, resume=True), 3)


@every_engine
@every_method
def test_running_twice_gives_the_same_bits(method, engine):
    second = started(method, engine, 2)
    assert len(second.after) == 3
    assert_repeats(once(method, engine), second)


def keeps_states(method: str) -> bool:
    """Whether clients keep something; a part may do so only with some parameters."""
    return any(p.init_client(torch.zeros(1)) for p in Method.parse(method).filling("init_client"))


@every_engine
@pytest.mark.parametrize("method", [m for m in METHODS if keeps_states(m)])
def test_only_drawn_clients_change(method, engine):
    ran = once(method, engine)
    for record, before, after in zip(ran.history, ran.after[:-1], ran.after[1:], strict=True):
        rows = {name: name.split("/")[0] for name in after if name[0].isdigit()}
        changed = {
            row for name, row in rows.items() if name not in before or not torch.equal(after[name], before[name])
        }
        assert changed == {f"{i}" for i in record.cohort}


@every_engine
def test_clients_without_samples_are_never_drawn(engine):
    ran = train("fedavg", engine=engine, cohort=5)
    assert all(record.cohort == [0, 1, 3, 4] for record in ran.history)

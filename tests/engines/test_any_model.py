"""Any model in any engine: BatchNorm, frozen parameters, recurrent networks, attention, tokens, several inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import holdfast
from holdfast.method.catalogue import methods
from holdfast.method.hook_checks import is_library
from holdfast.method.method import Method
from tests.helpers.any_models import (
    MODELS,
    OTHERS,
    Masked,
    Noise,
    Transformer,
    build,
    images,
    masked_tokens,
    tokens,
)
from tests.helpers.brief import brief, least_cohort
from tests.helpers.exact_errors import raises_exactly

METHODS = ["fedavg", "scaffold", "fedbug(0.5)", "fedmrur", "fednova"]
SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "cohort": 3,
    "epochs": 2,
    "batch": 3,
    "lr": 0.1,
    "precision": "fp64",
    "device": "cpu",
}


def train(method: str, name: str, **settings: Any) -> holdfast.Result:
    return holdfast.run(method, MODELS[name][1](), build(name), **SETTINGS | settings)


def distance(one: holdfast.Result, other: holdfast.Result) -> float:
    """The largest difference of all tensors of two models, and of their histories."""
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    gaps = [float((mine[k].double() - theirs[k].double()).abs().max()) for k in mine]
    losses = [abs(a.train_loss - b.train_loss) for a, b in zip(one.history, other.history, strict=True)]
    return max(gaps + losses)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_loop_vector_and_traced_steps_agree(method: str, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    loop = train(method, name, engine="loop")
    assert distance(loop, train(method, name, engine="vector", compile=False)) < 1e-12
    assert distance(loop, train(method, name, engine="vector", compile=True)) < 1e-12
    start = build(name).state_dict()
    moved = [k for k, t in loop.state_dict().items() if not torch.equal(t, start[k].to(t.dtype))]
    trained = [n for n, p in build(name).named_parameters() if p.requires_grad]
    assert set(moved) >= {k for k in trained if "head" in k or k.startswith("5.")}
    assert not {n for n, p in build(name).named_parameters() if not p.requires_grad} & set(moved)


@pytest.mark.parametrize("batchnorm", ["local", "frozen"])
@pytest.mark.parametrize("method", METHODS)
def test_other_kinds_of_batchnorm_agree_too(method: str, batchnorm: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda traced, inputs, **_: traced)
    loop = train(method, "batchnorm", engine="loop", batchnorm=batchnorm)
    for compiled in (False, True):
        other = train(method, "batchnorm", engine="vector", compile=compiled, batchnorm=batchnorm)
        assert distance(loop, other) < 1e-12
        assert abs(loop.history[-1].test_loss - other.history[-1].test_loss) < 1e-12


HEAD = "a model that returns the output of a last nn.Linear"
NUMBERS = "inputs that are one tensor of real numbers"
REFUSED = {
    "headless": {
        "fedmrur": ("hyperbolic", HEAD), "hyperbolic": ("hyperbolic", HEAD), "fnr": ("fnr", HEAD),
        "moon": ("moon", HEAD), "feddecorr": ("feddecorr", HEAD), "ccvr": ("ccvr", f"{HEAD} and trains it"),
        "fedgen": ("fedgen", f"{HEAD} and trains it"),
    },
    "several inputs": {"fedftg": ("fedftg", NUMBERS), "fedgen": ("fedgen", NUMBERS)},
    "batchnorm": {},
}  # fmt: skip
NO_STATISTICS = (
    "dp does not cover the running statistics of BatchNorm, which clients would send: use --batchnorm local or frozen, "
    "or a model with GroupNorm"
)
ALL = [e.name for e in methods() if all(map(is_library, Method.parse(e.name).parts))]  # not those of other tests
SPECIAL = ["fednlr", "feddf", "moon", "ccvr", "fnr", "fedagg", "fedftg", "fedgen", "latest"]
SWEEP = [(name, method) for name in REFUSED for method in (SPECIAL if name == "several inputs" else ALL)]


@pytest.mark.parametrize(("name", "method"), SWEEP)
def test_every_method_works_or_says_why_not(name: str, method: str):
    data = (MODELS | OTHERS)[name][1]().data
    federation = holdfast.federate(data, "given", clients=3, public=0.3)
    settings = SETTINGS | {"rounds": 1, "cohort": least_cohort(method), "epochs": 1, "lr": 0.05}
    if method in REFUSED[name]:
        part, need = REFUSED[name][method]
        with raises_exactly(f"{part} needs {need}; choose another model, or leave {part} out"):
            holdfast.run(method, federation, build(name), **settings)
        return
    if (name, method) == ("batchnorm", "dp"):
        with raises_exactly(NO_STATISTICS):
            holdfast.run(method, federation, build(name), **settings)
        return
    loop, vector = (
        holdfast.run(brief(method), federation, build(name), **settings, engine=e) for e in ("loop", "vector")
    )
    assert distance(loop, vector) < 1e-10


def engine_of(module: nn.Module) -> tuple[str, str]:
    """Return the engine that a run chooses by itself, and its reason."""
    found: list[tuple[str, str]] = []

    def note(trainer: Any, done: int) -> None:
        found.append((trainer.engine_name, trainer.engine_reason))

    holdfast.run("fedavg", images(), module, **SETTINGS, on_start=note)
    return found[0]


def test_random_numbers_in_forward_need_the_loop_engine():
    module, problem = Noise(), "draws random numbers in forward, which differ between clients of one batch"
    with raises_exactly(f"the model {problem}; use --engine loop"):
        holdfast.run("fedavg", images(), module, **SETTINGS, engine="vector")
    before = torch.get_rng_state()
    once, again = (holdfast.run("fedavg", images(), module, **SETTINGS, engine="loop") for _ in range(2))
    assert torch.equal(once.w, again.w), "they are drawn from the seed"
    assert torch.equal(torch.get_rng_state(), before)
    other = holdfast.run("fedavg", images(), module, **SETTINGS, engine="loop", seed=1)
    assert not torch.equal(once.w, other.w)
    assert engine_of(module) == ("loop", f"the model {problem}")


class Branching(nn.Module):
    """Decides by its input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return self.head(x if float(x.sum()) > 0 else -x)


def test_a_model_that_cannot_be_batched_needs_the_loop_engine():
    with pytest.raises(holdfast.HoldfastError) as caught:
        holdfast.run("fedavg", images(), Branching(), **SETTINGS, engine="vector")
    message = str(caught.value)
    assert message.startswith("the model cannot be batched over clients: vmap: It looks like")
    assert message.endswith("; use --engine loop")
    assert "\n" not in message
    assert engine_of(Branching())[0] == "loop"


class TimeFirst(nn.Module):
    """Norms the steps of all samples, one step after the other: a sample's rows are not next to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x[:, 0]).transpose(0, 1)
        return self.head(self.norm(x.reshape(-1, 4)).reshape(x.shape).mean(0))


class Halves(nn.Module):
    """Runs both halves of a sample through the same layers, as one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(18, 4), nn.BatchNorm1d(4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.norm(self.layer(torch.cat(x.flatten(1).chunk(2, 1))))
        return self.head(torch.cat(both.chunk(2), 1))


def untracked() -> nn.Module:
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 4), norm, nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("build_it", "problem"),
    [
        (TimeFirst, "reorders samples before a BatchNorm layer, so that padding cannot be told apart"),
        (Halves, "reorders samples before a BatchNorm layer, so that padding cannot be told apart"),
        (untracked, "has a BatchNorm layer without running statistics, which padding reaches in evaluation"),
    ],
)
def test_padding_that_would_reach_samples_needs_the_loop_engine(build_it: Callable[[], nn.Module], problem: str):
    with raises_exactly(f"the model {problem}; use --engine loop"):
        holdfast.run("fedavg", images(), build_it(), **SETTINGS, engine="vector")
    assert engine_of(build_it()) == ("loop", f"the model {problem}")


def test_samples_that_become_several_rows_keep_the_vector_engine():
    class BatchFirst(TimeFirst):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layer(x[:, 0])
            return self.head(self.norm(x.reshape(-1, 4)).reshape(x.shape).mean(1))

    module = BatchFirst()
    loop, vector = (holdfast.run("moon", images(), module, **SETTINGS, engine=e) for e in ("loop", "vector"))
    assert distance(loop, vector) < 1e-12


class Plain(nn.Module):
    """Attention by the function that other libraries call."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.mix, self.head, self.causal = nn.Linear(6, 6), nn.Linear(36, 3), causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.mix(x)
        return self.head(nn.functional.scaled_dot_product_attention(q, x, x, is_causal=self.causal).flatten(1))


class DropPath(nn.Module):
    """Leaves a branch out at random, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.branch, self.head, self.keep = nn.Linear(36, 36), nn.Linear(36, 3), 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        if not self.training:
            return self.head(x + self.branch(x))
        kept = (self.keep + torch.rand((len(x), 1), dtype=x.dtype, device=x.device)).floor_()
        return self.head(x + self.branch(x) * kept / self.keep)


class Shortcut(nn.Module):
    """Looks at values for speed, unless it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        if not torch.compiler.is_compiling() and (x == 0).all():
            return self.head.bias.expand(len(x), 3)
        return self.head(x)


@pytest.mark.filterwarnings("error")  # PyTorch warns where it cannot batch a call
@pytest.mark.parametrize(
    ("module", "federation"),
    [
        (Transformer(dropout=0.0), tokens),
        (Masked(dropout=0.0), masked_tokens),
        (Plain(), images),
        (Plain(causal=True), images),
        (DropPath(), images),
        (Shortcut(), images),
    ],
    ids=["encoder", "masked encoder", "attention", "causal attention", "drop-path", "shortcut"],
)
def test_attention_without_dropout_drop_path_and_shortcuts_are_batched(module: nn.Module, federation: Any):
    loop, vector = (holdfast.run("fedavg", federation(), module, **SETTINGS, engine=e) for e in ("loop", "vector"))
    assert distance(loop, vector) < 1e-12
    assert not torch.compiler.is_compiling()


def test_drop_path_is_drawn_from_the_seed():
    module = DropPath()
    before = torch.get_rng_state()
    once, again = (holdfast.run("fedavg", images(), module, **SETTINGS, engine="loop") for _ in range(2))
    assert torch.equal(once.w, again.w)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(once.w, holdfast.run("fedavg", images(), module, **SETTINGS, seed=1).w)
    module.keep = 1.0
    assert not torch.equal(once.w, holdfast.run("fedavg", images(), module, **SETTINGS).w)


class ExtraKey(nn.Module):
    """Attention with one more key, which is not batched over clients."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(6, 2, add_bias_kv=True, batch_first=True)
        self.head = nn.Linear(36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, 0] if x.dim() == 4 else x
        return self.head(self.mix(x, x, x, need_weights=False)[0].flatten(1))


def test_attention_that_cannot_be_batched_gets_the_loop_engine():
    problem = (
        "the model cannot be batched over clients: nn.MultiheadAttention with bias_k, add_zero_attn or without a batch "
        "axis can neither drop units nor be batched over clients"
    )
    with raises_exactly(f"{problem}; use --engine loop"):
        holdfast.run("fedavg", images(), ExtraKey(), **SETTINGS, engine="vector")
    assert engine_of(ExtraKey()) == ("loop", problem)

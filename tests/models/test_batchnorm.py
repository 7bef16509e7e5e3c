"""BatchNorm in a training pass against PyTorch's own layers: outputs, gradients, running statistics, padding."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from helpers.exact_errors import raises_exactly
from holdfast import Net

CLASSES = 3
BATCH = 5


class Normed(nn.Module):
    """A layer, a norm that may run several times, and a head."""

    def __init__(self, layer: nn.Module, norm: nn.Module, features: int, times: int = 1) -> None:
        super().__init__()
        self.layer, self.norm, self.times = layer, norm, times
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        for _ in range(self.times):
            x = torch.tanh(self.norm(x)) + 0.5 * x
        return self.head(x.flatten(1))


class PerStep(nn.Module):
    """Norms every step of a sequence: the rows of the norm are [batch * steps, channels]."""

    def __init__(self, norm: nn.Module, time_first: bool = False) -> None:
        super().__init__()
        self.layer, self.norm, self.time_first = nn.Linear(3, 4), norm, time_first
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        x = x.transpose(0, 1) if self.time_first else x
        normed = self.norm(x.reshape(-1, 4)).reshape(x.shape)
        return self.head(normed.mean(0 if self.time_first else 1))


def case(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a module and the shape of one input."""
    rows, image = (4,), (2, 4, 3)
    conv = nn.Conv2d(2, 4, 3, padding=1)
    found: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
        "1d": (Normed(nn.Linear(4, 6), nn.BatchNorm1d(6), 6), rows),
        "1d of a series": (Normed(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), 12), (2, 5)),
        "2d": (Normed(conv, nn.BatchNorm2d(4), 48), image),
        "3d": (Normed(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), 8), (1, 2, 3, 3)),
        "momentum": (Normed(conv, nn.BatchNorm2d(4, momentum=0.37), 48), image),
        "no momentum": (Normed(conv, nn.BatchNorm2d(4, momentum=None), 48), image),
        "large eps": (Normed(conv, nn.BatchNorm2d(4, eps=0.3), 48), image),
        "not affine": (Normed(conv, nn.BatchNorm2d(4, affine=False), 48), image),
        "untracked": (Normed(conv, nn.BatchNorm2d(4, track_running_stats=False), 48), image),
        "used twice": (Normed(conv, nn.BatchNorm2d(4), 48, times=2), image),
        "used twice, no momentum": (Normed(conv, nn.BatchNorm2d(4, momentum=None), 48, times=2), image),
        "sync": (Normed(conv, nn.SyncBatchNorm(4), 48), image),
        "per step": (PerStep(nn.BatchNorm1d(4)), (6, 3)),
    }
    return found[name]


NAMES = [
    "1d", "1d of a series", "2d", "3d", "momentum", "no momentum", "large eps", "not affine", "untracked", "used twice",
    "used twice, no momentum", "sync", "per step",
]  # fmt: skip


def pretrained(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """The same in double precision, with parameters, statistics and counters that are not those of a new layer."""
    torch.manual_seed(len(name))
    module, shape = case(name)
    for sub in module.modules():
        if isinstance(sub, nn.modules.batchnorm._BatchNorm):
            if sub.affine:
                nn.init.normal_(sub.weight, 1.0, 0.3)
                nn.init.normal_(sub.bias, 0.0, 0.3)
            if sub.track_running_stats:
                sub.running_mean.normal_()
                sub.running_var.uniform_(0.5, 2.0)
                sub.num_batches_tracked.fill_(7)
    return module.double(), shape


class Pass(NamedTuple):
    """What a training pass gives."""

    logits: Tensor
    gradient: dict[str, Tensor]
    state: dict[str, Tensor]  # the module's state afterwards


def inputs(shape: tuple[int, ...], rows: int = BATCH) -> tuple[Tensor, Tensor]:
    """A batch, and the weights of its logits in the objective."""
    g = torch.Generator().manual_seed(rows)
    return tuple(torch.randn(rows, *s, generator=g, dtype=torch.float64) for s in (shape, (CLASSES,)))  # type: ignore


def by_torch(module: nn.Module, *batches: tuple[Tensor, Tensor]) -> Pass:
    """Passes of the module itself in training mode; the gradient is that of the last one."""
    module = copy.deepcopy(module).train()
    for x, weights in batches:
        module.zero_grad()
        logits = module(x)
        (logits * weights).sum().backward()
    return Pass(logits.detach(), {n: p.grad for n, p in module.named_parameters()}, module.state_dict())


def by_holdfast(module: nn.Module, *batches: tuple[Tensor, Tensor], mask: Tensor | None = None) -> Pass:
    """The same passes by the network as a function; rows that the mask leaves out are not in the objective."""
    net = Net(module, tuple(batches[0][0].shape[1:]), CLASSES, precision="fp64")
    for x, weights in batches:
        w = net.initial.clone().requires_grad_()
        out, stats = net.training_pass(w, x, mask, None)
        kept = slice(None) if mask is None else mask
        (gradient,) = torch.autograd.grad((out.logits * weights)[kept].sum(), w)
        net = net.with_stats(stats)
    return Pass(out.logits.detach()[kept], net.layout.split(gradient), net.state_dict(net.initial))


def assert_same(found: Pass, expected: Pass) -> None:
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-12, atol=1e-13)
    assert found.gradient.keys() == expected.gradient.keys()
    for name, g in expected.gradient.items():
        torch.testing.assert_close(found.gradient[name], g, rtol=1e-10, atol=1e-12, msg=name)
    assert found.state.keys() == expected.state.keys()
    for name, t in expected.state.items():
        assert found.state[name].dtype == t.dtype, name
        torch.testing.assert_close(found.state[name], t, rtol=1e-12, atol=1e-13, msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_training_pass_is_that_of_pytorch(name: str):
    module, shape = pretrained(name)
    batches = [inputs(shape, rows) for rows in (BATCH, 4, 3)]
    expected = by_torch(module, *batches)
    assert_same(by_holdfast(module, *batches), expected)
    counters = [t for n, t in expected.state.items() if n.endswith("num_batches_tracked")]
    assert [t.item() for t in counters] == ([] if name == "untracked" else [13 if "twice" in name else 10])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["at the end", "between"])
def test_padding_changes_nothing(name: str, where: str):
    """A padded batch gives what the short one gives, whatever the padding holds."""
    module, shape = pretrained(name)
    x, weights = inputs(shape)
    mask = torch.tensor([True] * BATCH + [False] * 3)
    if where == "between":
        mask = mask[torch.tensor([0, 5, 1, 2, 6, 3, 4, 7])]
    padded, more = x.new_full((8, *shape), 1e3), weights.new_ones(8, CLASSES)
    padded[mask], more[mask] = x, weights
    assert_same(by_holdfast(module, (padded, more), mask=mask), by_torch(module, (x, weights)))


def test_a_mask_without_padding_is_no_mask():
    module, shape = pretrained("2d")
    batch = inputs(shape)
    assert_same(by_holdfast(module, batch, mask=torch.ones(BATCH, dtype=torch.bool)), by_torch(module, batch))


@pytest.mark.parametrize("name", ["1d", "no momentum of rows"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_single_value_per_channel_changes_nothing(name: str, padded: bool):
    """PyTorch refuses such a batch; here the running statistics stand in for its own, and do not change."""
    module, shape = pretrained("1d")
    module.norm.momentum = 0.1 if name == "1d" else None
    x, weights = inputs(shape, 1)
    expected = copy.deepcopy(module).eval()
    (expected(x) * weights).sum().backward()
    mask = torch.tensor([True, False, False]) if padded else None
    given = [torch.cat([t, torch.full_like(t, 50.0).expand(2, -1)]) if padded else t for t in (x, weights)]
    found = by_holdfast(module, (given[0], given[1]), mask=mask)
    gradient = {n: p.grad for n, p in expected.named_parameters()}
    assert_same(found, Pass(expected(x).detach(), gradient, expected.state_dict()))


def test_one_sample_of_many_values_is_a_batch():
    module, shape = pretrained("2d")
    batch = inputs(shape, 1)
    assert_same(by_holdfast(module, batch), by_torch(module, batch))


@pytest.mark.parametrize("name", [n for n in NAMES if n != "untracked"])
def test_evaluation_uses_the_running_statistics(name: str):
    module, shape = pretrained(name)
    batch, (x, _) = inputs(shape), inputs(shape, 3)
    trained = copy.deepcopy(module).train()
    trained(batch[0])
    net = Net(module, shape, CLASSES, precision="fp64")
    before = net(net.initial, x).logits
    torch.testing.assert_close(before, copy.deepcopy(module).eval()(x), rtol=1e-12, atol=1e-13)
    after = net.with_stats(net.training_pass(net.initial, batch[0], None, None)[1])
    torch.testing.assert_close(after(net.initial, x).logits, trained.eval()(x), rtol=1e-12, atol=1e-13)
    assert not torch.allclose(before, after(net.initial, x).logits)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "untracked"])
def test_frozen_layers_use_the_running_statistics_in_training_too(name: str):
    module, shape = pretrained(name)
    x, weights = inputs(shape)
    expected = copy.deepcopy(module).train()
    for sub in expected.modules():
        if isinstance(sub, nn.modules.batchnorm._BatchNorm):
            sub.eval()
    net = Net(module, shape, CLASSES, precision="fp64", batchnorm="frozen")
    w = net.initial.clone().requires_grad_()
    out, stats = net.training_pass(w, x, None, None)
    (gradient,) = torch.autograd.grad((out.logits * weights).sum(), w)
    (expected(x) * weights).sum().backward()
    torch.testing.assert_close(out.logits, expected(x), rtol=1e-12, atol=1e-13)
    for parameter, g in net.layout.split(gradient).items():
        torch.testing.assert_close(g, expected.get_parameter(parameter).grad, rtol=1e-10, atol=1e-12)
    assert stats == {}


@pytest.mark.parametrize("name", NAMES)
def test_clients_in_one_batch_are_clients_one_by_one(name: str):
    """Under vmap every client has its own weights, statistics, samples and padding."""
    module, shape = pretrained(name)
    net = Net(module, shape, CLASSES, precision="fp64")
    g = torch.Generator().manual_seed(3)
    ws = net.initial + 0.1 * torch.randn(3, len(net.initial), generator=g, dtype=torch.float64)
    xs = torch.randn(3, BATCH, *shape, generator=g, dtype=torch.float64)
    masks = torch.arange(BATCH) < torch.tensor([[5], [3], [2]])
    rows = {k: torch.stack([t, t + 1, t + 2]) for k, t in net.stats.items()}

    def one(w: Tensor, x: Tensor, mask: Tensor, stats: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        out, new = net.with_stats(stats).training_pass(w, x, mask, None)
        return out.logits, new

    logits, stats = vmap(one)(ws, xs, masks, rows)
    for i, mask in enumerate(masks):
        own = {k: t[i] for k, t in rows.items()}
        out, new = net.with_stats(own).training_pass(ws[i], xs[i][mask], None, None)
        torch.testing.assert_close(logits[i][mask], out.logits, rtol=1e-12, atol=1e-13)
        assert new.keys() == stats.keys()
        for k, t in new.items():
            torch.testing.assert_close(stats[k][i], t, rtol=1e-12, atol=1e-13)


def test_rows_that_do_not_belong_to_samples_need_the_loop_engine():
    class Pairs(nn.Module):
        """Norms one row for every two samples."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x + self.norm(x[:3]).mean(0))

    net = Net(Pairs(), (4,), CLASSES, precision="fp64", example=torch.zeros(6, 4, dtype=torch.float64)[:2])
    with raises_exactly(
        "a BatchNorm layer sees 3 rows for a batch of 5 samples, so padding cannot be told apart; use --engine loop"
    ):
        net.training_pass(net.initial, inputs((4,))[0], torch.ones(BATCH, dtype=torch.bool), None)

"""FedNLR against its equations, and its hand cases."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import reference_papers as ref
from helpers.paper_problems import SETTINGS, assert_follows, every_engine, every_problem, network, start
from helpers.toys import FEDERATION, assert_same, train
from holdfast import Config, DataSet, Federation, HoldfastError, Method, Net, federate
from holdfast.engines.local_training import CLIENT_AXES, ClientTask
from holdfast.engines.loop import unpadded
from holdfast.models.zoo import make
from holdfast.parts.fednlr import FedNLR, factors, temperatures
from holdfast.runs.setup import prepare_simulation

TABLES = {"a1": 0.45, "a2": 0.3}


@every_engine
@every_problem
@pytest.mark.parametrize(
    ("sum", "constants"), [("fednlr", {}), ("fednlr-tables", TABLES), ("fednlr(mu=3)", {"mu": 3.0})], ids=str
)
def test_agrees_with_the_reference(sum, constants, problem, engine, monkeypatch):
    layers = start(problem, monkeypatch)
    ran = train(sum, FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, lambda at, batches, lr, t, cohort: ref.fednlr_round(at, batches, lr, **constants).w)


@every_engine
def test_agrees_with_the_reference_with_a_spread_per_layer(engine):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    ran = train("fednlr(mu=[1.5, 4, 8])", FEDERATION, network(layers), engine=engine, **SETTINGS)
    assert_follows(ran, layers, lambda at, batches, lr, t, cohort: ref.fednlr_round(at, batches, lr, mu=[1.5, 4, 8]).w)


# -- the factors -----------------------------------------------------------------------------------------------------
def found_factors(sum: str, federation: Federation, model: nn.Module, engine: str) -> Tensor:
    """Every client's factors before the first round, [clients, neurons]."""
    config = Config(method=sum, clients=federation.clients, engine=engine, precision="fp64", device="cpu")
    simulation = prepare_simulation(config, Method.parse(sum), federation, model)
    broadcast, who = simulation.broadcast(1, {}), simulation.client_info(simulation.occupied)
    tasks = [ClientTask(broadcast, unpadded(who, i), {}) for i in range(len(who.id))]
    if engine == "vector":
        begin = torch.func.vmap(simulation.engines[0].training.begin, in_dims=(CLIENT_AXES,))
        return begin(ClientTask(broadcast, who, {}))["fednlr"]["factor"]
    return torch.stack([simulation.engines[0].training.begin(task)["fednlr"]["factor"] for task in tasks])


@every_engine
@pytest.mark.parametrize(
    ("sum", "mu"),
    [
        ("fednlr", [1 + 1 / 3 + math.log10(5), 1 + 2 / 3 + math.log10(4), 2 + math.log10(3)]),
        ("fednlr-tables", [1.15 + 0.3 * math.log10(5), 1.3 + 0.3 * math.log10(4), 1.45 + 0.3 * math.log10(3)]),
        ("fednlr(mu0=2, a1=0, a2=0)", [2, 2, 2]),
        ("fednlr(mu=7)", [7, 7, 7]),
        ("fednlr(mu=[1.01, 5, 100])", [1.01, 5, 100]),
    ],
)
def test_the_mean_factor_is_one_and_the_largest_is_mu_times_the_smallest(sum, mu, engine):
    found = found_factors(sum, FEDERATION, network(ref.random_layers((3, 5, 4, 3), seed=0)), engine)
    assert len(found) == 4
    for row in found:
        for own, spread in zip(torch.split(row, [5, 4, 3]), mu, strict=True):
            assert float(own.mean()) == pytest.approx(1, rel=1e-15)
            assert float(own.max() / own.min()) == pytest.approx(spread, rel=1e-14)


@every_engine
def test_the_activation_pass_is_exact_in_any_chunks(engine, monkeypatch):
    layers = ref.random_layers((3, 5, 4, 3), seed=0)
    whole = found_factors("fednlr", FEDERATION, network(layers), engine)
    monkeypatch.setattr("holdfast.engines.local_training.CHUNK", 3)
    torch.testing.assert_close(found_factors("fednlr", FEDERATION, network(layers), engine), whole, rtol=1e-13, atol=0)
    for row, i in enumerate(FEDERATION.occupied):
        x = FEDERATION.data.x[torch.from_numpy(FEDERATION.deal.client(i))]
        brute = torch.cat(ref.fednlr_factors(layers, x))
        torch.testing.assert_close(whole[row], brute, rtol=1e-13, atol=0)


def one_layer(neurons: int) -> Net:
    return Net(nn.Linear(2, neurons), (2,), neurons, precision="fp64")


@pytest.mark.parametrize("h", [[0.7] * 4, [0.0] * 4, [0.3, 0.3 * (1 + 1e-15), 0.3, 0.3]], ids=["equal", "dead", "ulp"])
def test_equal_activations_give_every_neuron_the_rate_one(h):
    found = factors(torch.tensor(h, dtype=torch.float64), [3.0], one_layer(4).layout)
    assert found.tolist() == [1.0] * 4


def test_almost_equal_activations_are_distinguished():
    found = factors(torch.tensor([1.0, 1.0 + 1e-5], dtype=torch.float64), [3.0], one_layer(2).layout)
    assert found.tolist() == pytest.approx([0.5, 1.5], rel=1e-9)


def solved(h: Tensor, mu: float) -> Tensor:
    """The T at which the largest of M softmax(h / T) is mu times the smallest, by bisection: the ratio falls with T."""
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        scales = torch.softmax(h / middle, 0)
        low, high = (middle, high) if float(scales.max() / scales.min()) > mu else (low, middle)
    return torch.tensor(low, dtype=h.dtype)


@pytest.mark.parametrize("sum", ["fednlr", "fednlr-tables"])
def test_temperatures_give_the_ratio_the_mean_and_the_rates(sum):
    (part,), net = Method.parse(sum).parts, Net(conv_net(), (2, 7, 6), 3, precision="fp64")
    h, mu = net.neurons(net.initial, images().data.x).mean(0), part.spreads(net.layout)
    found = temperatures(h, mu, net.layout)
    sizes = [4, 6, 4, 5, 3]
    layers = zip(torch.split(h, sizes), torch.split(factors(h, mu, net.layout), sizes), found, mu, strict=True)
    for own, rates, T, spread in layers:
        torch.testing.assert_close(T, solved(own, spread), rtol=1e-12, atol=0)
        scales = len(own) * torch.softmax(own / T, 0)  # Eq. 15
        assert float(scales.max() / scales.min()) == pytest.approx(spread, rel=1e-12)
        assert float(scales.mean()) == pytest.approx(1, rel=1e-12)
        torch.testing.assert_close(scales, rates, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("h", "mu"), [([0.7, 0.7], 3.0), ([0.0, 0.0], 3.0), ([0.1, 0.7], 1.0), ([0.7, 0.7], 1.0)])
def test_where_all_rates_are_one_the_temperature_is_infinite(h, mu):
    h, layout = torch.tensor(h, dtype=torch.float64), one_layer(2).layout
    assert temperatures(h, [mu], layout).tolist() == [math.inf]
    assert factors(h, [mu], layout).tolist() == [1, 1]


@every_engine
def test_no_spread_is_fedavg_bit_for_bit(engine):
    plain, still = (train(sum, engine=engine).after for sum in ("fedavg", "fednlr(mu0=1, a1=0, a2=0)"))
    for one, other in zip(plain, still, strict=True):
        assert_same(other, one)


def test_the_recipe_of_the_tables_has_their_constants():
    assert Method.parse("fednlr-tables") == Method((FedNLR(mu0=1, a1=0.45, a2=0.3),))
    assert Method.parse("fednlr") == Method((FedNLR(mu0=1, a1=1, a2=1),))


# -- convolutions and norms ------------------------------------------------------------------------------------------
def images() -> Federation:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(17, 2, 7, 6, generator=g, dtype=torch.float64)
    y = torch.arange(17) % 3
    groups = torch.tensor([0] * 5 + [1] * 12)
    return federate(DataSet("images", x, y, x, y, ("a", "b", "c"), groups=groups), "given", clients=2)


def conv_net(norm: str = "affine") -> nn.Module:
    """A convolution with bias and norm, one with a norm alone, one with neither, a dense layer, the head."""
    first: list[nn.Module] = [nn.GroupNorm(2, 4, affine=norm != "bare"), nn.ReLU()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(9)
        net = nn.Sequential(
            nn.Conv2d(2, 4, 3), *(first[::-1] if norm == "after a relu" else first),
            nn.Conv2d(4, 6, 2, bias=False), nn.GroupNorm(3, 6), nn.ReLU(),
            nn.Conv2d(6, 4, 2, stride=2, groups=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3),
        ).double()  # fmt: skip
        for p in net.parameters():
            if p.dim() == 1:
                nn.init.normal_(p)  # norms that do something
        return net


def brute_factors(net: nn.Module, x: Tensor) -> list[Tensor]:
    """One tensor of factors per layer, with the outputs of a plain forward pass."""
    h, found = x, []
    modules = list(net)
    for module, after in zip(modules, [*modules[1:], None], strict=True):
        h = module(h)
        if isinstance(module, nn.Conv2d):
            norm = None
            if isinstance(after, nn.GroupNorm):
                ones = torch.ones(after.num_channels, dtype=h.dtype)
                affine = (after.weight, after.bias) if after.affine else (ones, 0 * ones)
                norm = (after.num_groups, *affine)
            found.append(ref.fednlr_conv_activation(h, norm))
        elif isinstance(module, nn.Linear):
            found.append(torch.relu(h).mean(0))
    L = len(found)
    return [ref.fednlr_layer_factors(own, ref.fednlr_mu(depth, L, len(own))) for depth, own in enumerate(found, 1)]


def spread_out(net: nn.Module, found: list[Tensor]) -> Tensor:
    """The factors over weights, biases and the norms after them, in the order of the parameters; 1 elsewhere."""
    pieces, layer, above = [], -1, None
    for module in net:
        layer += isinstance(module, nn.Conv2d | nn.Linear)
        for p in module.parameters():
            owned = not (isinstance(module, nn.GroupNorm) and isinstance(above, nn.ReLU))
            factor = found[layer] if owned else torch.ones_like(found[layer])
            pieces.append(factor.reshape((-1,) + (1,) * (p.dim() - 1)).expand_as(p).reshape(-1))
        above = module
    return torch.cat(pieces)


every_norm = pytest.mark.parametrize("norm", ["affine", "bare", "after a relu"])


@every_engine
@every_norm
def test_convolutions_and_norms_against_brute_force(norm, engine):
    federation, net = images(), conv_net(norm)
    found = found_factors("fednlr", federation, net, engine)
    with torch.no_grad():
        brute = [brute_factors(net, federation.data.x[torch.from_numpy(federation.deal.client(i))]) for i in (0, 1)]
    for row, own in zip(found, brute, strict=True):
        torch.testing.assert_close(row, torch.cat(own), rtol=1e-12, atol=0)
        assert (torch.cat(own) - 1).abs().min() > 1e-6  # every neuron is scaled


@every_engine
@every_norm
def test_weights_biases_and_norms_of_a_convolution_move_at_their_neurons_rate(norm, engine):
    # One full-batch step of two clients: delta_i = -lr * factor_i * gradient_i, parameter by parameter.
    federation, net = images(), conv_net(norm)
    ran = train("fednlr", federation, net, engine=engine, lr=0.1, batch=20, epochs=1, rounds=1, cohort=2)
    update = torch.zeros_like(ran.after[0]["w"])
    for i, n in ((0, 5), (1, 12)):
        own = torch.from_numpy(federation.deal.client(i))
        x, y = federation.data.x[own], federation.data.y[own]
        g = torch.cat([p.reshape(-1) for p in torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))])
        with torch.no_grad():
            update -= n / 17 * 0.1 * spread_out(net, brute_factors(net, x)) * g
    assert (update != 0).double().mean() > 0.8
    torch.testing.assert_close(ran.after[1]["w"] - ran.after[0]["w"], update, rtol=1e-9, atol=1e-14)


# -- a neuron per channel and position -------------------------------------------------------------------------------
def test_by_position_the_spreads_are_those_of_the_papers_network():
    layout = Net(make("vgg9", (3, 32, 32), 10), (3, 32, 32), 10).layout
    assert [layer.neurons * layer.positions for layer in layout.layers] == [
        32 * 32 * 32, 64 * 32 * 32, 128 * 16 * 16, 128 * 16 * 16, 256 * 8 * 8, 256 * 8 * 8, 512, 512, 10,
    ]  # fmt: skip
    printed = [2.40, 2.54, 2.50, 2.55, 2.51, 2.56, 2.16, 2.21, 1.75]
    found = FedNLR(a1=0.45, a2=0.3, neurons="position").spreads(layout)
    assert found == pytest.approx(printed, abs=0.005)
    by_channel = FedNLR(a1=0.45, a2=0.3).spreads(layout)
    assert by_channel[:6] != pytest.approx(printed[:6], abs=0.3)
    assert by_channel[6:] == pytest.approx(printed[6:], abs=0.005)


def brute_factors_by_position(net: nn.Module, x: Tensor) -> list[Tensor]:
    """One tensor of factors per layer of ``conv_net``: every output number of a layer is a neuron of its own."""
    h, found = x, []
    modules = list(net)
    for module, after in zip(modules, [*modules[1:], None], strict=True):
        h = module(h)
        if isinstance(module, nn.Conv2d | nn.Linear):
            out = after(h) if isinstance(after, nn.GroupNorm) else h
            found.append(torch.relu(out).mean(0))
    rates = []
    for depth, own in enumerate(found, 1):
        factors = ref.fednlr_layer_factors(own.reshape(-1), ref.fednlr_mu(depth, len(found), own.numel()))
        rates.append(torch.stack([row.mean() for row in factors.reshape(own.shape)]))
    return rates


@every_engine
@pytest.mark.parametrize("norm", ["affine", "bare"])
def test_by_position_against_brute_force(norm, engine):
    federation, net = images(), conv_net(norm)
    found = found_factors("fednlr(neurons=position)", federation, net, engine)
    by_channel = found_factors("fednlr", federation, net, engine)
    for i in (0, 1):
        with torch.no_grad():
            brute = brute_factors_by_position(net, federation.data.x[torch.from_numpy(federation.deal.client(i))])
        torch.testing.assert_close(found[i], torch.cat(brute), rtol=1e-12, atol=0)
        assert [float(rates.mean()) for rates in brute] == pytest.approx([1.0] * 5, rel=1e-12)
    assert (found - by_channel).abs().max() > 0.05
    sums = ("fednlr(neurons=position)", "fednlr")
    settings = {"lr": 0.1, "batch": 5, "epochs": 1, "rounds": 2, "cohort": 2, "engine": engine}
    models = [train(sum, federation, net, **settings).after[-1]["w"] for sum in sums]
    assert (models[0] - models[1]).abs().max() > 1e-3


@every_engine
def test_a_dense_network_has_the_same_neurons_by_position(engine):
    found = [train(sum, engine=engine, rounds=2).after[-1] for sum in ("fednlr", "fednlr(neurons=position)")]
    assert_same(*found)


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sum", "says"),
    [
        ("fednlr(mu=1)", "fednlr: mu must be a number or a list of numbers above 1, not [1]"),
        ("fednlr(mu=0.5)", "fednlr: mu must be a number or a list of numbers above 1, not [0.5]"),
        ("fednlr(mu=[2, 1, 3])", "fednlr: mu must be a number or a list of numbers above 1, not [2, 1, 3]"),
        ("fednlr(mu=[2, nope, 3])", "fednlr: mu must be a number or a list of numbers above 1, not [2, nope, 3]"),
        (
            "fednlr(mu=[2, 3])",
            "fednlr: mu has 2 numbers, but the model has 3 layers; give one number, or one per layer",
        ),
        ("fednlr(mu=[])", "fednlr: mu has 0 numbers, but the model has 3 layers; give one number, or one per layer"),
        ("fednlr(mu0=0.9)", "fednlr: mu0 must be a number of at least 1, not 0.9"),
        ("fednlr(a1=-0.1)", "fednlr: a1 must be a number of at least 0, not -0.1"),
        ("fednlr(neurons=pixel)", "fednlr: neurons must be one of channel, position, not pixel"),
        ("fednlr(a2=-1)", "fednlr: a2 must be a number of at least 0, not -1"),
    ],
)
def test_bad_spreads_are_refused_in_one_line(sum, says):
    with pytest.raises(HoldfastError) as caught:
        train(sum)
    assert str(caught.value) == says
    assert "\n" not in says

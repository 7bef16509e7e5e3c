"""dp: what one client can change, by brute force; its equations; an audit of what a run reveals."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import beta

from helpers.toys import ENGINES, FEDERATION, Number, Quadratic, mlp, points, server_round, train
from holdfast import HoldfastError, Method
from holdfast.core.tensors import flatten
from holdfast.method.config import Config
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES
from holdfast.runs.setup import prepare_simulation
from holdfast.testing.laws import assert_agree, assert_close
from holdfast.training.privacy import PrivacyAccountant

every_engine = pytest.mark.parametrize("engine", ENGINES)
NAMES = [n for n, c in parts().items() if c.__module__.startswith("holdfast.") and not c.private]
SETTINGS = {"clients": 4, "lr": 0.3, "epochs": 1, "batch": 5, "public": 0.2, "engine": "loop", "precision": "fp64"}


def addable() -> list[str]:
    """Return every method that dp can be added to."""

    def adds(name):
        try:
            return bool(Method.parse(f"{name}+dp(noise=0)"))
        except HoldfastError:
            return False

    return [name for name in [*NAMES, *RECIPES] if adds(name)]


# -- the sum that the server knows -----------------------------------------------------------------------------------
def sums(method: str):
    """Return a function from clients of a round to the sum, as a vector, that the server makes of them."""
    simulation = prepare_simulation(Config(**SETTINGS, cohort=3), Method.parse(method), FEDERATION, mlp())
    broadcast = simulation.broadcast(1, simulation.server.messages())
    everybody = simulation.train(broadcast, np.array([0, 1, 3, 4]))

    def of(rows: list[int]) -> torch.Tensor:
        update = everybody.rows(torch.tensor(rows, dtype=torch.int64))
        r, uploads = simulation.server.admit(simulation._server_view(1, update, broadcast.lr), update.uploads)
        return torch.cat([r.deltas[0], *(t.flatten() for _, t in sorted(flatten(uploads).items()))]) * r.count

    return of


@pytest.mark.parametrize("method", addable())
def test_one_client_changes_the_sum_by_the_clip_at_most(method):
    """Whoever else takes part; all that parts upload counts as well."""
    clip = 0.05  # all are longer
    of = sums(f"{method}+dp({clip}, noise=0)")
    for some in ([0, 1, 2, 3], [1, 3], [2]):
        for left_out in some:
            length = float(torch.linalg.vector_norm(of(some) - of([i for i in some if i != left_out])))
            assert length <= clip * (1 + 1e-9)
            assert length == pytest.approx(clip)


def test_the_sum_of_nobody_is_zero():
    assert float(sums("scaffold+dp(0.05, noise=0)")([]).abs().max()) == 0


def test_numbers_of_samples_do_not_matter():
    deltas = [[3.0, 4.0], [0.3, 0.4]]
    part = Method.parse("dp(1, noise=0, expected=4)").parts[0]
    for n in ([1, 1], [1000, 1]):
        r = server_round(deltas, n=n, K=[1, 1], weights=[n[0] / sum(n), n[1] / sum(n)])
        row, _ = part.admit({"clip": torch.tensor(1.0)}, r, {})
        assert row.deltas[0].tolist() == pytest.approx([0.9 / 4, 1.2 / 4])  # (0.6, 0.8) + (0.3, 0.4), over 4
        assert row.total(row.deltas).tolist() == pytest.approx([0.9, 1.2])


def test_a_server_clips_once_more_what_nodes_did_not():
    part = Method.parse("dp(1, noise=0, expected=1)").parts[0]
    row, _ = part.admit({"clip": torch.tensor(1.0)}, server_round([[1e30, 0.0]], n=[1], K=[1], weights=[1.0]), {})
    assert row.deltas[0].tolist() == pytest.approx([1.0, 0.0])


# -- its equations ---------------------------------------------------------------------------------------------------
@every_engine
def test_without_noise_and_clip_it_is_the_uniform_mean(engine):
    found, expected = (train(m, engine=engine) for m in ("dp(none, noise=0)", "mean(uniform)"))
    for one, other in zip(found.after, expected.after, strict=True):
        assert_close({"w": one["w"]}, {"w": other["w"]}, 1e-12)


def moved(sum: str, engine: str = "loop", cohort: int | None = 3, **settings):
    """Return the first round's update; the cohort and its training are the same for all noise and all clips."""
    ran = train(sum, engine=engine, rounds=1, cohort=cohort, **settings)
    return ran.after[1]["w"] - ran.after[0]["w"]


def test_the_noise_has_the_standard_deviation_that_it_says():
    for clip, z in product((0.1, 2.0), (0.5, 4.0)):
        noise = (moved(f"dp({clip}, noise={z})") - moved(f"dp({clip}, noise=0)")) * 3 / (z * clip)
        assert len(noise) == 59
        assert 0.75 < float(noise.std()) < 1.25  # three standard errors
        assert abs(float(noise.mean())) < 3 / math.sqrt(59)


def test_shares_of_noise_add_up():
    """Three shares; two would suffice, so that their sum is larger by sqrt(3/2)."""
    quiet = moved("dp(1, noise=0, where=clients)")
    whole = (moved("dp(1, noise=2, where=clients)") - quiet) * 3 / 2
    some = (moved("dp(1, noise=2, where=clients, missing=0.3)") - quiet) * 3 / 2
    assert 0.75 < float(whole.std()) < 1.25
    assert torch.allclose(some, whole)  # 0.7 of 3, rounded up, is 3
    more = (moved("dp(1, noise=2, where=clients, missing=0.4)") - quiet) * 3 / 2
    assert torch.allclose(more, whole * math.sqrt(3 / 2))


def test_too_few_shares_are_refused():
    part = Method.parse("dp(1, noise=1, where=clients, expected=3)").parts[0]
    r = server_round([[1.0], [1.0]], n=[1, 1], K=[1, 1], weights=[0.5, 0.5])
    with pytest.raises(HoldfastError, match="round 1: 2 clients returned an update, but the noise of 3 is needed"):
        part.admit({"clip": torch.tensor(1.0)}, r, {})


def test_an_adaptive_clip_by_hand():
    """Lengths 1, 1 and 5 with a clip of 2: two of three are within, and more than half of them should not be."""
    part = Method.parse("dp(2, noise=0, quantile=0.5, step=0.2, expected=3)").parts[0]
    state = {"clip": torch.tensor(2.0, dtype=torch.float64)}
    uploads = {"dp": {"within": torch.tensor([[0.5], [0.5], [-0.5]], dtype=torch.float64)}}
    r, one = part.admit(state, server_round([[1.0], [-1.0], [2.0]], [1] * 3, [1] * 3, [1 / 3] * 3), uploads)
    new = part.absorb(state, r.own(one["dp"]))
    assert float(new["clip"]) == pytest.approx(2 * math.exp(-0.2 * (2 / 3 - 0.5)))


def test_noise_on_counts_is_paid_for_by_more_noise_on_vectors():
    part = Method.parse("dp(1, noise=1, quantile=0.5, counts=1, expected=3)").parts[0]
    assert part.multiplier**-2 + (2 * part.count_noise) ** -2 == pytest.approx(1.0)


@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_an_adaptive_clip_finds_its_quantile(quantile):
    """Where clients never stop moving, the share that is not shortened settles at the quantile."""
    far = points(*[(1e6 + i, 1) for i in range(10)])
    method = Quadratic() + Method.parse(f"dp(1, noise=0, quantile={quantile}, step=1)")
    settings = {"lr": 1e-3, "batch": 1, "epochs": 1, "rounds": 40, "cohort": 10, "eval_every": 40}
    clip = float(train(method, far, Number(0.0), engine="vector", **settings).after[-1]["dp/clip"])
    assert 900 < clip < 1100  # every update has about length 1000


# -- engines, rounds without clients ---------------------------------------------------------------------------------
NOISY = ["scaffold+dp(0.5, noise=0.5)", "fedagg+fedbug+dp(0.5, noise=0.5, quantile=0.5, counts=1)",
         "feddyn+dp(0.5, noise=0.5, where=clients)"]  # fmt: skip


@pytest.mark.parametrize("method", NOISY)
def test_engines_agree_on_noise(method):
    assert_agree(*(train(method, engine=engine, eval_every=3) for engine in ENGINES))


def test_engines_agree_on_rounds_without_clients():
    settings = {"cohort": None, "participation": 0.2, "rounds": 6, "eval_every": 6}
    runs = [train("scaffold+dp(0.5, noise=0.5)", engine=engine, **settings) for engine in ENGINES]
    assert_agree(*runs)
    empty = [record.round for record in runs[0].history if not record.cohort]
    assert empty
    for t in empty:  # noise alone moves the model
        assert not torch.equal(runs[0].after[t]["w"], runs[0].after[t - 1]["w"])
        assert runs[0].history[t - 1].upload_bytes == 0


def test_resuming_changes_nothing_with_noise(tmp_path):
    settings = {"cohort": None, "participation": 0.3, "engine": "loop", "rounds": 4, "eval_every": 4}
    whole = train("dp(0.5, noise=0.5)", **settings)
    left = iter((1, 2, 3))
    train("dp(0.5, noise=0.5)", **settings, out=tmp_path, stop=lambda: next(left) == 2)
    rest = train("dp(0.5, noise=0.5)", **settings, out=tmp_path, resume=True)
    assert torch.equal(rest.after[-1]["w"], whole.after[-1]["w"])


def test_cohorts_are_drawn_one_by_one():
    simulation = prepare_simulation(
        Config(**{**SETTINGS, "clients": 5}, participation=0.3), Method.parse("dp"), FEDERATION, mlp()
    )
    cohorts = [simulation.draw(t) for t in range(1, 1001)]
    sizes = np.bincount([len(c) for c in cohorts], minlength=5)
    assert sizes[0] / 1000 == pytest.approx(0.7**4, abs=0.05)
    for client in (0, 1, 3, 4):
        assert np.mean([client in c for c in cohorts]) == pytest.approx(0.3, abs=0.05)


# -- an audit --------------------------------------------------------------------------------------------------------
def outputs(method: str, canary: bool, rounds: int, **settings) -> np.ndarray:
    """Return how far one round moves the model, many times, with and without a client that pulls as hard as it can."""
    clients = [(0.0, 1), (0.0, 1)] + [(1e9, 1)] * canary
    config = Config(**{"lr": 0.5, "batch": 1, "epochs": 1, "engine": "loop", "precision": "fp64"}, **settings)
    simulation = prepare_simulation(config, Quadratic() + Method.parse(method), points(*clients), Number(0.0))
    simulation.privacy = PrivacyAccountant(0.0, 1e-5, None)  # epsilon of every round takes time
    start, found, trained = simulation.server.w.clone(), [], {}
    train = simulation.train  # every round starts from the same model: a cohort does the same in each

    def once(broadcast, ids):
        if tuple(ids) not in trained:
            trained[tuple(ids)] = train(broadcast, ids)
        return trained[tuple(ids)]

    simulation.train = once
    for t in range(1, rounds + 1):
        simulation.play(t)
        found.append(float(simulation.server.w - start))
        simulation.server.w = start.clone()
    return np.array(found)


def measured_epsilon(present: np.ndarray, absent: np.ndarray, delta: float) -> float:
    """Return the lower end of a one-sided 95% interval of epsilon, from the best threshold of one half of the data."""
    half = len(present) // 2
    thresholds = np.quantile(present[:half], np.linspace(0.05, 0.95, 19))
    rates = [(np.mean(present[:half] > c), np.mean(absent[:half] > c)) for c in thresholds]
    best = thresholds[int(np.argmax([t / (f + 2 / half) for t, f in rates]))]
    hits, false = int(np.sum(present[half:] > best)), int(np.sum(absent[half:] > best))
    least = beta.ppf(0.025, hits, half - hits + 1) if hits else 0.0
    most = beta.ppf(0.975, false + 1, half - false)
    return math.log(max(least - delta, 1e-9) / most)


@pytest.mark.parametrize(
    "settings", [{"cohort": None, "participation": 1.0}, {"cohort": None, "participation": 0.4}], ids=["all", "some"]
)
def test_an_audit_with_a_canary_stays_below_the_claim(settings):
    claimed = PrivacyAccountant(0.7, 1e-2, settings["participation"]).epsilon(1)
    method = "dp(1, noise=0.7, expected=2)"
    found = measured_epsilon(*(outputs(method, there, 900, **settings) for there in (True, False)), 1e-2)
    assert 0.2 * claimed < found < claimed


def test_the_audit_notices_too_little_noise():
    method = "dp(1, noise=0.25, expected=2)"
    found = [outputs(method, there, 700, cohort=None, participation=1.0) for there in (True, False)]
    assert measured_epsilon(*found, 1e-2) > PrivacyAccountant(0.7, 1e-2, 1.0).epsilon(1)


# -- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("sum", "message"),
    [
        ("dp+median", "dp and median cannot be summed: median looks at single clients, which dp does not account for"),
        ("norm_bound+dp", "dp and norm_bound cannot be summed: norm_bound looks at single clients"),
        ("fnr+dp", "dp and fnr cannot be summed: fnr looks at single clients"),
        ("ccvr+dp", "dp and ccvr cannot be summed: ccvr"),
        ("fedagg(mode=fixed_point)+dp", "dp and fedagg cannot be summed: fedagg looks at single clients"),
        ("dp+mean(samples)", "dp counts every client once: leave out mean(samples)"),
        ("dp+freeze(1)", "the noise of dp moves what freeze holds still"),
    ],
)
def test_sums_that_show_more_than_is_accounted_for(sum, message):
    with pytest.raises(HoldfastError) as error:
        Method.parse(sum)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("sum", "settings", "message"),
    [
        ("dp(none)", {}, "dp: without a clip no noise hides a client: set clip, or noise=0"),
        ("dp(where=clients)", {"cohort": None, "participation": 0.5}, "needs cohorts of a fixed size"),
        ("dp(quantile=0.5)", {}, "dp: noise 1 needs counts above 0.5, not 0.15: set counts, or raise the cohort"),
        ("dp(noise=1)", {"epsilon": 8}, "dp has its noise and epsilon as well: leave out one of them"),
        ("fedavg", {"epsilon": 8}, "epsilon has no effect without differential privacy: add +dp to the method"),
        ("dp", {"delta": 0.5}, "with 5 clients, delta must be below 0.2, not 0.5: lower it"),
    ],
)
def test_runs_that_dp_cannot_cover(sum, settings, message):
    with pytest.raises(HoldfastError) as error:
        prepare_simulation(Config(**{**SETTINGS, "clients": 5, "cohort": 3, **settings}), Method.parse(sum), FEDERATION)
    assert message in str(error.value)


def test_stopping_by_the_clients_own_data_is_refused():
    settings = {"clients": 10, "validation": 0.1, "stop_after": 2}
    with pytest.raises(HoldfastError, match="dp does not cover stop_after, which goes by data of the clients"):
        prepare_simulation(Config(**settings), Method.parse("dp"))
    assert prepare_simulation(Config(**settings, validation_from="pool"), Method.parse("dp"))


def test_averaged_statistics_of_batchnorm_are_refused():
    from torch import nn

    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    with pytest.raises(HoldfastError, match="dp does not cover the running statistics of BatchNorm"):
        train("dp", model=model)
    assert train("dp", model=model, batchnorm="local", rounds=1).history[0].epsilon > 0

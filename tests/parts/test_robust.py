"""Robust means against brute force, their breakdown points, and what liars can do to sums of parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from helpers.toys import ENGINES, server_round, train
from holdfast import HoldfastError, Method
from holdfast.attacks.attack import attacks, read_attack
from holdfast.method.config import Config
from holdfast.method.part import parts
from holdfast.runs.setup import prepare_simulation
from holdfast.training.server import capped

ROBUST = [name for name, cls in parts().items() if cls.robust and cls.__module__.startswith("holdfast.")]
SUMS = ["median", "trimmed(0.4)", "multikrum(2, m=1)", "geometric_median", "centred_clipping(steps=20)"]


def part(text):
    return Method.parse(text).parts[0]


def cohort(deltas, weights=None):
    C = len(deltas)
    return server_round(deltas, n=[1] * C, K=[1] * C, weights=weights or [1 / C] * C)


def combined(text, deltas):
    r = cohort(deltas)
    return part(text).aggregate(r)


def rows(C, P=3, seed=0):
    return torch.randn(C, P, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- against brute force ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("C", [1, 2, 5, 8])
def test_the_median_is_numpys(C):
    x = rows(C)
    assert torch.allclose(combined("median", x.tolist()), torch.from_numpy(np.median(x.numpy(), axis=0)), atol=1e-15)


@pytest.mark.parametrize("C", [3, 5, 10])
@pytest.mark.parametrize("share", [0, 0.1, 0.2, 0.4])
def test_the_trimmed_mean_is_the_mean_of_what_is_left(C, share):
    x = rows(C)
    b = int(share * C + 1e-9)
    left = [sorted(column)[b : C - b] for column in x.T.tolist()]
    expected = [sum(column) / len(column) for column in left]
    assert combined(f"trimmed({share})", x.tolist()).tolist() == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("C", "f"), [(5, 1), (7, 2), (9, 1)])
def test_krum_takes_the_update_whose_nearest_neighbours_are_closest(C, f):
    x = rows(C)
    scores = []
    for i in range(C):
        others = [float(((x[i] - x[j]) ** 2).sum()) for j in range(C) if j != i]
        scores.append(min(sum(some) for some in combinations(others, C - f - 2)))
    order = sorted(range(C), key=scores.__getitem__)
    assert torch.equal(combined(f"krum(f={f})", x.tolist()), x[order[0]])
    assert torch.allclose(combined(f"multikrum({f}, m=3)", x.tolist()), x[order[:3]].mean(0))


def test_the_geometric_median_has_the_smallest_sum_of_distances():
    x = rows(7)
    found = combined("geometric_median(steps=500)", x.tolist())
    distance = lambda v: float(torch.linalg.vector_norm(x - v, dim=1).sum())  # noqa: E731
    here = distance(found)
    nearby = found + 1e-3 * rows(200, seed=1)
    assert all(here <= distance(v) + 1e-12 for v in [*nearby, *x, x.mean(0), x.median(0).values])


def test_centred_clipping_by_hand():
    # The median of each coordinate is 1; distances 1, 0, 9; radius given: 2. One step: (-1 + 0 + 2) / 3.
    assert combined("centred_clipping(2, steps=1)", [[0.0], [1.0], [10.0]]).item() == pytest.approx(1 + 1 / 3)
    # By default the median distance, 1: (-1 + 0 + 1) / 3.
    assert combined("centred_clipping(steps=1)", [[0.0], [1.0], [10.0]]).item() == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["median", "trimmed(0.4)", "multikrum(1)", "geometric_median", "centred_clipping"])
def test_equal_updates_are_returned_as_they_are(text):
    x = rows(1).expand(6, -1)
    assert torch.allclose(combined(text, x.tolist()), x[0], atol=1e-12)


@pytest.mark.parametrize("text", SUMS)
def test_the_order_of_the_clients_does_not_matter(text):
    x = rows(7)
    shuffled = x[torch.randperm(7, generator=torch.Generator().manual_seed(3))]
    assert torch.allclose(combined(text, x.tolist()), combined(text, shuffled.tolist()), atol=1e-12)


# -- breakdown points ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1e3, 1e9, 1e15])
@pytest.mark.parametrize("text", SUMS)
def test_two_of_seven_liars_cannot_carry_the_mean_away(text, size):
    """However far they go, the result stays near the honest updates, which lie within a ball of radius 3."""
    x = rows(7).clamp(-1.5, 1.5)
    x[:2] = size * torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    assert float(torch.linalg.vector_norm(combined(text, x.tolist()))) < 6


def test_with_a_majority_of_liars_every_robust_mean_is_theirs():
    x = rows(7)
    x[:4] = 1e6
    for text in ("median", "trimmed(0.4)", "krum(f=2)", "geometric_median"):
        assert float(combined(text, x.tolist()).mean()) > 1e5, text


def test_one_liar_owns_the_plain_mean():
    x = rows(7)
    x[0] = 1e9
    assert float(cohort(x.tolist()).mean(x).abs().min()) > 1e8


# -- norm_bound ------------------------------------------------------------------------------------------------------
def test_norm_bound_shortens_what_is_longer_than_a_multiple_of_the_median():
    r = cohort([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0], [0.0, 100.0], [1.0, 0.0]])  # lengths 5, 1, 2, 100, 1: median 2
    bounded, _ = part("norm_bound(2)").admit({}, r, {})
    expected = [[2.4, 3.2], [0, 1], [2, 0], [0, 4], [1, 0]]
    assert torch.allclose(bounded.deltas, torch.tensor(expected, dtype=torch.float64))
    fixed, _ = part("norm_bound(10, of=fixed)").admit({}, r, {})
    assert torch.allclose(fixed.deltas[3], torch.tensor([0.0, 10.0], dtype=torch.float64))
    assert torch.equal(fixed.deltas[0], r.deltas[0])


def test_norm_bound_may_drop_and_looks_at_uploads_too():
    r = cohort([[1.0]] * 4, weights=[0.1, 0.2, 0.3, 0.4])
    uploads = {"scaffold": {"change": torch.tensor([[1.0], [1.0], [-9.0], [1.0]], dtype=torch.float64)}}
    left, some = part("norm_bound(2, drop=true)").admit({}, r, uploads)
    assert left.ids.tolist() == [0, 1, 3]
    assert left.weights.tolist() == pytest.approx([1 / 7, 2 / 7, 4 / 7])
    assert some["scaffold"]["change"].flatten().tolist() == [1, 1, 1]
    _, shorter = part("norm_bound(2)").admit({}, r, uploads)
    assert shorter["scaffold"]["change"].flatten().tolist() == [1, 1, -2, 1]


# -- shares in the mean ----------------------------------------------------------------------------------------------
def test_a_cap_on_weights():
    weights = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    assert capped(weights, 1.0).tolist() == weights.tolist()
    assert capped(weights, 0.5).tolist() == pytest.approx([0.5, 1 / 3, 1 / 6])
    assert capped(weights, 0.4).tolist() == pytest.approx([0.4, 0.4, 0.2])  # the second one would have 0.4 exactly
    assert capped(weights, 0.35).tolist() == pytest.approx([0.35, 0.35, 0.3])
    assert capped(weights, 0.2).tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_max_weight_bounds_who_claims_many_samples(engine):
    honest = train("fedavg", engine=engine, cohort=4)
    lied = train("fedavg", engine=engine, cohort=4, attack="false_count(0.25, factor=1e9)")
    bounded = train("fedavg", engine=engine, cohort=4, attack="false_count(0.25, factor=1e9)", max_weight=0.3)
    apart = [float(torch.linalg.vector_norm(ran.after[1]["w"] - honest.after[1]["w"])) for ran in (lied, bounded)]
    assert apart[1] < 0.5 * apart[0]


# -- attacks ---------------------------------------------------------------------------------------------------------
def simulation(attack, **settings):
    config = Config(split="iid", clients=10, cohort=10, model="linear", rounds=1, attack=attack, **settings)
    return prepare_simulation(config, Method.parse("scaffold"))


def received(attack):
    """Return what the server receives of a round, and what it would without the attack."""
    lying, honest = simulation(attack), simulation(None)
    ids = np.arange(10)
    broadcast = honest.broadcast(1, honest.server.messages())
    truth = honest.train(broadcast, ids)
    return lying.liars.ids, lying.received(truth, 1), truth


@pytest.mark.parametrize("name", sorted(attacks()))
def test_only_liars_lie_in_deltas_and_uploads(name):
    liars, found, truth = received(f"{name}(0.3)")
    assert len(liars) == 3
    honest = torch.tensor([i not in liars for i in range(10)])
    for lie, true in [
        (found.deltas, truth.deltas),
        *[(found.uploads["scaffold"]["change"], truth.uploads["scaffold"]["change"])],
    ]:
        assert torch.equal(lie[honest], true[honest])
        if name not in ("label_flip", "false_count"):  # these lie before or beside it
            assert not torch.equal(lie[~honest], true[~honest])
    assert torch.equal(found.n[honest], truth.n[honest])
    assert (found.n[~honest] > truth.n[~honest]).all() == (name == "false_count")


def test_lies_by_their_equations():
    liars, found, truth = received("inner_product(0.2, epsilon=3)")
    honest = [i for i in range(10) if i not in liars]
    assert torch.allclose(found.deltas[liars[0]], -3 * truth.deltas[honest].mean(0))
    _, found, truth = received("little_is_enough(0.2, z=2)")
    expected = truth.deltas[honest].mean(0) - 2 * truth.deltas[honest].std(0, correction=0)
    assert torch.allclose(found.deltas[liars[1]], expected)
    _, found, truth = received("scaled(0.2, factor=7)")
    assert torch.allclose(found.deltas[liars], 7 * truth.deltas[liars])
    _, found, truth = received("gaussian(0.2, factor=10)")
    usual = torch.linalg.vector_norm(truth.deltas[honest], dim=1).mean()
    assert float(torch.linalg.vector_norm(found.deltas[liars[0]]) / usual) == pytest.approx(10, rel=0.15)


def test_flipped_labels_are_those_of_the_liars_alone():
    lying, honest = simulation("label_flip(0.3)"), simulation(None)
    for client in range(10):
        samples = torch.from_numpy(honest.federation.deal.client(client))
        before, after = honest.federation.data.y[samples], lying.federation.data.y[samples]
        assert torch.equal(after, 9 - before if client in lying.liars.ids else before)
    assert torch.equal(lying.federation.data.test_y, honest.federation.data.test_y)


def test_who_lies_follows_from_the_seed():
    first, again, other = (simulation("sign_flip(0.3)", seed=seed).liars.ids.tolist() for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("attack", ["sign_flip(0)", "scaled(0)", "label_flip(0)"])
@pytest.mark.parametrize("engine", ENGINES)
def test_without_liars_an_attack_changes_nothing(attack, engine):
    plain, ran = (train("scaffold", engine=engine, attack=a).after[-1]["w"] for a in (None, attack))
    assert torch.equal(plain, ran)


@pytest.mark.parametrize("robust", ["median", "trimmed(0.3)", "geometric_median", "centred_clipping", "norm_bound(2)"])
def test_engines_agree_on_attacks_and_defences(robust):
    runs = [train(f"scaffold+{robust}", engine=e, cohort=4, attack="scaled(0.25)") for e in ENGINES]
    assert torch.allclose(runs[0].after[-1]["w"], runs[1].after[-1]["w"], rtol=1e-9)
    assert torch.allclose(runs[0].after[-1]["scaffold/c"], runs[1].after[-1]["scaffold/c"], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("attack", ["scaled(0.2, factor=-100)", "inner_product(0.2)", "gaussian(0.2)"])
@pytest.mark.parametrize("robust", ["median", "trimmed(0.3)", "krum(f=2)", "geometric_median", "centred_clipping"])
def test_liars_do_not_poison_control_variates_past_a_robust_mean(robust, attack):
    def variate(method, attack=None):
        config = Config(split="iid", clients=10, cohort=10, model="linear", rounds=2, attack=attack, epochs=1)
        simulation = prepare_simulation(config, Method.parse(method))
        for t in (1, 2):
            simulation.play(t)
        return simulation.server.states["scaffold"]["c"]

    honest = variate("scaffold")
    poisoned, bounded = (
        float(torch.linalg.vector_norm(variate(method, attack) - honest))
        for method in ("scaffold", f"scaffold+{robust}")
    )
    assert bounded < 0.6 * poisoned


# -- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("robust", ROBUST)
def test_a_robust_mean_is_refused_with_another_aggregate_or_what_sees_single_clients(robust):
    with pytest.raises(HoldfastError, match="cannot be summed: both aggregate the cohort"):
        Method.parse(f"{robust}+nova")
    with pytest.raises(HoldfastError, match="fnr looks at single clients"):
        Method.parse(f"{robust}+fnr")
    with pytest.raises(HoldfastError, match="finetune looks at single clients"):
        Method.parse(f"{robust}+finetune")


def test_krum_needs_enough_clients():
    with pytest.raises(
        HoldfastError, match="multikrum with f=2 needs cohorts of at least 7 clients, not 5: raise --cohort"
    ):
        prepare_simulation(Config(clients=10, cohort=5), Method.parse("krum(f=2)"))


def test_attacks_that_make_no_sense_are_refused():
    assert read_attack(None) is read_attack("none") is None
    with pytest.raises(HoldfastError, match="unknown attack 'sign-flip'"):
        prepare_simulation(Config(attack="sign-flip(0.2)"), Method.parse("fedavg"))
    with pytest.raises(HoldfastError, match=r"sign_flip: share must be .* in \[0, 1\]"):
        read_attack("sign_flip(2)")
    with pytest.raises(HoldfastError, match="attack sign_flip works with the engines loop and vector"):
        prepare_simulation(replace(Config(), attack="sign_flip(0.2)", engine="flower"), Method.parse("fedavg"))

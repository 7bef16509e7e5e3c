"""Every split is a partition, keeps its promise, and depends on nothing but the seed."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast.data.splits
from helpers.exact_errors import raises_exactly
from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.data.count_tables import apportion, fit_sizes, raise_to_minimum
from holdfast.data.feature_noise import perturb
from holdfast.data.split import FeatureSplit, LabelSplit, OwnerSplit, SizeSplit, stream
from holdfast.data.splits import ClientNoise, Deal, deal, read, splits
from holdfast.data.splits._filling import fill_clients
from holdfast.data.splits.dirichlet import Dirichlet
from holdfast.data.splits.iid import Iid
from holdfast.data.splits.noise import FeatureNoise
from holdfast.data.splits.quantity import Quantity

SETTINGS = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**64)
ALPHAS = st.sampled_from([1e-3, 0.05, 0.3, 1.0, 10.0, 1e4])
LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=200).map(np.array)
MANY_LABELS = st.lists(st.integers(0, 5), min_size=100, max_size=200).map(np.array)
CLIENTS = st.integers(1, 25)
FREE = ["iid", "dirichlet({a})", "quantity({a})", "dirichlet({a})+quantity(0.4)", "iid+quantity({a})"]
TENS = np.tile(np.arange(10), 100)
MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])


def assert_partition(d: Deal, labels: np.ndarray, clients: int) -> np.ndarray:
    """Each sample once; offsets, sizes, clients and counts agree. Returns the counts."""
    classes = int(labels.max()) + 1
    np.testing.assert_array_equal(np.sort(d.index), np.arange(len(labels)))
    assert d.clients == clients == len(d.sizes)
    assert d.index.dtype == d.offsets.dtype == np.int64
    counts = d.counts(labels, classes)
    for i in range(clients):
        np.testing.assert_array_equal(np.bincount(labels[d.client(i)], minlength=classes), counts[i])
    np.testing.assert_array_equal(counts.sum(axis=1), d.sizes)
    return counts


def same(a: Deal, b: Deal) -> bool:
    return np.array_equal(a.index, b.index) and np.array_equal(a.offsets, b.offsets)


# --------------------------------------------------------------------------- the capped Dirichlet split
def capped_by_hand(counts: list[int], clients: int, alpha: float, least: int, rng: np.random.Generator) -> np.ndarray:
    """The dealing of NIID-Bench's code: a client with N/n samples gets nothing more; again if one has too few."""
    while True:
        held: list[list[int]] = [[] for _ in range(clients)]
        for c, n in enumerate(counts):
            shares = list(rng.dirichlet([alpha] * clients))
            for i in range(clients):
                if len(held[i]) >= sum(counts) / clients:
                    shares[i] = 0.0
            given = 0
            for i in range(clients):
                last = not any(shares[i + 1 :])
                until = n if last else int(sum(share / sum(shares) for share in shares[: i + 1]) * n)
                held[i] += [c] * (until - given)
                given = until
        if min(map(len, held)) >= least:
            return np.array([[own.count(c) for c in range(len(counts))] for own in held])


@pytest.mark.parametrize(("alpha", "least"), [(0.5, 10), (0.1, 0), (5.0, 40)])
def test_the_capped_split_is_niid_benchs(alpha: float, least: int) -> None:
    counts = np.array([60, 110, 80, 70, 95])
    for seed in range(5):
        split = Dirichlet(alpha, capped=True, least=least)
        found = split.table(counts, 6, stream(seed, "split"))
        expected = capped_by_hand(counts.tolist(), 6, alpha, least, stream(seed, "split"))
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(split.plan(counts, 6, stream(seed, "split")), expected)


def test_the_cap_and_the_least_bound_the_sizes() -> None:
    labels = np.repeat(np.arange(10), 500)
    free, capped, least = (
        [deal(split, labels, 10, seed) for seed in range(5)]
        for split in ("dirichlet(0.3)", "dirichlet(0.3, capped=true)", "dirichlet(0.3, capped=true, least=150)")
    )
    for d in [*capped, *least]:
        assert_partition(d, labels, 10)
        assert d.sizes.max() < 500 + 500  # full before its last class, and no class has more than 500
    assert min(d.sizes.min() for d in least) >= 150
    assert min(d.sizes.min() for d in capped) < 150
    assert np.mean([d.sizes.std() for d in capped]) < 0.9 * np.mean([d.sizes.std() for d in free])


@pytest.mark.parametrize(
    ("split", "says"),
    [
        (
            "dirichlet(0.5, capped=true, balanced=true)",
            "dirichlet: capped and least are for clients of unequal size, and balanced makes all sizes equal; leave "
            "one of them out",
        ),
        (
            "dirichlet(0.5, least=400)",
            "dirichlet(alpha=0.5, least=400): 1000 samples cannot give 10 clients 400 each; use at most 2 clients, or "
            "a smaller least",
        ),
        (
            "dirichlet(0.01, least=90)",
            "dirichlet(alpha=0.01, least=90): in 10,000 draws some client always had fewer than 90 samples; use fewer "
            "clients, a larger alpha or a smaller least",
        ),
    ],
)
def test_what_the_capped_split_cannot_do_is_refused(split: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "10,000" in says:
        monkeypatch.setattr("holdfast.data.splits.dirichlet.DRAWS", 50)
        says = says.replace("10,000", "50")
    with raises_exactly(says):
        deal(split, TENS, 10, 0)


# ---------------------------------------------------------------------------------------------- partitions


@SETTINGS
@given(st.sampled_from(FREE), ALPHAS, LABELS, CLIENTS, SEEDS)
def test_free_splits_deal_every_sample_once(text, a, labels, clients, seed):
    split = text.format(a=a)
    d = deal(split, labels, clients, seed)
    assert_partition(d, labels, clients)
    assert same(d, deal(split, labels, clients, seed))


@SETTINGS
@given(LABELS, CLIENTS, SEEDS)
def test_iid_sizes_are_equal(labels, clients, seed):
    sizes = deal("iid", labels, clients, seed).sizes
    assert sizes.max() - sizes.min() <= 1


@SETTINGS
@given(ALPHAS, MANY_LABELS, CLIENTS, SEEDS)
def test_balanced_dirichlet_has_equal_sizes(a, labels, clients, seed):
    d = deal(f"dirichlet({a}, balanced=true)", labels, clients, seed)
    assert_partition(d, labels, clients)
    assert d.sizes.max() - d.sizes.min() <= 1


@SETTINGS
@given(st.integers(1, 4), MANY_LABELS, CLIENTS, SEEDS)
def test_shards_are_runs_of_the_sorted_labels(s, labels, clients, seed):
    counts = assert_partition(deal(f"shards({s})", labels, clients, seed), labels, clients)
    short = len(labels) // (clients * s)
    assert counts.sum(axis=1).min() >= s * short
    assert counts.sum(axis=1).max() <= s * (short + 1)
    # Cutting the sorted labels N*s - 1 times adds at most one (piece, class) pair per cut.
    assert (counts > 0).sum() <= len(np.unique(labels)) + clients * s - 1


@SETTINGS
@given(st.data(), st.integers(1, 6), CLIENTS, SEEDS)
def test_classes_gives_each_client_exactly_n(data, classes, clients, seed):
    n = data.draw(st.integers(-(-classes // clients), classes))
    extra = data.draw(st.lists(st.integers(0, 30), min_size=classes, max_size=classes))
    labels = np.repeat(np.arange(classes), np.array(extra) + clients)
    counts = assert_partition(deal(f"classes({n})", labels, clients, seed), labels, clients)
    assert ((counts > 0).sum(axis=1) == n).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1


@SETTINGS
@given(st.sampled_from(["dirichlet({a}, min_size={m})", "quantity({a}, min_size={m})"]), ALPHAS, CLIENTS, SEEDS)
def test_min_size_is_kept(text, a, clients, seed):
    labels = TENS[: clients * 7 + seed % 50]
    d = deal(text.format(a=a, m=7), labels, clients, seed)
    assert_partition(d, labels, clients)
    assert d.sizes.min() >= 7


@SETTINGS
@given(st.sampled_from(["shards(2)", "classes(2)"]), ALPHAS, SEEDS)
def test_quantity_keeps_the_classes_of_a_split(text, a, seed):
    before = assert_partition(deal(text, TENS, 20, seed), TENS, 20)
    after = assert_partition(deal(f"{text}+quantity({a})", TENS, 20, seed), TENS, 20)
    assert ((after > 0) <= (before > 0)).all()


@SETTINGS
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=60).map(np.array), SEEDS)
def test_given_follows_the_groups(groups, seed):
    labels = np.arange(len(groups)) % 3
    names = np.unique(groups)
    d = deal("given", labels, len(names), seed, groups)
    assert_partition(d, labels, len(names))
    for i, name in enumerate(names):
        np.testing.assert_array_equal(d.client(i), np.flatnonzero(groups == name))


@pytest.mark.parametrize(
    "split",
    ["iid", "dirichlet(0.3)", "dirichlet(0.3, balanced=true)", "shards(2)", "classes(2)", "quantity(0.5)"],
)
def test_other_seeds_give_other_splits(split):
    deals = [deal(split, TENS, 10, seed) for seed in range(4)]
    assert not any(same(a, b) for k, a in enumerate(deals) for b in deals[:k])


def test_labels_without_samples_are_no_classes():
    labels = np.array([1, 1, 1, 4, 4, 4])
    counts = deal("classes(1)", labels, 2, 0).counts(labels, 6)
    assert sorted(counts[:, 1]) == sorted(counts[:, 4]) == [0, 3]
    for split in ("dirichlet(0.1, balanced=true)", "dirichlet(0.1)", "shards(3)", "quantity(1)"):
        assert_partition(deal(split, labels, 2, 0), labels, 2)


# -------------------------------------------------------------------------------------------------- sums


def test_the_order_of_terms_is_irrelevant():
    a, b = "dirichlet(0.5)+quantity(0.5)+noise(0.3)", "noise(0.3) + quantity(0.5) + dirichlet(0.5)"
    assert read(a) == read(b) == FeatureNoise(0.3) + Dirichlet(0.5) + Quantity(0.5)
    assert str(read(a)) == str(read(b))
    assert read(str(read(a))) == read(a)
    assert same(deal(a, TENS, 10, 3), deal(b, TENS, 10, 3))


def test_noise_leaves_the_deal_alone():
    for split in ("iid", "dirichlet(0.5)", "shards(2)"):
        assert same(deal(split, TENS, 10, 3), deal(f"{split}+noise(0.5)", TENS, 10, 3))
    assert same(deal("noise(0.5)", TENS, 10, 3), deal("iid", TENS, 10, 3))
    assert same(deal("quantity(0.5)", TENS, 10, 3), deal("iid+quantity(0.5)", TENS, 10, 3))


def test_noise_levels():
    def sigma(split: str) -> np.ndarray:
        noise = deal(split, TENS, 4, 7).noise
        assert noise is not None
        assert noise.sigma.dtype == np.float32
        return noise.sigma

    np.testing.assert_allclose(sigma("noise(0.5)"), 0.5)
    np.testing.assert_allclose(sigma("noise(0.5, ramp)"), [0.125, 0.25, 0.375, 0.5])
    np.testing.assert_allclose(sigma("noise(0.6, ramp-from-clean)"), [0, 0.2, 0.4, 0.6], rtol=1e-6)
    drawn = sigma("noise(0.5, spread=drawn)")
    assert (drawn >= 0).all()
    assert (drawn <= 0.5).all()
    assert len(set(drawn.tolist())) == 4
    assert deal("iid", TENS, 4, 7).noise is None
    noise = deal("noise(0.5, mask=0.25, mean=-1)", TENS, 4, 7).noise
    assert (noise.share, noise.mean, noise.seed) == (0.25, -1.0, 7)


def test_every_split_has_a_name_and_a_page_of_its_own():
    known = {name: kind for name, kind in splits().items() if kind.__module__.startswith("holdfast.")}
    assert sorted(known) == ["classes", "dirichlet", "given", "iid", "noise", "quantity", "shards"]
    assert all(kind.__doc__ for kind in known.values())
    assert {kind.slot for kind in known.values()} == {"labels", "sizes", "features"}


def test_a_new_split_is_one_new_file():
    """Every file of the folder that is no helper holds a split, and nothing else in the package names one."""
    folder = Path(holdfast.data.splits.__file__).parent
    files = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")}
    assert {kind.__module__.rpartition(".")[2] for kind in splits().values() if "holdfast." in kind.__module__} == files


# -------------------------------------------------------------------------------------------- hand cases


def test_fedagg_200_shards_of_300():
    """FedAgg Sec. V-A: 60000 samples, 200 shards of 300, two for each of 100 clients."""
    even = np.repeat(np.arange(10), 6000)
    counts = deal("shards(2)", even, 100, 0).counts(even, 10)
    assert set(np.unique(counts)) <= {0, 300, 600}
    assert (counts.sum(axis=1) == 600).all()
    counts = deal("shards(2)", MNIST, 100, 0).counts(MNIST, 10)
    assert (counts.sum(axis=1) == 600).all()
    assert (counts > 0).sum(axis=1).max() <= 4
    assert ((counts > 0).sum(axis=1) <= 2).mean() > 0.5  # "the majority of clients ... only two distinct digits"


def test_dirichlet_shares_have_the_right_variance():
    """A share of Dir_N(a) has variance (1/N)(1 - 1/N)/(N a + 1)."""
    labels, a, n = np.repeat(np.arange(50), 2000), 0.5, 10
    p = deal(f"dirichlet({a})", labels, n, 0).counts(labels, 50) / 2000
    assert p.var() == pytest.approx(0.1 * 0.9 / (n * a + 1), rel=0.15)


def test_balanced_dirichlet_mixes_have_the_right_variance():
    """Few small clients and large classes: nothing runs out before clients are full of their own Dir_C(a)."""
    labels, a = np.repeat(np.arange(5), 20000), 1.0
    mixes = np.concatenate(
        [deal(f"dirichlet({a}, balanced=true)", labels, 200, s).counts(labels, 5) / 500 for s in range(3)]
    )
    assert mixes.var() == pytest.approx(0.2 * 0.8 / (5 * a + 1), rel=0.15)


def test_filling_is_the_dealing_loop():
    """Mean table of many fillings, against the FedDyn code's loop: draw a class, again if it has run out."""
    sizes, counts = np.array([6, 4, 5]), np.array([9, 4, 2])
    mixes = np.array([[0.2, 0.1, 0.7], [0.5, 0.5, 0.0], [0.05, 0.05, 0.9]])

    def loop(rng: np.random.Generator) -> np.ndarray:
        table, left = np.zeros((3, 3), dtype=int), counts.copy()
        for client in rng.permutation(np.repeat(np.arange(3), sizes)):
            p = mixes[client] * (left > 0)
            p = p if p.sum() > 0 else left
            c = rng.choice(3, p=p / p.sum())
            table[client, c] += 1
            left[c] -= 1
        return table

    tables = np.array([fill_clients(sizes, mixes, counts, stream(s, "fast")) for s in range(1500)])
    slow = np.array([loop(stream(s, "slow")) for s in range(1500)])
    assert (tables.sum(axis=2) == sizes).all()
    assert (tables.sum(axis=1) == counts).all()
    error = np.sqrt((tables.var(axis=0) + slow.var(axis=0)) / 1500)
    assert (np.abs(tables.mean(axis=0) - slow.mean(axis=0)) < 4.5 * error + 1e-9).all()


def test_quantity_alone_keeps_the_global_mix():
    labels = np.repeat(np.arange(4), [400, 300, 200, 100])
    d = deal("quantity(0.5)", labels, 10, 0)
    assert d.sizes.max() > 2 * d.sizes.min()
    wanted = d.sizes[:, None] * np.array([0.4, 0.3, 0.2, 0.1])
    assert np.abs(d.counts(labels, 4) - wanted).max() < 3


def test_fitting_keeps_odds_ratios_and_reaches_the_margins():
    rng = np.random.default_rng(0)
    plan = rng.random((6, 4)) + 0.05
    plan *= 100 / plan.sum(axis=0)
    sizes = np.array([10.0, 20, 150, 90, 50, 80])
    out = fit_sizes(plan, sizes)
    np.testing.assert_allclose(out.sum(axis=0), 100)
    np.testing.assert_allclose(out.sum(axis=1), sizes, atol=0.5)
    odds = [np.log(t[1:, 1:] * t[:1, :1] / (t[1:, :1] * t[:1, 1:])) for t in (plan, out)]
    np.testing.assert_allclose(odds[0], odds[1], atol=1e-9)


def test_label_and_quantity_skew_together():
    """Sizes are those of quantity alone, and the label skew stays that of dirichlet alone."""
    labels = np.repeat(np.arange(10), 2000)
    both = deal("dirichlet(0.5)+quantity(1)", labels, 50, 1)
    sizes = deal("quantity(1)", labels, 50, 1).sizes
    assert np.abs(both.sizes - sizes).max() < 12
    skew = []
    for d in (both, deal("dirichlet(0.5)", labels, 50, 1)):
        c = d.counts(labels, 10)[d.sizes > 20]
        skew.append(np.abs(c / c.sum(axis=1, keepdims=True) - 0.1).sum(axis=1).mean() / 2)
    assert skew[0] == pytest.approx(skew[1], rel=0.15)


@SETTINGS
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(0, 100), st.floats(0, 0.999))
def test_shares_lose_nothing(weights, total, offset):
    w = np.array(weights, dtype=float)
    got = apportion(w, total, offset)
    assert got.sum() == total
    if w.sum() > 0:
        assert (np.abs(got - total * w / w.sum()) < 1 + 1e-9).all()
        assert not got[w == 0].any()


def test_lifting_gives_clients_their_own_classes_first():
    table = np.array([[0, 0], [50, 50], [30, 70]])
    plan = np.array([[0.0, 0.2], [50, 50], [30, 70]])
    out = raise_to_minimum(table, plan, 5, False, stream(0, "test"))
    assert out[0].tolist() == [0, 5]
    assert out.sum(axis=0).tolist() == [80, 120]


# -------------------------------------------------------------------------------------------- many clients


@pytest.mark.parametrize("split", ["dirichlet(0.5)", "dirichlet(0.5)+quantity(0.5)", "quantity(0.5)+noise(1)"])
def test_100_000_clients_on_50_000_samples(split):
    labels = np.tile(np.arange(10), 5000)
    tracemalloc.start()
    start = time.perf_counter()
    d = deal(split, labels, 100_000, 0)
    counts = d.counts(labels, 10)
    seconds = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.sum() == len(np.unique(d.index)) == 50_000
    assert seconds < 10
    assert peak < 1e9


# -------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("split", "clients", "message"),
    [
        (
            "dirichlet(0.3)+shards(2)",
            5,
            "dirichlet(alpha=0.3) and shards(s=2) both set the labels of a split; keep one of them",
        ),
        ("iid+iid", 5, "iid and iid both set the labels of a split; keep one of them"),
        (
            "noise(1)+noise(2)",
            5,
            "noise(sigma=1.0) and noise(sigma=2.0) both set the features of a split; keep one of them",
        ),
        ("given+quantity(1)", 5, "given and quantity(alpha=1.0) both set the sizes of a split; keep one of them"),
        ("iid+given", 5, "iid and given both set the labels of a split; keep one of them"),
        ("given", 5, "given: this data has no groups; use a split such as iid or dirichlet(0.3)"),
        (
            "dirichlet(0.3, balanced=true)+quantity(1)",
            5,
            "dirichlet(alpha=0.3, balanced=true) and quantity(alpha=1.0) both set the sizes of a split; "
            "keep one of them",
        ),
        (
            "dirichlet(0.3, balanced=true)",
            101,
            "dirichlet(alpha=0.3, balanced=true): 100 samples cannot give 101 clients equal sizes; "
            "use at most 100 clients",
        ),
        (
            "shards(30)",
            5,
            "shards(s=30): 5 clients need 150 shards, but there are only 100 samples; "
            "use fewer shards, or at most 3 clients",
        ),
        ("classes(11)", 5, "classes(n=11): the data has only 10 classes; use n of at most 10"),
        (
            "classes(1)",
            5,
            "classes(n=1): 5 clients hold only 5 of 10 classes; use n of at least 2 or at least 10 clients",
        ),
        (
            "classes(2)",
            60,
            "classes(n=2): class 0 has 10 samples for the 12 clients that hold it; use fewer clients or a smaller n",
        ),
        (
            "dirichlet(0.3, min_size=30)",
            5,
            "dirichlet(alpha=0.3, min_size=30): min_size=30 is not possible, the smallest client gets 20; "
            "lower min_size to 20 or use at most 3 clients",
        ),
        ("iid", 0, "clients must be at least 1, not 0; use one or more clients"),
    ],
)
def test_errors_name_the_offender_and_the_remedy(split, clients, message):
    with raises_exactly(message):
        deal(split, TENS[:100], clients, 0)


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ("dirichlet(0)", "alpha must be a number"),
        ("dirichlet", "alpha is missing"),
        ("shards(0)", "s must be a whole number of at least 1"),
        ("noise(0.1, mask=2)", r"mask must be a number in \[0, 1\]"),
        ("noise(0.1, spread=wild)", "one of fixed, ramp, ramp-from-clean, drawn"),
        ("dirichle(0.3)", "did you mean dirichlet"),
    ],
)
def test_parameters_and_names_are_checked(split, words):
    with pytest.raises(HoldfastError, match=words) as error:
        deal(split, TENS[:100], 5, 0)
    assert "\n" not in str(error.value)


def test_min_size_never_breaks_the_classes_of_a_client():
    """The client of the small class may get no other, so it stays small: an error, not a broken promise."""
    labels = np.repeat([0, 1], [4, 96])
    with raises_exactly(
        "classes(n=1) + quantity(alpha=1.0, min_size=10): min_size=10 is not possible, the smallest client gets 4; "
        "lower min_size to 4"
    ):
        deal("classes(1)+quantity(1, min_size=10)", labels, 2, 0)


def test_given_needs_one_client_per_group():
    with raises_exactly("given: the data has 3 groups; use clients=3, not 4"):
        deal("given", TENS[:6], 4, 0, np.array([5, 5, 9, 9, 1, 1]))
    with raises_exactly("given: groups must have one number per sample, shape [6], not [2]; reshape them"):
        deal("given", TENS[:6], 2, 0, np.array([5, 9]))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array([]), "float64 [0]"),
        (np.array([0, -1]), "negative numbers"),
        (np.array([0.5]), "float64 [1]"),
        (np.zeros((2, 2), dtype=int), "int64 [2, 2]"),
    ],
)
def test_labels_must_be_labels(labels, kind):
    with raises_exactly(f"a split needs one whole number from 0 per sample, not {kind}; convert the labels"):
        deal("iid", labels, 2, 0)


# ------------------------------------------------------------------------------------- user-written splits


@pytest.fixture
def _forget_classes() -> Iterator[None]:
    """Classes that a test defines are not known to the tests after it."""
    yield
    gc.collect()


@pytest.mark.usefixtures("_forget_classes")
def test_a_user_may_write_a_split_for_every_slot():
    @dataclass(frozen=True)
    class FirstClient(LabelSplit):
        """All samples to the first client."""

        name = "test-first"

        def plan(self, counts, clients, rng):
            return self.table(counts, clients, rng).astype(np.float64)

        def table(self, counts, clients, rng):
            return np.vstack([counts, np.zeros((clients - 1, len(counts)), dtype=np.int64)])

    @dataclass(frozen=True)
    class Doubling(SizeSplit):
        """Each client twice as large as the one before, and none below ``floor``."""

        name = "test-doubling"
        floor: int = param(0, "minimum number of samples per client", low=0)

        @property
        def smallest_client(self):
            return self.floor

        def reshape(self, plan, rng):
            share = 2.0 ** np.arange(len(plan))
            return fit_sizes(plan, share / share.sum() * plan.sum())

    @dataclass(frozen=True)
    class Shift(FeatureSplit):
        """A constant shift."""

        name = "test-shift"

        def draw(self, clients, seed):
            return ClientNoise(np.zeros(clients, np.float32), 1.5, 1.0, seed)

    @dataclass(frozen=True)
    class RoundRobin(OwnerSplit):
        """Sample k to client k modulo N."""

        name = "test-robin"

        def owners(self, groups, samples, clients):
            return np.arange(samples) % clients

    assert deal("test-first", TENS, 3, 0).sizes.tolist() == [1000, 0, 0]
    assert deal("test-doubling", TENS, 3, 0).sizes.tolist() == pytest.approx([143, 286, 571], abs=10)
    assert deal("test-doubling(200)", TENS, 3, 0).sizes.min() >= 200
    assert deal("test-robin", TENS, 3, 0).sizes.tolist() == [334, 333, 333]
    both = deal("dirichlet(0.5)+test-shift", TENS, 3, 0)
    assert both.noise.mean == 1.5
    assert same(both, deal("dirichlet(0.5)", TENS, 3, 0))
    assert str(Shift() + Iid() + Doubling(5)) == "iid + test-doubling(floor=5) + test-shift"
    with raises_exactly("test-robin and test-doubling both set the sizes of a split; keep one of them"):
        read("test-robin+test-doubling")
    with raises_exactly("test-doubling and quantity(alpha=1.0) both set the sizes of a split; keep one of them"):
        read("test-doubling+quantity(1)")


# --------------------------------------------------------------------------------------------------- noise


def test_noise_follows_equation_2():
    x, sample = torch.rand(400, 3, 8, 8), torch.arange(400)
    noise = perturb(x, sample, 0.5, 2.0, 1.0, seed=3) - x
    assert noise.mean().item() == pytest.approx(2.0, abs=0.01)
    assert noise.std().item() == pytest.approx(0.5, rel=0.02)
    masked = perturb(x, sample, 0.5, 0.0, 0.25, seed=3) - x
    assert (masked != 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert masked[masked != 0].std().item() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(perturb(x, sample, 0.0, 0.0, 1.0, seed=3), x)


def test_noise_belongs_to_the_sample():
    """The same in any batch, in any order, flat or with a client axis, and inside vmap; another one per seed."""
    x, sample = torch.rand(6, 5), torch.tensor([4, 9, 2, 7, 0, 1])
    sigma = torch.tensor([0.1, 0.5])
    flat = perturb(x, sample, sigma.repeat_interleave(3), 0.0, 0.5, 1)
    back = perturb(x.flip(0), sample.flip(0), sigma.repeat_interleave(3).flip(0), 0.0, 0.5, 1).flip(0)
    cohort = perturb(x.view(2, 3, 5), sample.view(2, 3), sigma, 0.0, 0.5, 1)
    mapped = torch.func.vmap(lambda a, b, s: perturb(a, b, s, 0.0, 0.5, 1))(x.view(2, 3, 5), sample.view(2, 3), sigma)
    for other in (back, cohort.view(6, 5), mapped.view(6, 5)):
        torch.testing.assert_close(flat, other, rtol=0, atol=1e-6)
    assert not torch.allclose(flat, perturb(x, sample, sigma.repeat_interleave(3), 0.0, 0.5, 2))

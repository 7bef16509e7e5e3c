"""What sums declare about themselves, against what really travels."""

from __future__ import annotations

from itertools import combinations

import pytest

from helpers.brief import brief
from helpers.declared import assert_declared, watched
from helpers.toys import FEDERATION, mlp
from holdfast import HoldfastError, Method
from holdfast.method.composition import composition, keeps_state, sentences
from holdfast.method.config import Config
from holdfast.method.method import why_not_both, wrong_order
from holdfast.method.part import TOTAL, parts
from holdfast.runs.setup import prepare_simulation

PARTS = {name: cls for name, cls in sorted(parts().items()) if cls.__module__.startswith("holdfast.")}
# Parameters under which a part sends or keeps something else than by default.
OTHERS = [
    "adam(keep=true)", "adamw(keep=true)", "momentum(keep=true)", "latest(of=cohort)", "fedagg(mode=aggregated)",
    "momentum+nova", "fedbug+nova", "scaffold+fedcm+smoo", "moon+latest+feddyn", "scaffold+median",
]  # fmt: skip
REASONS = ("looks at single clients", "asks clients for more than their update", "counts every client once")
SETTINGS = {"clients": 4, "lr": 0.1, "epochs": 1, "batch": 5, "public": 0.2, "engine": "loop"}


@pytest.mark.parametrize("sum", [*PARTS, *OTHERS])
def test_what_is_declared_is_what_travels(sum, monkeypatch):
    seen = watched(monkeypatch)
    method = Method.parse(brief(sum))  # there are three clients
    prepare_simulation(Config(**SETTINGS, cohort=3), method, FEDERATION, mlp()).play(1)
    assert_declared(Method.parse(sum), seen)


@pytest.mark.parametrize("name", PARTS)
def test_every_declaration_has_its_words(name):
    part = Method.parse(name).parts[0]
    assert bool(part.keeps) >= keeps_state(part)
    assert set(part.linear or {}) - {"delta"} <= set(part.sends)
    assert all(part.sends.values())


def test_all_pairs():
    """A pair sends and keeps what its parts do, and shows single clients if one of them needs it."""
    known = {name: Method.parse(name).parts[0] for name in PARTS}
    pairs = 0
    for one, other in combinations(known.values(), 2):
        if why_not_both(one, other) or wrong_order(one, other):
            continue
        try:
            both = composition(Method((one, other)))
        except HoldfastError as error:  # a robust mean, or dp, with what looks at single clients
            assert any(why in str(error) for why in REASONS)  # noqa: PT017
            continue
        alone = [composition(Method((part,))) for part in (one, other)]
        assert {(u.part, u.name) for u in both.uploads} == {(u.part, u.name) for c in alone for u in c.uploads}
        assert both.kept == alone[0].kept | alone[1].kept
        total_of_deltas = [p for p in (one, other) if (p.linear or {}).get("delta") == TOTAL]
        assert both.linear == all(c.linear for c in alone) or total_of_deltas
        assert bool(both.unsummed) == any(c.unsummed for c in alone) or total_of_deltas
        assert bool(both.uncounted) == any(c.uncounted for c in alone) or total_of_deltas or both.private
        assert sentences(both).keys() >= {"single clients", "secure aggregation", "privacy", "liars", "kept at clients"}
        pairs += 1
    assert pairs > 500


def test_in_words():
    told = sentences(composition(Method.parse("scaffold+fedbug")))
    assert told["kept at clients"] == "its control variate (scaffold)"
    assert told["single clients"] == "the server needs sums alone: single clients can be hidden from it"
    assert told["secure aggregation"] == "takes it: holdfast deploy ... --secure"
    assert told["privacy"] == "nothing limits what these reveal about a client's data; add dp to account for it"
    assert "scaffold divides by the number of all clients" in told["few clients in a round"]
    told = sentences(composition(Method.parse("fnr")))
    assert told["single clients"] == "fnr at the server looks at single clients"
    assert told["secure aggregation"] == "refuses it: fnr looks at single clients at the server"
    assert told["privacy"] == (
        "nothing limits what these reveal about a client's data; dp refuses it: dp and fnr cannot be summed: fnr looks "
        "at single clients, which dp does not account for; leave one of them out"
    )
    told = sentences(composition(Method.parse("scaffold+quantize(8)+dp")))
    assert told["secure aggregation"] == "refuses it: quantize writes every update in a form that cannot be summed"
    assert told["privacy"] == "dp bounds and accounts for everything above"
    assert sentences(composition(Method.parse("fedavg")))["few clients in a round"].startswith("nothing grows old")
    assert sentences(composition(Method.parse("feddyn+median")))["liars"].startswith("median takes the place")

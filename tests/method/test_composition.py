"""What sums declare about themselves, against what really travels."""

from __future__ import annotations

from itertools import combinations

import pytest

from helpers.brief import brief
from helpers.toys import FEDERATION, mlp
from holdfast import HoldfastError, Method
from holdfast.core.tensors import flatten
from holdfast.method.composition import composition, keeps_state, sentences
from holdfast.method.config import Config
from holdfast.method.method import why_not_both, wrong_order
from holdfast.method.part import TOTAL, parts
from holdfast.models.batchnorm import STATISTICS
from holdfast.runs.setup import prepare_simulation

PARTS = {name: cls for name, cls in sorted(parts().items()) if cls.__module__.startswith("holdfast.")}
# Parameters under which a part sends or keeps something else than by default.
OTHERS = [
    "adam(keep=true)", "adamw(keep=true)", "momentum(keep=true)", "latest(of=cohort)", "fedagg(mode=aggregated)",
    "momentum+nova", "fedbug+nova", "scaffold+fedcm+smoo", "moon+latest+feddyn", "scaffold+median",
]  # fmt: skip
REASONS = ("looks at single clients", "asks clients for more than their update", "counts every client once")
SETTINGS = {"clients": 4, "lr": 0.1, "epochs": 1, "batch": 5, "public": 0.2, "engine": "loop"}


def travelling(sum: str) -> tuple[set[str], set[str], int]:
    """Play a round; return the names of the uploads, of the parts with states, and the round's bytes per client."""
    parts = Method.parse(brief(sum))  # there are three clients
    simulation = prepare_simulation(Config(**SETTINGS, cohort=3), parts, FEDERATION, mlp())
    update = {}
    train = simulation.train
    simulation.train = lambda broadcast, ids: update.setdefault("it", train(broadcast, ids))
    simulation.play(1)
    found = update["it"]
    kept = {part for row in simulation.clients.rows.values() for part, state in row.items() if state}
    names = {name for name in flatten(found.uploads) if not name.startswith(STATISTICS)}
    return names, kept - {STATISTICS}, len(found.ids)


@pytest.mark.parametrize("sum", [*PARTS, *OTHERS])
def test_what_is_declared_is_what_travels(sum):
    found = composition(Method.parse(sum))
    names, kept, _ = travelling(sum)
    declared = {f"{u.part}/{u.name}" for u in found.uploads if u.part}
    surveyed = {f"{p.name}/{n}" for p in Method.parse(sum).filling("survey") for n in p.sends}
    where_weighted = {"nova/a"}  # nobody sends it where every step is plain
    assert names <= declared
    assert declared - names <= surveyed | where_weighted
    assert kept == set(found.kept)


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
        assert sentences(both).keys() >= {"single clients", "privacy", "liars", "kept at clients"}
        pairs += 1
    assert pairs > 500


def test_in_words():
    told = sentences(composition(Method.parse("scaffold+fedbug")))
    assert told["kept at clients"] == "its control variate (scaffold)"
    assert told["single clients"].startswith("the server needs sums alone")
    assert "scaffold divides by the number of all clients" in told["few clients in a round"]
    assert sentences(composition(Method.parse("fnr")))["single clients"].startswith("fnr at the server looks at")
    assert sentences(composition(Method.parse("fedavg")))["few clients in a round"].startswith("nothing grows old")
    assert sentences(composition(Method.parse("feddyn+median")))["liars"].startswith("median takes the place")

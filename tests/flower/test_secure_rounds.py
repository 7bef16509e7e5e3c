"""Rounds under secure aggregation, with nodes in this process: real messages, keys and masks."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from helpers.flower_toys import SMALL, MemoryGrid, on_grid
from holdfast import HoldfastError, Method
from holdfast.core.tensors import flatten
from holdfast.flower.fixed_point import STEP
from holdfast.flower.messages import ENROL, TRAIN
from holdfast.flower.secure_messages import KEYS, MASKED, REVEAL, SHARES
from holdfast.flower.secure_sum import SumFailed
from holdfast.method.one_row import why_not_summed
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES

STAGES = [KEYS, SHARES, MASKED, REVEAL]
ALL = {"cohort": 4, "rounds": 2, "epochs": 1, "model": "linear", "retries": 0, "timeout": 0.05}
BUILT_IN = [n for n, c in parts().items() if c.__module__.startswith("holdfast.")]
SUMS = ["fedagg(mode=aggregated)", "latest(of=cohort)", "scaffold+fedcm+fedbug+clip(1)", "feddyn+mean(uniform)+fedcm"]
LINEAR = [s for s in [*BUILT_IN, *RECIPES, *SUMS] if not why_not_summed(Method.parse(s))]
PRIVATE = [s for s in LINEAR if Method.parse(s).private]


def both(method, grid=None, **settings):
    """The same run without and with secure aggregation."""
    return on_grid(method, **{**ALL, **settings}), on_grid(method, grid, **{**ALL, "secure": True, **settings})


def grid_of(method, trouble=lambda request, reply: reply, **settings):
    values = {**SMALL, **ALL, "secure": True, **settings, "method": method}
    return MemoryGrid(values, values.pop("nodes", 4), trouble)


def gone(stage, *partitions):
    """Trouble: the nodes of these partitions are silent at a stage of every sum, and afterwards."""
    silent = set()

    def trouble(request, reply):
        node = request.metadata.dst_node_id - 1001
        if request.metadata.message_type in (ENROL, KEYS):
            silent.clear()
        if node in partitions and request.metadata.message_type == stage:
            silent.add(node)
        return None if node in silent else reply

    return trouble


# -- equality --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", [s for s in LINEAR if s not in PRIVATE])
def test_a_round_is_that_of_a_plain_run_to_the_rounding(method):
    plain, secure = both(method, rounds=1, model="mlp")
    assert torch.allclose(plain.w, secure.w, rtol=1e-5, atol=1e-6)
    assert secure.history[0].train_loss == pytest.approx(plain.history[0].train_loss, rel=1e-5)
    assert (secure.history[0].cohort, secure.history[0].failed) == (plain.history[0].cohort, {})


@pytest.mark.parametrize("method", ["fedavg", "scaffold+fedbug", "feddyn", "mean(uniform)"])
def test_several_rounds_with_several_clients_on_a_node(method):
    plain, secure = both(method, grid_of(method, clients=7, cohort=6, nodes=3, rounds=3),
                         clients=7, cohort=6, nodes=3, rounds=3)  # fmt: skip
    assert torch.allclose(plain.w, secure.w, rtol=1e-5, atol=1e-6)
    assert [r.cohort for r in plain.history] == [r.cohort for r in secure.history]


def test_the_mean_is_exact_to_the_step_that_the_page_states():
    """In float64 nothing else differs: a mean of three nodes is off by three halves of a step at most."""
    settings = {"precision": "fp64", "rounds": 1, "clients": 3, "cohort": 3, "nodes": 3}
    plain, secure = both("fedavg", grid_of("fedavg", **settings), **settings)
    assert 0 < (plain.w - secure.w).abs().max() <= 1.5 * STEP


def test_a_cap_on_weights_holds():
    plain, secure = both("fedavg", max_weight=0.3, split="dirichlet(0.2)", rounds=1)
    assert torch.allclose(plain.w, secure.w, rtol=1e-5, atol=1e-6)


def test_noise_of_the_clients_and_nothing_else_is_in_the_sum():
    """dp(where=clients): what the server sees has all the noise, and no client's own update reaches it."""
    loud = on_grid("dp(0.5, noise=2, where=clients)", **{**ALL, "rounds": 1}, secure=True, delta=1e-3).w
    quiet = on_grid("dp(0.5, noise=0, where=clients)", **{**ALL, "rounds": 1}, secure=True, delta=1e-3).w
    assert 0.9 < float(((loud - quiet) * 4 / (2 * 0.5)).std()) < 1.1
    plain, secure = both("scaffold+dp(0.5, noise=0)", delta=1e-3, rounds=1)
    assert torch.allclose(plain.w, secure.w, rtol=1e-5, atol=1e-6)


# -- what the server sees --------------------------------------------------------------------------------------------
def test_no_reply_of_a_node_shows_its_update():
    """Nothing that reaches the server is near what a client would have sent, and every vector is all noise."""
    seen, plain = [], {}

    def note(request, reply):
        seen.append((request.metadata.message_type, reply))
        return reply

    def note_plain(request, reply):
        if request.metadata.message_type == TRAIN:
            plain.update({name: array.numpy() for name, array in reply.content["arrays"].items()})
        return reply

    settings = {**ALL, "rounds": 1}
    on_grid("scaffold", grid_of("scaffold", note, **settings), **settings, secure=True)
    values = {**SMALL, **settings, "method": "scaffold"}
    on_grid("scaffold", MemoryGrid(values, 4, note_plain), **settings)
    counted = Counter(kind for kind, _ in seen)
    assert counted == {ENROL: 4, KEYS: 4, SHARES: 4, MASKED: 4, REVEAL: 4}
    vectors = [reply.content["arrays"]["vector"].numpy() for kind, reply in seen if kind == MASKED]
    assert all(set(reply.content) == {"numbers", "arrays"} for kind, reply in seen if kind == MASKED)
    assert all(set(reply.content) == {"numbers"} for kind, reply in seen if kind not in (ENROL, MASKED))
    for vector in vectors:
        assert abs(np.unpackbits(vector.view(np.uint8)).mean() - 0.5) < 0.01
        for update in plain.values():
            values = np.atleast_1d(update).ravel() / STEP
            assert not set(values.round().astype(np.int64).tolist()) & set(vector.tolist()) - {0}


def test_no_share_is_revealed_of_both_secrets_of_a_node():
    """Over a whole run in which nodes drop out, from every message that nodes send in the last stage."""
    said, where = {}, {}

    def trouble(request, reply):
        kind, numbers = request.metadata.message_type, request.content["numbers"]
        silent = gone(MASKED, 3)(request, reply) is None
        if kind == MASKED and not silent:
            where.setdefault(numbers["ticket"], set()).add(request.metadata.dst_node_id)
        if kind == REVEAL:
            arrived = tuple(numbers["arrived"])
            said.setdefault(numbers["ticket"], set()).add(arrived)
        return None if silent else reply

    ran = on_grid("fedavg", grid_of("fedavg", trouble), **ALL, secure=True)
    assert all(len(arrived) == 1 for arrived in said.values())  # all nodes were told the same
    assert [len(next(iter(arrived))) for arrived in said.values()] == [3, 3]
    assert [sorted(r.failed) for r in ran.history] == [[3], [3]]


# -- nodes that drop out ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", STAGES)
def test_a_node_that_drops_out_is_survived(stage):
    method, settings = "scaffold", {**ALL, "rounds": 2}
    secure = on_grid(method, grid_of(method, gone(stage, 2), **settings), **settings, secure=True)
    lost = [] if stage == REVEAL else [2]  # its vector has arrived by then
    assert [sorted(r.failed) for r in secure.history] == [lost, lost]

    def without(request, reply):
        about = request.metadata.message_type == TRAIN and request.content["numbers"]["clients"] == [2]
        return None if about and lost else reply

    values = {**SMALL, **settings, "method": method}
    plain = on_grid(method, MemoryGrid(values, 4, without), **settings)
    assert torch.allclose(plain.w, secure.w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("stage", "left"), [(KEYS, 2), (SHARES, 2), (MASKED, 2), (REVEAL, 2)], ids=["keys", "shares", "masked", "reveal"]
)
def test_fewer_than_the_threshold_fail_the_round(stage, left):
    """Four nodes: three are needed, at every stage."""
    with pytest.raises(SumFailed) as error:
        on_grid("fedavg", grid_of("fedavg", gone(stage, 0, 1)), **ALL, secure=True)
    assert str(error.value) == (
        f"round 1: {left} of 4 nodes are left for the secure sum, but 3 are needed (client 0: no reply within 0.05 s; "
        "client 1: no reply within 0.05 s): fix the nodes, then resume the run"
    )
    assert error.value.status == 1


def test_a_sum_is_started_again_before_it_is_unmasked_and_never_afterwards():
    counts = Counter()

    def once(stage):
        def trouble(request, reply):
            kind = request.metadata.message_type
            first = kind == stage and counts[kind] < 2  # two of four nodes, in the first sum alone
            counts[kind] += 1
            return None if first else reply

        return trouble

    plain = on_grid("scaffold", **{**ALL, "rounds": 1})
    again = on_grid("scaffold", grid_of("scaffold", once(MASKED)), **{**ALL, "rounds": 1, "retries": 1}, secure=True)
    assert (counts[KEYS], counts[REVEAL]) == (8, 4)
    assert torch.allclose(plain.w, again.w, rtol=1e-5, atol=1e-6)
    counts.clear()
    with pytest.raises(SumFailed, match="2 of 4 nodes are left for the secure sum, but 3 are needed"):
        on_grid("scaffold", grid_of("scaffold", once(REVEAL)), **{**ALL, "retries": 3}, secure=True)
    assert (counts[KEYS], counts[REVEAL]) == (4, 4)


# -- nodes and servers that misbehave --------------------------------------------------------------------------------
def test_a_node_leaves_out_what_nobody_could_check(monkeypatch):
    """Not finite, too long, too large, or not what was enrolled: the others' sum is not affected."""
    from holdfast.flower.node import Node

    train, spoil = Node.train_clients, {}

    def spoilt(node, request, message, context):
        results, errors = train(node, request, message, context)
        for client, result in results.items():
            if client in spoil:
                results[client] = spoil[client](client, result)
        return results, errors

    def times(factor):
        def change(client, result):
            name = f"{client}/delta"
            return result._replace(arrays={**result.arrays, name: factor * result.arrays[name]})

        return change

    monkeypatch.setattr(Node, "train_clients", spoilt)
    settings = {**ALL, "rounds": 1, "clients": 8, "cohort": 8, "nodes": 4, "secure_norm": 50.0}
    spoil |= {0: times(float("nan")), 1: times(1e3), 2: lambda client, result: result._replace(n=result.n + 1)}
    ran = on_grid("fedavg", grid_of("fedavg", **settings), **settings, secure=True)
    reasons = ran.history[0].failed
    assert reasons[0] == "it raised what it would send is not finite"
    assert reasons[1].startswith("it raised its update has the norm ")
    assert reasons[1].endswith(", above 50")
    assert "samples, but enrolled with" in reasons[2]
    assert sorted(reasons) == [0, 1, 2]
    spoil.clear()
    spoil |= {3: times(1e9)}
    del settings["secure_norm"]
    ran = on_grid("fedavg", grid_of("fedavg", **settings), **settings, secure=True)
    assert ran.history[0].failed == {3: "it raised what it would send is above 1.04858e+06 somewhere"}


def test_a_node_of_a_secure_run_trains_for_no_plain_request():
    """A server that forgets the setting gets nothing; and a node may insist on it by itself."""
    why = "this node sends sums over several nodes alone (secure), and the server asks for its clients"
    with pytest.raises(HoldfastError) as error:
        on_grid("fedavg", grid_of("fedavg"), **ALL)
    assert why in str(error.value)
    grid = MemoryGrid({**SMALL, **ALL, "method": "fedavg"}, 4)
    grid.stop(0)
    grid.start(0, secure=True)
    ran = on_grid("fedavg", grid, **ALL)
    assert [sorted(r.failed) for r in ran.history] == [[0], [0]]
    assert why in ran.history[0].failed[0]


def test_a_node_that_sends_nonsense_is_left_out():
    def nonsense(request, reply):
        if request.metadata.message_type != SHARES or request.metadata.dst_node_id != 1002:
            return reply
        numbers = {**reply.content["numbers"], "found": [b"x"]}
        return Message(RecordDict({"numbers": ConfigRecord(numbers)}), reply_to=request)

    ran = on_grid("fedavg", grid_of("fedavg", nonsense), **{**ALL, "rounds": 1}, secure=True)
    assert ran.history[0].failed == {1: "it sends 1 keys or shares, not 4"}


def test_damaged_shares_end_the_run_in_one_line():
    def damaged(request, reply):
        if request.metadata.message_type != REVEAL:
            return reply
        found = [bytes(len(share)) for share in reply.content["numbers"]["found"]]
        numbers = {**reply.content["numbers"], "found": found}
        return Message(RecordDict({"numbers": ConfigRecord(numbers)}), reply_to=request)

    with pytest.raises(SumFailed) as error:
        on_grid("fedavg", grid_of("fedavg", damaged), **ALL, secure=True)
    assert str(error.value) == (
        "round 1: the sum cannot be read, since the shares of a secret do not fit together: look at the nodes, then "
        "resume the run"
    )


def test_what_travels_is_in_the_history():
    """A vector of 8 bytes for each number that a client would have sent, from every node."""
    ran = on_grid("scaffold", **{**ALL, "rounds": 1, "clients": 4}, secure=True)
    numbers = 2 * len(ran.w) + 1  # delta, change, loss
    assert ran.history[0].upload_bytes == 4 * 8 * numbers
    assert json.dumps(ran.history[0].failed) == "{}"


def test_every_upload_of_a_sum_is_in_its_vector():
    from holdfast.flower.sum_vector import BY_SAMPLES, BY_WEIGHT, EQUAL, kind_of

    method = Method.parse("scaffold+fedcm+fedbug")
    names = {"delta": BY_WEIGHT, "loss": BY_SAMPLES, "uploads/scaffold/change": EQUAL, "uploads/fedcm/eta": BY_WEIGHT,
             "uploads/statistics/running": BY_WEIGHT}  # fmt: skip
    assert {name: kind_of(name, method) for name in names} == names
    assert flatten({"scaffold": {"change": torch.zeros(1)}}).keys() == {"scaffold/change"}


def test_a_run_is_resumed_as_it_was_started(tmp_path):
    """With its states and new keys; and never without secure aggregation, which would show what sums have hidden."""
    whole = on_grid("scaffold", **{**ALL, "rounds": 2}, secure=True)
    out, values = tmp_path / "run", {**ALL, "rounds": 2}
    grid = grid_of("scaffold", **values)
    on_grid("scaffold", grid, **{**values, "rounds": 1}, secure=True, out=str(out))
    with pytest.raises(HoldfastError) as error:
        on_grid("scaffold", grid, **values, out=str(out), resume=True)
    assert str(error.value).endswith(
        "holds the state flower/secure, which this run's method does not have: resume with --secure or without, as it "
        "was started"
    )
    resumed = on_grid("scaffold", grid, **values, secure=True, out=str(out), resume=True)
    assert torch.allclose(whole.w, resumed.w, rtol=1e-5, atol=1e-6)

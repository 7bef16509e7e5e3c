"""When nodes fail: the round goes on or is asked again, states stay consistent, and the history says what happened."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from helpers.flower_toys import SMALL, MemoryGrid, on_grid
from holdfast import run
from holdfast.flower.messages import ENROL, TRAIN, TooFewClients
from holdfast.flower.node_states import NodeStates
from holdfast.runs.folder import RunFolder
from holdfast.runs.history import read_history

ALL = {"cohort": 4, "rounds": 3}


def grid_with(trouble, method="fedavg", nodes=4, **settings):
    return MemoryGrid({**SMALL, **ALL, **settings, "method": method}, nodes, trouble)


def about(request, round, client):
    """Whether a message is the local training of this client in this round."""
    numbers = request.content["numbers"]
    return request.metadata.message_type == TRAIN and numbers["round"] == round and client in numbers["clients"]


def changed(reply, **arrays):
    """A reply with other arrays under some names; None takes one out."""
    kept = {k: v for k, v in reply.content["arrays"].items() if k not in arrays}
    new = {k: v if isinstance(v, Array) else Array(v) for k, v in arrays.items() if v is not None}
    content = RecordDict({"numbers": reply.content["numbers"], "arrays": ArrayRecord({**kept, **new})})
    return Message(content, reply_to=reply_to(reply))


def reply_to(reply):
    """A message with the metadata of the request that a reply answers."""
    request = Message(RecordDict(), dst_node_id=reply.metadata.src_node_id, message_type=reply.metadata.message_type)
    request.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return request


def same(found, expected):
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.failed, a.reset, a.skipped) == (b.cohort, {}, [], [])
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)


def test_a_round_goes_on_without_a_client_and_weights_are_renormalised():
    seen = {}

    def trouble(request, reply):
        if about(request, 1, 2):
            return None
        if request.metadata.message_type == TRAIN:
            numbers, arrays = reply.content["numbers"], reply.content["arrays"]
            (client,), (n,) = numbers["clients"], numbers["n"]
            seen[client] = n, torch.from_numpy(arrays[f"{client}/delta"].numpy())
        return reply

    grid = grid_with(trouble)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 1})
    start = run("fedavg", **SMALL | {"rounds": 1}, lr=1e-30, engine="loop").w
    total = sum(n for n, _ in seen.values())
    assert sorted(seen) == [0, 1, 3]
    torch.testing.assert_close(result.w, start + sum(n / total * delta for n, delta in seen.values()))
    assert result.history[0].failed == {2: "no reply within 0.3 s"}
    assert result.history[0].cohort == [0, 1, 2, 3]


def test_a_late_reply_is_asked_for_again_and_changes_nothing():
    late = []

    def trouble(request, reply):
        if about(request, 2, 1) and not late:
            late.append(request)
            return None
        return reply

    result = on_grid("scaffold", grid_with(trouble, "scaffold"), **ALL, on_failure="retry")
    assert late
    same(result, run("scaffold", engine="loop", **SMALL | ALL))


def test_a_client_that_raises_is_left_out_and_its_neighbour_is_not(monkeypatch):
    from holdfast.training.simulation import Simulation

    real = Simulation.train

    def train(self, job, ids):
        if int(job.round) == 2 and 3 in ids.tolist() and len(ids) == 1:
            raise RuntimeError("out of\nmemory")
        return real(self, job, ids)

    monkeypatch.setattr(Simulation, "train", train)
    result = on_grid("fedavg", grid_with(lambda request, reply: reply, nodes=2), nodes=2, **ALL)
    assert [r.failed for r in result.history] == [{}, {3: "it raised RuntimeError: out of memory"}, {}]


BAD = {
    "wrong shape": (lambda a: np.zeros((3, 2), np.float32), "float32[3, 2], not float32[55210]"),
    "wrong type": (lambda a: a.numpy().astype(np.float64), "float64[55210], not float32[55210]"),
    "an object": (lambda a: Array("object", (55210,), "numpy.ndarray", b"\x80\x04K\x01."), "is object, not one of"),
    "a pickle": (lambda a: Array(a.dtype, a.shape, a.stype, b"\x80\x04" + bytes(220900)), "header is damaged"),
    "torch's bytes": (lambda a: Array(a.dtype, a.shape, "torch", a.data), "bytes of torch"),
    "cut off": (lambda a: Array(a.dtype, a.shape, a.stype, a.data[:1000]), "has 1000 bytes"),
    "a larger header": (lambda a: Array(a.dtype, a.shape, a.stype, a.data + bytes(300)), "has 221268 bytes"),
    "a lie": (lambda a: Array(np.zeros((5521, 10), np.float32)), "float32[5521, 10], not"),
    "a lie inside": (
        lambda a: Array("float32", (55210,), "numpy.ndarray", Array(np.zeros((5521, 10), np.float32)).data),
        "is announced as float32[55210], but its header says float32[5521, 10]",
    ),
    "nothing": (lambda a: None, "wrong names: 1/delta"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_malformed_update_is_refused(kind):
    spoil, why = BAD[kind]

    def trouble(request, reply):
        return (
            changed(reply, **{"1/delta": spoil(reply.content["arrays"]["1/delta"])}) if about(request, 1, 1) else reply
        )

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    (failed,) = result.history[0].failed.items()
    assert failed[0] == 1
    assert failed[1].startswith("refused: ")
    assert why in failed[1]


def test_more_arrays_than_asked_for_are_refused():
    def trouble(request, reply):
        return changed(reply, **{"1/uploads/fedavg/x": np.zeros(3)}) if about(request, 1, 1) else reply

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: "refused: its update has the wrong names: 1/uploads/fedavg/x"}


def test_an_update_that_is_not_finite_is_skipped_as_in_simulation():
    def trouble(request, reply):
        if not about(request, 2, 0):
            return reply
        spoilt = reply.content["arrays"]["0/delta"].numpy().copy()
        spoilt[7] = np.nan
        return changed(reply, **{"0/delta": spoilt})

    result = on_grid("scaffold", grid_with(trouble, "scaffold"), **ALL)
    assert [r.skipped for r in result.history] == [[], [0], []]
    assert torch.isfinite(result.w).all()


def test_a_replayed_update_is_refused():
    first = {}

    def trouble(request, reply):
        if about(request, 1, 2):
            first["reply"] = reply
        if about(request, 2, 2):
            return Message(first["reply"].content, reply_to=request)
        return reply

    result = on_grid("fedavg", grid_with(trouble), **ALL)
    assert result.history[1].failed == {2: "refused: it replies to another request"}


def test_an_answer_for_somebody_else_is_refused():
    kept = {}

    def trouble(request, reply):
        if about(request, 1, 0):
            kept["reply"] = reply
        return Message(kept["reply"].content, reply_to=request) if about(request, 1, 1) else reply

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: "refused: it replies to another request"}


def test_a_node_that_comes_back_under_a_new_id_without_its_state_begins_anew(tmp_path):
    def trouble(request, reply):
        if about(request, 2, 3):
            grid.stop(3)
            grid.start(3)
            return "killed"
        return reply

    grid = grid_with(trouble, "scaffold")
    result = on_grid("scaffold", grid, **ALL)
    assert result.history[1].failed == {3: "the node is gone"}
    assert [r.reset for r in result.history] == [[], [], [3]]


def test_a_node_that_keeps_its_state_on_disk_goes_on_where_it_was(tmp_path):
    killed = []

    def trouble(request, reply):
        if about(request, 2, 3) and not killed:
            killed.append(grid.stop(3))
            grid.start(3, state=str(tmp_path))
            return "killed"
        return reply

    grid = grid_with(trouble, "scaffold")
    for partition in range(4):
        grid.stop(partition)
        grid.start(partition, state=str(tmp_path))
    result = on_grid("scaffold", grid, **ALL, on_failure="retry")
    assert killed
    same(result, run("scaffold", engine="loop", **SMALL | ALL))


def test_states_stay_consistent_when_replies_are_lost():
    """SCAFFOLD's c is the mean of the clients' c_i, whatever was lost: a client that trained in vain starts over."""

    def trouble(request, reply):
        return None if about(request, 1, 0) or about(request, 2, 1) or about(request, 3, 2) else reply

    grid = grid_with(trouble, "scaffold")
    server = {}

    def start(play, done):
        server["play"] = play

    from holdfast.flower.app import serve
    from holdfast.method.config import Config

    values = {**SMALL, **ALL, "method": "scaffold"}
    terms = {"nodes": 4, "patience": 1.0, "timeout": 0.3}
    serve(grid, Config(**values), values | terms, on_start=start)
    play = server["play"]
    own = {}
    for context in grid.contexts.values():
        client = context.node_config["partition-id"]
        own[client] = NodeStates(context.state, play.run, None).load(client, coordinator.clients.round_of(client))
    assert own[0] is not None
    total = sum(state["scaffold"]["c"] for state in own.values() if state is not None)
    torch.testing.assert_close(play.server.states["scaffold"]["c"], total / 4, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("on_failure", ["continue", "retry"])
def test_too_few_clients_stop_the_run_which_can_be_resumed(tmp_path, on_failure):
    broken = [True]

    def trouble(request, reply):
        return None if broken and (about(request, 2, 1) or about(request, 2, 2)) else reply

    grid = grid_with(trouble, "feddyn", checkpoint_every=2)
    for partition in range(4):
        grid.stop(partition)
        grid.start(partition, state=str(tmp_path / "states"))
    terms = {"min_clients": 3, "retries": 1, "on_failure": on_failure, "checkpoint_every": 2}
    with pytest.raises(TooFewClients, match="round 2: 2 of 4 clients came back, 3 are needed: client 1: no reply within"):
        on_grid("feddyn", grid, **ALL, **terms, out=str(tmp_path / "run"))
    broken.clear()
    result = on_grid("feddyn", grid, **ALL, **terms, out=str(tmp_path / "run"), resume=True)
    same(result, run("feddyn", engine="loop", **SMALL | ALL))
    stored = read_history(tmp_path / "run" / "history.jsonl", 3)
    assert [r.cohort for r in stored] == [[0, 1, 2, 3]] * 3
    assert RunFolder(tmp_path / "run").stored().engine == "flower"


def test_failures_are_in_the_history_file(tmp_path):
    def trouble(request, reply):
        return None if about(request, 1, 1) else reply

    found = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 2}, out=str(tmp_path / "run"))
    stored = read_history(tmp_path / "run" / "history.jsonl", 2)
    assert stored == found.history
    assert stored[0].failed == {1: "no reply within 0.3 s"}
    assert '"failed"' not in (tmp_path / "run" / "history.jsonl").read_text().splitlines()[1]
    assert found.summary["failed_updates"] == 1


def test_a_client_lost_between_two_trips_keeps_its_first_update():
    def trouble(request, reply):
        return None if request.metadata.message_type == "train.again" else reply

    both = on_grid("fnr", grid_with(trouble, "fnr", public=0.05), **ALL | {"rounds": 1}, public=0.05)
    alone = on_grid("fedavg", **ALL | {"rounds": 1}, public=0.05)
    torch.testing.assert_close(both.w, alone.w)
    assert len(both.history[0].failed) == 2


def test_a_node_with_other_data_is_refused_at_the_door():
    grid = grid_with(lambda request, reply: reply)
    grid.stop(2)
    grid.start(2)
    grid.contexts[max(grid.contexts)].run_config["data"] = "diabetes-of-somebody"
    result = on_grid("fedavg", grid, **ALL | {"rounds": 1}, patience=0.1)
    assert result.history[0].failed == {2: "no node has this client"}


def test_a_second_node_cannot_take_over_a_client_whose_node_is_there():
    grid = grid_with(lambda request, reply: reply)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 1})
    thief = grid.start(1)
    grid.sent.clear()
    on_grid("fedavg", grid, **ALL | {"rounds": 1})
    assert result.history[0].failed == {}
    assert thief not in {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == TRAIN}


def test_a_reply_that_cannot_even_be_read_hurts_nobody_else():
    class Damaged(MemoryGrid):
        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            if any(about(m, 1, 1) and m.metadata.message_id in message_ids for m in self.sent):
                raise RuntimeError("chunks are missing")
            return found

    settings = {**SMALL, **ALL, "method": "fedavg", "rounds": 1}
    result = on_grid("fedavg", Damaged(settings, 4), **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: "its reply cannot be read: RuntimeError: chunks are missing"}


HOSTILE = {
    "no client": {"clients": [], "n": []},
    "a client too many": {"clients": [4], "n": [10]},
    "a client below zero": {"clients": [-1], "n": [10]},
    "the same client twice": {"clients": [2, 2], "n": [10, 10]},
    "lists of different length": {"clients": [2], "n": [10, 10]},
    "samples below zero": {"clients": [2], "n": [-5]},
    "another shape": {"shape": [1, 9, 9]},
    "other classes": {"classes": 11},
    "words": {"classes": "ten"},
    "something more": {"token": "x"},
    "another ticket": {"ticket": "0" * 16},
    "no ticket": {"ticket": "../../etc"},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_node_that_lies_about_itself_is_refused(kind):
    def trouble(request, reply):
        if request.metadata.message_type != ENROL or reply.content["numbers"]["clients"] != [2]:
            return reply
        return Message(RecordDict({"numbers": ConfigRecord({**reply.content["numbers"], **HOSTILE[kind]})}),
                       reply_to=request)  # fmt: skip

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1}, patience=0.1)
    assert result.history[0].failed == {2: "no node has this client"}
    assert torch.isfinite(result.w).all()


ANSWERS = {
    "no samples": {"n": [0]},
    "steps below zero": {"K": [-1]},
    "too many samples": {"n": [2**60]},
    "lists of different length": {"n": [1, 2]},
    "another client": {"clients": [3]},
    "words for numbers": {"n": ["many"]},
    "another round": {"round": 7},
    "a number that is none": {"n": [True]},
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_with_impossible_numbers_is_refused(kind):
    def trouble(request, reply):
        if not about(request, 1, 2):
            return reply
        numbers = ConfigRecord({**reply.content["numbers"], **ANSWERS[kind]})
        return Message(RecordDict({"numbers": numbers, "arrays": reply.content["arrays"]}), reply_to=request)

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    (failed,) = result.history[0].failed.items()
    assert failed[0] == 2
    assert failed[1].startswith("refused: ")


def test_an_answer_without_the_records_is_refused():
    def trouble(request, reply):
        return Message(RecordDict({}), reply_to=request) if about(request, 1, 2) else reply

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed[2].startswith("refused: the message holds the records")


def test_a_retry_on_a_node_of_several_clients_keeps_where_the_others_stand(monkeypatch):
    """Two trips, and in the first only one of a node's two clients fails and is asked again."""
    from holdfast.flower.node import Node

    real, failed = Node._home, []

    def home(self, context, job):
        found = real(self, context, job)
        train = found.train

        def once(job, ids):
            if ids.tolist() == [2] and not failed:
                failed.append(2)
                raise RuntimeError("once")
            return train(job, ids)

        found.train = once
        return found

    monkeypatch.setattr(Node, "_home", home)
    how = ALL | {"rounds": 1, "public": 0.05}
    grid = grid_with(lambda request, reply: reply, "fnr", nodes=2, public=0.05)
    result = on_grid("fnr", grid, nodes=2, **how, on_failure="retry")
    assert failed
    same(result, run("fnr", engine="loop", **SMALL | how))


@pytest.mark.parametrize(
    ("method", "kind", "more"),
    [
        ("fnr", "train.again", {"public": 0.05}),
        ("fedagg(mode=fixed_point, sweeps=1)", "query.gradients", {}),
        ("ccvr", "query.survey", {}),
    ],
)
def test_further_requests_of_a_round_are_asked_again_too(method, kind, more):
    lost = []

    def trouble(request, reply):
        if request.metadata.message_type == kind and not lost:
            lost.append(request)
            return None
        return reply

    how = ALL | {"rounds": 1} | more
    result = on_grid(method, grid_with(trouble, method, **more), **how, on_failure="retry")
    assert lost
    same(result, run(method, engine="loop", **SMALL | how))

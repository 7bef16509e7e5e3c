"""When nodes fail: the round continues or is retried, states stay consistent, and the history says what happened."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest
import torch
from flwr.app import Array, ConfigRecord, Context, Message, RecordDict

from helpers.brief import brief
from helpers.flower_toys import SMALL, MemoryGrid, about, changed, on_grid
from holdfast import run
from holdfast.flower.messages import ENROL, TRAIN, TooFewClients
from holdfast.flower.node_states import NodeStates
from holdfast.runs.folder import RunFolder
from holdfast.runs.history import read_history

ALL = {"cohort": 4, "rounds": 3}
CCVR = brief("ccvr")


def grid_with(trouble, method="fedavg", nodes=4, **settings):
    return MemoryGrid({**SMALL, **ALL, **settings, "method": method}, nodes, trouble)


@cache
def simulated(method):
    return run(method, engine="loop", **SMALL | ALL)


def same(found, expected):
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.failed, a.reset, a.skipped) == (b.cohort, {}, [], [])
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)


def test_a_round_continues_without_a_client_and_weights_are_renormalised():
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
    same(result, simulated("scaffold"))


def test_a_client_that_raises_is_left_out_and_its_neighbour_is_not(monkeypatch):
    from holdfast.training.simulation import Simulation

    real = Simulation.train

    def train(self, broadcast, ids):
        if int(broadcast.round) == 2 and 3 in ids.tolist() and len(ids) == 1:
            raise RuntimeError("out of\nmemory")
        return real(self, broadcast, ids)

    monkeypatch.setattr(Simulation, "train", train)
    result = on_grid("fedavg", grid_with(lambda request, reply: reply, nodes=2), nodes=2, **ALL)
    assert [r.failed for r in result.history] == [{}, {3: "it raised RuntimeError: out of memory"}, {}]


FLOATS = "float32[55210]"
DTYPES = "float32, float64, int64, int32, uint8, bool"
BAD = {
    "wrong shape": (lambda a: np.zeros((3, 2), np.float32), f"its update 1/delta is float32[3, 2], not {FLOATS}"),
    "wrong type": (lambda a: a.numpy().astype(np.float64), f"its update 1/delta is float64[55210], not {FLOATS}"),
    "an object": (
        lambda a: Array("object", (55210,), "numpy.ndarray", b"\x80\x04K\x01."),
        f"its update 1/delta is object, not one of {DTYPES}",
    ),
    "a pickle": (
        lambda a: Array(a.dtype, a.shape, a.stype, b"\x80\x04" + bytes(220900)),
        "its update 1/delta is not an array: its header is damaged",
    ),
    "a header that does not end": (
        lambda a: Array(a.dtype, a.shape, a.stype, a.data.replace(b"}", b"{", 1)),
        "its update 1/delta is not an array: its header is damaged",
    ),
    "torch's bytes": (
        lambda a: Array(a.dtype, a.shape, "torch", a.data),
        "its update 1/delta has 220968 bytes of torch, not 220840 plus a header",
    ),
    "cut off": (
        lambda a: Array(a.dtype, a.shape, a.stype, a.data[:1000]),
        "its update 1/delta has 1000 bytes of numpy.ndarray, not 220840 plus a header",
    ),
    "a larger header": (
        lambda a: Array(a.dtype, a.shape, a.stype, a.data + bytes(300)),
        "its update 1/delta has 221268 bytes of numpy.ndarray, not 220840 plus a header",
    ),
    "another shape of the same size": (
        lambda a: Array(np.zeros((5521, 10), np.float32)),
        f"its update 1/delta is float32[5521, 10], not {FLOATS}",
    ),
    "another shape in the header": (
        lambda a: Array("float32", (55210,), "numpy.ndarray", Array(np.zeros((5521, 10), np.float32)).data),
        f"its update 1/delta is announced as {FLOATS}, but its header says float32[5521, 10]",
    ),
    "nothing": (lambda a: None, "its update has the wrong names: 1/delta"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_malformed_update_is_refused(kind):
    spoil, why = BAD[kind]

    def trouble(request, reply):
        return (
            changed(reply, **{"1/delta": spoil(reply.content["arrays"]["1/delta"])}) if about(request, 1, 1) else reply
        )

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: f"refused: {why}"}


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


def test_a_reply_for_another_client_is_refused():
    kept = {}

    def trouble(request, reply):
        if about(request, 1, 0):
            kept["reply"] = reply
        return Message(kept["reply"].content, reply_to=request) if about(request, 1, 1) else reply

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: "refused: it replies to another request"}


def test_a_node_that_comes_back_under_a_new_id_without_its_state_starts_from_scratch():
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


def test_a_node_that_keeps_its_state_on_disk_continues_where_it_was(tmp_path):
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
    same(result, simulated("scaffold"))


def test_states_stay_consistent_when_replies_are_lost():
    """SCAFFOLD's c is the mean of the clients' c_i: a client whose update was lost trains again from its old state."""

    def trouble(request, reply):
        return None if about(request, 1, 0) or about(request, 2, 1) or about(request, 3, 2) else reply

    grid = grid_with(trouble, "scaffold")
    server = {}

    def start(trainer, done):
        server["coordinator"] = trainer

    from holdfast.flower.app import serve
    from holdfast.method.config import Config

    values = {**SMALL, **ALL, "method": "scaffold"}
    settings = {"nodes": 4, "patience": 1.0, "timeout": 0.3}
    serve(grid, Config(**values), values | settings, on_start=start)
    coordinator = server["coordinator"]
    states = {}
    for context in grid.contexts.values():
        client = context.node_config["partition-id"]
        counts = coordinator.clients.round_of(client)
        states[client] = NodeStates(context.state, coordinator.run_id, None).load(client, counts)
    assert states[0] is not None
    total = sum(state["scaffold"]["c"] for state in states.values() if state is not None)
    torch.testing.assert_close(coordinator.server.states["scaffold"]["c"], total / 4, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("on_failure", ["continue", "retry"])
def test_too_few_clients_stop_the_run_which_can_be_resumed(tmp_path, on_failure):
    broken = [True]

    def trouble(request, reply):
        return None if broken and (about(request, 2, 1) or about(request, 2, 2)) else reply

    grid = grid_with(trouble, "feddyn", checkpoint_every=2)
    for partition in range(4):
        grid.stop(partition)
        grid.start(partition, state=str(tmp_path / "states"))
    settings = {"min_clients": 3, "retries": 1, "on_failure": on_failure, "checkpoint_every": 2}
    with pytest.raises(TooFewClients) as error:
        on_grid("feddyn", grid, **ALL, **settings, out=str(tmp_path / "run"))
    assert str(error.value) == (
        "round 2: 2 of 4 clients returned an update, but 3 are needed (client 1: no reply within 0.3 s; client 2: no "
        "reply within 0.3 s): fix the nodes, then resume the run"
    )
    broken.clear()
    result = on_grid("feddyn", grid, **ALL, **settings, out=str(tmp_path / "run"), resume=True)
    same(result, simulated("feddyn"))
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


def test_a_node_with_other_data_cannot_enrol():
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


def test_a_reply_that_cannot_be_read_affects_no_other_client():
    class Damaged(MemoryGrid):
        def pull_messages(self, message_ids):
            found = super().pull_messages(message_ids)
            if any(about(m, 1, 1) and m.metadata.message_id in message_ids for m in self.sent):
                raise RuntimeError("chunks are missing")
            return found

    settings = {**SMALL, **ALL, "method": "fedavg", "rounds": 1}
    result = on_grid("fedavg", Damaged(settings, 4), **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: "its reply cannot be read: RuntimeError: chunks are missing"}


FOREIGN = "it claims clients that this federation of 4 does not have"
HOSTILE = {
    "no client": ({"clients": [], "n": []}, "it has no clients"),
    "a client too many": ({"clients": [4], "n": [10]}, FOREIGN),
    "a client below zero": ({"clients": [-1], "n": [10]}, FOREIGN),
    "the same client twice": ({"clients": [2, 2], "n": [10, 10]}, FOREIGN),
    "lists of different length": ({"clients": [2], "n": [10, 10]}, FOREIGN),
    "samples below zero": ({"clients": [2], "n": [-5]}, "it claims -5 samples"),
    "another shape": (
        {"shape": [1, 9, 9]},
        "its samples have shape [1, 9, 9] and 10 classes, the server's [1, 8, 8] and 10",
    ),
    "other classes": (
        {"classes": 11},
        "its samples have shape [1, 8, 8] and 11 classes, the server's [1, 8, 8] and 10",
    ),
    "words": ({"classes": "ten"}, "the message's field classes is not of type int"),
    "something more": ({"token": "x"}, "the message has an unknown field: token"),
    "another ticket": ({"ticket": "0" * 16}, "it replies to another request"),
    "no ticket": ({"ticket": "../../etc"}, "the message has a malformed ticket"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_node_that_lies_about_itself_is_refused(kind, caplog):
    fields, why = HOSTILE[kind]

    def trouble(request, reply):
        if request.metadata.message_type != ENROL or reply.content["numbers"]["clients"] != [2]:
            return reply
        numbers = ConfigRecord({**reply.content["numbers"], **fields})
        return Message(RecordDict({"numbers": numbers}), reply_to=request)

    grid = grid_with(trouble)
    (node,) = [n for n, context in grid.contexts.items() if context.node_config["partition-id"] == 2]
    result = on_grid("fedavg", grid, **ALL | {"rounds": 1}, patience=0.1)
    assert f"node {node} is refused: {why}" in caplog.messages
    assert result.history[0].failed == {2: "no node has this client"}
    assert torch.isfinite(result.w).all()


IMPOSSIBLE = {
    "no samples": ({"n": [0]}, "it claims 0 samples and {K} steps"),
    "steps below zero": ({"K": [-1]}, "it claims {n} samples and -1 steps"),
    "too many samples": ({"n": [2**60]}, "it claims 1152921504606846976 samples and {K} steps"),
    "more samples than it enrolled with": ({"n": [12345]}, "it claims 12345 samples, but enrolled with {n}"),
    "lists of different length": ({"n": [1, 2]}, "its lists differ in length"),
    "another client": ({"clients": [3]}, "it replies for clients that were not requested"),
    "words for numbers": ({"n": ["many"]}, "the message's field n is not of type list[int]"),
    "another round": ({"round": 7}, "it replies to another request"),
    "a number that is none": ({"n": [True]}, "the message's field n is not of type list[int]"),
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_a_reply_with_impossible_numbers_is_refused(kind):
    (fields, why), honest = IMPOSSIBLE[kind], {}

    def trouble(request, reply):
        if not about(request, 1, 2):
            return reply
        honest.update({name: reply.content["numbers"][name][0] for name in ("n", "K")})
        numbers = ConfigRecord({**reply.content["numbers"], **fields})
        return Message(RecordDict({"numbers": numbers, "arrays": reply.content["arrays"]}), reply_to=request)

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed == {2: f"refused: {why.format(**honest)}"}


def test_a_reply_without_the_records_is_refused():
    def trouble(request, reply):
        return Message(RecordDict({}), reply_to=request) if about(request, 1, 2) else reply

    result = on_grid("fedavg", grid_with(trouble), **ALL | {"rounds": 1})
    assert result.history[0].failed == {2: "refused: the message has the wrong records: none, not arrays, numbers"}


def test_a_retry_on_a_node_of_several_clients_keeps_the_local_models_of_the_others(monkeypatch):
    """Two trips, and in the first only one of a node's two clients fails and is asked again."""
    from holdfast.flower.node import Node

    real, failed = Node._simulation, []

    def simulation(self, context, broadcast):
        found = real(self, context, broadcast)
        train = found.train

        def fail_once(broadcast, ids):
            if ids.tolist() == [2] and not failed:
                failed.append(2)
                raise RuntimeError("once")
            return train(broadcast, ids)

        found.train = fail_once
        return found

    monkeypatch.setattr(Node, "_simulation", simulation)
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
        (CCVR, "query.survey", {}),
    ],
)
def test_further_requests_of_a_round_are_retried_too(method, kind, more):
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


def claiming(request, reply, clients, n=None):
    """A node's reply to the request to enrol that claims other clients than it has."""
    fields = {"clients": clients, "n": n or [10] * len(clients)}
    numbers = ConfigRecord({**reply.content["numbers"], **fields})
    return Message(RecordDict({"numbers": numbers}), reply_to=request)


def node_of(grid, partition):
    (node,) = [n for n, context in grid.contexts.items() if context.node_config["partition-id"] == partition]
    return node


def trained(grid, round):
    """The nodes that were asked to train in a round."""
    asked = [m for m in grid.sent if m.metadata.message_type == TRAIN and m.content["numbers"]["round"] == round]
    return {m.metadata.dst_node_id for m in asked}


def test_a_refused_node_gets_none_of_the_clients_that_it_claims(caplog):
    """Node 3 claims its own client and another's: it is refused before either is assigned."""

    def trouble(request, reply):
        if request.metadata.message_type == ENROL and reply.content["numbers"]["clients"] == [3]:
            return claiming(request, reply, [3, 0])
        return reply

    grid = grid_with(trouble)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 2}, patience=0.1)
    holder = node_of(grid, 0)
    assert f"node {node_of(grid, 3)} is refused: client 0 is already on node {holder}, which is connected" in (
        caplog.messages
    )
    assert [r.failed for r in result.history] == [{3: "no node has this client"}] * 2
    assert node_of(grid, 3) not in trained(grid, 1) | trained(grid, 2)


def test_a_refused_node_is_asked_again_and_enrols_once_it_is_fixed():
    refused = []

    def trouble(request, reply):
        if request.metadata.message_type == ENROL and reply.content["numbers"]["clients"] == [2] and len(refused) < 2:
            refused.append(2)
            return claiming(request, reply, [2], [-5])
        return reply

    grid = grid_with(trouble)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 2}, patience=1e-9)
    assert [r.failed for r in result.history] == [{2: "no node has this client"}, {}]


def test_a_node_that_was_gone_is_used_again_when_it_returns_under_the_same_id():
    away = {}

    def trouble(request, reply):
        if about(request, 2, 3):
            away["node"] = node_of(grid, 3)
            away["context"] = grid.contexts.pop(away["node"])
            return "gone"
        if about(request, 3, 0):
            grid.contexts[away["node"]] = away["context"]
        return reply

    grid = grid_with(trouble)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 4})
    assert [r.failed for r in result.history] == [
        {}, {3: "the node is gone"}, {3: "no node has this client"}, {},
    ]  # fmt: skip
    assert away["node"] in trained(grid, 4)


def restarted(grid, node):
    """Restart a node of a grid under its id: it has lost what Flower kept for it."""
    old = grid.contexts[node]
    grid.contexts[node] = Context(1, node, old.node_config, RecordDict(), old.run_config)


def test_a_node_that_returns_under_the_same_id_unnoticed_is_asked_to_enrol_again():
    """Flower lists it all the time, since it was away for less than a heartbeat; the public data it had are lost."""
    asked = []

    def trouble(request, reply):
        if request.metadata.dst_node_id == away and request.metadata.message_type == ENROL:
            asked.append(request.content["numbers"]["ticket"])
        if about(request, 2, 3):
            restarted(grid, away)
            return None
        return reply

    grid = grid_with(trouble, "fnr", public=0.05)
    away = node_of(grid, 3)
    result = on_grid("fnr", grid, **ALL, public=0.05)
    assert [r.failed for r in result.history] == [{}, {3: "no reply within 0.3 s"}, {}]
    assert len(asked) == 2
    assert away in trained(grid, 3)


def test_a_node_that_returns_with_the_clients_of_another_loses_its_own(caplog):
    """It returns unnoticed, and claims what it must not: it has nothing until it claims its own again."""
    other = []

    def trouble(request, reply):
        if about(request, 1, 3):
            other.append(True)
            return None
        if request.metadata.message_type == ENROL and request.metadata.dst_node_id == away and len(other) == 1:
            other.append(True)
            return claiming(request, reply, [0])
        return reply

    grid = grid_with(trouble)
    away, owner = node_of(grid, 3), node_of(grid, 0)
    result = on_grid("fedavg", grid, **ALL, owners=f"0={owner} 3={away}")
    assert f"node {away} is refused: client 0 must be on node {owner}" in caplog.messages
    assert [r.failed for r in result.history] == [{3: "no reply within 0.3 s"}, {3: "no node has this client"}, {}]


def test_a_node_that_hangs_is_not_asked_to_train_until_it_enrols_again():
    """A round then waits for it once and not twice."""
    kinds = []

    def trouble(request, reply):
        if request.metadata.dst_node_id == hanging and (kinds or about(request, 1, 2)):
            kinds.append(request.metadata.message_type)
            return reply if len(kinds) == 3 or len(kinds) > 4 else None
        return reply

    grid = grid_with(trouble)
    hanging = node_of(grid, 2)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 4})
    assert kinds[:2] == [TRAIN, ENROL]
    assert kinds == [TRAIN, ENROL, ENROL, TRAIN, ENROL, TRAIN]
    late, nobody = {2: "no reply within 0.3 s"}, {2: "no node has this client"}
    assert [r.failed for r in result.history] == [late, nobody, late, {}]


def test_a_round_with_too_few_clients_waits_for_a_node_that_is_gone(monkeypatch):
    """With one retry, which would be over at once: the node is back 0.2 s later."""
    away = {}

    def trouble(request, reply):
        if about(request, 2, 3) and not away:
            node = node_of(grid, 3)
            away.update(node=node, context=grid.contexts.pop(node), since=time.monotonic())
            return "gone"
        return reply

    def node_ids():
        if away and time.monotonic() - away["since"] > 0.2:
            grid.contexts[away["node"]] = away["context"]
        return list(grid.contexts)

    grid = grid_with(trouble, "scaffold")
    monkeypatch.setattr(grid, "get_node_ids", node_ids)
    result = on_grid("scaffold", grid, **ALL, min_clients=4, retries=1)
    assert away
    same(result, simulated("scaffold"))


def test_a_node_that_returns_under_a_new_id_while_the_old_one_is_still_listed_takes_over():
    """It is refused at first, since its old id is connected. When the old one does not reply, it is asked again."""
    old = {}

    def trouble(request, reply):
        if about(request, 1, 0) and not old:
            old["node"] = node_of(grid, 1)
            old["new"] = grid.start(1)
        if request.metadata.dst_node_id == old.get("node") and about(request, 3, 1):
            return None
        return reply

    grid = grid_with(trouble)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 4})
    assert [r.failed for r in result.history] == [{}, {}, {1: "no reply within 0.3 s"}, {}]
    assert old["node"] in trained(grid, 3)
    assert old["new"] in trained(grid, 4)
    assert old["node"] not in trained(grid, 4)


def test_a_client_goes_back_to_its_node_when_the_node_that_took_it_over_is_gone():
    nodes = {}

    def trouble(request, reply):
        if about(request, 1, 1) and not nodes:
            nodes["first"], nodes["second"] = node_of(grid, 1), grid.start(1)
            return None
        if about(request, 2, 1):
            del grid.contexts[nodes["second"]]
        return reply

    grid = grid_with(trouble)
    result = on_grid("fedavg", grid, **ALL)
    assert [r.failed for r in result.history] == [{1: "no reply within 0.3 s"}, {}, {}]
    assert nodes["second"] in trained(grid, 2)
    assert nodes["first"] in trained(grid, 3)


def test_a_client_that_is_bound_to_a_node_is_accepted_from_it_alone(caplog):
    """Node 1 does not reply, and another node claims its client: without the binding it would get it."""
    nodes = {}

    def trouble(request, reply):
        if about(request, 1, 1) and not nodes:
            nodes["first"], nodes["second"] = node_of(grid, 1), grid.start(1)
            return None
        return reply

    grid = grid_with(trouble)
    owner = node_of(grid, 1)
    result = on_grid("fedavg", grid, **ALL | {"rounds": 2}, owners=f"1={owner}")
    assert f"node {nodes['second']} is refused: client 1 must be on node {owner}" in caplog.messages
    assert [r.failed for r in result.history] == [{1: "no reply within 0.3 s"}, {}]
    assert nodes["first"] in trained(grid, 2)
    assert nodes["second"] not in trained(grid, 2)


def test_nodes_that_never_enrol_are_asked_ever_less_often(monkeypatch):
    from holdfast.flower import registry

    now = [0.0]
    monkeypatch.setattr(registry.time, "monotonic", lambda: now[0])
    invitations = registry.Invitations()
    for _ in range(registry.ATTEMPTS):
        assert invitations.due(7)
        invitations.failed(7, seconds=300.0)
    assert not invitations.due(7)
    now[0] += 2699.0
    assert not invitations.due(7)
    now[0] += 1.0
    assert invitations.due(7)
    assert invitations.due(8)


def spoiling(kind, client, name, spoil):
    """Trouble that changes an array of one client in the replies to requests of a kind."""

    def trouble(request, reply):
        if request.metadata.message_type != kind or client not in request.content["numbers"]["clients"]:
            return reply
        array = reply.content["arrays"][f"{client}/{name}"].numpy().copy()
        spoil(array)
        return changed(reply, **{f"{client}/{name}": array})

    return trouble


def put(value):
    def spoil(array):
        array.reshape(-1)[0] = value

    return spoil


@cache
def without_replies(method, kind, client):
    """A round in which a client does not reply to requests of a kind."""

    def lose(request, reply):
        asked = request.metadata.message_type == kind and client in request.content["numbers"]["clients"]
        return None if asked else reply

    return on_grid(method, grid_with(lose, method), **ALL | {"rounds": 1})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_left_out(value, caplog):
    """The rates of the round are those of the other clients' gradients."""
    method, how = "fedagg(mode=fixed_point, sweeps=1)", ALL | {"rounds": 1}
    grid = grid_with(spoiling("query.gradients", 1, "gradient", put(value)), method)
    spoilt = on_grid(method, grid, **how)
    expected = without_replies(method, "query.gradients", 1)
    assert "round 1: 1 of 4 gradients are not finite and were left out" in caplog.messages
    assert torch.isfinite(spoilt.w).all()
    torch.testing.assert_close(spoilt.w, expected.w)


HOSTILE_COUNTS = {
    "a count below zero": ("count", put(-1e18)),
    "a count that cancels all others": ("count", lambda array: array.__setitem__(0, array[0] - 1438 + 1e-9)),
    "a fraction of a sample": ("count", put(1e-300)),
    "too many samples": ("count", put(1e300)),
    "no number": ("count", put(np.nan)),
    "an infinite sum": ("sum", put(np.inf)),
    "a sum beyond all features": ("sum", put(1e200)),
    "squares beyond all features": ("squares", put(-1e308)),
}


@pytest.mark.parametrize("kind", HOSTILE_COUNTS)
def test_measurements_that_are_not_possible_are_left_out(kind, caplog):
    """CCVR serves the head that it would serve if the client had not replied."""
    name, spoil = HOSTILE_COUNTS[kind]
    how = ALL | {"rounds": 1}
    spoilt = on_grid(CCVR, grid_with(spoiling("query.survey", 2, f"ccvr/{name}", spoil), CCVR), **how)
    expected = without_replies(CCVR, "query.survey", 2)
    text = "round 1: ccvr leaves out 1 of 4 clients, whose measurements are not finite or not possible"
    assert text in caplog.messages
    assert spoilt.history[0].test_loss == pytest.approx(expected.history[0].test_loss, rel=1e-6)


def test_a_loss_that_is_not_finite_does_not_hide_the_others():
    how = ALL | {"rounds": 1}
    result = on_grid("fedavg", grid_with(spoiling(TRAIN, 3, "loss", lambda array: array.fill(np.nan))), **how)
    honest = on_grid("fedavg", **how)
    assert result.history[0].skipped == []
    assert np.isfinite(result.history[0].train_loss)
    torch.testing.assert_close(result.w, honest.w)


@pytest.mark.parametrize("value", [-1, -(2**31)])
@pytest.mark.parametrize("method", ["fedgen(steps=2)", "fedftg(iterations=1, model_steps=1)"])
def test_counts_that_are_not_possible_are_refused(method, value):
    name = method.partition("(")[0]

    def spoil(counts):
        counts[:] = value

    grid = grid_with(spoiling(TRAIN, 1, f"uploads/{name}/counts", spoil), method)
    result = on_grid(method, grid, **ALL | {"rounds": 1})
    assert result.history[0].failed == {1: f"refused: its upload to {name} is not possible"}
    assert torch.isfinite(result.w).all()

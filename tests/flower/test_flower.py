"""Methods on Flower: the same history as in simulation, message by message."""

from __future__ import annotations

import math

import pytest
import torch
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st

from helpers.brief import brief
from helpers.flower_toys import SMALL, MemoryGrid, on_grid
from holdfast import HoldfastError, run
from holdfast.flower.app import ClientOptions, make_node, node_config
from holdfast.flower.array_codec import DTYPES, Refused, pack, spec_of, unpack, unpack_any
from holdfast.flower.environment import child_environment
from holdfast.flower.node_data import clients_of, split_data
from holdfast.method.config import Config
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES

PUBLIC = ("fnr", "feddf", "finetune")

METHODS = {
    "fedavg": {},
    "scaffold": {},
    "feddyn(0.01)": {},
    "fedbug(0.4)+fednlr": {},
    "fedagg": {},
    "fedlc(0.5)": {"class_weights": "balanced", "metric": "macro_f1"},
    "fedagg(mode=fixed_point, sweeps=1)": {"rounds": 1},
    "fnr(epochs=2, batch=7, shuffled=false)": {"public": 0.05},
    "finetune(1, at=server)": {"public": 0.05},
    "fedmrur": {},
    "moon+ccvr": {},
    "nova+fedbug(0.4)+momentum(0.5, keep=true)": {"lr": 0.02},
    "fnr(epochs=2)+scaffold": {"public": 0.05, "optimizer": "adam(keep=true)", "lr": 0.01},
    "prox+fedavgm": {"split": "dirichlet(0.5)+noise(0.5)", "clip": 5.0, "weight_decay": 1e-4},
}


def test_clients_without_samples_do_not_count_in_the_mean_of_all():
    settings = SMALL | {"clients": 8, "split": "dirichlet(0.002)", "seed": 1}
    occupied = []
    expected = run("latest", engine="loop", on_start=lambda trainer, _: occupied.extend(trainer.occupied), **settings)
    assert len(occupied) < 8
    found = on_grid("latest", nodes=8, **settings)
    assert [r.cohort for r in found.history] == [r.cohort for r in expected.history]
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_history_as_in_simulation(method):
    expected = run(method, engine="loop", **SMALL | METHODS[method])
    found = on_grid(method, **METHODS[method])
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.skipped, a.failed, a.reset) == (b.cohort, [], {}, [])
        assert (a.upload_bytes, a.download_bytes) == (b.upload_bytes, b.download_bytes)
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-5)
        assert a.test_accuracy == pytest.approx(b.test_accuracy, abs=0.01)
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)


def test_several_clients_on_a_node():
    expected = run("scaffold+fedbug(0.4)", engine="loop", **SMALL)
    grid = MemoryGrid({**SMALL, "method": "scaffold+fedbug(0.4)"}, 2)
    found = on_grid("scaffold+fedbug(0.4)", grid, nodes=2)
    assert [r.cohort for r in found.history] == [r.cohort for r in expected.history]
    torch.testing.assert_close(found.w, expected.w, rtol=1e-4, atol=1e-5)
    rounds = [m.metadata.group_id for m in grid.sent if m.metadata.message_type == "train"]
    assert max(rounds.count(t) for t in rounds) <= 2  # one message per node, however many clients it has


OURS = {name for name, part in parts().items() if part.__module__.startswith("holdfast.")}  # not other tests' toys
REST = sorted({*RECIPES, *OURS} - {"clip", "decay"})


@pytest.mark.usefixtures("keyed")
@pytest.mark.parametrize("method", REST)
def test_every_method_runs_unchanged(method):
    """Each part and recipe alone, two rounds, as in simulation."""
    text = f"{method}(2)" if method == "freeze" else brief(method)
    settings = {"rounds": 2, "epochs": 1, "public": 0.05 if method in PUBLIC else 0.0}
    expected = run(text, engine="loop", **SMALL | settings)
    found = on_grid(text, **settings)
    for a, b in zip(found.history, expected.history, strict=True):
        assert (a.cohort, a.failed, a.reset, a.upload_bytes) == (b.cohort, {}, [], b.upload_bytes)
        assert a.test_loss == pytest.approx(b.test_loss, rel=1e-4)


def test_a_node_has_only_its_own_samples_and_the_server_none():
    """A node's federation holds its clients' samples, the server's none of them."""
    config = Config(**SMALL)
    whole = split_data(config)
    seen = []
    for partition in range(2):
        settings = (("num-partitions", 2), ("partition-id", partition))
        here = make_node(config, ClientOptions(), settings, "").federation
        own = [whole.data.x[torch.from_numpy(whole.deal.client(i))] for i in range(partition, 4, 2)]
        assert torch.equal(here.data.x, torch.cat(own))
        assert len(here.data.test_y) == 0
        seen.append(len(here.data.y))
    assert sum(seen) == len(whole.data.y)
    server = whole.only((), server=True)
    assert len(server.data.y) == 0
    assert len(server.data.test_y) == len(whole.data.test_y)


def test_the_server_hands_out_public_data_once_and_gets_no_samples():
    settings = {**SMALL, "method": "fnr+fednlr", "public": 0.05, "cohort": 4}
    replies = []

    def watch(request, reply):
        replies.append((request.metadata.message_type, reply))
        return reply

    grid = MemoryGrid(settings, 4, watch)
    on_grid("fnr+fednlr", grid, **{k: v for k, v in settings.items() if k != "method"})
    public = [m for m in grid.sent if len(m.content.array_records.get("public", {}))]
    assert [m.metadata.message_type for m in public] == ["query.enrol"] * 4
    names = {name.partition("/")[2] for kind, r in replies if kind == "train" for name in r.content["arrays"]}
    assert names == {"delta", "loss", "uploads/fnr/norms", "uploads/fnr/accuracy"}  # FedNLR sends nothing of its own


def test_a_node_takes_paths_from_its_own_settings_and_never_from_the_run():
    config = node_config({"data-dir": "/etc", "device": "cuda", "lr": 1}, {"data_dir": "/data", "device": "cpu"})
    assert (config.data_dir, config.device, config.lr) == ("/data", "cpu", 1.0)
    assert node_config({"data_dir": "/etc"}, {}).data_dir is None


def test_a_node_without_a_valid_number_is_refused():
    with pytest.raises(HoldfastError) as error:
        clients_of(Config(), {"partition-id": 3, "num-partitions": 3})
    assert str(error.value) == (
        "the node has partition-id 3 and num-partitions 3, but needs its number, counted from 0, and the number of "
        "nodes: start it with --node-config 'partition-id=0 num-partitions=3'"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"min_clients": 5},
            "min_clients 5 is larger than the cohort of 3: lower --min-clients, or raise --cohort",
        ),
        ({"on_failure": "shrug"}, "deploy: on_failure must be one of continue, retry, not shrug"),
        ({"timeout": 0.0}, "deploy: timeout must be a number above 0, not 0.0"),
        (
            {"personal": 2},
            "over the network fine-tuned copies are scored on clients' own test samples: add --client-eval",
        ),
        (
            {"nodes": 9},
            "9 nodes are more than the 4 clients, and every node needs one: lower --nodes, or raise --clients",
        ),
    ],
)
def test_bad_deployment_settings_are_refused(settings, message):
    with pytest.raises(HoldfastError) as error:
        on_grid("fedavg", MemoryGrid({**SMALL, "method": "fedavg"}, 4), **settings)
    assert str(error.value) == message


@given(st.binary(max_size=400), st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 9), max_size=3))
def test_no_bytes_break_the_decoder(data, kind, shape):
    """Whatever arrives is decoded or refused, and what is decoded is what was announced."""
    record = ArrayRecord({"x": Array(kind, tuple(shape), "numpy.ndarray", data)})
    try:
        found = unpack_any(record, "it")["x"]
    except Refused:
        return
    assert (tuple(found.shape), found.dtype) == (tuple(shape), DTYPES[kind])


@given(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 4), max_size=3))
def test_tensors_travel_unchanged(kind, shape):
    t = (torch.arange(math.prod(shape)) % 2).reshape(shape).to(DTYPES[kind])
    assert torch.equal(unpack(pack({"x": t}), spec_of({"x": t}), "it")["x"], t)


def test_nothing_is_sent_or_installed_unless_the_user_asks(monkeypatch, tmp_path):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.delenv("FLWR_DISABLE_UPDATE_CHECK", raising=False)
    env = child_environment(tmp_path, 3)
    assert (env["FLWR_TELEMETRY_ENABLED"], env["FLWR_DISABLE_UPDATE_CHECK"]) == ("1", "1")
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert env["FLWR_HOME"] == str(tmp_path)

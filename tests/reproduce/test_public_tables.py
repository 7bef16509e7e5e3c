"""The files of tables that the field knows against what their sources state, written down here a second time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helpers.paper_files import PUBLIC, cells, merged, paper, printed, published, row, settings, summed, table

OURS = ["FedBug", "FedNLR", "FedAgg", "FNR-FL", "FedMRUR"]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_five_papers_methods_are_the_last_columns(name: str) -> None:
    for t in paper(name)["table"]:
        ours = [c["name"] for c in t["columns"] if "control" in c]
        same_epochs = "-" not in str(t.get("set", {}).get("epochs", ""))
        assert ours == [c for c in OURS if same_epochs or c != "FedAgg"], "FedAgg needs equally many epochs"
        assert [c["name"] for c in t["columns"]][-len(ours) :] == ours


@pytest.mark.parametrize("name", PUBLIC)
def test_only_fnr_has_public_data(name: str) -> None:
    for t, r, c in cells(name):
        assert merged(paper(name), t, r, c).get("public", 0) == (0.2 if c["name"] == "FNR-FL" else 0)


def test_niid_bench_settings() -> None:
    for t, r, c in cells("niid-bench"):
        s = merged(paper("niid-bench"), t, r, c)
        assert (s["lr"], s["optimizer"], s["weight_decay"]) == (0.01, "momentum(0.9)", 1e-5)  # scripts, --reg
        assert (s["batch"], s["epochs"]) == (64, 10)
        few = t["id"] != "100-clients"
        assert (s["clients"], s["cohort"], s["rounds"]) == ((10, 10, 50) if few else (100, 10, 500))
        assert s["data"].endswith("(normalise=off)")
        reflected = "crop(4, padding=reflect)+flip(0.5)"
        assert s["augment"] == (reflected if s["data"].startswith("cifar10") else False)  # utils.py
        assert t["measure"] == ("best" if t["id"] == "flower" else "final")
        if r["name"].removeprefix("CIFAR-10, ").removeprefix("MNIST, ") == "Dir(0.5)":
            assert s["split"] == "dirichlet(0.5, capped=true, least=10)"
    splits = {r["name"]: settings("niid-bench", "10-clients", r["name"])["split"] for r in t_rows("10-clients")}
    assert splits["feature noise 0.1"] == "noise(0.1, spread=ramp-from-clean)"  # noise / (n_parties - 1) * net_id
    assert splits["quantity Dir(0.5)"] == "quantity(0.5, min_size=10)"
    assert splits["2 classes"] == "classes(2)"


def t_rows(number: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table("niid-bench", number)["row"]
    return rows


def test_niid_bench_numbers() -> None:
    """The leader board by row: FedAvg, FedProx and its mu, SCAFFOLD, FedNova."""
    board = {
        ("10-clients", "Dir(0.5)"): (68.2, 67.9, 0.001, 69.8, 66.8),
        ("10-clients", "2 classes"): (49.8, 50.7, 0.01, 49.1, 46.5),
        ("10-clients", "feature noise 0.1"): (68.9, 69.3, 0.01, 70.1, 68.5),
        ("10-clients", "quantity Dir(0.5)"): (72.0, 71.2, 0.01, 62.4, 10.0),
        ("100-clients", "IID"): (65.6, 66.0, 0.01, 10.0, 66.1),
        ("100-clients", "Dir(0.5)"): (59.4, 58.8, 0.001, 10.0, 60.0),
        ("100-clients", "2 classes"): (45.3, 39.3, 0.001, 10.0, 48.0),
    }
    assert {(number, r["name"]) for number in ("10-clients", "100-clients") for r in t_rows(number)} == set(board)
    for (number, title), (fedavg, fedprox, mu, scaffold, fednova) in board.items():
        columns = [c["name"] for c in printed(table("niid-bench", number))]
        numbers = dict(zip(columns, row("niid-bench", number, title)["published"], strict=True))
        other = {0.001: 0.01, 0.01: 0.001}[mu]
        assert math.isnan(numbers.pop(f"FedProx, mu {other}")), "another mu is not printed"
        assert numbers == {"FedAvg": fedavg, f"FedProx, mu {mu}": fedprox, "SCAFFOLD": scaffold, "FedNova": fednova}


def test_flower_and_the_leader_board_differ_by_six_points() -> None:
    """On the same model, data, rates and rounds: what the notes explain."""
    gap = published("niid-bench", "10-clients", "Dir(0.5)", "FedAvg") - published(
        "niid-bench", "flower", "CIFAR-10, Dir(0.5)", "FedAvg"
    )
    assert gap == pytest.approx(5.73)
    board, flower = (("10-clients", "Dir(0.5)"), ("flower", "CIFAR-10, Dir(0.5)"))
    assert settings("niid-bench", *board) == settings("niid-bench", *flower)


def test_fednova_settings() -> None:
    for t, r, c in cells("fednova"):
        s = merged(paper("fednova"), t, r, c)
        assert (s["clients"], s["cohort"], s["rounds"], s["batch"]) == (16, 16, 100, 32)
        assert (s["model"], s["lr"], s["weight_decay"], s["augment"]) == ("vgg11", 0.02, 1e-4, True)
        assert s["split"] == "dirichlet(0.1, capped=true, least=10)"
        assert s["epochs"] == {"two-epochs": 2, "random-epochs": "2-5"}[t["id"]]
        assert s.get("optimizer") == ("momentum(0.9)" if r["name"] == "momentum 0.9" else None)
    for number, mu in (("two-epochs", 0.005), ("random-epochs", 0.001)):  # client.py: 0.001 where epochs vary
        assert row("fednova", number, "proximal SGD")["method"] == f"prox({mu})"
    printed_numbers = [r["published"] for n in ("two-epochs", "random-epochs") for r in table("fednova", n)["row"]]
    assert printed_numbers == [
        [62.35, 67.04], [70.78, 73.01], [62.30, 67.00], [64.30, 70.54], [72.75, 74.26], [64.47, 69.25],
    ]  # fmt: skip


def test_fedopt_settings() -> None:
    rates = {"FedAvg": -0.5, "FedAdagrad": -1.5, "FedAvgM": -1.5, "FedAdam": -1.5, "FedYogi": -1.5}
    for t, r, c in cells("fedopt"):
        s = merged(paper("fedopt"), t, r, c)
        assert (s["clients"], s["cohort"], s["rounds"], s["epochs"], s["batch"]) == (500, 10, 4000, 1, 20)
        assert (s["model"], s["augment"]) == ("resnet18", "crop(24)+flip(0.5)")
        assert s["split"] == "dirichlet(0.1, balanced=true)"
        assert s["lr"] == pytest.approx(10 ** rates.get(c["name"], -0.5))
    t = table("fedopt", "1")
    assert t["measure"] == "last100"
    methods = {c["name"]: c["method"] for c in printed(t)}
    assert methods["FedAdagrad"] == "fedadagrad(eta=0.1, tau=0.01)"
    assert methods["FedAvgM"] == f"fedavgm(beta=0.9, eta={10**-0.5!r})"
    for adaptive in ("FedAdam", "FedYogi"):
        assert methods[adaptive] == f"{adaptive.lower()}(eta=0.01, beta1=0.9, beta2=0.99, tau=0.001)"
    assert dict(zip(methods, t["row"][0]["published"], strict=True)) == {
        "FedAvg": 72.8, "FedAdagrad": 73.1, "FedAvgM": 77.4, "FedAdam": 77.4, "FedYogi": 78.0,
    }  # fmt: skip


def test_fedavg_mnist_settings() -> None:
    for t, r, c in cells("fedavg-mnist"):
        s = merged(paper("fedavg-mnist"), t, r, c)
        assert (s["clients"], s["cohort"], s["rounds"], s["epochs"], s["batch"]) == (100, 10, 10, 10, 10)
        assert (s["data"], s["lr"], s["optimizer"], s["validation"]) == ("mnist", 0.01, "momentum(0.5)", 0.2)
        mlp = r["name"].startswith("MLP")
        assert s["model"] == ("mlp(width=64, depth=1, dropout=0.5)" if mlp else "mnist-example-cnn")
        assert ("probability-loss" in summed(t, r, c)) == mlp
        assert s["split"] == ("iid" if r["name"].endswith(", IID") else "shards(2)")
    assert [r["published"] for r in table("fedavg-mnist", "2")["row"]] == [[88.38], [73.49], [97.28], [75.94]]

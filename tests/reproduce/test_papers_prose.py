"""The papers' files against what the papers say in their prose, and against themselves."""

from __future__ import annotations

import pytest
import torch

from helpers.paper_files import cells, merged, paper, printed, published, row, settings, summed, table
from holdfast.parts.fedbug import unfrozen


def gain(name: str, number: str, title: str, better: str, worse: str) -> float:
    """Points between two columns of a row."""
    return published(name, number, title, better) - published(name, number, title, worse)


def test_fedbug_settings() -> None:
    for number, rounds, epochs in (("1", 300, 10), ("2", 500, 5), ("3", 100, 5)):  # A.1: 300, 500, 100 with 10, 5, 5
        for r in table("fedbug", number)["row"]:
            s = settings("fedbug", number, r["name"])
            assert (s["rounds"], s["epochs"]) == (rounds, epochs)
            assert (s["lr"], s["weight_decay"], s["batch"]) == (0.1, 0.001, 50)  # A.1
            assert s["clients"] == (10 if number == "3" else 100)  # A.1: 100 (10) participants
            assert s["participation"] in ((0.1, 0.3) if number == "3" else (0.01, 0.1))  # A.1
            alpha = 0.5 if number == "3" else 0.3  # Sec. 5.1
            assert s["split"] in ("iid", f"dirichlet({alpha}, balanced=true)")
    for r in table("fedbug", "4")[
        "row"
    ]:  # A.1: ResNets, 100 rounds, 5 local epochs on CIFAR-100 and 3 on Tiny-ImageNet
        s = settings("fedbug", "4", r["name"])
        assert (s["rounds"], s["clients"], s["participation"]) == (100, 10, 0.1)
        assert s["epochs"] == {"cifar100": 5, "tiny-imagenet": 3}[s["data"]]


def test_fedbug_methods() -> None:
    baselines = {r["method"] for n in "123" for r in table("fedbug", n)["row"]}  # A.1: mu, alpha, beta
    assert baselines == {"fedavg", "fedprox(0.0001)", "feddyn(0.01)", "fedexp", "feddecorr(0.01)"}
    assert [c["name"] for c in table("fedbug", "3")["columns"]] == ["0%", "12%", "24%", "48%"]
    second = {n: table("fedbug", n)["columns"][1]["method"] for n in ("5", "fig4")}
    assert second["5"] == "fedbug(0.5, unit=stage)+latest"  # A.2: FedBug (50%), Module-wise
    assert second["fig4"] == "fedbug(0.2)+latest"  # A.2: FedBug (20%)
    steps = torch.arange(1, 101)  # Sec. 5.2: of five layers at 100%, the last two train for 40% and 20% of the round
    thawed = unfrozen(steps, torch.tensor(100), 5, 1.0)
    assert [(thawed >= 4).sum().item(), (thawed >= 5).sum().item()] == [40, 20]


def test_fedbug_gains_more_on_cifar100() -> None:
    def mean(number: str) -> float:
        gains = [max(r["published"][1:]) - r["published"][0] for r in table("fedbug", number)["row"]]
        return sum(gains) / len(gains)

    assert mean("2") > 2 * mean("1")  # caption of Table 2: "more remarkable than those on CIFAR-10"
    both = zip(table("fedbug", "4")["row"][:4:2], table("fedbug", "5")["row"][::3], strict=True)
    for four, five in both:  # Tables 4 and 5 share their vanilla run, of other seeds
        assert four["published"][0] == pytest.approx(five["published"][0], abs=0.05)


def test_fedmrur_accuracy() -> None:
    best, second = (published("fedmrur", "2", "CIFAR-100, Dir(0.3)", c) for c in ("FedMRUR", "MoFedSAM"))
    assert best == 55.49  # Sec. 5.2
    assert 100 * (best / second - 1) == pytest.approx(5.07, abs=0.01)  # Sec. 5.2: "5.07% higher", relatively
    assert published("fedmrur", "6", "CIFAR-10, Dir(0.3)", "FedMRUR") == 84.53  # B.1
    assert gain("fedmrur", "6", "CIFAR-10, Dir(0.3)", "FedMRUR", "MoFedSAM") == pytest.approx(0.5)  # B.1 says 0.51
    assert row("fedmrur", "4", "CIFAR-100, Dir(0.3)")["published"][::3] == [second, best]
    for title in ("Dir(0.6)", "Dir(0.3)", "Path(20)", "Path(10)"):  # Table 7 repeats FedAvg and FedCM of Table 2
        for column in ("FedAvg", "FedCM"):
            here, there = (published("fedmrur", n, f"CIFAR-100, {title}", column) for n in ("7", "2"))
            assert here == there


def test_fedmrur_times() -> None:
    title = "CIFAR-100, Dir(0.3)"
    seconds, total = (
        {c: published("fedmrur", n, title, c) for c in ("FedCM", "MoFedSAM", "FedMRUR")}
        for n in ("11-time", "11-total")
    )
    assert seconds["FedMRUR"] / seconds["FedCM"] == pytest.approx(1.46, abs=0.005)  # B.5
    assert total["MoFedSAM"] / total["FedMRUR"] == pytest.approx(2.46, abs=0.005)  # B.5
    assert total["FedCM"] / total["FedMRUR"] == pytest.approx(3.67, abs=0.005)  # B.5
    for c in seconds:
        assert total[c] == pytest.approx(seconds[c] * published("fedmrur", "11-rounds", title, c))


def test_fedmrur_rounds_and_accuracy_agree() -> None:
    """Who never reaches a target does not end far above it (Tables 2 and 3, 6 and 5)."""
    for number, t in ((t["id"], t) for t in paper("fedmrur")["table"] if t["id"][:2] in ("3-", "5-")):
        target = 100 * float(t["measure"][10:-1])
        for r in t["row"]:
            for c, rounds in zip(t["columns"], r["published"], strict=True):
                if rounds == float("inf"):
                    assert published("fedmrur", "2" if number[0] == "3" else "6", r["name"], c["name"]) < target + 0.01


def test_fedmrur_settings() -> None:
    for t, r, c in cells("fedmrur"):
        s = merged(paper("fedmrur"), t, r, c)
        assert (s["rounds"], s["lr"], s["lr_decay"], s["weight_decay"]) == (
            1600,
            0.1,
            0.998,
            0.0005,
        )  # Sec. 5.1, Fig. 3
        tiny = s["data"] == "tiny-imagenet"
        assert (s["clients"], s["batch"]) == ((500, 20) if tiny else (200, 50))  # Table 1
        if t["id"] not in ("fig4-participation", "fig6"):
            assert (s["cohort"], s["epochs"]) == (10, 2 if tiny else 3)  # Table 1: 0.02 of 500, 0.05 of 200
        allowed = {"cifar10": (3, 6), "cifar100": (10, 20), "tiny-imagenet": (40, 80)}[s["data"]]  # Sec. 5.1
        assert s["split"] in [f"dirichlet({m}, balanced=true)" for m in (0.3, 0.6)] + [f"classes({n})" for n in allowed]
        if c["name"] == "FedMRUR":
            assert summed(t, r, c) == "fedmrur(alpha=0.1, rho=0.5, gamma=0.005, sigma=10000, beta=1)"  # Sec. 5.1


def test_fednlr_gains() -> None:
    # Sec. 7.2: "FedNLR achieves a 3.9% promotion compared with FedAvg, while other methods only raise around 1%"
    strong = gain("fednlr", "1", "CIFAR-100, Dir(0.05)", "FedNLR", "FedAvg")
    assert 3.9 <= strong < 4.0
    for other in ("FedProx", "Scaffold", "FedNova", "FedRS", "FedLC"):
        assert 0.3 < gain("fednlr", "1", "CIFAR-100, Dir(0.05)", other, "FedAvg") < 1.2
    assert strong > gain("fednlr", "1", "CIFAR-100, Dir(0.5)", "FedNLR", "FedAvg")  # "grow with the degree of NonIID"
    # "Even FedDyn has made great improvements in the CIFAR-10-Dirichlet(20, 0.5), the addition shows gains of 1.1%"
    assert gain("fednlr", "1", "CIFAR-10, Dir(0.5)", "FedDyn + FedNLR", "FedDyn") == pytest.approx(1.1, abs=0.05)
    # "In the CIFAR-10-Shards(100, 4), FedDyn improves 4.57% and can gain an additional 2.91%"
    title = "CIFAR-10, shards, 4 classes"
    assert gain("fednlr", "3", title, "FedDyn", "FedAvg") == pytest.approx(4.57)
    assert gain("fednlr", "3", title, "FedDyn + FedNLR", "FedDyn") == pytest.approx(2.91)


def test_fednlr_is_best_alone_or_in_a_sum() -> None:
    for number in "123":  # Sec. 7.2: "FedNLR or FedNLR + FedDyn demonstrates the best performance"
        columns = [c["name"] for c in table("fednlr", number)["columns"]]
        for r in table("fednlr", number)["row"]:
            best = columns[r["published"].index(max(r["published"]))]
            assert best in ("FedNLR", "FedDyn + FedNLR"), (number, r["name"])


def test_fednlr_settings() -> None:
    for t, r, c in cells("fednlr"):
        s = merged(paper("fednlr"), t, r, c)
        dyn = "feddyn" in c["method"]
        assert (s["epochs"], s["batch"], s["rounds"]) == (2, 64, 200 if dyn else 500)  # Sec. 7.1
        assert (s["clients"], s["cohort"]) == ((100, 10) if t["id"] == "3" else (20, 8))  # Sec. 7.1 and 7.2: 0.4, 10%
        assert s["model"] == "vgg9"
        assert s["lr"] == 0.01 or t["id"] == "fig2"
        assert s.get("weight_decay", 0) == (0.1 if dyn and "decay" not in c["name"] else 0)
        if "FedNLR" in c["name"]:
            assert c["method"].endswith("fednlr-tables")  # Sec. 7.3: "initially conducted using (0.45, 0.3)"
    activation = {"FedAvg": [0.61 - 0.64, 0.50 - 0.56, 0.46 - 0.52], "FedNLR": [0.63 - 0.64, 0.53 - 0.56, 0.48 - 0.52]}
    for title, change in activation.items():  # Table 4's activations on client 2, after and before
        assert row("fednlr", "4", title)["published"] == pytest.approx(change)


def test_fedagg_settings() -> None:
    table_iv = {
        "mnist": (0.01, 32, 30),
        "emnist-letters": (0.1, 64, 50),
        "cifar10": (0.1, 32, 100),
        "cifar100": (0.01, 64, 500),
    }
    for t, r, c in cells("fedagg"):
        s = merged(paper("fedagg"), t, r, c)
        lr, batch, rounds = table_iv[s["data"]]  # Table IV and Sec. VII-A6
        assert (s["batch"], s["rounds"]) == (batch, rounds)
        assert s["lr"] == (0.2 if c["name"] == "FedAvg at 0.2" else lr)
        assert (s["clients"], s["epochs"]) == (100, 3)
        assert s["cohort"] in (20, 100)  # Sec. VII-B1
        non_iid = (
            ("shards(2)",) if s["data"] == "mnist" else tuple(f"dirichlet({a}, balanced=true)" for a in (0.6, 1.0))
        )
        assert s["split"] in ("iid", *non_iid)  # Sec. VII-A3
    methods = {c["name"]: c["method"] for t in paper("fedagg")["table"] for c in t.get("columns", ())}
    assert methods["FedAgg"] == "fedagg(0.1, mode=fixed_point, sweeps=1, start=0.2)"  # Sec. VII-A6: alpha = 0.1
    assert methods["FedAdam"].endswith("beta1=0.9, beta2=0.99, tau=0.001)")  # Sec. VII-A6
    assert (methods["FedProx"], methods["FedDyn"]) == ("fedprox(0.01)", "feddyn(0.01)")  # Sec. VII-A6


def test_fedagg_tables_agree() -> None:
    for r in table("fedagg", "V")["row"]:  # Table V repeats three columns of Table III, of 20 clients
        for c in ("FedAvg", "FedAdam", "FedAgg"):
            assert published("fedagg", "V", r["name"], c) == published("fedagg", "III", f"{r['name']}, 20 clients", c)
    few = [r for r in table("fedagg", "III")["row"] if r["name"].endswith(", 20 clients")]
    assert len(few) == 13
    assert all(r["published"][-1] == max(r["published"]) for r in few)  # bold in the paper: FedAgg with 20 clients
    # Sec. VII-B1: "in most scenarios, FedAgg dominates"; underlined with 100 clients, but FedAdam on one line
    many = [r for r in table("fedagg", "III")["row"] if r["name"].endswith(", 100 clients")]
    assert [r["name"] for r in many if r["published"][-1] < max(r["published"])] == [
        "MNIST + Linear, Non-IID, 100 clients"
    ]
    assert published("fedagg", "III", "MNIST + Linear, Non-IID, 100 clients", "FedAdam") == 89.60


def test_fnr_abstract() -> None:
    acc, time = (
        {c: published("fnr", f"3-{n}", "feature skew", c) for c in ("FNR-FL", "FedAvg")} for n in ("accuracy", "time")
    )
    assert 100 * (acc["FNR-FL"] / acc["FedAvg"] - 1) == pytest.approx(66.24, abs=0.005)  # abstract: 66.24% better
    assert 100 * (1 - time["FNR-FL"] / time["FedAvg"]) == pytest.approx(11.40, abs=0.005)  # abstract: 11.40% faster


def test_fnr_prose() -> None:
    def of(number: str, title: str, column: str = "FNR-FL") -> float:
        return published("fnr", number, title, column)

    assert (of("2", "feature skew, ResNet-18"), of("2", "feature skew, VGG-11")) == (0.9976, 0.9931)  # Sec. 6.2.1
    assert (of("2", "label skew, ResNet-18"), of("2", "label skew, VGG-11")) == (0.9970, 0.9992)  # Sec. 6.2.1
    others = row("fnr", "2", "feature skew, ResNet-18")["published"][1:-1]
    assert (min(others), max(others)) == (0.5530, 0.7425)  # Sec. 6.2.1: "range between 0.5530 and 0.7425"
    assert (of("3-kappa", "feature skew"), of("3-rho", "feature skew")) == (1.6462, 1.1184)  # Sec. 6.2.3
    mixed = [r["published"][0] for r in table("fnr", "4")["row"]]
    assert mixed == [0.9755, 0.9111, 0.8826]  # Sec. 6.3
    assert of("5", "quantity skew", "FedProx+FNR-FL") == 0.9999  # Sec. 6.4
    assert gain("fnr", "6", "feature skew, noise 0.0", "FNR-FL", "SCAFFOLD") == pytest.approx(
        0.07, abs=0.001
    )  # Sec. 6.6


def test_fnr_metrics_follow_from_accuracy() -> None:
    for r in table("fnr", "3-accuracy")["row"]:
        title = r["name"]
        assert r["published"] == row("fnr", "2", f"{title}, ResNet-18")["published"][:6]
        for k, accuracy in enumerate(r["published"]):
            per = {n: 1e4 * accuracy / row("fnr", f"3-{n}", title)["published"][k] for n in ("time", "traffic")}
            assert row("fnr", "3-kappa", title)["published"][k] == pytest.approx(per["time"], abs=2e-4)
            assert row("fnr", "3-rho", title)["published"][k] == pytest.approx(per["traffic"], abs=2e-4)


def test_fnr_rows_that_are_fedavg_plus_a_constant() -> None:
    columns = [c["name"] for c in printed(table("fnr", "2"))]
    shift = {"FedDyn": 0.007, "FedFTG": 0.045, "FedDF": 0.01, "FedDC": 0.04, "FedGen": 0.002}
    for r in table("fnr", "2")["row"]:
        by_name = dict(zip(columns, r["published"], strict=True))
        assert {c: round(by_name[c] - by_name["FedAvg"], 4) for c in shift} == shift
    assert "in every column" in table("fnr", "2")["note"]


def test_fnr_settings() -> None:
    for t, r, c in cells("fnr"):
        s = merged(paper("fnr"), t, r, c)
        assert (s["clients"], s["cohort"], s["rounds"], s["epochs"]) == (10, 10, 10, 10)  # Sec. 6.1
        assert (s["lr"], s["batch"], s["data"]) == (0.1, 64, "cifar10")  # Sec. 6.1
    for four, six in zip(table("fnr", "4")["row"][:2], table("fnr", "6")["row"][4:], strict=True):
        assert settings("fnr", "4", four["name"])["split"] == settings("fnr", "6", six["name"])["split"]
        assert six["published"] == pytest.approx(four["published"][:6], abs=6e-5)  # the same runs, rounded

"""Recipes: named sums of parts, under the names that their papers give them.

A method that is a single part under its own name needs no recipe. Arguments go to the parts by name; positional ones
go to the first part: ``mofedsam(0.1, rho=0.05)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.expression import Call, parse
from holdfast.core.params import make
from holdfast.method.part import Part


@dataclass(frozen=True)
class Recipe:
    """A named sum.

    Attributes:
        sum: The parts as a user would write them; empty for plain federated averaging.
        group: Where ``holdfast methods`` lists it: "paper", "baseline" or "trust".
        summary: What it does, in at most 41 characters.
        paper: The reference: authors, year, a comma, the title.
    """

    sum: str
    group: str
    summary: str
    paper: str

    def parts(self, call: Call, known: Mapping[str, type[Part]]) -> list[Part]:
        """Return the parts of this recipe, each with those of the caller's arguments that belong to it."""
        calls = parse(self.sum) if self.sum else []
        if not calls and (call.args or call.kwargs):
            raise HoldfastError(f"{call.name} takes no parameters: write {call.name} alone")
        given: list[dict[str, object]] = [{} for _ in calls]
        for name, value in call.kwargs.items():
            owners = [i for i, c in enumerate(calls) if name in {f.name for f in fields(known[c.name])}]
            if not owners:
                raise unknown("parameter", name, _names(calls, known), f"of {call.name}")
            if len(owners) > 1:
                both = " and ".join(calls[i].name for i in owners)
                raise HoldfastError(f"{call.name}: {name} belongs to {both}; write the sum out: {self.sum}")
            given[owners[0]][name] = value
        made = []
        for i, c in enumerate(calls):
            names = [f.name for f in fields(known[c.name])]
            written = dict(zip(names, c.args, strict=False)) | c.kwargs
            args = call.args if i == 0 else ()
            chosen = {k: v for k, v in {**written, **given[i]}.items() if k not in names[: len(args)] or k in given[i]}
            made.append(make(known[c.name], args, chosen))  # type: ignore[arg-type]
        return made


def _names(calls: list[Call], known: Mapping[str, type[Part]]) -> list[str]:
    return [f.name for c in calls for f in fields(known[c.name])]


RECIPES: dict[str, Recipe] = {
    "fedavg": Recipe(
        "",
        "baseline",
        "Averages the clients' updates",
        "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks from Decentralized Data",
    ),
    "krum": Recipe(
        "multikrum(m=1)",
        "trust",
        "Takes the update closest to the others",
        "Blanchard et al. 2017, Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
    ),
    "fedprox": Recipe(
        "prox",
        "baseline",
        "Pulls local models to the global one",
        "Li et al. 2020, Federated Optimization in Heterogeneous Networks",
    ),
    "fedsam": Recipe(
        "sam",
        "baseline",
        "Looks for flat minima at the clients",
        "Qu et al. 2022, Generalized Federated Learning via Sharpness Aware Minimization",
    ),
    "mofedsam": Recipe(
        "fedcm+sam",
        "baseline",
        "Combines fedcm and sam",
        "Qu et al. 2022, Generalized Federated Learning via Sharpness Aware Minimization",
    ),
    "feddc": Recipe(
        "feddyn(0.1)+scaffold",
        "baseline",
        "Tracks and corrects each client's drift",
        "Gao et al. 2022, FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction",
    ),
    "fedspeed": Recipe(
        "feddyn(0.1)+sam(rho=0.1)",
        "baseline",
        "Combines feddyn and sam",
        "Sun et al. 2023, FedSpeed: Larger Local Interval, Less Communication Round, and Higher Generalization "
        "Accuracy",
    ),
    "fedgamma": Recipe(
        "scaffold+sam(rho=0.1)",
        "baseline",
        "Combines scaffold and sam",
        "Dai et al. 2023, FedGAMMA: Federated Learning with Global Sharpness-Aware Minimization",
    ),
    "fedsmoo": Recipe(
        "feddyn(0.1)+smoo",
        "baseline",
        "Combines feddyn and smoo",
        "Sun et al. 2023, Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching Global "
        "Consistency and Smooth Landscape",
    ),
    "fednova": Recipe(
        "nova",
        "baseline",
        "Averages updates per local step",
        "Wang et al. 2020, Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    ),
    "fedbabu": Recipe(
        "freeze(1)",
        "baseline",
        "Never trains the classifier",
        "Oh et al. 2022, FedBABU: Toward Enhanced Representation for Federated Image Classification",
    ),
    "fedbug-topdown": Recipe(
        "fedbug(order=top-down)",
        "paper",
        "Unfreezes it top-down, as an ablation",
        "Kao and Wang 2023, FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning, Fig. 4",
    ),
    "freeze-last-two": Recipe(
        "freeze(2)",
        "paper",
        "Never trains the last two, as an ablation",
        "Kao and Wang 2023, FedBug: A Bottom-Up Gradual Unfreezing Framework for Federated Learning, Fig. 4",
    ),
    "fednlr-tables": Recipe(
        "fednlr(a1=0.45, a2=0.3)",
        "paper",
        "Uses the constants of fednlr's tables",
        "Wang et al. 2024, FedNLR: Federated Learning with Neuron-wise Learning Rates",
    ),
    "fedmrur": Recipe(
        "fedcm+sam+hyperbolic+normalized",
        "paper",
        "Regularises features, normalises the mean",
        "An et al. 2023, Federated Learning with Manifold Regularization and Normalized Update Reaggregation",
    ),
}

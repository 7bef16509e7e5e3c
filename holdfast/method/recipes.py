"""Named methods: what a paper's name stands for, as a sum of parts.

Arguments go to the parts by name; those without a name go to the first part. ``mofedsam(alpha=0.1, rho=0.05)``.
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
    sum: str  # empty: plain federated averaging
    paper: str

    def parts(self, call: Call, known: Mapping[str, type[Part]]) -> list[Part]:
        """The parts of this recipe with the caller's arguments dealt to them."""
        calls = parse(self.sum) if self.sum else []
        if not calls and (call.args or call.kwargs):
            raise HoldfastError(f"{call.name} takes no parameters")
        given: list[dict[str, object]] = [{} for _ in calls]
        for name, value in call.kwargs.items():
            owners = [i for i, c in enumerate(calls) if name in {f.name for f in fields(known[c.name])}]
            if not owners:
                raise unknown(f"parameter of {call.name}", name, _names(calls, known))
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
    "fedavg": Recipe("", "McMahan et al. 2017, Communication-Efficient Learning of Deep Networks"),
    "fedprox": Recipe("prox", "Li et al. 2020, Federated Optimization in Heterogeneous Networks"),
    "feddyn": Recipe("feddyn", "Acar et al. 2021, Federated Learning Based on Dynamic Regularization"),
    "scaffold": Recipe("scaffold", "Karimireddy et al. 2020, SCAFFOLD"),
    "fedcm": Recipe("fedcm", "Xu et al. 2021, FedCM: Federated Learning with Client-level Momentum"),
    "fedsam": Recipe("sam", "Qu et al. 2022, Generalized Federated Learning via Sharpness Aware Minimization"),
    "mofedsam": Recipe("fedcm+sam", "Qu et al. 2022, Generalized Federated Learning via Sharpness Aware Minimization"),
    "fedlc": Recipe(
        "fedlc", "Zhang et al. 2022, Federated Learning with Label Distribution Skew via Logits Calibration"
    ),
    "feddc": Recipe("feddyn(0.1)+scaffold", "Gao et al. 2022, FedDC: Local Drift Decoupling and Correction"),
    "fedspeed": Recipe("feddyn(0.1)+sam(rho=0.1)", "Sun et al. 2023, FedSpeed: Larger Local Interval"),
    "ccvr": Recipe("ccvr", "Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration"),
    "moon": Recipe("moon", "Li et al. 2021, Model-Contrastive Federated Learning"),
    "fedbug": Recipe("fedbug", "Kao and Wang 2023, FedBug: A Bottom-Up Gradual Unfreezing Framework"),
    "fedbug-topdown": Recipe("fedbug(order=top-down)", "Kao and Wang 2023, FedBug, ablation of Fig. 4"),
    "fedbabu": Recipe("freeze(1)", "Oh et al. 2022, FedBABU: Toward Enhanced Representation"),
    "freeze-last-two": Recipe("freeze(2)", "Kao and Wang 2023, FedBug, ablation of Fig. 4"),
    "fednlr": Recipe("fednlr", "Wang et al. 2024, FedNLR: Federated Learning with Neuron-wise Learning Rates"),
    "fednlr-tables": Recipe("fednlr(a1=0.45, a2=0.3)", "Wang et al. 2024, FedNLR, the constants of its tables"),
    "fedagg": Recipe("fedagg", "Yuan and Wang 2023, FedAgg: Adaptive Federated Learning with Aggregated Gradients"),
    "fnr": Recipe("fnr", "Hu et al. 2023, Feature Norm Regularized Federated Learning"),
    "fedmrur": Recipe("fedcm+sam+hyperbolic+normalized", "An et al. 2023, FedMRUR"),
    "fedrs": Recipe("fedrs", "Li and Zhan 2021, FedRS: Federated Learning with Restricted Softmax"),
    "feddecorr": Recipe("feddecorr", "Shi et al. 2023, Towards Understanding and Mitigating Dimensional Collapse"),
    "feddf": Recipe("feddf", "Lin et al. 2020, Ensemble Distillation for Robust Model Fusion in Federated Learning"),
    "fedftg": Recipe("fedftg", "Zhang et al. 2022, Fine-tuning Global Model via Data-Free Knowledge Distillation"),
    "fedgen": Recipe("fedgen", "Zhu et al. 2021, Data-Free Knowledge Distillation for Heterogeneous FL"),
    "fednova": Recipe("nova", "Wang et al. 2020, Tackling the Objective Inconsistency Problem"),
    "fedavgm": Recipe("fedavgm", "Hsu et al. 2019, Measuring the Effects of Non-Identical Data Distribution"),
    "fedadam": Recipe("fedadam", "Reddi et al. 2021, Adaptive Federated Optimization"),
    "fedadagrad": Recipe("fedadagrad", "Reddi et al. 2021, Adaptive Federated Optimization"),
    "fedyogi": Recipe("fedyogi", "Reddi et al. 2021, Adaptive Federated Optimization"),
    "fedexp": Recipe("fedexp", "Jhunjhunwala et al. 2023, FedExP: Speeding Up Federated Averaging via Extrapolation"),
}

"""How far the clients of a round drift apart, measured at the server with ``--drift``.

Every measure looks at one round: the model ``w`` that was sent out, the clients' deltas as they are aggregated, and a
few test samples of each class. It costs a forward pass of these samples per client and does not affect training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.data.federation import Federation
from holdfast.method.part import Round
from holdfast.models.net import Net

SAMPLES = 10  # test samples of each class that are used
LISTED = 20  # the most classes whose feature norms are recorded one by one
PER_CLASS = "feature_norm_"  # followed by the number of the class


class DriftView(NamedTuple):
    """What the measures are computed from."""

    net: Net
    w: Tensor  # the global model that the clients got, [P]
    deltas: Tensor  # [C, P]
    squares: Tensor  # squared norm of every client's every parameter, [C, parameters]
    lacks: Tensor  # whether a client has no sample of a class, [C, classes]
    x: Tensor  # the test samples
    y: Tensor
    norms: Tensor  # mean norm of the served model's features on every class, [classes]

    @property
    def lengths(self) -> Tensor:
        """The norm of every client's delta, [C]."""
        return self.squares.sum(1).sqrt()

    def parameters(self, names: tuple[str, ...]) -> Tensor:
        """Sum the squared norms of some of the parameters, [C]."""
        return self.squares[:, [self.net.layout.names.index(n) for n in names]].sum(1)


@dataclass(frozen=True)
class DriftMeasure:
    """A figure of a round. If it cannot be measured, ``of`` returns NaN and nothing is recorded."""

    name: str
    title: str
    meaning: str  # one sentence
    of: Callable[[DriftView], float]


def measure(r: Round, served: Tensor, counts: Tensor, federation: Federation) -> dict[str, float]:
    """Compute all figures of a round.

    Args:
        r: The round as the server sees it.
        served: The model that is evaluated.
        counts: The samples of each client and class, [C, classes].
        federation: Holds the test data.

    Returns:
        The figures that could be measured, by name.
    """
    with torch.no_grad():
        pieces = torch.split(r.deltas, r.net.layout.sizes, dim=1)
        squares = torch.stack([torch.linalg.vector_norm(p, dim=1, dtype=torch.float64) ** 2 for p in pieces], 1)
        x, y = probe(federation)
        groups = r.net.classes if federation.data.task.has_classes else 1
        lacks = counts == 0 if groups > 1 else torch.zeros_like(counts[:, :1], dtype=torch.bool)
        norms = class_norms(r.net, served, x, y, groups)
        view = DriftView(r.net, r.w, r.deltas, squares, lacks, x, y, norms)
        found = {m.name: m.of(view) for m in MEASURES}
    if 1 < groups <= LISTED:
        found |= {f"{PER_CLASS}{c}": norm for c, norm in enumerate(norms.tolist())}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def probe(federation: Federation) -> tuple[Tensor, Tensor]:
    """Return the first test samples of every class, sorted by class; without classes all are in one."""
    y = federation.data.test_y
    if not federation.data.task.has_classes:
        y = torch.zeros(len(y), dtype=torch.int64, device=y.device)
    order = torch.argsort(y, stable=True)
    size = torch.bincount(y, minlength=federation.classes)
    place = torch.arange(len(y), device=y.device) - (size.cumsum(0) - size)[y[order]]
    picked = order[place < SAMPLES]
    return federation.inputs(federation.data.test_x[picked]), y[picked]


def per_class(values: Tensor, y: Tensor, classes: int) -> Tensor:
    """Average samples' rows within every class, in fp64; NaN for a class without samples."""
    member = (torch.arange(classes, device=y.device)[:, None] == y).double()
    return (member / member.sum(1, keepdim=True)) @ values.double()


# ----------------------------------------------------------------------------------------- measures of the updates
def cosine(v: DriftView) -> float:
    """mean over i < j of <delta_i, delta_j> / (|delta_i| |delta_j|), from the sum of the unit vectors."""
    moved = v.lengths > 0
    many = int(moved.sum())
    if many < 2:
        return math.nan
    inverse = torch.where(moved, 1 / v.lengths, 0.0).to(v.deltas.dtype)
    whole = float(torch.linalg.vector_norm(inverse @ v.deltas, dtype=torch.float64)) ** 2
    return (whole - many) / (many * (many - 1))


def norm_ratio(v: DriftView) -> float:
    """d = sum_i |delta_i| / |sum_i delta_i|."""
    whole = float(torch.linalg.vector_norm(v.deltas.sum(0), dtype=torch.float64))
    return float(v.lengths.sum()) / whole if whole else math.nan


def distance(v: DriftView) -> float:
    """mean_i |delta_i| / |w|."""
    size = float(torch.linalg.vector_norm(v.w, dtype=torch.float64))
    return float(v.lengths.mean()) / size if size else math.nan


def contraction(v: DriftView) -> float:
    """mean_i (1 + cos^2 theta_i) / 2 with cos^2 theta_i = |head of delta_i|^2 / |delta_i|^2."""
    moved = v.lengths > 0
    share = v.parameters(v.net.layout.head)[moved] / v.lengths[moved] ** 2
    return float((1 + share).mean() / 2)


def discrepancy(v: DriftView) -> float:
    """mean over blocks b of sqrt(sum_i |delta_ib - mean_j delta_jb|^2 / sum_i |delta_ib|^2)."""
    mean = v.deltas.mean(0)
    apart = [
        torch.linalg.vector_norm(p - m, dtype=torch.float64) ** 2
        for p, m in zip(
            torch.split(v.deltas, v.net.layout.sizes, dim=1), torch.split(mean, v.net.layout.sizes), strict=True
        )
    ]
    shares = []
    for block in v.net.layout.units["layer"]:
        whole = v.parameters(block).sum()
        if whole > 0:
            own = sum((apart[v.net.layout.names.index(n)] for n in block), torch.zeros_like(whole))
            shares.append(float((own / whole).sqrt()))
    return sum(shares) / len(shares) if shares else math.nan


# ----------------------------------------------------------------------------------------- measures of the models
def neuron_drift(v: DriftView) -> float:
    """mean over clients i and classes c they lack of sum_m (h_cm - h^i_cm) / sum_m h_cm, m bound to c.

    h_cm is the mean activation of a hidden neuron on a class in the global model, h^i in the local one; a neuron is
    bound to the class on which it is most active.
    """
    before = activations(v, v.w, torch.ones_like(v.y, dtype=torch.bool))
    known = before.nan_to_num(-1.0)  # a class without test samples binds nothing
    classes = torch.arange(len(before), device=before.device)[:, None]
    bound = (known.argmax(0) == classes) & (known > 0)
    whole = torch.where(bound, before, 0.0).sum(1)
    falls = []
    for delta, lacks in zip(v.deltas, v.lacks, strict=True):
        some = lacks & (whole > 0)
        seen = some[v.y]
        if bool(seen.any()):
            gone = torch.where(bound, before - activations(v, v.w + delta, seen), 0.0).sum(1)
            falls.append((gone / whole)[some])
    return float(torch.cat(falls).mean()) if falls else math.nan


def activations(v: DriftView, w: Tensor, seen: Tensor) -> Tensor:
    """Average the activations of hidden neurons over the samples ``seen`` of each class, [classes, neurons].

    Without hidden layers, these are the head's.
    """
    layers = v.net.layout.layers
    hidden = layers[-1].first if len(layers) > 1 else v.net.layout.neurons
    return per_class(v.net.neurons(w, v.x[seen])[:, :hidden], v.y[seen], len(v.norms))


def class_norms(net: Net, w: Tensor, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Average the norm of a model's features over every class, [classes].

    Args:
        net: The network.
        w: The model.
        x: Samples.
        y: Their classes.
        classes: The number of classes.

    Returns:
        The means; NaN for a class without samples.
    """
    return per_class(torch.linalg.vector_norm(net(w, x).features.flatten(1), dim=1), y, classes)


def feature_norm_spread(v: DriftView) -> float:
    """std over classes / mean over classes of the class feature norms."""
    norms = v.norms[~v.norms.isnan()]
    mean = float(norms.mean())
    return float(norms.std(correction=0)) / mean if mean else math.nan


MEASURES = (
    DriftMeasure(
        "cosine",
        "Agreement of updates",
        "Mean cosine similarity of two clients' updates: 1 when all pull the same way, 0 when they are orthogonal, "
        "below 0 when they pull against each other.",
        cosine,
    ),
    DriftMeasure(
        "norm_ratio",
        "Norm ratio d",
        "Summed lengths of the clients' updates over the length of their sum (FedMRUR's d_t): 1 when nothing cancels; "
        "averaging leaves 1/d of the updates' length.",
        norm_ratio,
    ),
    DriftMeasure(
        "distance",
        "Distance local to global",
        "Mean distance of a client's model, after its local training, to the global model it started from, as a share "
        "of the global model's length.",
        distance,
    ),
    DriftMeasure(
        "contraction",
        "Discrepancy contraction",
        "FedBug's estimate of how much of the clients' discrepancy a round leaves, (1 + cos²θ)/2 with θ the angle of "
        "an update to the classifier's axes: lower is better, 1/2 when only the layers below the classifier move.",
        contraction,
    ),
    DriftMeasure(
        "discrepancy",
        "Disagreement per layer",
        "The share of a layer's movement on which the clients disagree, as the mean over layers: 0 when all clients "
        "move it alike, 1 when their movements cancel.",
        discrepancy,
    ),
    DriftMeasure(
        "neuron_drift",
        "Neuron drift",
        "How much of the activation of a class's own neurons local training at clients without that class removes "
        "(FedNLR): 0 is none, 1 is all, below 0 they grew.",
        neuron_drift,
    ),
    DriftMeasure(
        "feature_norm_spread",
        "Spread of feature norms",
        "How much the classes' mean feature norms differ in the global model (FNR-FL): standard deviation over mean, "
        "high when some classes have much larger features than others.",
        feature_norm_spread,
    ),
)

"""CCVR: refit the head after training, to Gaussians that describe all clients' features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import Client, Part, Round, Tensors

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net

OWN = 0xCC  # keeps this part's keys apart from those of other parts
EPS = torch.finfo(torch.float64).eps
LARGEST = torch.finfo(torch.float32).max  # largest feature
MOST = 2**48  # largest number of samples of a client


@dataclass(frozen=True)
class Ccvr(Part):
    """Classifier calibration with virtual representations (Alg. 1 of the paper). Skewed clients bias the head more than
    the layers below it. After training, all clients run the served model over their data and upload, for every class c,
    the number of samples, the sum of their features z and the sum of z z^T. The server adds these up to n_c, a_c and
    B_c:

        mu_c    = a_c / n_c
        Sigma_c = (B_c - n_c * mu_c mu_c^T) / (n_c - 1)
        z       ~ N(mu_c, Sigma_c),   M_c = features * classes * n_c / sum n  of them
        head    = argmin mean cross-entropy(head(z), c),   ``steps`` steps from the trained head

    Computed from raw sums, mean and covariance are those of the pooled features, however the samples are split.
    Features are drawn with the symmetric root of Sigma_c, which exists even where Sigma_c is singular and has no
    Cholesky factor. Eigenvalues that are rounding noise count as zero. The refit uses Nesterov's method over all
    virtual features at once, with steps of length stride/L, which are sure to lower the convex loss: L is half the
    largest eigenvalue of mean z z^T.

    Only the served model has the new head. Training continues with the old one, and the new head is served only until
    the next round changes the layers below it. The paper's power transform (Tukey) is left out, because the head would
    then read numbers other than the network's features.
    """

    name = "ccvr"
    paper = "Luo et al. 2021, No Fear of Heterogeneity: Classifier Calibration for Federated Learning with Non-IID Data"
    group = "baseline"
    summary = "Refits the head to virtual features"
    sends: ClassVar[dict[str, str]] = {
        "count": "samples per class",
        "sum": "sum of features per class",
        "squares": "sum of products of features per class",
    }
    server_reads = "update"
    follows: ClassVar[dict[str, str]] = {"serve": "it refits the head of the model that is served"}

    features: int = param(500, "virtual features per class, averaged over classes", low=1, search="its cost decides")
    steps: int = param(100, "steps of the refit; 0 is FedAvg", low=0, search=(10, 1000, "log"))
    stride: float = param(
        1.0,
        "length of a step; 1 is the longest that is sure to descend",
        above=0,
        high=1,
        search="1 is sure to descend",
    )
    every: int = param(
        0, "refit every N rounds and after the last; 0: only after the last", low=0, search="its cost decides"
    )

    @property
    def needs(self) -> tuple[str, ...]:
        return ("head", "classes")

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if federation.weight is not None:
            raise HoldfastError("ccvr refits the head without weights: leave out class_weights and pos_weight, or ccvr")

    def due(self, round: int, rounds: int) -> bool:
        return round == rounds or (self.every > 0 and round % self.every == 0)

    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {"shift": torch.zeros_like(w)}

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {"shift": torch.zeros_like(s["shift"])}

    def survey(self, c: Client) -> Tensors:
        classes = torch.arange(c.net.classes, device=c.w0.device)
        totals: list[Tensor] = []
        for batch in c.samples():
            z = c.net(c.w0, batch.x).features.to(torch.float64)
            z = torch.where(batch.mask[:, None], z, 0.0)
            member = ((batch.y[:, None] == classes) & batch.mask[:, None]).to(torch.float64)
            squares = torch.stack([upper((z * m[:, None]).T @ z) for m in member.unbind(1)])
            sums = [member.sum(0), member.T @ z, squares]
            totals = [a + b for a, b in zip(totals, sums, strict=True)] if totals else sums
        return {"count": totals[0], "sum": totals[1], "squares": totals[2]}

    def possible(self, uploads: Tensors) -> Tensor:
        """Require whole numbers of samples, and sums that this many finite features can add up to."""
        count = uploads["count"]
        whole = ((count >= 0) & (count <= MOST) & (count == count.round())).all(1)
        sums = (uploads["sum"].abs().amax(2) <= count * LARGEST).all(1)
        squares = (uploads["squares"].abs().amax(2) <= count * LARGEST**2).all(1)
        return whole & sums & squares & (count.sum(1) > 0)

    def digest(self, s: Tensors, r: Round) -> Tensors:
        layout, pieces = r.net.layout, r.net.layout.split(r.w)
        names = [name for name in layout.names if name in layout.head]  # the weight, and the bias if there is one
        head = torch.cat([pieces[name].reshape(r.net.classes, -1) for name in names], 1).to(torch.float64)
        z, y = virtual(r.uploads, self.features, rng.key(r.key(), OWN))
        inputs = torch.cat([z if pieces[name].dim() == 2 else torch.ones_like(z[:, :1]) for name in names], 1)
        change = refit(head, inputs, y, self.steps, self.stride) - head
        widths = [pieces[name][0].numel() for name in names]
        moved = dict(zip(names, torch.split(change, widths, 1), strict=True))
        shift = layout.join({name: moved.get(name, torch.zeros_like(p)).to(r.w.dtype) for name, p in pieces.items()})
        return {"shift": shift}

    def serve(self, s: Tensors, w: Tensor) -> Tensor:
        return w + s["shift"]


def upper(square: Tensor) -> Tensor:
    """Return the entries on and above the diagonal, which determine a symmetric matrix."""
    rows, columns = torch.triu_indices(*square.shape, device=square.device)
    return square[rows, columns]


def gaussian(count: Tensor, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate the Gaussian of a class from raw sums.

    Args:
        count: The number of samples.
        total: The sum of their features, [d].
        squares: The sum of z z^T, as ``upper`` gives it.

    Returns:
        The mean, and the symmetric root of the unbiased covariance.
    """
    d = len(total)
    rows, columns = torch.triu_indices(d, d, device=total.device)
    raw = total.new_zeros(d, d)
    raw[rows, columns] = raw[columns, rows] = squares
    mean = total / count
    covariance = (raw - count * torch.outer(mean, mean)) / (count - 1).clamp(min=1)
    values, vectors = torch.linalg.eigh(covariance)
    noise = max(EPS**0.5 * float(values[-1]), 1000 * EPS * float((raw.diagonal() / count).max()))
    root = torch.where(values > noise, values, 0.0).sqrt()
    return mean, (vectors * root) @ vectors.T


def virtual(sums: Tensors, features: int, key: Tensor) -> tuple[Tensor, Tensor]:
    """Draw virtual features from the Gaussians of all classes, in proportion to the classes' samples.

    Args:
        sums: ``count``, ``sum`` and ``squares`` of every class.
        features: Features per class, averaged over classes.
        key: The source of randomness.

    Returns:
        The features and their classes.
    """
    count = sums["count"]
    z, y = [], []
    for c in count.nonzero().flatten().tolist():
        mean, root = gaussian(count[c], sums["sum"][c], sums["squares"][c])
        number = max(1, round(features * len(count) * float(count[c] / count.sum())))
        z.append(mean + rng.normal(rng.key(key, c), (number, len(mean)), torch.float64) @ root)
        y.append(torch.full((number,), c, device=count.device))
    return torch.cat(z), torch.cat(y)


def refit(head: Tensor, z: Tensor, y: Tensor, steps: int, stride: float) -> Tensor:
    """Minimise the mean cross-entropy over all inputs by Nesterov's method.

    Args:
        head: The head to start from, [classes, inputs].
        z: The inputs.
        y: Their classes.
        steps: The number of steps.
        stride: The length of a step, as a fraction of the longest that is sure to descend.

    Returns:
        The new head.
    """
    largest = torch.linalg.eigvalsh(z.T @ z / len(z))[-1].clamp(min=torch.finfo(z.dtype).tiny)
    size = stride / (largest / 2)
    truth = (y[:, None] == torch.arange(len(head), device=y.device)).to(z.dtype)
    ahead = head
    for k in range(steps):
        error = torch.softmax(z @ ahead.T, 1) - truth
        new = ahead - size * (error.T @ z) / len(z)
        head, ahead = new, new + k / (k + 3) * (new - head)
    return head

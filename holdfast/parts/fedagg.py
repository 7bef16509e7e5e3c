"""FedAgg: choose a learning rate per client and local epoch that keeps clients near the cohort's mean path."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.method.part import TOTAL, Client, Part, Round, Tensors

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net


@dataclass(frozen=True)
class FedAgg(Part):
    """Mean-field adaptive learning rates. The rates eta[l] of a client's L local epochs minimise

        sum_l alpha * eta[l]^2 + (1 - alpha) * ||w[l] - phi2[l]||^2,    w[l+1] = w[l] - eta[l] * phi1[l]

    where phi1[l] and phi2[l] are the cohort's mean gradient and mean model at epoch l. The paper's Theorem 1 is
    implicit. Written out, it is a linear system, with c = (1-alpha)/alpha and G[l,r] = <phi1[l], phi1[r]>:

        (I + c*A) eta = c*b,    A[l,r] = (L - max(l,r)) * G[l,r],    b[l] = <phi1[l], sum_{k>l} (w - phi2[k])>

    ``feedback``, the default, works in a real federation: phi1 is the last round's cohort mean of each epoch's summed
    gradients, and phi2[l] = w0 - lr * sum_{p<l} phi1[p] is the path at the nominal rate. At the start of each epoch
    the client solves the rest of the system at its own model: a client behind the cohort gets a larger rate, a client
    ahead of it a smaller one. The first round uses ``lr``. L more vectors travel in each direction.

    ``aggregated`` moves clients along the paper's own equation (5, 7 and 11): a step is not along the client's gradient
    but along the last round's phi1[l], divided evenly among the steps of epoch l. Rates are those of ``feedback``, and
    the clients' own gradients, taken on this path, make the next phi1. All clients then move alike.

    ``fixed_point`` is the loop of the paper's Alg. 1, restarted in every round from the rate ``start``, by default
    ``lr``: the cohort is asked for gradients repeatedly, until either of the mean-field terms changes by no more than
    ``epsilon``. A sweep moves along the mean gradients of the path that it is on (Eq. 7). With ``along=previous`` it
    moves along the phi1 of the sweep before, which is Eq. 11 as printed. Run to convergence, both give the rate zero:
    all clients move along the same phi1, so their paths coincide with phi2, and the sweeps shrink the rates. Its
    gradients are those of the plain cross-entropy. For simulation only.

    With a local optimiser, the rate multiplies its steps rather than gradients: phi1[l] is then the sum of an epoch's
    steps, which is the distance covered divided by the rate. The other modes do not know these steps and are refused.

    The paper prints no bounds for the solution: that is ``min_rate=none, max_rate=none``. The default bounds are ours,
    since unbounded rates may grow until the run diverges.
    """

    name = "fedagg"
    paper = "Yuan and Wang 2023, FedAgg: Adaptive Federated Learning with Aggregated Gradients"
    group = "paper"
    summary = "Adapts each client's rate in every epoch"
    sends: ClassVar[dict[str, str]] = {"phi1": "summed gradients of every epoch"}
    server_reads = "update"
    linear: ClassVar[dict[str, str]] = {"phi1": TOTAL}

    alpha: float = param(
        0.1,
        "cost of a large rate relative to the distance from the mean path",
        above=0,
        below=1,
        search=(0.01, 0.9, "log"),
    )
    mode: str = param(
        "feedback",
        "where the mean-field terms come from; aggregated: steps follow them too",
        choices=("feedback", "aggregated", "fixed_point"),
    )
    min_rate: float | None = param(
        1e-3, "smallest rate; none: no bound", low=0, search="it only bounds the rate from below"
    )
    max_rate: float | None = param(0.5, "largest rate; none: no bound", above=0, below=1, search=(0.05, 0.9, "log"))
    epsilon: float = param(
        1e-3, "fixed_point: change at which the sweeps stop", above=0, search="it is the accuracy of the fixed point"
    )
    sweeps: int = param(
        10,
        "fixed_point: maximum number of sweeps in a round",
        low=1,
        search="it only limits the search for the fixed point",
    )
    along: str = param(
        "current",
        "fixed_point: whose phi1 a sweep moves along, its own or the last one's",
        choices=("current", "previous"),
    )
    start: float | None = param(
        None,
        "fixed_point: the rate of the first path; none: lr",
        above=0,
        below=1,
        search="by default it is lr, which is searched",
    )

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if self.start is not None and self.mode != "fixed_point":
            raise HoldfastError(
                f"fedagg: start is the first rate of mode=fixed_point, and mode={self.mode} starts from lr; "
                "leave start out, or use mode=fixed_point"
            )
        low, high = self.bounds
        if not low <= config.lr <= high:
            raise HoldfastError(
                f"fedagg: the nominal rate lr={config.lr:g} is outside [min_rate, max_rate] = [{low:g}, {high:g}]; "
                "change lr, or widen the range"
            )
        optimiser = method.single("optimise")
        if optimiser is not None and self.mode != "feedback":
            raise HoldfastError(
                f"fedagg: mode={self.mode} derives its rates from plain gradients, not from the steps of "
                f"{optimiser.name}; use mode=feedback, or leave {optimiser.name} out"
            )
        if optimiser is not None and not low > 0:
            raise HoldfastError(
                f"fedagg: min_rate must be above 0 with {optimiser.name}, whose steps cannot be seen at rate 0; "
                "raise min_rate"
            )
        rescales = method.filling("rate")
        if rescales and self.mode == "aggregated":
            raise HoldfastError(
                f"fedagg: mode=aggregated moves all clients alike, which leaves no room for the rates of "
                f"{rescales[0].name}; use mode=feedback, or leave {rescales[0].name} out"
            )
        fewest, most = config.epoch_range
        if fewest < most:
            raise HoldfastError(
                f"fedagg finds a rate for every epoch, so clients must train equally many, not {config.epochs}: "
                f"use --epochs {most}"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest rate."""
        low, high = self.min_rate, self.max_rate
        return -math.inf if low is None else low, math.inf if high is None else high

    @property
    def unused(self) -> tuple[str, ...]:
        return ("end",) if self.asks else ("consult",)

    @property
    def asks(self) -> bool:
        """Whether the mean-field terms come from visits to the cohort, rather than from the last round."""
        return self.mode == "fixed_point"

    # -- feedback and aggregated: the last round's gradients are broadcast ---------------------------------
    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        return dict(s)  # nothing before the first round

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        return {} if self.asks else {"phi1": r.total(r.uploads["phi1"]) / r.count}

    # -- fixed_point: the cohort is asked for gradients before the round ----------------------------------
    def consult(self, w: Tensor, lr: Tensor, epochs: int, visit: Callable[[Tensor], Tensor]) -> Tensors:
        eta = (lr if self.start is None else torch.full_like(lr, self.start)).expand(epochs)
        path, field = walk(w, eta, visit)
        for _ in range(self.sweeps):
            eta = solve(field, w - path[1:], self.alpha, 0)
            new_path, new_field = walk(w, eta, visit, field if self.along == "previous" else None)
            moved = torch.linalg.vector_norm(new_path - path, dim=1).sum()
            turned = torch.linalg.vector_norm(new_field - field, dim=1).sum()
            path, field = new_path, new_field
            if moved <= self.epsilon or turned <= self.epsilon:
                break
        return {"eta": eta}

    # -- at the client ------------------------------------------------------------------------------------
    def begin(self, c: Client) -> Tensors:
        scratch = {"eta": c.lr}
        if not self.asks:
            scratch |= {"sum": c.zeros(), "phi1": c.w0.new_zeros(c.epochs, len(c.w0))}
            scratch |= {"start": c.w0} if c.optimised else {}
        return scratch

    def epoch(self, c: Client, w: Tensor) -> Tensors:
        if self.asks:
            return {"eta": self._clip(c.message["eta"][c.epoch])}
        done = self._with_sum(c, w, c.epoch - 1)
        eta = c.lr
        if "phi1" in c.message:
            eta = self._clip(tail_rate(c.message["phi1"], w - c.w0, c.lr, self.alpha, c.epoch))
        return {"eta": eta, "sum": torch.zeros_like(w), "phi1": done} | ({"start": w} if c.optimised else {})

    def lr(self, c: Client) -> Tensor:
        return c.local["eta"]

    def direction(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        if self.asks:
            return g, {}
        seen = g if c.rate is None else c.rate * g
        if self.mode == "aggregated" and "phi1" in c.message:
            g = c.message["phi1"][c.epoch] / c.S.to(g.dtype)
        return g, c.local | {"sum": c.local["sum"] + seen}

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        if self.asks:
            return {}, {}
        return {"phi1": self._with_sum(c, w, torch.tensor(c.epochs - 1, device=w.device))}, {}

    def _with_sum(self, c: Client, w: Tensor, epoch: Tensor) -> Tensor:
        """Return the epochs' sums, with the sum of the epoch that just ended, at the model ``w``, in its row."""
        row = torch.arange(c.epochs, device=c.w0.device)[:, None] == epoch
        sum = (c.local["start"] - w) / c.local["eta"] if c.optimised else c.local["sum"]
        return torch.where(row, sum, c.local["phi1"])

    def _clip(self, eta: Tensor) -> Tensor:
        return eta.clamp(*self.bounds)


def system(phi1: Tensor) -> Tensor:
    """Return A[l,r] = (L - max(l,r)) * <phi1[l], phi1[r]>, which is positive semidefinite."""
    L = len(phi1)
    epoch = torch.arange(L, device=phi1.device)
    return (L - torch.maximum(epoch[:, None], epoch)).to(phi1.dtype) * (phi1 @ phi1.T)


def solve_from(A: Tensor, b: Tensor, alpha: float, start: Tensor | int) -> Tensor:
    """Solve (I + c*A) eta = c*b for the rates of the later epochs.

    Args:
        A: The matrix of all epochs, [L, L].
        b: The right-hand side, [L].
        alpha: The parameter of that name.
        start: The first epoch to solve for.

    Returns:
        The rates, [L]; zero before ``start``.
    """
    c = (1 - alpha) / alpha
    rest = torch.arange(len(b), device=b.device) >= start
    A = torch.where(rest[:, None] & rest, A, 0.0)
    eye = torch.eye(len(b), dtype=b.dtype, device=b.device)
    eta: Tensor = torch.linalg.solve(eye + c * A, c * torch.where(rest, b, 0.0))
    return eta


def solve(phi1: Tensor, ahead: Tensor, alpha: float, start: Tensor | int) -> Tensor:
    """Compute a client's rates.

    Args:
        phi1: The cohort's mean gradients, [L, P].
        ahead: The client's model minus phi2[k+1] in row k, [L, P].
        alpha: The parameter of that name.
        start: The first epoch to solve for.

    Returns:
        The rates, [L]; zero before ``start``.
    """
    later = ahead.flip(0).cumsum(0).flip(0)  # [l] = sum over k > l
    return solve_from(system(phi1), (phi1 * later).sum(1), alpha, start)


def tail_rate(phi1: Tensor, delta: Tensor, lr: Tensor, alpha: float, epoch: Tensor) -> Tensor:
    """Compute the rate of one epoch from the rest of the system, at the client's own model.

    With phi2 on the nominal path, b[l] = (L-l) * <phi1[l], delta> + lr * sum_r A[l,r], which avoids subtracting large
    numbers.

    Args:
        phi1: The cohort's mean gradients, [L, P].
        delta: The client's model minus w0.
        lr: The nominal rate.
        alpha: The parameter of that name.
        epoch: The epoch, from 0.

    Returns:
        The rate, a number.
    """
    A = system(phi1)
    left = (len(phi1) - torch.arange(len(phi1), device=phi1.device)).to(phi1.dtype)
    b = left * (phi1 @ delta) + lr * A.sum(1)
    return solve_from(A, b, alpha, epoch)[epoch]


def walk(
    w: Tensor, eta: Tensor, visit: Callable[[Tensor], Tensor], along: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Follow the common path at given rates.

    Args:
        w: The global model.
        eta: The rates, [L].
        visit: Returns every client's full gradient at a model.
        along: The directions, [L, P]; by default the mean gradients at the points of the path itself.

    Returns:
        The path w[0..L], and the cohort's mean gradient at each of its first L points.
    """
    path, field = [w], []
    for epoch, rate in enumerate(eta):
        field.append(visit(path[-1]).mean(0))
        path.append(path[-1] - rate * (field[-1] if along is None else along[epoch]))
    return torch.stack(path), torch.stack(field)

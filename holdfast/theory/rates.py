"""FedAgg's Theorem 1 and Alg. 1: the rates as a linear system, by brute force, and as a fixed point."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.parts.fedagg import FedAgg, solve, system, walk
from holdfast.theory import feedback

ALPHA = 0.1
C = (1 - ALPHA) / ALPHA


# ------------------------------------------------------------------------------------------------ Theorem 1
class RateProblem(NamedTuple):
    """What a client's rates are computed from: phi1[0..L-1], phi2[0..L] and its model."""

    phi1: Tensor
    phi2: Tensor
    w: Tensor


def problems(number: int = 80, size: int = 12, seed: int = 0) -> list[RateProblem]:
    """Return random problems with L = 1..8 epochs, with the client off the mean path.

    Args:
        number: How many.
        size: The number of parameters.
        seed: The seed.

    Returns:
        The problems.
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    found = []
    for i in range(number):
        phi1, w0 = normal(1 + i % 8, size), normal(size)
        steps = torch.cat([torch.zeros(1, size, dtype=torch.float64), 0.1 * phi1.cumsum(0)])
        found.append(RateProblem(phi1, w0 - steps, w0 + 0.3 * normal(size)))
    return found


def rates(p: RateProblem) -> Tensor:
    """Return the library's solution."""
    return solve(p.phi1, p.w - p.phi2[1:], ALPHA, 0)


def path(p: RateProblem, eta: Tensor) -> Tensor:
    """Return w[0..L] (Eq. 11)."""
    return torch.cat([p.w[None], p.w - (eta[:, None] * p.phi1).cumsum(0)])


def objective(p: RateProblem, eta: Tensor) -> Tensor:
    """Return the objective of Eq. 10 for one round."""
    return ALPHA * (eta**2).sum() + (1 - ALPHA) * ((path(p, eta) - p.phi2) ** 2).sum()


def minimised(p: RateProblem) -> Tensor:
    """Return the minimiser of Eq. 10 by brute force: L-BFGS with autograd's gradients, from zero."""
    eta = torch.zeros(len(p.phi1), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [eta], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        search.zero_grad()
        value = objective(p, eta)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return eta.detach()


@cache
def brute_force() -> Tensor:
    """Return the minimisers of all random problems, one after the other."""
    return torch.cat([minimised(p) for p in problems()])


def theorem1(p: RateProblem, eta: Tensor) -> Tensor:
    """Return the right side of Eq. 12, which has the rates on both sides."""
    L, w = len(eta), path(p, eta)
    sides = []
    for epoch in range(L):
        later = sum(((L - r) * eta[r] * p.phi1[r] for r in range(epoch, L)), torch.zeros_like(p.w))
        sides.append(C * p.phi1[epoch] @ ((L - epoch) * w[epoch] - later - p.phi2[epoch + 1 :].sum(0)))
    return torch.stack(sides)


def last_rate(p: RateProblem) -> Tensor:
    """Return the rate of the last epoch for L = 1, by Eq. 23."""
    phi = p.phi1[-1]
    return C * (phi @ (p.w - p.phi2[-1])) / (1 + C * (phi @ phi))


def least_eigenvalue(phi1: Tensor) -> float:
    """Return the least eigenvalue of A as a share of the largest."""
    values = torch.linalg.eigvalsh(system(phi1))
    return float(values[0] / values[-1])


def fields(number: int) -> list[Tensor]:
    """Return random phi1 of 2 to 10 epochs of three kinds in turn: any, in two directions only, almost parallel."""
    rng = torch.Generator().manual_seed(1)
    found = []
    for i in range(number):
        phi1 = torch.randn(2 + i // 3 % 9, 2 if i % 3 == 1 else 20, generator=rng, dtype=torch.float64)
        found.append(phi1[:1] + 1e-6 * phi1 if i % 3 == 2 else phi1)
    return found


# ------------------------------------------------------------------------------------------------ Algorithm 1
class Sweeps(NamedTuple):
    """What the sweeps of Alg. 1 do to the rates."""

    rates: Tensor  # [sweep + 1, L]
    error: float  # of (I + cA)^-1 cA eta as a description of a sweep
    factor: float  # the largest factor of the last sweep


@cache
def fixed_point(sweeps: int = 1000) -> Sweeps:
    """Run Alg. 1 of the paper on the small federation, without its early stop."""
    w = torch.zeros(feedback.CLASSES * (feedback.INPUTS + 1), dtype=torch.float64)
    eta = torch.full((feedback.EPOCHS,), feedback.LR, dtype=torch.float64)
    found, error = [eta], 0.0
    A = torch.empty(0)
    for _ in range(sweeps):
        way, field = walk(w, eta, feedback.visit)
        A = C * system(field)
        contracted = torch.linalg.solve(torch.eye(len(A), dtype=A.dtype) + A, A @ eta)
        eta = solve(field, w - way[1:], ALPHA, 0)
        error = max(error, float((eta - contracted).abs().max()))
        found.append(eta)
    largest = float(torch.linalg.eigvalsh(A)[-1])
    return Sweeps(torch.stack(found), error, largest / (1 + largest))


@cache
def stopped(epsilon: float = 1e-3) -> Tensor:
    """Return the rates of the library's Alg. 1 with the paper's epsilon and no limit on the sweeps."""
    w = torch.zeros(feedback.CLASSES * (feedback.INPUTS + 1), dtype=torch.float64)
    part = FedAgg(mode="fixed_point", epsilon=epsilon, sweeps=10**6)
    return part.consult(w, torch.tensor(feedback.LR, dtype=torch.float64), feedback.EPOCHS, feedback.visit)["eta"]

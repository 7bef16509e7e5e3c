"""What a run under differential privacy reveals, in epsilon, by Google's package dp-accounting.

With ``--participation`` every client is drawn by itself (Poisson sampling), and two federations are neighbours if one
has a client more. With ``--cohort`` the number of clients is fixed, and two federations are neighbours if one client is
replaced; that counts twice as much, and a smaller bound of two is taken: from sampling without replacement, in Renyi
divergences, or from no sampling at all, in privacy losses.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation
from holdfast.data.normalisation import FEDERATED
from holdfast.method.config import Config
from holdfast.method.method import Method

INTERVAL, COARSE = (
    1e-3,
    5e-3,
)  # of privacy losses: results are upper bounds for any; the coarse one is five times faster
LEAST_NOISE = 0.2  # the smallest multiplier that is looked for
TOLERANCE = 1e-3
ORDERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)  # of Renyi divergences: any give a bound
FIXED, POISSON = "replace one client", "add or remove one client"


@dataclass(frozen=True)
class PrivacyAccountant:
    """How epsilon follows from the number of rounds.

    Attributes:
        noise: The noise multiplier.
        delta: The probability with which epsilon need not hold.
        chance: The probability with which a client takes part in a round; None if the cohort has a fixed size.
        share: The share of all clients that a cohort of fixed size is drawn from; 1 if who is drawn is no secret.
    """

    noise: float
    delta: float
    chance: float | None
    share: float = 1.0

    @property
    def neighbours(self) -> str:
        """What two federations differ in that cannot be told apart."""
        return FIXED if self.chance is None else POISSON

    def epsilon(self, rounds: int) -> float:
        """Return what the models of this many rounds reveal about a client; infinity without noise."""
        if not self.noise:
            return math.inf
        return epsilon_of(self.noise, self.delta, self.chance, self.share, rounds)


def accountant(config: Config, method: Method, drawable: int | None = None) -> PrivacyAccountant | None:
    """Return the accountant of a run, or None if it is not private.

    Args:
        config: The run.
        method: Its method.
        drawable: The number of clients from which cohorts are drawn; None if it may change.

    Returns:
        The accountant.
    """
    part = method.private
    if part is None:
        return None
    package()
    noise: float = getattr(part, "noise") or 0.0  # noqa: B009 - parts that are private have it
    return _accountant(config, noise, drawable)


def _accountant(config: Config, noise: float, drawable: int | None) -> PrivacyAccountant:
    share = min(1.0, config.cohort_size / drawable) if drawable else 1.0
    return PrivacyAccountant(noise, config.delta, config.participation, share)


def package() -> Any:
    """Return the package dp-accounting."""
    if find_spec("dp_accounting") is None:
        raise HoldfastError("dp needs the package dp-accounting, which is not installed: pip install 'holdfast[dp]'")
    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of every order that it leaves out
    return import_module("dp_accounting")


@lru_cache(maxsize=4096)
def epsilon_of(noise: float, delta: float, chance: float | None, share: float, rounds: int) -> float:
    """Return epsilon.

    Args:
        noise: The noise multiplier.
        delta: The probability with which epsilon need not hold.
        chance: The probability with which a client takes part; None if the cohort has a fixed size.
        share: The share of all clients that is in a cohort of fixed size.
        rounds: The number of rounds.

    Returns:
        The smaller of the upper bounds that are known.
    """
    losses = _losses(noise, 1.0 if chance is None else chance, chance is None)
    found = [float(losses.self_compose(rounds).get_epsilon_for_delta(delta))]
    if chance is None and share < 1:
        found.append(float(_renyi(noise, share, rounds).get_epsilon(delta)))
    return min(found)


@lru_cache(maxsize=64)
def _losses(noise: float, chance: float, fixed: bool) -> Any:
    """Return the distribution of the privacy loss of one round."""
    relation = package().NeighboringRelation
    return package().pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise, value_discretization_interval=INTERVAL, sampling_prob=chance,
        neighboring_relation=relation.REPLACE_ONE if fixed else relation.ADD_OR_REMOVE_ONE,
    )  # fmt: skip


def _renyi(noise: float, share: float, rounds: int) -> Any:
    """Return the accountant of cohorts drawn without replacement."""
    return _renyi_accountant().compose(_without_replacement(noise, share), rounds)


def _renyi_accountant() -> Any:
    return package().rdp.RdpAccountant(ORDERS, package().NeighboringRelation.REPLACE_ONE)


def _without_replacement(noise: float, share: float) -> Any:
    """Return a round as an event; half the noise, since a client that is replaced moves the sum twice as far."""
    whole = 10**6
    return package().SampledWithoutReplacementDpEvent(
        whole, math.ceil(share * whole), package().GaussianDpEvent(noise / 2)
    )


def noise_for(config: Config, epsilon: float, drawable: int | None) -> float:
    """Return the smallest noise multiplier with which all rounds of a run stay within epsilon.

    Args:
        config: The run.
        epsilon: The bound.
        drawable: The number of clients from which cohorts are drawn; None if it may change.

    Returns:
        The multiplier.
    """
    dp, plan = package(), _accountant(config, LEAST_NOISE, drawable)
    if plan.epsilon(config.rounds) <= epsilon:
        return LEAST_NOISE
    relation = dp.NeighboringRelation.REPLACE_ONE if plan.chance is None else dp.NeighboringRelation.ADD_OR_REMOVE_ONE

    def calibrated(make_accountant: Any, make_round: Any) -> float:
        found = dp.calibrate_dp_mechanism(
            make_accountant, lambda z: dp.SelfComposedDpEvent(make_round(z), config.rounds), epsilon, config.delta,
            dp.LowerEndpointAndGuess(LEAST_NOISE, 1.0), tol=TOLERANCE,
        )  # fmt: skip
        return float(found)

    def losses(z: float) -> Any:
        event = dp.GaussianDpEvent(z)
        return event if plan.chance in (None, 1.0) else dp.PoissonSampledDpEvent(plan.chance, event)

    interval = COARSE if epsilon >= 1 else INTERVAL
    found = [calibrated(lambda: dp.pld.PLDAccountant(relation, interval), losses)]
    if plan.chance is None and plan.share < 1:
        found.append(calibrated(_renyi_accountant, lambda z: _without_replacement(z, plan.share)))
    return min(found)


def summary_of(found: PrivacyAccountant, rounds: int, config: Config, federation: Federation) -> dict[str, Any]:
    """Return what a run promises, for its summary.

    Args:
        found: The accountant of the run.
        rounds: The rounds that were played.
        config: The run.
        federation: The clients and their data.

    Returns:
        The figures, and what they do not cover.
    """
    reveals = found.epsilon(rounds)
    return {
        "epsilon": reveals if math.isfinite(reveals) else None,
        "delta": found.delta,
        "noise_multiplier": found.noise,
        "neighbours": found.neighbours,
        "not_covered": not_covered(config, federation),
    }


def not_covered(config: Config, federation: Federation) -> list[str]:
    """Return what a run computes from clients' data beside the models, without noise."""
    asked = {
        "the training loss and who took part, in history.jsonl": True,
        "the clients' numbers of samples and classes, in split.json": True,
        "scores on clients' own samples (--client-eval)": federation.client_test is not None,
        "validation scores, whose samples are the clients' own": federation.validation is not None
        and config.validation_from == "clients",
        "drift (--drift)": config.drift,
        "scores of fine-tuned copies (--personal)": config.personal > 0,
        "the mean and standard deviation of the inputs, from all clients' samples": federation.data.normalise
        == FEDERATED,
        "class weights, from all clients' labels": "balanced" in (config.class_weights, config.pos_weight),
        "noise and cohorts, which follow from the seed in a simulation": config.engine != "flower",
    }
    return [what for what, applies in asked.items() if applies]

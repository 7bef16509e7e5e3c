"""dp: what clients upload is clipped and hidden in noise, so that the model reveals little about any one client."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.params import param
from holdfast.core.tensors import PerPart
from holdfast.method.one_row import with_one_row
from holdfast.method.part import MEAN, Client, Part, Round, Sent, Tensors
from holdfast.parts._sent_vector import as_vector, from_vector

if TYPE_CHECKING:
    from holdfast.data.federation import Federation
    from holdfast.method.config import Config
    from holdfast.method.method import Method
    from holdfast.models.net import Net

CLIP, STD, WITHIN = "clip", "std", "within"
LOWERING = "it trades accuracy for privacy, which no score can weigh"


@dataclass(frozen=True)
class DP(Part):
    """Differential privacy of clients (Alg. 1 of McMahan et al. 2018). With v_i, all that client i sends, joined to one
    vector, z the noise multiplier and m the *expected* number of clients in a round:

        v_i   <-  v_i * min(1, C / ||v_i||)
        mean  =   (sum_i v_i + N(0, (z*C)^2)) / m

    The mean takes the place of the cohort in whatever the server computes, for deltas and uploads alike. One client
    changes the sum by C at most, whoever else takes part: every client counts once, and m does not depend on who was
    drawn. What is not finite adds nothing. ``noise`` is found from ``--epsilon``, or given as a number.

    ``where=server``: the server adds the noise, and clips what it receives once more. ``where=clients``: each client
    adds a share of the noise before it sends, so that no other machine sees a sum without noise. Shares are
    such that ``1 - missing`` of the cohort suffice; a round with fewer clients is refused.

    ``quantile`` adapts the clip (Andrew et al. 2021): each client also sends whether it was within the clip, b_i, and

        C  <-  C * exp(-step * (b - quantile)),    b = (sum_i (b_i - 1/2) + N(0, counts^2)) / m + 1/2

    so that about this share of clients is not shortened. Of the same privacy, the vectors then get more noise:
    (z^-2 - (2*counts)^-2)^(-1/2) in place of z.
    """

    name = "dp"
    paper = "McMahan et al. 2018, Learning Differentially Private Recurrent Language Models"
    group = "trust"
    summary = "Clips and adds noise; accounts for it"
    private = True
    uniform = True
    linear: ClassVar[dict[str, str]] = {WITHIN: MEAN}
    sends: ClassVar[dict[str, str]] = {WITHIN: "whether all of it was within the clip"}
    excludes: ClassVar[dict[str, str]] = {
        "freeze": "the noise of dp moves what freeze holds still; use requires_grad_(False) in the model"
    }
    follows: ClassVar[dict[str, str]] = {"send": "what it clips must be what leaves the client"}

    clip: float | None = param(
        1.0, "largest length of what a client sends; none: any, only without noise", above=0, search=(0.01, 10, "log")
    )
    noise: float | None = param(None, "noise multiplier z; none: found from --epsilon, else 1", low=0, search=LOWERING)
    quantile: float | None = param(
        None,
        "share of clients that the clip adapts to; none: a fixed clip",
        above=0,
        below=1,
        search="whether the clip adapts is a choice, and the usual share is a half",
    )
    step: float = param(0.2, "how fast the clip adapts", above=0, search="the usual value serves")
    counts: float | None = param(
        None, "noise on the number of clients within the clip; none: m/20", above=0, search=LOWERING
    )
    where: str = param("server", "who adds the noise", choices=("server", "clients"))
    missing: float = param(
        0.0,
        "share of a cohort that may fail, with where=clients",
        low=0,
        below=1,
        search="it follows from the machines",
    )
    expected: float | None = param(
        None, "m; none: as --cohort or --participation say", above=0, search="it only scales the update"
    )

    @property
    def sending(self) -> dict[str, str]:
        return {} if self.quantile is None else self.sends

    @property
    def unused(self) -> tuple[str, ...]:
        return ("absorb",) if self.quantile is None else ()

    # -- what the run decides -------------------------------------------------------------------------------
    def settled(self, config: Config) -> Part:
        """Return this part with its noise and the expected number of clients."""
        noise = (config.noise_multiplier or 1.0) if self.noise is None else self.noise
        chance = config.participation
        cohort = config.cohort_size if chance is None else chance * config.client_count
        return replace(self, noise=noise, expected=self.expected or cohort)

    def check(self, method: Method, config: Config, net: Net, federation: Federation) -> None:
        if self.clip is None and (self.noise or self.quantile):
            raise HoldfastError("dp: without a clip no noise hides a client: set clip, or noise=0")
        if net.carries and net.batchnorm == "average":
            raise HoldfastError(
                "dp does not cover the running statistics of BatchNorm, which clients would send: use --batchnorm "
                "local or frozen, or a model with GroupNorm"
            )
        if self.where == "clients" and config.participation is not None:
            raise HoldfastError(
                "dp(where=clients) needs cohorts of a fixed size, since every client adds a share of the noise: use "
                "--cohort in place of --participation, or where=server"
            )
        if method.filling("send")[-1].name != self.name:
            last = method.filling("send")[-1].name
            raise HoldfastError(f"dp must come after {last}: what it clips must be what leaves the client")
        small = [p.name for p in method.parts if type(p).encodes is not Part.encodes]
        if self.where == "clients" and small:
            raise HoldfastError(
                f"dp(where=clients) undoes what {small[0]} makes small, since its noise is everywhere: use where=server"
            )
        if config.stop_after is not None and config.validation_from == "clients":
            raise HoldfastError(
                "dp does not cover stop_after, which goes by data of the clients: use --validation-from pool"
            )
        self.refuse_few_counts()

    def refuse_few_counts(self) -> None:
        """Refuse noise on the numbers of clients that uses up all the privacy by itself."""
        z = float(self.noise or 0)
        if z and self.quantile is not None and 2 * self.count_noise <= z:
            raise HoldfastError(
                f"dp: noise {z:g} needs counts above {z / 2:g}, not {self.count_noise:g}: set counts, or raise the "
                "cohort"
            )

    @property
    def multiplier(self) -> float:
        """The noise multiplier of the vectors, which is larger than z if the numbers of clients are noisy as well."""
        z = float(self.noise or 0)
        if not z or self.quantile is None:
            return z
        return 1 / math.sqrt(1 / z**2 - 1 / (2 * self.count_noise) ** 2)

    @property
    def count_noise(self) -> float:
        """The standard deviation of the noise on the number of clients within the clip."""
        return 0.0 if not self.noise else self.counts or float(self.expected or 0) / 20

    # -- at the client --------------------------------------------------------------------------------------
    def init_server(self, w: Tensor, N: int) -> Tensors:
        return {CLIP: w.new_tensor(math.inf if self.clip is None else self.clip)}

    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        if self.where == "server" or not self.noise:
            return {CLIP: s[CLIP]}
        share = self.needed**-0.5
        return {CLIP: s[CLIP], STD: torch.stack([s[CLIP] * self.multiplier, w.new_tensor(self.count_noise)]) * share}

    def send(self, c: Client, sent: Sent) -> tuple[Sent, Tensors]:
        v = as_vector(sent.delta, sent.uploads)
        share = share_within(v, c.message[CLIP])
        v = v * share.to(v.dtype)
        within = (share >= 1).to(v.dtype)[None] - 0.5
        if STD in c.message:
            std, noise = c.message[STD], c.noise(torch.cat([v, within]))
            v, within = v + std[0] * noise[:-1], within + std[1] * noise[-1:]
        delta, uploads = from_vector(v, sent.delta, sent.uploads)
        return Sent(delta, uploads if self.quantile is None else uploads | {self.name: {WITHIN: within}}), {}

    # -- at the server --------------------------------------------------------------------------------------
    @property
    def needed(self) -> int:
        """How many clients' shares of the noise make up the whole."""
        return max(1, math.ceil((1 - self.missing) * round(self.expected or 1) - 1e-9))

    def admit(self, s: Tensors, r: Round, uploads: PerPart) -> tuple[Round, PerPart]:
        others = {part: tensors for part, tensors in uploads.items() if part != self.name}
        rows = as_vector(r.deltas, others)
        m, at_server = float(self.expected or len(rows)), self.where == "server"
        if at_server:
            rows = rows * share_within(rows, s[CLIP])[:, None].to(rows.dtype)
        elif self.noise and len(rows) < self.needed:
            raise HoldfastError(
                f"round {r.round}: {len(rows)} clients returned an update, but the noise of {self.needed} is needed; "
                "resume the run when they are back, or raise missing"
            )
        counted = uploads[self.name][WITHIN] if self.quantile is not None else rows.new_zeros(len(rows), 1)
        total = torch.cat([rows, counted], dim=1).sum(0)
        if at_server and self.noise:
            noise = r.noise(total)
            total = total + torch.cat([s[CLIP] * self.multiplier * noise[:-1], self.count_noise * noise[-1:]])
        delta, one = from_vector(total[None, :-1] / m, r.deltas, others)
        if self.quantile is not None:
            one[self.name] = {WITHIN: total[None, -1:] / m}
        return with_one_row(r, delta[0], m), one

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        within = r.mean(r.uploads[WITHIN])[0] + 0.5
        return {CLIP: s[CLIP] * torch.exp(-self.step * (within - (self.quantile or 0)))}


def share_within(v: Tensor, clip: Tensor) -> Tensor:
    """Return the factor that shortens a vector, or each of several rows, to the clip: 1 if it is short enough."""
    length = torch.linalg.vector_norm(v, dim=-1, dtype=torch.float64)
    share: Tensor = (clip / length.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1)
    return share

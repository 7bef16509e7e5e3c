"""FedGen: learn a generator of features from the clients' heads, and let every client train on its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core import rng
from holdfast.core.params import param
from holdfast.method.part import Batch, Client, Part, Round, Tensors
from holdfast.models.net import Out
from holdfast.parts._distillation import adam, adam_state, part_key
from holdfast.parts._generator import Generator, class_shares, diversity, labels


@dataclass(frozen=True)
class FedGen(Part):
    """Data-free distillation into a generator of features (Alg. 1 of the paper). With h_k the head of client k, n_k^y
    its samples of class y, and labels y drawn in proportion to sum_k n_k^y of the last cohort, the server minimises

        sum_k alpha_k^y * cross-entropy( h_k(G(z, y)), y )  +  diversity * L_dis,    alpha_k^y = n_k^y / sum_i n_i^y

    and broadcasts G with the model. A client with head h adds to its loss

        alpha * decay^(t-1) * [ cross-entropy( h(G(z, y)), y )  +  beta * KL( softmax h(G(z, y_b)) || softmax f(x_b) ) ]

    with labels y of which it may have no samples itself. The second term uses the client's own batch (x_b, y_b), with
    its first argument held fixed. It is not in the paper but in the authors' code, as are alpha = 10 and the decay. The
    noise comes from a key that the server broadcasts: all clients see the same features in the same step, whatever
    their ids. In the first round there is no generator and no penalty.
    """

    name = "fedgen"
    paper = "Zhu et al. 2021, Data-Free Knowledge Distillation for Heterogeneous Federated Learning"
    group = "baseline"
    summary = "Trains heads on generated features"
    sends: ClassVar[dict[str, str]] = {"counts": "samples per class"}

    alpha: float = param(1.0, "strength of the penalty; 0 is FedAvg", low=0, search=(0.1, 10, "log"), step_input=True)
    beta: float = param(
        0.0, "weight of the second term relative to the first", low=0, search="left at the paper's value"
    )
    decay: float = param(
        0.98,
        "factor on the strength after every round",
        above=0,
        high=1,
        search="left at the paper's value",
        step_input=True,
    )
    samples: int = param(32, "features that a client generates per step", low=1, search="its cost decides")
    steps: int = param(50, "steps of the generator per round", low=0, search="left at the paper's value")
    batch: int = param(32, "features per step of the generator", low=2, search="its cost decides")
    eta: float = param(
        3e-4, "learning rate of the generator's Adam", above=0, search="left at the paper's value", step_input=True
    )
    diversity: float = param(1.0, "weight of L_dis", low=0, search="left at the paper's value", step_input=True)
    noise: int = param(32, "length of z", low=1, search="it is the size of the generator")
    width: int = param(256, "hidden units of the generator", low=1, search="it is the size of the generator")

    # -- at the client ------------------------------------------------------------------------------------
    @property
    def needs(self) -> tuple[str, ...]:
        return ("head", "numbers", "classes")

    def penalty(self, c: Client, out: Out, batch: Batch) -> Tensor:
        if "theta" not in c.message:
            return torch.zeros_like(c.lr)
        k = rng.key(c.message["key"], c.k)
        y = labels(rng.key(k, 1), c.message["labels"], self.samples)
        loss = F.cross_entropy(self.generated_logits(c, out, rng.key(k, 2), y), y)
        if self.beta:
            target = torch.log_softmax(self.generated_logits(c, out, rng.key(k, 3), batch.y), 1).detach()
            mine = torch.log_softmax(out.logits, 1)
            loss = loss + self.beta * batch.mean((target.exp() * (target - mine)).sum(1))
        return self.alpha * self.decay ** (c.round - 1).to(loss.dtype) * loss

    def generated_logits(self, c: Client, out: Out, k: Tensor, y: Tensor) -> Tensor:
        """Apply the client's head to generated features.

        Args:
            c: The client.
            out: The local model's outputs, for its head and the shape of its features.
            k: The key of the noise.
            y: The labels to generate features for.

        Returns:
            The logits, [B, classes].
        """
        generator = self.generator(c.net.classes, out.features)
        z = rng.normal(k, (len(y), self.noise), out.features.dtype)
        return out.head(generator(c.message["theta"], z, y))

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"counts": c.counts.to(torch.int32)}, {}

    def possible(self, uploads: Tensors) -> Tensor:
        """Require numbers of samples that are not negative, and at least one sample."""
        return (uploads["counts"] >= 0).all(1) & (uploads["counts"] > 0).any(1)

    # -- at the server ------------------------------------------------------------------------------------
    def broadcast(self, s: Tensors, w: Tensor) -> Tensors:
        return {name: s[name] for name in ("theta", "labels", "key") if s}  # nothing before the first round

    def absorb(self, s: Tensors, r: Round) -> Tensors:
        counts, k = r.uploads["counts"].to(r.w.dtype), part_key(r.key(), self.name)
        blank = r.w.new_zeros(1, *r.net.shape)
        outs = [r.net(model, blank) for model in r.w + r.deltas]  # for their heads
        generator = self.generator(r.net.classes, outs[0].features)
        theta = s["theta"] if s else generator.start(rng.key(k, 0, 3), r.w.dtype)
        state = {name: s[name] for name in ("m", "v", "step")} if s else adam_state(theta)
        for step in range(self.steps):
            y = labels(rng.key(k, step, 1), counts.sum(0), self.batch)
            z = rng.normal(rng.key(k, step, 2), (self.batch, self.noise), r.w.dtype)
            loss = self.objective(generator, [out.head for out in outs], class_shares(counts)[:, y], z, y)
            theta, state = adam(theta, torch.func.grad(loss)(theta), state, self.eta)
        return {"theta": theta, "labels": counts.sum(0), "key": rng.key(k, 4)} | state

    def objective(
        self, generator: Generator, heads: list[Callable[[Tensor], Tensor]], share: Tensor, z: Tensor, y: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """Return what the generator minimises.

        Args:
            generator: The generator.
            heads: The cohort's heads.
            share: alpha of each client for the label of each feature vector, [C, B].
            z: The noise, [B, noise].
            y: The labels, [B].

        Returns:
            The loss as a function of the generator's parameters.
        """

        def loss(theta: Tensor) -> Tensor:
            features = generator(theta, z, y)
            losses = [
                alpha * F.cross_entropy(head(features), y, reduction="none")
                for head, alpha in zip(heads, share, strict=True)
            ]
            return torch.stack(losses).sum(0).mean() + self.diversity * diversity(z, features)

        return loss

    def generator(self, classes: int, features: Tensor) -> Generator:
        """Return the generator for features of this shape."""
        return Generator(self.noise, classes, self.width, features.shape[1])

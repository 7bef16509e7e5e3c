"""FedFTG: fine-tune the averaged model on generated samples on which it disagrees with the clients' models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.core.params import param
from holdfast.method.part import Client, Part, Round, Tensors
from holdfast.parts._distillation import adam, adam_state, gradient_from_logits, part_key
from holdfast.parts._generator import Generator, class_shares, diversity, labels, standardised


@dataclass(frozen=True)
class FedFTG(Part):
    """Data-free fine-tuning of the averaged model w (Alg. 1 of the paper). Clients upload the number of samples n_k^y
    that they have of every class y. The server draws labels in proportion to sum_k n_k^y and generates samples
    x = G(z, y) for them. Client k is weighted by its share of the class, alpha_k^y = n_k^y / sum_i n_i^y (Eq. 9):

        L_md  = sum_k alpha_k^y * KL( softmax f(x; w_k) || softmax f(x; w) )      the disagreement
        L_cls = sum_k alpha_k^y * cross-entropy( f(x; w_k), y )                   x looks like y to the clients
        L_dis = exp( -mean_ij d(x_i, x_j) * d(z_i, z_j) )                         different z give different x

        generator:  minimise -L_md + fidelity * L_cls + diversity * L_dis         hard samples (Eq. 8), Adam
        model:      minimise  L_md                                                gradient descent

    Each of ``iterations`` draws a batch (z, y), on which the generator takes ``generator_steps`` and the model
    ``model_steps``. The generator and its optimiser are kept from round to round. Our generator is a small dense
    network; ``docs/methods/fedftg.md`` lists the other differences.
    """

    name = "fedftg"
    paper = "Zhang et al. 2022, Fine-tuning Global Model via Data-Free Knowledge Distillation"
    group = "baseline"
    summary = "Fine-tunes on generated hard samples"
    sends: ClassVar[dict[str, str]] = {"counts": "samples per class"}

    iterations: int = param(10, "batches of labels and noise per round; 0 is FedAvg", low=0, search=(2, 50, "log"))
    generator_steps: int = param(1, "steps of the generator on each batch", low=0, search="left at the paper's value")
    model_steps: int = param(5, "steps of the model on each batch", low=0, search="left at the paper's value")
    batch: int = param(50, "samples generated at a time", low=2, search="its cost decides")
    eta: float = param(0.1, "learning rate of the model", above=0, search=(0.01, 1, "log"))
    generator_eta: float = param(
        0.01, "learning rate of the generator's Adam", above=0, search="left at the paper's value"
    )
    fidelity: float = param(1.0, "lambda_cls: weight of L_cls", low=0, search="left at the paper's value")
    diversity: float = param(1.0, "lambda_dis: weight of L_dis", low=0, search="left at the paper's value")
    noise: int = param(100, "length of z", low=1, search="it is the size of the generator")
    width: int = param(256, "hidden units of the generator", low=1, search="it is the size of the generator")

    @property
    def needs(self) -> tuple[str, ...]:
        return ("numbers", "classes")

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"counts": c.counts.to(torch.int32)}, {}

    def possible(self, uploads: Tensors) -> Tensor:
        """Require numbers of samples that are not negative, and at least one sample."""
        return (uploads["counts"] >= 0).all(1) & (uploads["counts"] > 0).any(1)

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        counts = r.uploads["counts"].to(w.dtype)
        clients, share, k = r.w + r.deltas, class_shares(counts), part_key(r.key(), self.name)
        theta, state = self.current(s, r, k)
        for i in range(self.iterations):
            y = labels(rng.key(k, i, 1), counts.sum(0), self.batch)
            z = rng.normal(rng.key(k, i, 2), (self.batch, self.noise), w.dtype)
            hard = torch.func.grad(self.objective(r, w, clients, share[:, y], z, y))
            for _ in range(self.generator_steps):
                theta, state = adam(theta, hard(theta), state, self.generator_eta)
            w = self.fine_tuned(r, w, clients, share[:, y], self.samples(r, theta, z, y))
        return w, {"theta": theta} | state

    def current(self, s: Tensors, r: Round, k: Tensor) -> tuple[Tensor, Tensors]:
        """Return the generator and its optimiser.

        Args:
            s: The part's state at the server.
            r: The round.
            k: The part's key.

        Returns:
            Parameters and Adam's state, from the last round or, in the first round, new ones.
        """
        if s:
            return s["theta"], {name: t for name, t in s.items() if name != "theta"}
        theta = self.generator(r).start(rng.key(k, 0, 3), r.w.dtype)
        return theta, adam_state(theta)

    def generator(self, r: Round) -> Generator:
        """Return the generator for inputs of the network."""
        return Generator(self.noise, r.net.classes, self.width, r.net.inputs)

    def samples(self, r: Round, theta: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Generate samples.

        Args:
            r: The round, for the shape of an input.
            theta: The generator's parameters.
            z: The noise, [B, noise].
            y: The labels, [B].

        Returns:
            G(z, y), in the shape and on the scale of normalised inputs.
        """
        return standardised(torch.tanh(self.generator(r)(theta, z, y)).reshape(len(y), *r.net.shape))

    def objective(
        self, r: Round, w: Tensor, clients: Tensor, share: Tensor, z: Tensor, y: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """Return what the generator minimises.

        Args:
            r: The round.
            w: The averaged model.
            clients: The cohort's models, [C, P].
            share: alpha of each client for the label of each sample, [C, B].
            z: The noise, [B, noise].
            y: The labels, [B].

        Returns:
            The loss as a function of the generator's parameters.
        """

        def loss(theta: Tensor) -> Tensor:
            x = self.samples(r, theta, z, y)
            student = torch.log_softmax(r.net(w, x).logits, 1)
            hard = true = torch.zeros_like(student[:, 0])
            for model, alpha in zip(clients, share, strict=True):
                teacher = torch.log_softmax(r.net(model, x).logits, 1)
                hard = hard + alpha * (teacher.exp() * (teacher - student)).sum(1)
                true = true - alpha * teacher.gather(1, y[:, None])[:, 0]
            return (self.fidelity * true - hard).mean() + self.diversity * diversity(z, x)

        return loss

    def fine_tuned(self, r: Round, w: Tensor, clients: Tensor, share: Tensor, x: Tensor) -> Tensor:
        """Take the model's steps on generated samples.

        Args:
            r: The round.
            w: The averaged model.
            clients: The cohort's models, [C, P].
            share: alpha of each client for the label of each sample, [C, B].
            x: The samples.

        Returns:
            The new model.
        """
        teachers = [torch.softmax(r.net(model, x).logits, 1) for model in clients]

        def gap(logits: Tensor) -> Tensor:
            p = torch.softmax(logits, 1)
            gaps = [alpha[:, None] * (p - q) for alpha, q in zip(share, teachers, strict=True)]
            return torch.stack(gaps).sum(0) / len(x)

        for _ in range(self.model_steps):
            w = w - self.eta * gradient_from_logits(r.net, w, x, gap)
        return w

"""FedFTG: a generator at the server finds samples that the averaged model gets wrong; the clients' models teach it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.core import rng
from holdfast.core.params import param
from holdfast.method.part import Client, Part, Round, Tensors
from holdfast.parts._distillation import Generator, adam, diversity, labels, own, pull, shares, standardised, unmoved


@dataclass(frozen=True)
class FedFTG(Part):
    """Data-free fine-tuning of the averaged model w (Alg. 1 of the paper). Clients tell how many samples n_k^y of every
    class y they have. At the server labels are drawn in proportion to sum_k n_k^y, a generator makes samples
    x = G(z, y) of them, and client k counts for class y as much as it holds of it, alpha_k^y = n_k^y / sum_i n_i^y
    (Eq. 9):

        L_md  = sum_k alpha_k^y * KL( softmax f(x; w_k) || softmax f(x; w) )      the disagreement
        L_cls = sum_k alpha_k^y * cross-entropy( f(x; w_k), y )                   x should look like y to the clients
        L_dis = exp( -mean_ij d(x_i, x_j) * d(z_i, z_j) )                         different z, different x

        generator:  minimise -L_md + fidelity * L_cls + diversity * L_dis         hard samples (Eq. 8), Adam
        model:      minimise  L_md                                                gradient descent

    In each of ``iterations`` a batch (z, y) is drawn, the generator makes ``generator_steps`` and the model
    ``model_steps`` on it. The generator and its optimiser live on from round to round. Ours is a small dense network;
    ``docs/methods/fedftg.md`` says what else differs.
    """

    name = "fedftg"
    paper = "Zhang et al. 2022, Fine-tuning Global Model via Data-Free Knowledge Distillation"

    iterations: int = param(10, "batches of labels and noise in a round; 0 is FedAvg", low=0)
    generator_steps: int = param(1, "steps of the generator on each batch", low=0)
    model_steps: int = param(5, "steps of the model on each batch", low=0)
    batch: int = param(50, "samples that are generated at a time", low=2)
    eta: float = param(0.1, "learning rate of the model", above=0)
    generator_eta: float = param(0.01, "learning rate of the generator's Adam", above=0)
    fidelity: float = param(1.0, "lambda_cls: weight of L_cls", low=0)
    diversity: float = param(1.0, "lambda_dis: weight of L_dis", low=0)
    noise: int = param(100, "length of z", low=1)
    width: int = param(256, "hidden units of the generator", low=1)

    def end(self, c: Client, w: Tensor, delta: Tensor) -> tuple[Tensors, Tensors]:
        return {"counts": c.counts.to(torch.int32)}, {}

    def tune(self, s: Tensors, r: Round, w: Tensor) -> tuple[Tensor, Tensors]:
        counts = r.uploads["counts"].to(w.dtype)
        clients, share, k = r.w + r.deltas, shares(counts), own(r.key(), self.name)
        theta, state = self.kept(s, r, k)
        for i in range(self.iterations):
            y = labels(rng.key(k, i, 1), counts.sum(0), self.batch)
            z = rng.normal(rng.key(k, i, 2), (self.batch, self.noise), w.dtype)
            hard = torch.func.grad(self.objective(r, w, clients, share[:, y], z, y))
            for _ in range(self.generator_steps):
                theta, state = adam(theta, hard(theta), state, self.generator_eta)
            w = self.taught(r, w, clients, share[:, y], self.samples(r, theta, z, y))
        return w, {"theta": theta} | state

    def kept(self, s: Tensors, r: Round, k: Tensor) -> tuple[Tensor, Tensors]:
        """The generator and its optimiser as the last round left them; in the first round new ones."""
        if s:
            return s["theta"], {name: t for name, t in s.items() if name != "theta"}
        theta = self.generator(r).start(rng.key(k, 0, 3), r.w.dtype)
        return theta, unmoved(theta)

    def generator(self, r: Round) -> Generator:
        return Generator(self.noise, r.net.classes, self.width, r.net.inputs)

    def samples(self, r: Round, theta: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """G(z, y) in the shape and on the scale of normalised inputs."""
        return standardised(torch.tanh(self.generator(r)(theta, z, y)).reshape(len(y), *r.net.shape))

    def objective(
        self, r: Round, w: Tensor, clients: Tensor, share: Tensor, z: Tensor, y: Tensor
    ) -> Callable[[Tensor], Tensor]:
        """What the generator minimises; ``share[k, b]`` is alpha of client k for the label of sample b."""

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

    def taught(self, r: Round, w: Tensor, clients: Tensor, share: Tensor, x: Tensor) -> Tensor:
        """The model after its steps on samples x."""
        teachers = [torch.softmax(r.net(model, x).logits, 1) for model in clients]

        def gap(logits: Tensor) -> Tensor:
            p = torch.softmax(logits, 1)
            apart = [alpha[:, None] * (p - q) for alpha, q in zip(share, teachers, strict=True)]
            return torch.stack(apart).sum(0) / len(x)

        for _ in range(self.model_steps):
            w = w - self.eta * pull(r.net, w, x, gap)
        return w

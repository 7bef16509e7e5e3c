"""What the errors in published code of SCAFFOLD do, one at a time, on CIFAR-10: NIID-Bench's table of 100 clients.

A plain PyTorch loop, independent of the package but for the data: 10 of 100 clients with iid data in a round, ten
epochs in batches of 64, SGD with rate 0.01, momentum 0.9 and weight decay 1e-5, the 6-16-120-84 CNN, reflected crops
and flips.

    python benchmarks/scaffold_errors.py --controls random --divisor round    # NIID-Bench until August 2022
    python benchmarks/scaffold_errors.py --controls random --divisor all      # since then
    python benchmarks/scaffold_errors.py                                      # neither error

Every line has the round, the test accuracy, the length of the model, of the server's control variate c, and the mean
length of the corrections c - c_i.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data.loading import load

RATE, MOMENTUM, DECAY, BATCH, EPOCHS, CLIENTS, COHORT = 0.01, 0.9, 1e-5, 64, 10, 100, 10
Vectors = list[Tensor]


def arguments() -> argparse.Namespace:
    """Return what the user asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--controls", choices=("zero", "random"), default="zero",
        help="what all control variates are at first; random: the weights of another network",
    )  # fmt: skip
    parser.add_argument(
        "--divisor", choices=("all", "round"), default="all",
        help="what the sum of the changes of c_i is divided by: all clients, or those in the round",
    )  # fmt: skip
    parser.add_argument(
        "--inside", action="store_true",
        help="add the correction to the gradient, before momentum, although c_i is the mean of the steps after it",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def network() -> nn.Module:
    """Make the CNN."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def augmented(x: Tensor) -> Tensor:
    """Return a random crop of every image after padding by reflection, mirrored half of the time."""
    n, padded = len(x), F.pad(x, (4,) * 4, mode="reflect")
    top, left = torch.randint(0, 9, (n,)), torch.randint(0, 9, (n,))
    rows = (top[:, None] + torch.arange(32))[:, None, :, None]
    columns = (left[:, None] + torch.arange(32))[:, None, None, :]
    x = padded[torch.arange(n)[:, None, None, None], torch.arange(3)[None, :, None, None], rows, columns]
    return torch.where((torch.rand(n) < 0.5)[:, None, None, None], x.flip(3), x)


def copied(vectors: Iterable[Tensor]) -> Vectors:
    """Return a copy."""
    return [v.detach().clone() for v in vectors]


def length(vectors: Vectors) -> float:
    """Return the length of vectors that are one."""
    return math.sqrt(sum(float((v**2).sum()) for v in vectors))


def local_steps(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], correction: Vectors, inside: bool) -> int:
    """Train the model on a client's batches and return the number of steps."""
    weights, steps = list(model.parameters()), 0
    m = [torch.zeros_like(w) for w in weights]
    for x, y in batches:
        gradients = torch.autograd.grad(F.cross_entropy(model(augmented(x)), y), weights)
        steps += 1
        with torch.no_grad():
            for w, mean, g, k in zip(weights, m, gradients, correction, strict=True):
                mean.mul_(MOMENTUM).add_(g + DECAY * w + (k if inside else 0))
                w.sub_(RATE * (mean if inside else mean + k))
    return steps


def main() -> None:
    """Run the rounds."""
    given = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    draw = np.random.RandomState(given.seed)
    data = load("cifar10(normalise=off)")
    x, test_x = data.x.float() / 255, data.test_x.float() / 255
    clients = np.array_split(draw.permutation(len(data.y)), CLIENTS)
    model = network()
    weights = list(model.parameters())
    w0 = copied(weights)
    first = [v if given.controls == "random" else 0 * v for v in copied(network().parameters())]
    c, kept = copied(first), {}
    for round in range(1, given.rounds + 1):
        mean, change, gap = [0 * w for w in w0], [0 * w for w in w0], 0.0
        for i in draw.permutation(CLIENTS)[:COHORT]:
            own = kept.get(i, first)
            correction = [a - b for a, b in zip(c, own, strict=True)]
            gap += length(correction) / COHORT
            nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(w0), weights)
            passes = (torch.from_numpy(draw.permutation(clients[i])).split(BATCH) for _ in range(EPOCHS))
            batches = ((x[rows], data.y[rows]) for one in passes for rows in one)
            steps = local_steps(model, batches, correction, given.inside)
            local = copied(weights)
            kept[i] = [o - k + (a - b) / (steps * RATE) for o, k, a, b in zip(own, c, w0, local, strict=True)]
            mean = [a + b / COHORT for a, b in zip(mean, local, strict=True)]
            change = [a + new - old for a, new, old in zip(change, kept[i], own, strict=True)]
        shown = f"|c| {length(c):.3g}  |c - c_i| {gap:.3g}"
        divisor = CLIENTS if given.divisor == "all" else COHORT
        w0, c = mean, [a + b / divisor for a, b in zip(c, change, strict=True)]
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(w0), weights)
        with torch.no_grad():
            right = torch.cat([model(images).argmax(1) for images in test_x.split(2000)]) == data.test_y
        print(f"{round:3d}  {float(right.float().mean()):.4f}  |w| {length(w0):.3g}  {shown}", flush=True)


if __name__ == "__main__":
    main()

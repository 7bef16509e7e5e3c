"""Transfer learning: a network that knows the digits 0 to 4 learns all ten from clients that train its new head only.

The backbone is frozen, so that only the head travels. ``batchnorm="frozen"`` keeps the statistics that it was trained
with.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import holdfast

ROUNDS = 20


def pretrained(x: Tensor, y: Tensor, passes: int = 10) -> nn.Sequential:
    """Train a backbone on some images in one place, and return it without the head it was trained with."""
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
    )  # fmt: skip
    network = nn.Sequential(backbone, nn.Linear(512, 5))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for _ in range(passes):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
    return backbone


def main(rounds: int = ROUNDS) -> holdfast.Result:
    data = holdfast.load("digits")
    known = data.y < 5
    x = (data.x[known] - data.mean[0]) / data.std[0]  # the inputs that clients will train on
    model = nn.Sequential(pretrained(x, data.y[known]).requires_grad_(False), nn.Linear(512, 10))
    federation = holdfast.federate(data, "dirichlet(0.1)", clients=20)
    result = holdfast.run("fedavg", federation, model, rounds=rounds, cohort=5, lr=0.05, batchnorm="frozen")
    whole = sum(p.numel() for p in model.parameters())
    print(
        f"trained {result.w.numel():,} of {whole:,} parameters: {result.history[0].upload_bytes:,} bytes up per round"
    )
    print(f"accuracy on all ten digits: {result.score.accuracy:.3f}")
    print(f"the first test images: {result.predict(data.test_x[:5])}, in truth {data.test_y[:5].numpy()}")
    return result


if __name__ == "__main__":
    main()

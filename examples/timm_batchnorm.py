"""A ResNet of timm with its BatchNorm layers, in the three ways in which BatchNorm can be federated.

    pip install timm

``average`` and ``frozen`` score one model. ``local`` scores the model of every client, each on test images of the
classes that it has, and sends fewer bytes, since the BatchNorm layers stay at the clients. ``frozen`` is meant for
pretrained statistics: here it shows what happens without them.
"""

from __future__ import annotations

import timm
import torch.nn.functional as F
from torch import nn

import holdfast

ROUNDS = 6


def model() -> nn.Module:
    """Make the network; ``pretrained=True`` would download weights and statistics."""
    return timm.create_model("test_resnet", pretrained=False, in_chans=1, num_classes=10)


def digits() -> holdfast.DataSet:
    """Enlarge the digits to 16x16 pixels."""
    data = holdfast.load("digits")
    x, test_x = (F.interpolate(t, size=(16, 16)) for t in (data.x, data.test_x))
    return holdfast.from_arrays(x, data.y, test_x, data.test_y)


def main(rounds: int = ROUNDS, epochs: int = 2) -> dict[str, holdfast.Result]:
    federation = holdfast.federate(digits(), "dirichlet(1)", clients=5)
    found = {}
    for mode in ("average", "local", "frozen"):
        settings = {"rounds": rounds, "epochs": epochs, "lr": 0.05, "batch": 32, "batchnorm": mode}
        found[mode] = holdfast.run("fedavg", federation, model, **settings)
        sent = found[mode].history[0].upload_bytes
        print(f"{mode:8} accuracy {found[mode].score.accuracy:.3f}, bytes up per round {sent:,}", flush=True)
    return found


if __name__ == "__main__":
    main()

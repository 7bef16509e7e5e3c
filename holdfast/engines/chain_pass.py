"""The forward and backward pass of a cohort of dense chains: a handful of products, batched over clients' weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.engines.local_training import LocalTraining
from holdfast.models.dense_chain import Product, StackedLayer, layers_in, run_layers, write_gradient
from holdfast.tasks.loss_slope import loss_and_slope


class ForwardPass(NamedTuple):
    """What a forward pass gives."""

    columns: list[Tensor]  # what enters each layer
    slope: Tensor  # of every client's mean loss with respect to the outputs, [clients, outputs, batch]
    loss: Tensor  # every client's mean loss


class ChainPass:
    """Runs the models of several clients on a batch of each.

    Args:
        training: The local training, whose objective is the task's own loss.
        chain: The products of the network.
    """

    def __init__(self, training: LocalTraining, chain: Sequence[Product]) -> None:
        self.layout, self.chain = training.net.layout, chain
        self.task, self.weight = training.federation.data.task, training.federation.weight

    def layers(self, w: Tensor) -> list[StackedLayer]:
        """Return the layers inside the clients' models ``w``, [clients, P], without a copy."""
        return layers_in(self.chain, self.layout, w)

    def forward(self, layers: Sequence[StackedLayer], x: Tensor, y: Tensor, mask: Tensor) -> ForwardPass:
        """Run the models.

        Args:
            layers: The layers of all clients.
            x: Inputs, [clients, batch, ...].
            y: Targets.
            mask: Where they are samples, [clients, batch].

        Returns:
            What the backward pass needs, and the losses.
        """
        *columns, outputs = run_layers(layers, x.flatten(2))
        rows, count = outputs.transpose(1, 2).flatten(0, 1), mask.sum(1, keepdim=True).clamp(min=1)
        share = mask / count.to(rows.dtype)
        losses, slope = loss_and_slope(self.task, rows, y.flatten(0, 1), self.weight, share.view(-1))
        loss = torch.where(mask, losses.view(mask.shape), 0.0).sum(1) / count[:, 0]
        return ForwardPass(columns, slope.view(*mask.shape, -1).transpose(1, 2), loss)

    @torch.no_grad()
    def gradient(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return every client's gradient, [clients, P], and its mean loss, of the samples where ``mask`` is true."""
        layers, g = self.layers(w), torch.empty_like(w)
        passed = self.forward(layers, x, y, mask)
        write_gradient(layers, passed.columns, passed.slope, self.layers(g))
        return g, passed.loss

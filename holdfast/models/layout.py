"""A model as one flat vector, and the names of its slices: parameters, blocks bottom-up, neurons, head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError

NORMS = (nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm, nn.modules.batchnorm._BatchNorm)


class Layer(NamedTuple):
    """A dense or convolutional layer with the norm behind it: its neurons are its outputs."""

    name: str
    neurons: int
    first: int  # the number of its first neuron among all neurons of the model
    norm: str | None  # the module whose output is normalised, if a norm layer follows directly


@dataclass(frozen=True)
class Layout:
    """Where everything lies in the vector. Made by ``trace``."""

    names: tuple[str, ...]  # parameters in the order of the vector
    shapes: tuple[torch.Size, ...]
    head: tuple[str, ...]  # the parameters of the classifier
    units: Mapping[str, tuple[tuple[str, ...], ...]]  # unit -> blocks bottom-up -> parameters
    layers: tuple[Layer, ...]  # bottom-up
    owner: Mapping[str, int]  # parameter -> its layer
    device: torch.device

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)

    @property
    def neurons(self) -> int:
        return sum(layer.neurons for layer in self.layers)

    def split(self, w: Tensor) -> dict[str, Tensor]:
        """The parameters inside a vector, without a copy."""
        pieces = torch.split(w, self.sizes)  # one split: slicing each one out is far slower to differentiate
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self.shapes, strict=True)}

    def join(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The vector of these parameters."""
        return torch.cat([parameters[name].reshape(-1) for name in self.names])

    def blocks(self, unit: str) -> int:
        """How many blocks the model has in this unit."""
        return len(self._unit(unit))

    def per_block(self, values: Tensor, unit: str) -> Tensor:
        """Spread one value per block over the vector."""
        where = {name: i for i, block in enumerate(self._unit(unit)) for name in block}
        return torch.cat([values[where[n]].expand(size) for n, size in zip(self.names, self.sizes, strict=True)])

    def per_neuron(self, values: Tensor) -> Tensor:
        """Spread one value per neuron over the neuron's weights, bias and norm; 1 where there is no neuron."""
        pieces = []
        for name, size, shape in zip(self.names, self.sizes, self.shapes, strict=True):
            if name in self.owner:
                layer = self.layers[self.owner[name]]
                own = values[layer.first : layer.first + layer.neurons]
                if len(shape) > 1 and shape[0] != layer.neurons:  # a transposed convolution: outputs come second
                    pieces.append(own[:, None].expand(shape[0], -1, shape[2:].numel()).reshape(-1))
                else:
                    pieces.append(own[:, None].expand(-1, size // layer.neurons).reshape(-1))
            else:
                pieces.append(values.new_ones(size))
        return torch.cat(pieces)

    def head_mask(self) -> Tensor:
        """True at the classifier's coordinates."""
        sizes = zip(self.names, self.sizes, strict=True)
        return torch.cat([torch.full((n,), name in self.head, device=self.device) for name, n in sizes])

    def _unit(self, unit: str) -> tuple[tuple[str, ...], ...]:
        if unit not in self.units:
            raise HoldfastError(
                f"this model has no unit {unit!r} (it has {', '.join(self.units)}): use one of these, or give the "
                f"module units = {{{unit!r}: [[names of modules], ...]}} bottom-up"
            )
        return self.units[unit]


def trace(module: nn.Module, order: list[str], behind: Mapping[str, str], head: str, device: torch.device) -> Layout:
    """The layout of a module whose submodules run in ``order``, bottom-up; ``behind`` has the layer each norm reads."""
    parameters = dict(module.named_parameters())
    owners = _owners(module, order)
    layers: list[Layer] = []
    layer_of: dict[str, int] = {}
    blocks: list[list[str]] = []
    for name, own in owners.items():
        sub = module.get_submodule(name)
        if isinstance(sub, NORMS) and blocks:
            blocks[-1] += own
            fits = layers and all(parameters[p].numel() == layers[-1].neurons for p in own)
            if fits and behind.get(name) == layers[-1].name:
                layer_of |= dict.fromkeys(own, len(layers) - 1)
            continue
        blocks.append(list(own))
        if isinstance(sub, (nn.Linear, nn.modules.conv._ConvNd)):
            first = layers[-1].first + layers[-1].neurons if layers else 0
            neurons = sub.out_features if isinstance(sub, nn.Linear) else sub.out_channels
            norm = next((n for n, layer in behind.items() if layer == name), None)
            layers.append(Layer(name, neurons, first, norm))
            layer_of |= dict.fromkeys(own, len(layers) - 1)
    return Layout(
        names=tuple(parameters),
        shapes=tuple(p.shape for p in parameters.values()),
        head=tuple(owners[head]),
        units={"layer": tuple(tuple(b) for b in blocks), **_declared(module, parameters)},
        layers=tuple(layers),
        owner=layer_of,
        device=device,
    )


def _owners(module: nn.Module, order: list[str]) -> dict[str, list[str]]:
    """Submodules that hold parameters themselves, in the order in which they run; those never run come first."""
    owned = {
        name: [f"{name}.{p}" if name else p for p, value in sub.named_parameters(recurse=False) if value is not None]
        for name, sub in module.named_modules()
    }
    owned = {name: ps for name, ps in owned.items() if ps}
    idle = [name for name in owned if name not in order]
    return {name: owned[name] for name in [*idle, *order] if name in owned}


def _declared(module: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The units that the module itself declares: ``units = {"stage": [["stem", "layer1"], ...]}``."""
    result = {}
    units: Mapping[str, list[list[str]]] = getattr(module, "units", {})
    for unit, blocks in units.items():
        found = [[p for p in parameters if any(f"{p}.".startswith(f"{m}.") for m in block)] for block in blocks]
        flat = [p for block in found for p in block]
        if sorted(flat) != sorted(parameters):
            odd = sorted(set(parameters) ^ set(flat)) or [p for p in flat if flat.count(p) > 1]
            raise HoldfastError(f"unit {unit!r} of the model must name every parameter exactly once; see {odd[0]!r}")
        result[unit] = tuple(tuple(block) for block in found)
    return result

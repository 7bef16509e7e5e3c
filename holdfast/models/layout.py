"""A model as one flat vector, and the names of its slices: parameters, blocks (bottom-up), neurons, head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.models.trial_run import NORMS, TrialRun


class Layer(NamedTuple):
    """A linear or convolutional layer with the norm after it: its neurons are its outputs.

    Attributes:
        name: The module.
        neurons: The number of its outputs.
        first: The number of its first neuron among all neurons of the model.
        norm: The norm layer that directly follows, if any.
        channels_first: Whether its outputs are the second axis, as those of convolutions, and not the last.
        positions: At how many positions of an input each neuron is computed: the pixels of a convolution's output.
    """

    name: str
    neurons: int
    first: int
    norm: str | None
    channels_first: bool = False
    positions: int = 1


@dataclass(frozen=True)
class Layout:
    """Where everything is in the vector. Made by ``trace``.

    Attributes:
        names: The trained parameters, in the order of the vector.
        shapes: Their shapes.
        head: The parameters of the classifier.
        units: For every unit its blocks, bottom-up, as lists of parameters.
        layers: The linear and convolutional layers, bottom-up.
        owner: The number of the layer that a parameter belongs to.
        device: The device of the model.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    head: tuple[str, ...]
    units: Mapping[str, tuple[tuple[str, ...], ...]]
    layers: tuple[Layer, ...]
    owner: Mapping[str, int]
    device: torch.device

    @property
    def sizes(self) -> list[int]:
        return [shape.numel() for shape in self.shapes]

    @property
    def names_and_sizes(self) -> list[tuple[str, int]]:
        return list(zip(self.names, self.sizes, strict=True))

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)

    @property
    def neurons(self) -> int:
        return sum(layer.neurons for layer in self.layers)

    def split(self, w: Tensor) -> dict[str, Tensor]:
        """Return the parameters inside a vector, or inside several with leading axes, without a copy."""
        pieces = torch.split(w, self.sizes, dim=-1)  # one split, since slices are far slower to differentiate
        return {n: p.view(*w.shape[:-1], *s) for n, p, s in zip(self.names, pieces, self.shapes, strict=True)}

    def join(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Join parameters into a vector."""
        return torch.cat([parameters[name].reshape(-1) for name in self.names])

    def blocks(self, unit: str) -> int:
        """Count the blocks of a unit."""
        return len(self._unit(unit))

    def per_block(self, values: Tensor, unit: str) -> Tensor:
        """Spread one value per block over the vector."""
        where = {name: i for i, block in enumerate(self._unit(unit)) for name in block}
        return torch.cat([values[where[n]].expand(size) for n, size in zip(self.names, self.sizes, strict=True)])

    def per_neuron(self, values: Tensor) -> Tensor:
        """Spread one value per neuron over its weights, bias and norm; 1 where there is no neuron."""
        pieces = []
        for name, size, shape in zip(self.names, self.sizes, self.shapes, strict=True):
            if name in self.owner:
                layer = self.layers[self.owner[name]]
                chosen = values[layer.first : layer.first + layer.neurons]
                if len(shape) > 1 and shape[0] != layer.neurons:  # a transposed convolution has its outputs second
                    pieces.append(chosen[:, None].expand(shape[0], -1, shape[2:].numel()).reshape(-1))
                else:
                    pieces.append(chosen[:, None].expand(-1, size // layer.neurons).reshape(-1))
            else:
                pieces.append(values.new_ones(size))
        return torch.cat(pieces)

    def head_mask(self) -> Tensor:
        """Return a mask that is true at the classifier's coordinates."""
        sizes = zip(self.names, self.sizes, strict=True)
        return torch.cat([torch.full((n,), name in self.head, device=self.device) for name, n in sizes])

    def _unit(self, unit: str) -> tuple[tuple[str, ...], ...]:
        if unit not in self.units:
            raise HoldfastError(
                f"this model has no unit {unit!r}, only {', '.join(self.units)}; use one of these, or set "
                f"units = {{{unit!r}: [[module names], ...]}} on the module, bottom-up"
            )
        return self.units[unit]


def trace(module: nn.Module, trial: TrialRun, head: str | None, device: torch.device) -> Layout:
    """Make the layout of a module. Frozen parameters are in no slice.

    Args:
        module: The module.
        trial: What its layers did when two samples were run.
        head: The classifier, if there is one.
        device: The device of the model.

    Returns:
        The names of all slices of the vector.
    """
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    owners = _owners(module, list(trial.runs))
    layers: list[Layer] = []
    layer_of: dict[str, int] = {}
    blocks: list[list[str]] = []
    for name, names in owners.items():
        sub = module.get_submodule(name)
        if isinstance(sub, NORMS) and blocks:
            blocks[-1] += names
            fits = layers and all(parameters[p].numel() == layers[-1].neurons for p in names)
            if fits and trial.norm_input.get(name) == layers[-1].name:
                layer_of |= dict.fromkeys(names, len(layers) - 1)
            continue
        blocks.append(list(names))
        if isinstance(sub, (nn.Linear, nn.modules.conv._ConvNd)) and name in trial.outputs:
            first = layers[-1].first + layers[-1].neurons if layers else 0
            dense = isinstance(sub, nn.Linear)
            neurons = sub.out_features if isinstance(sub, nn.Linear) else sub.out_channels
            norm = next((n for n, layer in trial.norm_input.items() if layer == name), None)
            positions = trial.outputs[name][0].numel() // neurons
            layers.append(Layer(name, neurons, first, norm, not dense, positions))
            layer_of |= dict.fromkeys(names, len(layers) - 1)
    return Layout(
        names=tuple(parameters),
        shapes=tuple(p.shape for p in parameters.values()),
        head=tuple(owners.get(head, ())) if head is not None else (),
        units={"layer": tuple(tuple(b) for b in blocks), **_declared(module, parameters)},
        layers=tuple(layers),
        owner=layer_of,
        device=device,
    )


def _owners(module: nn.Module, order: list[str]) -> dict[str, list[str]]:
    """Return the trained parameters of each submodule, in the order in which they run; idle ones first."""
    owned = {
        name: [f"{name}.{p}" if name else p for p, value in sub.named_parameters(recurse=False) if value.requires_grad]
        for name, sub in module.named_modules()
    }
    owned = {name: ps for name, ps in owned.items() if ps}
    idle = [name for name in owned if name not in order]
    return {name: owned[name] for name in [*idle, *order] if name in owned}


def _declared(module: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the units that the module itself declares: ``units = {"stage": [["stem", "layer1"], ...]}``."""
    result = {}
    units: Mapping[str, list[list[str]]] = getattr(module, "units", {})
    for unit, blocks in units.items():
        named = [[p for p in parameters if any(f"{p}.".startswith(f"{m}.") for m in block)] for block in blocks]
        flat = [p for block in named for p in block]
        if sorted(flat) != sorted(parameters):
            odd = sorted(set(parameters) ^ set(flat)) or [p for p in flat if flat.count(p) > 1]
            times = "more than once" if odd[0] in flat else "in no block"
            raise HoldfastError(
                f"unit {unit!r} of the model has the parameter {odd[0]!r} {times}; name every parameter exactly once"
            )
        result[unit] = tuple(tuple(block) for block in named)
    return result

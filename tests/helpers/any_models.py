"""Small models of every kind that people bring, and federations for them: images, sequences, tokens, several inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import holdfast

CLASSES = 3


class BatchNormResNet(nn.Module):
    """Two residual blocks with BatchNorm; ``units`` are not declared."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(4, momentum=None)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + torch.relu(self.first_norm(self.first(x)))
        return self.head(x.mean((2, 3)))


class LowRank(nn.Module):
    """A frozen linear layer with a trained correction of low rank, as in LoRA."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def lora() -> nn.Module:
    """A frozen backbone with low-rank corrections and a trained head."""
    return nn.Sequential(
        nn.Flatten(), LowRank(nn.Linear(36, 8)), nn.Tanh(), LowRank(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, CLASSES)
    )


class Recurrent(nn.Module):
    """An LSTM of two layers with dropout between them."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, batch_first: bool = True) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.rnn = kind(6, 5, 2, batch_first=batch_first, dropout=0.3, bidirectional=True)  # type: ignore[call-arg]
        self.head = nn.Linear(10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, 0] if x.dim() == 4 else x
        out = self.rnn(x if self.batch_first else x.transpose(0, 1))[0]
        return self.head(out[:, -1] if self.batch_first else out[-1])


class Transformer(nn.Module):
    """Tokens, an encoder with dropout inside its attention, and a mean over positions."""

    def __init__(self, vocabulary: int = 11, length: int = 6, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.place = nn.Parameter(torch.randn(length, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens) + self.place).mean(1))


class Masked(Transformer):
    """The same with a mask as a second input, and an output object as Hugging Face's."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        hidden = self.encoder(self.embedding(input_ids) + self.place, src_key_padding_mask=attention_mask == 0)
        there = attention_mask[..., None].to(hidden.dtype)
        return {"logits": self.head((hidden * there).sum(1) / there.sum(1))}


class Noise(nn.Module):
    """Draws random numbers in ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.head = nn.Flatten(), nn.Linear(36, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.flat(x)
        return self.head(x + 0.1 * torch.randn_like(x) if self.training else x)


class Headless(nn.Module):
    """Ends in an activation, has a lone parameter, and a layer that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.unused = nn.Linear(36, 8), nn.Linear(8, CLASSES), nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.last(torch.relu(self.first(x.flatten(1))) * self.scale))


def deal(x: Tensor | dict[str, Tensor] | tuple[Tensor, ...], y: Tensor, sizes: tuple[int, ...]) -> holdfast.Federation:
    """Deal samples to clients of these sizes; the test data is the training data."""
    groups = torch.cat([torch.full((n,), i) for i, n in enumerate(sizes)])
    data = holdfast.from_arrays(x, y, x, y, groups=groups, classes=[str(c) for c in range(CLASSES)])
    return holdfast.federate(data, "given", clients=len(sizes))


def images(sizes: tuple[int, ...] = (7, 4, 9)) -> holdfast.Federation:
    """Images [n, 1, 6, 6] whose labels can be learnt."""
    x = torch.randn(sum(sizes), 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return deal(x, (x[:, 0, :3, :2].sum((1, 2)).abs() * 1.3).long().clamp(max=CLASSES - 1), sizes)


def tokens(sizes: tuple[int, ...] = (7, 4, 9)) -> holdfast.Federation:
    """Tokens [n, 6] of eleven kinds."""
    x = torch.randint(0, 11, (sum(sizes), 6), generator=torch.Generator().manual_seed(1))
    return deal(x, x.sum(1) % CLASSES, sizes)


def masked_tokens(sizes: tuple[int, ...] = (7, 4, 9)) -> holdfast.Federation:
    """Tokens with a mask of the positions that count, by name."""
    g = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 11, (sum(sizes), 6), generator=g)
    lengths = torch.randint(2, 7, (sum(sizes), 1), generator=g)
    return deal({"input_ids": ids, "attention_mask": (torch.arange(6) < lengths).long()}, ids[:, 0] % CLASSES, sizes)


MODELS = {
    "batchnorm": (BatchNormResNet, images),
    "lora": (lora, images),
    "lstm": (Recurrent, images),
    "gru, time first": (lambda: Recurrent(nn.GRU, batch_first=False), images),
    "transformer": (Transformer, tokens),
    "several inputs": (Masked, masked_tokens),
}
OTHERS = {"headless": (Headless, images)}


def build(name: str) -> nn.Module:
    """Build a model of ``MODELS`` or ``OTHERS`` whose weights are always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(len(name))
        module: nn.Module = (MODELS | OTHERS)[name][0]()  # type: ignore[operator]
    assert math.prod(p.numel() for p in module.parameters())
    return module

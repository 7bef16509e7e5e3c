"""One client's local training: begin, steps, end. The only place where it is written; engines call it.

w  <-  w - lr * rate * direction(gradient(task loss + penalties))
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.data.federation import Federation
from holdfast.method.method import Method
from holdfast.method.part import Batch, Client, Gradient, Part, Tensors
from holdfast.models.net import Net, Out

PerPart = dict[str, Tensors]
Objective = Callable[[object], tuple[Tensor, Tensor]]  # model -> (objective, task loss)
Differentiate = Callable[[Objective, Tensor, Tensor | None], Gradient]  # (objective, w, rate)
Descend = Callable[[Objective, Tensor, Tensor], Tensor]  # (objective, w, eta) -> task loss; moves w
CHUNK = 256  # samples at a time when a part runs over a client's data


class Broadcast(NamedTuple):
    """What every client of a cohort is told: the same for all."""

    w0: Tensor
    lr: Tensor
    round: Tensor
    messages: PerPart


class ClientInfo(NamedTuple):
    """One client, or with a leading axis a cohort. ``own`` lists its samples, padded where ``there`` is false."""

    id: Tensor
    n: Tensor
    counts: Tensor
    S: Tensor
    K: Tensor
    own: Tensor
    there: Tensor
    sigma: Tensor

    def to(self, device: torch.device) -> ClientInfo:
        return ClientInfo(*(field.to(device) for field in self))


class ClientUpdate:
    """Local training under a method. ``differentiate`` is how the engine takes gradients."""

    def __init__(self, net: Net, method: Method, federation: Federation, seed: int, epochs: int, trip: int = 0) -> None:
        self.net, self.method, self.federation = net, method, federation
        self.seed, self.epochs, self.trip = seed, epochs, trip
        self.rated = bool(method.filling("rate"))
        self.lr_part = method.single("lr")
        self.loss_part = method.single("task_loss")
        self.gradient_part = method.single("gradient")
        self.by_hook = {
            h: method.filling(h) for h in ("begin", "epoch", "teachers", "rate", "penalty", "direction", "end")
        }
        self.blind = not (self.rated or self.gradient_part or self.by_hook["direction"])

    def twin(self) -> ClientUpdate:
        """The same training for another thread."""
        twin = copy.copy(self)
        twin.net = self.net.twin()
        return twin

    def begin(self, job: Broadcast, who: ClientInfo, state: PerPart) -> PerPart:
        """Every part's scratch before the first step."""
        c = self._client(job, who)
        return {p.name: p.begin(self._own(c, p, job, state, {})) for p in self.by_hook["begin"]}

    def epoch(
        self, job: Broadcast, who: ClientInfo, state: PerPart, local: PerPart, w: Tensor, epoch: Tensor
    ) -> PerPart:
        """Every part's scratch at the start of an epoch."""
        c = self._client(job, who)
        c.epoch = epoch
        return local | {p.name: p.epoch(self._own(c, p, job, state, local), w) for p in self.by_hook["epoch"]}

    def step(
        self, differentiate: Differentiate, job: Broadcast, who: ClientInfo, state: PerPart, local: PerPart, w: Tensor,
        batch: Batch, k: Tensor, epoch: Tensor, out: Tensor | None = None, descend: Descend | None = None,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        """One local step: the new model, the new scratch, the batch's task loss before the step.

        The model may be written to ``out``; ``descend`` moves ``w`` itself, where no part looks at the gradient.
        """
        c = self._client(job, who)
        c.k, c.epoch = k, epoch

        def own(part: Part) -> Client:
            return self._own(c, part, job, state, local)

        c.rate = self._rate(own)
        lr = self.lr_part.lr(own(self.lr_part)) if self.lr_part else c.lr
        c.eta = lr if c.rate is None else lr * c.rate
        c.teacher = self._teachers(own, batch)
        objective = self._objective(own, c, batch)
        if descend is not None and self.blind:
            return w, local, descend(objective, w, c.eta)

        def gradient(at: Tensor) -> Gradient:
            g, loss = differentiate(objective, at, c.rate)
            return still(g, c.rate), loss

        g, loss = (
            self.gradient_part.gradient(own(self.gradient_part), gradient, w) if self.gradient_part else gradient(w)
        )
        local = dict(local)
        for part in self.by_hook["direction"]:
            g, new = part.direction(own(part), g, w)
            g = still(g, c.rate)
            if new:
                local[part.name] = new
        if out is not None:
            local = unshared(local, out)
        return torch.addcmul(w, c.eta, g, value=-1, out=out), local, loss

    def end(
        self, job: Broadcast, who: ClientInfo, state: PerPart, local: PerPart, w: Tensor
    ) -> tuple[Tensor, PerPart, PerPart]:
        """The client's delta, every part's upload, every part's new state."""
        c = self._client(job, who)
        delta = w - job.w0
        uploads, states = {}, dict(state)
        for part in self.by_hook["end"]:
            upload, new = part.end(self._own(c, part, job, state, local), w, delta)
            if upload:
                uploads[part.name] = upload
            if new:
                states[part.name] = new
        return delta, uploads, states

    def survey(self, parts: Sequence[Part], job: Broadcast, who: ClientInfo) -> PerPart:
        """What these parts measure on a client's data with the model ``job.w0``."""
        c = self._client(job, who)
        return {p.name: p.survey(c) for p in parts}

    def full_gradient(self, differentiate: Differentiate, job: Broadcast, who: ClientInfo, at: Tensor) -> Tensor:
        """The gradient of the mean cross-entropy over all of a client's samples, at a model."""
        total = torch.zeros_like(at)
        for batch in self._chunks(who):

            def objective(model: object, batch: Batch = batch) -> tuple[Tensor, Tensor]:
                loss = batch.cross_entropy(self.net(model, batch.x).logits)  # type: ignore[arg-type]
                return loss, loss

            g, _ = differentiate(objective, at, None)
            total = total + batch.mask.sum() * g
        return total / who.n

    def augment_key(self, job: Broadcast, client: Tensor, k: Tensor) -> Tensor | None:
        """What seeds the augmentation of a batch; none where the data are not augmented."""
        if not self.federation.augment:
            return None
        return rng.key(self.seed, rng.AUGMENT, job.round, self.trip, client, k)

    def _client(self, job: Broadcast, who: ClientInfo) -> Client:
        def key() -> Tensor:
            return rng.key(self.seed, rng.PART, job.round, self.trip, who.id, c.k)

        c = Client(
            net=self.net, w0=job.w0, lr=job.lr, round=job.round, id=who.id, n=who.n, counts=who.counts, S=who.S,
            K=who.K, epochs=self.epochs, rated=self.rated, key=key, samples=lambda: self._chunks(who),
            public=lambda: self.federation.public_batches(CHUNK),
        )  # fmt: skip
        return c

    def _own(self, c: Client, part: Part, job: Broadcast, state: PerPart, local: PerPart) -> Client:
        name = part.name
        return c.own(job.messages.get(name, {}), state.get(name, {}), local.get(name, {}))

    def _chunks(self, who: ClientInfo) -> Iterator[Batch]:
        for start in range(0, who.own.shape[-1], CHUNK):
            index = who.own[start : start + CHUNK]
            x, y = self.federation.samples(index, who.sigma)
            yield Batch(x, y, who.there[start : start + CHUNK])

    def _rate(self, own: Callable[[Part], Client]) -> Tensor | None:
        rate: Tensor | None = None
        for part in self.by_hook["rate"]:
            factor = part.rate(own(part))
            rate = factor if rate is None else rate * factor
        return rate

    def _teachers(self, own: Callable[[Part], Client], batch: Batch) -> dict[str, Out]:
        vectors: Tensors = {}
        for part in self.by_hook["teachers"]:
            for name, w in part.teachers(own(part)).items():
                if vectors.setdefault(name, w) is not w:
                    raise HoldfastError(f"{part.name} and another part name different teachers {name!r}: rename one")
        with torch.no_grad():
            return {name: self.net(w, batch.x) for name, w in vectors.items()}

    def _objective(self, own: Callable[[Part], Client], c: Client, batch: Batch) -> Objective:
        key = None
        if self.net.dropout:
            key = rng.key(self.seed, rng.DROPOUT, c.round, self.trip, c.id, c.k)
        penalties = [(part, own(part)) for part in self.by_hook["penalty"]]

        def objective(model: object) -> tuple[Tensor, Tensor]:
            out = self.net(model, batch.x, key)  # type: ignore[arg-type]
            if self.loss_part is not None:
                task = self.loss_part.task_loss(own(self.loss_part), out, batch)
            else:
                task = batch.cross_entropy(out.logits)
            total = task
            for part, view in penalties:
                total = total + part.penalty(view, out, batch)
            return total, task

        return objective


def memory(t: Tensor) -> int:
    """Where a tensor lies: the same number for all views of it."""
    return t.untyped_storage().data_ptr()


def unshared(kept: PerPart, w: Tensor) -> PerPart:
    """What parts keep, copied where it lies in the model ``w``, which is about to be written over."""
    copied: PerPart = tree_map(lambda t: t.clone() if memory(t) == memory(w) else t, kept)
    return copied


def settle(buffers: list[Tensor], values: list[Tensor]) -> None:
    """Write values to buffers; one that lies in another's buffer is copied first: parts may pass on what they got."""
    taken = {memory(b) for b in buffers}
    pairs = list(zip(buffers, values, strict=True))
    safe = [v.clone() if memory(v) in taken and memory(v) != memory(b) else v for b, v in pairs]
    for buffer, value in zip(buffers, safe, strict=True):
        if value is not buffer:
            buffer.copy_(value)


def still(g: Tensor, rate: Tensor | None) -> Tensor:
    """Frozen means frozen: no gradient, no direction, where the rate is zero."""
    return g if rate is None else torch.where(rate == 0, 0.0, g)

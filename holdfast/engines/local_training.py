"""One client's local training: begin, steps, end. It is written here only; the engines call it.

w  <-  w - lr * rate * optimise(direction(gradient(task loss + penalties)))
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from holdfast.core import rng
from holdfast.core.errors import HoldfastError
from holdfast.core.gaussian_noise import Noise, keyed
from holdfast.core.tensors import PerPart, Tensors
from holdfast.data.federation import Federation
from holdfast.method.method import Method
from holdfast.method.part import NONE, Batch, Client, Gradient, Part, Sent
from holdfast.method.step_numbers import step_numbers, with_numbers
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net, Out


class BatchResult(NamedTuple):
    """What a pass over a batch gives beside the objective."""

    loss: Tensor  # the task loss
    stats: Tensors  # the running statistics of BatchNorm after the batch; empty if they do not change


Objective = Callable[[object], tuple[Tensor, BatchResult]]  # model -> (objective, the rest)
Differentiate = Callable[[Objective, Tensor, Tensor | None], tuple[Tensor, BatchResult]]  # (objective, w, rate)
Descend = Callable[[Objective, Tensor, Tensor], BatchResult]  # (objective, w, eta); moves w
TrainingPass = Callable[[Net, Any, Any, Tensor | None, Tensor | None], tuple[Out, Tensors]]  # see Net.training_pass
TOTAL = "(total)"  # the entry of the scratch that sums up weights; no part has such a name
CHUNK = 256  # samples at a time when a part runs over a client's data


class Broadcast(NamedTuple):
    """What the server sends to every client of a cohort."""

    w0: Tensor  # the global model
    lr: Tensor
    round: Tensor
    messages: PerPart  # what the parts broadcast beside the model
    stats: Tensors = {}  # noqa: RUF012  # the running statistics of BatchNorm, if they are averaged


class ClientInfo(NamedTuple):
    """The facts about one client, or about a cohort with a leading client axis."""

    id: Tensor
    n: Tensor  # samples
    counts: Tensor  # samples per class
    S: Tensor  # local steps per epoch
    K: Tensor  # local steps of the round
    samples: Tensor  # the numbers of its samples, padded
    valid: Tensor  # false where ``samples`` is padding
    sigma: Tensor  # standard deviation of its feature noise

    def to(self, device: torch.device) -> ClientInfo:
        return ClientInfo(*(field.to(device) for field in self))


class ClientTask(NamedTuple):
    """Everything that a client trains with, apart from its batches; info and state may have a client axis."""

    broadcast: Broadcast
    info: ClientInfo
    state: PerPart  # what the parts keep at the client
    seed: Tensor | None = None  # of the client's run, where rows of several runs are trained together
    numbers: PerPart = {}  # noqa: RUF012  # of the parts of its run, likewise


CLIENT_AXES = ClientTask(None, 0, 0)  # type: ignore[arg-type]  # which of its fields have a client axis, for vmap


class LocalTraining:
    """Local training under a method.

    Methods that take ``differentiate`` leave it to the engine how gradients are computed.
    """

    def __init__(self, net: Net, method: Method, federation: Federation, seed: int, epochs: int, trip: int = 0) -> None:
        self.net, self.method, self.federation = net, method, federation
        self.seed, self.epochs, self.trip = seed, epochs, trip
        self.rated = bool(method.filling("rate"))
        self.lr_part = method.single("lr")
        self.loss_part = method.single("task_loss")
        self.gradient_part = method.single("gradient")
        self.optimiser = method.single("optimise")
        self.by_hook = {
            h: method.filling(h) for h in ("begin", "epoch", "teachers", "rate", "penalty", "direction", "end", "send")
        }
        # Whether no part looks at the gradient, so that an engine may move the model parameter by parameter.
        self.gradient_unseen = not (self.rated or self.gradient_part or self.by_hook["direction"] or self.optimiser)
        nominal = not (self.rated or self.lr_part or self.optimiser)
        self.totals = not nominal and any(p.reads_total for p in method.parts)
        # Whether the gradient is that of the task's own loss at the local model, whatever the parts do with it.
        self.own_gradient = not (self.gradient_part or self.loss_part or self.by_hook["penalty"])
        # Whether a step calls no part at all.
        self.plain = self.own_gradient and self.gradient_unseen and not (self.lr_part or self.by_hook["teachers"])
        self.training_pass: TrainingPass = Net.training_pass
        self.noise: Noise | None = None  # what protects clients; None: noise that follows from the seed
        self.at_client = bool(net.kept_at_clients())
        self.averages = net.carries and not self.at_client and not trip  # a further trip sends no statistics
        self.ends = bool(self.by_hook["end"] or self.by_hook["send"]) or self.averages or self.at_client
        self.begins = bool(self.by_hook["begin"] or self.totals) or net.carries

    def for_thread(self) -> LocalTraining:
        """Return a copy that another thread can use at the same time."""
        twin = copy.copy(self)
        twin.net = self.net.twin()
        return twin

    def with_pass(self, training_pass: TrainingPass) -> LocalTraining:
        """Return a copy that runs the model on batches in another way."""
        twin = copy.copy(self)
        twin.training_pass = training_pass
        return twin

    def numbers(self) -> dict[str, dict[str, float]]:
        """Return the numbers of the parts that a traced step takes as inputs."""
        found = {part.name: step_numbers(part) for part in self.method.parts}
        return {name: numbers for name, numbers in found.items() if numbers}

    def with_numbers(self, numbers: PerPart) -> LocalTraining:
        """Return a copy whose parts compute with these tensors in place of their own numbers."""
        twin = copy.copy(self)
        parts = {part.name: with_numbers(part, numbers.get(part.name, {})) for part in self.method.parts}
        twin.lr_part, twin.loss_part, twin.gradient_part, twin.optimiser = (
            part and parts[part.name] for part in (self.lr_part, self.loss_part, self.gradient_part, self.optimiser)
        )
        twin.by_hook = {hook: tuple(parts[part.name] for part in some) for hook, some in self.by_hook.items()}
        return twin

    def start(self, task: ClientTask) -> Tensor:
        """Return the model from which the client starts: the global one, with what stays at the client."""
        w0 = task.broadcast.w0
        if not len(self.net.kept):
            return w0
        return torch.scatter(w0, 0, self.net.kept, task.state[STATISTICS]["own"])

    def begin(self, task: ClientTask) -> PerPart:
        """Return every part's scratch before the first step."""
        c = self._client(task)
        total = {TOTAL: {"weight": c.zeros_eta()}} if self.totals else {}
        scratch = total | {p.name: p.begin(self._view(c, p, task, {})) for p in self.by_hook["begin"]}
        return scratch | {STATISTICS: self._stats(task)} if self.net.carries else scratch

    def epoch(self, task: ClientTask, scratch: PerPart, w: Tensor, epoch: Tensor) -> PerPart:
        """Return every part's scratch at the start of an epoch."""
        c = self._client(task, scratch)
        c.epoch = epoch
        return scratch | {p.name: p.epoch(self._view(c, p, task, scratch), w) for p in self.by_hook["epoch"]}

    def step(
        self, differentiate: Differentiate, task: ClientTask, scratch: PerPart, w: Tensor, batch: Batch, k: Tensor,
        epoch: Tensor, out: Tensor | None = None, descend: Descend | None = None,
    ) -> tuple[Tensor, PerPart, Tensor]:  # fmt: skip
        """Take one local step.

        Args:
            differentiate: How the engine computes a gradient.
            task: What the client trains with.
            scratch: What the parts keep within the round.
            w: The local model.
            batch: The samples of the step.
            k: The number of the step, from 1.
            epoch: The number of the epoch, from 0.
            out: Where to write the new model; by default it is a new tensor.
            descend: Moves ``w`` itself; used if no part looks at the gradient.

        Returns:
            The new model, the new scratch, and the batch's task loss before the step.
        """
        c = self._client(task, scratch)
        c.k, c.epoch = k, epoch

        def view(part: Part) -> Client:
            return self._view(c, part, task, scratch)

        c.rate = self._rate(view)
        lr = self.lr_part.lr(view(self.lr_part)) if self.lr_part else c.lr
        c.eta = lr if c.rate is None else lr * c.rate
        c.weight = self._weight(view, c)
        c.teacher = self._teachers(view, task, batch)
        objective = self._objective(view, c, batch, self._seed(task))
        kept = dict(scratch)
        if self.totals:
            kept[TOTAL] = {"weight": scratch[TOTAL]["weight"] + c.weight}
        if descend is not None and self.gradient_unseen:
            result = descend(objective, w, c.eta)
            return w, with_statistics(kept, result.stats), result.loss

        passes: list[BatchResult] = []
        taken: list[Tensor] = []

        def gradient(at: Tensor) -> Gradient:
            g, result = differentiate(objective, at, c.rate)
            passes.append(result)
            taken.append(zero_where_frozen(g, c.rate))
            return taken[-1], result.loss

        part = self.gradient_part
        g, loss = part.gradient(view(part), gradient, w) if part else gradient(w)
        kept = with_statistics(kept, passes[0].stats)  # a second gradient of the same batch does not count again
        c.loss, c.gradients = loss, tuple(taken)
        for part in self.by_hook["direction"]:
            changed, new = part.direction(view(part), g, w)
            g = zero_where_frozen(self._only_shared(part, changed, g), c.rate)
            if new:
                kept[part.name] = new
        if self.optimiser is not None:
            g, kept[self.optimiser.name] = self._optimise(view(self.optimiser), g, w)
        if out is not None:
            kept = unshared(kept, out)
        return torch.addcmul(w, c.eta, g, value=-1, out=out), kept, loss

    def end(self, task: ClientTask, scratch: PerPart, w: Tensor) -> tuple[Tensor, PerPart, PerPart]:
        """Return the client's delta, every part's upload and every part's new state."""
        c = self._client(task, scratch)
        c.total = scratch[TOTAL]["weight"] if self.totals else None
        delta = self._without_kept(w - task.broadcast.w0)
        uploads: PerPart = {}
        states = dict(task.state)
        for part in self.by_hook["end"]:
            upload, new = part.end(self._view(c, part, task, scratch), w, delta)
            if upload:
                uploads[part.name] = {name: self._without_kept(t) for name, t in upload.items()}
            if new:
                states[part.name] = new
        if self.at_client:
            states[STATISTICS] = {"own": w[self.net.kept], **scratch.get(STATISTICS, {})}
        elif self.averages:
            uploads[STATISTICS] = scratch[STATISTICS]
        return *self._sent(c, task, scratch, Sent(delta, uploads), states), states

    def _sent(self, c: Client, task: ClientTask, scratch: PerPart, sent: Sent, states: PerPart) -> Sent:
        """Let parts change what is sent, and write their new states to ``states``."""
        c.k = c.K + 1
        for part in self.by_hook["send"]:
            view = self._view(c, part, task, scratch)
            view.state = states.get(part.name, {})
            sent, new = part.send(view, sent)
            sent = sent._replace(delta=self._without_kept(sent.delta))
            if new:
                states[part.name] = new
        return sent

    def _without_kept(self, t: Tensor) -> Tensor:
        """Set the places that stay at the client to zero in a vector of the model's length."""
        if not len(self.net.kept) or t.shape[-1:] != self.net.initial.shape:
            return t
        return torch.where(self.net.kept_mask, 0.0, t)

    def _only_shared(self, part: Part, changed: Tensor, g: Tensor) -> Tensor:
        """Leave the places that stay at the client to the gradient if the part compares clients with each other."""
        if not len(self.net.kept) or not part.exchanges:
            return changed
        return torch.where(self.net.kept_mask, g, changed)

    def survey(self, parts: Sequence[Part], broadcast: Broadcast, info: ClientInfo) -> PerPart:
        """Return what these parts measure on a client's data with the model ``broadcast.w0``."""
        c = self._client(ClientTask(broadcast, info, {}))
        return {p.name: p.survey(c) for p in parts}

    def full_gradient(self, differentiate: Differentiate, stats: Tensors, info: ClientInfo, at: Tensor) -> Tensor:
        """Return the gradient of the mean loss over all of a client's samples.

        Args:
            differentiate: How the engine computes a gradient.
            stats: The running statistics that BatchNorm uses.
            info: The client.
            at: The model.

        Returns:
            The gradient.
        """
        net, total = self.net.with_stats(stats), torch.zeros_like(at)
        for batch in self._chunks(info):

            def objective(model: object, batch: Batch = batch) -> tuple[Tensor, BatchResult]:
                loss = batch.loss(net(model, batch.x).logits)  # type: ignore[arg-type]
                return loss, BatchResult(loss, {})

            g, _ = differentiate(objective, at, None)
            total = total + batch.mask.sum() * g
        return total / info.n

    def augment_key(self, broadcast: Broadcast, client: Tensor, k: Tensor, seed: Tensor | None = None) -> Tensor | None:
        """Return the key of a batch's augmentation, or None if the data is not augmented.

        Args:
            broadcast: What the server sends.
            client: The client's number.
            k: The number of the step.
            seed: The seed of the client's run, if it may be another than this one.

        Returns:
            The key.
        """
        if not self.federation.augment:
            return None
        return rng.key(self.seed if seed is None else seed, rng.AUGMENT, broadcast.round, self.trip, client, k)

    def _stats(self, task: ClientTask) -> Tensors:
        """Return the running statistics with which the client starts; empty if the network keeps its own."""
        own = task.state.get(STATISTICS, task.broadcast.stats)
        return {name: own[name] for name in self.net.stats} if own else {}

    def _seed(self, task: ClientTask) -> rng.Word:
        return self.seed if task.seed is None else task.seed

    def _client(self, task: ClientTask, scratch: PerPart | None = None) -> Client:
        sent, info = task.broadcast, task.info
        stats = (scratch or {}).get(STATISTICS) or self._stats(task)

        def key() -> Tensor:
            return rng.key(self._seed(task), rng.PART, sent.round, self.trip, info.id, c.k)

        c = Client(
            net=self.net.with_stats(stats), w0=self.start(task), lr=sent.lr, round=sent.round, id=info.id, n=info.n,
            counts=info.counts, S=info.S, K=info.K, epochs=self.epochs, rated=self.rated,
            optimised=self.optimiser is not None, key=key, noise=self.noise or keyed(key),
            samples=lambda: self._chunks(info), public=lambda: self.federation.public_batches(CHUNK),
        )  # fmt: skip
        return c

    def _view(self, c: Client, part: Part, task: ClientTask, scratch: PerPart) -> Client:
        name = part.name
        return c.own(task.broadcast.messages.get(name, {}), task.state.get(name, {}), scratch.get(name, {}))

    def _chunks(self, info: ClientInfo) -> Iterator[Batch]:
        for start in range(0, info.samples.shape[-1], CHUNK):
            index = info.samples[start : start + CHUNK]
            x, y = self.federation.samples(index, info.sigma)
            yield self.federation.as_batch(x, y, info.valid[start : start + CHUNK])

    def _rate(self, view: Callable[[Part], Client]) -> Tensor | None:
        rate: Tensor | None = None
        for part in self.by_hook["rate"]:
            factor = part.rate(view(part))
            rate = factor if rate is None else rate * factor
        return rate

    def _weight(self, view: Callable[[Part], Client], c: Client) -> Tensor:
        """Return what a step adds to the total weight of the gradients."""
        if self.optimiser is None:
            return c.eta
        return c.eta * self.optimiser.gain(view(self.optimiser)) if self.optimiser.fills("gain") else NONE

    def _optimise(self, c: Client, g: Tensor, w: Tensor) -> tuple[Tensor, Tensors]:
        """Return the optimiser's step and its new state, which stays as it was where the rate is zero."""
        assert self.optimiser is not None
        g, new = self.optimiser.optimise(c, g, w)
        if c.rate is not None:
            frozen = c.rate == 0
            new = {k: torch.where(frozen, c.local[k], t) if t.dim() >= frozen.dim() else t for k, t in new.items()}
        return zero_where_frozen(g, c.rate), new

    def _teachers(self, view: Callable[[Part], Client], task: ClientTask, batch: Batch) -> dict[str, Out]:
        vectors: Tensors = {}
        for part in self.by_hook["teachers"]:
            for name, w in part.teachers(view(part)).items():
                if vectors.setdefault(name, w) is not w:
                    raise HoldfastError(f"{part.name} and another part use the teacher name {name!r}: rename one")
        if not vectors:
            return {}
        net = self.net.with_stats(self._stats(task))
        with torch.no_grad():
            return {name: net(w, batch.x) for name, w in vectors.items()}

    def own_objective(self, task: ClientTask, batch: Batch, k: Tensor) -> Objective:
        """Return the objective of step ``k`` where no part changes it (``own_gradient``)."""
        c = self._client(task)
        c.k = k
        return self._objective(lambda part: c, c, batch, self._seed(task))

    def _objective(self, view: Callable[[Part], Client], c: Client, batch: Batch, seed: rng.Word) -> Objective:
        key = None
        if self.net.dropout or self.net.random:
            key = rng.key(seed, rng.DROPOUT, c.round, self.trip, c.id, c.k)
        penalties = [(part, view(part)) for part in self.by_hook["penalty"]]
        padding = batch.mask if batch.padded else None

        def objective(model: object) -> tuple[Tensor, BatchResult]:
            out, stats = self.training_pass(c.net, model, batch.x, padding, key)
            if self.loss_part is not None:
                task = self.loss_part.task_loss(view(self.loss_part), out, batch)
            else:
                task = batch.loss(out.logits)
            total = task
            for part, own in penalties:
                total = total + part.penalty(own, out, batch)
            return total, BatchResult(task, stats)

        return objective


def with_statistics(scratch: PerPart, stats: Tensors) -> PerPart:
    """Return the scratch with new running statistics, if there are any."""
    return scratch | {STATISTICS: stats} if stats else scratch


def address(t: Tensor) -> int:
    """Return where a tensor's memory starts: the same number for all views of it."""
    return t.untyped_storage().data_ptr()


def unshared(kept: PerPart, w: Tensor) -> PerPart:
    """Copy those tensors that share memory with the model ``w``, which is about to be overwritten."""
    copied: PerPart = tree_map(lambda t: t.clone() if address(t) == address(w) else t, kept)
    return copied


def write_back(buffers: list[Tensor], values: list[Tensor]) -> None:
    """Write values to buffers. A value that shares another buffer's memory is copied first."""
    taken = {address(b) for b in buffers}
    pairs = list(zip(buffers, values, strict=True))
    safe = [v.clone() if address(v) in taken and address(v) != address(b) else v for b, v in pairs]
    for buffer, value in zip(buffers, safe, strict=True):
        if value is not buffer:
            buffer.copy_(value)


def zero_where_frozen(g: Tensor, rate: Tensor | None) -> Tensor:
    """Set a gradient or direction to zero where the rate is zero: frozen means frozen."""
    return g if rate is None else torch.where(rate == 0, 0.0, g)

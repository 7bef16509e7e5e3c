"""Personal evaluation: every client fine-tunes its own copy of the served model and is scored on its own class mix.

With ``--client-eval`` the copies are also scored on the clients' own test samples.

After the last round each client starts from the served model and trains for some epochs on its own data: the head
alone, as in FedBABU's evaluation (Oh et al. 2022), or the whole model. A client that holds n_ic samples of class c
sees the classes in these shares; its score is the test accuracy weighted by them:

    score_i = sum_c n_ic / n_i * accuracy_c

Classes without test samples are left out of the shares. Nothing is sent but the served model, which clients get anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.core.tensors import PerPart
from holdfast.data.federation import Federation
from holdfast.engines.choose import build
from holdfast.engines.cohort import Cohort
from holdfast.engines.local_training import LocalTraining
from holdfast.method.method import Method
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net
from holdfast.parts.only_head import OnlyHead
from holdfast.training.client_scores import score_clients
from holdfast.training.evaluation import evaluate
from holdfast.training.simulation import Simulation, own_model

AT_ONCE = 16  # clients whose copies are in memory at the same time
TUNED = {"head": Method((OnlyHead(),)), "all": Method()}  # by the setting personal_what


@dataclass(frozen=True)
class PersonalScores:
    """Scores of fine-tuned copies.

    Attributes:
        figures: The mean and standard deviation of the clients' scores on their class mix, and ``global_on_mix``, the
            score of the served model itself; empty for a task without classes.
        by_client: The score of every copy on the client's own test samples; empty if clients have none.
    """

    figures: dict[str, float]
    by_client: dict[int, float]


def personalise(simulation: Simulation, method: Method, limit: int | None = None) -> PersonalScores:
    """Fine-tune a copy of the served model at every client, and score the copies.

    Copies are trained like a round after the last one, by the engine of the run, with the last round's learning rate.

    Args:
        simulation: The finished run; ``config.personal`` is the number of epochs.
        method: The method that tunes the copies.
        limit: Score only this many clients, the first ones.

    Returns:
        The scores. A copy that is not finite has the worst score there is.
    """
    config, fed, net = simulation.config, simulation.federation, simulation.net
    served, t, epochs = simulation.server.served(), config.rounds + 1, config.personal
    engine = build(
        simulation.engine_name, LocalTraining(net, method, fed, config.seed, epochs), config.slice, simulation.workers
    )
    last = simulation.broadcast(config.rounds, {})
    broadcast = last._replace(w0=served, round=torch.tensor(t, device=net.device))
    before, after, mixes = [], [], []
    by_client: dict[int, float] = {}
    clients, classes = simulation.occupied[:limit], fed.data.task.has_classes
    for ids in np.array_split(clients, -(-len(clients) // AT_ONCE)):
        info = simulation.with_epochs(simulation.client_info(ids), epochs)
        kept = kept_layers(simulation, ids, served)
        update = engine.train(broadcast, Cohort(info, kept, simulation.plan(info, t, 0, epochs)))
        for row, delta in enumerate(update.deltas):
            copy = own_copy(net, served + delta, update.uploads | update.states, row)
            by_client |= on_own_samples(copy, simulation, int(ids[row]))
            after += [by_class(*copy, fed)] if classes else []
            before += [by_class(*own_copy(net, served, kept, row), fed)] if kept and classes else []
        mixes.append(info.counts.cpu())
    if not classes:
        return PersonalScores({}, by_client)
    counts = torch.cat(mixes)
    shared = torch.stack(before) if before else by_class(simulation.served_net, served, fed)
    own, plain = on_mix(torch.stack(after), counts), on_mix(shared, counts)
    figures = {
        "personal_accuracy": float(own.mean()),
        "personal_accuracy_std": float(own.std(correction=0)),
        "global_on_mix": float(plain.mean()),
    }
    return PersonalScores(figures, by_client)


def on_own_samples(copy: tuple[Net, Tensor], simulation: Simulation, client: int) -> dict[int, float]:
    """Return the score of a client's copy on its own test samples, by the client; empty if it has none."""
    held, metric = simulation.federation.client_test, simulation.metric
    if held is None or not held.sizes[client]:
        return {}
    if not bool(torch.isfinite(copy[1]).all()):
        return {client: (0.0 if metric.percent else -math.inf) if metric.higher_is_better else math.inf}
    found = score_clients(*copy, simulation.federation, held.only([client]), [metric])
    return {client: found.values[metric.name][0]}


def kept_layers(simulation: Simulation, ids: np.ndarray, w: Tensor) -> PerPart:
    """Return the BatchNorm layers that stay at these clients, with a client axis; empty if none do."""
    if not simulation.net.kept_at_clients():
        return {}
    return {STATISTICS: simulation.clients.gather(ids.tolist(), w)[STATISTICS]}


def own_copy(net: Net, w: Tensor, kept: PerPart, row: int) -> tuple[Net, Tensor]:
    """Return a client's copy of a model with its own BatchNorm layers, if it has any.

    Args:
        net: The network.
        w: The copy, without the layers that stay at the client.
        kept: What the clients keep or return, with a client axis.
        row: Which of the clients.

    Returns:
        The network with the client's running statistics, and the client's vector.
    """
    if STATISTICS not in kept:
        return net, w
    state = {name: rows[row] for name, rows in kept[STATISTICS].items()}
    return own_model(net, w, {"own": w[net.kept], **state})


def by_class(net: Net, w: Tensor, federation: Federation) -> Tensor:
    """Return a model's test accuracy in every class: NaN without test samples, 0 if the model is not finite."""
    found = evaluate(net, w, federation).by_class
    return torch.tensor(found, dtype=torch.float64) * torch.isfinite(w).all().cpu()


def on_mix(accuracy: Tensor, counts: Tensor) -> Tensor:
    """Weight accuracies by the classes of every client; clients that hold no tested class are left out."""
    tested = torch.where(torch.isnan(accuracy), 0, counts).to(torch.float64)
    total = tested.sum(1)
    return ((tested * torch.nan_to_num(accuracy)).sum(1) / total)[total > 0]

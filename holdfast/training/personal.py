"""Personal evaluation: every client fine-tunes its own copy of the served model and is scored on its own class mix.

With ``--client-eval`` the copies are also scored on the clients' own test samples.

After the last round each client starts from the served model and trains for some epochs on its own data: the head
alone, as in FedBABU's evaluation (Oh et al. 2022), or the whole model. A client that holds n_ic samples of class c
sees the classes in these shares; its score is the test accuracy weighted by them:

    score_i = sum_c n_ic / n_i * accuracy_c

Classes without test samples are left out of the shares. Over the network each node tunes the copies of its own clients
and scores them on the clients' own test samples; the server sends the served model and gets scores back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from holdfast.core.tensors import PerPart, Tensors
from holdfast.data.federation import Federation
from holdfast.engines.choose import build
from holdfast.engines.cohort import Cohort, CohortUpdate
from holdfast.engines.local_training import Broadcast, LocalTraining
from holdfast.method.config import Config
from holdfast.method.flag_parts import with_flag_parts
from holdfast.method.method import Method
from holdfast.models.batchnorm import STATISTICS
from holdfast.models.net import Net
from holdfast.parts.only_head import OnlyHead
from holdfast.training.client_scores import ClientScores, score_clients
from holdfast.training.evaluation import evaluate

if TYPE_CHECKING:
    from holdfast.training.round import Trainer
    from holdfast.training.simulation import Simulation

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


def tuning(config: Config, method: Method) -> Method:
    """Return the method that tunes the copies of a run: plain training with the run's flags and its optimiser."""
    return with_flag_parts(TUNED[config.personal_what], config).with_optimiser_of(method)


def after_the_run(trainer: Trainer) -> Broadcast:
    """Return what copies start from: the served model in a round after the last one, at the last one's rate."""
    last = trainer.broadcast(trainer.config.rounds, {})
    after = torch.tensor(trainer.config.rounds + 1, device=trainer.net.device)
    return last._replace(w0=trainer.server.served(), round=after)


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
    fed, net, broadcast = simulation.federation, simulation.net, after_the_run(simulation)
    served, train = broadcast.w0, CopyTraining(simulation, method)
    before, after, mixes = [], [], []
    by_client: dict[int, float] = {}
    clients, classes = simulation.occupied[:limit], fed.data.task.has_classes
    for ids in np.array_split(clients, -(-len(clients) // AT_ONCE)):
        kept = kept_layers(simulation, ids, served)
        update = train(broadcast, ids, kept)
        for row, delta in enumerate(update.deltas):
            copy = own_copy(net, served + delta, update.uploads | update.states, row)
            found = on_own_samples(copy, simulation, int(ids[row]))
            by_client |= dict(zip(found.ids, found.values[simulation.metric.name], strict=True))
            after += [by_class(*copy, fed)] if classes else []
            before += [by_class(*own_copy(net, served, kept, row), fed)] if kept and classes else []
        mixes.append(simulation.client_info(ids).counts.cpu())
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


class CopyTraining:
    """Trains clients' copies like a round after the last one, by the engine of the run."""

    def __init__(self, simulation: Simulation, method: Method) -> None:
        """Build the engine.

        Args:
            simulation: The clients; ``config.personal`` is the number of epochs.
            method: The method that tunes the copies.
        """
        config = simulation.config
        self.simulation, self.epochs = simulation, config.personal
        training = LocalTraining(simulation.net, method, simulation.federation, config.seed, self.epochs)
        self.engine = build(simulation.engine_name, training, config.slice, simulation.workers)

    def __call__(self, broadcast: Broadcast, ids: np.ndarray, kept: PerPart) -> CohortUpdate:
        """Train the copies of some clients, which start with the layers that they keep."""
        info = self.simulation.with_epochs(self.simulation.client_info(ids), self.epochs)
        batches = self.simulation.plan(info, int(broadcast.round), 0, self.epochs)
        return self.engine.train(broadcast, Cohort(info, kept, batches))


def score_copy(simulation: Simulation, train: CopyTraining, broadcast: Broadcast, client: int) -> ClientScores:
    """Fine-tune the copy of one client and score it on the client's own test samples.

    Args:
        simulation: Holds the client's samples.
        train: Trains copies.
        broadcast: The served model.
        client: The client.

    Returns:
        The score by the metric of the run; none if the client has no test samples.
    """
    ids, net = np.array([client]), simulation.net
    kept = kept_layers(simulation, ids, broadcast.w0)
    update = train(broadcast, ids, kept)
    copy = own_copy(net, broadcast.w0 + update.deltas[0], update.uploads | update.states, 0)
    return on_own_samples(copy, simulation, client)


def on_own_samples(copy: tuple[Net, Tensor], simulation: Simulation, client: int) -> ClientScores:
    """Return the score of a client's copy on its own test samples; none if it has no test samples."""
    held, metric = simulation.federation.client_test, simulation.metric
    if held is None or not held.sizes[client]:
        return ClientScores((), (), (), {metric.name: ()})
    if not bool(torch.isfinite(copy[1]).all()):
        worst = (0.0 if metric.percent else -math.inf) if metric.higher_is_better else math.inf
        return ClientScores((client,), (int(held.sizes[client]),), (0,), {metric.name: (worst,)})
    return score_clients(*copy, simulation.federation, held.only([client]), [metric])


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


def own_model(net: Net, served: Tensor, state: Tensors) -> tuple[Net, Tensor]:
    """Return a client's own model: the served one with the BatchNorm layers that the client keeps.

    Args:
        net: The network.
        served: The served model.
        state: What the client keeps.

    Returns:
        The network with the client's running statistics, and the client's vector.
    """
    stats = {name: state[name] for name in net.stats}
    return net.with_stats(stats), torch.scatter(served, 0, net.kept, state["own"])


def by_class(net: Net, w: Tensor, federation: Federation) -> Tensor:
    """Return a model's test accuracy in every class: NaN without test samples, 0 if the model is not finite."""
    found = evaluate(net, w, federation).by_class
    return torch.tensor(found, dtype=torch.float64) * torch.isfinite(w).all().cpu()


def on_mix(accuracy: Tensor, counts: Tensor) -> Tensor:
    """Weight accuracies by the classes of every client; clients that hold no tested class are left out."""
    tested = torch.where(torch.isnan(accuracy), 0, counts).to(torch.float64)
    total = tested.sum(1)
    return ((tested * torch.nan_to_num(accuracy)).sum(1) / total)[total > 0]

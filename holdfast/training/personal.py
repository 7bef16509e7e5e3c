"""Personal evaluation: every client tunes its own copy of the served model, and is scored on what it meets itself.

After the last round each client starts from the served model and trains for some epochs on its own data: the head
alone, as FedBABU's evaluation has it (Oh et al. 2022), or the whole model. A client that holds n_ic samples of class c
meets the classes in these shares; its score is the test accuracy weighed by them:

    score_i = sum_c n_ic / n_i * accuracy_c

Classes without test samples are left out of the shares. Nothing travels but the served model, which clients get anyhow.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from holdfast.engines.choose import build
from holdfast.engines.client_update import ClientUpdate
from holdfast.engines.cohort import Cohort
from holdfast.method.method import Method
from holdfast.parts.only_head import OnlyHead
from holdfast.training.metrics import evaluate
from holdfast.training.simulation import Simulation

AT_ONCE = 16  # clients whose copies are held in memory together


TUNED = {"head": Method((OnlyHead(),)), "all": Method()}  # by the setting personal_what


def personalise(simulation: Simulation, method: Method, limit: int | None = None) -> dict[str, float]:
    """Tune copies with ``method`` for ``config.personal`` epochs; the scores of the clients, or of the first ``limit``.

    Copies are trained like a round after the last one, by the engine of the run, with the last round's learning rate.
    ``global_on_mix`` is the score of the served model itself, for comparison. A copy that is not finite scores 0.
    """
    config, fed, net = simulation.config, simulation.federation, simulation.net
    served, t, epochs = simulation.server.served(), config.rounds + 1, config.personal
    local = ClientUpdate(net, method, fed, config.seed, epochs)
    engine = build(simulation.engine_name, local, config.slice, simulation.workers, None, False)
    job = simulation.job(config.rounds, {})._replace(w0=served, round=torch.tensor(t, device=net.device))
    accuracies, mixes = [], []
    clients = simulation.occupied[:limit]
    for ids in np.array_split(clients, -(-len(clients) // AT_ONCE)):
        who = simulation.who(ids)
        steps = (who.n + config.batch - 1) // config.batch
        who = who._replace(S=steps, K=steps * epochs)
        trained = engine.train(job, Cohort(who, {}, simulation.plan(who, t, 0, epochs)))
        accuracies += [by_class(simulation, served + delta) for delta in trained.deltas]
        mixes.append(who.counts.cpu())
    counts = torch.cat(mixes)
    own, plain = on_mix(torch.stack(accuracies), counts), on_mix(by_class(simulation, served), counts)
    return {
        "personal_accuracy": float(own.mean()),
        "personal_accuracy_std": float(own.std(correction=0)),
        "global_on_mix": float(plain.mean()),
    }


def by_class(simulation: Simulation, w: Tensor) -> Tensor:
    """A model's test accuracy in every class; NaN where there is no test sample, 0 where the model is not finite."""
    found = evaluate(simulation.net, w, simulation.federation).by_class
    return torch.tensor(found, dtype=torch.float64) * torch.isfinite(w).all().cpu()


def on_mix(accuracy: Tensor, counts: Tensor) -> Tensor:
    """Accuracies weighed by the classes of every client; clients that hold no tested class are left out."""
    tested = torch.where(torch.isnan(accuracy), 0, counts).to(torch.float64)
    total = tested.sum(1)
    return ((tested * torch.nan_to_num(accuracy)).sum(1) / total)[total > 0]

"""The small federation on which methods are compared with their references."""

from __future__ import annotations

import torch

from helpers.reference import World
from helpers.toys import FEDERATION, mlp

SETTINGS = {"rounds": 5, "cohort": 3, "batch": 5, "epochs": 2, "lr": 0.3, "lr_decay": 0.9}


def world(cohorts: list[list[int]]) -> World:
    deal, data = FEDERATION.deal, FEDERATION.data
    clients = [torch.from_numpy(deal.client(i)) for i in range(FEDERATION.clients)]
    start = torch.cat([p.detach().flatten() for p in mlp().parameters()])
    return World(data.x, data.y, clients, start, cohorts, batch=5, epochs=2, lr0=0.3, lr_decay=0.9)

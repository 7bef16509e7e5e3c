"""FedAvg's client as a user of plain Flower would write it: what ``flower.py`` compares with."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from holdfast.flower.node_data import dealt
from holdfast.method.config import Config
from holdfast.models.zoo import make


def client(config: Config) -> ClientApp:
    app = ClientApp()
    app.train()(partial(train, config))
    return app


def train(config: Config, message: Message, context: Context) -> Message:
    """A module, an optimiser, batches."""
    federation = dealt(config)
    net = make(config.model, federation.shape, federation.classes, config.seed)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own = torch.from_numpy(federation.deal.client(int(context.node_config["partition-id"])))
    optimiser = torch.optim.SGD(net.parameters(), lr=config.lr)
    for _ in range(config.passes):
        for index in own[torch.randperm(len(own))].split(config.batch):
            loss = F.cross_entropy(net(federation.inputs(federation.data.x[index])), federation.data.y[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(own)})}
    return Message(RecordDict(content), reply_to=message)

"""FedAvg's client as a user of plain Flower would write it; ``flower.py`` compares Holdfast with it."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from holdfast.flower.node_data import split_data
from holdfast.method.config import Config
from holdfast.models.zoo import make


def client(config: Config) -> ClientApp:
    """Make the client app."""
    app = ClientApp()
    app.train()(partial(train, config))
    return app


def train(config: Config, message: Message, context: Context) -> Message:
    """Train one client with PyTorch's SGD."""
    federation = split_data(config)
    net = make(config.model, federation.shape, federation.classes, config.seed)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = torch.from_numpy(federation.deal.client(int(context.node_config["partition-id"])))
    optimizer = torch.optim.SGD(net.parameters(), lr=config.lr)
    for _ in range(config.passes):
        for index in samples[torch.randperm(len(samples))].split(config.batch):
            loss = F.cross_entropy(net(federation.inputs(federation.data.x[index])), federation.data.y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(samples)})}
    return Message(RecordDict(content), reply_to=message)

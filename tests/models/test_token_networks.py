"""Networks on tokens: published size, the equations of an LSTM by hand, both kinds of outputs, both engines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.exact_errors import raises_exactly
from holdfast.models.cost import mflops, parameters
from holdfast.models.net import Net
from holdfast.models.zoo import make

# LEAF's graph: embedding 80 x 8, two LSTM layers of 256 with one bias each, a dense layer for 80 characters.
LEAF = 80 * 8 + 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1) + (256 + 1) * 80
SECOND_BIASES = 2 * 4 * 256  # PyTorch's LSTM has a bias for the input and one for the state


def test_the_default_is_the_network_of_leaf() -> None:
    net = make("lstm", (80,), 80)
    assert parameters(net) == LEAF + SECOND_BIASES == 819_920
    products = 80 * (4 * 256 * (8 + 256) + 4 * 256 * (256 + 256)) + 256 * 80
    assert mflops(net, (80,)) == pytest.approx(2e-6 * products)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def lstm_by_hand(weights: dict[str, np.ndarray], tokens: list[int], layers: int) -> np.ndarray:
    """The logits at every position, from the equations of Hochreiter and Schmidhuber with forget gates."""
    rows = [weights["embedding.weight"][token] for token in tokens]
    for layer in range(layers):
        w, u, b, c = (weights[f"lstm.{n}_l{layer}"] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        hidden = memory = np.zeros(u.shape[1])
        outputs = []
        for row in rows:
            enter, forget, new, leave = np.split(w @ row + b + u @ hidden + c, 4)
            memory = sigmoid(forget) * memory + sigmoid(enter) * np.tanh(new)
            hidden = sigmoid(leave) * np.tanh(memory)
            outputs.append(hidden)
        rows = outputs
    return np.stack(rows) @ weights["head.weight"].T + weights["head.bias"]


@pytest.mark.parametrize("every", [True, False])
def test_logits_are_those_of_the_equations(every: bool) -> None:
    net = make("lstm(embedding=3, hidden=5, layers=2)", (4,), 6, tokens=7, every=every).double()
    weights = {name: w.detach().numpy() for name, w in net.named_parameters()}
    rows = [[0, 6, 2, 2], [5, 1, 0, 3]]
    expected = np.stack([lstm_by_hand(weights, row, 2) for row in rows])
    found = net(torch.tensor(rows)).detach().numpy()
    np.testing.assert_allclose(found, expected if every else expected[:, -1], rtol=1e-12)


def test_the_head_is_found_and_blocks_cover_the_vector() -> None:
    for every, positions in ((False, ()), (True, (4,))):
        module = make("lstm(hidden=5)", (4,), 6, tokens=7, every=every)
        tokens = torch.zeros(2, 4, dtype=torch.int64)
        net = Net(module, (4,), 6, example=tokens, positions=positions)
        assert net.head == "head"
        assert net.layout.blocks("layer") == 3
        numbers = net.layout.per_block(torch.arange(3), "layer")
        assert numbers[net.layout.head_mask()].unique().tolist() == [2]
        assert net(net.initial, tokens).logits.shape == (2, *positions, 6)


def test_bad_sizes_and_shapes_are_refused_in_one_line() -> None:
    with raises_exactly(
        "lstm needs tokens, one axis of whole numbers, not inputs of shape (1, 8, 8); use a network for images, or text"
    ):
        make("lstm", (1, 8, 8), 10)
    with raises_exactly("lstm does not know how many tokens this data has: write lstm(tokens=N)"):
        make("lstm", (8,), 10, tokens=0)
    with raises_exactly("lstm has tokens=5, but the data has 9; leave tokens out"):
        make("lstm(tokens=5)", (8,), 10, tokens=9)
    with raises_exactly("lstm: hidden must be a whole number of at least 1, not 0"):
        make("lstm(hidden=0)", (8,), 10)
    assert make("lstm(tokens=50, hidden=2)", (8,), 10, tokens=0).get_submodule("embedding").num_embeddings == 50


def tokens(n: int, length: int) -> Tensor:
    return torch.randint(0, 9, (n, length), generator=torch.Generator().manual_seed(n))


def test_numbers_are_refused_and_token_counts_are_asked_for() -> None:
    y = torch.arange(40) % 3
    numbers = holdfast.federate(holdfast.from_arrays(torch.randn(40, 6), y), "iid", clients=4)
    with raises_exactly(
        "the network lstm takes tokens, but a sample of arrays is float32 [6]; use a network that takes numbers, "
        "such as mlp"
    ):
        holdfast.run("fedavg", numbers, model="lstm", rounds=1)
    unknown = holdfast.federate(holdfast.from_arrays(tokens(40, 6), y), "iid", clients=4)
    with raises_exactly("lstm does not know how many tokens this data has: write lstm(tokens=N)"):
        holdfast.run("fedavg", unknown, model="lstm", rounds=1)
    result = holdfast.run("fedavg", unknown, model="lstm(tokens=9, hidden=4)", rounds=1)
    assert result.predict(tokens(3, 6)).shape == (3,)


@pytest.mark.parametrize("predict", ["next-character", "next-token"])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedbug(0.4)+feddyn"])
def test_a_round_is_the_same_in_both_engines(predict: str, method: str) -> None:
    texts = {"a": "abcbcabcaacb" * 3, "b": "ccbaabac" * 2, "c": "bbbacccab" * 3}
    data = holdfast.from_text(texts, predict=predict, length=6, stride=2)
    settings = {"rounds": 2, "cohort": 2, "epochs": 1, "batch": 4, "lr": 0.5, "precision": "fp64", "device": "cpu"}
    found = [
        holdfast.run(
            method,
            holdfast.federate(data, "given", clients=3),
            model="lstm(embedding=3, hidden=5)",
            engine=engine,
            **settings,
        )
        for engine in ("loop", "vector")
    ]
    loop, vector = (result.w for result in found)
    initial = found[0].net.initial
    assert float((loop - initial).norm()) > 1e-3
    assert float((loop - vector).norm() / (loop - initial).norm()) < 1e-10
    losses = [[record.test["loss"] for record in result.history] for result in found]
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


def test_a_module_of_your_own_gets_the_tokens_too() -> None:
    class Own(nn.Module):
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(classes, 4), nn.Linear(4, classes)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embedding(x))

    data = holdfast.from_text(["abcbcabcaacb" * 3] * 2, predict="next-token", length=6)
    result = holdfast.run("fedavg", holdfast.federate(data, "given", clients=2), Own, rounds=1)
    assert result.history[0].test["perplexity"] > 1

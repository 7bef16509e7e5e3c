"""Texts from end to end: training in both engines, perplexity by hand, a language with a known optimum, predicting."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import holdfast
from helpers.exact_errors import raises_exactly
from helpers.play import best_perplexity, bigram_text, speeches, unigram_perplexity
from holdfast.cli.predict import command as predict_command
from holdfast.cli.run import command as run_command

SETTINGS = {"rounds": 2, "cohort": 3, "epochs": 1, "batch": 16, "lr": 1.0, "device": "cpu"}
SMALL = "lstm(embedding=4, hidden=12, layers=1)"


def play(predict: str = "next-token", **options) -> holdfast.Federation:
    data = holdfast.from_text(speeches(), predict=predict, length=20, **options)
    return holdfast.federate(data, "given", clients=len(data.clients))


def loss_by_hand(result: holdfast.Result, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The mean loss per token and the share of right ones, with a loop over texts and positions in numpy."""
    with torch.no_grad():
        logits = result.model(x).double().numpy()
    losses, hits = [], []
    for rows, targets in zip(logits, y.tolist(), strict=True):
        for row, target in zip(rows, targets, strict=True):
            if target == -100:
                continue
            shifted = row - row.max()
            losses.append(math.log(np.exp(shifted).sum()) - shifted[target])
            hits.append(int(np.argmax(row)) == target)
    return float(np.mean(losses)), float(np.mean(hits))


def test_perplexity_is_that_of_a_loop_in_numpy() -> None:
    federation = play()
    result = holdfast.run("fedavg", federation, model=SMALL, metric="perplexity", **SETTINGS)
    data = federation.data
    assert bool((data.test_y == -100).any()), "some windows are shorter: padding must not count"
    loss, _ = loss_by_hand(result, data.test_x, data.test_y)
    last = result.history[-1].test
    assert last["loss"] == pytest.approx(loss, rel=1e-6)
    assert last["perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)
    assert result.summary["metric"] == "perplexity"
    assert result.summary["final"] == pytest.approx(math.exp(loss), rel=1e-6)
    assert result.history[-1].test["perplexity"] < result.history[0].test["perplexity"] < len(data.classes)


def test_accuracy_counts_tokens() -> None:
    federation = play()
    result = holdfast.run("fedavg", federation, model=SMALL, metric="accuracy", **SETTINGS)
    _, right = loss_by_hand(result, federation.data.test_x, federation.data.test_y)
    assert result.history[-1].test["accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("predict", ["next-character", "next-token"])
def test_both_engines_train_the_same_model(predict: str) -> None:
    options = {"stride": 5} if predict == "next-character" else {}
    found = [
        holdfast.run("scaffold", play(predict, **options), model=SMALL, engine=engine, precision="fp64", **SETTINGS)
        for engine in ("loop", "vector")
    ]
    moved = found[0].w - found[0].net.initial
    assert float((found[0].w - found[1].w).norm() / moved.norm()) < 1e-9
    for a, b in zip(*(result.history for result in found), strict=True):
        assert a.test == pytest.approx(b.test, rel=1e-9)


class Bigram(nn.Module):
    """The logits of the next token are a row of a table: the model of a bigram language."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(classes, classes)
        nn.init.zeros_(self.table.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x)


TABLE = np.array([[0.7, 0.1, 0.1, 0.1], [0.05, 0.05, 0.8, 0.1], [0.25, 0.5, 0.05, 0.2], [0.1, 0.2, 0.3, 0.4]])


@pytest.mark.parametrize(
    ("model", "lr", "rounds"), [(Bigram, 10.0, 15), ("lstm(embedding=4, hidden=8, layers=1)", 2.0, 30)]
)
def test_a_bigram_language_is_learnt_to_its_entropy(model, lr: float, rounds: int) -> None:
    texts = {f"speaker {i}": bigram_text(TABLE, "abcd", 2000, i) for i in range(4)}
    test = {"speaker 0": bigram_text(TABLE, "abcd", 20_000, 99)}
    data = holdfast.from_text(texts, test, predict="next-token", length=40)
    federation = holdfast.federate(data, "given", clients=4)
    result = holdfast.run(
        "fedavg", federation, model=model, rounds=rounds, cohort=4, epochs=2, batch=10, lr=lr, device="cpu"
    )
    best = best_perplexity(TABLE)
    found = result.history[-1].test["perplexity"]
    assert best * 0.97 < found < best * 1.03
    assert unigram_perplexity(TABLE) > best * 1.2, "the frequencies of the letters alone do not explain it"


# ----------------------------------------------------------------------------------------------------- predicting


def test_texts_in_and_characters_out() -> None:
    text = "abcd" * 100
    for predict in ("next-character", "next-token"):
        data = holdfast.from_text({"a": text, "b": text}, predict=predict, length=8)
        federation = holdfast.federate(data, "given", clients=2)
        settings = SETTINGS | {"rounds": 12, "cohort": 2, "lr": 2.0}
        result = holdfast.run("fedavg", federation, model=SMALL, **settings)
        found = result.predict(["abcdabcda", "cdabcdab", "dab"])
        assert found.tolist() == ["b", "c", "c"]
        assert result.predict("abcdabcd").tolist() == ["a"]
        numbers = torch.from_numpy(data.vocabulary.encode("abcdabcd"))[None]
        chances = result.predict_proba("abcdabcd")
        assert chances.shape == (1, 5)
        same = result.predict_proba(numbers)
        np.testing.assert_allclose(chances, same[:, -1] if predict == "next-token" else same, rtol=1e-6)
        if predict == "next-token":
            assert result.predict(numbers).shape == (1, 8)
            short = result.predict_proba("abc")[0]
            alone = torch.zeros(1, 8, dtype=torch.int64)
            alone[0, :3] = torch.tensor(data.vocabulary.encode("abc"))
            np.testing.assert_allclose(short, result.predict_proba(alone)[0, 2], rtol=1e-6)
        with raises_exactly("text 1 is empty; give at least one character"):
            result.predict(["a", ""])


def test_texts_for_a_model_that_does_not_take_them() -> None:
    result = holdfast.run("fedavg", data="digits", rounds=1)
    with raises_exactly("x has texts, but the model was not trained on texts; give numbers like its training data"):
        result.predict("to be")
    texts = ["1 2 3 4 5 6 7 8 9"] * 2
    data = holdfast.from_text(
        texts, texts, predict="next-token", length=4, tokenizer=lambda t: [int(n) for n in t.split()], tokens=10
    )
    own = holdfast.run("fedavg", holdfast.federate(data, "given", clients=2), model=SMALL, rounds=1)
    with raises_exactly(
        "the model was trained on the tokens of your own tokenizer, which a run does not store: give token numbers, "
        "not texts"
    ):
        own.predict("1 2 3")
    assert own.predict([[1, 2, 3, 4]]).shape == (1, 4)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("predict", ["next-character", "next-token"])
def test_the_command_line_from_a_folder_of_texts_to_predictions(predict: str) -> None:
    Path("plays").mkdir()
    for name, text in speeches().items():
        Path("plays", f"{name}.txt").write_text(text)
    words = f"""fedavg --split given --clients 4 --cohort 2 --rounds 2 --out run --quiet
        --data "text('plays', predict={predict}, length=20, stride=10)" --model "{SMALL}" """
    done = CliRunner().invoke(run_command, shlex.split(words))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in Path("run/history.jsonl").read_text().splitlines()]
    assert [("perplexity" in line["test"]) for line in lines] == [predict == "next-token"] * 2
    facts = json.loads(Path("run/model.json").read_text())
    assert facts["classes"][:3] == ["<unknown>", "\\n", "space"]
    assert facts["tokens"][:3] == ["<unknown>", "\n", " "]
    assert facts["characters"] is True
    Path("new.txt").write_text("to be or not to be or not\n\nmy lord\n")
    shown = CliRunner().invoke(predict_command, ["run", "--data", "new.txt"])
    assert shown.exit_code == 0, shown.output
    result = holdfast.load_run("run")
    expected = result.predict(["to be or not to be or not", "my lord"])
    table = list(csv.reader(io.StringIO(shown.output)))
    assert table[0] == ["sample", "token" if predict == "next-token" else "class", *result.classes]
    shown_as = dict(zip(facts["tokens"], facts["classes"], strict=True))
    assert [row[1] for row in table[1:]] == [shown_as[token] for token in expected]
    assert str(result).count("\n") == 3, "no line is broken by the name of a class"
    np.testing.assert_allclose(
        [[float(p) for p in row[2:]] for row in table[1:]],
        result.predict_proba(["to be or not to be or not", "my lord"]),
        atol=1e-6,
    )


@pytest.mark.usefixtures("elsewhere")
def test_resuming_and_loading_need_no_data() -> None:
    federation = play()
    whole = holdfast.run("fedavg", federation, model=SMALL, out="whole", **SETTINGS)
    holdfast.run("fedavg", federation, model=SMALL, out="run", stop=lambda: True, **SETTINGS)
    again = holdfast.run("fedavg", federation, model=SMALL, out="run", resume=True, **SETTINGS)
    assert torch.equal(again.w, whole.w)
    loaded = holdfast.load_run("run")
    assert torch.equal(loaded.w, whole.w)
    assert loaded.predict("to be or").tolist() == whole.predict("to be or").tolist()


@pytest.mark.usefixtures("elsewhere")
def test_a_run_is_not_resumed_with_other_characters() -> None:
    """As many characters, so that the network fits: only their meaning would be another."""
    texts = [{"a": text * 20, "b": text * 20} for text in ("abcd", "abce")]
    federations = [holdfast.federate(holdfast.from_text(t, length=8), "given", clients=2) for t in texts]
    settings = SETTINGS | {"cohort": 2}
    holdfast.run("fedavg", federations[0], model=SMALL, out="run", stop=lambda: True, **settings)
    with raises_exactly(
        "the texts of the run in run have another vocabulary than when the run was started: restore them, or start "
        "over with --overwrite"
    ):
        holdfast.run("fedavg", federations[1], model=SMALL, out="run", resume=True, **settings)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("predict", ["next-character", "next-token"])
def test_the_exported_model_takes_tokens(predict: str) -> None:
    federation = play(predict, stride=20)
    result = holdfast.run("fedavg", federation, model=SMALL, **SETTINGS)
    result.export("out")
    program = torch.export.load("out/model.pt2").module()
    x = federation.data.test_x[:3]
    np.testing.assert_allclose(program(x).softmax(-1).detach().numpy(), result.predict_proba(x), atol=1e-5)
    assert json.loads(Path("out/model.json").read_text())["tokens"] == list(federation.data.vocabulary.tokens)

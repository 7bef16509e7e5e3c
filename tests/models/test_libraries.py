"""Models of other libraries, built from a config without a download: Hugging Face, LoRA through peft, timm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import holdfast
from tests.helpers.any_models import CLASSES, deal, masked_tokens

transformers = pytest.importorskip("transformers")

SETTINGS: dict[str, Any] = {
    "rounds": 2, "cohort": 3, "epochs": 1, "batch": 3, "lr": 0.05, "precision": "fp64", "device": "cpu",
}  # fmt: skip
CLIENTS = 3


def bert(attention: str = "sdpa") -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=8, num_labels=CLASSES, attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def lora() -> nn.Module:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], lora_dropout=0.1)
    return peft.get_peft_model(bert(), config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        num_labels=CLASSES,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=CLASSES
    )
    return transformers.ResNetForImageClassification(config)


def convnext() -> nn.Module:
    config = transformers.ConvNextConfig(
        hidden_sizes=[4, 8], depths=[1, 1], num_stages=2, patch_size=2, drop_path_rate=0.5, num_labels=CLASSES
    )
    return transformers.ConvNextForImageClassification(config)


def timm_resnet() -> nn.Module:
    """BatchNorm with its activation in one layer, and drop-path."""
    timm = pytest.importorskip("timm")
    return timm.create_model("test_resnet", pretrained=False, num_classes=CLASSES, in_chans=3, drop_path_rate=0.3)


def images(side: int) -> holdfast.Federation:
    sizes = (7, 4, 9)
    x = torch.randn(sum(sizes), 3, side, side, generator=torch.Generator().manual_seed(0))
    return deal(x, (x[:, 0, :3, :2].sum((1, 2)).abs() * 1.3).long().clamp(max=CLASSES - 1), sizes)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], holdfast.Federation]]] = {
    "bert": (bert, masked_tokens),
    "bert, eager": (lambda: bert("eager"), masked_tokens),
    "lora": (lora, masked_tokens),
    "vit": (vit, lambda: images(8)),
    "resnet": (resnet, lambda: images(32)),
    "convnext": (convnext, lambda: images(8)),
    "timm": (timm_resnet, lambda: images(32)),
}


def train(method: str, name: str, **settings: Any) -> holdfast.Result:
    factory, federation = MODELS[name]
    return holdfast.run(method, federation(), factory, **SETTINGS | settings)


def tokens() -> dict[str, Tensor]:
    """Raw inputs: sentences of different lengths."""
    ids = torch.randint(0, 11, (5, 6), generator=torch.Generator().manual_seed(3))
    return {"input_ids": ids, "attention_mask": (torch.arange(6) < torch.tensor([[2], [6], [4], [3], [6]])).long()}


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
@pytest.mark.parametrize("name", MODELS)
def test_the_engines_agree(name: str, method: str):
    loop, vector = (train(method, name, engine=engine) for engine in ("loop", "vector"))
    start = train(method, name, rounds=1, lr=1e-300).state_dict()
    mine, theirs = loop.state_dict(), vector.state_dict()
    assert max(float((mine[k] - theirs[k]).abs().max()) for k in mine) < 1e-10
    for one, other in zip(loop.history, vector.history, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, abs=1e-10)
    trained = [n for n, p in loop.model.named_parameters() if p.requires_grad]
    moved = [n for n in trained if not torch.equal(mine[n], start[n])]
    assert len(moved) > 0.9 * len(trained), "BERT's unused parameters and keys' biases may rest"


def test_of_a_model_with_lora_only_the_trained_parameters_move_and_travel():
    result, start = train("fedavg", "lora"), train("fedavg", "lora", rounds=1, lr=1e-300)
    trained = {n: p for n, p in result.model.named_parameters() if p.requires_grad}
    assert trained.keys() == {n for n in result.state_dict() if "lora_" in n or "modules_to_save" in n}
    size = sum(p.numel() for p in trained.values())
    assert size < 0.1 * sum(p.numel() for p in result.model.parameters())
    assert [r.upload_bytes for r in result.history] == [8 * size * CLIENTS] * 2
    before, after = start.state_dict(), result.state_dict()
    assert {n for n in after if not torch.equal(before[n], after[n])} == trained.keys()


@pytest.mark.parametrize("name", ["bert", "lora"])
def test_raw_sentences_are_predicted_and_the_run_is_loaded_and_exported(name: str, tmp_path: Path):
    result = train("fedavg", name, precision="fp32", out=tmp_path / "run")
    shares = result.predict_proba(tokens())
    with torch.no_grad():
        logits = result.model(**tokens()).logits
    assert torch.allclose(torch.softmax(logits, 1), torch.as_tensor(shares), atol=1e-6)
    again = holdfast.load_run(tmp_path / "run", model=MODELS[name][0])
    assert (again.predict_proba(tokens()) == shares).all()
    result.export(tmp_path / "model", "torch")
    program = torch.export.load(tmp_path / "model" / "model.pt2").module()
    assert torch.allclose(program(*tokens().values()), logits, atol=1e-5)


def test_statistics_of_a_resnet_are_averaged_and_loaded():
    result = train("fedavg", "resnet")
    counters = {n: int(t) for n, t in result.state_dict().items() if n.endswith("num_batches_tracked")}
    assert counters
    assert all(n > 0 for n in counters.values())
    x = images(32).data.x
    with torch.no_grad():
        logits = result.model(result.prepare(x)).logits
    assert (result.predict(x) == logits.argmax(1).numpy()).all()

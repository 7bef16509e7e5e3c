"""LoRA on a small BERT of Hugging Face, on made-up sentences: only the low-rank corrections and the head travel.

    pip install transformers peft

A pretrained model is used in the same way: ``BertForSequenceClassification.from_pretrained(..., num_labels=2)``, with
the ``input_ids`` and the ``attention_mask`` of its tokenizer.
"""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import holdfast

ROUNDS = 20
WORDS = ["[PAD]", "the", "food", "was", "service", "and", "good", "great", "lovely", "bad", "poor", "awful"]
GOOD, BAD = (6, 7, 8), (9, 10, 11)


def sentences(n: int = 600, length: int = 8) -> tuple[dict[str, Tensor], list[str]]:
    """Make reviews of different lengths, each with one word of praise or of blame."""
    torch.manual_seed(0)
    ids = torch.randint(1, 6, (n, length))
    positive = torch.arange(n) % 2 == 0
    word = torch.where(positive, torch.tensor(GOOD)[torch.randint(3, (n,))], torch.tensor(BAD)[torch.randint(3, (n,))])
    ends = torch.randint(3, length + 1, (n,))
    ids[torch.arange(n), ends - 1] = word
    mask = (torch.arange(length) < ends[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, ["good" if p else "bad" for p in positive]


def model() -> nn.Module:
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=8, num_labels=2,
    )  # fmt: skip
    corrections = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    return get_peft_model(BertForSequenceClassification(config), corrections)


def main(rounds: int = ROUNDS) -> holdfast.Result:
    x, y = sentences()
    federation = holdfast.federate(holdfast.from_arrays(x, y), "dirichlet(0.3)", clients=10)
    result = holdfast.run("fedavg", federation, model, rounds=rounds, cohort=5, lr=0.01, optimizer="adam")
    whole = sum(p.numel() for p in result.model.parameters())
    print(f"trained {result.w.numel():,} of {whole:,} parameters; accuracy {result.score.accuracy:.3f}")
    for ids, number in zip(x["input_ids"][:4], result.predict(x)[:4], strict=True):
        print(f"{' '.join(WORDS[i] for i in ids if i):45} {result.classes[number]}")
    return result


if __name__ == "__main__":
    main()

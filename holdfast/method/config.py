"""One validated description of a run: everything needed to run it again."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.params import Named, param


@dataclass(frozen=True)
class Config(Named):
    """The fields are the flags of ``holdfast run``; each default lives here and nowhere else."""

    name = "run"

    method: str = param("fedavg", "the method: a sum of parts, such as fedbug(0.4)+feddyn(0.01)")
    data: str = param("digits", "the data set (see: holdfast data list)")
    data_dir: str | None = param(None, "folder of the data sets; default: $HOLDFAST_DATA or the user's cache")
    split: str = param("dirichlet(0.3)", "how the data is dealt: iid, dirichlet(0.3), shards(2), ...; sums allowed")
    clients: int = param(20, "clients of the federation", low=1)
    cohort: int | None = param(None, "clients per round; default: a quarter of them, but 2 to 10", low=1)
    participation: float | None = param(
        None,
        "instead of --cohort: each client takes part with this probability, at least one does",
        above=0,
        high=1,
    )
    model: str = param("mlp", "the network: linear, mlp, cnn, ...")
    head: str | None = param(None, "name of the model's last linear layer; default: found")
    epochs: int | None = param(None, "passes over its data that a client makes in a round; default: 5", low=1)
    steps: int | None = param(None, "instead of --epochs: local steps in a round", low=1)
    batch: int = param(32, "samples in a local step", low=1)
    lr: float = param(0.1, "local learning rate", above=0)
    lr_decay: float = param(1.0, "factor on the learning rate after every round", above=0, high=1)
    weight_decay: float = param(0.0, "adds decay(...) at the end of the sum", low=0)
    clip: float | None = param(None, "adds clip(...) behind the parts of the sum", above=0)
    server_lr: float = param(1.0, "server learning rate", above=0)
    rounds: int = param(30, "rounds of communication", low=1)
    seed: int = param(0, "seed of everything random", low=0, high=2**32 - 1)
    public: float | str = param(
        0.0, "public data: a fraction of the training data, held out of it; or test", low=0, below=1, choices=("test",)
    )
    augment: bool = param(False, "random crop and flip of images, on the device")
    personal: int = param(0, "epochs in which every client tunes its own copy after the last round; 0: none", low=0)
    personal_what: str = param("head", "what it tunes", choices=("head", "all"))
    eval_every: int = param(1, "evaluate every so many rounds (and after the last)", low=1)
    drift: bool = param(False, "measure how the clients drift apart, in every evaluated round")
    track: str | None = param(None, "log every round live for a tracker", choices=("tensorboard", "mlflow"))
    checkpoint_every: int = param(1, "write a checkpoint every so many rounds (and after the last)", low=1)
    states: str = param("memory", "where the clients' states are kept between rounds", choices=("memory", "disk"))
    engine: str = param("auto", "who trains the cohort", choices=("auto", "loop", "vector", "flower"))
    slice: int | None = param(None, "clients trained at once by the vector engine; default: what fits", low=1)
    workers: int | None = param(
        None, "clients trained side by side by the loop engine; default: a core each for convolutions on a CPU", low=1
    )
    graphs: bool = param(True, "on a GPU, capture the local step as a CUDA graph")
    compile: bool | None = param(None, "compile the vector engine's step; default: on a GPU, and in long runs")
    convolution: str = param(
        "auto",
        "how the vector engine computes convolutions; auto: as products on a GPU",
        choices=("auto", "direct", "product"),
    )
    device: str = param("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    precision: str = param("fp32", "arithmetic of the local training", choices=("fp32", "tf32", "bf16", "fp64"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort is not None and self.participation is not None:
            raise HoldfastError("cohort and participation exclude each other: give one of them")
        if self.epochs is not None and self.steps is not None:
            raise HoldfastError("epochs and steps exclude each other: give one of them")
        if self.cohort is not None and self.cohort > self.clients:
            raise HoldfastError(f"cohort {self.cohort} is larger than the {self.clients} clients of the federation")

    @property
    def cohort_size(self) -> int:
        """Clients per round where their number is fixed; the expected number under ``participation``."""
        if self.participation is not None:
            return max(1, round(self.participation * self.clients))
        return self.cohort or min(self.clients, max(2, min(10, self.clients // 4)))

    @property
    def passes(self) -> int:
        """Local epochs of a round; a round of so many ``steps`` counts as one."""
        return 1 if self.steps is not None else self.epochs or 5

    def evaluates(self, t: int) -> bool:
        """Whether the model is evaluated after round ``t``."""
        return t % self.eval_every == 0 or t == self.rounds

    def changed(self, **values: Any) -> Config:
        """The same run with other values; an unknown name is an error."""
        for name in values:
            if name not in FIELDS:
                raise unknown("setting", name, FIELDS)
        return replace(self, **values)

    def to_toml(self) -> str:
        """As a TOML file; what is not set is left out."""
        return "".join(f"{k} = {toml(v)}\n" for k, v in asdict(self).items() if v is not None)


def toml(value: Any) -> str:
    """A value as TOML has it: as JSON has it, but for surrogate pairs and DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


FIELDS = {f.name: f for f in fields(Config)}


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, as they stand there."""
    try:
        text = path.read_text(encoding="utf-8")
        values: Mapping[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise HoldfastError(f"cannot read the config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HoldfastError(f"the config {path} is not TOML: {error}") from error
    for name in values:
        if name not in FIELDS:
            raise unknown(f"setting in {path}", name, FIELDS)
    return dict(values)


def from_text(name: str, text: str, known: Mapping[str, Field[Any]] = FIELDS) -> Any:
    """A setting's value from ``--set name=text``, in the type of the field."""
    if name not in known:
        raise unknown("setting", name, known)
    kind = str(known[name].type)
    if "None" in kind and text.lower() in ("none", ""):
        return None
    if kind.startswith("bool"):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return words.get(text.lower(), text)
    try:
        if kind.startswith("int"):
            return int(text)
        if kind.startswith("float"):
            return text if text in known[name].metadata["choices"] else float(text)
    except ValueError:
        return text  # the check of the field says what is wrong
    return text

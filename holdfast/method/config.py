"""The description of a run: every setting with its default, its meaning, its range and its roles."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from holdfast.core.errors import HoldfastError, unknown
from holdfast.core.params import Named, param
from holdfast.data.usual_split import GIVEN, USUAL_CLIENTS, USUAL_SPLIT
from holdfast.method.lr_schedule import ConstantRate, ExponentialRate, LrSchedule, read_schedule

# What a setting can be to the rest of the library. A setting states its roles where it is declared.
ROLES = {
    "federation": "decides who holds which samples",
    "cohort": "decides who takes part in a round",
    "place": "says where and how a run is computed, not what is computed",
    "free": "may differ whenever a run is resumed, since it changes no number",
    "extends": "may be changed when a single run is resumed, since it concerns the rounds to come",
    "decided": "is decided when the run starts if it is left open, and stored as decided",
    "simulation": "has no meaning on several machines",
    "node": "is decided by each node of a deployment for itself",
    "named data": "has no meaning if the nodes bring their own data",
    "headline": "is named by every table of a comparison",
    "setup": "is shown by every page, even if it is the default",
    "recorded": "is written by the library, not by users: it has no flag and is left out of tables",
    "repeated": "is a list, whose flag is given once for each item",
    "tunable": "decides how the model is trained on the same data for the same rounds, so that it may be searched",
}


@dataclass(frozen=True)
class Config(Named):
    """All settings of a run. They are the flags of ``holdfast run``; each default lives here and nowhere else."""

    name = ""  # errors name the setting alone: many commands have it

    method: str = param(
        "fedavg", "method: a sum of parts, such as fedbug(0.4)+feddyn(0.01)", not_swept="list several methods"
    )
    data: str = param(
        "digits",
        "data set (see: holdfast data list)",
        roles=("federation", "headline"),
        not_swept="make one comparison per data set",
    )
    data_dir: str | None = param(
        None,
        "folder of the data sets; default: $HOLDFAST_DATA or the user's cache",
        roles=("federation", "place", "free", "node", "named data"),
        not_swept="make one comparison per data set",
    )
    split: str | None = param(
        None,
        "how the data is split among the clients: iid, dirichlet(0.3), shards(2), ... or a sum of these; default: "
        f"{GIVEN} for data that brings clients, else {USUAL_SPLIT}",
        roles=("federation", "headline", "named data", "decided"),
    )
    clients: int | None = param(
        None,
        f"number of clients; default: those that the data brings, else {USUAL_CLIENTS}",
        low=1,
        roles=("federation", "headline", "decided"),
    )
    cohort: int | None = param(
        None, "clients per round; default: a quarter of all, from 2 to 10", low=1, roles=("cohort", "headline")
    )
    participation: float | None = param(
        None,
        "instead of --cohort: the probability with which each client takes part; empty rounds are drawn again",
        above=0,
        high=1,
        roles=("cohort",),
    )
    task: str | None = param(
        None,
        "task: classification, multilabel, regression, next-token or your own; default: follows from the data",
        roles=("federation",),
        not_swept="make one comparison per task",
    )
    model: str = param("mlp", "network: linear, mlp, cnn, ... (see: holdfast models)", roles=("headline",))
    head: str | None = param(None, "name of the model's last linear layer; default: detected automatically")
    batchnorm: str = param(
        "average",
        "BatchNorm: average its statistics, keep the layers local to each client (FedBN), or leave statistics frozen",
        choices=("average", "local", "frozen"),
        roles=("tunable",),
    )
    epochs: int | str | None = param(
        None,
        "local epochs per round; 2-5: drawn for each client and round; default: 5",
        low=1,
        ranges=True,
        roles=("setup", "tunable"),
        search=(1, 20, "log"),
    )
    steps: int | None = param(None, "instead of --epochs: local steps per round", low=1, roles=("tunable",))
    batch: int = param(32, "samples per local step", low=1, roles=("setup", "tunable"), search=(8, 128, "log"))
    lr: float = param(0.1, "local learning rate", above=0, roles=("setup", "tunable"), search=(1e-3, 1, "log"))
    lr_decay: float = param(
        1.0,
        "short for --lr-schedule exponential(X): factor on the learning rate after every round",
        above=0,
        high=1,
        roles=("tunable",),
    )
    lr_schedule: str = param(
        "constant",
        "learning rate over rounds: constant, exponential(0.998), step(100, 0.1), cosine; all with warmup=W",
        roles=("tunable",),
    )
    weight_decay: float = param(0.0, "weight decay: adds decay(...) at the end of the sum", low=0, roles=("tunable",))
    clip: float | None = param(
        None, "gradient clipping: adds clip(...) after the parts of the sum", above=0, roles=("tunable",)
    )
    optimizer: str | None = param(
        None,
        "local optimiser: momentum(0.9), adam, adamw, ... is added to the sum; default: sgd",
        roles=("tunable",),
    )
    server_lr: float = param(1.0, "server learning rate", above=0, roles=("tunable",))
    max_weight: float | None = param(
        None,
        "largest share of one client in a mean, whatever number of samples it claims; default: 1 in simulation, 0.5 in "
        "a deployment",
        above=0,
        high=1,
        roles=("decided",),
    )
    attack: str | None = param(
        None,
        "clients that lie, to see what a method withstands: sign_flip(0.2), label_flip(0.2), ... (see docs/robust.md)",
        roles=("simulation",),
    )
    client_speeds: str | None = param(
        None,
        "how fast the clients and their links are and when they are there, on a virtual clock: lognormal(1000), or a "
        "file (see docs/slow_clients.md)",
        roles=("simulation",),
    )
    deadline: float | None = param(
        None, "with --client-speeds: seconds after which a round ends", above=0, roles=("simulation",)
    )
    late: str = param(
        "drop",
        "with --deadline: drop the work of clients that would be late, or keep what they have by then",
        choices=("drop", "keep"),
        roles=("simulation",),
    )
    epsilon: float | None = param(
        None,
        "with dp: the most that the models of all rounds may reveal about a client; its noise follows from it",
        above=0,
        roles=("extends", "headline"),
    )
    delta: float = param(
        1e-5, "with dp: the probability with which epsilon need not hold", above=0, below=1, roles=("setup",)
    )
    rounds: int = param(30, "number of rounds", low=1, roles=("extends", "headline"))
    seed: int = param(
        0,
        "seed of all random numbers",
        low=0,
        high=2**32 - 1,
        roles=("federation",),
        not_swept="use --seeds and --first-seed",
    )
    split_seed: int | None = param(
        None,
        "seed of the split, of its noise and of all held-out data; default: seed",
        low=0,
        high=2**32 - 1,
        roles=("federation", "decided", "setup"),
    )
    validation: float = param(
        0.0,
        "fraction of the training data to hold out, by which everything is chosen",
        low=0,
        below=1,
        roles=("federation", "setup"),
        not_swept="make one comparison per fraction",
    )
    validation_from: str = param(
        "clients",
        "hold validation data out of every client's data, or out of the pool before the split",
        choices=("clients", "pool"),
        roles=("federation", "named data"),
    )
    stop_after: int | None = param(
        None, "stop early: after N evaluations without a better validation score", low=1, roles=("extends",)
    )
    metric: str | None = param(
        None,
        "metric that tables, targets and choices go by (see docs/scores.md); default: the task's",
        not_swept="a comparison goes by one metric: use --metric",
    )
    class_weights: str = param(
        "none", "weights of the classes in the loss; balanced: rare classes count as much as frequent ones",
        choices=("none", "balanced"), roles=("tunable",),
    )  # fmt: skip
    pos_weight: float | str | None = param(
        None,
        "weight of positives in the loss: of labels, or of the second of two classes; balanced: negatives per positive",
        above=0,
        choices=("balanced",),
        roles=("tunable",),
    )
    client_eval: bool = param(
        False, "score the model on every client's own test samples in every evaluated round", roles=("federation",)
    )
    client_test: float = param(
        0.2,
        "with --client-eval: fraction of every client's samples to hold out as its test samples, if it has none",
        above=0,
        below=1,
        roles=("federation",),
    )
    public: float | str = param(
        0.0,
        "public data for the server: a fraction of the training data to hold out, or 'test'",
        low=0,
        below=1,
        choices=("test",),
        roles=("federation", "named data"),
    )
    augment: bool | str = param(
        False,
        "augment training images: a sum such as crop(4, padding=reflect)+flip(0.5); alone: standard",
        words=("none", "standard"),
        roles=("federation",),
    )
    augment_public: bool | str = param(
        "same",
        "augment public data; same: as the clients' data where clients train on it, otherwise not at all",
        words=("none", "standard"),
        roles=("federation",),
    )
    personal: int = param(
        0,
        "after the last round, epochs in which each client fine-tunes its own copy; 0: none",
        low=0,
        roles=("extends",),
    )
    personal_what: str = param("head", "what a client fine-tunes", choices=("head", "all"), roles=("extends",))
    eval_every: int = param(1, "evaluate every N rounds, and after the last", low=1)
    drift: bool = param(False, "measure client drift in every evaluated round", roles=("extends",))
    track: str | None = param(
        None, "log every round to a tracker", choices=("tensorboard", "mlflow", "wandb"), roles=("place", "free")
    )
    checkpoint_every: int = param(
        1, "write a checkpoint every N rounds, and after the last", low=1, roles=("place", "free")
    )
    states: str = param(
        "memory", "where client states are kept between rounds", choices=("memory", "disk"), roles=("place", "free")
    )
    engine: str = param(
        "auto",
        "engine that trains the cohort",
        choices=("auto", "loop", "vector", "flower"),
        roles=("place", "simulation", "setup"),
    )
    slice: int | None = param(
        None,
        "clients that the vector engine trains at a time; default: as many as fit in memory",
        low=1,
        roles=("place",),
    )
    step_rows: int | None = param(
        None,
        "rows of a compiled or captured step, in which clients take turns; default: by the clients' numbers of steps",
        low=1,
        roles=("place", "free", "decided"),
    )
    workers: int | None = param(
        None,
        "clients to train in parallel on a CPU (of dense models: groups of them); default: one per busy core",
        low=1,
        roles=("place", "free"),
    )
    graphs: bool = param(True, "on a GPU, capture the local step as a CUDA graph", roles=("place",))
    compile: bool | None = param(
        None, "compile the vector engine's step; default: on a GPU and in long runs", roles=("place", "decided")
    )
    convolution: str = param(
        "auto",
        "how the vector engine computes convolutions; auto: on a GPU from windows in place, by fixed rules, or as "
        "matrix products",
        choices=("auto", "direct", "product", "window"),
        roles=("place", "decided"),
    )
    device: str = param(
        "auto", "device to compute on", choices=("auto", "cpu", "cuda", "cuda:N", "mps"), roles=("place", "node")
    )
    precision: str = param("fp32", "precision of local training", choices=("fp32", "tf32", "bf16", "fp64"))
    imports: str | None = param(
        None, "Python file with parts, splits, models or data sets to use by name; repeatable", roles=("repeated",),
        not_swept="import all files",
    )  # fmt: skip
    files: str | None = param(
        None,
        "every file of code that the run uses: its name, its checksum and where it is, a line each",
        roles=("place", "free", "recorded"),
        not_swept="it is recorded",
    )
    normalisation: str | None = param(
        None,
        "where the mean and standard deviation of inputs come from: published, federated, pooled or off",
        roles=("place", "free", "recorded"),
        not_swept="the data decides it",
    )
    speeds_checksum: int | None = param(
        None,
        "the checksum of the file of client speeds, as it was when the run started",
        low=0,
        roles=("recorded",),
        not_swept="it is recorded",
    )
    noise_multiplier: float | None = param(
        None,
        "the noise that epsilon needs, as it was found when the run started",
        low=0,
        roles=("recorded",),
        not_swept="it is recorded",
    )
    ran_on: str | None = param(
        None,
        "the device on which the run was last started or resumed, as its machine names it: cpu, cuda:0, ...",
        roles=("place", "free", "recorded"),
        not_swept="it is recorded",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cohort is not None and self.participation is not None:
            raise HoldfastError("cohort and participation cannot be used together: set one of them")
        if self.class_weights != "none" and self.pos_weight is not None:
            raise HoldfastError("class_weights and pos_weight cannot be used together: set one of them")
        if self.client_test != FIELDS["client_test"].default and not self.client_eval:
            raise HoldfastError("client_test has no effect without client_eval: add --client-eval, or leave it out")
        if self.deadline is not None and self.client_speeds is None:
            raise HoldfastError("deadline has no effect without client_speeds: add --client-speeds, or leave it out")
        if self.late != FIELDS["late"].default and self.deadline is None:
            raise HoldfastError("late has no effect without deadline: add --deadline, or leave it out")
        if self.device == "mps" and self.precision in ("fp64", "tf32"):
            raise HoldfastError(f"device mps has no {self.precision}: leave precision out, or use the device cpu")
        if self.epochs is not None and self.steps is not None:
            raise HoldfastError("epochs and steps cannot be used together: set one of them")
        if read_schedule(self.lr_schedule) != ConstantRate() and self.lr_decay != 1:
            raise HoldfastError("lr_schedule and lr_decay cannot be used together: set one of them")
        if self.cohort is not None and self.clients is not None and self.cohort > self.clients:
            raise HoldfastError(
                f"cohort {self.cohort} is larger than the number of clients, {self.clients}: lower cohort"
            )

    @property
    def client_count(self) -> int:
        """The number of clients; the usual number until the data has decided."""
        return USUAL_CLIENTS if self.clients is None else self.clients

    @property
    def deal_seed(self) -> int:
        """The seed of the federation: of the split, its noise and all held-out data. All else follows ``seed``."""
        return self.seed if self.split_seed is None else self.split_seed

    @property
    def cohort_size(self) -> int:
        """The number of clients per round where it is fixed; its expectation under ``participation``."""
        if self.participation is not None:
            return max(1, round(self.participation * self.client_count))
        return self.cohort or min(self.client_count, max(2, min(10, self.client_count // 4)))

    @property
    def epoch_range(self) -> tuple[int, int]:
        """The fewest and the most local epochs of a round. A round of ``steps`` counts as one epoch."""
        if self.steps is not None:
            return 1, 1
        low, _, high = str(self.epochs or 5).partition("-")
        return int(low), int(high or low)

    @property
    def passes(self) -> int:
        """The most local epochs of a round."""
        return self.epoch_range[1]

    @property
    def schedule(self) -> LrSchedule:
        """The learning-rate schedule, however it is set."""
        return ExponentialRate(self.lr_decay) if self.lr_decay != 1 else read_schedule(self.lr_schedule)

    def lr_of_round(self, t: int) -> float:
        """Return the nominal learning rate of round ``t`` = 1, 2, ..."""
        return self.lr * self.schedule.at(t, self.rounds)

    def evaluates(self, t: int) -> bool:
        """Tell whether the model is evaluated after round ``t``."""
        return t % self.eval_every == 0 or t == self.rounds

    def changed(self, **values: Any) -> Config:
        """Return this config with other values; an unknown name is an error."""
        for name in values:
            if name not in FIELDS:
                raise unknown("setting", name, FIELDS)
        return replace(self, **values)

    def set_values(self) -> dict[str, Any]:
        """Return the settings that have a value, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


FIELDS = {f.name: f for f in fields(Config)}
# Settings that stand for a part: the part is added after the method's own, in this order.
FLAG_PARTS = {"clip": "clip", "weight_decay": "decay"}
# Settings of which a later choice replaces the other one.
RIVALS = (("cohort", "participation"), ("epochs", "steps"), ("lr_decay", "lr_schedule"))


def with_role(*roles: str) -> tuple[str, ...]:
    """Return the names of all settings that have one of these roles, in the order of the config.

    >>> with_role("cohort")
    ('cohort', 'participation')
    """
    for role in roles:
        if role not in ROLES:
            raise ValueError(f"{role} is not a role of a setting: {', '.join(ROLES)}")
    return tuple(name for name, f in FIELDS.items() if {*roles} & {*f.metadata["roles"]})


def changed_settings(config: Config, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the settings that differ from their defaults, except those in ``without``."""
    return {
        f.name: getattr(config, f.name)
        for f in fields(config)
        if f.name not in without and getattr(config, f.name) != f.default
    }


def lasting_settings(config: Config, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return changed settings as all versions count them, for checksums and for names of folders.

    What is usual for a split and for the number of clients was once their default. The seed of the split was the seed.
    """
    usual = {"split": USUAL_SPLIT, "clients": USUAL_CLIENTS, "split_seed": config.seed}
    changed = changed_settings(config, without)
    if "device" in changed:
        changed["device"] = device_kind(config.device)
    return {name: value for name, value in changed.items() if name not in usual or value != usual[name]}


def device_kind(name: str) -> str:
    """Return the kind of a device: ``cuda`` for each GPU. Which of them it is changes no number.

    >>> device_kind("cuda:1")
    'cuda'
    """
    return name.partition(":")[0]

"""Bad input: one line on stderr that says what is wrong, exit code 2, and nothing written or overwritten."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import holdfast
from helpers.commands import TINY, call, config, facts, files, good, lines, refused
from holdfast import HoldfastError

FAST = TINY[:-1]  # progress may be shown: an error is one line all the same


pytestmark = pytest.mark.usefixtures("elsewhere")


# -- names --------------------
@pytest.mark.parametrize(
    ("args", "name", "near"),
    [
        (("run", "fedprx"), "fedprx", "fedprox"),
        (("run", "fedbug+scafold"), "scafold", "scaffold"),
        (("run", "fedavg", "--split", "dirichle(0.3)"), "dirichle", "dirichlet"),
        (("run", "fedavg", "--data", "digit"), "digit", "digits"),
        (("run", "fedavg", "--model", "mpl"), "mpl", "mlp"),
        (("methods", "fedbag"), "fedbag", "fedbug"),
        (("methods", "scafold", "--json"), "scafold", "scaffold"),
        (("split", "--split", "shard(2)"), "shard", "shards"),
        (("split", "--data", "digts"), "digts", "digits"),
        (("rum", "fedavg"), "rum", "run"),
        (("run", "fedavg", "--set", "batsh=3"), "batsh", "batch"),
        (("run", "fedavg", "--round", "3"), "--round", "--rounds"),
        (("run", "prox(nu=1)"), "nu", "mu"),
        (("run", "fedavg", "--split", "dirichlet(alfa=1)"), "alfa", "alpha"),
        (("run", "fedavg", "--model", "mlp(widht=3)"), "widht", "width"),
    ],
)
def test_unknown_name_with_the_nearest(args: tuple[str, ...], name: str, near: str):
    message = refused(*args)
    assert name in message
    assert near in message.replace(name, "", 1)


def test_a_name_like_no_other_lists_all():
    assert "fedbug" in refused("methods", "zzzzzz")


# -- values --------------------
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("fedbug(unit=stage)",), "stage layer"),  # the model has no stages
        (("fedavg", "--split", "dirichlet(-1)"), "dirichlet alpha -1"),
        (("fedavg", "--split", "dirichlet"), "dirichlet alpha"),
        (("fedavg", "--split", "dirichlet(0.5, balanced=2)"), "balanced 2"),
        (("fedavg", "--split", "shards(1000)"), "shards 1438"),
        (("fedavg", "--split", "shards(0)"), "shards 0"),
        (("fedavg", "--split", "iid+shards(2)"), "iid shards"),
        (("fedavg", "--clients", "0"), "clients 0"),
        (("fedavg", "--cohort", "30"), "cohort 30 6"),
        (("fedavg", "--cohort", "0"), "cohort 0"),
        (("fedavg", "--participation", "0.5"), "cohort participation"),
        (("fedavg", "--set", "cohort=none", "--participation", "1.5"), "participation 1.5"),
        (("fedavg", "--set", "cohort=none", "--participation", "0"), "participation 0"),
        (("fedavg", "--lr", "0"), "lr 0"),
        (("fedavg", "--lr", "-1"), "lr -1"),
        (("fedavg", "--lr", "nan"), "lr nan"),
        (("fedavg", "--lr", "inf"), "lr inf"),
        (("fedavg", "--lr", "fast"), "lr fast"),
        (("fedavg", "--lr-decay", "0"), "lr_decay 0"),
        (("fedavg", "--weight-decay", "-1"), "weight_decay -1"),
        (("fedavg", "--clip", "0"), "clip 0"),
        (("fedavg", "--server-lr", "0"), "server_lr 0"),
        (("fedavg", "--rounds", "0"), "rounds 0"),
        (("fedavg", "--rounds", "many"), "rounds many"),
        (("fedavg", "--rounds", "1.5"), "rounds 1.5"),
        (("fedavg", "--batch", "0"), "batch 0"),
        (("fedavg", "--epochs", "0"), "epochs"),
        (("fedavg", "--steps", "0"), "steps 0"),
        (("fedavg", "--eval-every", "0"), "eval_every 0"),
        (("fedavg", "--checkpoint-every", "0"), "checkpoint_every 0"),
        (("fedavg", "--seed", "-1"), "seed -1"),
        (("fedavg", "--seed", str(2**32)), "seed 4294967295"),
        (("fedavg", "--public", "1"), "public 1"),
        (("fedavg", "--slice", "0"), "slice 0"),
        (("fedavg", "--engine", "fast"), "engine fast loop vector auto"),
        (("fedavg", "--device", "tpu"), "device tpu cpu cuda auto"),
        (("fedavg", "--precision", "fp16"), "precision fp16 fp32 bf16"),
        (("fedavg", "--head", "neck"), "neck head"),
        (("fedavg", "--model", "mlp(0)"), "mlp width 0"),
        (("fedavg", "--model", "mlp+linear"), "mlp+linear"),
        (("fedavg", "--model", "vgg11(1, 2, 3, 4, 5)"), "vgg11"),
        (("fedavg", "--set", "lr"), "lr key=value"),
        (("fedavg", "--set", "augment=maybe"), "augment maybe"),
        (("fedavg", "--data", "mnist", "--data-dir", "nowhere"), "mnist nowhere"),
        (("fedavg", "twice"), "twice"),
        (("fedavg", "--resume"), "--resume --out"),
        (("fedavg", "--resume", "--overwrite", "--out", "x"), "--resume --overwrite"),
        (("fedavg", "--resume", "--out", "nothing"), "nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_setting(args: tuple[str, ...], words: str):
    message = refused("run", *FAST, *args)
    for word in words.split():
        assert word in message


@pytest.mark.parametrize(
    "args",
    [
        ("split", "--clients", "0"), ("split", "--split", "shards(2)", "--clients", "5000"), ("split", "--seed", "x"),
        ("split", "--png", "no/such/folder.png"), ("split", "--png", "picture.xyz"), ("models", "--shape", "8by8"),
        ("models", "--shape", "0x8x8"), ("models", "--classes", "0"), ("methods", "fedavg", "prox"),
        ("run", "--nosuch"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_arguments_of_the_other_commands(args: tuple[str, ...]):
    refused(*args)


# -- methods --------------------
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("fedbug(1.7)",), "fedbug: share must be a number in [0, 1], not 1.7"),
        (("fedbug(-0.1)",), "fedbug: share must be a number in [0, 1], not -0.1"),
        (("fedbug(nan)",), "fedbug: share must be a number in [0, 1], not nan"),
        (("fedbug(true)",), "fedbug: share must be a number in [0, 1], not true"),
        (("fedbug(unit=stag)",), "fedbug: unit must be one of layer, stage, block, not stag"),
        (("feddyn(0)",), "feddyn: alpha must be a number above 0, not 0"),
        (("fedavgm(1)",), "fedavgm: beta must be a number in [0, 1), not 1"),
        (("mean(weights=3)",), "mean: weights must be one of samples, uniform, not 3"),
        (("fedavg(1)",), "fedavg takes no parameters: write fedavg alone"),
        (("scaffold(1)",), "scaffold: 1 argument given, but it takes none"),
        (("prox(mu=0.1, mu=0.2)",), "cannot read 'prox(mu=0.1, mu=0.2)': mu is given twice; keep one of them"),
        (("prox(0.1, mu=0.2)",), "prox: mu is given twice; keep one of them"),
        (("momentum(0.1)",), "unknown method 'momentum': it is now called fedcm"),
        (("sam+momentum",), "unknown method 'momentum': it is now called fedcm"),
        (
            ("fedadam", "--server-lr", "0.5"),
            "--server-lr 0.5 has no effect: fedadam makes the server step itself; leave the flag out "
            "(see: holdfast methods fedadam)",
        ),
        (("clip(3)", "--clip", "2"), "clip appears twice in the sum: keep one of them"),
        (("nova+normalized",), "nova and normalized cannot be summed: both aggregate the cohort; keep one of them"),
        (("fednova+mean(uniform)",), "nova and mean cannot be summed: both aggregate the cohort; keep one of them"),
        (("fedavgm+fedadam",), "fedavgm and fedadam cannot be summed: both make the server step; keep one of them"),
        (("feddyn+fedexp",), "feddyn and fedexp cannot be summed: both make the server step; keep one of them"),
        (("prox+prox(0.1)",), "prox appears twice in the sum: keep one of them"),
        (("fedcm+mofedsam",), "fedcm appears twice in the sum: keep one of them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_method(args: tuple[str, ...], message: str):
    assert refused("run", *FAST, *args) == f"holdfast: {message}\n"


def test_a_renamed_method_is_answered_with_its_new_name():
    assert refused("methods", "momentum") == "holdfast: unknown method 'momentum': it is now called fedcm\n"


@pytest.mark.parametrize(
    "text",
    [
        "fedbug(", "fedbug)", "a++b", "fedbug(0.4", "", " ", "+", "fedbug+", "+fedbug", "fedbug(0.4, 0.5, 0.6, 0.7)",
        "prox(mu=0.1, mu=0.2)", "prox(0.1, mu=0.2)", "prox(mu=)", "prox(=1)", "prox(mu=0.1, 0.2)", "prox(,)",
        "prox(0.1 0.2)", "prox[0.1]", "prox(0.1))", "prox(1..2)", "prox('0.1)", "3", "prox 0.1", "prox-", "prox;sam",
        "prox(\n", "prox(0x10)", "prox(1e999)", "f" * 3000, "prox(" + "9" * 5000 + ")", "prox(" + "[" * 5000,
    ],
    ids=lambda text: repr(text[:26]),
)  # fmt: skip
@pytest.mark.parametrize("flag", ["method", "--split", "--data", "--model"])
def test_malformed_expression(text: str, flag: str):
    args = (text,) if flag == "method" else ("fedavg", flag, text)
    assert len(refused("run", *FAST, "--", *args) if flag == "method" else refused("run", *FAST, *args)) < 4000


# -- the config file --------------------
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = ", "my.toml TOML"),
        ("lr = 0.1\nlr = 0.2", "TOML"),
        ("learning_rate = 1", "learning_rate lr"),
        ("[lr]\nx = 1", "lr"),
        ('lr = "fast"', "lr fast"),
        ("rounds = true", "rounds true"),
        ("rounds = 2.5", "rounds 2.5"),
        ("rounds = 2024-01-01", "rounds"),
        ("method = 3", "method"),
        ("method = ['prox']", "method"),
        ("augment = 1", "augment"),
        ("cohort = 2\nparticipation = 0.5", "cohort participation"),
        ("\0", "TOML"),
        (b"\xff\xfe", "TOML"),
    ],
    ids=repr,
)
def test_bad_config_file(text: str | bytes, words: str):
    Path("my.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    message = refused("run", "--config", "my.toml")
    for word in words.split():
        assert word in message


def test_config_file_that_is_not_there():
    assert "absent.toml" in refused("run", "--config", "absent.toml")
    assert "here" in (Path("here").mkdir() or refused("run", "--config", "here"))


# -- the output folder --------------------
def test_a_finished_run_is_not_overwritten():
    good("run", "fedavg", *TINY, "--out", "here")
    for method in ("fedavg", "prox"):
        message = refused("run", method, *FAST, "--out", "here")
        assert all(word in message for word in ("here", "finished", "--resume", "--overwrite"))


def test_an_unfinished_run_is_not_overwritten():
    good("run", "fedavg", *TINY, "--out", "here")
    Path("here/summary.json").unlink()
    message = refused("run", "fedavg", *FAST, "--out", "here")
    assert all(word in message for word in ("here", "--resume", "--overwrite"))
    assert "finished" not in message.replace("unfinished", "")


@pytest.mark.parametrize("extra", [(), ("--overwrite",)])
def test_a_folder_of_other_things_is_left_alone(extra: tuple[str, ...]):
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("years")
    assert "mine" in refused("run", "fedavg", *FAST, "--out", "mine", *extra)


def test_overwriting_leaves_what_is_not_ours():
    good("run", "fedavg", *TINY, "--out", "here")
    Path("here/notes.txt").write_text("mine")
    good("run", "fedavg", *TINY, "--out", "here", "--overwrite")
    assert Path("here/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("out", ["file", "file/below"])
@pytest.mark.parametrize("extra", [(), ("--overwrite",), ("--resume",)])
def test_a_file_is_no_folder(out: str, extra: tuple[str, ...]):
    Path("file").write_text("mine")
    assert "file" in refused("run", "fedavg", *FAST, "--out", out, *extra)


def test_a_start_that_was_cut_off_does_not_block_the_folder():
    """Killed before the config was written: only an empty history is there."""
    good("run", "fedavg", *TINY, "--out", "here")
    Path("here/config.toml").unlink()
    Path("here/summary.json").unlink()
    shutil.rmtree("here/checkpoint")
    Path("here/history.jsonl").write_text("")
    good("run", "fedavg", *TINY, "--out", "here", "--overwrite")


def test_an_error_in_a_real_process_is_one_line():
    command = [Path(sys.executable).with_name("holdfast"), "run", "fedbug(1.7)"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.count("\n") == 1
    assert not files()


# -- damage --------------------
@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds with states at clients; two of six clients are drawn in a round."""
    folder = tmp_path_factory.mktemp("sound") / "run"
    good("run", "scaffold", *TINY, "--rounds", "4", "--out", str(folder))
    return folder


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(sound, tmp_path / "run")
    return Path("run")


def named(folder: Path, round: int) -> set[str]:
    """The files that a checkpoint names."""
    manifest = json.loads((folder / f"checkpoint/round-{round:06d}.json").read_text())
    return {*manifest["server"], *manifest["clients"]}


def fresh(folder: Path) -> Path:
    """A client's file that only the newest checkpoint names."""
    return folder / "checkpoint" / min(n for n in named(folder, 4) - named(folder, 3) if "client" in n)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def truncate_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def not_json(path: Path) -> None:
    path.write_text("{" + path.read_text())


def without_round(path: Path) -> None:
    path.write_text(path.read_text().replace('"round"', '"rond"'))


def a_list(path: Path) -> None:
    path.write_text("[]")


def nonsense_names(path: Path) -> None:
    path.write_text('{"round": 4, "server": {}, "clients": {}}')


SERVER, MANIFEST = "checkpoint/server-000004.safetensors", "checkpoint/round-000004.json"


@pytest.mark.parametrize(
    ("which", "damage"),
    [
        *((SERVER, damage) for damage in (cut, flip, truncate_to_nothing, Path.unlink)),
        *((fresh, damage) for damage in (cut, flip, truncate_to_nothing, Path.unlink)),
        *((MANIFEST, damage) for damage in (cut, truncate_to_nothing, not_json, without_round, a_list, nonsense_names)),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_damaged_checkpoint_is_named_with_the_last_good_round_and_the_advice_works(
    damaged: Path, sound: Path, which: str | Callable[[Path], Path], damage: Callable[[Path], None]
):
    path = damaged / which if isinstance(which, str) else which(damaged)
    damage(path)
    message = refused("run", "--resume", "--out", "run", "--rounds", "5")
    assert str(path) in message
    assert "last good round is 3" in message
    assert MANIFEST in message
    (damaged / MANIFEST).unlink()
    good("run", "--resume", "--out", "run", "--quiet")
    assert facts("run") == facts(sound)


def test_a_lost_file_of_both_checkpoints_leaves_no_good_round(damaged: Path):
    """A client that was not drawn lately has one file for both checkpoints: the older one is no way out."""
    shared = min(n for n in named(damaged, 4) & named(damaged, 3) if "client" in n)
    (damaged / "checkpoint" / shared).unlink()
    message = refused("run", "--resume", "--out", "run", "--rounds", "5")
    assert shared in message
    assert "last good round is 3" not in message


@pytest.mark.parametrize("lost", ["checkpoint", "checkpoint/round-*.json"])
def test_a_lost_checkpoint_does_not_cost_the_history(damaged: Path, lost: str):
    for path in damaged.glob(lost):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "checkpoint" in refused("run", "--resume", "--out", "run", "--rounds", "5")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (2, "{"),
        (1, ""),
        (4, '{"round": 9}'),
        (3, "null"),
        (3, "[3]"),
        (2, '{"round": 2, "no": 1}'),
        (4, "\0"),
        (2, "é"),
    ],
    ids=repr,
)
def test_a_damaged_history_is_named_with_the_last_good_round(damaged: Path, line: int, text: str):
    path = damaged / "history.jsonl"
    content = path.read_text().splitlines()
    content[line - 1] = text
    path.write_bytes("\n".join(content).encode("latin-1") + b"\n")
    message = refused("run", "--resume", "--out", "run", "--rounds", "5")
    assert str(path) in message
    assert f"last good round is {line - 1}" in message


@pytest.mark.parametrize("kept", [0, 2])
def test_a_history_shorter_than_the_checkpoint(damaged: Path, kept: int):
    path = damaged / "history.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    message = refused("run", "--resume", "--out", "run", "--rounds", "5")
    assert str(path) in message
    assert f"round {kept}" in message


def test_a_history_that_is_gone(damaged: Path):
    (damaged / "history.jsonl").unlink()
    assert "history.jsonl" in refused("run", "--resume", "--out", "run", "--rounds", "5")


@pytest.mark.parametrize("text", ["lr = ", "nonsense = 1"])
def test_a_damaged_config_of_a_run(damaged: Path, text: str):
    (damaged / "config.toml").write_text(text)
    assert "config.toml" in refused("run", "--resume", "--out", "run")


def test_a_checkpoint_of_another_model():
    data = holdfast.from_arrays(torch.randn(60, 4), torch.arange(60) % 2)
    federation = holdfast.federate(data, "iid", clients=3)
    holdfast.run("scaffold", federation, nn.Sequential(nn.Linear(4, 2)), rounds=2, out="here")
    wider = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with pytest.raises(HoldfastError, match=r"10 parameters.* 23"):
        holdfast.run("scaffold", federation, wider, rounds=3, out="here", resume=True)


# -- models --------------------
X, Y = torch.randn(90, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 3


def images() -> holdfast.Federation:
    return holdfast.federate(holdfast.from_arrays(X, Y), "iid", clients=3)


class Says(nn.Module):
    """A linear layer whose output a function spoils."""

    def __init__(self, spoil: Callable[[Tensor], object], classes: int = 3) -> None:
        super().__init__()
        self.head, self.spoil = nn.Linear(16, classes), spoil

    def forward(self, x: Tensor) -> object:
        return self.spoil(self.head(x.flatten(1)))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Says(lambda y: y, classes=2), r"\(2, 2\).*\(2, 3\)"),
        (Says(lambda y: y[:, None]), r"\(2, 1, 3\).*\(2, 3\)"),
        (Says(lambda y: y.mean()), r"\(\).*\(2, 3\)"),
        (Says(lambda y: (y, y)), "tuple.*logits"),
        (Says(lambda y: None), "NoneType.*logits"),
        (nn.Linear(7, 3), r"\(2, 1, 4, 4\)"),
        (Says(lambda y: y.softmax(1)), "linear"),
        (nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten()), "linear"),
        (Says(lambda y: {}["absent"]), "absent"),
    ],
)
def test_a_model_that_does_not_give_logits(model: nn.Module, words: str):
    with pytest.raises(HoldfastError, match=words) as caught:
        holdfast.run("fedavg", images(), model, rounds=1, out="here")
    assert "\n" not in str(caught.value)
    assert not files()


def normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True, track_running_stats=True)])
@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_running_statistics_are_refused_and_the_converted_model_runs(norm: nn.Module, engine: str):
    with pytest.raises(HoldfastError, match="to_groupnorm") as caught:
        holdfast.run("fedavg", images(), normed(norm), rounds=1, out="here")
    assert "'1'" in str(caught.value)
    assert not files()
    result = holdfast.run("fedavg", images(), holdfast.to_groupnorm(normed(norm)), rounds=1, engine=engine)
    assert np.isfinite(result.history[0].train_loss)


def test_statistics_of_the_batch_are_refused():
    """Without running statistics a sample's output depends on its batch, and on its padding."""
    with pytest.raises(HoldfastError, match="to_groupnorm"):
        holdfast.run("fedavg", images(), normed(nn.BatchNorm2d(4, track_running_stats=False)), rounds=1)


# -- data --------------------
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["x", "test_x"])
def test_data_that_are_not_finite(value: float, which: str):
    arrays = {"x": X.clone(), "y": Y, "test_x": X.clone(), "test_y": Y}
    arrays[which][7, 0, 1, 2] = value
    with pytest.raises(HoldfastError, match=r"(?i)nan.*sample 7"):
        holdfast.from_arrays(**arrays)
    data = replace(holdfast.from_arrays(X, Y, X, Y), **{which: arrays[which]})
    with pytest.raises(HoldfastError, match=r"(?i)nan.*sample 7"):
        holdfast.federate(data, "iid", clients=3)


@pytest.mark.parametrize(("y", "words"), [(torch.full((90,), -1), "-1"), (Y[:50], "50.*90"), (Y / 2, "integers")])
def test_bad_labels(y: Tensor, words: str):
    with pytest.raises(HoldfastError, match=words):
        holdfast.from_arrays(X, y)


@pytest.mark.parametrize(
    "setting",
    [{"data": "mnist"}, {"split": "iid"}, {"clients": 50}, {"public": 0.5}, {"augment": True}, {"data_dir": "nowhere"}],
    ids=str,
)
def test_what_a_federation_has_decided_cannot_be_set(setting: dict[str, object]):
    """Silently ignored it would stand in the config of a run that it did not touch."""
    federation = holdfast.federate(holdfast.from_arrays(X, Y), "dirichlet(1)", clients=3)
    with pytest.raises(HoldfastError, match=next(iter(setting))):
        holdfast.run("fedavg", federation, Says(lambda y: y), rounds=1, out="here", **setting)
    assert not files()


# -- updates that are not finite --------------------
@dataclass(frozen=True)
class Spoil(holdfast.Part):
    """The delta of some clients is not finite from some round on; its state counts the rounds it took part in."""

    name = "toy-spoil"

    client: int = holdfast.param(-1, "which one; -1: all")
    start: int = holdfast.param(1, "the first round")
    value: float = holdfast.param(0.0, "a divisor")

    def init_client(self, w: Tensor) -> holdfast.Tensors:
        return {"rounds": torch.zeros_like(w[:1])}

    def direction(self, c: holdfast.Client, g: Tensor, w: Tensor) -> tuple[Tensor, holdfast.Tensors]:
        hit = ((c.id == self.client) | (self.client < 0)) & (c.round >= self.start)
        return torch.where(hit, g / self.value, g), {}

    def end(self, c: holdfast.Client, w: Tensor, delta: Tensor) -> tuple[holdfast.Tensors, holdfast.Tensors]:
        return {}, {"rounds": c.state["rounds"] + 1}


def scaled(*scales: float) -> holdfast.Federation:
    """A client for every scale of its inputs; 0: a client without samples."""
    g = torch.Generator().manual_seed(2)
    x = torch.randn(12, 4, generator=g)
    pairs = [(x * scale, torch.arange(12) % 2) for scale in scales if scale]
    test = (torch.randn(20, 4, generator=g), torch.arange(20) % 2)
    federation = holdfast.federate(holdfast.from_clients(pairs, test, normalise=False), "given", clients=len(pairs))
    offsets = np.cumsum([0, *(12 * (scale > 0) for scale in scales)])
    return replace(federation, deal=replace(federation.deal, offsets=offsets))


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_a_client_that_overflows_is_left_out_and_named(engine: str):
    some = {"rounds": 3, "cohort": 3, "batch": 4, "engine": engine}
    model = nn.Linear(4, 2)
    result = holdfast.run("scaffold", scaled(1, 1e37, 1), model, **some)
    assert [record.skipped for record in result.history] == [[1]] * 3
    assert [record.cohort for record in result.history] == [[0, 1, 2]] * 3
    assert result.summary["skipped_updates"] == 3
    without = holdfast.run("scaffold", scaled(1, 0, 1), model, **some)
    assert [record.cohort for record in without.history] == [[0, 2]] * 3
    torch.testing.assert_close(result.w, without.w)
    assert [record.train_loss for record in result.history] == pytest.approx([r.train_loss for r in without.history])


def test_the_command_line_reports_the_client_and_its_state_stays():
    def spoiled(client: int) -> list[Tensor]:
        from safetensors.torch import load_file

        paths = sorted(Path("here/checkpoint").glob(f"client-{client:06d}-*"))
        return [load_file(path)["toy-spoil/rounds"] for path in paths]

    some = ("--cohort", "6", "--rounds", "3", "--out", "here")
    said = good("run", "toy-spoil(client=1, start=2)", *FAST, *some)
    assert [line["skipped"] for line in lines("here")] == [[], [1], [1]]
    assert said.err.count("client 1") == 2
    assert spoiled(0)[-1] == 3
    assert spoiled(1)[-1] == 1


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_when_no_update_is_finite_the_run_stops_and_keeps_its_last_checkpoint(engine: str):
    some = (*TINY, "--engine", engine, "--rounds", "5", "--out")
    said = call("run", "toy-spoil(start=3)", *some, "here")
    assert (said.code, said.out) == (1, "")
    assert said.err.count("\n") == 1
    assert "round 3" in said.err
    assert len(lines("here")) == 2
    assert not Path("here/summary.json").exists()
    assert max(Path("here/checkpoint").glob("round-*.json")).name == "round-000002.json"
    before = {name: content for name, content in files("here").items() if "config" not in name}
    again = call("run", "--resume", "--out", "here", "--quiet")
    assert (again.code, again.err) == (1, said.err)
    assert {name: content for name, content in files("here").items() if "config" not in name} == before


def test_a_learning_rate_that_is_far_too_large_ends_with_exit_code_1():
    said = call("run", "fedavg", *TINY, "--model", "mlp", "--lr", "1e30", "--out", "here")
    assert said.code == 1
    assert "lr" in said.err


def test_the_history_is_json_even_when_losses_are_not_finite():
    """A model can be finite and its loss not; NaN and Infinity are not JSON."""
    call("run", "fedavg", *TINY, "--lr", "1e37", "--steps", "1", "--out", "here")
    for line in Path("here/history.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


# -- empty clients --------------------
@pytest.mark.parametrize("engine", ["loop", "vector"])
@pytest.mark.parametrize("how", [{"cohort": 4}, {"participation": 1.0}])
def test_an_empty_client_is_skipped(engine: str, how: dict[str, float]):
    result = holdfast.run("scaffold", scaled(1, 0, 1, 0), nn.Linear(4, 2), rounds=2, engine=engine, **how)
    assert [record.cohort for record in result.history] == [[0, 2]] * 2
    assert [record.skipped for record in result.history] == [[]] * 2


def test_a_client_of_ones_own_may_be_empty():
    """Clients keep their numbers: the third stays the third when the second is empty."""
    x, y = torch.randn(10, 4), torch.arange(10) % 2
    data = holdfast.from_clients([(x, y), (x[:0], y[:0]), (x, y)], (x, y))
    federation = holdfast.federate(data, "given", clients=3)
    assert federation.deal.sizes.tolist() == [10, 0, 10]
    result = holdfast.run("fedavg", federation, nn.Linear(4, 2), rounds=1, cohort=3)
    assert result.history[0].cohort == [0, 2]


def test_a_split_that_leaves_clients_empty_runs():
    some = ("--split", "dirichlet(0.01)", "--clients", "40")
    counts = np.sum(good("split", *some, "--json").json["counts"], axis=1)
    assert (counts == 0).any()
    good("run", "fedavg", *TINY, *some, "--cohort", "40", "--out", "here")
    assert [line["cohort"] for line in lines("here")] == [np.flatnonzero(counts).tolist()] * 2


def test_nobody_has_samples():
    federation = scaled(1, 1)
    empty = replace(
        federation, deal=replace(federation.deal, index=federation.deal.index[:0], offsets=np.zeros(3, int))
    )
    with pytest.raises(HoldfastError, match="no client"):
        holdfast.run("fedavg", empty, nn.Linear(4, 2), rounds=1, out="here")
    assert not files()


def test_config_of_a_refused_resume_is_untouched():
    good("run", "fedavg", *TINY, "--out", "here")
    refused("run", "prox", "--resume", "--out", "here")
    assert config("here")["method"] == "fedavg"

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
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import Tensor, nn

import holdfast
from helpers.commands import TINY, call, config, facts, files, good, lines, refused
from helpers.exact_errors import raises_exactly
from holdfast.method.config import FIELDS
from holdfast.method.part import parts
from holdfast.method.recipes import RECIPES

FAST = TINY[:-1]  # progress may be shown: an error is one line all the same
OVER = "restore the file, or start over with --overwrite"


def method_names() -> str:
    """The names of all methods, as an error lists them; other tests may have defined parts."""
    return ", ".join(sorted({*parts(), *RECIPES}))


pytestmark = pytest.mark.usefixtures("elsewhere")


# -- names --------------------
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("run", "fedprx"), "unknown method 'fedprx'; did you mean fedprox?"),
        (("run", "fedbug+scafold"), "unknown method 'scafold'; did you mean scaffold?"),
        (("run", "fedavg", "--split", "dirichle(0.3)"), "unknown split 'dirichle'; did you mean dirichlet?"),
        (("run", "fedavg", "--data", "digit"), "unknown data set 'digit'; did you mean digits?"),
        (("run", "fedavg", "--model", "mpl"), "unknown model 'mpl'; did you mean mlp?"),
        (("methods", "fedbag"), "unknown method 'fedbag'; did you mean fedbug, fedagg or fedavg?"),
        (("methods", "scafold", "--json"), "unknown method 'scafold'; did you mean scaffold?"),
        (("split", "--split", "shard(2)"), "unknown split 'shard'; did you mean shards?"),
        (("split", "--data", "digts"), "unknown data set 'digts'; did you mean digits?"),
        (("rum", "fedavg"), "unknown command 'rum'; did you mean run?"),
        (("run", "fedavg", "--set", "batsh=3"), "unknown setting 'batsh'; did you mean batch?"),
        (("run", "fedavg", "--round", "3"), "unknown option '--round'; did you mean --rounds?"),
        (("run", "prox(nu=1)"), "unknown parameter 'nu' of prox; did you mean mu?"),
        (
            ("run", "fedavg", "--split", "dirichlet(alfa=1)"),
            "unknown parameter 'alfa' of dirichlet; did you mean alpha?",
        ),
        (("run", "fedavg", "--model", "mlp(widht=3)"), "unknown parameter 'widht' of mlp; did you mean width?"),
    ],
)
def test_unknown_name_with_the_nearest(args: tuple[str, ...], message: str):
    assert refused(*args) == f"holdfast: {message}\n"


def test_a_name_like_no_other_lists_all():
    assert refused("methods", "zzzzzz") == f"holdfast: unknown method 'zzzzzz'; known: {method_names()}\n"


# -- values --------------------
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("fedbug(unit=stage)",),
            "this model has no unit 'stage', only layer; use one of these, or set units = {'stage': [[module "
            "names], ...]} on the module, bottom-up",
        ),
        (("fedavg", "--split", "dirichlet(-1)"), "dirichlet: alpha must be a number in (0, 1e+06], not -1"),
        (
            ("fedavg", "--split", "dirichlet"),
            "dirichlet: alpha is missing (concentration of the Dirichlet draws): write dirichlet(alpha=...)",
        ),
        (("fedavg", "--split", "dirichlet(0.5, balanced=2)"), "dirichlet: balanced must be true or false, not 2"),
        (
            ("fedavg", "--split", "shards(1000)"),
            "shards(s=1000): 6 clients need 6000 shards, but there are only 1438 samples; use fewer shards, "
            "or at most 1 client",
        ),
        (("fedavg", "--split", "shards(0)"), "shards: s must be a whole number of at least 1, not 0"),
        (
            ("fedavg", "--split", "iid+shards(2)"),
            "iid and shards(s=2) both set the labels of a split; keep one of them",
        ),
        (("fedavg", "--clients", "0"), "clients must be a whole number of at least 1, not 0"),
        (("fedavg", "--cohort", "30"), "cohort 30 is larger than the number of clients, 6: lower cohort"),
        (("fedavg", "--cohort", "0"), "cohort must be a whole number of at least 1, not 0"),
        (("fedavg", "--participation", "0.5"), "cohort and participation cannot be used together: set one of them"),
        (
            ("fedavg", "--set", "cohort=none", "--participation", "1.5"),
            "participation must be a number in (0, 1], not 1.5",
        ),
        (
            ("fedavg", "--set", "cohort=none", "--participation", "0"),
            "participation must be a number in (0, 1], not 0.0",
        ),
        (("fedavg", "--lr", "0"), "lr must be a number above 0, not 0.0"),
        (("fedavg", "--lr", "-1"), "lr must be a number above 0, not -1.0"),
        (("fedavg", "--lr", "nan"), "lr must be a number above 0, not nan"),
        (("fedavg", "--lr", "inf"), "lr must be a number above 0, not inf"),
        (("fedavg", "--lr", "fast"), "lr must be a number above 0, not fast"),
        (("fedavg", "--lr-decay", "0"), "lr_decay must be a number in (0, 1], not 0.0"),
        (("fedavg", "--weight-decay", "-1"), "weight_decay must be a number of at least 0, not -1.0"),
        (("fedavg", "--clip", "0"), "clip must be a number above 0, not 0.0"),
        (("fedavg", "--server-lr", "0"), "server_lr must be a number above 0, not 0.0"),
        (("fedavg", "--rounds", "0"), "rounds must be a whole number of at least 1, not 0"),
        (("fedavg", "--rounds", "many"), "rounds must be a whole number of at least 1, not many"),
        (("fedavg", "--rounds", "1.5"), "rounds must be a whole number of at least 1, not '1.5'"),
        (("fedavg", "--batch", "0"), "batch must be a whole number of at least 1, not 0"),
        (("fedavg", "--epochs", "0"), "epochs must be a whole number of at least 1 or a range such as 2-5, not 0"),
        (("fedavg", "--steps", "0"), "steps must be a whole number of at least 1, not 0"),
        (("fedavg", "--eval-every", "0"), "eval_every must be a whole number of at least 1, not 0"),
        (("fedavg", "--checkpoint-every", "0"), "checkpoint_every must be a whole number of at least 1, not 0"),
        (("fedavg", "--seed", "-1"), "seed must be a whole number in [0, 4294967295], not -1"),
        (("fedavg", "--seed", str(2**32)), "seed must be a whole number in [0, 4294967295], not 4294967296"),
        (("fedavg", "--public", "1"), "public must be a number in [0, 1) or test, not 1.0"),
        (("fedavg", "--slice", "0"), "slice must be a whole number of at least 1, not 0"),
        (("fedavg", "--engine", "fast"), "engine must be one of auto, loop, vector, flower, not fast"),
        (("fedavg", "--device", "tpu"), "device must be one of auto, cpu, cuda, cuda:N, mps, not tpu"),
        (("fedavg", "--precision", "fp16"), "precision must be one of fp32, tf32, bf16, fp64, not fp16"),
        (("fedavg", "--head", "neck"), "the model has no linear layer 'neck' to be its head; use head"),
        (("fedavg", "--model", "mlp(0)"), "mlp: width must be a whole number of at least 1, not 0"),
        (
            ("fedavg", "--model", "mlp+linear"),
            "'mlp+linear' is a sum, but a model is one name with its parameters: keep one of them",
        ),
        (
            ("fedavg", "--model", "vgg11(1, 2, 3, 4, 5)"),
            "vgg11: 5 arguments given, but it takes 2 (hidden, dropout): leave out the others",
        ),
        (("fedavg", "--set", "lr"), "--set lr: expected KEY=VALUE, such as --set lr=0.5"),
        (("fedavg", "--set", "augment=maybe"), "unknown augmentation 'maybe'; known: crop, flip, none, standard"),
        (
            ("fedavg", "--data", "mnist", "--data-dir", "nowhere"),
            "mnist: train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
            "t10k-labels-idx1-ubyte.gz not found in nowhere/MNIST/raw; download them with `holdfast data "
            "fetch mnist` or put them there",
        ),
        (("fedavg", "twice"), "unexpected extra argument (twice); see: holdfast run --help"),
        (("fedavg", "--resume"), "--resume needs the folder of the run: add --out"),
        (
            ("fedavg", "--resume", "--overwrite", "--out", "x"),
            "--resume and --overwrite cannot be used together: use one of them",
        ),
        (("fedavg", "--resume", "--out", "nothing"), "nothing holds no run to resume: check --out"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_setting(args: tuple[str, ...], message: str):
    assert refused("run", *FAST, *args) == f"holdfast: {message}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("split", "--clients", "0"), "clients must be a whole number of at least 1, not 0"),
        (
            ("split", "--split", "shards(2)", "--clients", "5000"),
            "shards(s=2): 5000 clients need 10000 shards, but there are only 1438 samples; use fewer shards, "
            "or at most 719 clients",
        ),
        (("split", "--seed", "x"), "seed must be a whole number in [0, 4294967295], not x"),
        (
            ("split", "--png", "no/such/folder.png"),
            "cannot write the picture no/such/folder.png: No such file or directory; choose another --png",
        ),
        (
            ("models", "--shape", "8by8"),
            "--shape 8by8: expected whole numbers above 0 joined by x; use something like 3x32x32",
        ),
        (
            ("models", "--shape", "0x8x8"),
            "--shape 0x8x8: expected whole numbers above 0 joined by x; use something like 3x32x32",
        ),
        (
            ("models", "--classes", "0"),
            "--classes must be a whole number of at least 1, not 0",
        ),
        (("methods", "fedavg", "prox"), "unexpected extra argument (prox); see: holdfast methods --help"),
        (("run", "-x"), "no such option '-x'; see: holdfast run --help"),
        (("run", "--lr"), "option '--lr' requires an argument; see: holdfast --help"),
        (("report",), "missing argument 'FOLDER'; see: holdfast report --help"),
        (("data", "fetsh"), "unknown command 'fetsh'; did you mean fetch?"),
        (("run", "scaffold(x=1)"), "scaffold: x given, but it takes no parameters: leave it out"),
        (("run", "fedprox(nu=1)"), "unknown parameter 'nu' of fedprox; did you mean mu?"),
        (("run", "--nosuch"), "unknown option '--nosuch'; see: holdfast run --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_arguments_of_the_other_commands(args: tuple[str, ...], message: str):
    assert refused(*args) == f"holdfast: {message}\n"


def test_a_picture_of_an_unknown_format():
    formats = ", ".join(sorted(FigureCanvasAgg.filetypes))
    assert refused("split", "--png", "picture.xyz") == (
        f"holdfast: cannot write the picture picture.xyz: Format 'xyz' is not supported (supported formats: "
        f"{formats}); choose another --png\n"
    )


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
        (("scaffold(1)",), "scaffold: 1 argument given, but it takes none: leave it out"),
        (("prox(mu=0.1, mu=0.2)",), "cannot read 'prox(mu=0.1, mu=0.2)': mu is given twice; keep one of them"),
        (("prox(0.1, mu=0.2)",), "prox: mu is given twice; keep one of them"),
        (("momentum(1)",), "momentum: beta must be a number in [0, 1), not 1"),
        (("momentum(-0.1)",), "momentum: beta must be a number in [0, 1), not -0.1"),
        (("momentum(0.9, nesterov=2)",), "momentum: nesterov must be true or false, not 2"),
        (("momentum(0.9, keep=yes)",), "momentum: keep must be true or false, not yes"),
        (("momentum(rho=0.9)",), "unknown parameter 'rho' of momentum; known: beta, keep, nesterov"),
        (("adam(beta2=1)",), "adam: beta2 must be a number in [0, 1), not 1"),
        (("adam(eps=0)",), "adam: eps must be a number above 0, not 0"),
        (("adamw(decay=-1)",), "adamw: decay must be a number of at least 0, not -1"),
        (("momentum+adam",), "momentum and adam cannot be summed: both are local optimisers; keep one of them"),
        (("momentum+momentum(0.5)",), "momentum appears twice in the sum: keep one of them"),
        (
            ("adam", "--optimizer", "momentum(0.9)"),
            "adam and momentum cannot be summed: both are local optimisers; keep one of them",
        ),
        (("momentum", "--optimizer", "momentum(0.9)"), "momentum appears twice in the sum: keep one of them"),
        (
            ("fednova+adam",),
            "nova and adam cannot be summed: nova divides updates by the weight of their gradients, which only linear "
            "optimisers have; keep one of them",
        ),
        (
            ("fedmrur", "--optimizer", "adamw"),
            "fedcm and adamw cannot be summed: fedcm divides updates by the weight of their gradients, which only "
            "linear optimisers have; keep one of them",
        ),
        (
            ("adamw", "--weight-decay", "0.1"),
            "adamw and decay cannot be summed: adamw decays the weights itself, by its parameter decay; keep one of "
            "them",
        ),
        (
            ("fedagg(mode=fixed_point)+momentum",),
            "fedagg: mode=fixed_point derives its rates from plain gradients, not from the steps of momentum; use "
            "mode=feedback, or leave momentum out",
        ),
        (
            ("fedagg(min_rate=0)", "--optimizer", "adam"),
            "fedagg: min_rate must be above 0 with adam, whose steps cannot be seen at rate 0; raise min_rate",
        ),
        (("fedavg", "--optimizer", "adagrad"), "unknown local optimiser 'adagrad'; known: adam, adamw, momentum, sgd"),
        (("fedavg", "--optimizer", "prox"), "unknown local optimiser 'prox'; known: adam, adamw, momentum, sgd"),
        (("fedavg", "--optimizer", "sgd(0.9)"), "sgd takes no parameters: write sgd alone"),
        (("fedavg", "--optimizer", "momentum(2)"), "momentum: beta must be a number in [0, 1), not 2"),
        (("fedavg", "--optimizer", "momentum("), "cannot read 'momentum(': expected a value, found the end"),
        (
            ("fedavg", "--optimizer", "momentum+clip"),
            "'momentum+clip' is a sum, but a local optimiser is one name with its parameters: keep one of them",
        ),
        (
            ("fedadam", "--server-lr", "0.5"),
            "--server-lr 0.5 has no effect: fedadam makes the server step itself; leave the flag out "
            "(see: holdfast methods fedadam)",
        ),
        (("clip(3)", "--clip", "2"), "clip appears twice in the sum: keep one of them"),
        (("nova+normalized",), "nova and normalized cannot be summed: both aggregate the cohort; keep one of them"),
        (("fednova+mean(uniform)",), "nova and mean cannot be summed: both aggregate the cohort; keep one of them"),
        (("fedavgm+fedadam",), "fedavgm and fedadam cannot be summed: both define the server step; keep one of them"),
        (("feddyn+fedexp",), "feddyn and fedexp cannot be summed: both define the server step; keep one of them"),
        (("prox+prox(0.1)",), "prox appears twice in the sum: keep one of them"),
        (("fedcm+mofedsam",), "fedcm appears twice in the sum: keep one of them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_method(args: tuple[str, ...], message: str):
    assert refused("run", *FAST, *args) == f"holdfast: {message}\n"


NAMES = {
    "--split": ("split", "classes, dirichlet, given, iid, noise, quantity, shards"),
    "--data": (
        "data set",
        "cifar10, cifar100, cinic10, csv, digits, emnist-letters, fashion-mnist, folder, leaf, mnist, parquet, text, "
        "tiny-imagenet",
    ),
    "--model": (
        "model",
        "alexnet, cifar10-cnn, cnn, densenet, googlenet, lenet5, linear, lstm, mlp, mnist-cnn, mnist-example-cnn, "
        "resnet18, resnet34, simple-cnn, vgg11, vgg9",
    ),
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedbug(", "cannot read 'fedbug(': expected a value, found the end"),
        ("fedbug)", "cannot read 'fedbug)': expected '+' or the end, found ')'"),
        ("a++b", "cannot read 'a++b': expected a name, found '+'"),
        ("fedbug(0.4", "cannot read 'fedbug(0.4': expected ',' or ')', found the end"),
        ("", "cannot read '': expected a name, found the end"),
        (" ", "cannot read ' ': expected a name, found the end"),
        ("+", "cannot read '+': expected a name, found '+'"),
        ("fedbug+", "cannot read 'fedbug+': expected a name, found the end"),
        ("+fedbug", "cannot read '+fedbug': expected a name, found '+'"),
        (
            "fedbug(0.4, 0.5, 0.6, 0.7)",
            "fedbug: 4 arguments given, but it takes 3 (share, unit, order): leave out the others",
        ),
        ("prox(mu=0.1, mu=0.2)", "cannot read 'prox(mu=0.1, mu=0.2)': mu is given twice; keep one of them"),
        ("prox(0.1, mu=0.2)", "prox: mu is given twice; keep one of them"),
        ("prox(mu=)", "cannot read 'prox(mu=)': expected a value, found ')'"),
        ("prox(=1)", "cannot read 'prox(=1)': expected a value, found '='"),
        (
            "prox(mu=0.1, 0.2)",
            "cannot read 'prox(mu=0.1, 0.2)': expected name=value after the first named argument, found '0.2'",
        ),
        ("prox(,)", "cannot read 'prox(,)': expected a value, found ','"),
        ("prox(0.1 0.2)", "cannot read 'prox(0.1 0.2)': expected ',' or ')', found '0.2'"),
        ("prox[0.1]", "cannot read 'prox[0.1]': expected '+' or the end, found '['"),
        ("prox(0.1))", "cannot read 'prox(0.1))': expected '+' or the end, found ')'"),
        ("prox(1..2)", "cannot read 'prox(1..2)': expected a name, a number or one of ( ) [ ] , = +, found '1..2)'"),
        ("prox('0.1)", 'cannot read "prox(\'0.1)": expected a name, a number or one of ( ) [ ] , = +, found "\'0.1)"'),
        ("3", "cannot read '3': expected a name, found '3'"),
        ("prox 0.1", "cannot read 'prox 0.1': expected '+' or the end, found '0.1'"),
        ("prox-", "unknown method 'prox-'; did you mean prox?"),
        ("prox;sam", "cannot read 'prox;sam': expected a name, a number or one of ( ) [ ] , = +, found ';sam'"),
        ("prox(\n", "cannot read 'prox(\\n': expected a value, found the end"),
        ("prox(0x10)", "cannot read 'prox(0x10)': expected a name, a number or one of ( ) [ ] , = +, found '0x10)'"),
        ("prox(1e999)", "prox: mu must be a number of at least 0, not inf"),
        ("f" * 3000, f"unknown method {'f' * 40!r}...; known: "),
        (
            "prox(" + "9" * 5000 + ")",
            f"cannot read {'prox(' + '9' * 35!r}...: a number has 5000 digits, at most 100 are allowed",
        ),
        ("prox(" + "[" * 5000, f"cannot read {'prox(' + '[' * 35!r}...: lists may be nested at most 20 deep"),
    ],
    ids=lambda text: repr(text[:26]),
)
@pytest.mark.parametrize("flag", ["method", *NAMES])
def test_malformed_expression(text: str, message: str, flag: str):
    """What cannot be read is refused in the same words everywhere; the rest names no split, data set or model."""
    if message.endswith("; known: "):
        message += method_names()
    if flag != "method" and not message.startswith("cannot read"):
        kind, known = NAMES[flag]
        name = text.partition("(")[0]
        message = f"unknown {kind} {name[:40]!r}{'...' * (len(name) > 40)}; known: {known}"
    args = ("--", text) if flag == "method" else ("fedavg", flag, text)
    assert refused("run", *FAST, *args) == f"holdfast: {message}\n"


# -- the config file --------------------
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = ", "the config my.toml is not valid TOML: Invalid value (at end of document); fix the file"),
        (
            "lr = 0.1\nlr = 0.2",
            "the config my.toml is not valid TOML: Cannot overwrite a value (at end of document); fix the file",
        ),
        (
            "learning_rate = 1",
            f"unknown setting 'learning_rate' in my.toml; known: {', '.join(sorted(FIELDS))}",
        ),
        ("[lr]\nx = 1", "lr must be a number above 0, not {'x': 1}"),
        ('lr = "fast"', "lr must be a number above 0, not fast"),
        ("rounds = true", "rounds must be a whole number of at least 1, not true"),
        ("rounds = 2.5", "rounds must be a whole number of at least 1, not 2.5"),
        ("rounds = 2024-01-01", "rounds must be a whole number of at least 1, not datetime.date(2024, 1, 1)"),
        ("method = 3", "method must be text such as 'fedbug(0.4)+prox', not 3"),
        ("method = ['prox']", "method must be text such as 'fedbug(0.4)+prox', not ['prox']"),
        ("augment = 1", "augment must be true, false or a text, not 1"),
        ("cohort = 2\nparticipation = 0.5", "cohort and participation cannot be used together: set one of them"),
        ("\x00", "the config my.toml is not valid TOML: Invalid statement (at line 1, column 1); fix the file"),
        (
            b"\xff\xfe",
            "the config my.toml is not valid TOML: 'utf-8' codec can't decode byte 0xff in position 0: "
            "invalid start byte; fix the file",
        ),
    ],
    ids=repr,
)
def test_bad_config_file(text: str | bytes, message: str):
    Path("my.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refused("run", "--config", "my.toml") == f"holdfast: {message}\n"


def test_config_file_that_is_not_there():
    cannot = "holdfast: cannot read the config"
    Path("here").mkdir()
    absent = refused("run", "--config", "absent.toml")
    assert absent == f"{cannot} absent.toml: No such file or directory; check the path\n"
    assert refused("run", "--config", "here") == f"{cannot} here: Is a directory; check the path\n"


# -- the output folder --------------------
def test_a_finished_run_is_not_overwritten():
    good("run", "fedavg", *TINY, "--out", "here")
    for method in ("fedavg", "prox"):
        message = refused("run", method, *FAST, "--out", "here")
        assert message == "holdfast: here already holds a finished run: add --resume or --overwrite\n"
        assert config("here")["method"] == "fedavg"


def test_an_unfinished_run_is_not_overwritten():
    good("run", "fedavg", *TINY, "--out", "here")
    Path("here/summary.json").unlink()
    message = refused("run", "fedavg", *FAST, "--out", "here")
    assert message == "holdfast: here already holds an unfinished run: add --resume or --overwrite\n"


@pytest.mark.parametrize("extra", [(), ("--overwrite",)])
def test_a_folder_of_other_things_is_left_alone(extra: tuple[str, ...]):
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("years")
    message = refused("run", "fedavg", *FAST, "--out", "mine", *extra)
    assert message == "holdfast: mine is not empty and holds no run: choose another --out\n"
    assert Path("mine/thesis.tex").read_text() == "years"


def test_overwriting_leaves_what_is_not_ours():
    good("run", "fedavg", *TINY, "--out", "here")
    Path("here/notes.txt").write_text("mine")
    good("run", "fedavg", *TINY, "--out", "here", "--overwrite")
    assert Path("here/notes.txt").read_text() == "mine"


@pytest.mark.parametrize("out", ["file", "file/below"])
@pytest.mark.parametrize("extra", [(), ("--overwrite",), ("--resume",)])
def test_a_file_is_no_folder(out: str, extra: tuple[str, ...]):
    Path("file").write_text("mine")
    message = refused("run", "fedavg", *FAST, "--out", out, *extra)
    assert message == (
        f"holdfast: {out} holds no run to resume: check --out\n"
        if "--resume" in extra
        else "holdfast: file is a file, not a folder for a run: choose another --out\n"
    )
    assert Path("file").read_text() == "mine"


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
    assert said.stderr == "holdfast: fedbug: share must be a number in [0, 1], not 1.7\n"
    assert not files()


# -- damage --------------------
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
    run_copy: Path, sound_run: Path, which: str | Callable[[Path], Path], damage: Callable[[Path], None]
):
    path = run_copy / which if isinstance(which, str) else which(run_copy)
    damage(path)
    assert refused("run", "--resume", "--out", "run", "--rounds", "5") == (
        f"holdfast: {path} is missing or damaged; the last good round is 3: delete {run_copy / MANIFEST} to resume "
        "from it\n"
    )
    (run_copy / MANIFEST).unlink()
    good("run", "--resume", "--out", "run", "--quiet")
    assert facts("run") == facts(sound_run)
    assert (run_copy / MANIFEST).exists(), "written again"


def test_a_lost_file_of_both_checkpoints_leaves_no_good_round(run_copy: Path):
    """A client that was not drawn lately has one file for both checkpoints: the older one is no way out."""
    shared = min(n for n in named(run_copy, 4) & named(run_copy, 3) if "client" in n)
    (run_copy / "checkpoint" / shared).unlink()
    assert refused("run", "--resume", "--out", "run", "--rounds", "5") == (
        f"holdfast: {run_copy / 'checkpoint' / shared} is missing or damaged and there is no earlier checkpoint: "
        "start over with --overwrite\n"
    )


@pytest.mark.parametrize("lost", ["checkpoint", "checkpoint/round-*.json"])
def test_a_lost_checkpoint_does_not_cost_the_history(run_copy: Path, lost: str):
    for path in run_copy.glob(lost):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert refused("run", "--resume", "--out", "run", "--rounds", "5") == (
        f"holdfast: {run_copy / 'checkpoint'} holds no checkpoint, though {run_copy / 'history.jsonl'} has rounds: "
        "restore it, or start over with --overwrite\n"
    )


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
def test_a_damaged_history_is_named_with_the_last_good_round(run_copy: Path, line: int, text: str):
    path = run_copy / "history.jsonl"
    content = path.read_text().splitlines()
    content[line - 1] = text
    path.write_bytes("\n".join(content).encode("latin-1") + b"\n")
    assert refused("run", "--resume", "--out", "run", "--rounds", "5") == (
        f"holdfast: {path} is damaged at line {line}: the last good round is {line - 1}; {OVER}\n"
    )


@pytest.mark.parametrize("kept", [0, 2])
def test_a_history_shorter_than_the_checkpoint(run_copy: Path, kept: int):
    path = run_copy / "history.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    assert refused("run", "--resume", "--out", "run", "--rounds", "5") == (
        f"holdfast: {path} ends at round {kept}, its last good round, but the checkpoint is of round 4: {OVER}\n"
    )
    assert len(lines(run_copy)) == kept, "nothing was cut or added"


def test_a_history_that_is_gone(run_copy: Path):
    path = run_copy / "history.jsonl"
    path.unlink()
    message = refused("run", "--resume", "--out", "run", "--rounds", "5")
    assert message == f"holdfast: cannot read {path}: No such file or directory; {OVER}\n"


def test_a_damaged_config_of_a_run(run_copy: Path):
    path = run_copy / "config.toml"
    path.write_text("lr = ")
    assert refused("run", "--resume", "--out", "run") == (
        f"holdfast: the config {path} is not valid TOML: Invalid value (at end of document); fix the file; the last "
        "good round is 4\n"
    )
    path.write_text("rond = 1")
    message = refused("run", "--resume", "--out", "run")
    assert message == f"holdfast: unknown setting 'rond' in {path}; did you mean rounds?; the last good round is 4\n"


def test_a_checkpoint_of_another_model():
    data = holdfast.from_arrays(torch.randn(60, 4), torch.arange(60) % 2)
    federation = holdfast.federate(data, "iid", clients=3)
    holdfast.run("scaffold", federation, nn.Sequential(nn.Linear(4, 2)), rounds=2, out="here")
    wider = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with raises_exactly(
        f"{Path('here/checkpoint/server-000002.safetensors')} holds a model of 10 parameters (torch.float32), but this "
        "run's model has 23 (torch.float32): resume with the model it was started with"
    ):
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


FAILS = "the model fails on a batch of shape (2, 1, 4, 4): {}; choose a model for this data"
NO_LOGITS = "the model returns {} for 2 samples, expected logits of shape (2, 3); change its last layer"
PROBABILITIES = "the model returns probabilities, which sum to one, expected logits; leave out its last softmax"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Says(lambda y: y, classes=2), NO_LOGITS.format("shape (2, 2)")),
        (Says(lambda y: y[:, None]), NO_LOGITS.format("shape (2, 1, 3)")),
        (Says(lambda y: y.mean()), NO_LOGITS.format("shape ()")),
        (Says(lambda y: (y, y)), NO_LOGITS.format("a tuple")),
        (Says(lambda y: None), NO_LOGITS.format("None")),
        (
            nn.Linear(7, 3),
            FAILS.format("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 7x3)"),
        ),
        (Says(lambda y: y.softmax(1)), PROBABILITIES),
        (Says(lambda y: {}["absent"]), FAILS.format("KeyError: 'absent'")),
    ],
)
def test_a_model_that_does_not_give_logits(model: nn.Module, message: str):
    with raises_exactly(message):
        holdfast.run("fedavg", images(), model, rounds=1, out="here")
    assert not files()


def normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True)])
@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_norms_and_a_last_layer_that_is_not_linear_run(norm: nn.Module, engine: str):
    settings = {"rounds": 1, "engine": engine, "device": "cpu"}
    for module in (normed(norm), holdfast.to_groupnorm(normed(norm)), nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten())):
        assert np.isfinite(holdfast.run("fedavg", images(), module, **settings).history[0].train_loss)


def test_running_statistics_of_instance_norm_are_refused():
    with raises_exactly(
        "the model's layer '1' (InstanceNorm2d) keeps running statistics, as only BatchNorm may; set "
        "track_running_stats=False, or convert the model with holdfast.to_groupnorm(module)"
    ):
        holdfast.run("fedavg", images(), normed(nn.InstanceNorm2d(4, track_running_stats=True)), rounds=1, out="here")
    assert not files()


# -- data --------------------
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["x", "test_x"])
def test_data_that_are_not_finite(value: float, which: str):
    arrays = {"x": X.clone(), "y": Y, "test_x": X.clone(), "test_y": Y}
    arrays[which][7, 0, 1, 2] = value
    with raises_exactly(f"{which} has 1 NaN or infinite number, first in sample 7; clean it"):
        holdfast.from_arrays(**arrays)
    data = replace(holdfast.from_arrays(X, Y, X, Y), **{which: arrays[which]})
    name = {"x": "training", "test_x": "test"}[which]
    with raises_exactly(f"the {name} data of arrays has NaN or infinite numbers, first in sample 7; clean it"):
        holdfast.federate(data, "iid", clients=3)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.full((90,), -1), "y must be integers from 0 to 2**63 - 1, not -1 to -1; number them from 0"),
        (Y[:50], "y has 50 entries and x has 90; give one label or group per sample"),
        (
            Y / 1.0,
            'y has real numbers that are all whole, such as 0: give task="classification" or task="regression"',
        ),
    ],
)
def test_bad_labels(y: Tensor, message: str):
    with raises_exactly(message):
        holdfast.from_arrays(X, y)


@pytest.mark.parametrize(
    "setting",
    [{"data": "mnist"}, {"split": "iid"}, {"clients": 50}, {"public": 0.5}, {"augment": True}, {"data_dir": "nowhere"}],
    ids=str,
)
def test_what_a_federation_has_decided_cannot_be_set(setting: dict[str, object]):
    """Silently ignored it would stand in the config of a run that it did not touch."""
    federation = holdfast.federate(holdfast.from_arrays(X, Y), "dirichlet(1)", clients=3)
    (name,) = setting
    where = "load()" if name == "data_dir" else "federate()"
    with raises_exactly(f"{name} is decided by the federation: leave it out, or pass it to {where}"):
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
    for t in (2, 3):
        assert said.err.count(f"round {t}: skipped the update of client 1, which is not finite\n") == 1
    assert said.err.count("client 1,") == 2
    assert spoiled(0)[-1] == 3
    assert spoiled(1)[-1] == 1


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_when_no_update_is_finite_the_run_stops_and_keeps_its_last_checkpoint(engine: str):
    some = (*TINY, "--engine", engine, "--rounds", "5", "--out")
    said = call("run", "toy-spoil(start=3)", *some, "here")
    assert (said.code, said.out) == (1, "")
    assert said.err == "holdfast: round 3: no client's update is finite; lower --lr, or add --clip\n"
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
    assert said.err == "holdfast: round 1: no client's update is finite; lower --lr, or add --clip\n"


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
    with raises_exactly("no client has any samples: check the split"):
        holdfast.run("fedavg", empty, nn.Linear(4, 2), rounds=1, out="here")
    assert not files()


def test_config_of_a_refused_resume_is_untouched():
    good("run", "fedavg", *TINY, "--out", "here")
    assert refused("run", "prox", "--resume", "--out", "here") == (
        "holdfast: the run to resume has method = fedavg, not prox: leave that setting out, or start over with "
        "--overwrite\n"
    )
    assert config("here")["method"] == "fedavg"


# -- wording --------------------
def test_a_sum_that_cannot_be_is_not_described():
    assert refused("methods", "fedbug+fedfoo").startswith("holdfast: unknown method 'fedfoo'; known: adam")
    assert refused("methods", "median+fnr") == (
        "holdfast: median and fnr cannot be summed: fnr looks at single clients at the server, so that a liar would "
        "reach it past the robust mean; leave one of them out\n"
    )


@pytest.mark.parametrize("name", ["fedxyz", "fedfoo", "zeno"])
def test_a_name_like_no_other_gets_no_suggestion(name: str):
    """All names that start with fed are similar, and that says nothing."""
    assert refused("run", name).startswith(
        f"holdfast: unknown method '{name}'; known: adam, adamw, ccvr, centred_clipping, clip, "
    )


def test_a_description_repeats_no_names_and_shows_no_double_backticks():
    parts = [
        part
        for name in ("fedlc", "scaffold", "clip", "fedadam")
        for part in good("methods", name, "--json").json["parts"]
    ]
    assert parts[0]["cannot_be_summed_with"]["fedrs"].startswith("both ")
    for part in parts:
        assert "``" not in part["text"]
        for why in (*part["cannot_be_summed_with"].values(), *part["must_come_after"].values()):
            assert "cannot be summed" not in why
            assert "must come after" not in why

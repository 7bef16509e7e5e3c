"""What the commands promise: every flag, the summary, the tables, the pictures, and traffic counted by hand."""

from __future__ import annotations

import importlib
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor

import holdfast
from helpers.commands import TINY, Said, call, config, facts, good, lines
from holdfast.cli.data import command as data_command
from holdfast.cli.main import COMMANDS
from holdfast.cli.run import show
from holdfast.method.config import FIELDS
from holdfast.runs.run_progress import RunProgress

LINEAR = 64 * 10 + 10  # parameters of the linear model on 8x8 digits
MLP = (64 * 200 + 200) + (200 * 200 + 200) + (200 * 10 + 10)
NAMED = """fedavg fedprox feddyn scaffold fedcm fedsam mofedsam fedlc moon fedbug fednova fedavgm fedadam fedadagrad
fedyogi fedexp prox sam nova normalized mean clip decay momentum adam adamw"""


pytestmark = pytest.mark.usefixtures("elsewhere")


# -- holdfast run --------------------
def test_fedavg_alone_learns_non_iid_digits():
    said = good("run", "fedavg")
    assert said.out == ""
    assert "engine vector: " in " ".join(said.err.split()), "which engine, and why"
    folder = Path("runs/fedavg-digits-001")
    wanted = {"config.toml", "history.jsonl", "summary.json", "split.json", "model.json", "checkpoint"}
    assert {p.name for p in folder.iterdir()} == wanted
    assert config(folder)["data"] == "digits"
    assert config(folder)["split"].startswith("dirichlet")
    assert lines(folder)[-1]["test"]["accuracy"] > 0.9


def test_no_method_is_fedavg_and_each_run_gets_a_folder():
    assert good("run", *TINY, "--json").json["method"] == "fedavg"
    assert good("run", *TINY, "--json").json["out"] == "runs/fedavg-digits-002"
    assert good("run", "fedbug(0.4)+prox", *TINY, "--json").json["out"] == "runs/fedbug-0.4-prox-digits-001"


def test_json_is_the_summary_of_the_history():
    said = good("run", "prox(0.1)", *TINY, "--rounds", "7", "--out", "here", "--json")
    assert said.err == ""
    assert said.out.count("\n") == 1
    wanted = (
        "method data split rounds metric final best best_round chosen_on last5 seconds upload_bytes download_bytes out"
    )
    assert said.json.keys() >= set(wanted.split())
    stored = json.loads(Path("here/summary.json").read_text())
    assert isinstance(stored.pop("checksum"), int)
    assert said.json == stored
    history = lines("here")
    scores = [line["test"]["accuracy"] for line in history]
    assert len(history) == said.json["rounds"] == 7
    assert (said.json["method"], said.json["data"], said.json["out"]) == ("prox(0.1)", "digits", "here")
    assert (said.json["final"], said.json["best"]) == (scores[-1], max(scores))
    assert said.json["last5"] == pytest.approx(np.mean(scores[-5:]))
    assert 0 <= min(scores) <= max(scores) <= 1
    for name in ("seconds", "upload_bytes", "download_bytes"):
        assert said.json[name] == pytest.approx(sum(line[name] for line in history))


def test_history_says_what_happened():
    good("run", "fedavg", *TINY, "--out", "here")
    wanted = "round test train_loss seconds upload_bytes download_bytes cohort skipped"
    for number, line in enumerate(lines("here"), start=1):
        assert line.keys() >= set(wanted.split())
        assert line["test"].keys() == {"accuracy", "loss"}
        assert (line["round"], len(line["cohort"]), line["skipped"]) == (number, 2, [])


def test_quiet_says_nothing_and_otherwise_progress_goes_to_stderr():
    assert good("run", "fedavg", *TINY) == Said(0, "", "")
    loud = good("run", "fedavg", *TINY[:-1])
    assert loud.out == ""
    assert "2/2" in loud.err
    assert "accuracy" in loud.err


# Every setting with a value of its own: does it change what the clients learn?
EVERY: dict[str, tuple[str, bool]] = {
    "method": ("prox(0.5)", True), "data": ("digits()", False), "data_dir": ("nowhere", False), "split": ("iid", True),
    "clients": ("7", True), "cohort": ("3", True), "participation": ("0.4", True), "model": ("mlp(4)", True),
    "head": ("head", False), "epochs": ("2", True), "steps": ("3", True), "batch": ("7", True), "lr": ("0.2", True),
    "lr_decay": ("0.5", True), "lr_schedule": ("step(1, 0.5)", True), "augment_public": ("none", False),
    "weight_decay": ("0.3", True), "clip": ("0.1", True), "optimizer": ("adam", True), "server_lr": ("0.5", True),
    "batchnorm": ("frozen", False),
    "rounds": ("2", False), "seed": ("1", True), "public": ("0.2", True), "augment": ("", True),
    "eval_every": ("3", False), "checkpoint_every": ("2", False), "engine": ("vector", False), "slice": ("1", False),
    "device": ("cpu", False), "precision": ("fp64", False),
}  # fmt: skip
BASE = {"model": "linear", "clients": "6", "cohort": "2", "steps": "2", "rounds": "2", "engine": "loop"}


def run_with(out: str, settings: dict[str, str]) -> list[float]:
    """Train with these settings as flags; gives the training losses."""
    given = BASE | settings
    if "participation" in settings:
        del given["cohort"]
    if "epochs" in settings:
        del given["steps"]
    method = given.pop("method", "fedavg")
    flags = [word for k, v in given.items() for word in (f"--{k.replace('_', '-')}", v) if word]
    good("run", method, *flags, "--out", out, "--quiet")
    return [line["train_loss"] for line in lines(out)]


def test_every_setting_is_a_flag_with_its_meaning():
    shown = " ".join(good("run", "--help").out.split())
    flags = {name: f"--{name.replace('_', '-')} " for name in FIELDS} | {"imports": "--import FILE "}
    for name, f in FIELDS.items():
        if name != "method" and "recorded" not in f.metadata["roles"]:
            assert flags[name] in shown
            assert f.metadata["doc"] in shown
    assert "--files" not in shown
    assert "--normalisation" not in shown


@pytest.mark.parametrize("name", EVERY)
def test_flag_is_kept_in_the_config_and_does_something(name: str):
    value, changes = EVERY[name]
    losses, base = run_with("one", {name: value}), run_with("base", {})
    kept = config("one")[name]
    expected = {"augment": "True", "augment_public": "False"}.get(name, value)
    assert str(kept) == expected
    assert (losses != pytest.approx(base, rel=1e-3)) == changes


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_low_precision_is_near(precision: str):
    low, base = run_with("low", {"precision": precision}), run_with("base", {})
    assert low == pytest.approx(base, rel=0.05)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused_and_auto_is_the_cpu():
    said = call("run", "fedavg", *TINY, "--device", "cuda")
    assert said.code == 2
    assert said.err == "holdfast: device cuda was requested, but PyTorch sees no CUDA GPU: use --device cpu\n"
    assert not Path("runs").exists()
    assert "on cpu" in good("run", "fedavg", *TINY[:-1], "--device", "auto").err


def test_eval_every_leaves_accuracy_out_except_at_the_end():
    said = good("run", "fedavg", *TINY, "--rounds", "5", "--eval-every", "2", "--out", "here", "--json")
    scores = [line["test"].get("accuracy") for line in lines("here")]
    assert [s is None for s in scores] == [True, False, True, False, False]
    assert said.json["last5"] == pytest.approx(np.mean([s for s in scores if s is not None]))


def test_participation_draws_each_client_by_chance_and_at_least_one():
    some = [*TINY[:4], "--rounds", "40", "--steps", "1", "--quiet", "--participation"]
    good("run", "fedavg", *some, "0.02", "--out", "rare")
    good("run", "fedavg", *some, "0.5", "--out", "half")
    good("run", "fedavg", *some, "1", "--out", "all")
    rare, half, everyone = ([len(line["cohort"]) for line in lines(f)] for f in ("rare", "half", "all"))
    assert min(rare) == 1
    assert np.mean(rare) < 2
    assert len(set(half)) > 2
    assert np.mean(half) == pytest.approx(3, abs=1)
    assert set(everyone) == {6}


@pytest.mark.parametrize("engine", ["loop", "vector"])
def test_with_full_batches_steps_are_epochs(engine: str):
    some = [*TINY[:6], "--rounds", "2", "--batch", "5000", "--engine", engine, "--quiet"]
    good("run", "fedavg", *some, "--steps", "3", "--out", "steps")
    good("run", "fedavg", *some, "--epochs", "3", "--out", "epochs")
    assert facts("steps") == facts("epochs")


def test_steps_and_epochs_together_are_refused():
    said = call("run", "fedavg", *TINY, "--epochs", "2")
    assert (said.code, said.out) == (2, "")
    assert said.err == "holdfast: epochs and steps cannot be used together: set one of them\n"


def test_config_file_then_set_then_flags():
    Path("my.toml").write_text('method = "prox(0.1)"\nlr = 0.2\nseed = 3\nbatch = 16\nmodel = "linear"\nrounds = 1\n')
    good(
        "run", "--config", "my.toml", "--set", "seed=4", "--set", "batch=8", "--batch", "4", "--quiet", "--out", "here"
    )
    kept = config("here")
    assert (kept["method"], kept["lr"], kept["seed"], kept["batch"]) == ("prox(0.1)", 0.2, 4, 4)
    good("run", "scaffold", "--config", "my.toml", "--set", "method=feddyn", "--quiet", "--out", "there")
    assert config("there")["method"] == "scaffold"


@pytest.mark.parametrize(
    ("pair", "name", "value"),
    [
        ("lr-decay=0.5", "lr_decay", 0.5), ("augment=yes", "augment", True), ("cohort=none", "cohort", None),
        ("split = iid", "split", "iid"), ("clip=1", "clip", 1.0),
    ],
)  # fmt: skip
def test_set_takes_any_setting(pair: str, name: str, value: object):
    good(
        "run", "fedavg", "--model", "linear", "--steps", "1", "--rounds", "1", "--set", pair, "--quiet", "--out", "here"
    )
    assert config("here").get(name) == value


def test_a_kept_config_runs_the_very_same_again():
    some = ("--split", "shards(2)", "--clip", "1", "--lr-decay", "0.9", "--seed", "5", "--public", "0.1")
    good("run", "scaffold+fedbug(0.5)", *TINY, *some, "--out", "first")
    good("run", "--config", "first/config.toml", "--quiet", "--out", "second")
    assert facts("first") == facts("second")


def test_overwrite_replaces_the_run():
    good("run", "scaffold", *TINY, "--rounds", "3", "--out", "here")
    good("run", "fedavg", *TINY, "--out", "here", "--overwrite")
    good("run", "fedavg", *TINY, "--out", "fresh")
    assert facts("here") == facts("fresh")
    assert {p.name for p in Path("here/checkpoint").iterdir()} == {p.name for p in Path("fresh/checkpoint").iterdir()}


# -- traffic --------------------
@pytest.mark.parametrize(
    ("method", "down", "up"),
    [
        ("fedavg", LINEAR, LINEAR),
        ("fedbug+prox+fedlc+clip+fedavgm", LINEAR, LINEAR),
        ("feddyn+moon", LINEAR, LINEAR),  # the states stay where they are
        ("scaffold", 2 * LINEAR, 2 * LINEAR),  # c down, the change of c_i up
        ("fedcm", 2 * LINEAR, LINEAR + 1),  # D down, the sum of rates up
        ("fedcm+fedbug", 2 * LINEAR, 2 * LINEAR),  # the rates differ by coordinate
        ("scaffold+fedcm", 3 * LINEAR, 2 * LINEAR + 1),
    ],
)
def test_traffic_in_bytes(method: str, down: int, up: int):
    said = good("run", method, *TINY, "--out", "here", "--json")
    clients, rounds, size = 2, 2, 4
    assert said.json["download_bytes"] == clients * rounds * size * down
    assert said.json["upload_bytes"] == clients * rounds * size * up
    assert [line["upload_bytes"] for line in lines("here")] == [clients * size * up] * rounds


def test_traffic_follows_the_cohort_and_the_precision():
    some = [*TINY[:4], "--steps", "1", "--rounds", "6", "--participation", "0.5", "--quiet"]
    good("run", "fedavg", *some, "--precision", "fp64", "--out", "here")
    for line in lines("here"):
        assert line["upload_bytes"] == line["download_bytes"] == 8 * LINEAR * len(line["cohort"])


# -- holdfast methods --------------------
def test_methods_lists_every_name_with_sum_hooks_and_paper():
    rows = {row["name"]: row for row in good("methods", "--json").json if row["group"] != "yours"}
    assert rows.keys() >= set(NAMED.split())
    assert all(row["sum"] and row["paper"] and row["summary"] and row["group"] for row in rows.values())
    assert rows["mofedsam"]["sum"] == "fedcm+sam"
    assert rows["fedavg"]["hooks"] == []
    assert rows["fedbug"]["hooks"] == ["rate"]
    assert rows["fednova"]["hooks"] == ["end", "aggregate"]
    assert rows["momentum"]["hooks"] == ["init_client", "begin", "optimise", "gain", "end"]
    assert set(rows["mofedsam"]["hooks"]) == {*rows["fedcm"]["hooks"], *rows["sam"]["hooks"]}
    assert {"init_client", "init_server", "broadcast", "direction", "end", "absorb"} <= set(rows["scaffold"]["hooks"])
    listed, verbose = good("methods").out, good("methods", "--verbose").out
    for row in rows.values():
        (line,) = [line for line in listed.splitlines() if line.startswith(f"  {row['name']} ")]
        assert row["summary"] in line
        assert row["paper"][:2] in line
        assert f"sum:   {row['sum']}" in verbose
        assert f"hooks: {', '.join(row['hooks']) or '-'}" in verbose
    assert "direction" not in listed.replace("local direction", "")


def test_the_list_of_methods_fits_a_screen():
    """In a process of its own, since other tests define parts."""
    command = [sys.executable, "-m", "holdfast", "methods"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) <= 68  # a line for each method
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines[:-1] if not line.startswith(" ")]
    assert headings == ["The five papers", "Baselines", "Building blocks", "Robust, private, cheap to send"]
    assert not [line for line in lines if "..." in line]


def test_parts_of_the_user_are_listed_apart():
    @dataclass(frozen=True)
    class Mine(holdfast.Part):
        name = "mine"
        summary = "Does what I want"

        def direction(self, c: holdfast.Client, g: Tensor, w: Tensor) -> tuple[Tensor, holdfast.Tensors]:
            return g, {}

    yours = good("methods").out.split("Yours\n")[1]
    assert "  mine             Does what I want\n" in yours
    (row,) = [row for row in good("methods", "--json").json if row["name"] == "mine"]
    assert (row["group"], row["hooks"], row["sum"]) == ("yours", ["direction"], "mine")
    Mine.internal = True  # so that other tests do not see it


def test_the_page_of_fedbug():
    page = good("methods", "fedbug").out
    for word in ("share", "0.4", "unit", "layer", "in [0, 1]", "unfreezing", "Kao and Wang 2023", "ceil(k*M / (P*K))"):
        assert word in page
    found = good("methods", "fedbug", "--json").json
    defaults = {p["name"]: p["default"] for p in found["parts"][0]["parameters"]}
    assert (defaults["share"], defaults["unit"]) == (0.4, "layer")


def test_a_page_says_what_cannot_be_summed():
    (part,) = good("methods", "nova", "--json").json["parts"]
    assert {"normalized", "mean", "adam", "adamw"} <= part["cannot_be_summed_with"].keys()
    assert "momentum" not in part["cannot_be_summed_with"]
    assert "prox" not in part["cannot_be_summed_with"]
    page = " ".join(good("methods", "fednova").out.split())
    why = "both aggregate the cohort"
    assert part["cannot_be_summed_with"]["normalized"] == why
    others = part["cannot_be_summed_with"]
    assert f"adamw: {others['adamw']} centred_clipping: {why}" in page
    assert f"multikrum: {why} normalized: {why}" in page


def test_a_page_says_what_must_come_before():
    (part,) = good("methods", "ccvr", "--json").json["parts"]
    assert part["must_come_after"].keys() >= {"fedexp", "latest"}
    assert not {"fedexp", "latest"} & part["cannot_be_summed_with"].keys()
    assert f"must come after: fedexp: {part['must_come_after']['fedexp']}" in " ".join(
        good("methods", "ccvr").out.split()
    )


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("fedadam", ["m <-", "v <-", "w ="]), ("fedyogi", ["m <-", "v <-", "w ="]), ("fedavgm", ["m <-", "w ="]),
        ("fedadagrad", ["m <-", "v <-", "w ="]), ("feddyn", ["direction =", "h_i <-", "h <-", "w ="]),
        ("scaffold", ["direction =", "c_i' =", "c <-"]), ("prox", ["direction ="]), ("fedcm", ["D <-"]),
    ],
)  # fmt: skip
def test_each_equation_stands_on_a_line_of_its_own(name: str, starts: list[str]):
    page = [" ".join(line.split()) for line in good("methods", name).out.splitlines()]
    for start in starts:
        assert [line for line in page if line.startswith(start)], start
    assert all(line.count("<-") <= 1 for line in page)


@pytest.mark.parametrize("name", NAMED.split())
def test_every_method_has_a_page(name: str):
    found = good("methods", name, "--json").json
    page = good("methods", name).out
    assert found["name"] == name
    assert page.startswith(name)
    for part in found["parts"]:
        assert part["text"]
        assert all(p["meaning"] and p["name"] in page for p in part["parameters"])


# -- holdfast split --------------------
def test_split_figures_by_hand():
    found = good("split", "--split", "dirichlet(0.1)", "--clients", "9", "--seed", "2", "--json").json
    counts = np.array(found["counts"])
    assert counts.shape == (9, 10)
    assert counts.sum() == 1438
    held = counts[counts.sum(1) > 0]
    mix = held / held.sum(1, keepdims=True)
    figures = found["figures"]
    assert figures["label_skew"] == pytest.approx(np.abs(mix - counts.sum(0) / 1438).sum(1).mean() / 2)
    assert figures["samples_per_client"]["max"] == counts.sum(1).max()
    assert figures["samples_per_client"]["mean"] == pytest.approx(held.sum(1).mean())
    assert figures["classes_per_client"]["mean"] == pytest.approx((held > 0).sum(1).mean())
    assert good("split", "--split", "iid", "--json").json["figures"]["label_skew"] < figures["label_skew"] / 2


def test_split_in_the_terminal_shows_every_client_and_the_figures():
    counts = good("split", "--clients", "5", "--json").json["counts"]
    said = good("split", "--clients", "5")
    shown = [[int(word) for word in line.replace("·", "0").split()] for line in said.out.splitlines()[1:6]]
    assert shown == [[i, sum(row), *row] for i, row in enumerate(counts)]
    for figure in ("samples per client", "classes per client", "label skew"):
        assert figure in said.out


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_split_picture(extra: tuple[str, ...]):
    said = good("split", "--clients", "5", "--png", "split.png", *extra)
    with Image.open("split.png") as image:
        image.load()
        assert image.format == "PNG"
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 10, "not a blank page"
    assert said.json["clients"] == 5 if extra else "split.png" in said.out


def test_split_holds_out_public_data():
    assert np.sum(good("split", "--public", "0.5", "--json").json["counts"]) == pytest.approx(1438 / 2, abs=5)


# -- holdfast models, and the group --------------------
def test_models_with_sizes_and_blocks(monkeypatch: pytest.MonkeyPatch):
    rows = {row["name"]: row for row in good("models", "--shape", "1x8x8", "--json").json}
    assert (rows["linear"]["parameters"], rows["mlp"]["parameters"]) == (LINEAR, MLP)
    assert rows["mlp"]["blocks"]["layer"] == 3
    assert "cnn" in rows
    monkeypatch.setenv("COLUMNS", "200")
    table = good("models", "--shape", "1x8x8").out
    assert all(name in table for name in rows)
    assert f"{MLP:,}" in table


def test_the_installed_command():
    said = subprocess.run([Path(sys.executable).with_name("holdfast"), "--version"], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
    assert "0.1.0" in said.stdout


@pytest.mark.parametrize("args", [("--help",), (), ("-h",)])
def test_help_lists_the_commands(args: tuple[str, ...]):
    said = call(*args)
    assert said.code == 0
    for command in ("run", "methods", "split", "data", "models"):
        assert f"\n  {command} " in said.out + said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_and_has_help(command: str):
    text = good(command, "--help").out
    assert text.startswith("Usage: ")
    assert "\n\nOptions:\n  -" in text
    assert "Show this message and exit." in text


@pytest.mark.parametrize("group", ["deploy", "data"])
def test_the_help_of_a_group_cuts_nothing_short(group: str):
    text = good(group, "--help").out.partition("Commands:")[2]
    assert "..." not in text
    own = importlib.import_module(COMMANDS[group][0]).command.commands
    for command in own.values():
        first = command.help.split("\n\n")[0]
        assert first.split(". ")[0].rstrip(".") in " ".join(text.split())


@pytest.mark.parametrize(
    ("command", "module"), [("reproduce", "holdfast.reproduce.command"), ("bench", "holdfast.bench.suites")]
)
def test_the_help_of_plain_commands_names_all_that_they_read(command: str, module: str):
    text = good(command, "--help").out
    assert good(command, "-h").out == text
    assert text.startswith("Usage: ")
    assert f" {command} [OPTIONS] [" in text.splitlines()[0]
    for action in importlib.import_module(module).parser()._actions:
        named = action.option_strings or [action.metavar or action.dest.upper()]
        assert f"  {', '.join(named)}" in text
        assert action.dest == "help" or action.help in " ".join(text.split())


@pytest.mark.parametrize("command", ["run", "split"])
def test_a_command_loads_torch_only_when_it_runs(command: str):
    code = f"import sys, holdfast.cli.{command}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


SLOW = (
    "sklearn",
    "scipy",
    "pandas",
    "matplotlib",
    "plotly",
    "flwr",
    "torch._dynamo",
)  # each takes half a second or more


def test_a_run_of_a_dense_model_loads_no_package_that_is_slow_to_import(tmp_path: Path):
    code = f"""
import sys, holdfast
result = holdfast.run("scaffold", model="linear", rounds=1, steps=1, device="cpu", out="run")
assert result.summary["engine"] == "vector"
print(*(name for name in {SLOW} if name in sys.modules))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "\n"), said.stderr


@pytest.mark.parametrize("name", ["[/x]", "a b [bold]", "it's"])
def test_a_stopped_run_names_its_folder_as_it_is_and_quotes_it_for_a_shell(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result = holdfast.run("fedavg", clients=2, rounds=2, epochs=1, model="linear", out=name, stop=lambda: True)
    show(result, RunProgress("fedavg"))
    printed = capsys.readouterr().err
    lead, _, command = printed.splitlines()[-1].partition(": ")
    assert lead == "stopped; to resume"
    assert shlex.split(command) == ["holdfast", "run", "--resume", "--out", name]


def test_folders_of_data_are_printed_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    done = CliRunner().invoke(data_command, ["list", "--data-dir", str(tmp_path / "[bold]")])
    assert done.exit_code == 0, done.output
    assert "[bold]" in done.output

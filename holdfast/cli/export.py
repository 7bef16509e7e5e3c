"""``holdfast export RUN``: write the model of a run for use without Holdfast."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "kind", default="torch", show_default=True, metavar="torch|safetensors|onnx",
              help="torch: a program for torch.export.load; safetensors: weights; onnx: for onnxruntime")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="folder to write to  [default: export/FORMAT in RUN]")
@click.option("--best", is_flag=True, help="the model of the best round by validation data, not the newest")
def command(run: Path, kind: str, out: Path | None, best: bool) -> None:
    """Write the model in the folder RUN with its normalisation, its class names and a model card.

    In the formats torch and onnx the model takes raw inputs and needs no Holdfast. What was written is read again and
    compared with the model.
    """
    from holdfast.runs.load_run import load_run
    from holdfast.runs.run_files import EXPORT

    folder = run / EXPORT / kind if out is None else out
    files = load_run(run, best=best).export(folder, kind)
    click.echo(f"the model is in {folder}: {', '.join(file.name for file in files)}")

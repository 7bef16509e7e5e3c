"""``holdfast predict RUN --data FILE``: use the model of a run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import numpy as np


@click.command("predict")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), required=True,
              help="samples: a .npy, .npz, .csv or .parquet file, an image, or a folder of images")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write  [default: standard output]")
def command(run: Path, data: Path, out: Path | None) -> None:
    """Predict the classes of new samples with the model in the folder RUN, finished or not.

    Samples are raw, as the training data was: the model scales and normalises them as in training. Rows of a table are
    encoded as in training; their columns may be in any order. The answer has a
    line per sample: its number or file, the predicted class, and the probability of every class.
    """
    from holdfast.core.files import write_atomically
    from holdfast.data.sample_files import read_samples
    from holdfast.runs.load_run import load_run

    result = load_run(run)
    x, names = read_samples(data, tuple(result.facts.inputs[0].shape), result.facts.encoding is not None)
    text = as_csv(names, result.predict_proba(x), result.classes)
    if out is None:
        click.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    click.echo(f"the classes of {len(names)} sample{'s' * (len(names) != 1)} are in {out}", err=True)


def as_csv(names: Sequence[str], probabilities: np.ndarray, classes: Sequence[str]) -> str:
    """Write a line per sample: its name, the most probable class, and all probabilities.

    Args:
        names: The samples.
        probabilities: A row per sample, a column per class.
        classes: The class names.

    Returns:
        The table.

    >>> import numpy as np
    >>> print(as_csv(["0"], np.array([[0.25, 0.75]]), ["cat", "dog"]), end="")
    sample,class,cat,dog
    0,dog,0.250000,0.750000
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["sample", "class", *classes])
    for name, row in zip(names, probabilities, strict=True):
        writer.writerow([name, classes[int(row.argmax())], *(f"{p:.6f}" for p in row)])
    return file.getvalue()

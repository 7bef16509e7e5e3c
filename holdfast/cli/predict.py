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
              help="samples: a .npy, .npz, .csv or .parquet file, a .txt file with a text per line, an image, or a "
              "folder of images")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), help="CSV file to write  [default: standard output]")
@click.option("--best", is_flag=True, help="the model of the best round by validation data, not the newest")
def command(run: Path, data: Path, out: Path | None, best: bool) -> None:
    """Predict the targets of new samples with the model in the folder RUN, finished or not.

    Samples are raw, as the training data was: the model scales and normalises them as in training. Rows of a table are
    encoded as in training; their columns may be in any order. The answer has a line per sample: its number or file,
    then the predicted class, or labels, and the probability of every one; or the predicted numbers. For texts the class
    is the character or token that comes next.
    """
    from holdfast.core.files import write_atomically
    from holdfast.data.sample_files import read_samples
    from holdfast.runs.load_run import load_run
    from holdfast.tasks.task import NUMBERS

    result = load_run(run, best=best)
    x, names = read_samples(data, tuple(result.facts.inputs[0].shape), result.facts.encoding is not None)
    numbers = result.task.targets == NUMBERS
    found = result.predict(x) if numbers else result.predict_proba(x)
    found = found[:, -1] if found.ndim == 3 else found  # of tokens: what comes next
    text = as_csv(names, found, result.classes, result.task.targets)
    if out is None:
        click.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    click.echo(
        f"the {'predictions' if numbers else 'classes'} of {len(names)} sample{'s' * (len(names) != 1)} are in {out}",
        err=True,
    )


def as_csv(names: Sequence[str], values: np.ndarray, outputs: Sequence[str], targets: str = "class") -> str:
    """Write a line per sample: its name, what is predicted, and the probabilities if there are any.

    Args:
        names: The samples.
        values: A row per sample, a column per output: probabilities, or the numbers that are predicted.
        outputs: The names of the classes, labels or numbers.
        targets: What a sample's target is: a ``class``, ``labels``, ``numbers`` or ``tokens``, of which one comes next.

    Returns:
        The table.

    >>> import numpy as np
    >>> print(as_csv(["0"], np.array([[0.25, 0.75]]), ["cat", "dog"]), end="")
    sample,class,cat,dog
    0,dog,0.250000,0.750000
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    numbers = targets == "numbers"
    title = "token" if targets == "tokens" else targets
    writer.writerow(["sample", *([] if numbers else [title]), *outputs])
    for name, row in zip(names, values, strict=True):
        chosen = [output for output, p in zip(outputs, row, strict=True) if p > 0.5]
        answer = " ".join(chosen) if targets == "labels" else outputs[int(row.argmax())]
        writer.writerow([name, *([] if numbers else [answer]), *(f"{v:.6g}" if numbers else f"{v:.6f}" for v in row)])
    return file.getvalue()

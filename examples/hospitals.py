"""Hospitals from a CSV file: each row says whose patient it is, and every hospital is a client with its name.

The table is made up. One hospital treats hardly any ill patients, one only old ones, and some cells are empty.
"""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import holdfast

HOSPITALS = {"Bonn": (50, 0.0), "Ulm": (50, -1.5), "Trier": (72, 0.5), "Jena": (40, 0.5), "Kiel": (55, 1.0)}
COLUMNS = ("age", "pressure", "smoker", "hospital", "outcome")


def write_table(file: Path, each: int = 120) -> None:
    """Write rows of patients whose risk grows with age, blood pressure and smoking."""
    draw = torch.Generator().manual_seed(0)
    with file.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(COLUMNS)
        for hospital, (usual_age, risk) in HOSPITALS.items():
            ages = usual_age + 10 * torch.randn(each, generator=draw)
            pressures = 130 + 15 * torch.randn(each, generator=draw)
            smokers = torch.rand(each, generator=draw) < 0.3
            noise = torch.randn(each, generator=draw)
            for age, pressure, smoker, luck in zip(ages, pressures, smokers, noise, strict=True):
                score = (age - 55) / 10 + (pressure - 130) / 20 + 1.5 * smoker + risk + 0.5 * luck
                known = "" if luck > 1.5 else f"{pressure:.0f}"
                rows.writerow([f"{age:.0f}", known, bool(smoker), hospital, "ill" if score > 0.5 else "well"])


def main(rounds: int = 20) -> holdfast.Result:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "patients.csv"
        write_table(file)
        data = holdfast.from_csv(file, label="outcome", client="hospital")
        federation = holdfast.federate(data, validation=0.2, client_test=0.2)
        result = holdfast.run("scaffold", federation, "linear", rounds=rounds, lr=0.05, metric="balanced_accuracy")
    print(result)
    for name, row in result.client_scores().items():
        print(f"{name:6} {row.score:.3f}")
    return result


if __name__ == "__main__":
    main()

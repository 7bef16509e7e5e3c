"""What the campaign prints and writes: a line per part, the table, and the page in ``docs/``."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from campaign.cases import Part

PAGE = """# Reliability

`make campaign` tries to break Holdfast for some minutes. It is not part of `make test`; a very short campaign is, so
that it keeps working. Every case starts real processes and ends as promised, or it is a finding.

- **Killed and resumed.** `run`, `compare` and `reproduce` get SIGKILL at random moments, up to three times per case,
  and are resumed until they finish. Runs vary the method (all of them keep states), `--states` and
  `--checkpoint-every`. Promise: history and summary equal those of a command that nobody killed, in every field except
  the clock.
- **Damaged files.** One file of a run or of a comparison gets a flipped bit or another digit, is cut in half, emptied,
  deleted, or replaced by a folder. Then the run is resumed, resumed for more rounds, or reported; the comparison is
  repeated, extended by a seed, or reported. Promise: exit code 2, one line, and no file changed (a command that the
  system stops on its way keeps what it has recorded, and leaves no file half written); or exit code 0 and the history
  and summary of an undamaged folder. Of a report that succeeds, only the exit code is checked.
- **Disk full, folder read-only.** No file may grow beyond a random size, or the folder may not be written. Promise: one
  line and exit code 2; with space again, the command resumes to the same history.
- **Two writers.** A second command uses the folder of a running one, or both start at the same moment. Promise: one
  ends as if it were alone, the other is refused in one line.
- **A hostile node.** One of four nodes of a deployment in memory spoils about half of its replies: other numbers, such
  as 10^18 or 2^47 samples, NaN, infinite or huge values, updates times -100 or 1e30, other shapes and types, damaged
  bytes, errors, silence. Promise: the run ends with a finite model, or with a one-line error; and with a median, a
  geometric median or centred clipping the model moves at most ten times as far as without that node.

Checkpoints are written in a thread while the next rounds train ([performance](performance.md#checkpoints)). After
SIGKILL the last checkpoint may therefore be one older than before: one more round, or with `--checkpoint-every N` N
more, are trained again, with the same result. Everything else is as it was: there is one writer, and at most one
checkpoint under way; the history is on the disk before the checkpoint that covers it, the manifest comes last, and
what is read back is a whole round. An error of the writer, such as a full disk, ends the run after the current round
in the same one line. Ctrl-C and the end of a run wait for the writer. The tests kill the process at every rename of a
writer that is as late as it can be, and compare every file of a late checkpoint, byte for byte, with that of a prompt
one.

## Last result

{date}, commit {commit}, seed {seed}, {seconds:.0f} seconds:

{table}

{findings}

Again: `make campaign`, which rewrites this page; `.venv/bin/python -m campaign --help` lists the options, such as
`--seed` and `--minutes`. The exit code is 1 if there are findings. The choices of a seed are always the same, but the
moments of the kills depend on the machine.
"""


def table(parts: list[Part]) -> str:
    """Return a Markdown table with a row per part."""
    rows = ["| part | cases | of these | findings |", "|---|---|---|---|"]
    for part in parts:
        rows.append(f"| {part.name} | {part.cases} | {counts(part)} | {len(part.findings)} |")
    cases, findings = (sum(numbers) for numbers in zip(*((p.cases, len(p.findings)) for p in parts), strict=True))
    return "\n".join([*rows, f"| together | {cases} | | {findings} |"])


def counts(part: Part) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted(part.counts.items()))


def progress(part: Part, seconds: float) -> str:
    more = f" ({counts(part)})" if part.counts else ""
    return f"{part.name}: {part.cases} cases{more}, {len(part.findings)} findings, {seconds:.0f} s"


def page(parts: list[Part], seed: int, seconds: float, commit: str) -> str:
    """Return the page in ``docs/``.

    Args:
        parts: The parts, finished.
        seed: The seed of the campaign.
        seconds: How long it took.
        commit: The commit it tested.

    Returns:
        The page, in Markdown.
    """
    found = [f"- {finding}" for part in parts for finding in part.findings]
    text = "\n".join(["Findings:", "", *found]) if found else "No findings."
    date = time.strftime("%Y-%m-%d")
    return PAGE.format(date=date, commit=commit, seed=seed, seconds=seconds, table=table(parts), findings=text)


def commit(root: Path) -> str:
    """Return the commit of the repository, as ``git describe`` names it."""
    args = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    return subprocess.run(args, capture_output=True, text=True).stdout.strip() or "unknown"

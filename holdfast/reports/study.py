"""What a report is about: the comparison or the run in a folder, as a study."""

from __future__ import annotations

from pathlib import Path

from holdfast.comparison.single_run import study_of_run
from holdfast.comparison.study_folder import PLAN, RESULT, StudyFolder
from holdfast.comparison.study_schema import Study
from holdfast.comparison.unfinished import outgrown, study_so_far
from holdfast.core.errors import HoldfastError
from holdfast.core.shell_words import quoted
from holdfast.reproduce.store import PAGE as REPRODUCTION_PAGE
from holdfast.reproduce.store import RESULT as REPRODUCTION
from holdfast.runs.run_files import CONFIG, HISTORY

BELOW = (f"*/{PLAN}", f"*/{CONFIG}", f"*/*/{PLAN}", f"*/*/{CONFIG}")  # where to look for something to report


def read_study(folder: Path) -> Study:
    """Read the comparison or the run in a folder, finished or as far as it is."""
    comparison = StudyFolder(folder)
    if (folder / PLAN).exists():
        plan = comparison.stored()  # first: it brings an old folder up to date
        study = comparison.result() if (folder / RESULT).exists() else None
        return study_so_far(comparison) if study is None or outgrown(plan, study) else study
    if (folder / RESULT).exists():
        return comparison.result()
    if (folder / CONFIG).exists():
        return study_of_run(folder)
    raise HoldfastError(nothing_here(folder))


def nothing_here(folder: Path) -> str:
    """Say why there is nothing to report in a folder, and what can be reported below it."""
    if not folder.is_dir():
        return f"{folder} is not a folder: give the folder of a run or a comparison"
    example = next((p.parent for pattern in BELOW for p in sorted(folder.glob(pattern))), None)
    command = f" `holdfast report {quoted(str(example))}`" if example else ""
    if (folder / REPRODUCTION).exists():
        single = f"; a single run can be reported, such as{command}" if example else ""
        return f"{folder} holds a reproduction: its tables are in {folder / REPRODUCTION_PAGE}{single}"
    below = f"; try{command}" if example else ": give the folder of one"
    return (
        f"{folder} holds neither a run ({CONFIG} and {HISTORY}) nor a comparison ({RESULT}, or {PLAN} until it is "
        f"finished){below}"
    )

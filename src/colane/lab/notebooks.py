"""Studies in notebooks, their results as pandas DataFrames."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from colane.lab.studies.file import Extra, StudyError, read_plan
from colane.lab.studies.run import look, results, simulate_missing, tables, write_results

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFrames:
    """What a study found, as DataFrames with the columns of its CSV files."""

    cells: pd.DataFrame  # one row for each simulation
    # one row for each metric of each policy at each load against the baseline; empty with one policy
    comparisons: pd.DataFrame
    # one row for each job of each simulation; None, as the next two, where `files` does not name it
    jobs: pd.DataFrame | None
    stays: pd.DataFrame | None  # one row for each time a job was on GPUs
    timeline: pd.DataFrame | None  # what holds of the cluster from each moment on
    sentences: tuple[str, ...]  # one for each significant difference
    notes: tuple[str, ...]  # what a reader must know


def study(
    path: str | Path, out: str | Path | None = None, *, processes: int | None = None, again: bool = False
) -> StudyFrames:
    """Simulate what is missing of a study, as `colane study` does, and return all of it.

    Args:
        path: The study file.
        out: Where simulations and tables are kept; None is a directory named as the file, beside it.
        processes: So many simulations at a time; None is one for each core, 1 is this process alone. A script
            asks for several under `if __name__ == "__main__":` only, as each process begins with its other lines.
        again: Simulate anew what was kept of other inputs.

    Raises:
        ImportError: Pandas is not installed.
        StudyError: The file cannot be used, a simulation failed, or what was kept had other inputs.
        ValueError: Something that it names is not there or not right.
        KeyboardInterrupt: It was interrupted; what had ended is kept.
    """
    try:
        import pandas  # noqa: ICN001, PLC0415 - an extra
    except ImportError as error:
        raise ImportError("colane.lab needs pandas: pip install 'colane[lab]'") from error
    plan = read_plan(Path(path))
    folder = plan.path.with_suffix("") if out is None else Path(out)
    found = look(plan, folder)
    if found.stale and not again:
        names = sorted({name for differing in found.stale.values() for name in differing})
        raise StudyError(
            f"{folder}: what is kept had other inputs ({', '.join(names)}); say again=True, or another out"
        )
    # This process alone where others could not begin as it did: its program came by standard input.
    file = getattr(sys.modules["__main__"], "__file__", None)
    there = (os.cpu_count() or 1) if file is None or Path(file).exists() else 1
    worked = simulate_missing(plan, folder, found, processes or there)
    if worked.was_interrupted:
        raise KeyboardInterrupt
    if worked.problems:
        raise StudyError(worked.problems[0])
    made = results(plan, folder, found.inputs)
    write_results(made)
    frames = {name: pandas.DataFrame(list(one.rows), columns=list(one.columns)) for name, one in tables(made)}
    return StudyFrames(
        cells=frames["cells"],
        comparisons=frames.get("comparisons", pandas.DataFrame()),
        jobs=frames.get(Extra.JOBS),
        stays=frames.get(Extra.STAYS),
        timeline=frames.get(Extra.TIMELINE),
        sentences=made.sentences,
        notes=made.notes,
    )

"""Paper D's evaluation (Zhao et al.: CODA), as far as a simulation can tell: the CPU side of training."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colane.lab.papers.claims import Claim, Evaluation
from colane.lab.papers.cpu_ceiling import pool_claim
from colane.lab.papers.cpu_month import (
    CODA,
    HEAVIER,
    NO_ELIMINATOR,
    MonthRun,
    eliminator_claim,
    generator_claim,
    heavy_at_once,
    month,
    month_claims,
    month_experiment,
    run_month,
    setups,
)  # fmt: skip
from colane.lab.papers.cpu_neighbours import contention_claim
from colane.lab.papers.cpu_tuning import TuningRun, tuning_claims, tuning_runs
from colane.lab.simulate.table_files import SYNERGY, file_of
from colane.lab.traces.coda import Coda
from colane.lab.traces.tables import synergy
from colane.lab.traces.workload import Workload


@dataclass(frozen=True, slots=True)
class CpuEvaluation(Evaluation):
    """Claims, with what is written beside them.

    Attributes:
        tuning: Every search of a tuner.
    """

    tuning: tuple[TuningRun, ...] = ()


MONTH_JOBS, MONTH_SEED = 10_000, 1
"""The first tenth of the month: three days; `benchmarks/cpu_month.py` runs all of it, with several seeds."""


def evaluate(tables: Path | None, jobs: int | None = None, names: Sequence[str] | None = None) -> CpuEvaluation:
    """Run everything.

    Args:
        tables: Directory of measured tables; None takes `COLANE_DATA`.
        jobs: Of the month; None takes `MONTH_JOBS`.
        names: Setups to run on it; None runs all.

    Raises:
        InputFileError: There are no tables.
    """
    curves = synergy.read_matrix(file_of(tables, SYNERGY))
    runs = tuning_runs(curves)
    workload = month(jobs or MONTH_JOBS, MONTH_SEED)
    found = run_month(workload, tuple(setups()) if names is None else names)
    claims = (*month_claims(found), *_eliminator(found, workload))
    claims += (contention_claim(), pool_claim(workload), generator_claim(workload), *tuning_claims(runs, curves))
    experiment = month_experiment(workload, found, MONTH_SEED)
    return CpuEvaluation(claims=claims, experiments=(experiment,), tuning=tuple(runs))


def _eliminator(found: Mapping[str, MonthRun], workload: Workload) -> Iterator[Claim]:
    """Where both of its setups were run."""
    if {CODA, NO_ELIMINATOR} <= found.keys():
        heavier = month(len(workload.jobs), MONTH_SEED, HEAVIER * Coda().heavy_ratio)
        yield eliminator_claim(found, run_month(heavier, (CODA, NO_ELIMINATOR)), heavy_at_once(workload))


def write_tables(found: CpuEvaluation, out: Path) -> None:
    """Write every search as a row of `tuning.csv`.

    Raises:
        OSError: It cannot be written.
    """
    _write_rows(out / "tuning.csv", TuningRun._fields, found.tuning)


def _write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)

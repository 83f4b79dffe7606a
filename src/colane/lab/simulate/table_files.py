"""Which files of a directory are measured tables, and reading them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from colane.lab.simulate.gavel_speeds import GavelSpeeds, PolluxSpeeds, fitting_memory, measured_type, with_lengths
from colane.lab.simulate.tables import (
    SalusSpeeds,
    ScalingSpeeds,
    Sources,
    SpeedTable,
    SynergyCores,
    TopologySpeeds,
    canonical,
)
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.generate import JobModel
from colane.lab.traces.tables import gavel, pollux, salus, scaling, synergy, topology
from colane.lab.traces.tables.gavel import GavelTable
from colane.lab.traces.workload import Note, TraceJob, Workload
from colane.settings.input_file import InputFileError

DATA_VARIABLE = "COLANE_DATA"  # directory of measured tables, where none is named
GAVEL_PAIRS = Path("A/gavel_v100_throughputs.json.gz")
GAVEL_ALONE = Path("A/gavel_isolated.csv")
SALUS_GEOMETRY = Path("B/workload_geometry.csv")
TOPOLOGY_TIMES = Path("C/prof_from_experiments.json")
SCALING = Path("E/calibrated_f.json")
SYNERGY = Path("traces/synergy-cpu/tput_matrix.csv")
TABLES = (GAVEL_PAIRS, GAVEL_ALONE, SALUS_GEOMETRY, TOPOLOGY_TIMES, SCALING, SYNERGY)
POLLUX = Path("traces/pollux-profiles/traces")
"""A folder of a folder for each application; `--tables` may also name that folder, or the one above it."""


def need_tables(named: Path) -> None:
    """Refuse a file or directory that has been named and holds no table. Raises InputFileError: so it is."""
    has_others = any((named / table).exists() for table in TABLES)
    if has_others or has_sources(named) or pollux_table(named) is not None:
        return
    problem = f"holds no measured table; expected files such as {GAVEL_ALONE}, or any of Gavel's throughput files"
    raise InputFileError(named, problem if named.is_dir() else "there is no such file or directory of measured tables")


def folder_of(named: Path | None) -> Path | None:
    """The file or directory of measured tables: the one named, else `COLANE_DATA`."""
    return named or (Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None)


def has_sources(named: Path | None = None) -> bool:
    """Whether there is a table of throughputs to draw models from and to move jobs by."""
    folder = folder_of(named)
    return folder is not None and any(True for _ in _throughput_files(folder))


def gavel_models(named: Path | None = None) -> tuple[JobModel, ...]:
    """Gavel's one-GPU models with their speeds and the memory derived from which pairs fit.

    Speeds are those on a V100 where there are any, else on the first type by name.
    """
    tables = _gavel_tables(_required(named))
    table = next((one for one in tables if one.pair_steps_per_s), tables[0])
    memory = fitting_memory(table)
    types = sorted({spot.gpu_type for spot, _ in table.alone_steps_per_s})
    models = table.models("v100" if "v100" in types else types[0])
    return tuple(replace(model, gpu_memory_bytes=memory.get((model.family, model.batch_size))) for model in models)


def pair_type(named: Path | None = None) -> str:
    """The GPU type on which Gavel's pairs were measured, as `gavel_models` takes them; empty where there are none."""
    table = next((one for one in _gavel_tables(_required(named)) if one.pair_steps_per_s), None)
    return "" if table is None else measured_type(table)


def file_of(named: Path | None, name: Path) -> Path:
    """Return a table that must be there, in that directory or in the one that `DATA_VARIABLE` names.

    Raises InputFileError: it is not.
    """
    folder = named if named is not None else Path(os.environ.get(DATA_VARIABLE, ""))
    if not (folder / name).is_file():
        raise InputFileError(folder, f"holds no {name}; name a directory that does, or set {DATA_VARIABLE}")
    return folder / name


def pollux_table(named: Path | None = None) -> pollux.PolluxTable | None:
    """Pollux's measurements, where there are any."""
    folder = folder_of(named)
    places = () if folder is None else (folder / POLLUX, folder / "traces", folder)
    found = next((place for place in places if pollux.is_there(place)), None)
    return None if found is None else pollux.read(found)


def with_known_lengths(workload: Workload, named: Path | None = None) -> Workload:
    """Give jobs without a length the one that Pollux's measurements have for them, where there are any."""
    has_all = all(job.duration_s is not None or job.steps is not None for job in workload.jobs)
    table = None if has_all else pollux_table(named)
    return workload if table is None else with_lengths(workload, table)


class MemoryFrom(StrEnum):
    """What stands in for the memory of a job of which it is not known."""

    SHARE = "share"  # the part of a GPU it asks for, of the smallest of the cluster
    MODEL = "model"  # what Salus measured of its model, at the batch size next to its own


def with_memory(workload: Workload, by: MemoryFrom, cluster: Cluster, named: Path | None) -> Workload:
    """Give jobs that tell no memory one that stands in for it."""
    smallest = min([gpu.memory_bytes for node in cluster.nodes for gpu in node.gpus], default=0)
    table = salus.read_geometry(file_of(named, SALUS_GEOMETRY)).models() if by is MemoryFrom.MODEL else ()
    jobs, given = list[TraceJob](), 0
    for job in workload.jobs:
        batch, peak = job.batch_size or 0, round(job.gpu_ratio * smallest) if by is MemoryFrom.SHARE else None
        alike = [one for one in table if canonical(one.family) == canonical(job.model)]
        if alike:
            peak = min(alike, key=lambda one: abs((one.batch_size or 0) - batch)).gpu_memory_bytes
        if job.spec.gpus and job.memory is None and peak:
            job, given = replace(job, spec=replace(job.spec, gpu_memory_bytes=peak)), given + 1  # noqa: PLW2901
        jobs.append(job)
    note = Note(given, "job", f"given a memory that stands in for their own, by {by}")
    return replace(workload, jobs=tuple(jobs), notes=(*workload.notes, note))


def read_sources(named: Path | None = None) -> Sources:
    """Every table of a directory of measured data, or the one table that is named.

    None takes the directory of `COLANE_DATA`. Raises InputFileError: there is no table, or one is not right.
    """
    folder = _required(named)
    need_tables(folder)
    throughputs = _gavel_tables(folder)
    speeds: list[SpeedTable] = [GavelSpeeds(*throughputs)] if throughputs else []
    if (folder / TOPOLOGY_TIMES).exists():
        speeds.append(TopologySpeeds(topology.read(folder / TOPOLOGY_TIMES)))
    if (folder / SALUS_GEOMETRY).exists():
        speeds.append(SalusSpeeds(salus.read_geometry(folder / SALUS_GEOMETRY)))
    if (folder / SCALING).exists():
        speeds.append(ScalingSpeeds(scaling.read(folder / SCALING)))
    placements = pollux_table(folder)
    if placements is not None:
        speeds.append(PolluxSpeeds(placements))
    cores = SynergyCores(synergy.read_matrix(folder / SYNERGY)) if (folder / SYNERGY).exists() else None
    return Sources(tuple(speeds), cores)


def _required(named: Path | None) -> Path:
    folder = folder_of(named)
    if folder is None:
        raise InputFileError("--tables", f"name the directory of measured tables, or set {DATA_VARIABLE}")
    return folder


def _gavel_tables(folder: Path) -> list[GavelTable]:
    """Gavel's tables, those with pairs first."""
    tables = [gavel.read_any(path) for path in _throughput_files(folder)]
    return sorted(tables, key=lambda table: not table.pair_steps_per_s)


def _throughput_files(folder: Path) -> Iterator[Path]:
    """The file that is named, whatever it is called; in a directory those two it is known by, else any that is one."""
    if folder.is_file():
        yield folder
        return
    known = [folder / name for name in (GAVEL_PAIRS, GAVEL_ALONE) if (folder / name).exists()]
    places = [(place, pattern) for place in (folder, folder / "A") for pattern in ("*.json", "*.json.gz", "*.csv")]
    found = (path for place, pattern in places for path in sorted(place.glob(pattern)))
    yield from known or filter(gavel.is_throughputs, found)

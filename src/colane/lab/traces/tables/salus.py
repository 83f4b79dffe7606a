"""Salus's memory and step times of CNNs on a P100 (Yu and Chowdhury, MLSys 2020; Apache-2.0).

`mem-baseline.csv`: P (persistent: model and the framework's own) and E (ephemeral peak within an iteration), in MB of
2^20 bytes. `workload_geometry.csv`: the same with seconds per iteration and start-up time, for 33 CNN workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from colane.lab.traces import cells
from colane.lab.traces.generate import JobModel
from colane.lab.traces.readers.assemble import MIB
from colane.lab.traces.readers.lists import split_workload
from colane.lab.traces.sheet import read_sheet
from colane.model.profile import Memory
from colane.settings.input_file import read_text


@dataclass(frozen=True, slots=True)
class SalusGeometry:
    """One workload: model and batch."""

    step_s: float  # seconds per iteration alone on a P100: slope of run time over iterations
    startup_s: float  # its intercept
    memory: Memory  # P and E
    mean_bytes: int  # mean use over a run


@dataclass(frozen=True, slots=True)
class SalusTable:
    """Geometry by the name Salus gives a workload, such as `resnet50_25`."""

    geometry: Mapping[str, SalusGeometry]

    def of(self, model: str, batch_size: int | None) -> SalusGeometry | None:
        """Geometry of a model and batch, None where it was not measured."""
        return self.geometry.get(model if batch_size is None else f"{model}_{batch_size}")

    def models(self) -> tuple[JobModel, ...]:
        """What a generator may draw from, with memory P + E and speed alone on a P100."""
        named = [(*split_workload(name), one) for name, one in sorted(self.geometry.items())]
        return tuple(
            JobModel(family=family, batch_size=batch, steps_per_s=1 / one.step_s, gpu_memory_bytes=sum(one.memory))
            for family, batch, one in named
        )


def read_memory(path: Path) -> Mapping[str, Memory]:
    """Read `mem-baseline.csv`: P and E by workload; names with `eval` are inference.

    Raises InputFileError: a missing column, a bad cell, or a workload twice.
    """
    sheet = read_sheet(path, read_text(path))
    names = sheet.unique_names("Network")
    persistent, ephemeral = sheet.column("Persistent Mem (MB)", _mebibytes), sheet.column("Peak", _mebibytes)
    return {name: Memory(p, e) for name, p, e in zip(names, persistent, ephemeral, strict=True)}


def read_mean_bytes(path: Path) -> Mapping[str, int]:
    """Read `mem-baseline.csv`: mean use over a run by workload.

    Raises InputFileError: a missing column or a bad cell.
    """
    sheet = read_sheet(path, read_text(path))
    return dict(zip(sheet.column("Network", cells.word), sheet.column("Average", _mebibytes), strict=True))


def read_geometry(path: Path) -> SalusTable:
    """Read `workload_geometry.csv`. Raises InputFileError: a missing column, a bad cell, or a workload twice."""
    sheet = read_sheet(path, read_text(path))
    names = sheet.unique_names("workload")
    parsers: tuple[tuple[str, Callable[[str], float]], ...] = (
        ("sec_per_iter", cells.seconds), ("startup_s", cells.seconds), ("persistent_mb", _mebibytes),
        ("ephemeral_mb", _mebibytes), ("avg_mb", _mebibytes),
    )  # fmt: skip
    rows = zip(*(sheet.column(name, parse) for name, parse in parsers), strict=True)
    geometry = (SalusGeometry(step, start, Memory(int(p), int(e)), int(mean)) for step, start, p, e, mean in rows)
    return SalusTable(dict(zip(names, geometry, strict=True)))


def _mebibytes(text: str) -> int:
    return round(cells.seconds(text) * MIB)

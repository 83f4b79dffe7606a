"""Times of the topology-aware scheduler (Amaral et al., SC 2017; Apache-2.0): `prof_from_experiments.json`.

Seconds for 4000 iterations on a Power8 Minsky, alone with all GPUs on one socket or across both, and next to another
job. The collocated runs were spread over both sockets, so most of the slowdown against one socket alone is placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from colane.lab.traces.readers.assemble import load_json
from colane.lab.traces.readers.topo import STEPS
from colane.settings.input_file import InputFileError, read_text

Key = TypeVar("Key")


class TopologyJob(NamedTuple):
    """What decides a job's time: model, batch per GPU, GPUs."""

    model: str
    batch_size: int
    gpus: int


@dataclass(frozen=True, slots=True)
class TopologyTable:
    """Seconds for `STEPS` iterations; what was not measured (0 in the file) is absent."""

    one_socket_s: Mapping[TopologyJob, float]  # alone, all GPUs on one socket
    across_s: Mapping[TopologyJob, float]  # alone, GPUs on both sockets
    collocated_s: Mapping[tuple[TopologyJob, TopologyJob], float]  # of the first job next to the second

    def solo(self, job: TopologyJob, *, one_socket: bool = True) -> float | None:
        """Seconds alone, None where it was not measured (one or three GPUs have one way to lie)."""
        return (self.one_socket_s if one_socket else self.across_s).get(job)

    def next_to(self, job: TopologyJob, other: TopologyJob) -> float | None:
        """Seconds of a job while another runs on the machine, None where it was not measured."""
        return self.collocated_s.get((job, other))

    def step_s(self, job: TopologyJob, *, one_socket: bool = True) -> float | None:
        """Mean step time alone."""
        total_s = self.solo(job, one_socket=one_socket)
        return None if total_s is None else total_s / STEPS


def read(path: Path) -> TopologyTable:
    """Read the profile. Raises InputFileError: it is not of that form, or a time is negative."""
    document = load_json(path, read_text(path))
    try:
        solo, beside = _jobs(document["solo"]), _jobs(document["collocation"])
        return TopologyTable(
            _measured((job, times["intra-socket"]) for job, times in solo),
            _measured((job, times["inter-socket"]) for job, times in solo),
            _measured(((job, other), value) for job, others in beside for other, value in _jobs(others)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputFileError(path, f"is not a profile of solo and collocated times: {error!r}") from error


def _jobs(models: Mapping[str, Any]) -> list[tuple[TopologyJob, Any]]:
    """Jobs of `model -> batch -> num_gpus -> GPUs -> value`."""
    return [
        (TopologyJob(model, int(batch), int(gpus)), value)
        for model, batches in models.items()
        for batch, counts in batches.items()
        for gpus, value in counts["num_gpus"].items()
    ]


def _measured(times: Iterable[tuple[Key, object]]) -> dict[Key, float]:
    """Those above 0, which stands for what was not measured."""
    return {key: time_s for key, value in times if (time_s := _time(value)) > 0}


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < inf:
        raise ValueError(f"expected seconds, got {value!r}")
    return float(value)

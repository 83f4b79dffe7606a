"""Times of the topology-aware scheduler (Amaral et al., SC 2017; Apache-2.0): `prof_from_experiments.json`.

Seconds for 4000 iterations on a Power8 Minsky, alone with all GPUs on one socket or across both, and next to another
job. The collocated runs were spread over both sockets, so most of the slowdown against one socket alone is placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from colane.lab.traces.readers.assemble import load_json
from colane.lab.traces.readers.topo import STEPS
from colane.settings.input_file import InputFileError, read_text


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
        one_socket, across = _solo(document["solo"])
        table = TopologyTable(one_socket, across, _collocated(document["collocation"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputFileError(path, f"is not a profile of solo and collocated times: {error!r}") from error
    return table


def _jobs(models: Mapping[str, Any]) -> list[tuple[TopologyJob, Any]]:
    """Jobs of `model -> batch -> num_gpus -> GPUs -> value`."""
    return [
        (TopologyJob(model, int(batch), int(gpus)), value)
        for model, batches in models.items()
        for batch, counts in batches.items()
        for gpus, value in counts["num_gpus"].items()
    ]


def _solo(models: Mapping[str, Any]) -> tuple[dict[TopologyJob, float], dict[TopologyJob, float]]:
    one_socket, across = {}, {}
    for job, times in _jobs(models):
        one_socket[job], across[job] = _time(times["intra-socket"]), _time(times["inter-socket"])
    return _measured(one_socket), _measured(across)


def _collocated(models: Mapping[str, Any]) -> dict[tuple[TopologyJob, TopologyJob], float]:
    times = {(job, other): _time(value) for job, others in _jobs(models) for other, value in _jobs(others)}
    return {pair: time_s for pair, time_s in times.items() if time_s > 0}


def _measured(times: Mapping[TopologyJob, float]) -> dict[TopologyJob, float]:
    return {job: time_s for job, time_s in times.items() if time_s > 0}


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < inf:
        raise ValueError(f"expected seconds, got {value!r}")
    return float(value)

"""Presets of how a job is served: `debug` first, short and small; `sweep` last, in room that others may take back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from colane.api.job_request import JobRequest
from colane.model.problem import Problem
from colane.server.ground.problems import RefusedError


class Preset(NamedTuple):
    """What a preset says of a job."""

    priority: int = 0  # its priority
    preemptible: bool = False  # whether it may be stopped for others, if it does not say
    # it may run no longer, and ends then if it does not say; None does not bound it
    time_limit_max_s: float | None = None
    gpus_max: int | None = None  # it may ask for no more; None does not bound it


LABEL: Final = "qos"  # label by which lists tell the preset of a job, and find those that have it
DEBUG_MAX_S: Final = 1800.0
PRESETS: Final = {
    "debug": Preset(priority=100, time_limit_max_s=DEBUG_MAX_S, gpus_max=2),
    "normal": Preset(),
    "sweep": Preset(priority=-100, preemptible=True),
}


def with_preset(request: JobRequest) -> JobRequest:
    """Return a request, its amounts in base units, with what its preset says put in.

    Raises RefusedError: 422, it asks for what its preset does not allow.
    """
    if request.qos == "normal":
        return request
    preset = PRESETS[request.qos]
    problems = list(_problems(request, preset))
    if problems:
        raise RefusedError(422, problems)
    values: dict[str, Any] = {"priority": preset.priority, "labels": {**request.labels, LABEL: request.qos}}
    if preset.preemptible and "preemptible" not in request.model_fields_set:
        values["preemptible"] = True
    if preset.time_limit_max_s is not None and request.time_limit_s is None:
        values["time_limit_s"] = preset.time_limit_max_s
    return request.model_copy(update=values)


def longest_s(qos: str) -> float | None:
    """Return how long a job may run that is served so; None where that is not bounded."""
    preset = PRESETS.get(qos)
    return None if preset is None else preset.time_limit_max_s


def _problems(request: JobRequest, preset: Preset) -> list[Problem]:
    name, found = request.qos, []
    if "priority" in request.model_fields_set:
        found.append(Problem("priority", f"is {preset.priority} of qos {name}: leave it out, or the qos"))
    limit_s, most_s = request.time_limit_s, preset.time_limit_max_s
    if limit_s is not None and most_s is not None and limit_s > most_s:
        found.append(Problem("time_limit", f"must be at most {most_s / 60:g}m of qos {name}, got {limit_s / 60:g}m"))
    if preset.gpus_max is not None and request.gpus[-1] > preset.gpus_max:
        found.append(Problem("gpus", f"must be at most {preset.gpus_max} of qos {name}, got {request.gpus[-1]}"))
    return found

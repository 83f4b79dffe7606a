"""Answers about how devices and jobs use what they have. Every list has one value per point; null is unknown."""

from __future__ import annotations

from typing_extensions import TypedDict

from colane.model.device_use import DeviceUsage, JobUsage

Values = list[float | None]
Sizes = list[int | None]


class DeviceUseObject(TypedDict):
    """How a device is used now; see `model.DeviceUsage`."""

    index: int
    busy_ratio: float | None
    used_bytes: int | None
    power_w: float | None
    temperature_c: float | None
    throttle: list[str] | None
    xid: int | None


class JobUseObject(TypedDict):
    """How a job uses what it has now, by its own processes on all its nodes; see `model.JobUsage`."""

    busy_ratio: float | None
    device_bytes: int | None
    cpu_cores: float | None
    host_bytes: int | None
    steps_per_s: float | None
    share_ratio: float | None


class DeviceSamplesObject(TypedDict):
    """One device over time: sizes and temperature are the most in each point, the others means; `xid` is the last."""

    index: int
    busy_ratio: Values
    used_bytes: Sizes
    power_w: Values
    temperature_c: Values
    throttle: list[list[str] | None]
    xid: Sizes


class NodeSamplesAnswer(TypedDict):
    """The devices of a node over time, and now; `start_s` is that of the first point, `step_s` between two."""

    node: str
    start_s: float
    step_s: float
    devices: list[DeviceSamplesObject]
    now: list[DeviceUseObject]


class JobSamplesAnswer(TypedDict):
    """A job over time, and now: sizes are the most in each point, the others means."""

    id: int
    start_s: float
    step_s: float
    busy_ratio: Values
    device_bytes: Sizes
    cpu_cores: Values
    host_bytes: Sizes
    steps_per_s: Values
    share_ratio: Values
    now: JobUseObject | None


class ClusterSamplesAnswer(TypedDict):
    """The cluster over time, means of each point: devices, those at work, those with several jobs, and jobs.

    Of jobs nothing is told to those who are told of their own alone.
    """

    start_s: float
    step_s: float
    devices: Values
    working: Values
    sharing: Values
    running: Values
    waiting: Values
    busy_ratio: Values


def device_use_object(use: DeviceUsage) -> DeviceUseObject:
    """Return how a device is used."""
    return {
        "index": use.index,
        "busy_ratio": use.busy_ratio,
        "used_bytes": use.used_bytes,
        "power_w": use.power_w,
        "temperature_c": use.temperature_c,
        "throttle": None if use.throttle is None else list(use.throttle),
        "xid": use.xid,
    }


def job_use_object(use: JobUsage) -> JobUseObject:
    """Return how a job uses what it has."""
    return {
        "busy_ratio": use.busy_ratio,
        "device_bytes": use.device_bytes,
        "cpu_cores": use.cpu_cores,
        "host_bytes": use.host_bytes,
        "steps_per_s": use.steps_per_s,
        "share_ratio": use.share_ratio,
    }

"""Answers about how devices and jobs use what they have. Every list has one value per point; null is unknown."""

from __future__ import annotations

from typing_extensions import TypedDict

from colane.api.of_record import DeviceUseObject, JobUseObject

Values = list[float | None]
Sizes = list[int | None]


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

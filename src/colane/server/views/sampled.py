"""Samples as the API gives them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from colane.api.of_record import as_object
from colane.api.samples import ClusterSamplesAnswer, DeviceSamplesObject, JobSamplesAnswer, NodeSamplesAnswer
from colane.server.samples.codec import Column, words_of
from colane.server.samples.keeper import SampleKeeper, Window, window

DIGITS: Final = 6


class Times(NamedTuple):
    """When a job was at work: None before its first start, and before its end."""

    start_s: float | None
    end_s: float | None


async def node(
    samples: SampleKeeper, name: str, now_s: float, last_s: float, until_s: float | None
) -> NodeSamplesAnswer:
    """Return what is known of a node's devices over the last time before `until_s`, now where it is None."""
    end_s = now_s if until_s is None else min(until_s, now_s)
    shown = window(end_s - last_s, end_s, now_s)
    found = await samples.node(name, shown)
    return {
        "node": name,
        "start_s": float(shown.start_s),
        "step_s": float(shown.step_s),
        "devices": [_device(index, columns) for index, columns in sorted(found.items())],
        "now": [as_object(use) for use in samples.devices_now(name, now_s)],
    }


async def cluster(
    samples: SampleKeeper, now_s: float, last_s: float, until_s: float | None, *, with_jobs: bool
) -> ClusterSamplesAnswer:
    """Return what there was in the cluster over the last time before `until_s`, now where it is None."""
    end_s = now_s if until_s is None else min(until_s, now_s)
    shown = window(end_s - last_s, end_s, now_s)
    columns = await samples.cluster(shown)
    hidden: list[float | None] = [None] * len(columns["running"])
    return {
        "start_s": float(shown.start_s),
        "step_s": float(shown.step_s),
        "devices": _values(columns["devices"]),
        "working": _values(columns["working"]),
        "sharing": _values(columns["sharing"]),
        "running": _values(columns["running"]) if with_jobs else hidden,
        "waiting": _values(columns["waiting"]) if with_jobs else hidden,
        "busy_ratio": _values(columns["busy_ratio"]),
    }


async def job(
    samples: SampleKeeper, number: int, now_s: float, times: Times, last_s: float | None, until_s: float | None
) -> JobSamplesAnswer:
    """Return what is known of a job, from its first start where no time is asked for."""
    shown = window_of(now_s, times, last_s, until_s)
    columns = await samples.job(number, shown)
    use = samples.job_now(number, now_s) if times.end_s is None else None
    return {
        "id": number,
        "start_s": float(shown.start_s),
        "step_s": float(shown.step_s),
        "busy_ratio": _values(columns["busy_ratio"]),
        "device_bytes": _sizes(columns["device_bytes"]),
        "cpu_cores": _values(columns["cpu_cores"]),
        "host_bytes": _sizes(columns["host_bytes"]),
        "steps_per_s": _values(columns["steps_per_s"]),
        "share_ratio": _values(columns["share_ratio"]),
        "now": None if use is None else as_object(use),
    }


def window_of(now_s: float, times: Times, last_s: float | None = None, until_s: float | None = None) -> Window:
    """Return the time to be shown of a job."""
    end_s = min(until_s if until_s is not None else now_s, now_s if times.end_s is None else times.end_s)
    start_s = end_s if times.start_s is None else min(times.start_s, end_s)
    return window(start_s if last_s is None else max(end_s - last_s, start_s), end_s, now_s)


def _device(index: int, columns: dict[str, Column]) -> DeviceSamplesObject:
    return {
        "index": index,
        "busy_ratio": _values(columns["busy_ratio"]),
        "used_bytes": _sizes(columns["used_bytes"]),
        "power_w": _values(columns["power_w"]),
        "temperature_c": _values(columns["temperature_c"]),
        "throttle": [None if np.isnan(mask) else words_of(mask) for mask in columns["throttle"]],
        "xid": _sizes(columns["xid"]),
    }


def _values(column: Column) -> list[float | None]:
    return [None if value != value else round(value, DIGITS) for value in column.tolist()]  # noqa: PLR0124 - NaN


def _sizes(column: Column) -> list[int | None]:
    return [None if value != value else int(value) for value in column.tolist()]  # noqa: PLR0124 - NaN

"""Finished jobs for the tests, small enough to reckon by hand."""

from __future__ import annotations

from colane.lab.report.records import Device, RunGroup, RunRecord
from colane.model.job import JobState
from colane.model.profile import ProfileKey, SetMeasurement

DEVICES = (Device("n/0", "cpu"), Device("n/1", "cpu"))


def record(job: int, submit_s: float, start_s: float | None, end_s: float, **others: object) -> RunRecord:
    """A succeeded job of family `a` on device n/0 unless told otherwise."""
    fields: dict[str, object] = {
        "name": f"job-{job}",
        "family": "a",
        "state": JobState.SUCCEEDED,
        "gpus": () if start_s is None else ("n/0",),
        "attempt": 0 if start_s is None else 1,
        "steps": None if start_s is None else 10,
        **others,
    }
    return RunRecord(id=job, submit_s=submit_s, first_start_s=start_s, end_s=end_s, **fields)  # type: ignore[arg-type]


def fifo() -> RunGroup:
    """Three jobs one after another on two devices: spans 10, 20, 10, waits 0, 0, 10, makespan 20."""
    jobs = (
        record(1, 100, 100, 110, step_durations_s=(5.0, 1.0, 1.0)),
        record(2, 100, 100, 120, gpus=("n/1",), family="b", step_durations_s=(9.0, 2.0)),
        record(3, 100, 110, 120, step_durations_s=(1.0, 1.0)),
    )
    return RunGroup("fifo", jobs, DEVICES)


def colocate() -> RunGroup:
    """The same three jobs, two of them together on n/0: spans 12, 12, 16, no waits, makespan 16."""
    jobs = (
        record(4, 200, 200, 212, step_durations_s=(5.0, 1.2)),
        record(5, 200, 200, 212, step_durations_s=(5.0, 1.4)),
        record(6, 200, 200, 216, gpus=("n/1",), family="b", step_durations_s=(9.0, 2.0)),
    )
    return RunGroup("colocate", jobs, DEVICES)


def key(family: str, batch_size: int | None = 64) -> ProfileKey:
    """A key on cpu devices."""
    return ProfileKey(family, batch_size, 1, "cpu")


def measurement(delta: float, *families: str, sharing: str = "cpu") -> SetMeasurement:
    """A set whose jobs each take a second per step alone."""
    together_s = len(families) / delta
    return SetMeasurement(
        keys=tuple(key(family) for family in sorted(families)),
        sharing=sharing,
        step_alone_s=(1.0,) * len(families),
        step_together_s=(together_s,) * len(families),
        steps=(10,) * len(families),
        delta=delta,
        delta_general=delta,
        at_s=0.0,
    )

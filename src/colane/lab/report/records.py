"""The finished jobs a report is made of, and how they are grouped.

Live records are read by `parsing`; the simulator builds `RunRecord` itself. Times are seconds on one clock, of
which only differences matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from colane.model.job import JobState
from colane.model.profile import ProfileKey
from colane.model.time_spent import TimeSpent

UNLABELLED = "(no label)"
"""Group of the records that lack the label they are grouped by, so that none is dropped silently."""


Interval = tuple[float, float]  # start and end in seconds


def without(whole_s: Interval, pauses_s: Sequence[Interval]) -> tuple[Interval, ...]:
    """Return what is left of a stretch of time without its pauses, these in order; one without any stays as it is."""
    if not pauses_s:
        return (whole_s,)
    from_s, end_s = whole_s
    left: list[Interval] = []
    for paused_s, resumed_s in (*pauses_s, (end_s, end_s)):
        if min(paused_s, end_s) > from_s:
            left.append((from_s, min(paused_s, end_s)))
        from_s = max(from_s, resumed_s)
    return tuple(left)


class JobTime(NamedTuple):
    """Where a job's time has gone."""

    label: str  # the job, as a figure names it
    spent: TimeSpent  # from its submission to its end
    lost_s: float = 0.0  # of the running, what had to be made again

    @property
    def parts_s(self) -> dict[str, float]:
        """Seconds by what they went to, in the order of `TIME_PARTS`."""
        parts = {name.removesuffix("_s"): value for name, value in self.spent._asdict().items()}
        lost_s = min(self.lost_s, parts["running"])
        whole = {**parts, "running": parts["running"] - lost_s, "lost": lost_s}
        return {name: whole[name] for name in TIME_PARTS}


LIFE: Final = tuple([name.removesuffix("_s") for name in TimeSpent._fields])
TIME_PARTS: Final = (*LIFE[: LIFE.index("running") + 1], "lost", *LIFE[LIFE.index("running") + 1 :])
"""What a job's time goes to; of running, what had to be made again is a part of its own."""


def mean_parts_s(times: Sequence[JobTime]) -> dict[str, float]:
    """Mean of each part over jobs, at least one."""
    every = [time.parts_s for time in times]
    return {name: sum(parts[name] for parts in every) / len(every) for name in every[0]}


class Device(NamedTuple):
    """A GPU as `node/index`, with its type where known (empty: taken to be like the others)."""

    name: str
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One job that has ended."""

    id: int  # unique within its group
    name: str  # as submitted
    family: str  # jobs of one family and batch size are taken to behave alike
    state: JobState  # how it ended
    submit_s: float  # when it was submitted
    end_s: float  # when it ended for good
    batch_size: int | None = None  # per GPU; None is unknown
    user: str = ""  # owner
    policy: str = ""  # policy that ran when it ended
    labels: Mapping[str, str] = field(default_factory=dict)  # as submitted
    first_start_s: float | None = None  # process start of the first attempt; None when it never started
    start_s: float | None = None  # process start of the last attempt; None is the same as `first_start_s`
    gpus: tuple[str, ...] = ()  # GPUs of the last attempt, as `node/index`, in rank order
    attempt: int = 0  # number of starts
    steps: int | None = None  # steps done; None is unknown
    steps_total: int | None = None  # steps it was to do; None is unknown
    step_durations_s: tuple[float, ...] = ()  # durations of its steps, oldest first; empty where they were not measured
    step_mean_s: float | None = None  # mean step time it reported itself, used where there are no durations
    slowdown_total: float | None = None  # (end - submission) / run time alone, where the writer of the record knows it
    others_ratio: float | None = None  # mean part of its devices that others used while it ran, 0..1; None is unknown
    time: JobTime | None = None  # where its time has gone; None of records of before it was told
    pauses_s: tuple[Interval, ...] = ()  # start and end of each time it was parked or suspended, oldest first
    occupancy_ratio: float | None = None  # mean part of its devices' time it kept them busy, 0..1; None is unknown
    peak_bytes: int | None = None  # most memory it held on a device; None is unknown
    reason: str = ""  # why it ended, one sentence

    @property
    def succeeded(self) -> bool:
        """Whether it did what it was asked for."""
        return self.state is JobState.SUCCEEDED

    @property
    def restarts(self) -> int:
        """Starts after the first."""
        return max(self.attempt - 1, 0)

    @property
    def jct_s(self) -> float:
        """End - submission; never below 0, see `queue_s`."""
        return max(self.end_s - self.submit_s, 0.0)

    @property
    def queue_s(self) -> float | None:
        """First start - submission; 0 where the node's clock runs behind the scheduler's."""
        return None if self.first_start_s is None else max(self.first_start_s - self.submit_s, 0.0)

    @property
    def run_span_s(self) -> float | None:
        """End - first start, which paper A (chapter 6) calls job completion time."""
        return None if self.first_start_s is None else max(self.end_s - self.first_start_s, 0.0)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Start and end of the last attempt, the one whose GPUs are known."""
        start_s = self.first_start_s if self.start_s is None else self.start_s
        return None if start_s is None else (start_s, max(start_s, self.end_s))

    @property
    def ran_s(self) -> tuple[Interval, ...]:
        """Stretches of the last attempt in which it could step: neither parked nor suspended, oldest first."""
        return () if self.interval_s is None else without(self.interval_s, self.pauses_s)

    @property
    def step_s(self) -> float | None:
        """Mean step time. The first step is left out where there are more: it pays for warming up."""
        durations_s = self.step_durations_s[1:] or self.step_durations_s
        return sum(durations_s) / len(durations_s) if durations_s else self.step_mean_s


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Jobs that are reported together: one run of a batch under one policy."""

    name: str  # shown in tables and legends
    records: tuple[RunRecord, ...]  # its jobs
    # all devices jobs could have used, idle ones too; empty takes those that were used
    devices: tuple[Device, ...] = ()

    @property
    def all_devices(self) -> tuple[Device, ...]:
        """The given devices and any further one a job ran on, in the order of node and index."""
        known = {device.name: device for device in self.devices}
        used = {name for record in self.records for name in record.gpus}
        every = [*known.values(), *(Device(name) for name in used - known.keys())]
        return tuple(sorted(every, key=lambda device: _device_order(device.name)))

    @property
    def times(self) -> tuple[JobTime, ...]:
        """Where the time of its jobs has gone, in order of submission, as far as it was told."""
        ordered = sorted(self.records, key=lambda record: (record.submit_s, record.id))
        return tuple(record.time for record in ordered if record.time is not None)

    def keys_by_id(self) -> dict[int, ProfileKey]:
        """The kind each job behaves like, by job id; the GPU type is empty where no device says it."""
        types = {device.name: device.type for device in self.devices}
        return {record.id: _key_of(record, types) for record in self.records}


def group_by_label(records: Sequence[RunRecord], label: str, devices: Sequence[Device] = ()) -> tuple[RunGroup, ...]:
    """One group for each value of a label, the one submitted first first (it is the baseline)."""
    return _grouped(records, [record.labels.get(label, UNLABELLED) for record in records], devices)


def group_by_policy(records: Sequence[RunRecord], devices: Sequence[Device] = ()) -> tuple[RunGroup, ...]:
    """One group for each policy, the one submitted first first (it is the baseline)."""
    return _grouped(records, [record.policy or UNLABELLED for record in records], devices)


def _key_of(record: RunRecord, types: Mapping[str, str]) -> ProfileKey:
    gpu_type = types.get(record.gpus[0], "") if record.gpus else ""
    return ProfileKey(record.family, record.batch_size, max(len(record.gpus), 1), gpu_type)


def _grouped(records: Sequence[RunRecord], names: Sequence[str], devices: Sequence[Device]) -> tuple[RunGroup, ...]:
    members: dict[str, list[RunRecord]] = defaultdict(list)
    for name, record in zip(names, records, strict=True):
        members[name].append(record)
    groups = (RunGroup(name, tuple(found), tuple(devices)) for name, found in members.items())
    return tuple(sorted(groups, key=lambda group: min((r.submit_s, r.id) for r in group.records)))


def _device_order(name: str) -> tuple[str, int, str]:
    node, _, index = name.rpartition("/")
    return (node, int(index), name) if index.isdecimal() else (name, -1, name)

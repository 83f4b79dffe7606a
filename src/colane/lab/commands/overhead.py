"""What finished runs took besides their steps, and what of that was work of their device.

Launching uses no GPU. A cpu device it does use, for a part of its time: that part is slowed by co-runners, and slows
them, as steps do. The rest is waiting: for files, for the scheduler, for a process to leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from colane.model.hardware import CPU_DEVICE_TYPE

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.lab.traces.tables.measured import MeasuredTable, Overhead
    from colane.model.profile import ProfileKey


class DeviceUse(NamedTuple):
    """One job on a GPU."""

    start_s: float
    end_s: float
    job: int
    key: ProfileKey


class RunOverhead(NamedTuple):
    """What one run took besides its steps.

    Attributes:
        overhead_s: Before the first, and after the last.
        slowdown: Of steps of its kind with the co-runners it had before the first, mean of that time; 1 on a GPU.
    """

    overhead_s: float
    slowdown: float


def overhead_s(item: JobObject) -> float | None:
    """Time a run took besides its steps, before the first began and after the last ended; None without steps."""
    sample = item["progress"]
    if sample is None:
        return None
    first_s, last_s, steps = sample.get("first_step_s"), sample.get("last_step_s"), sample.get("steps") or 0
    if first_s is None or last_s is None or steps < 2:
        return None
    stepping_s = (last_s - first_s) * steps / (steps - 1)
    start_s, end_s = run_of(item)
    return max(0.0, end_s - start_s - stepping_s)


def run_of(item: JobObject) -> tuple[float, float]:
    """When a run that has ended began and ended; of one that has both, as all here have."""
    start_s, end_s = item["start_s"], item["end_s"]
    if start_s is None or end_s is None:
        raise ValueError(f"job {item['id']} has not run and ended")
    return start_s, end_s


def device_uses(items: Sequence[JobObject], gpu_types: Mapping[str, str]) -> dict[str, list[DeviceUse]]:
    """Which jobs were on each GPU, and when."""
    found: dict[str, list[DeviceUse]] = {}
    for item in items:
        for gpu in item["gpus"]:
            use = DeviceUse(*run_of(item), item["id"], _key(item, gpu_types.get(gpu, "")))
            found.setdefault(gpu, []).append(use)
    return found


def run_overheads(
    items: Sequence[JobObject], there: Mapping[str, Sequence[DeviceUse]], table: MeasuredTable
) -> Iterator[RunOverhead]:
    """Of the runs that made steps, by the speeds this table has."""
    for item in items:
        found_s, sample = overhead_s(item), item["progress"]
        if found_s is None or sample is None:
            continue
        own = [(mine, there[gpu]) for gpu in item["gpus"] for mine in there[gpu] if mine.job == item["id"]]
        until_s = sample["first_step_s"] or 0.0
        slowed = [_slowdown(m, until_s, all_, table) for m, all_ in own if m.key.gpu_type == CPU_DEVICE_TYPE]
        yield RunOverhead(found_s, max(slowed, default=1.0))


def fit(known: Sequence[RunOverhead]) -> Overhead:
    """The line through what they took over how much co-runners slowed steps meanwhile, by least squares.

    Where it grows as steps do it is all work, where it does not grow there is none. All is, where slowdowns are equal.
    """
    from colane.lab.traces.tables.measured import Overhead  # noqa: PLC0415 - imported late

    if not known:
        return Overhead(0.0, 1.0)
    slowdown, mean_s = fmean(one.slowdown for one in known), fmean(one.overhead_s for one in known)
    spread = sum((one.slowdown - slowdown) ** 2 for one in known)
    slope_s = sum((one.slowdown - slowdown) * (one.overhead_s - mean_s) for one in known)
    all_work_s = mean_s / slowdown
    work_s = all_work_s if spread < SPREAD_MIN else max(0.0, min(slope_s / spread, all_work_s))
    alone_s = mean_s - work_s * (slowdown - 1)
    return Overhead(alone_s, min(1.0, work_s / alone_s) if alone_s > 0 else 1.0)


SPREAD_MIN = 0.01
"""Sum of squares below which the slowdowns count as equal."""


def _key(item: JobObject, gpu_type: str) -> ProfileKey:
    from colane.model.profile import ProfileKey  # noqa: PLC0415 - imported late

    return ProfileKey(item["family"], item["batch_size"], item["needs"]["gpus"], gpu_type)


def _slowdown(mine: DeviceUse, until_s: float, there: Sequence[DeviceUse], table: MeasuredTable) -> float:
    """Mean over the time of its launch: as much work as gets done in it alone takes that much less."""
    if until_s <= mine.start_s:
        return 1.0
    others = [other for other in there if other.job != mine.job]
    inner = [cut for other in others for cut in (other.start_s, other.end_s) if mine.start_s < cut < until_s]
    done_s = 0.0
    for a, b in pairwise(sorted({mine.start_s, until_s, *inner})):
        beside = [other.key for other in others if other.start_s <= a < other.end_s]
        done_s += (b - a) / _beside(mine.key, beside, table)
    return (until_s - mine.start_s) / done_s


def _beside(key: ProfileKey, others: Sequence[ProfileKey], table: MeasuredTable) -> float:
    """As measured, else as estimated; else each of k has a k-th of the device."""
    if not others:
        return 1.0
    found = table.slowdown(key, others) or table.estimate(key, others)
    return max(1.0, found) if found is not None else 1.0 + len(others)

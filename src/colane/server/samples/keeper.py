"""Samples of all devices and jobs: taken from reports in memory, written by a thread, read back for screens.

Nothing here is asked when something is decided or committed, and nothing of it waits for the disk but readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from colane.model.device_use import DeviceUsage, JobUsage
from colane.server.samples.codec import CLUSTER, DEVICE, JOB, Column, Join, Kind, Values, joined, mask_of
from colane.server.samples.file import CLUSTER_SERIES, DAY_S, SampleFile, WaitedKey, below, device_series, job_series
from colane.server.samples.rings import LEVELS, SampleChunk, Series, overlaid

FLUSH_PERIOD_S: Final = 120.0  # a scheduler that is killed loses so much of what was sampled last

SERIES_WRITTEN_AT_ONCE: Final = 1_000
"""Of more series, of 8,000 jobs say, what has changed is put together piece by piece, and others are served between."""

FORGET_AFTER_S: Final = 900.0
"""A series without a sample for so long leaves the memory: its job has ended, or its node is gone."""

FRESH_S: Final = 60.0  # what was measured longer ago is not what is now

JOINED_NODES: Final = 64
"""So many nodes' ticks are joined at once: numpy takes as long for a few numbers as for some hundred."""

POINTS_MAX: Final = 1_500  # of each number in one answer; of longer times several ticks are joined

_JOB_VALUES: Final = attrgetter(*[each.name for each in JOB.fields])

Columns = dict[str, Column]


class ClusterCounts(NamedTuple):
    """What there is in the whole cluster."""

    devices: int  # devices of nodes that are not lost
    working: int  # those on which a job runs
    sharing: int  # those with several jobs
    running: int  # jobs that hold a place
    waiting: int  # jobs that wait, elements of arrays that are yet to be made included
    busy_ratio: float | None  # mean over the devices at work; None where nothing is known


class Window(NamedTuple):
    """A time to be shown."""

    level: int  # place in `LEVELS`
    first: int  # first tick
    ticks: int  # how many
    joined: int  # so many of them are shown as one

    @property
    def start_s(self) -> int:
        """When it begins, unix time."""
        return self.first * LEVELS[self.level].step_s

    @property
    def step_s(self) -> int:
        """Time between two points."""
        return LEVELS[self.level].step_s * self.joined


def window(since_s: float, until_s: float, now_s: float) -> Window:
    """Return the finest resolution that goes back so far and has few enough points."""
    places = range(len(LEVELS))
    level = next((place for place in places if now_s <= since_s + LEVELS[place].span_s), places[-1])
    step_s, span_s = LEVELS[level].step_s, LEVELS[level].span_s
    since_s = max(since_s, now_s - span_s)
    first, last = int(since_s // step_s), int(max(until_s, since_s) // step_s)
    ticks = last - first + 1
    joined = -(-ticks // POINTS_MAX)
    first -= first % joined
    ticks = -(-(last - first + 1) // joined) * joined
    return Window(level, first, ticks, joined)


class _NodeTick(NamedTuple):
    """What a node has told in the tick that is being filled, report by report."""

    number: int
    devices: list[tuple[DeviceUsage, ...]]
    jobs: list[Mapping[int, JobUsage]]


class _EndedTicks:
    """What nodes told of things of one kind in ticks that are over; things of as many reports are joined at once."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._even: dict[int, tuple[list[tuple[str, int]], list[list[Values]]]] = {}

    def add(
        self, tick: int, things: Sequence[Sequence[int]], values: Sequence[Sequence[Values]], name: Callable[[int], str]
    ) -> None:
        """Take what a node told in a tick: of each report the things and what it said of each."""
        if all(one == things[0] for one in things):
            self._add([(name(thing), tick) for thing in things[0]], values)
            return
        by_thing: dict[int, list[Values]] = {}
        for one, said in zip(things, values, strict=True):
            for thing, value in zip(one, said, strict=True):
                by_thing.setdefault(thing, []).append(value)
        for thing, samples in by_thing.items():
            self._add([(name(thing), tick)], [[sample] for sample in samples])

    def joined(self) -> Iterator[tuple[str, int, bytes, Values]]:
        """Yield of each thing: its series, the tick, and what it comes to, packed and as values."""
        for names, reports in self._even.values():
            if names:
                packed, values = self._kind.joined_many(np.array(reports, np.float64))
                for (name, tick), data, value in zip(names, packed, values, strict=True):
                    yield name, tick, data, value

    def _add(self, names: list[tuple[str, int]], values: Sequence[Sequence[Values]]) -> None:
        held = self._even.get(len(values))
        if held is None:
            held = self._even[len(values)] = [], [[] for _ in values]
        held[0].extend(names)
        for row, said in zip(held[1], values, strict=True):
            row.extend(said)


def _device_values(use: DeviceUsage) -> Values:
    mask = 0 if use.throttle == () else mask_of(use.throttle)
    return use.busy_ratio, use.used_bytes, use.power_w, use.temperature_c, mask, use.xid


def _tick(now_s: float) -> int:
    return int(now_s // LEVELS[0].step_s)


@dataclass(slots=True)
class SampleKeeper:
    """Keeps the samples of all devices and jobs."""

    file: SampleFile  # where they are kept
    # of each node, when its devices were sampled last, and what was seen
    devices: dict[str, tuple[float, tuple[DeviceUsage, ...]]] = field(default_factory=dict)
    # of each live job, by node, when and what was seen last
    jobs: dict[int, dict[str, tuple[float, JobUsage]]] = field(default_factory=dict)
    # of each node, those of its devices of which something was seen that needs a look
    odd: dict[str, frozenset[int]] = field(default_factory=dict)
    _series: dict[str, Series] = field(default_factory=dict)
    _ticks: dict[str, _NodeTick] = field(default_factory=dict)
    _ended: dict[str, _NodeTick] = field(default_factory=dict)
    _newest_job: int = 0
    _waited: dict[WaitedKey, float] = field(default_factory=dict)

    @classmethod
    def at(cls, path: Path | None) -> SampleKeeper:
        """Open the file, or keep all in memory for None."""
        return cls(SampleFile(path))

    def take(self, node: str, now_s: float, devices: Iterable[DeviceUsage], jobs: Mapping[int, JobUsage]) -> None:
        """Take what an agent has measured; what a tick comes to is found at its end."""
        uses = tuple(devices)
        if uses:
            self.devices[node] = (now_s, uses)
            self.odd[node] = frozenset(use.index for use in uses if use.is_odd)
        for job, use_of_job in jobs.items():
            if job in self.jobs:
                self.jobs[job][node] = (now_s, use_of_job)
            else:
                self.jobs[job] = {node: (now_s, use_of_job)}
        tick, being_filled = _tick(now_s), self._ticks.get(node)
        if being_filled is None or being_filled.number != tick:
            self._end_tick(node)
            being_filled = self._ticks[node] = _NodeTick(tick, [], [])
        being_filled.devices.append(uses)
        being_filled.jobs.append(jobs)

    def take_cluster(self, now_s: float, counts: ClusterCounts) -> None:
        """Take what there is in the whole cluster."""
        self._of(CLUSTER_SERIES, CLUSTER).add(now_s, counts)

    def devices_now(self, node: str, now_s: float) -> tuple[DeviceUsage, ...]:
        """What was seen of a node's devices last; nothing where that is too long ago."""
        at_s, uses = self.devices.get(node, (0.0, ()))
        return uses if at_s <= now_s <= at_s + FRESH_S else ()

    def job_now(self, job: int, now_s: float) -> JobUsage | None:
        """How a job uses what it has, on all its nodes together; None where that is not known of now."""
        fresh = [use for at_s, use in self.jobs.get(job, {}).values() if at_s <= now_s <= at_s + FRESH_S]
        return together(fresh) if fresh else None

    async def node(self, node: str, shown: Window) -> dict[int, Columns]:
        """Return the samples of each device of a node, by index."""
        found = await self._read(f"node/{node}/", DEVICE, shown)
        return {int(name.rpartition("/")[2]): columns for name, columns in found.items()}

    async def job(self, job: int, shown: Window) -> Columns:
        """Return the samples of a job, on all its nodes together."""
        found = await self._read(job_series(job, ""), JOB, shown)
        return _summed(list(found.values()), shown)

    async def cluster(self, shown: Window) -> Columns:
        """Return the samples of the whole cluster."""
        found = await self._read(CLUSTER_SERIES, CLUSTER, shown)
        return found.get(CLUSTER_SERIES) or _unknown(CLUSTER, shown)

    def take_waiting(self, now_s: float, waiting: Mapping[tuple[str, str], int], passed_s: float) -> None:
        """Count that so many jobs of a user's have waited for a reason since the last time."""
        day = int(now_s // DAY_S)
        for (user, why), jobs in waiting.items():
            key = WaitedKey(day, user, why)
            self._waited[key] = self._waited.get(key, 0.0) + jobs * passed_s

    async def waited(self, since_s: float) -> list[tuple[str, str, float]]:
        """Return user, reason and seconds that jobs have waited since a day, the longest first."""
        await self._flush_waited()
        return await asyncio.to_thread(self.file.waited, int(since_s // DAY_S))

    async def _flush_waited(self) -> None:
        waited, self._waited = self._waited, {}
        if waited:
            await asyncio.to_thread(self.file.add_waited, waited)

    async def flush(self, now_s: float, *, closing: bool = False) -> None:
        """Write what has changed; series that are over leave the memory."""
        for node, tick in list(self._ticks.items()):
            if closing or tick.number != _tick(now_s):
                self._end_tick(node)
        self._join()
        for job, by_node in list(self.jobs.items()):
            if all(abs(now_s - at_s) > FRESH_S for at_s, _ in by_node.values()):
                del self.jobs[job]
        series = list(self._series.values())
        for first in range(0, len(series), SERIES_WRITTEN_AT_ONCE):
            some = series[first : first + SERIES_WRITTEN_AT_ONCE]
            if chunks := self._taken_out(some, now_s, closing=closing):
                await asyncio.to_thread(self.file.write, chunks)
        await self._flush_waited()

    def _taken_out(self, some: Iterable[Series], now_s: float, *, closing: bool) -> list[SampleChunk]:
        """Return what has changed of series; those that are over leave the memory."""
        chunks: list[SampleChunk] = []
        for one in some:
            is_over = closing or abs(now_s - one.added_s) > FORGET_AFTER_S
            if is_over:
                one.close()
            chunks += one.take_written()
            if is_over:
                self._series.pop(one.name, None)
        return chunks

    async def prune(self, now_s: float) -> None:
        """Remove what is too old."""
        await asyncio.to_thread(self.file.prune, now_s, self._newest_job)

    def close(self) -> None:
        """Close the file; what was not flushed is lost."""
        self.file.close()

    def _end_tick(self, node: str) -> None:
        """Note that a node's tick is over: those of many nodes are joined at once, each node's in their order."""
        tick = self._ticks.pop(node, None)
        if tick is None:
            return
        if node in self._ended or len(self._ended) >= JOINED_NODES:
            self._join()
        self._ended[node] = tick

    def _join(self) -> None:
        """Hand the samples of ticks that are over to their series."""
        ended, self._ended = self._ended, {}
        devices, jobs = _EndedTicks(DEVICE), _EndedTicks(JOB)
        for node, tick in ended.items():
            indexes = [[use.index for use in uses] for uses in tick.devices]
            values = [[_device_values(use) for use in uses] for uses in tick.devices]
            devices.add(tick.number, indexes, values, lambda index, node=node: device_series(node, index))  # type: ignore[misc]
            told, numbers = [list(map(_JOB_VALUES, uses.values())) for uses in tick.jobs], list(map(list, tick.jobs))
            jobs.add(tick.number, numbers, told, lambda job, node=node: job_series(job, node))  # type: ignore[misc]
            self._newest_job = max(self._newest_job, *map(max, filter(None, numbers)), 0)
        for name, tick_number, data, values_of_one in devices.joined():
            self._of(name, DEVICE).add_packed(tick_number, data, values_of_one)
        for name, tick_number, data, values_of_one in jobs.joined():
            self._of(name, JOB).add_packed(tick_number, data, values_of_one)

    def _of(self, name: str, kind: Kind) -> Series:
        one = self._series.get(name)
        if one is None:
            one = self._series[name] = Series(name, kind)
        return one

    async def _read(self, prefix: str, kind: Kind, shown: Window) -> dict[str, Columns]:
        """Return what file and memory have of all series that begin so, on the ticks that are shown."""
        self._join()
        level, ticks = shown.level, LEVELS[shown.level].ticks
        numbers = range(shown.first // ticks, (shown.first + shown.ticks - 1) // ticks + 1)
        fresh = [one for name, one in self._series.items() if name.startswith(prefix)]
        in_memory = [chunk for one in fresh for chunk in (*one.waiting(level), one.now(level)) if chunk is not None]
        written = await asyncio.to_thread(self.file.read, *below(prefix), level, numbers)
        return _laid_out([*written, *in_memory], kind, shown, numbers)


def _laid_out(chunks: Iterable[SampleChunk], kind: Kind, shown: Window, numbers: range) -> dict[str, Columns]:
    """Put chunks side by side, later ones over earlier ones of the same number, and join ticks where that is asked."""
    ticks = LEVELS[shown.level].ticks
    by_series: dict[str, dict[int, bytes]] = {}
    for chunk in chunks:
        if chunk.number in numbers:
            own = by_series.setdefault(chunk.series, {})
            before = own.get(chunk.number)
            own[chunk.number] = chunk.data if before is None else overlaid(kind, before, chunk.data)
    empty = kind.unknown * ticks
    skipped = shown.first - numbers.start * ticks
    found = {}
    for series, own in sorted(by_series.items()):
        data = b"".join(own.get(number, empty) for number in numbers)
        size = kind.size_bytes
        columns = kind.read(data[skipped * size : (skipped + shown.ticks) * size])
        joins = {field.name: field.join for field in kind.fields}
        found[series] = {name: joined(values, shown.joined, joins[name]) for name, values in columns.items()}
    return found


def _unknown(kind: Kind, shown: Window) -> Columns:
    return {field.name: np.full(shown.ticks // shown.joined, np.nan) for field in kind.fields}


def _summed(parts: list[Columns], shown: Window) -> Columns:
    """Return a job's samples on all its nodes together, as `together` does."""
    if len(parts) < 2:
        return parts[0] if parts else _unknown(JOB, shown)
    present = np.array([~np.all([np.isnan(part[f.name]) for f in JOB.fields], axis=0) for part in parts])
    found: Columns = {}
    for each in JOB.fields:
        rows = np.array([part[each.name] for part in parts])
        if each.name in SUMMED:
            hidden = (present & np.isnan(rows)).any(axis=0) | ~present.any(axis=0)
            found[each.name] = np.where(hidden, np.nan, np.where(np.isnan(rows), 0.0, rows).sum(axis=0))
        elif each.name == "steps_per_s":
            best = np.where(np.isnan(rows), -np.inf, rows).max(axis=0)
            found[each.name] = np.where(np.isinf(best), np.nan, best)
        else:
            found[each.name] = joined(rows.T.reshape(-1), len(parts), Join.MEAN)
    return found


SUMMED: Final = frozenset({"device_bytes", "cpu_cores", "host_bytes"})


def together(parts: list[JobUsage]) -> JobUsage:
    """Return a job's use on several nodes: what it holds added up, its speed as the fastest part says, else means."""
    if len(parts) == 1:
        return parts[0]

    def known(name: str) -> list[float]:
        return [value for part in parts if (value := getattr(part, name)) is not None]

    def total(name: str) -> float | None:
        values = known(name)
        return sum(values) if len(values) == len(parts) else None

    def mean(name: str) -> float | None:
        values = known(name)
        return sum(values) / len(values) if values else None

    device_bytes, host_bytes = total("device_bytes"), total("host_bytes")
    return JobUsage(
        busy_ratio=mean("busy_ratio"),
        device_bytes=None if device_bytes is None else int(device_bytes),
        cpu_cores=total("cpu_cores"),
        host_bytes=None if host_bytes is None else int(host_bytes),
        steps_per_s=max(known("steps_per_s"), default=None),
        share_ratio=mean("share_ratio"),
    )

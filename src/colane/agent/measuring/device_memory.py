"""What a job holds of its devices' memory, all of its processes together, as the devices see it.

A framework's allocator knows its own blocks only. A device also holds a context for each process, and the workspaces of
libraries: together the *overhead*. Where the driver tells what each process holds, P is that, less the blocks which the
allocator holds but does not use at a boundary and can give back, as was seen when it did; of a job that has given them
back and waits it is what the driver says. E is by how much its blocks grow within a step. What the driver said of
another moment than the allocator did, before or after it gave blocks back, counts for nothing. Where
the driver does not tell, the usual overhead is added to what the allocator says, and the answer is called an estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from colane.adaptor import wire
from colane.devices import Devices

OVERHEAD_BYTES: Final = 512 * 1024**2  # of one process, before any was seen here: CUDA contexts take 300 to 550 MiB

SLACK_BYTES: Final = 64 * 1024**2
"""By how much what the driver and the allocator say may disagree: they are not asked at the same moment."""

BY_DRIVER: Final = "nvml"
BY_ESTIMATE: Final = "estimate"
BY_RESIDENT_SET: Final = "resident-set"

ESTIMATED: Final = "the driver does not tell what each process holds of the GPUs: memory of jobs is estimated"

HeldByPid = Mapping[int, int | None]
"""What each process holds of one device; None of a process where the driver does not tell."""


class DeviceMemory(NamedTuple):
    """Memory of a job on the device where it takes most."""

    persistent_bytes: int  # P, of all its processes there
    peak_bytes: int  # p + E
    by: str  # what measured it
    overhead_bytes: int | None = None  # largest overhead of one of its processes; None where the driver does not tell


class OverheadSeen:
    """Largest overhead of a process on the devices of this node."""

    def __init__(self) -> None:
        self._seen_bytes: int | None = None

    @property
    def usual_bytes(self) -> int:
        """What to add where the driver does not tell."""
        return OVERHEAD_BYTES if self._seen_bytes is None else self._seen_bytes

    def see(self, overhead_bytes: int | None) -> None:
        """A process was seen with so much."""
        if overhead_bytes is not None:
            self._seen_bytes = max(self._seen_bytes or 0, overhead_bytes)


def held_by_pid(devices: Devices, busy: Iterable[int]) -> dict[int, HeldByPid | None]:
    """Ask the driver what each process holds of the devices that carry jobs."""
    asked = {index: devices.memory(index) for index in busy}
    return {index: None if use is None else use.by_pid for index, use in asked.items()}


def is_untold(held: Mapping[int, HeldByPid | None]) -> bool:
    """Whether the driver hides of some device what a process holds of it."""
    return any(by_pid is None or None in by_pid.values() for by_pid in held.values())


def on_host(ranks: Sequence[wire.Steps], devices: int) -> DeviceMemory | None:
    """Memory of a job on cpu devices: resident sets of the ranks on each, which are dealt out in turn."""
    dealt = [_sum(ranks[device::devices], 0) for device in range(devices)]
    return _busiest([DeviceMemory(*told, BY_RESIDENT_SET) for told in dealt if told is not None])


def on_gpus(
    gpus: Sequence[int],
    ranks: Sequence[wire.Steps],
    pids: Collection[int],
    held: Mapping[int, HeldByPid | None],
    usual_bytes: int,
) -> DeviceMemory | None:
    """Memory of a job on GPUs; None while it holds none, and where it cannot be told.

    Args:
        gpus: Numbers of its GPUs.
        ranks: What those of its processes report that are followed.
        pids: All of its processes.
        held: By GPU, what the driver says; None where it counts other pids than we see.
        usual_bytes: Overhead of a process where the driver does not tell.
    """
    mine = {gpu: _own(held.get(gpu), pids) for gpu in gpus}
    own = [rank for rank in ranks if rank.reserved_bytes is not None]
    places = [
        _estimated(own[position :: len(gpus)], usual_bytes)
        if sizes is None
        else _told(gpu, mine, sizes, own, usual_bytes)
        for position, (gpu, sizes) in enumerate(mine.items())
    ]
    return _busiest([place for place in places if place is not None])


def _own(by_pid: HeldByPid | None, pids: Collection[int]) -> dict[int, int] | None:
    """What each of a job's processes holds of one GPU; None where the driver does not tell."""
    if by_pid is None:
        return None
    known = {pid: by_pid[pid] for pid in pids if pid in by_pid}
    told = {pid: size for pid, size in known.items() if size is not None}
    return told if len(told) == len(known) else None


def _estimated(ranks: Sequence[wire.Steps], usual_bytes: int) -> DeviceMemory | None:
    total = _sum(ranks, usual_bytes)
    return None if total is None else DeviceMemory(*total, BY_ESTIMATE)


def _sum(ranks: Sequence[wire.Steps], each_bytes: int) -> tuple[int, int] | None:
    """P and P + E of several processes, with so much more for each; None where no process tells."""
    known = [
        (_kept(rank) + each_bytes, max(rank.peak_bytes, _kept(rank)) + each_bytes)
        for rank in ranks
        if rank.persistent_bytes is not None and rank.peak_bytes is not None
    ]
    return (sum(p for p, _ in known), sum(peak for _, peak in known)) if known else None


def _told(
    gpu: int,
    mine: Mapping[int, dict[int, int] | None],
    sizes: Mapping[int, int],
    ranks: Sequence[wire.Steps],
    usual_bytes: int,
) -> DeviceMemory | None:
    """By the driver. A process on several GPUs tells of its busiest one only: of it nothing is taken off."""
    here = [rank for rank in ranks if rank.pid in sizes and _is_only_on(gpu, rank.pid, mine)]
    beside = [sizes[rank.pid] - _blocks(rank) for rank in here]
    if not sizes or any(
        size < -SLACK_BYTES or (rank.is_flushed and size > usual_bytes + SLACK_BYTES)
        for rank, size in zip(here, beside, strict=True)
    ):
        return None
    unused = sum(_blocks(rank) - _kept(rank) for rank in here)
    grows = sum(max(0, (rank.peak_bytes or 0) - _kept(rank)) for rank in here)
    persistent = max(sum(sizes.values()) - unused, sum(map(_kept, here)))
    return DeviceMemory(persistent, persistent + grows, BY_DRIVER, max([0, *beside]) if here else None)


def _kept(rank: wire.Steps) -> int:
    """Blocks of its allocator that are left once it has given back all it can."""
    return (rank.persistent_bytes or 0) + rank.stays_bytes


def _blocks(rank: wire.Steps) -> int:
    """Blocks of its allocator now."""
    return _kept(rank) if rank.is_flushed else max(rank.reserved_bytes or 0, _kept(rank))


def _is_only_on(gpu: int, pid: int, mine: Mapping[int, dict[int, int] | None]) -> bool:
    return all(other == gpu or sizes is None or pid not in sizes for other, sizes in mine.items())


def _busiest(places: Sequence[DeviceMemory]) -> DeviceMemory | None:
    return max(places, key=lambda place: (place.peak_bytes, place.persistent_bytes), default=None)

"""The last look before a job is started: does it still fit beside what its devices really carry?

The scheduler books by what it has been told. Meanwhile a job may have grown, or a process that is not ours may have
come. So the safety condition (`needed_bytes`) is looked at once more with what devices and jobs show now. A job that
does not fit is not started: its agent reports what it sees and sends the job back, and the scheduler books that. Where
the room is taken by a process of ours that is about to end, the job waits for it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from colane.agent.measuring.device_memory import DeviceMemory
from colane.agent.reconcile import DesiredJob, Key
from colane.model.hardware import Gpu
from colane.model.profile import Memory
from colane.model.resources import needed_bytes

SHORT_OF_MEMORY = "no-memory"  # the outcome of a job that is sent back


_OWN_LANE = -1  # lanes of attempts that are in none any more are numbered down from here


class DeviceOccupant(NamedTuple):
    """A job that is on devices."""

    key: Key  # which attempt
    lanes: Mapping[int, int]  # its lane by device
    memory: Memory  # what it holds of each and may need within a step, as booked and as seen, the larger
    is_leaving: bool = False  # whether it is about to end


class LaunchVerdict(NamedTuple):
    """Which of the jobs that shall start do not fit."""

    sent_back: dict[Key, str]  # by attempt, what is lacking
    waiting: frozenset[Key]  # attempts that fit once others have ended


def occupant(
    key: Key, gpus: Sequence[int], booked: DesiredJob | None, seen: DeviceMemory | None
) -> DeviceOccupant | None:
    """What an attempt takes of its devices; None where nothing is known of it.

    Args:
        key: Which.
        gpus: Its devices.
        booked: What the scheduler wants of it; None where it wants it no more.
        seen: What it holds.
    """
    sizes = [memory for memory in (booked.memory if booked else None, _memory(seen)) if memory is not None]
    if not sizes:
        return None
    persistent = max(size.persistent_bytes for size in sizes)
    memory = Memory(persistent, max(sum(size) for size in sizes) - persistent)
    lanes = dict(zip(booked.gpus, booked.lanes, strict=True)) if booked else dict.fromkeys(gpus, _OWN_LANE - key.job)
    return DeviceOccupant(key, lanes, memory, is_leaving=booked is None or not booked.run)


def _memory(seen: DeviceMemory | None) -> Memory | None:
    return None if seen is None else Memory(seen.persistent_bytes, max(0, seen.peak_bytes - seen.persistent_bytes))


def judge(starts: Iterable[DesiredJob], here: Sequence[DeviceOccupant], gpus: Mapping[int, Gpu]) -> LaunchVerdict:
    """Say which do not fit, in the order of their starts; one that fits is counted for those after it.

    Args:
        starts: Jobs that shall start; of one of which nothing is booked nothing is judged.
        here: Those that are on the devices.
        gpus: The devices as they are now.
    """
    verdict, taken = LaunchVerdict({}, frozenset()), list(here)
    for job in starts:
        newcomer = occupant(job.key, job.gpus, job, None)
        if newcomer is None:
            continue
        problem = _problem(newcomer, taken, gpus)
        if problem and not _problem(newcomer, [one for one in taken if not one.is_leaving], gpus):
            verdict = verdict._replace(waiting=verdict.waiting | {job.key})
        elif problem:
            verdict.sent_back[job.key] = problem
        else:
            taken.append(newcomer)
    return verdict


def _problem(newcomer: DeviceOccupant, others: Iterable[DeviceOccupant], gpus: Mapping[int, Gpu]) -> str:
    """What is lacking of its devices; empty where it fits."""
    for device in newcomer.lanes:
        gpu = gpus.get(device)
        beside = [one for one in others if device in one.lanes]
        need_bytes = needed_bytes((one.lanes[device], one.memory) for one in (newcomer, *beside))
        if gpu is not None and need_bytes > gpu.capacity_bytes:
            need, have = f"{need_bytes / 1e9:.3g} GB", f"{gpu.capacity_bytes / 1e9:.3g} GB"
            foreign = f" ({gpu.foreign_bytes / 1e9:.3g} GB are held by others)" if gpu.foreign_bytes else ""
            return f"with it, jobs would need {need} of device {device}, which has {have}{foreign}"
    return ""

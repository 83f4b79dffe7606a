"""Moves the GPU memory of suspended jobs to the host and back, by the driver's process checkpoints.

A job is parked at its boundary first, so nothing of it runs. One move at a time on a node, in a thread of its own: it
takes seconds, and the agent goes on reporting. What is moved is written down before it is, so that the next agent knows
what it finds. A restore without room leaves the process stuck for ever: room is looked for right before, and the
scheduler gives the memory to no other job meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import Final

import psutil

from colane.adaptor import wire
from colane.agent import processes
from colane.agent.files.jobdir import JobDir, read_json, write_json
from colane.agent.launch import cage
from colane.agent.reconcile import DesiredJob, Key
from colane.agent.running.move_speed import MoveSpeed
from colane.agent.supervisor.shim_system import catches
from colane.api.reports import HostMemoryObject, JobReportObject
from colane.devices import Devices
from colane.devices.suspend import CannotSuspendError, ProcessState, Saved, Suspender
from colane.model.progress import ASKS, MAY_REST

log = logging.getLogger(__name__)

RECORD: Final = cage.ON_HOST  # in a job's directory while its memory is on the host, or may be

RESTORED: Final = "restored.json"
"""In a job's directory once a process of it has been moved back to its GPU, or may have been."""

HOST_MARGIN_BYTES: Final = 2 * 2**30  # host memory left to the machine when a job's memory is moved there


def free_host_bytes() -> int:
    """Free memory of this machine."""
    return int(psutil.virtual_memory().available)


class _MemoryPlace(Enum):
    """Where a job's GPU memory is."""

    ON_GPU = auto()
    LEAVING = auto()
    UNKNOWN = auto()  # a record was found; the driver is asked
    ON_HOST = auto()
    COMING = auto()


@dataclass(slots=True)
class JobMemory:
    """A job's GPU memory."""

    job: JobDir  # its directory
    place: _MemoryPlace = _MemoryPlace.ON_GPU  # where it is
    is_wanted: bool = False  # whether it shall be on the host, as far as is known
    at_rest: bool = False  # whether it leaves as it stands, and not at a boundary
    saved: Saved | None = None  # what was moved, while it is on the host
    refusal: str = ""  # why it could not be moved there
    trouble: str = ""  # why it cannot come back
    on_cpu: bool = False  # whether its devices are cpu devices


class HostMemory:
    """Where the GPU memory of this node's jobs is; to be used from one event loop.

    Args:
        find: Gives a job's directory.
        mover: Does what takes long.
        nudge: Called when a move has ended.
    """

    def __init__(self, find: Callable[[Key], JobDir], mover: Mover, nudge: Callable[[], None]) -> None:
        self._find = find
        self._mover = mover
        self._nudge = nudge
        self._stays: dict[Key, JobMemory] = {}
        self._ending: dict[Key, JobMemory] = {}
        self._parked: Container[int] = ()
        self._asking: Container[int] = ()

    def see(self, parked: Container[int], asking: Container[int] = ()) -> None:
        """Note which jobs wait suspended at their boundaries now, and which were held at rest and would step again."""
        self._parked, self._asking = parked, asking

    def follow(self, jobs: Iterable[DesiredJob]) -> None:
        """Begin what is wanted of jobs that run here."""
        told = {job.key: job for job in jobs}
        wanted = {key: job for key, job in told.items() if job.run}
        self._ending = {key: stay for key, stay in self._ending.items() if key in told.keys() - wanted.keys()}
        for key in self._stays.keys() - wanted.keys():
            del self._stays[key]
        for key, job in wanted.items():
            self._see_to(self._stay(key), job, is_parked=key.job in self._parked)

    def holds_back(self, key: Key) -> bool:
        """Whether the end of a job waits until its process is off its GPU once more: call it until it does not.

        To kill a process that was restored has hung hosts (driver 595); one whose memory is on the host ends as any.
        """
        stay = self._ending.get(key)
        if stay is None:
            job = self._find(key)
            if not (job.path / RESTORED).exists():
                return False
            stay = self._ending[key] = self._stays.get(key) or JobMemory(job)
            if stay.place is _MemoryPlace.ON_GPU:
                self._begin(stay, _MemoryPlace.LEAVING, self._mover.set_aside)
        return stay.place in {_MemoryPlace.LEAVING, _MemoryPlace.COMING}

    def keeps(self, key: Key) -> bool:
        """Whether a job cannot go on yet: its memory is on the host, or on its way."""
        stay = self._stays.get(key)
        return stay is not None and stay.place is not _MemoryPlace.ON_GPU

    def is_on_cpu(self, key: Key) -> bool:
        """Whether a job is on cpu devices, as far as is known."""
        stay = self._stays.get(key)
        return stay is not None and stay.on_cpu

    def said(self, key: Key) -> HostMemoryObject:
        """Give what a job's sample says of its memory: fields of `Progress`.

        Memory that is to come back is not said to be on the host: the scheduler would give its GPU away.
        """
        stay = self._stays.get(key)
        if stay is None:
            return {}
        if stay.on_cpu:
            rest = ASKS if key.job in self._asking else MAY_REST
            is_off = stay.is_wanted and key.job in self._parked
            return {"on_host_bytes": 0, "rest": rest} if is_off else {"rest": rest}
        on_host = stay.saved if stay.place is _MemoryPlace.ON_HOST and stay.is_wanted else None
        said: HostMemoryObject = {
            "on_host_bytes": None if on_host is None else on_host.memory_bytes,
            "host_refusal": stay.refusal,
        }
        return {**said, "rest": ASKS} if key.job in self._asking else said

    def messages(self) -> list[str]:
        """Say which jobs' memory cannot come back."""
        troubled = sorted((key, stay.trouble) for key, stay in self._stays.items() if stay.trouble)
        return [f"the GPU memory of job {key.job} stays on the host: {trouble}" for key, trouble in troubled]

    def _stay(self, key: Key) -> JobMemory:
        if key not in self._stays:
            job = self._find(key)
            stay = self._stays[key] = JobMemory(job, on_cpu=job.facts().cpu_devices)
            record = read_json(job.path / RECORD)
            if record is not None:
                stay.saved = Saved(record["pid"], record["memory_bytes"])
                self._begin(stay, _MemoryPlace.UNKNOWN, self._mover.look)
        return self._stays[key]

    def _see_to(self, stay: JobMemory, job: DesiredJob, *, is_parked: bool) -> None:
        stay.is_wanted, stay.at_rest = job.to_host, job.at_rest
        if stay.on_cpu:
            return  # its memory is the host's already: waiting frees its devices
        if not job.to_host:
            stay.refusal = ""
            if stay.place is _MemoryPlace.ON_HOST:
                self._begin(stay, _MemoryPlace.COMING, self._mover.bring_back)
        elif stay.place is _MemoryPlace.ON_GPU and is_parked and not stay.refusal:
            self._begin(stay, _MemoryPlace.LEAVING, self._mover.take_away)

    def _begin(self, stay: JobMemory, place: _MemoryPlace, work: Callable[[JobMemory], _MemoryPlace]) -> None:
        """Do something that takes long; it ends with a nudge. An agent that ends does not wait for it."""
        stay.place = place
        loop = asyncio.get_running_loop()

        def run() -> None:
            found = work(stay)
            with suppress(RuntimeError):  # the agent has ended meanwhile
                loop.call_soon_threadsafe(self._arrived, stay, found)

        threading.Thread(target=run, name="host-memory", daemon=True).start()

    def _arrived(self, stay: JobMemory, place: _MemoryPlace) -> None:
        stay.place = place
        self._nudge()


class Mover:
    """Moves memory, one job at a time; its methods take seconds and say where the memory is afterwards.

    Args:
        devices: Tells which processes hold memory of a GPU.
        speed: Told how long each move took.
        open_driver: Opens the driver, when it is first needed.
        free_host_bytes: Free memory of the machine.
    """

    def __init__(
        self,
        devices: Devices,
        speed: MoveSpeed,
        open_driver: Callable[[], Suspender] = Suspender,
        free_host_bytes: Callable[[], int] = free_host_bytes,
    ) -> None:
        self._devices = devices
        self._speed = speed
        self._open = open_driver
        self._free_host_bytes = free_host_bytes
        self._opened: Suspender | None = None
        self._busy = threading.Lock()

    def take_away(self, stay: JobMemory) -> _MemoryPlace:
        """Move a job's memory to the host, or note why that cannot be."""
        with self._busy:
            try:
                pid, size_bytes = self._find_process(stay.job)
                if stay.at_rest:
                    _check_reports(stay.job, pid)
                driver = self._driver()
                _make_room(stay.job, pid, size_bytes)
                began_s = monotonic()
                stay.saved = driver.suspend(pid, size_bytes)
                self._speed.note(size_bytes, monotonic() - began_s)
            except (CannotSuspendError, OSError) as error:
                stay.refusal = str(error)
                log.warning("the GPU memory of job %s stays on its GPU: %s", stay.job.key, error)
                _forget(stay.job)
                return _MemoryPlace.ON_GPU
        return _MemoryPlace.ON_HOST

    def set_aside(self, stay: JobMemory) -> _MemoryPlace:
        """Move a job's memory off its GPU before it is killed, where that can be done.

        A process that catches SIGTERM is left to end by itself: it may have use for its GPU yet.
        """
        with self._busy:
            try:
                pid, size_bytes = self._find_process(stay.job)
                if catches(pid, signal.SIGTERM):
                    return _MemoryPlace.ON_GPU
                _make_room(stay.job, pid, size_bytes)
                self._driver().suspend(pid, size_bytes)
            except (CannotSuspendError, OSError) as error:
                log.warning("job %s, which was restored to its GPU, is ended there: %s", stay.job.key, error)
                return _MemoryPlace.ON_GPU
        return _MemoryPlace.ON_HOST

    def bring_back(self, stay: JobMemory) -> _MemoryPlace:
        """Move a job's memory to its GPU again; where there is no room it is tried again in the next round."""
        (gpu,) = stay.job.facts().gpus
        with self._busy:
            try:
                write_json(stay.job.path / RESTORED, {"pid": _saved(stay).pid})
                driver, saved, began_s = self._driver(), _saved(stay), monotonic()
                driver.resume(saved, lambda: self._free_bytes(gpu))
                self._speed.note(saved.memory_bytes, monotonic() - began_s)
            except (CannotSuspendError, OSError) as error:
                if str(error) != stay.trouble:
                    log.warning("the GPU memory of job %s stays on the host: %s", stay.job.key, error)
                stay.trouble = str(error)
                return _MemoryPlace.ON_HOST
        return _settle_on_gpu(stay)

    def look(self, stay: JobMemory) -> _MemoryPlace:
        """Ask the driver what an earlier agent has left."""
        with self._busy:
            try:
                state = self._driver().state(_saved(stay).pid)
            except CannotSuspendError as error:
                stay.trouble = str(error)
                return _MemoryPlace.ON_HOST
        return _settle_on_gpu(stay) if state is ProcessState.RUNNING else _MemoryPlace.ON_HOST

    def _driver(self) -> Suspender:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _free_bytes(self, gpu: int) -> int:
        use = self._devices.memory(gpu)
        return 0 if use is None else use.free_bytes

    def _find_process(self, job: JobDir) -> tuple[int, int]:
        """Find the one process of a job that uses its GPU, and how much it holds of it.

        Raises CannotSuspendError: there is not just one, it goes through MPS, or the host has no room.
        """
        facts, claimed_by = job.facts(), job.claimed_by()
        if facts.mps:
            raise CannotSuspendError("it goes through MPS, with which the driver moves no process")
        use = self._devices.memory(facts.gpus[0]) if len(facts.gpus) == 1 else None
        if use is None:
            raise CannotSuspendError("it is not on one whole GPU")
        if use.by_pid is None:
            raise CannotSuspendError("NVML counts processes in another pid namespace here, so its own cannot be found")
        tree = processes.read_tree(claimed_by.pid).processes if claimed_by is not None else ()
        pid, size_bytes = _only_one({one.pid: use.by_pid[one.pid] for one in tree if one.pid in use.by_pid})
        _check_room(size_bytes, self._free_host_bytes())
        return pid, size_bytes


def _only_one(held: dict[int, int | None]) -> tuple[int, int]:
    if len(held) != 1:
        count = f"{len(held)} processes of it use" if held else "no process of it uses"
        raise CannotSuspendError(f"{count} the GPU, and the driver moves only a single one to the host")
    ((pid, size_bytes),) = held.items()
    if size_bytes is None:
        raise CannotSuspendError("NVML does not say how much memory it holds")
    return pid, size_bytes


def _check_room(need_bytes: int, have_bytes: int) -> None:
    if need_bytes + HOST_MARGIN_BYTES > have_bytes:
        need, kept, have = (f"{size_bytes / 1e9:.3g} GB" for size_bytes in (need_bytes, HOST_MARGIN_BYTES, have_bytes))
        raise CannotSuspendError(f"it needs {need} of host memory and {kept} are kept free, {have} are free")


def _check_reports(job: JobDir, pid: int) -> None:
    """Refuse a process other than the one that says when it would go on. Raises CannotSuspendError: it is another."""
    try:
        seen = wire.read(job.steps_path)
    except wire.WireError:
        seen = None
    if seen is None or seen.pid != processes.own_number(pid):
        raise CannotSuspendError("another process of it reports its steps, so it would not be seen that it goes on")


def _make_room(job: JobDir, pid: int, size_bytes: int) -> None:
    """Let the job hold what is moved beside what it booked, and write down that it may be there.

    The driver's copy is memory of the process itself: the kernel would end the job for it. Raises OSError: it cannot be
    written.
    """
    limit_bytes = job.memory_limit_bytes()
    booked = {"limit_bytes": limit_bytes} if limit_bytes else {}
    write_json(job.path / RECORD, {"pid": pid, "memory_bytes": size_bytes, **booked})
    if limit_bytes:
        cage.bound_memory(job, limit_bytes + size_bytes)


def _forget(job: JobDir) -> None:
    """Nothing of it is on the host any more: it may hold there what it booked."""
    record = read_json(job.path / RECORD) or {}
    if "limit_bytes" in record:
        with suppress(OSError):  # a wider bound than it booked does no harm
            cage.bound_memory(job, record["limit_bytes"])
    (job.path / RECORD).unlink(missing_ok=True)


def _saved(stay: JobMemory) -> Saved:
    assert stay.saved is not None  # noqa: S101 - for the type checker
    return stay.saved


def _settle_on_gpu(stay: JobMemory) -> _MemoryPlace:
    _forget(stay.job)
    stay.saved, stay.trouble = None, ""
    return _MemoryPlace.ON_GPU


def with_host(sample: JobReportObject, said: HostMemoryObject) -> JobReportObject:
    """Add to what is said of a job where its GPU memory is."""
    if not said or "progress" not in sample:
        return sample
    return {**sample, "progress": {**sample["progress"], **said}}

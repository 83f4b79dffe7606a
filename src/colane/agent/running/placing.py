"""Puts running jobs on the devices and cores of this node that the scheduler has given them since they started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from colane.agent import processes
from colane.agent.files.jobdir import JobDir, LaunchFacts
from colane.agent.launch.environment import job_cores
from colane.agent.launch.gang import cores_of_ranks
from colane.agent.measuring import affinity
from colane.agent.measuring.affinity import CoreGrant
from colane.agent.processes import ProcessId
from colane.agent.reconcile import DesiredJob, Key
from colane.devices import Devices
from colane.model.hardware import Gpu

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 0.02  # after so long processes born during a change of cores are looked for

ROUNDS_BEFORE = 3
"""For so many rounds after a change a thread on exactly the earlier cores counts as born meanwhile: the fork of a large
process takes a while, and its cores are those of the beginning."""


@dataclass(slots=True)
class _Placed:
    """Where a job is."""

    # devices and booked cores that the scheduler asked for, once it is there
    asked: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    grant: CoreGrant | None = None  # its cores
    before: CoreGrant | None = None  # its cores before the last change, while these still matter
    rounds_left: int = 0  # for how long they do
    lags: bool = False  # whether it still has the devices it had before
    trouble: str = ""  # why it is not where it shall be
    stray: str = ""  # why a thread of it that left its cores could not be brought back
    escapes: int = 0  # how often a thread of it had left its cores


class CorePlacer:
    """Devices and cores of this node's running jobs; to be used from one event loop.

    Args:
        find: Gives a job's directory.
        devices: This node's.
        moved: Called with a job's facts when they have changed.
    """

    def __init__(
        self, find: Callable[[Key], JobDir], devices: Devices, moved: Callable[[Key, LaunchFacts], None]
    ) -> None:
        self._find = find
        self._devices = devices
        self._moved = moved
        self._places: dict[Key, _Placed] = {}

    def follow(self, jobs: Iterable[DesiredJob]) -> None:
        """Move the jobs that run here to the devices and cores they shall have now."""
        wanted = {job.key: job for job in jobs if job.run}
        for key in self._places.keys() - wanted.keys():
            del self._places[key]
        late = [job for key, job in sorted(wanted.items()) if self._is_late(key, job)]
        if late:
            by_index = {gpu.index: gpu for gpu in self._devices.observe()}
            for job in late:
                self._see_to(job, by_index)

    def keep(self, below: Callable[[Key], Sequence[ProcessId]]) -> None:
        """Bring back threads that left their job's cores; `below` gives a job's processes without its supervisor."""
        for key, placed in self._places.items():
            if placed.grant is not None:
                found = affinity.confine(below(key), placed.grant, placed.before)
                placed.stray, placed.escapes = found.problem, placed.escapes + found.escaped
                placed.rounds_left -= 1
                if placed.rounds_left <= 0:
                    placed.before = None

    def lags(self, key: Key) -> bool:
        """Whether a job is still on devices that it does not hold any more: it must not go on."""
        return key in self._places and self._places[key].lags

    def messages(self) -> list[str]:
        """Say which jobs are not where they shall be."""
        troubled = sorted((key, placed.trouble or placed.stray) for key, placed in self._places.items())
        left = [(key, placed.escapes) for key, placed in sorted(self._places.items()) if placed.escapes]
        return [
            *(f"job {key.job} is not on its cores: {trouble}" for key, trouble in troubled if trouble),
            *(f"job {key.job} leaves its cores by itself: put back {_roughly(count)}" for key, count in left),
        ]

    def _is_late(self, key: Key, job: DesiredJob) -> bool:
        placed = self._places.setdefault(key, _Placed())
        return placed.asked != (job.gpus, job.cores)

    def _see_to(self, job: DesiredJob, by_index: Mapping[int, Gpu]) -> None:
        """Move one job, if its process runs; else there is nothing to move yet."""
        found, placed = self._find(job.key), self._places[job.key]
        claimed_by = found.claimed_by()
        if found.started() is None or claimed_by is None:
            return
        facts = found.facts()
        placed.lags = job.gpus != facts.gpus
        if not by_index.keys() >= set(job.gpus):
            self._note(job.key, placed, f"this node has not all of the devices {job.gpus}")
            return
        gpus = [by_index[gpu] for gpu in job.gpus]
        cores = job_cores(job.cores, gpus, self._devices.host.cores)
        by_rank = cores_of_ranks(gpus, cores) if facts.rank_cores else ()
        now = replace(facts, gpus=job.gpus, cores=cores, rank_cores=by_rank)
        if now != facts and not self._change(claimed_by.pid, job.key, placed, facts, now):
            return
        placed.asked, placed.grant, placed.lags, placed.trouble = (job.gpus, job.cores), _grant(now), False, ""

    def _change(self, supervisor_pid: int, key: Key, placed: _Placed, was: LaunchFacts, now: LaunchFacts) -> bool:
        """Give a job its new cores, then write down where it is: an agent that dies between does it again."""
        problem = affinity.give(supervisor_pid, _grant(now))
        self._note(key, placed, problem)
        if problem:
            return False
        placed.before, placed.rounds_left = _grant(was), ROUNDS_BEFORE
        try:
            self._find(key).place(now)
        except OSError as error:
            log.warning("where job %s is now cannot be written down: %s", key, error)
        self._moved(key, now)
        asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again, key, supervisor_pid)
        return True

    def _look_again(self, key: Key, supervisor_pid: int) -> None:
        placed = self._places.get(key)
        if placed is not None and placed.grant is not None:
            below = processes.read_tree(supervisor_pid).processes[1:]
            placed.stray = affinity.confine(below, placed.grant, placed.before).problem

    def _note(self, key: Key, placed: _Placed, trouble: str) -> None:
        if trouble and trouble != placed.trouble:
            log.warning("job %s is not on its cores: %s", key, trouble)
        placed.trouble = trouble


def _roughly(count: int) -> str:
    """By powers of ten: it goes on, and each number is a message."""
    least = 10 ** (len(str(count)) - 1)
    return f"{least} times or more" if least > 1 else "once or more"


def _grant(facts: LaunchFacts) -> CoreGrant:
    return CoreGrant(frozenset(facts.cores), tuple(frozenset(cores) for cores in facts.rank_cores))

"""The jobs on this machine: sees them start and end, stops them, cleans up after them.

What is there is read from disk and from /proc on every look, so a restarted agent finds what it left behind and
goes on as if it had never been away. Only what waits for an event is kept in memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from colane.agent import processes
from colane.agent.files.jobdir import FINISHED, JobDir, LaunchFacts, StateDir, asked, mark_of, write_json
from colane.agent.files.logs import read_tail
from colane.agent.launch.check import DeviceOccupant, occupant
from colane.agent.launch.launcher import Launcher, watch
from colane.agent.measuring.device_memory import HeldByPid, OverheadSeen
from colane.agent.measuring.telemetry import AttemptMeter, read_steps
from colane.agent.processes import ProcessId
from colane.agent.reconcile import AttemptPhase, DesiredJob, Evidence, Key, phase_of
from colane.agent.running.boundaries import Boundaries
from colane.agent.running.outcome import TAIL_BYTES, ExitOutcome, classify, printable
from colane.agent.supervisor.command import Command
from colane.agent.supervisor.shim import LEAD_ENV, SIGNAL_ENV
from colane.agent.supervisor.shim_halt import DAEMONS_CLIENTS, LAUNCHERS
from colane.api.of_record import as_object
from colane.api.reports import FinishedObject, JobReportObject
from colane.devices import OwnProcesses, Utilization
from colane.model.checkpoint import CHECKPOINT_PRESETS
from colane.model.progress import Progress

log = logging.getLogger(__name__)

CLEAN_UP_ROUND_S = 0.02
CLEAN_UP_ROUNDS = 250
"""Rounds of looking for what a dead supervisor left. One kills all that is seen, so more than two are needed only
while a process hangs in the kernel; after five seconds of that the job's end is reported all the same."""


_ELSEWHERE = re.compile(rf"\b({'|'.join(sorted(DAEMONS_CLIENTS | LAUNCHERS))})\b")
"""In a command: its work may be done by processes that are not its own."""

NOTHING_BUSY: Mapping[int, Mapping[int, float]] = MappingProxyType({})
DELETED = "its directory was deleted while it ran"


class _Watched(NamedTuple):
    """A supervisor whose end is awaited, and what ends that."""

    supervisor: ProcessId
    cancel: Callable[[], None]


class Jobs:
    """All attempts of this node whose end the scheduler has not heard."""

    def __init__(
        self,
        state: StateDir,
        nudge: Callable[[], None],
        gpu_source: str,
        on_fault: Callable[[str], None],
        bounds: Boundaries | None = None,
    ) -> None:
        """Take over what is on disk.

        Args:
            state: The agent's directory.
            nudge: Called when a job has started or ended.
            gpu_source: What measures the use of GPUs here.
            on_fault: Called with what kept this node from starting a job.
            bounds: Where what a job makes raise ends.
        """
        self._bounds = bounds or Boundaries()
        self._on_fault = on_fault
        self._state = state
        self._nudge = nudge
        self._gpu_source = gpu_source
        self._overhead = OverheadSeen()
        self._launcher = Launcher(state.root)
        self._watched: dict[Key, _Watched] = {}
        self._changes = 0
        self._strays: set[Key] = set()
        self._halting: dict[Key, tuple[bool, bool]] = {}
        self._has_ended = asyncio.Event()
        self._meters: dict[Key, AttemptMeter] = {}
        self._strange: dict[int, ProcessId] = {}

    def observe(self) -> dict[Key, AttemptPhase]:
        """Look at every attempt anew, and watch those that run; one whose directory was deleted is stopped."""
        found = {job.key: self._look_at(job) for job in self._state.live()}
        strays = [key for key in self._watched if key not in found and self._state.find(key) is None]
        for key in strays:
            if key not in self._strays:
                log.warning("job %s is stopped: %s", key, DELETED)
                self._strays.add(key)
                processes.terminate(self._watched[key].supervisor)
        return found | dict.fromkeys(strays, AttemptPhase.RUNNING)

    def prepare(self, key: Key, command: Command, facts: LaunchFacts, token: str | None = None) -> None:
        """Write a new attempt's directory; one that a crash left unclaimed stays as it is.

        Raises:
            OSError: There is no room for it.
            ValueError: No process can be given such a command.
        """
        if not self._state.job_dir(key).path.exists():
            self._state.prepare(key, command, facts, token)

    def all_halt(self) -> tuple[bool, bool]:
        """Whether every job here is halted when its lease runs out, and when it is told to.

        Supervisors of older versions end theirs, and so ends what names a program whose work is done elsewhere.
        """
        live = self._state.live()
        self._halting = {job.key: self._halting[job.key] for job in live if job.key in self._halting}
        for job in live:
            if job.key not in self._halting and (started := job.started()) is not None:
                with self._bounds.around(f"the command of job {job.key}"), suppress(OSError):
                    words = " ".join(job.command().argv)
                    is_here = not _ELSEWHERE.search(words)
                    halts, told = (bool(started.get(name)) and is_here for name in ("halts", "halts_told"))
                    self._halting[job.key] = halts, told
        return all(halts for halts, _ in self._halting.values()), all(told for _, told in self._halting.values())

    def is_prepared(self, key: Key) -> bool:
        """Whether there is a directory for this attempt already."""
        return self._state.job_dir(key).path.exists()

    def spawn(self, key: Key) -> None:
        """Start the supervisor of a prepared attempt."""
        job = self._state.job_dir(key)
        try:
            self._launcher.spawn(job, self._on_ready)
        except OSError as error:
            self._close_for_fault(job, f"no supervisor could be started: {error.strerror}")

    def stop(self, key: Key, cause: str = "", outcome: str = "") -> None:
        """Order an attempt to end; one that has not been claimed ends at once, one about to start later.

        Args:
            key: Which.
            cause: Why, for its owner.
            outcome: What its end is to count as; empty: as its process ends.
        """
        job = self._state.job_dir(key)
        if not self._launcher.is_under_way(key) and job.close("not-started", "stopped before it was started"):
            return
        claimed_by = job.claimed_by()
        if claimed_by is not None:
            job.order_end({"cause": cause, "outcome": outcome, **self._unsaid_contract(job)})
            processes.terminate(claimed_by)

    def lead_max_s(self) -> float:
        """The longest time that any job here has to save its state when it is to end."""
        return max((_lead_s(job) for job in self._state.live() if not job.has_ended()), default=0.0)

    @staticmethod
    def _unsaid_contract(job: JobDir) -> dict[str, object]:
        """How a job is asked to save that has not been submitted so, but does it by the adaptor's calls."""
        steps = read_steps(job.steps_path)
        if steps is None or not steps.saves or _said_contract(job):
            return {}
        plain = CHECKPOINT_PRESETS["plain"]
        return {"signal": plain.signal, "lead_s": plain.lead_s}

    async def abandon(self, within_s: float) -> list[Key]:
        """Stop all that run, whose directories are gone, and return them once they have ended, or the time is over."""
        keys = list(self._watched)
        for watched in self._watched.values():
            processes.terminate(watched.supervisor)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._watched:
                    self._has_ended.clear()
                    await self._has_ended.wait()
        return keys

    async def reap(self, key: Key, let_go: Callable[[Collection[int]], Awaitable[None]]) -> None:
        """Kill what is left of an attempt whose supervisor died, and record its end.

        Args:
            key: Which.
            let_go: Has MPS let these of its clients go first.
        """
        job = self._state.job_dir(key)
        if job.facts().mps:
            await let_go({process.pid for process in self._leftovers(job)})
        for _ in range(CLEAN_UP_ROUNDS):
            if not processes.kill(self._leftovers(job)):
                break
            await asyncio.sleep(CLEAN_UP_ROUND_S)
        job.record_end("supervisor-died", job.shim_errors())
        log.warning("the supervisor of job %s died; what it left was stopped", key)

    def sample(
        self,
        key: Key,
        now_s: float,
        used: Mapping[int, Utilization],
        held: Mapping[int, HeldByPid | None],
        others: Mapping[int, float],
        busy: Mapping[int, Mapping[int, float]] = NOTHING_BUSY,
    ) -> JobReportObject:
        """Give what the report says of an attempt that has not ended; see `AttemptMeter.sample` and `use`."""
        launching: JobReportObject = {"id": key.job, "attempt": key.attempt, "phase": "launching"}
        look = partial(self._sample, key, now_s, used, held, others, busy)
        return self._bounds.ask(f"what job {key} does", look, launching)

    def _sample(
        self,
        key: Key,
        now_s: float,
        used: Mapping[int, Utilization],
        held: Mapping[int, HeldByPid | None],
        others: Mapping[int, float],
        busy: Mapping[int, Mapping[int, float]],
    ) -> JobReportObject:
        job = self._state.job_dir(key)
        started, claimed_by = job.started(), job.claimed_by()
        if started is None or claimed_by is None:
            return {"id": key.job, "attempt": key.attempt, "phase": "launching"}
        meter = self._meter(job)
        progress = meter.sample(now_s, claimed_by.pid, used, held, others)
        return {
            "id": key.job,
            "attempt": key.attempt,
            "phase": "launched",
            "pid": started["pid"],
            "start_s": started["start_s"],
            "progress": as_object(progress),
            "use": as_object(meter.use(progress, busy, held)),
            **({"halted": True} if job.stands() else {}),
        }

    def finished(self, key: Key, judged: ExitOutcome | None = None) -> FinishedObject:
        """Give what the scheduler is told of an attempt's end: put together once, then always the same.

        Args:
            key: Which.
            judged: Its outcome, where its record alone does not tell.
        """
        job = self._state.job_dir(key)
        known = job.finished()
        if known is None:
            known = self._put_together(job, judged)
            with suppress(OSError):  # on a full disk it is put together again, of the same records
                write_json(job.path / FINISHED, known)
        return known

    def deliver(self, key: Key) -> None:
        """The scheduler knows its end."""
        self._state.deliver(self._state.job_dir(key))
        self._meters.pop(key, None)

    def own(self) -> OwnProcesses:
        """Give our jobs' processes as of the last samples, and the devices they are on."""
        pids = frozenset(process.pid for meter in self._meters.values() for process in meter.processes)
        running = self._placed()
        return OwnProcesses(pids, frozenset(gpu for facts in running for gpu in facts.gpus), self._changes)

    def adopt(self, pids: Iterable[int]) -> None:
        """Find the jobs of those of these processes that no supervisor is above: a container's runtime started them."""
        known = {process.pid: process for meter in self._meters.values() for process in meter.processes} | self._strange
        new = {pid: one for pid in pids if (one := processes.identify(pid)) is not None and known.get(pid) != one}
        self._strange = {pid: one for pid, one in self._strange.items() if processes.identify(pid) == one} | new
        for job in self._state.live() if new else ():
            root, mark = None, mark_of(job.steps_path)
            with self._bounds.around(f"the supervisor of job {job.key}"):
                root = job.claimed_by()
            for one in new.values():
                if root is not None and processes.is_marked(one.pid, mark, root):
                    self._meter(job).adopt(one)

    def below(self, key: Key) -> Sequence[ProcessId]:
        """Give a job's processes without its supervisor, as of its last sample."""
        meter = self._meters.get(key)
        return () if meter is None else meter.processes[1:]

    def occupants(self, wanted: Mapping[Key, DesiredJob], held: Mapping[int, HeldByPid | None]) -> list[DeviceOccupant]:
        """Give what attempts that have not ended take of their devices, given what each process holds of them now.

        One whose GPU memory is on the host takes nothing.
        """
        found = []
        for job in self._state.live():
            booked = wanted.get(job.key)
            is_on_host = booked is not None and booked.memory is None and booked.to_host
            with self._bounds.around(f"the memory of job {job.key}"):
                if not (job.has_ended() or is_on_host):
                    found.append(occupant(job.key, job.facts().gpus, booked, self._meter(job).memory_now(held)))
        return [one for one in found if one is not None]

    def clear_of_former(self, starts: list[Key], wanted: Mapping[Key, DesiredJob]) -> list[Key]:
        """Give those whose devices no attempt is on that was given up as lost, and is about to end."""
        former = [job for job in (self._state.live() if starts else ()) if job.key not in wanted]
        taken = {gpu for job in former if not job.has_ended() for gpu in job.facts().gpus}
        return [key for key in starts if taken.isdisjoint(wanted[key].gpus)]

    def place(self, key: Key, facts: LaunchFacts) -> None:
        """It runs elsewhere on this node from now on."""
        self._meter(self._state.job_dir(key)).place(facts)

    def facts_of(self, keys: Iterable[Key]) -> list[LaunchFacts]:
        """How these are placed, in their order; of one whose records cannot be read, on nothing."""
        nowhere = LaunchFacts("", 0.0)
        return [self._bounds.ask(f"where job {key} runs", self._state.job_dir(key).facts, nowhere) for key in keys]

    def through_mps(self) -> dict[int, bool]:
        """Give, of each device that carries jobs, whether all of them were started through an MPS daemon."""
        through: dict[int, bool] = {}
        for facts in self._placed():
            through.update({gpu: through.get(gpu, True) and facts.mps for gpu in facts.gpus})
        return through

    def _placed(self) -> list[LaunchFacts]:
        """How those that run are placed, as far as that can be read."""
        found = []
        for key in self._watched:
            with self._bounds.around(f"where job {key} runs"):
                found.append(self._state.job_dir(key).facts())
        return found

    def close(self) -> None:
        """Watch no more; the jobs go on."""
        self._launcher.close()
        for watched in self._watched.values():
            watched.cancel()
        self._watched.clear()

    def _look_at(self, job: JobDir) -> AttemptPhase:
        """See how far an attempt is; one whose records make no sense any more is ended as one without a supervisor.

        What the disk keeps from being read now is read in a later round: it counts as running meanwhile.
        """
        phase = AttemptPhase.LOST
        with self._bounds.around(f"job {job.key}"):
            try:
                phase = self._look(job)
            except OSError:
                phase = AttemptPhase.RUNNING
                raise
        return phase

    def _look(self, job: JobDir) -> AttemptPhase:
        claimed_by = job.claimed_by()
        alive = None if claimed_by is None else processes.identify(claimed_by.pid)
        # The record is looked for last: a supervisor that ends meanwhile has written it by then.
        phase = phase_of(Evidence(claimed_by, alive, job.has_ended(), self._launcher.is_under_way(job.key)))
        if phase is AttemptPhase.RUNNING and claimed_by is not None:
            self._watch(job.key, claimed_by)
        return phase

    def _watch(self, key: Key, supervisor: ProcessId) -> None:
        """Be told of its end. It may have ended since we looked: then look again."""
        if key in self._watched:
            return
        pidfd = processes.open_pidfd(supervisor)
        if pidfd is None:
            self._nudge()
            return
        self._changes += 1
        self._watched[key] = _Watched(supervisor, watch(pidfd, lambda: self._on_end(key)))

    def _on_end(self, key: Key) -> None:
        self._changes += 1
        del self._watched[key]
        if key in self._strays:
            self._strays.remove(key)
            job = self._state.job_dir(key)
            with suppress(OSError):
                job.path.mkdir(mode=0o700)
                job.close("supervisor-died", DELETED)
        self._has_ended.set()
        self._nudge()

    def _close_for_fault(self, job: JobDir, problem: str) -> None:
        """It was not started, and would be as little in any other job's place."""
        self._on_fault(problem)
        with suppress(OSError):  # nothing can be written: it stays prepared, and is tried again
            job.close("node-fault", problem)

    def _on_ready(self, job: JobDir) -> None:
        if job.claimed_by() is None:
            self._close_for_fault(job, f"its supervisor could not be started: {job.shim_errors()}")
        self._nudge()

    def _meter(self, job: JobDir) -> AttemptMeter:
        if job.key not in self._meters:
            self._meters[job.key] = AttemptMeter(
                job.steps_path, job.facts(), gpu_source=self._gpu_source, overhead=self._overhead
            )
        return self._meters[job.key]

    def _leftovers(self, job: JobDir) -> set[ProcessId]:
        """Find what lives on: processes seen below the supervisor or that carry the job's mark, and theirs."""
        mark = mark_of(job.steps_path)
        seen = {process.pid: process for process in self._meter(job).processes}
        roots = set(processes.marked(mark)) | {
            pid for pid, process in seen.items() if processes.identify(pid) == process
        }
        return {process for pid in roots for process in processes.read_tree(pid).processes}

    def _put_together(self, job: JobDir, judged: ExitOutcome | None) -> FinishedObject:
        record = job.exit_record()
        if record is None:
            raise AssertionError(f"job {job.key} has not ended")
        outcome = judged or classify(record, read_tail(job.path, TAIL_BYTES))
        progress = self._meter(job).last(record["end_s"], record["start_s"], record["cpu_s"])
        steps = read_steps(job.steps_path)
        return {
            "id": job.key.job,
            "attempt": job.key.attempt,
            "end_s": record["end_s"],
            "exit_code": record["exit_code"],
            "signal": record["signal"],
            "log_bytes": record["log_bytes"],
            "log_truncated": record["log_truncated"],
            "start_s": None if outcome.name in {"not-started", "node-fault"} else record["start_s"],
            "outcome": outcome.name,
            "detail": printable(outcome.detail),
            "step_durations_s": list(steps.durations_s) if steps else [],
            "progress": as_object(progress),
            "was_stopped": record["stopped"] or asked(job.path)[0] > 0,
        }


def _said_contract(job: JobDir) -> Mapping[str, str]:
    """How it was submitted to be asked to save, as in its environment; nothing where it was not."""
    try:
        env = job.command().env
    except (OSError, ValueError):
        return {}
    return env if env.get(SIGNAL_ENV) else {}


def _lead_s(job: JobDir) -> float:
    steps = read_steps(job.steps_path)
    learnt_s = CHECKPOINT_PRESETS["plain"].lead_s if steps is not None and steps.saves else 0.0
    return float(_said_contract(job).get(LEAD_ENV) or learnt_s)


def refusal(key: Key, detail: str, outcome: str = "not-started") -> FinishedObject:
    """Give what the scheduler is told of an attempt that left nothing on this machine."""
    now_s = time.time()
    return {
        "id": key.job,
        "attempt": key.attempt,
        "start_s": None,
        "end_s": now_s,
        "exit_code": None,
        "signal": None,
        "log_bytes": 0,
        "log_truncated": False,
        "outcome": outcome,
        "detail": detail,
        "step_durations_s": [],
        "progress": as_object(Progress(at_s=now_s)),
        "was_stopped": None,
    }

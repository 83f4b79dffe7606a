"""Virtual time: an event heap, the core, and a world that moves the jobs the core has started.

There is no scheduling here. The driver submits what the workload says, starts what the core assigns, reports steps
and ends as agents would, and recomputes speeds only where company changed; completions are rescheduled, not polled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from colane.core import Core
from colane.core.events import Ended, Event, Launched, Outcome, Progressed, Submitted
from colane.model.hardware import GpuId
from colane.model.job import Exit, Job, JobId, JobState
from colane.model.progress import Progress
from colane.simulate.ledger import JobRow, Ledger
from colane.simulate.world import World
from colane.traces.workload import TraceJob

DONE = Exit(0, None)
STOPPED = Exit(None, 15)
SAMPLE_STEPS = 12
"""A sample is taken when every job of a company has made this many steps, just enough to learn from the company."""

EPSILON_STEPS = 1e-9
"""Less work than this is rounding, not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """What living takes besides steps.

    Attributes:
        launch_s: From start of a process to its first step.
        stop_s: From the wish to stop a process to its end.
        restart_s: Work lost by a job that is stopped and queued again and can save its state.
        checkpoints: Whether such a job keeps the steps it made.
        keep_rows: False drops the rows of ended jobs, for runs that only count.
    """

    launch_s: float = 0.0
    stop_s: float = 0.0
    restart_s: float = 0.0
    checkpoints: bool = True
    keep_rows: bool = True


@dataclass(slots=True)
class Process:
    """A running attempt: how much is left, how fast it goes, since when."""

    job: TraceJob
    attempt: int
    gpus: tuple[GpuId, ...]
    gpu_type: str
    work_steps: float
    left_steps: float
    start_s: float
    since_s: float
    steps_per_s: float = 0.0
    stepping: bool = False
    token: int = 0
    first_step_s: float | None = None

    @property
    def done_steps(self) -> float:
        """Steps made up to `since_s`."""
        return self.work_steps - self.left_steps

    def settle(self, now_s: float) -> None:
        """Count the steps made since the last change of speed."""
        self.left_steps = max(0.0, self.left_steps - self.steps_per_s * (now_s - self.since_s))
        self.since_s = now_s


@dataclass(slots=True)
class _Gpu:
    """Processes on one GPU, and the use they make of it."""

    processes: dict[JobId, Process] = field(default_factory=dict)
    active: bool = False
    utilized: float = 0.0
    epoch: int = 0


Callback = Callable[[float], None]


class Driver:
    """Runs a workload through a core.

    Args:
        core: With its nodes registered.
        jobs: In order of submission.
        world: The truth.
        config: Costs besides steps.
        on_outcome: Told of every outcome, for recording decisions.
        on_progress: Told the virtual time now and then.
    """

    def __init__(
        self,
        core: Core,
        jobs: Sequence[TraceJob],
        world: World,
        config: DriverConfig | None = None,
        on_outcome: Callable[[Outcome, float], None] | None = None,
    ) -> None:
        self.core = core
        self.world = world
        self.config = config or DriverConfig()
        self.ledger = Ledger()
        self.now_s = jobs[0].submit_s if jobs else 0.0
        self._jobs = jobs
        self._by_id = {job.id: job for job in jobs}
        self._next = 0
        self._heap: list[tuple[float, int, Callback]] = []
        self._serial = 0
        self._events: list[Event] = []
        self._processes: dict[JobId, Process] = {}
        self._saved_steps: dict[JobId, float] = {}
        self._gpu_s: dict[JobId, float] = {}
        self._gpus: dict[GpuId, _Gpu] = {}
        self._active = 0
        self._utilized = 0.0
        self._on_outcome = on_outcome
        self._wake_s = inf

    @property
    def submitted(self) -> int:
        """Jobs handed to the core so far."""
        return self._next

    def run(self, until_s: float = inf) -> Ledger:
        """Run until nothing is left to happen."""
        while (at_s := self._next_time()) < until_s:
            self.now_s = at_s
            self._collect()
            self._step()
        return self.ledger

    # -- time

    def _next_time(self) -> float:
        arrival = self._jobs[self._next].submit_s if self._next < len(self._jobs) else inf
        due = self._heap[0][0] if self._heap else inf
        return min(arrival, due, self._wake_s)

    def _at(self, at_s: float, callback: Callback) -> int:
        self._serial += 1
        heappush(self._heap, (at_s, self._serial, callback))
        return self._serial

    def _collect(self) -> None:
        """Everything that happens at this moment becomes events."""
        now_s = self.now_s
        jobs, index = self._jobs, self._next
        while index < len(jobs) and jobs[index].submit_s <= now_s:
            self._events.append(Submitted(jobs[index].id, jobs[index].spec))
            index += 1
        self._next = index
        while self._heap and self._heap[0][0] <= now_s:
            heappop(self._heap)[2](now_s)

    def _step(self) -> None:
        """Feed the core until it has nothing more to say about this moment."""
        while True:
            events, self._events = self._events, []
            outcome = self.core.step(events, self.now_s)
            self.ledger.events += len(events)
            self.ledger.steps += 1
            self._carry_out(outcome)
            if not self._events:
                break
        self._wake_s = inf if outcome.wake_s is None else outcome.wake_s
        waiting = sum(queue.count for queue in self.core.state.queues.values())
        self.ledger.curve.add(self.now_s, self._active, self._utilized, waiting, len(self._processes))

    # -- carrying out

    def _carry_out(self, outcome: Outcome) -> None:
        self.ledger.decisions += len(outcome.decisions)
        if self._on_outcome is not None:
            self._on_outcome(outcome, self.now_s)
        touched: dict[GpuId, None] = {}
        for job in outcome.jobs:
            if job.state is JobState.ASSIGNED:
                touched.update(dict.fromkeys(self._start(job)))
            elif job.state is JobState.STOPPING:
                self._stop(job)
            elif job.state is JobState.QUEUED or job.has_ended:
                touched.update(dict.fromkeys(self._leave(job)))
        self._change_company(touched)

    def _start(self, job: Job) -> tuple[GpuId, ...]:
        if job.id in self._processes or job.placement is None:
            return ()
        traced, gpus = self._by_id[job.id], job.placement.gpus
        work = self.world.work_steps(traced)
        process = Process(
            job=traced,
            attempt=job.attempt,
            gpus=gpus,
            gpu_type=self.core.state.gpus[gpus[0]].gpu.type,
            work_steps=work,
            left_steps=work - self._saved_steps.get(job.id, 0.0),
            start_s=self.now_s,
            since_s=self.now_s,
        )
        self._processes[job.id] = process
        for gpu in gpus:
            self._gpus.setdefault(gpu, _Gpu()).processes[job.id] = process
        self._events.append(Launched(job.id, job.attempt, 0, self.now_s))
        launch_s = self.config.launch_s + (self.config.restart_s if job.attempt > 1 else 0.0)
        if launch_s > 0:
            self._at(self.now_s + launch_s, lambda _: self._begin(process))
        else:
            process.stepping = True
        return gpus

    def _begin(self, process: Process) -> None:
        if self._processes.get(process.job.id) is process:
            process.stepping = True
            self._change_company(dict.fromkeys(process.gpus))

    def _stop(self, job: Job) -> None:
        process = self._processes.get(job.id)
        if process is not None and process.token >= 0:
            process.token = -1
            self._at(self.now_s + self.config.stop_s, lambda _: self._end(process, "signalled", STOPPED))

    def _end(self, process: Process, outcome: str, how: Exit) -> None:
        """Its process is gone: tell the core."""
        if self._processes.get(process.job.id) is not process:
            return
        process.settle(self.now_s)
        progress = self._sample(process) if self.world.counts_steps else None
        if progress is not None:
            self._report_company(process)
        self._events.append(Ended(process.job.id, process.attempt, outcome, how, process.start_s, self.now_s, progress))

    def _leave(self, job: Job) -> tuple[GpuId, ...]:
        process = self._processes.pop(job.id, None)
        if process is None:
            if job.has_ended:
                self._record(job)
            return ()
        for gpu in process.gpus:
            del self._gpus[gpu].processes[job.id]
        self._gpu_s[job.id] = self._gpu_s.get(job.id, 0.0) + len(process.gpus) * (self.now_s - process.start_s)
        if job.has_ended:
            self._record(job)
        elif self.config.checkpoints:
            self._saved_steps[job.id] = process.done_steps
        return process.gpus

    def _record(self, job: Job) -> None:
        self._saved_steps.pop(job.id, None)
        gpu_s = self._gpu_s.pop(job.id, 0.0)
        if self.config.keep_rows:
            self.ledger.rows.append(JobRow(job, gpu_s, self._alone_s(job)))

    def _alone_s(self, job: Job) -> float:
        traced = self._by_id[job.id]
        if job.placement is None or job.placement.gpus[0] not in self.core.state.gpus:
            return traced.duration_s if traced.duration_s is not None else inf
        gpu_type = self.core.state.gpus[job.placement.gpus[0]].gpu.type
        return self.world.work_steps(traced) / self.world.alone_steps_per_s(traced, gpu_type)

    # -- speed

    def _change_company(self, touched: Iterable[GpuId]) -> None:
        """Company on these GPUs changed: settle, find new speeds, and move the completions."""
        concerned: dict[JobId, Process] = {}
        for gpu in touched:
            concerned.update(self._gpus[gpu].processes)
            self._use(gpu)
        for process in concerned.values():
            process.settle(self.now_s)
            process.steps_per_s = self._speed(process)
            self._schedule_end(process)
        if self.world.counts_steps:
            for gpu in touched:
                self._watch(gpu)

    def _speed(self, process: Process) -> float:
        if not process.stepping:
            return 0.0
        if len(process.gpus) > 1:
            return self.world.alone_steps_per_s(process.job, process.gpu_type)
        company = [p for p in self._gpus[process.gpus[0]].processes.values() if p.stepping]
        if len(company) == 1:
            return self.world.alone_steps_per_s(process.job, process.gpu_type)
        speeds = self.world.shared_steps_per_s([p.job for p in company], process.gpu_type)
        return speeds[company.index(process)]

    def _schedule_end(self, process: Process) -> None:
        if process.token < 0:
            return
        if process.steps_per_s <= 0:
            process.token = 0
            return
        due_s = self.now_s + process.left_steps / process.steps_per_s
        process.token = self._serial + 1
        token = process.token
        self._at(due_s, lambda _: self._complete(process, token))

    def _complete(self, process: Process, token: int) -> None:
        if process.token == token and self._processes.get(process.job.id) is process:
            process.settle(self.now_s)
            process.left_steps = 0.0
            self._end(process, "exited", DONE)

    def _use(self, gpu: GpuId) -> None:
        """GPUs in use: what each process keeps busy, by its speed against its speed alone; all of it if not known."""
        state = self._gpus[gpu]
        state.epoch += 1
        before, state.utilized = state.utilized, self._use_of([p for p in state.processes.values() if p.stepping])
        self._utilized += state.utilized - before
        was_active, state.active = state.active, bool(state.processes)
        self._active += state.active - was_active

    def _use_of(self, processes: list[Process]) -> float:
        use = 0.0
        for process in processes:
            ratio = self.world.occupancy_ratio(process.job, process.gpu_type)
            if ratio is None:
                return 1.0
            alone = self.world.alone_steps_per_s(process.job, process.gpu_type)
            use += ratio * self._speed(process) / alone
        return min(1.0, use)

    # -- what agents would see

    def _watch(self, gpu: GpuId) -> None:
        """Sample a new company when each of its jobs has made a step, and when enough to learn from."""
        company = [p for p in self._gpus[gpu].processes.values() if p.stepping and len(p.gpus) == 1]
        if not company:
            return
        epoch = self._gpus[gpu].epoch
        slowest_s = max(1 / p.steps_per_s for p in company)
        for steps in (1, SAMPLE_STEPS):
            self._at(self.now_s + steps * slowest_s, lambda _: self._sample_company(gpu, epoch))

    def _sample_company(self, gpu: GpuId, epoch: int) -> None:
        if self._gpus[gpu].epoch == epoch:
            for process in list(self._gpus[gpu].processes.values()):
                self._report(process)

    def _report_company(self, leaving: Process) -> None:
        for gpu in leaving.gpus if len(leaving.gpus) == 1 else ():
            for process in self._gpus[gpu].processes.values():
                if process is not leaving:
                    self._report(process)

    def _report(self, process: Process) -> None:
        if process.stepping and process.token >= 0:
            process.settle(self.now_s)
            self._events.append(Progressed(process.job.id, process.attempt, self._sample(process)))

    def _sample(self, process: Process) -> Progress:
        """Whole steps made, and when the last one ended."""
        done = process.done_steps + EPSILON_STEPS
        whole = int(done)
        last_s = self.now_s - (done - whole) / process.steps_per_s if process.steps_per_s > 0 else self.now_s
        if process.first_step_s is None and process.stepping:
            process.first_step_s = last_s
        memory = self.world.memory(process.job, process.gpu_type)
        ratio = self.world.occupancy_ratio(process.job, process.gpu_type)
        return Progress(
            at_s=self.now_s,
            steps=whole,
            first_step_s=process.first_step_s,
            last_step_s=last_s if whole else None,
            persistent_bytes=memory.persistent_bytes if memory else None,
            peak_bytes=sum(memory) if memory else None,
            occupancy_ratio=ratio,
            occupancy_by="world",
        )

"""Virtual time: an agenda, the core, and a world that moves the jobs the core has started.

There is no scheduling here. The driver submits what the workload says, starts what the core assigns, reports steps
and ends as agents would, and recomputes speeds only where company changed; completions are rescheduled, not polled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import Protocol

from colane.core import Core
from colane.core.events import Ended, Event, Launched, Outcome, Progressed, Submitted, Tick
from colane.model.hardware import GpuId
from colane.model.job import Exit, Job, JobId, JobState
from colane.policies.blocks.lanes import turns_of
from colane.simulate.agenda import Agenda
from colane.simulate.config import DriverConfig
from colane.simulate.lanes import LaneTurns, are_mates
from colane.simulate.ledger import Ledger
from colane.simulate.meter import Meter
from colane.simulate.process import Process, first_lane
from colane.simulate.sampling import SAMPLE_AFTER_STEPS, Sampler
from colane.simulate.timing import TimedPolicy
from colane.simulate.world import Running, Scope, World
from colane.traces.workload import TraceJob

DONE = Exit(0, None)
STOPPED = Exit(None, 15)
OUT_OF_MEMORY = Exit(1, None, "the world's table says these jobs do not fit together")
STOP_CHECKED_EVERY = 256
"""Somebody's wish to stop, and the progress shown, are looked at every so many moments."""


class Watcher(Protocol):
    """Somebody who looks on."""

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """The core has answered."""

    def started(self, process: Process, company: Sequence[Running]) -> None:
        """A process starts beside these others."""


class Driver:
    """Runs a workload through a core.

    Args:
        core: With its nodes registered.
        jobs: By submission, ids ascending.
        world: The truth.
        config: Costs besides steps.
        watchers: Look on.
    """

    def __init__(
        self,
        core: Core,
        jobs: Sequence[TraceJob],
        world: World,
        config: DriverConfig | None = None,
        watchers: Iterable[Watcher] = (),
    ) -> None:
        self.core = core
        self.world = world
        self.config = config or DriverConfig()
        self.ledger = Ledger()
        self.now_s = jobs[0].submit_s if jobs else 0.0
        self.submitted = 0
        self.ended = 0
        self.on_progress: Callable[[Driver], None] | None = None
        self.is_stopped = False
        self._lanes = LaneTurns(turns_of(core.policy), self.config.switch_s, world)
        self._awaits_steps = not core.config.runs_at_once
        core.policy = TimedPolicy(core.policy, self.ledger)
        self._jobs = jobs
        self._by_id = {job.id: job for job in jobs}
        self._agenda = Agenda()
        self._meter = Meter(node.node for node in core.state.nodes.values())
        self._sampler = Sampler(world, core.state.beliefs)
        self._events: list[Event] = []
        self._processes: dict[JobId, Process] = {}
        self._on_node: dict[str, dict[JobId, Process]] = {}
        self._saved_steps: dict[JobId, float] = {}
        self._gpu_s: dict[JobId, float] = {}
        self._watchers = tuple(watchers)
        self._wake_s = inf

    @property
    def jobs(self) -> int:
        """Jobs of the workload."""
        return len(self._jobs)

    def run(self) -> Ledger:
        """Run until every job has ended, nothing more can happen, or somebody stops it."""
        if self.config.tick_s is not None and self._jobs:
            self._agenda.at(self.now_s + self.config.tick_s, self._tick, None)
        ledger, total = self.ledger, len(self._jobs)
        while self.ended < total and (at_s := self._next_time()) < inf:
            self.now_s = at_s
            self._moment()
            if ledger.moments % STOP_CHECKED_EVERY == 0 and self._should_stop():
                ledger.interrupted = True
                break
        self._record_living()
        return ledger

    def watch(self, *watchers: Watcher) -> None:
        """Let these look on."""
        self._watchers += watchers

    def stop(self) -> None:
        """Stop soon; what was simulated so far stays valid."""
        self.is_stopped = True

    # -- time

    def _should_stop(self) -> bool:
        if self.on_progress is not None:
            self.on_progress(self)
        return self.is_stopped

    def _next_time(self) -> float:
        arrival = self._jobs[self.submitted].submit_s if self.submitted < len(self._jobs) else inf
        return min(arrival, self._agenda.next_s, self._wake_s)

    def _moment(self) -> None:
        """Everything that happens now becomes events; the core is fed until it has nothing more to say."""
        now_s, ledger = self.now_s, self.ledger
        self._submit_due(now_s)
        self._agenda.run_due(now_s)
        while True:
            events, self._events = self._events, []
            outcome = self.core.step(events, now_s)
            ledger.events += len(events)
            self._carry_out(outcome)
            if not self._events:
                break
        self._wake_s = inf if outcome.wake_s is None else outcome.wake_s
        ledger.moments += 1
        self._meter.record(ledger.curve, now_s, len(self._processes))

    def _submit_due(self, now_s: float) -> None:
        jobs, index, events = self._jobs, self.submitted, self._events
        while index < len(jobs) and jobs[index].submit_s <= now_s:
            job = jobs[index]
            events.append(Submitted(job.id, job.spec))
            self._meter.queue(job.spec.pool, 1)
            index += 1
        self.submitted = index

    def _tick(self, _who: None, _serial: int) -> None:
        self._events.append(Tick())
        if self.config.tick_s is not None:
            self._agenda.at(self.now_s + self.config.tick_s, self._tick, None)

    # -- carrying out

    def _carry_out(self, outcome: Outcome) -> None:
        self.ledger.decisions += len(outcome.decisions)
        if not outcome.jobs and not self._watchers and outcome.rejected is None:
            return
        if outcome.rejected is not None:
            self.ledger.flaws.append(f"{self.now_s:g} s: " + "; ".join(str(flaw) for flaw in outcome.rejected.flaws))
        touched: dict[GpuId, None] = {}
        started: list[Process] = []
        for job in outcome.jobs:
            self._follow(job, touched)
        for job in outcome.jobs:
            if job.placement is not None and job.id not in self._processes and not job.has_ended:
                started.append(self._start(job))
                touched.update(dict.fromkeys(started[-1].running.gpus))
        if touched:
            self._change_company(touched)
        for watcher in self._watchers:
            for process in started:
                others = self._others(process, stepping=False)
                watcher.started(process, [other.running for other in others if not are_mates(process, other)])
            watcher.outcome(outcome, self.now_s)

    def _follow(self, job: Job, touched: dict[GpuId, None]) -> None:
        """Take a job off its GPUs, or begin to, where its new value says so."""
        process = last = self._processes.get(job.id)
        if process is not None and (job.placement is None or job.attempt != process.attempt or job.has_ended):
            touched.update(dict.fromkeys(process.running.gpus))
            self._leave(process, job)
            process = None
        if job.has_ended:
            self._record(job, last)
        elif job.state is JobState.STOPPING and process is not None and not process.is_stopping:
            self._stop(process)
            touched.update(dict.fromkeys(process.running.gpus))
        elif process is not None and process.lane != first_lane(job):
            self._change_lane(process, first_lane(job))
            touched.update(dict.fromkeys(process.running.gpus))

    def _change_lane(self, process: Process, lane: int) -> None:
        process.settle(self.now_s)
        process.lane = lane
        self._lanes.moved(process, self._meter.gpus[process.running.gpus[0]].processes.values())

    def _start(self, job: Job) -> Process:
        traced = self._by_id[job.id]
        running, saved_steps = self._where(job, traced), self._saved_steps.get(job.id, 0.0)
        process = Process(job, running, self.world.work_steps(traced), saved_steps, self.now_s)
        process.alone_steps_per_s = self.world.steps_per_s(running, ())
        process.occupancy_ratio = self.world.occupancy_ratio(traced, running.gpu_type)
        self._processes[job.id] = process
        for gpu in process.running.gpus:
            self._meter.use(gpu).processes[job.id] = process
        self._lanes.enter(process, self._meter.gpus[process.running.gpus[0]].processes.values())
        if self.world.scope is Scope.NODE:
            self._on_node.setdefault(process.running.gpus[0].node, {})[job.id] = process
        self._meter.queue(job.spec.pool, -1)
        if job.state is JobState.ASSIGNED:
            self._events.append(Launched(job.id, job.attempt, 0, self.now_s))
        launch_s = (
            self.world.startup_s(traced) + self.config.launch_s + (self.config.restart_s if job.attempt > 1 else 0.0)
        )
        if launch_s <= 0:
            process.is_stepping = True
        elif running.loads_on_device:
            process.is_loading, process.loading_left_s = True, launch_s
        else:
            self._agenda.at(self.now_s + launch_s, self._begin, process)
        if job.state is JobState.STOPPING:
            self._stop(process)
        return process

    def _where(self, job: Job, traced: TraceJob) -> Running:
        if job.placement is None:
            raise AssertionError(f"job {job.id} is {job.state} without a placement")
        gpus = job.placement.gpus
        loads = self.core.state.gpus
        if len(gpus) == 1:
            gpu = loads[gpus[0]].gpu
            return Running(traced, gpu.type, gpus, (gpu.socket,), gpu.sharing)
        sockets = tuple(sorted({loads[gpu].gpu.socket for gpu in gpus}))
        first = loads[gpus[0]].gpu
        return Running(traced, first.type, gpus, sockets, first.sharing)

    def _begin(self, process: Process, _serial: int) -> None:
        """It has launched and steps from now on."""
        if self._processes.get(process.id) is process and not process.is_stopping:
            process.is_stepping = True
            self._change_company(dict.fromkeys(process.running.gpus))

    def _loaded(self, process: Process, serial: int) -> None:
        if process.serial == serial and process.is_loading:
            process.settle(self.now_s)
            process.is_loading, process.serial = False, 0
            self._begin(process, serial)

    def _stop(self, process: Process) -> None:
        """It was asked to stop: it steps no more and saves its state."""
        process.settle(self.now_s)
        process.is_stopping, process.is_stepping, process.is_loading = True, False, False
        self._agenda.at(self.now_s + self.config.stop_s, self._stopped, process)

    def _stopped(self, process: Process, _serial: int) -> None:
        self._end(process, "signalled", STOPPED)

    def _end(self, process: Process, outcome: str, how: Exit) -> None:
        """Its process is gone: tell the core."""
        if self._processes.get(process.id) is not process:
            return
        process.settle(self.now_s)
        progress = None
        if self.world.counts_steps:
            others = self._others(process, stepping=True)
            if others or process.is_sampled:
                progress = self._sampler.sample(process, self.now_s)
            self._report(others)
        start_s, now_s = process.start_s, self.now_s
        self._events.append(Ended(process.id, process.attempt, outcome, how, start_s, now_s, progress))

    def _leave(self, process: Process, job: Job) -> None:
        """It has left its GPUs, for another attempt or for good."""
        process.settle(self.now_s)
        gpus = process.running.gpus
        del self._processes[process.id]
        for gpu in gpus:
            del self._meter.gpus[gpu].processes[process.id]
        if self._on_node:
            del self._on_node[gpus[0].node][process.id]
        self.ledger.stay(process.id, gpus, process.start_s, self.now_s)
        self._gpu_s[process.id] = self._gpu_s.get(process.id, 0.0) + process.gpu_s
        self.ledger.pause(process.id, process.paused_s)
        if not job.has_ended:
            self._meter.queue(job.spec.pool, 1)
            self._saved_steps[process.id] = self._kept_steps(process)

    def _kept_steps(self, process: Process) -> float:
        if not self.config.checkpoints:
            return 0.0
        return self._sampler.whole_steps(process) if self.world.counts_steps else process.done_steps

    def _record(self, job: Job, last: Process | None) -> None:
        self.ended += 1
        self._saved_steps.pop(job.id, None)
        if job.placement is None:
            self._meter.queue(job.spec.pool, -1)
        alone_s = self._alone_s(job) if last is None else _alone_s(last.work_steps, last.alone_steps_per_s)
        self.ledger.rows.add(job, self._gpu_s.pop(job.id, 0.0), alone_s)

    def _record_living(self) -> None:
        """Jobs that have not ended when the run stops, as they stand."""
        for process in self._processes.values():
            process.settle(self.now_s)
            self.ledger.stay(process.id, process.running.gpus, process.start_s, self.now_s)
            self._gpu_s[process.id] = self._gpu_s.get(process.id, 0.0) + process.gpu_s
            self.ledger.pause(process.id, process.paused_s)
        for job in sorted(self.core.state.jobs.values(), key=lambda job: job.id):
            self.ledger.rows.add(job, self._gpu_s.get(job.id, 0.0), self._alone_s(job))

    def _alone_s(self, job: Job) -> float:
        traced = self._by_id[job.id]
        if job.placement is None:
            return traced.duration_s if traced.duration_s is not None else float("nan")
        return _alone_s(self.world.work_steps(traced), self.world.steps_per_s(self._where(job, traced), ()))

    # -- speed

    def _change_company(self, touched: dict[GpuId, None]) -> None:
        """Company on these GPUs changed: settle, find new speeds, and move the completions."""
        concerned: dict[JobId, Process] = {}
        for gpu in touched:
            concerned.update(self._meter.gpus[gpu].processes)
            if self._on_node:
                concerned.update(self._on_node.get(gpu.node, {}))
        if self._lanes.is_used:
            for process in concerned.values():
                process.settle(self.now_s)
            self._lanes.divide(concerned.values())
        for process in concerned.values():
            process.settle(self.now_s)
            process.gpu_share = self._share(process)
            if process.is_loading:
                self._set_loading(process)
            else:
                self._set_speed(process)
            touched.update(dict.fromkeys(process.running.gpus))
        for gpu in touched:
            self._meter.refresh(gpu)
        if self.world.counts_steps:
            self._watch(concerned.values())

    def _share(self, process: Process) -> float:
        """GPUs it is given: of one that carries k jobs each is given 1/k; of k lanes its share of its lane / k."""
        gpus, uses = process.running.gpus, self._meter.gpus
        if len(gpus) == 1:
            if self._lanes.is_used:
                return process.lane_part
            return 1.0 / len(uses[gpus[0]].processes)
        return sum(1.0 / len(uses[gpu].processes) for gpu in gpus)

    def _set_loading(self, process: Process) -> None:
        """Loading is slowed by company as steps are; what does not fit is found out at the first step."""
        before, beside = process.loading_ratio, self._speed_beside(process)
        process.loading_ratio = beside / process.alone_steps_per_s if beside > 0 else 1.0
        if not process.serial or process.loading_ratio != before:
            due_s = self.now_s + process.loading_left_s / process.loading_ratio
            process.serial = self._agenda.at(due_s, self._loaded, process)

    def _set_speed(self, process: Process) -> None:
        before = process.steps_per_s
        process.steps_per_s = self._speed(process)
        if process.is_stopping or (process.serial and process.steps_per_s == before):
            return
        if process.steps_per_s > 0:
            due_s = self.now_s + process.left_steps / process.steps_per_s
            process.serial = self._agenda.at(due_s, self._complete, process)
        elif process.is_stepping and process.lane_share > 0:
            process.serial = self._agenda.at(self.now_s, self._does_not_fit, process)
        else:
            process.serial = 0

    def _speed(self, process: Process) -> float:
        return self._speed_beside(process) if process.is_stepping else 0.0

    def _speed_beside(self, process: Process) -> float:
        others = self._others(process, stepping=True)
        if self._lanes.is_used:
            return self._lanes.speed(process, others)
        if not others:
            return process.alone_steps_per_s
        return self.world.steps_per_s(process.running, [other.running for other in others])

    def _others(self, process: Process, *, stepping: bool) -> list[Process]:
        """Who is in this world's scope with it, in order of start."""
        found: dict[JobId, Process] = {}
        uses = self._meter.gpus
        for gpu in process.running.gpus:
            processes = uses[gpu].processes
            if len(processes) > 1 or process.id not in processes:
                found.update(processes)
        if self._on_node:
            found.update(self._on_node.get(process.running.gpus[0].node, {}))
        if not found:
            return []
        return [other for other in found.values() if other is not process and (other.is_busy or not stepping)]

    def _complete(self, process: Process, serial: int) -> None:
        if process.serial == serial and not process.is_stopping:
            process.settle(self.now_s)
            process.left_steps = 0.0
            self._end(process, "exited", DONE)

    def _does_not_fit(self, process: Process, serial: int) -> None:
        """In life the youngest of a company that does not fit would find no memory."""
        if process.serial != serial or self._processes.get(process.id) is not process or process.steps_per_s > 0:
            return
        company = [process, *self._others(process, stepping=True)]
        youngest = max(company, key=lambda one: (one.start_s, one.id))
        self._end(youngest, "out-of-memory", OUT_OF_MEMORY)

    # -- what agents would see

    def _watch(self, concerned: Iterable[Process]) -> None:
        """Sample every new company when each of its jobs has made a step, and when enough to learn from."""
        for gpu in dict.fromkeys(process.running.gpus[0] for process in concerned):
            use = self._meter.gpus[gpu]
            company = use.processes.values()
            for after_s in self._sampler.waits_s(company, self._after_steps(company)):
                self._agenda.at(self.now_s + after_s, self._sample_company, gpu, use.epoch)

    def _after_steps(self, company: Collection[Process]) -> tuple[int, ...]:
        """After which steps to sample a company: where nothing can be learnt, its first if anybody waits for it."""
        is_sampled = len(company) > 1 or any(map(self._sampler.teaches, company))
        for process in company:
            process.is_sampled = is_sampled
        if is_sampled:
            return SAMPLE_AFTER_STEPS
        jobs = self.core.state.jobs
        is_awaited = self._awaits_steps and any(jobs[process.id].first_step_s is None for process in company)
        return SAMPLE_AFTER_STEPS[:1] if is_awaited else ()

    def _sample_company(self, gpu: GpuId, epoch: int) -> None:
        use = self._meter.gpus[gpu]
        if use.epoch == epoch:
            self._report(use.processes.values())

    def _report(self, processes: Iterable[Process]) -> None:
        for process in processes:
            if process.is_stepping:
                process.settle(self.now_s)
                progress = self._sampler.sample(process, self.now_s)
                self._events.append(Progressed(process.id, process.attempt, progress))


def _alone_s(work_steps: float, steps_per_s: float) -> float:
    return work_steps / steps_per_s if steps_per_s > 0 else inf

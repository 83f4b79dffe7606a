"""Virtual time: an agenda, the core, and a world that moves the jobs the core has started.

There is no scheduling here. The driver submits what the workload says, starts what the core assigns, reports steps
and ends as agents would, and recomputes speeds only where co-runners changed; completions are rescheduled, not polled.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter

from colane.core import Core
from colane.core.cluster.to_host import bytes_to_move
from colane.core.cluster.view import ClusterView
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    Launched,
    LimitsChanged,
    Outcome,
    Progressed,
    Submitted,
    Tick,
)
from colane.core.policy import Planner, Policy
from colane.lab.simulate.accounts import JobAccounts, SavedSteps
from colane.lab.simulate.agenda import Agenda
from colane.lab.simulate.bandwidth import NodeBandwidth
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.gangs import GangWorld
from colane.lab.simulate.lanes import LaneTurns, are_lane_mates
from colane.lab.simulate.ledger import Ledger
from colane.lab.simulate.meter import Meter
from colane.lab.simulate.node_events import NodeChanges
from colane.lab.simulate.pacing import DueHandlers, ProcessSpeeds
from colane.lab.simulate.process import GpuUse, Process, lanes_of
from colane.lab.simulate.sampling import CoRunnerSampling, Sampler
from colane.lab.simulate.shared_cores import CoreNeeds, SharedCores
from colane.lab.simulate.watcher import Watcher
from colane.lab.simulate.whereabouts import Whereabouts
from colane.lab.simulate.world import Startup, World
from colane.lab.traces.workload import TraceJob, conditions_of
from colane.model.job import ENDED, Exit, Job, JobId, JobState
from colane.model.job_spec import NewLimit
from colane.model.phases import Dependency, DependsOn, Hold, HoldKind
from colane.model.plan import ACTION_NAMES, Plan
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.scheduling.mechanisms.deadlines.seats import Allowed, ComingPromise, NoPromise, promise


@dataclass(slots=True, eq=False)
class ParkedProcesses:
    """Processes off their GPUs, until they come back or are stopped."""

    _core: Core  # knows what is believed of their memory
    _config: DriverConfig  # what moving memory costs on each node
    away: dict[JobId, Process] = field(default_factory=dict)  # they

    def bytes_of(self, job: Job) -> int:
        """Memory it has on its GPU, as it is believed: the truth has none of its own."""
        return bytes_to_move(self._core.state, job)

    def move_s(self, process: Process, size_bytes: int) -> float:
        """How long moving so much memory off its GPUs or back onto them takes."""
        return self._config.of(process.running).move_s(size_bytes)

    def put(self, process: Process) -> None:
        """It is off its GPUs."""
        self.away[process.id] = process

    def take(self, job: JobId) -> Process:
        """It comes back, or is to end: the process as it was."""
        return self.away.pop(job)


class TimedAsking:
    """Asks planners, and notes how long the policy takes; it replaces none."""

    def __init__(self, policy: Policy, plan_s: array[float]) -> None:
        self._policy = policy
        self._plan_s = plan_s

    def __call__(self, planner: Planner, view: ClusterView) -> Plan:
        """What the planner says."""
        if planner is not self._policy:
            return planner.plan(view)
        start_s = perf_counter()
        plan = planner.plan(view)
        self._plan_s.append(perf_counter() - start_s)
        return plan


DONE = Exit(0, None)
STOPPED = Exit(None, 15)
FAILED = Exit(1, None, "as it was recorded")
OUT_OF_MEMORY = Exit(1, None, "the world's table says these jobs do not fit together")
OUTCOMES_MAX = 1000
"""So many outcomes at one instant, and as many more as there are live jobs, without one that came or ended: no end."""
STARTS_IN_VAIN_MAX = 1000
"""So many starts of one job, one after another, of which none is further than the one before: no end."""
STOP_CHECKED_EVERY = 256
"""A request to stop, and the progress shown, are looked at every so many moments."""


class StandstillError(Exception):
    """It comes to no end: at one instant the core wants to be asked again and again, or a job is started in vain."""


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
        self.world = GangWorld(world) if any(job.spec.multi_node for job in jobs) else world
        self._counts_steps = world.counts_steps
        self.config = config or DriverConfig()
        self.ledger = Ledger()
        self.now_s = jobs[0].submit_s if jobs else 0.0
        self.submitted = 0
        self.ended = 0
        self.on_progress: Callable[[Driver], None] | None = None
        self.on_settled: Callable[[float], None] | None = None
        self.is_stopped = False
        core.ask = TimedAsking(core.policy, self.ledger.plan_s)
        self.total, self._jobs = len(jobs), jobs
        self._by_id = {job.id: job for job in jobs}
        is_ordered = any(job.after for job in jobs)
        self._ids = {job.spec.name: job.id for job in jobs} if is_ordered else {}
        self._agenda = Agenda()
        self._meter = Meter(node.node for node in core.state.nodes.values())
        self._nodes = NodeChanges(core, self._agenda, self._meter)
        self._nodes.enter(self.config.node_events)
        lanes = LaneTurns(core.policy.turns, self.config, self.world)
        bandwidth = self.config.bandwidth
        self._bandwidth = (
            None if bandwidth is None else NodeBandwidth(bandwidth, core.state, core.config.contention, self._agenda)
        )
        self._cores = (
            SharedCores(world, core.state)
            if isinstance(world, CoreNeeds)
            and any(job.spec.gpus and not job.spec.cores and world.cores_of_use(job) is not None for job in jobs)
            else None
        )
        self._here = Whereabouts(self.world, self._meter, lanes, self._bandwidth, self._cores)
        due = DueHandlers(self._complete, self._loaded, self._does_not_fit)
        self._speeds = ProcessSpeeds(self._here, self._agenda, due)
        self._sampler = Sampler(self.world, core.state.beliefs)
        self._sampling = CoRunnerSampling(core, self._sampler)
        self._accounts = JobAccounts(self.ledger, core, self.world, self._by_id)
        self._events: list[Event] = []
        self._saved = SavedSteps(self._sampler if self._counts_steps else None, self._accounts, self._nodes.lost_s)
        self._parked = ParkedProcesses(core, self.config)
        self._watchers = tuple(watchers)
        self._wake_s = inf
        self._instant = (-inf, 0, 0)
        self._outcomes = 0
        self._begun: dict[JobId, tuple[float, int]] = {}
        self._failures: dict[JobId, int] = {}
        if self.config.tick_s is not None and jobs:
            self._agenda.at(self.now_s + self.config.tick_s, self._tick, None)

    def run(self, until_s: float = inf, on_cut: Callable[[], None] | None = None) -> Ledger:
        """Run until every job has ended, nothing more can happen, or it is told to stop.

        Args:
            until_s: What comes later than this is left.
            on_cut: Called where something is left for that: whoever keeps the driver then can go on from there.
        """
        ledger = self.ledger
        while self.ended < self.total and (at_s := self._next_time()) < inf:
            if at_s > until_s:
                if on_cut is not None:
                    on_cut()
                ledger.interrupted = ledger.is_cut = True
                break
            if at_s > self.now_s and self.on_settled is not None:
                self.on_settled(self.now_s)
            self.now_s = at_s
            self._moment()
            if ledger.moments % STOP_CHECKED_EVERY == 0:
                if self.on_progress is not None:
                    self.on_progress(self)
                if self.is_stopped:
                    ledger.interrupted = True
                    break
        self._accounts.record_living(self._here.processes.values(), self.now_s)
        return ledger

    def watch(self, *watchers: Watcher, alone: bool = False) -> None:
        """Let these look on, too, or they alone."""
        self._watchers = watchers if alone else self._watchers + watchers

    def rule(self, policy: Policy) -> None:
        """Go on under another policy."""
        self.core.rule(policy)
        self.core.ask = TimedAsking(policy, self.ledger.plan_s)
        self._here.lanes.rule(policy.turns)

    def take_over(self, now_s: float, done: Mapping[JobId, float]) -> None:
        """Go on with the jobs that the core has: of each a part is done, or the steps that it told of."""
        self.now_s = self._wake_s = now_s
        self.submitted = len(self._jobs)
        touched: dict[GpuUse, None] = {}
        for job in list(self.core.state.jobs.values()):
            work_steps, told = self.world.work_steps(self._by_id[job.id]), self.core.state.progress.get(job.id)
            steps = told.steps if told is not None and told.steps and self._counts_steps else None
            done_steps = work_steps * done[job.id] if steps is None else steps
            self._saved.put(job.id, min(float(done_steps), work_steps))
            self._meter.queue(job.spec.pool, 1, for_gpus=job.spec.gpus > 0)
            if job.placement is not None:
                self._stand(job, touched)
        self._change_co_runners(touched)

    def _stand(self, job: Job, touched: dict[GpuUse, None]) -> None:
        """A job is where the core has it: it launches, steps, is about to leave, or waits off its GPUs."""
        if job.state in {JobState.ASSIGNED, JobState.LAUNCHING}:
            self._bring(job, touched)
            return
        process = self._enter(job)
        process.has_begun, process.is_stepping = True, job.state is not JobState.PAUSED
        touched.update(dict.fromkeys(process.uses))
        if job.on_host is not None and job.has_left_gpus:
            process.out_bytes = job.on_host.size_bytes
            self._leave(process, job)
            self._parked.put(process)
        elif job.is_leaving_gpus:
            self._park(process, job)
        elif job.state is JobState.STOPPING:
            self._stop(process)
        else:
            self._speeds.pace_alone(process, self.now_s)

    def stop(self) -> None:
        """Stop soon; what was simulated so far stays valid."""
        self.is_stopped = True

    # -- time

    def _next_time(self) -> float:
        next_s = self._agenda.next_s
        if self.submitted < self.total and self._jobs[self.submitted].submit_s < next_s:
            next_s = self._jobs[self.submitted].submit_s
        return min(next_s, self._wake_s)

    def _moment(self) -> None:
        """Everything that happens now becomes events; the core is fed until it has nothing more to say."""
        now_s, ledger = self.now_s, self.ledger
        self._submit_due(now_s)
        self._agenda.run_due(now_s)
        if self._nodes.due:
            self._events += self._nodes.due
            self._nodes.due = []
        while True:
            events, self._events = self._events, []
            outcome = self.core.step(events, now_s)
            self._watch_time(outcome)
            ledger.events += len(events)
            self._carry_out(outcome)
            if not self._events:
                break
        self._wake_s = inf if outcome.wake_s is None else outcome.wake_s
        ledger.moments += 1
        self._meter.record(ledger.curve, now_s, len(self._here.processes))

    def _watch_time(self, outcome: Outcome) -> None:
        """Look whether time goes on, or at least the workload does.

        Raises:
            StandstillError: Neither does.
        """
        instant = self.now_s, self.submitted, self.ended
        self._outcomes = self._outcomes + 1 if instant == self._instant else 0
        self._instant = instant
        if self._outcomes > OUTCOMES_MAX and self._outcomes > OUTCOMES_MAX + len(self.core.state.jobs):
            raise StandstillError(self._standstill(outcome))

    def _standstill(self, outcome: Outcome) -> str:
        """What was going on."""
        told = [f"{ACTION_NAMES[type(one.action)]} job {one.action.job}" for one in outcome.decisions[:3]]
        wants = "" if outcome.wake_s is None else f"; it wants to be asked again at {outcome.wake_s!r} s"
        waiting = sum(queue.count for queue in self.core.state.queues.values())
        return (
            f"time stands still at {self.now_s!r} s under {self.core.policy.name}: {self._outcomes} outcomes, and no "
            f"job came or ended; {waiting} wait, the last outcome: {', '.join(told) or 'no decision'}{wants}"
        )

    def _submit_due(self, now_s: float) -> None:
        jobs, index, events, count = self._jobs, self.submitted, self._events, self.total
        while index < count and jobs[index].submit_s <= now_s:
            job = jobs[index]
            until_s = job.submit_s + job.held_s
            holds = (Hold(HoldKind.BEGIN, f"{until_s:g} s", until_s),) if job.held_s > 0 else ()
            held = (*holds, *self._conditions(job)) if job.after else holds
            is_due = job.spec.deadline_s is not None
            events.append(self._promised(job, held) if is_due else Submitted(job.id, job.spec, held))
            if job.changed_limit_s is not None:
                limit = NewLimit(None if job.changed_limit_s == inf else job.changed_limit_s)
                events.append(LimitsChanged(job.id, "the trace", limit))
            if job.cancelled_s is not None:
                self._agenda.at(job.submit_s + job.cancelled_s, self._give_up, job)
            self._meter.queue(job.spec.pool, 1, for_gpus=job.spec.gpus > 0)
            index += 1
        self.submitted = index

    def _promised(self, job: TraceJob, holds: tuple[Hold, ...]) -> Submitted:
        """A job with a deadline, with the GPUs by which that is kept, or refused as it is live."""
        come = [event for event in self._events if isinstance(event, Submitted)]
        coming = [ComingPromise(one.job, one.spec, one.promised) for one in come if one.promised is not None]
        view, core, is_held = ClusterView(self.core.state, self.now_s), self.core, bool(holds)
        found = promise(view, job.spec, self._allowed(), coming, core.limits, core.config.limits, is_held=is_held)
        if isinstance(found, NoPromise):
            return Submitted(job.id, job.spec, refusal=Reason(Why.DEADLINE_REFUSED, {"problem": found.problem}))
        return Submitted(job.id, job.spec, promised=found)

    def _allowed(self) -> Allowed:
        config = self.config
        stop_s = max(costs.stop_s for costs in (config, *config.of_nodes.values()))
        launch_s = config.launch_max_s
        return Allowed(stop_s=stop_s, launch_s=launch_s, settle_s=self.core.config.protection_factor * launch_s)

    def _conditions(self, job: TraceJob) -> Iterator[Hold]:
        """What keeps a job from starting until others that it waits for have ended, or have started."""
        for on, other in conditions_of(job, self._ids):
            live = self.core.state.jobs.get(other)
            has_ended = live is None and self._by_id[other].submit_s < self.now_s
            if not has_ended and not (live is not None and on is DependsOn.START and live.has_started):
                wanted = Dependency(DependsOn.START if on is DependsOn.START else DependsOn.ANY, other)
                yield Hold(HoldKind.AFTER, str(wanted), None, wanted)

    def _give_up(self, job: TraceJob, _serial: int) -> None:
        """Its owner has waited long enough, if it has not started."""
        live = self.core.state.jobs.get(job.id)
        if live is not None and not live.has_started:
            self._events.append(CancelRequested(job.id, "the trace"))

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
        touched: dict[GpuUse, None] = {}
        started = self._change_processes(outcome.jobs, touched)
        if self._bandwidth is not None or self._cores is not None:
            touched |= self._change_of_nodes()
        if touched:
            self._change_co_runners(touched)
        for watcher in self._watchers:
            for process in started:
                others = self._here.others(process, stepping=False)
                watcher.started(process, [other.running for other in others if not are_lane_mates(process, other)])
            watcher.outcome(outcome, self.now_s)

    def _change_of_nodes(self) -> dict[GpuUse, None]:
        """GPUs whose jobs have more or less of what all on a node share than before."""
        bandwidth, cores = self._bandwidth, self._cores
        touched = {} if bandwidth is None else bandwidth.touched(self._meter, self.now_s, self._measure_bandwidth)
        return touched if cores is None else touched | cores.change(self.now_s, self._speeds.pace_in_place)

    def _change_processes(self, jobs: Iterable[Job], touched: dict[GpuUse, None]) -> list[Process]:
        """Take jobs off their GPUs, then start others there; those that start."""
        processes, parked, started = self._here.processes, self._parked.away, list[Process]()
        for job in jobs:
            if job.id in processes or job.id in parked or job.state in ENDED:  # of any other there is nothing to follow
                self._follow(job, touched)
        for job in jobs:
            if job.state in ENDED or job.placement is None or job.id in processes:
                continue
            if not job.has_left_gpus:
                started.append(self._bring(job, touched))
        return started

    def _bring(self, job: Job, touched: dict[GpuUse, None]) -> Process:
        """A process of a job that has a place and none there: it starts, or comes back."""
        process = self._come_back(job) if job.id in self._parked.away else self._start(job)
        for use in process.uses:
            touched[use] = None
        return process

    def _follow(self, job: Job, touched: dict[GpuUse, None]) -> None:
        """Take a job off its GPUs, or begin to, where its new value says so."""
        process = last = self._here.processes.get(job.id)
        has_ended = job.state in ENDED
        if process is not None and (has_ended or job.placement is None or job.attempt != process.attempt):
            for use in process.uses:
                touched[use] = None
            self._leave(process, job)
            process = None
        if has_ended:
            self._record(job, last)
        elif job.id in self._parked.away and job.state is JobState.QUEUED:  # with the node on whose host it was
            self._saved.end_away(self._parked.take(job.id))
        elif job.parked or (process is not None and process.out_bytes is not None):
            self._follow_parked(job, process, touched)
        elif job.state is JobState.STOPPING and process is not None and not process.is_stopping:
            self._stop(process)
            touched.update(dict.fromkeys(process.uses))
        elif process is not None and len(process.uses) == 1 and process.lanes != lanes_of(job):
            process.settle(self.now_s)
            self._here.change_lanes(process, lanes_of(job))
            touched.update(dict.fromkeys(process.uses))
        elif process is not None and job.placement is not None and job.placement.cores_booked != process.running.cores:
            self._change_cores(process, job, touched)

    def _change_cores(self, process: Process, job: Job, touched: dict[GpuUse, None]) -> None:
        """It goes on at once with other cores, at another speed."""
        process.settle(self.now_s)
        process.running = self._accounts.where(job)
        self._here.cores_changed(process)
        self._speeds.pace_in_place(process)
        self._speeds.pace_alone(process, self.now_s)
        touched.update(dict.fromkeys(process.uses))

    def _follow_parked(self, job: Job, process: Process | None, touched: dict[GpuUse, None]) -> None:
        """Let its memory leave its GPUs, take it off them, or end it where it is to stop meanwhile."""
        if process is not None:
            touched.update(dict.fromkeys(process.uses))
        if job.state is JobState.STOPPING and job.id in self._parked.away:
            self._end_parked(job)
        elif process is None:
            return
        elif process.out_bytes is not None:  # it may be back already, and even parked again
            self._leave(process, job)
            self._parked.put(process)
        elif job.state is JobState.STOPPING and not process.is_stopping:
            self._stop(process)
        elif job.is_leaving_gpus and not process.is_parking:
            self._park(process, job)

    def _park(self, process: Process, job: Job) -> None:
        """It steps no more, and its GPUs are free once its memory has left them."""
        process.settle(self.now_s)
        process.is_parking, process.is_stepping, process.is_loading = True, False, False
        self._speeds.pace_alone(process, self.now_s)
        size_bytes = self._parked.bytes_of(job)
        self._agenda.at(self.now_s + self._parked.move_s(process, size_bytes), self._moved, process)

    def _moved(self, process: Process, _serial: int) -> None:
        job = self.core.state.jobs.get(process.id)
        if not self._here.has(process) or process.is_stopping or job is None:
            return
        counts = self._counts_steps
        sample = self._sampler.sample(process, self.now_s) if counts else Progress(at_s=self.now_s)
        process.out_bytes = self._parked.bytes_of(job)
        sample = replace(sample, on_host_bytes=process.out_bytes)
        self._events.append(Progressed(process.id, process.attempt, sample))
        if counts:
            self._events += self._sampling.reports(self._here.others(process, stepping=True), self.now_s)

    def _end_parked(self, job: Job) -> None:
        """Its process is killed where it waits, off its GPUs; what it keeps of its steps is a matter of checkpoints."""
        process = self._parked.take(job.id)
        self._saved.end_away(process)
        self._events.append(Ended(job.id, job.attempt, "signalled", STOPPED, process.start_s, self.now_s))

    def _come_back(self, job: Job) -> Process:
        """A parked job goes on where it was, when its memory is on a GPU again."""
        before = self._parked.take(job.id)
        self._saved.put(job.id, before.done_steps)
        process = self._enter(job)
        process.durable_steps = before.durable_steps
        process.first_step_s, process.has_begun = before.first_step_s, before.has_begun
        launch_s = 0.0 if before.has_begun else self._launch(process).alone_s
        move_s = self._parked.move_s(process, before.out_bytes or 0)
        self._agenda.at(self.now_s + move_s + launch_s, self._begin, process)
        if job.is_leaving_gpus:
            self._park(process, job)
        elif job.state is JobState.STOPPING:
            self._stop(process)
        return process

    def _enter(self, job: Job) -> Process:
        """Its process is on its GPUs, and does nothing yet."""
        traced = self._by_id[job.id]
        running, saved_steps = self._accounts.where(job), self._saved.of(job.id)
        self._watch_starts(job, saved_steps)
        work_steps, lanes, now_s = self.world.work_steps(traced), lanes_of(job), self.now_s
        left_steps = work_steps - saved_steps
        process = Process(
            job.id, job.attempt, lanes, running, work_steps, left_steps, saved_steps, saved_steps, now_s, now_s
        )
        self._speeds.pace_in_place(process)
        self._here.enter(process)
        self._meter.queue(job.spec.pool, -1, for_gpus=job.spec.gpus > 0)
        return process

    def _watch_starts(self, job: Job, saved_steps: float) -> None:
        """Look whether a job that is started again and again is further each time.

        Raises:
            StandstillError: It is not.
        """
        before_steps, in_vain = self._begun.get(job.id, (-1.0, 0))
        in_vain = in_vain + 1 if saved_steps <= before_steps else 0
        self._begun[job.id] = saved_steps, in_vain
        if in_vain > STARTS_IN_VAIN_MAX:
            raise StandstillError(
                f"job {job.id} ({job.spec.name}) gets nowhere under {self.core.policy.name}: by {self.now_s!r} s it "
                f"was started {in_vain} times, one after another, none of them further than the one before"
            )

    def _launch(self, process: Process) -> Startup:
        costs, startup = self.config.of(process.running), self.world.startup(process.running.job)
        more_s = costs.launch_s + (costs.restart_s if process.saved_steps > 0 else 0.0)
        return Startup(startup.alone_s + more_s, startup.work_s + more_s) if more_s else startup

    def _start(self, job: Job) -> Process:
        process = self._enter(job)
        if job.state is JobState.ASSIGNED:
            self._events.append(Launched(job.id, job.attempt, 0, self.now_s))
        launch = self._launch(process)
        if launch.alone_s <= 0:
            process.is_stepping = process.has_begun = True
            if not process.running.gpus:
                self._speeds.pace_alone(process, self.now_s)
            self._await_failure(process)
        elif process.running.loads_on_device:
            process.is_loading, process.loading_left_s = True, launch.alone_s
            process.loading_work_ratio = launch.work_s / launch.alone_s
        else:
            self._agenda.at(self.now_s + launch.alone_s, self._begin, process)
        if job.state is JobState.STOPPING:
            self._stop(process)
        return process

    def _begin(self, process: Process, _serial: int) -> None:
        """It has launched and steps from now on."""
        if self._here.has(process) and not process.is_stopping and not process.is_parking:
            process.settle(self.now_s)
            self._accounts.launched(process)
            if self.core.config.runs_at_once and not process.has_begun:
                began = Progress(at_s=self.now_s, first_step_s=self.now_s)
                self._events.append(Progressed(process.id, process.attempt, began))
            process.is_stepping = process.has_begun = True
            self._speeds.pace_alone(process, self.now_s)
            self._await_failure(process)
            self._change_co_runners(dict.fromkeys(process.uses))

    def _await_failure(self, process: Process) -> None:
        """It fails after as long as its attempt of that number did where it was recorded."""
        failed_s = self._by_id[process.id].failed_s
        if failed_s and (number := self._failures.get(process.id, 0)) < len(failed_s):
            self._agenda.at(self.now_s + failed_s[number], self._fail, process)

    def _fail(self, process: Process, _serial: int) -> None:
        if self._here.has(process) and process.is_stepping:
            self._failures[process.id] = self._failures.get(process.id, 0) + 1
            process.has_failed = True
            self._end(process, "exited", FAILED)

    def _loaded(self, process: Process, serial: int) -> None:
        if process.serial == serial and process.is_loading:
            process.settle(self.now_s)
            process.is_loading, process.serial = False, 0
            self._begin(process, serial)

    def _stop(self, process: Process) -> None:
        """It was asked to stop: it steps no more and saves its state."""
        process.settle(self.now_s)
        process.is_stopping, process.is_stepping, process.is_loading = True, False, False
        self._speeds.pace_alone(process, self.now_s)
        stop_s = self.config.of(process.running).stop_s
        self._agenda.at(self.now_s + stop_s, self._stopped, process)

    def _stopped(self, process: Process, _serial: int) -> None:
        self._end(process, "signalled", STOPPED)

    def _end(self, process: Process, outcome: str, how: Exit) -> None:
        """Its process is gone: tell the core."""
        if not self._here.has(process):
            return
        process.settle(self.now_s)
        progress = None
        if self._counts_steps:
            others = self._here.others(process, stepping=True)
            if others or process.is_sampled or how is STOPPED:
                progress = self._sampler.sample(process, self.now_s)
            self._events += self._sampling.reports(others, self.now_s)
        # Of a job over several nodes, the agent of each reports the ranks it had.
        for node in process.running.nodes if process.running.parts else ("",):
            ended = Ended(process.id, process.attempt, outcome, how, process.start_s, self.now_s, progress, node)
            self._events.append(ended)

    def _leave(self, process: Process, job: Job) -> None:
        """It has left its GPUs, for another attempt or for good."""
        process.settle(self.now_s)
        self._here.leave(process)
        self._accounts.book(process, self.now_s)
        if job.state not in ENDED:
            self._meter.queue(job.spec.pool, 1, for_gpus=job.spec.gpus > 0)
            self._saved.leave(process)

    def _record(self, job: Job, last: Process | None) -> None:
        self.ended += 1
        self._saved.forget(job.id)
        self._begun.pop(job.id, None)
        if self._failures:
            self._failures.pop(job.id, None)
        if job.placement is None:
            self._meter.queue(job.spec.pool, -1, for_gpus=job.spec.gpus > 0)
        self._accounts.record_ended(job, last)

    # -- speed

    def _change_co_runners(self, touched: dict[GpuUse, None]) -> None:
        concerned = self._speeds.change_co_runners(touched, self.now_s)
        if self._counts_steps:
            for due in self._sampling.dues(concerned.values()):
                self._agenda.at(self.now_s + due.after_s, self._sample_co_runners, due.use, due.epoch)

    def _sample_co_runners(self, use: GpuUse, epoch: int) -> None:
        self._events += self._sampling.reports_of(use, epoch, self.now_s)

    def _measure_bandwidth(self, node: str, _serial: int) -> None:
        """An interval of a node is over: its agent says which jobs make steps, and which use its memory."""
        if self._bandwidth is not None and self._bandwidth.is_there(node):
            trained = self._sampling.reports(self._bandwidth.trains(node, self._here.processes), self.now_s)
            self._events += [self._bandwidth.observed(node, self.now_s, self._measure_bandwidth), *trained]

    def _complete(self, process: Process, serial: int) -> None:
        if process.serial == serial and not process.is_stopping:
            process.settle(self.now_s)
            process.left_steps = 0.0
            self._end(process, "exited", DONE)

    def _does_not_fit(self, process: Process, serial: int) -> None:
        """In life the youngest of jobs that do not fit would find no memory."""
        if process.serial != serial or not self._here.has(process) or process.steps_per_s > 0:
            return
        youngest = max([process, *self._here.others(process, stepping=True)], key=lambda one: (one.start_s, one.id))
        self._end(youngest, "out-of-memory", OUT_OF_MEMORY)

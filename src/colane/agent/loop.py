"""The agent's loop: look, report, learn what shall run, make it so. Being woken carries no news."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from colane.agent.config import EPILOG, PROLOG, AgentConfig
from colane.agent.errors import NotLaunchableError
from colane.agent.files.jobdir import LaunchFacts, StateDir
from colane.agent.files.lease import since_boot_s
from colane.agent.gate.audit import UNCHECKED, TurnAudit
from colane.agent.gate.gate import Follow, Place
from colane.agent.gate.gate_job import gate_job
from colane.agent.gate.thread import GateThread
from colane.agent.gate.values import GateTimeouts
from colane.agent.launch import check as launch_check
from colane.agent.launch import gang
from colane.agent.launch.cage import Cages
from colane.agent.launch.faults import NodeFault
from colane.agent.launch.launcher import gate_path, plan_launch, wants_mps
from colane.agent.launch.mps import MpsManager
from colane.agent.launch.users import Account, UnknownUserError, account_for, whose_jobs
from colane.agent.link.contact import Contact
from colane.agent.link.hooks import NodeHooks
from colane.agent.link.messages import (
    Door,
    Scheduler,
    exclusive_message,
    node_object,
    report_object,
    with_sharing,
    with_turns,
)
from colane.agent.link.notice import SUSPECTED_FOR_S, NoticeWatch
from colane.agent.measuring import device_memory
from colane.agent.measuring.bandwidth import BandwidthMeter
from colane.agent.measuring.job_use import with_jobs_memory
from colane.agent.reconcile import Act, Action, AttemptPhase, Desired, DesiredJob, Key, Meeting, reconcile
from colane.agent.running.answers import SaveAnswers
from colane.agent.running.boundaries import Boundaries
from colane.agent.running.host_memory import HostMemory, Mover, with_host
from colane.agent.running.jobs import Jobs, refusal
from colane.agent.running.lost_place import OwnPlace
from colane.agent.running.move_speed import MoveSpeed
from colane.agent.running.mps_faults import MpsFaults
from colane.agent.running.placing import CorePlacer
from colane.agent.running.saving import Saver
from colane.agent.supervisor import programs
from colane.agent.supervisor.command import Command
from colane.agent.supervisor.shim import STOPPED
from colane.api.nodes import LaunchObject
from colane.api.of_record import DeviceUseObject, as_object
from colane.api.reports import ENDS_MAX, FinishedObject, JobReportObject, RegistrationObject, ReportObject
from colane.devices import Devices, OwnProcesses
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Gpu

log = logging.getLogger(__name__)

TRIM_EVERY_S = 60.0  # ended jobs are counted and dropped at most this often: it reads every one of their directories

STARTS_PER_ROUND_MAX = 16
"""The rest comes in the next round, at once: ends, limits and what the scheduler says since are served before it."""

LAST_WORDS_S = 5.0
"""When the jobs end with the agent, it waits their grace time and this long for them and for the scheduler."""

STOPS = "its agent was told to stop"
ENDS_WITH_AGENT = "its agent was told to end together with its jobs (--stop-jobs)"
UNWANTED = "its scheduler has no such attempt here any more"
NODE_FAULT = "node-fault"
NOT_HERE = "it was stopped before it was started on this node"
NO_SHARING = "MPS is used only by jobs on one GPU; job {key} on {count} GPUs runs without"
MIG = (
    "devices {gpus} are MIG instances, and CUDA shows a process one of these only: ask for one GPU, or for another type"
)

NOTHING_RAN: Final[Mapping[int, float]] = MappingProxyType({})
"""The part of the time in which kernels of each process ran."""


class Agent:
    """One node: its jobs, its devices, its word with the scheduler."""

    def __init__(
        self, config: AgentConfig, scheduler: Scheduler, devices: Devices, state: StateDir, door: Door
    ) -> None:
        self.woken = asyncio.Event()
        self.state = state
        self._fault = NodeFault(state.jobs)
        self._bounds = Boundaries()
        self.jobs = Jobs(state, self.woken.set, devices.utilization_by, self._fault.note, self._bounds)
        self._place = OwnPlace(state, self.jobs, self._refuse, config.grace_s)
        self._config = config
        self._devices = devices
        self._door = door
        self._runs_as, closed = whose_jobs(state.root)
        if closed:
            log.warning("%s", closed)
        self._ranks = programs.place(state.root) / programs.RANKS
        self._memory_problem = gang.memory_problem(devices.host)
        self._memory_note = ""
        self._has_limits = False
        self._gpus_seen = devices.observe()
        self._gpus = frozenset(gpu.index for gpu in self._gpus_seen if not gpu.is_cpu_device)
        self._mps = MpsManager(state.root / "mps")
        self._mps_faults = MpsFaults(state, self.jobs, self._mps.has_failed)
        bounds = GateTimeouts(config.yield_bound_s, config.first_step_bound_s)
        self._gate = GateThread(gate_path(config.state_dir), bounds, self._nudger(asyncio.get_running_loop()))
        self._audit = TurnAudit()
        self._busy_seen: Mapping[int, Mapping[int, float]] = {}
        self._move_speed = MoveSpeed(state.root)
        self._host = HostMemory(state.job_dir, Mover(devices, self._move_speed), self.woken.set)
        self._cages = Cages.of_machine(state.agent_id, devices.maker.files())
        self._placer = CorePlacer(state.job_dir, devices, self.jobs.place)
        self._bandwidth = BandwidthMeter(devices.host.cores, config.host_bandwidth_bytes_per_s)
        self._saver = Saver(state.job_dir, programs.folder(state.root))
        self._answers = SaveAnswers(state.steps_path)
        self._notice = NoticeWatch(config.notice_file, config.notice_command, self.woken.set)
        self._hooks = NodeHooks(config.hooks, config.hook_limit_s, self._notice.shut, self.woken.set)
        self._is_wanted = False
        self._host_refusal = devices.maker.suspend_problem()
        self._contact = Contact(scheduler, config.name, self._describe, state)
        self._cores = devices.host.cores
        self._no_mps: dict[Key, str] = {}
        self._trimmed_s = float("-inf")
        self._ill: frozenset[int] = frozenset()

    async def run(
        self, stop: asyncio.Event, hurry: asyncio.Event | None = None, abandoned: asyncio.Event | None = None
    ) -> None:
        """Go on until `stop` is set; then leave the jobs to the next agent, or drain the node or end them if so set.

        Args:
            stop: Ends it.
            hurry: Ends the draining, too, and what is waited for.
            abandoned: When it is set, the end is no order: the jobs are left to the next agent, whatever is set.

        Raises:
            AgentError: The scheduler refuses this node, or its directory is gone.
        """
        await self._mps.adopt(self._devices.observe())
        self._notice.start()
        self._hooks.start()
        try:
            while not stop.is_set():
                self.woken.clear()
                with self._bounds.around("this agent's round"):
                    await self._place.unless_gone(self.reconcile_all)
                await self._answers.rest(self._pause_s(), self.woken, stop)
            if abandoned is None or not abandoned.is_set():
                hurry = hurry or asyncio.Event()
                if self._config.drain_on_stop_s:
                    await self._let_jobs_go(hurry)
                if self._config.stop_jobs:
                    await self._end_jobs(hurry)
        finally:
            await self._notice.close()
            await self._hooks.close()
            self._gate.close()
            self._bandwidth.close()
            self._cages.close()
            self.jobs.close()

    async def reconcile_all(self) -> None:
        """One round: tell of ends, report, and do what the scheduler wants."""
        # Before the ends of jobs: one that died of its GPU did not fail, and its scheduler must know by then.
        ill = frozenset(gpu.index for gpu in self._devices.observe(self._own()) if not gpu.healthy)
        if ill != self._ill and await self._contact.report(self._report()) is not None:
            self._ill = ill
        self._fault.look()
        cores = tuple(sorted(os.sched_getaffinity(0)))
        if cores != self._cores:
            log.warning("this agent may use %d cores now, it had %d", len(cores), len(self._cores))
            self._cores = cores
            self._contact.describe_anew()
        if self._move_speed.is_news:
            self._contact.describe_anew()
        await self._mps.watch(self._own().busy)
        await self._act(reconcile(None, self.jobs.observe()))
        desired = await self._contact.report(self._report())
        if desired is not None:
            self._is_wanted = bool(desired.jobs)
            self._has_limits = any(job.memory_limit_bytes for job in desired.jobs)
            follow = self._bounds.each
            follow("the cores", self._placer.follow, desired.jobs)
            with self._bounds.around("the bandwidth of memory"):
                self._bandwidth.follow(desired)
            follow("the cgroup", lambda jobs: self._cages.follow(jobs, self.state.job_dir), desired.jobs)
            await self._act(reconcile(desired, self._observe(desired), self._contact.followed), desired)
            follow("the saving", self._saver.follow, desired.jobs)
            follow("the answers", self._answers.follow, desired.jobs)
            follow("the host memory", self._host.follow, (j for j in desired.jobs if self.jobs.is_prepared(j.key)))
            with self._bounds.around("the turns"):
                self._gate.follow(self._places(desired))
            self._contact.followed = max(self._contact.followed, desired.generation)
        with self._bounds.around("the cores of what runs"):
            self._placer.keep(self.jobs.below)
        with self._bounds.around("what jobs have left"):
            self._trim()
        self._bounds.keep(job.key for job in self.state.live())

    def _nudger(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Give what wakes the agent from another thread."""

        def nudge() -> None:
            with suppress(RuntimeError):  # the agent has ended meanwhile
                loop.call_soon_threadsafe(self.woken.set)

        return nudge

    def _observe(self, desired: Desired) -> dict[Key, AttemptPhase]:
        told = (job.key for job in desired.jobs if self.state.is_delivered(job.key))
        return dict.fromkeys(told, AttemptPhase.DELIVERED) | self.jobs.observe()

    async def _act(self, actions: Sequence[Action], desired: Desired | None = None) -> None:
        """Do what is to be done; without word of what shall run, what is stopped ends with this agent."""
        wanted = {job.key: job for job in desired.jobs} if desired else {}
        await self._tell_of_ends([action for action in actions if action.act in {Act.REAP, Act.REPORT}])
        for key in [key for act, key in actions if act is Act.STOP]:
            await self._see_to(key, self._stop(key, wanted if desired is not None else None))
        await self._refuse_all({key: NOT_HERE for act, key in actions if act is Act.REJECT})
        starts, has_fault = [key for act, key in actions if act is Act.START], bool(self._fault.problem)
        starts = self.jobs.clear_of_former(starts, wanted)
        if len(starts) > STARTS_PER_ROUND_MAX:
            self.woken.set()
        starts = await self._fitting(starts[:STARTS_PER_ROUND_MAX], wanted)
        await asyncio.gather(*(self._see_to(key, self._make_ready(wanted[key])) for key in starts))
        ready = [key for key in starts if not has_fault and self.jobs.is_prepared(key)]
        if ready and desired is not None:  # at their first step they must know the jobs they share a lane with
            await self._gate.sync(self._places(desired))
        for key in ready:
            with self._bounds.around(f"the start of job {key}"):
                self.jobs.spawn(key)

    async def _fitting(self, starts: list[Key], wanted: Mapping[Key, DesiredJob]) -> list[Key]:
        """Those that fit next to what their devices carry now; others are sent back, or wait for a job about to end."""
        fresh = [wanted[key] for key in starts if not self.jobs.is_prepared(key)]
        if not any(job.memory for job in fresh):
            return starts
        gpus, held = {gpu.index: gpu for gpu in self._observed()}, self._held()
        verdict = launch_check.judge(fresh, self.jobs.occupants(wanted, held), gpus)
        if verdict.sent_back:  # what is seen here is booked first, so that no job is sent here again for it
            await self._contact.report(self._report())
        await self._refuse_all(verdict.sent_back, launch_check.SHORT_OF_MEMORY)
        return [key for key in starts if key not in verdict.sent_back and key not in verdict.waiting]

    async def _see_to(self, key: Key, doing: Awaitable[None]) -> None:
        """What is prevented for one job is tried again in the next round; the others do not wait for it."""
        with self._bounds.around(f"job {key}"):
            try:
                await doing
            except OSError as error:
                log.warning("job %s waits for the next round: %s", key, error)

    async def _stop(self, key: Key, wanted: Mapping[Key, DesiredJob] | None) -> None:
        if self._host.holds_back(key):
            return  # a later round ends it
        if wanted is None:
            self.jobs.stop(key, ENDS_WITH_AGENT, STOPPED)
        else:
            self.jobs.stop(key, wanted[key].because if key in wanted else UNWANTED)

    async def _make_ready(self, job: DesiredJob) -> None:
        if self._fault.problem:
            if self._fault.is_confirmed:
                await self._refuse(job.key, self._fault.problem, NODE_FAULT)
            return
        if not self.jobs.is_prepared(job.key):
            try:
                launch = await self._contact.launch_info(job.key)
                if launch is not None and await self._is_let_in(job.key, launch):
                    await self._prepare(job, launch)
            except NotLaunchableError as error:
                await self._refuse(job.key, str(error))

    async def _is_let_in(self, key: Key, launch: LaunchObject) -> bool:
        """Whether the prolog has done well; where it has not, the node is drained before its job goes elsewhere."""
        problem = self._hooks.problem(PROLOG, key, launch.get("user") or "")
        if problem:
            await self._contact.report(self._report())
            await self._refuse(key, problem, NODE_FAULT)
            self._hooks.forget(key)
        return problem == ""

    async def _prepare(self, job: DesiredJob, launch: LaunchObject) -> None:
        """Write down what is to be run; where that is impossible the scheduler is told."""
        by_index = {gpu.index: gpu for gpu in self._devices.observe(self._own())}
        missing = [index for index in job.gpus if index not in by_index]
        if missing:
            await self._refuse(job.key, f"this node has no device {missing[0]}")
            return None
        gpus = [by_index[index] for index in job.gpus]
        if len(gpus) > 1 and any(gpu.is_mig_instance for gpu in gpus):
            await self._refuse(job.key, MIG.format(gpus=", ".join(str(gpu.index) for gpu in gpus)))
            return None
        if problem := gang.ranks_problem(launch):
            return await self._refuse(job.key, problem)
        try:
            account = account_for(launch.get("user") or "", self._runs_as)
        except UnknownUserError as error:
            return await self._refuse(job.key, str(error))
        command, facts = plan_launch(
            job,
            launch,
            self._config,
            gpus=gpus,
            devices=self._devices,
            steps_path=self.state.steps_path(job.key),
            mps=await self._mps_for(job.key, launch, gpus, account),
            account=account,
        )
        command, facts = self._arranged(command, facts, launch, gpus, job.meeting)
        try:
            self.jobs.prepare(job.key, self._cages.around(job.key, command, gpus), facts, launch.get("token"))
        except OSError as error:
            self._fault.note(f"{self.state.jobs} cannot be written: {error.strerror}")
            await self._refuse(job.key, self._fault.problem, NODE_FAULT)
        except ValueError as error:
            await self._refuse(job.key, f"no process can be given this: {error}")

    def _arranged(
        self, command: Command, facts: LaunchFacts, launch: LaunchObject, gpus: list[Gpu], meeting: Meeting | None
    ) -> tuple[Command, LaunchFacts]:
        """Let the job's processes find each other, on a port that no other job here has."""
        if meeting is None and gang.needs_meeting(launch, gpus):
            port = gang.find_port(frozenset(job.facts().port for job in self.state.live()))
            meeting = Meeting(gang.LOOPBACK, port, len(gpus))
        host = self._devices.host
        command = gang.arrange(command, launch, gpus=gpus, host=host, program=self._ranks, meeting=meeting)
        by_rank = gang.cores_of_ranks(gpus, command.cores) if launch.get("ranks") == gang.PER_GPU else ()
        return command, replace(facts, port=meeting.port if meeting is not None else 0, rank_cores=by_rank)

    async def _refuse(self, key: Key, detail: str, outcome: str = "not-started") -> None:
        await self._contact.finished(self._named(refusal(key, detail, outcome)))

    async def _refuse_all(self, details: Mapping[Key, str], outcome: str = "not-started") -> None:
        """Say of attempts why they were not started, with one request."""
        await self._tell({key: refusal(key, detail, outcome) for key, detail in details.items()})

    async def _mps_for(self, key: Key, launch: LaunchObject, gpus: list[Gpu], account: Account) -> Mapping[str, str]:
        if not (self._devices.maker.has_mps and wants_mps(self._config, launch, gpus)):
            return {}
        if len(gpus) > 1:
            self._no_mps[key] = NO_SHARING.format(key=key, count=len(gpus))
            return {}
        variables = await self._mps.ensure(gpus[0], account)
        if variables:
            self._mps_faults.over(gpus[0].index)
        return variables

    async def _tell_of_ends(self, actions: Sequence[Action]) -> None:
        """Tell of ends; what is not answered, or not clear yet, is told in a later round."""
        ends: dict[Key, FinishedObject] = {}
        for act, key in actions:
            await self._see_to(key, self._put_together(act, key, ends))
        now_s = time.time()
        suspect = [
            one["detail"]
            for one in ends.values()
            if one["outcome"] == STOPPED and now_s < one["end_s"] + SUSPECTED_FOR_S
        ]
        for detail in suspect:
            self._notice.suspect(detail)
        if suspect:  # what ended them may end this node as well: not known first, they are started here once more
            await self._contact.report(self._report())
        for key in await self._tell(ends):
            await self._see_to(key, self._deliver(key))

    async def _tell(self, ends: Mapping[Key, FinishedObject]) -> list[Key]:
        """Tell of ends with one request, or each alone where they are refused so, and return those known now."""
        keys, known = list(ends), list[Key]()
        for some in (keys[first : first + ENDS_MAX] for first in range(0, len(keys), ENDS_MAX)):
            heard: bool | None = None
            if len(some) > 1:
                with self._bounds.around("the ends of jobs"):
                    heard = await self._contact.finished_together([self._named(ends[key]) for key in some])
            known += some if heard else ()
            for key in some if heard is None else ():
                await self._see_to(key, self._tell_alone(key, ends[key], known))
        return known

    async def _tell_alone(self, key: Key, finished: FinishedObject, known: list[Key]) -> None:
        if await self._contact.finished(self._named(finished)):
            known.append(key)

    async def _put_together(self, act: Act, key: Key, ends: dict[Key, FinishedObject]) -> None:
        """Add what is to be told of an end, once that is clear."""
        if act is Act.REAP:
            await self.jobs.reap(key, self._mps.let_go)
        if await self._mps_faults.is_settled(key) and self._hooks.problem(EPILOG, key) is not None:
            ends[key] = self.jobs.finished(key)

    async def _deliver(self, key: Key) -> None:
        """The scheduler knows its end."""
        self.jobs.deliver(key)
        self._cages.remove(key)
        self._hooks.forget(key)
        self._no_mps.pop(key, None)

    def _named(self, finished: FinishedObject) -> FinishedObject:
        return {
            **finished,
            "agent_id": self.state.agent_id,
            "cluster_id": self.state.cluster_id or None,
            **self.state.heard.as_told(),
        }

    def _own(self) -> OwnProcesses:
        own = self.jobs.own()
        return replace(own, pids=own.pids | self._mps.server_pids)

    def _observed(self) -> tuple[Gpu, ...]:
        """The devices as they are now, and what others use of them where that counts."""
        gpus = self._gpus_seen = self._devices.observe(self._own())
        return gpus if self._config.reports_others else tuple(replace(gpu, others_ratio=0.0) for gpu in gpus)

    def _describe(self) -> RegistrationObject:
        gpus = self._fault.closed(self._observed(), self._own().busy)
        config, state = self._config, self.state
        node = node_object(config, state.agent_id, self._door, self._devices, gpus, self._host_refusal)
        told: RegistrationObject = {
            **node,
            "cores": list(self._cores),
            "leased": self._is_leased(),
            "runs_as": self._runs_as,
        }
        if (speed := self._move_speed.tell()) is not None:
            told["to_host_bytes_per_s"] = speed
        if self._config.replaced:
            told["replaced"] = True
        return told

    def _places(self, desired: Desired) -> Follow:
        """Where the gate finds the jobs, and what it does with them."""
        places = (
            Place(
                gate_job(
                    job,
                    kept=self._host.keeps(job.key) or self._placer.lags(job.key),
                    on_cpu=self._host.is_on_cpu(job.key),
                    checked=self._audit.is_checked(job.key.job),
                    leaks=self._audit.found.get(job.key.job, ""),
                ),
                self.state.steps_path(job.key),
                self.state.job_dir(job.key).claimed_by,
                job.run,
            )
            for job in desired.jobs
            if not job.halt
        )
        return Follow(tuple(places), desired.turns, {gpu.index: gpu.capacity_bytes for gpu in self._gpus_seen})

    def _report(self) -> ReportObject:
        now_s = time.time()
        used = self._devices.utilization()
        seen = self._gate.seen()
        asking = frozenset(job for job, one in seen.items() if one.asks)
        self._host.see(frozenset(job for job, one in seen.items() if one.is_parked), asking)
        held = self._held()
        observed = self._observed()
        others = self._devices.others() if self._config.reports_others else {}
        uses: tuple[DeviceUsage, ...] = self._bounds.ask("how devices are used", self._devices.uses, ())
        # Nothing ran for any process on a device on which nothing ran, whether its driver tells processes apart or not.
        by_pid = self._devices.busy_by_pid()
        busy = {use.index: NOTHING_RAN for use in uses if use.busy_ratio == 0} | by_pid
        samples = {key: self.jobs.sample(key, now_s, used, held, others, busy) for key in sorted(self.jobs.observe())}
        if any(one is not self._busy_seen.get(gpu) for gpu, one in by_pid.items()):  # the driver was asked anew
            self._busy_seen = by_pid
            ratios = {key.job: one["use"]["busy_ratio"] for key, one in samples.items() if "use" in one}
            self._audit.look(time.monotonic(), seen, ratios, ratios.keys())
        jobs = [with_host(with_turns(one, seen.get(key.job)), self._host.said(key)) for key, one in samples.items()]
        cpu_s = {key: one["progress"]["cpu_s"] or 0.0 for key, one in samples.items() if "progress" in one}
        bandwidth = self._bandwidth.sample(time.monotonic(), self.jobs.below, cpu_s)
        gpus = with_sharing(observed, self._mps.active, self.jobs.through_mps())
        gpus = self._fault.closed(gpus, self._own().busy)
        messages = [
            *self._fault.messages(),
            *self._bounds.messages(),
            *self.state.removals.messages(),
            *filter(None, [self._memory_problem, self._memory_note]),
            *filter(None, [exclusive_message(gpus)]),
            *([UNCHECKED] if len(seen) > 1 and None in held.values() else []),
            *self._mps.messages,
            *self._mps_faults.messages,
            *self._no_mps.values(),
            *self._gate.messages(),
            *self._host.messages(),
            *self._cages.messages(),
            *self._placer.messages(),
            *self._bandwidth.messages(),
            *self._saver.messages(),
            *self._notice.messages(),
            *([self._cages.memory_message()] if self._has_limits else []),
        ]
        report = report_object(self.state.agent_id, now_s, gpus, messages, jobs)
        heard, notice = self.state.heard.as_told(), self._notice.look()
        report["cluster_id"] = self.state.cluster_id or None
        report["epoch"], report["events_seen"] = heard["epoch"], heard["events_seen"]
        report["version_seen"] = self.state.heard.version
        report["leased"] = self._is_leased()
        report["lease_left_s"] = self.state.lease.left_s(since_boot_s())
        report["halts"], report["halts_told"] = self.jobs.all_halt()
        if notice is not None:
            report["notice"] = notice.told(self._config.grace_s)
        report["bandwidth"] = bandwidth
        report["devices"] = self._device_uses(uses, samples)
        return report

    def _device_uses(
        self, uses: Sequence[DeviceUsage], samples: Mapping[Key, JobReportObject]
    ) -> list[DeviceUseObject]:
        """How each device is used now; a fault here costs the report these numbers and nothing else."""
        held_bytes = [one["use"]["device_bytes"] if "use" in one else None for one in samples.values()]

        def look() -> list[DeviceUseObject]:
            by_jobs = with_jobs_memory(uses, self.jobs.facts_of(samples), held_bytes)
            return [as_object(use) for use in by_jobs]

        return self._bounds.ask("how devices are used", look, [])

    def _held(self) -> Mapping[int, device_memory.HeldByPid | None]:
        """What each process holds of the GPUs with jobs; that the driver hides it is said from then on."""
        held = device_memory.held_by_pid(self._devices, self._own().busy & self._gpus)
        self.jobs.adopt({pid for by_pid in held.values() if by_pid is not None for pid in by_pid})
        if device_memory.is_untold(held):
            self._memory_note = device_memory.ESTIMATED
        return held

    def _is_leased(self) -> bool:
        """Whether nothing runs here that would go on without word from the scheduler."""
        return self.state.lease.is_bound or not self.state.live()

    def _trim(self) -> None:
        self.state.removals.look()
        if time.monotonic() < self._trimmed_s + TRIM_EVERY_S:
            return
        self._trimmed_s = time.monotonic()
        config = self._config
        self.state.trim(
            jobs_max=config.ended_jobs_max, age_max_s=config.ended_age_max_s, bytes_max=config.ended_bytes_max
        )

    async def _let_jobs_go(self, hurry: asyncio.Event) -> None:
        """Have the node drained, and go on until its jobs have left, as far as they do within the time."""
        spare_s = self._config.grace_s + LAST_WORDS_S
        end_s = time.monotonic() + self._config.drain_on_stop_s + spare_s
        self._notice.leave(STOPS, self._config.drain_on_stop_s + self._config.grace_s)
        self._is_wanted = True
        while (self._is_wanted or self.state.live()) and time.monotonic() < end_s and not hurry.is_set():
            self.woken.clear()
            await self.reconcile_all()
            if self._is_wanted or self.state.live():
                await self._answers.rest(self._pause_s(), self.woken, hurry)

    def _pause_s(self) -> float:
        return min(self._config.heartbeat_s, self.state.lease.report_within_s)

    async def _end_jobs(self, hurry: asyncio.Event) -> None:
        """Stop every job and tell the scheduler, as far as it listens within the time.

        What has not ended by then, or when we are told to hurry, ends by itself: its supervisor sees to that.
        """
        deadline_s = time.monotonic() + self.jobs.lead_max_s() + self._config.grace_s + LAST_WORDS_S
        nothing = Desired(self._contact.followed, ())
        self._gate.follow(self._places(nothing))  # one that waits for its turn could not save
        while (observed := self.jobs.observe()) and time.monotonic() < deadline_s and not hurry.is_set():
            self.woken.clear()
            await self._act(reconcile(nothing, observed, self._contact.followed))
            if all(phase is AttemptPhase.ENDED for phase in observed.values()):
                break  # told, if the scheduler listened; the rest is told by the next agent
            await self._answers.rest(min(self._config.heartbeat_s, LAST_WORDS_S), self.woken, hurry)
        await self._mps.stop()

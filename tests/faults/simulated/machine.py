"""A machine with an agent: its disk and the jobs' processes outlive the agent, the disk outlives a reboot."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from colane.agent.files.lease import Lease
from colane.agent.link.contact import Contact
from colane.agent.reconcile import Act, Action, AttemptPhase, Desired, DesiredJob, Key, reconcile
from colane.agent.running.jobs import refusal
from colane.agent.supervisor import shim_files
from colane.api.of_record import as_object
from colane.model.job_spec import SAVED
from colane.model.progress import Progress
from tests.faults.simulated.disk import JobHere, VirtualAttempt, VirtualDisk
from tests.faults.simulated.network import VirtualLink
from tests.faults.simulated.versions import as_it_is

if TYPE_CHECKING:
    from tests.faults.simulated.cluster import FaultyCluster

HEARTBEAT_S = 4.0
LOOK_S = 0.5
"""Supervisors look at the lease and at their jobs this often."""
GRACE_S = 2.0
STEP_S = 0.25
GPU_BYTES = 2 * 10**9
LEAD_S = 6.0
"""Jobs that save their state ask for so much time to do it."""


class Machine:
    """See the module's docstring."""

    def __init__(self, cluster: FaultyCluster, name: str, gpus: int, root: Path) -> None:
        self.name, self.gpus = name, gpus
        self.wall_offset_s = 0.0
        self.boot_offset_s = cluster.random.uniform(0, 1e5)
        self.rate = 1 + cluster.random.uniform(-0.004, 0.004)
        self.disk = VirtualDisk(f"agent-{name}", root / name)
        self.disk.root.mkdir()
        self.agent = cluster.clock.process(f"agent of {name}")
        self.frozen_until_s = 0.0
        self.is_frozen = False
        self.goes_s: float | None = None
        self.speaks: Callable[[Any], Any] = as_it_is
        self._cluster, self._clock = cluster, cluster.clock
        self._random = Random(cluster.random.random())
        self._looked_s = self._clock.now_s
        self._clock.after(LOOK_S, self._look)
        self.start_agent()

    # -- clocks

    @property
    def since_boot_s(self) -> float:
        """Its clock of leases, which runs a little fast or slow."""
        return self.boot_offset_s + self._clock.now_s * self.rate

    @property
    def wall_s(self) -> float:
        """Its wall clock, which may be wrong by minutes."""
        return 1.7e9 + self._clock.now_s + self.wall_offset_s

    @property
    def left_s(self) -> float | None:
        """In how long it goes, less the time in which jobs are killed; None where it has no notice of its end."""
        return None if self.goes_s is None else max(0.0, self.goes_s - self._clock.now_s - GRACE_S)

    # -- faults

    def start_agent(self) -> None:
        """An agent begins, where none lives."""
        if not self.agent.is_alive:
            self.disk.lease = Lease(self.disk.root, GRACE_S)
            agent = VirtualAgent(self, self._cluster)
            self.agent.start(agent.run)
            self._cluster.network.nudged[self.name] = agent.nudge

    def kill_agent(self, again_after_s: float) -> None:
        """The agent dies, and is started again later; jobs go on."""
        self.agent.kill()
        self.disk.lease.close()
        for attempt in self.disk.attempts.values():
            attempt.spawned = False  # a supervisor on its way dies with the agent or claims its job first
        self._cluster.network.nudged[self.name] = lambda: None
        self._clock.after(again_after_s, self.start_agent)

    def upgrade_agent(self, speaks: Callable[[Any], Any], again_after_s: float) -> None:
        """The agent is ended, and one of another version started; jobs go on."""
        if self.agent.is_alive:
            self.kill_agent(again_after_s)
        self.speaks = speaks

    def reboot(self, again_after_s: float) -> None:
        """Every process dies; what was on the disk is there when the machine is back."""
        if self.agent.is_alive:
            self.kill_agent(again_after_s)
        for attempt in self.disk.attempts.values():
            attempt.alive = False
        self.boot_offset_s = -self._clock.now_s * self.rate

    def freeze(self, seconds: float) -> None:
        """Nothing on it goes on for a while, as with a paused virtual machine."""
        self.frozen_until_s = self.agent.frozen_until_s = max(self.frozen_until_s, self._clock.now_s + seconds)
        self.is_frozen = True
        self._clock.at(self.frozen_until_s, self._thaw)

    def _thaw(self) -> None:
        """Supervisors sleep until the lease they know is over: those whose time has come wake before anything else."""
        if self._clock.now_s >= self.frozen_until_s:
            self._looked_s = self._clock.now_s
            self._apply_lease()
            self.is_frozen = False
            self._cluster.laws.look()

    # -- its processes

    def spawn(self, key: Key) -> None:
        """Start a prepared attempt in a moment."""
        attempt = self.disk.attempts[key]
        attempt.spawned = True
        self._clock.after(self._random.uniform(0.05, 1.0), lambda: self._begin(key, attempt))

    def _begin(self, key: Key, attempt: VirtualAttempt) -> None:
        if self.is_frozen:
            self._clock.after(LOOK_S, lambda: self._begin(key, attempt))
            return
        if not attempt.spawned or attempt.record is not None or self.disk.attempts.get(key) is not attempt:
            return
        attempt.spawned, attempt.claimed = False, True
        attempt.start_s = self.wall_s
        if shim_files.halt_at_s(self._lease()) <= self.since_boot_s:
            self._end(key, attempt, "lease-run-out")
            return
        attempt.alive = True
        self._cluster.laws.started(self, key)
        self.nudge()

    def stop(self, key: Key) -> None:
        """Ask an attempt to end, as `Jobs.stop`."""
        attempt = self.disk.attempts[key]
        if not attempt.claimed and not attempt.spawned:
            self._end(key, attempt, "not-started")
        elif (
            attempt.alive
            and attempt.is_halted
            and (attempt.order or shim_files.halt_at_s(self._lease()) <= self.since_boot_s)
        ):
            self._end(key, attempt, "signalled")
        elif attempt.alive:
            attempt.stop_at_s = min(attempt.stop_at_s, self._clock.now_s + self._random.uniform(0.0, GRACE_S))

    def save(self, key: Key, number: int) -> None:
        """Ask an attempt to save its state: most do in time, some late, never, or not at all for want of room."""
        attempt = self.disk.attempts[key]
        if not attempt.alive or attempt.asked >= number:
            return
        attempt.asked = number
        answer = self._random.random()
        if answer < 0.6:
            attempt.saves_at_s = self._clock.now_s + self._random.uniform(0.1, 1.3 * LEAD_S)
        elif answer < 0.75:
            attempt.refuses = number
        elif answer < 0.85:
            attempt.code, attempt.work_s = 1, attempt.done_s  # it dies while it saves

    def reap(self, key: Key) -> None:
        """Record the end of one whose supervisor is gone."""
        self._end(key, self.disk.attempts[key], "supervisor-died")

    def nudge(self) -> None:
        """Wake the agent."""
        self._cluster.network.nudged[self.name]()

    def _look(self) -> None:
        self._clock.after(LOOK_S, self._look)
        if self.is_frozen:
            return
        passed_s, self._looked_s = self._clock.now_s - self._looked_s, self._clock.now_s
        alive = [(key, attempt) for key, attempt in self.disk.attempts.items() if attempt.alive]
        if alive:
            self._apply_lease()
        for key, attempt in alive:
            if attempt.runs:
                self._go_on(key, attempt, passed_s)

    def _go_on(self, key: Key, attempt: VirtualAttempt, passed_s: float) -> None:
        wanted = attempt.desired
        was_parked, attempt.is_parked = attempt.is_parked, wanted.run and (wanted.paused or wanted.to_host)
        if was_parked and not attempt.is_parked:
            self._cluster.laws.look()
        if attempt.stop_at_s <= self._clock.now_s:
            self._end(key, attempt, "signalled")
        elif attempt.saves_at_s <= self._clock.now_s:
            attempt.code = SAVED
            self._end(key, attempt, "exited")
        elif not attempt.is_parked:
            attempt.done_s += passed_s
            if attempt.done_s >= attempt.work_s:
                self._end(key, attempt, "exited")

    def _apply_lease(self) -> None:
        """Processes whose lease has run out, or that are told to, are halted in time, and go on with it."""
        lease = self._lease()
        halt_s, must_s = shim_files.halt_at_s(lease), lease[1]
        for key, attempt in list(self.disk.attempts.items()):
            if not attempt.alive:
                continue
            if self.since_boot_s < halt_s and not attempt.order:
                attempt.halts_at_s = math.inf
                if attempt.is_halted:
                    attempt.is_halted = False
                    self._cluster.laws.look()
            elif attempt.halts_at_s == math.inf:
                is_late = self.since_boot_s >= halt_s
                first_s, last_s = (halt_s, must_s) if is_late else (self.since_boot_s, self.since_boot_s + LEAD_S)
                attempt.halts_at_s = self._random.uniform(first_s, min(last_s, must_s))
            if attempt.halts_at_s + shim_files.HALTED_MAX_S <= self.since_boot_s:
                self._end(key, attempt, "lease-run-out")
            elif attempt.halts_at_s <= self.since_boot_s and not attempt.is_halted:
                attempt.is_halted = True
                if attempt.stop_at_s < math.inf:
                    attempt.stop_at_s += LEAD_S  # its end is put off
            if attempt.is_halted and attempt.order:
                attempt.stands_by = attempt.order

    def _lease(self) -> tuple[float, float]:
        return shim_files.read_lease(str(self.disk.root / shim_files.LEASE)) or (0.0, 0.0)

    def _end(self, key: Key, attempt: VirtualAttempt, outcome: str) -> None:
        attempt.alive = False
        exited = attempt.code if outcome == "exited" else None
        attempt.record = {
            **refusal(key, "", outcome),
            "end_s": self.wall_s,
            "start_s": None if outcome == "not-started" else attempt.start_s,
            "exit_code": exited,
            "signal": 15 if outcome == "signalled" else None,
            "progress": as_object(self.sample(attempt)),
        }
        self.nudge()

    def sample(self, attempt: VirtualAttempt) -> Progress:
        """What its agent says of a job."""
        steps = int(attempt.done_s / STEP_S)
        return Progress(
            at_s=self.wall_s,
            steps=steps,
            first_step_s=attempt.start_s + STEP_S if steps else None,
            last_step_s=attempt.start_s + STEP_S * steps if steps else None,
            step_mean_s=STEP_S,
            step_median_s=STEP_S,
            persistent_bytes=GPU_BYTES // 4,
            peak_bytes=GPU_BYTES // 3,
            memory_by="resident-set",
            occupancy_ratio=0.2,
            occupancy_by="cpu-time",
            on_host_bytes=0 if attempt.is_parked and attempt.desired.to_host else None,
            save_problem="No space left on device" if attempt.refuses else "",
            saves_asked=attempt.refuses,
        )


class VirtualAgent:
    """Rounds as `colane.agent.loop.Agent` makes them, with the real word with the scheduler."""

    def __init__(self, machine: Machine, cluster: FaultyCluster) -> None:
        self._machine, self._cluster, self._disk = machine, cluster, machine.disk
        link = VirtualLink(cluster.network, machine.name, machine.agent, machine.speaks)
        state: Any = machine.disk
        self._contact = Contact(link, machine.name, self._describe, state)
        self._woken: asyncio.Event | None = None

    def nudge(self) -> None:
        """Wake it."""
        if self._woken is not None and self._machine.agent.is_alive:
            self._machine.agent.loop.call_soon(self._woken.set)

    async def run(self) -> None:
        """Go on for ever."""
        self._woken = asyncio.Event()
        while True:
            self._woken.clear()
            await self._round()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._woken.wait()

    async def _round(self) -> None:
        await self._act(reconcile(None, self._observe()))
        desired = await self._contact.report(self._report())
        if desired is not None:
            self._follow(desired.jobs)
            told = (job.key for job in desired.jobs if job.key in self._disk.delivered)
            observed = dict.fromkeys(told, AttemptPhase.DELIVERED) | self._observe()
            await self._act(reconcile(desired, observed, self._contact.followed), desired)
            self._contact.followed = max(self._contact.followed, desired.generation)

    def _follow(self, jobs: Iterable[DesiredJob]) -> None:
        for job in jobs:
            if job.key in self._disk.attempts:
                self._disk.attempts[job.key].desired = job
                if job.save is not None and job.run:
                    self._machine.save(job.key, job.save.number)

    def _observe(self) -> dict[Key, AttemptPhase]:
        return {key: attempt.phase for key, attempt in self._disk.attempts.items()}

    async def _act(self, actions: list[Action], desired: Desired | None = None) -> None:
        wanted = {job.key: job for job in desired.jobs} if desired else {}
        for act, key in actions:
            if act is Act.STOP:
                self._machine.stop(key)
            elif act is Act.REJECT:
                await self._contact.finished(self._named(refusal(key, "it was stopped before it was started")))
            elif act is Act.START:
                await self._start(wanted[key])
            else:
                await self._tell(key, is_lost=act is Act.REAP)

    async def _tell(self, key: Key, *, is_lost: bool) -> None:
        if is_lost:
            self._machine.reap(key)
        record = self._disk.attempts[key].record
        assert record is not None
        if await self._contact.finished(self._named(record)):
            self._disk.delivered.add(key)
            del self._disk.attempts[key]

    async def _start(self, job: DesiredJob) -> None:
        if job.key not in self._disk.attempts:
            launch = await self._contact.launch_info(job.key)
            if launch is None:
                return
            work = launch["labels"]
            self._disk.attempts[job.key] = VirtualAttempt(job, float(work["work_s"]), int(work["code"]))
        self._machine.spawn(job.key)

    def _named(self, finished: Any) -> Any:
        whose = {"agent_id": self._disk.agent_id, "cluster_id": self._disk.cluster_id or None}
        return {**finished, **whose, **self._disk.heard.as_told()}

    def _gpus(self) -> list[Any]:
        return [
            {"index": index, "uuid": f"cpu-{index}", "type": "cpu", "memory_bytes": GPU_BYTES, "sharing": "cpu"}
            for index in range(self._machine.gpus)
        ]

    def _describe(self) -> Any:
        return {
            "name": self._machine.name,
            "agent_id": self._disk.agent_id,
            "address": f"http://{self._machine.name}",
            "gpus": self._gpus(),
            "cores": list(range(8)),
            "host_memory_bytes": 64 * 10**9,
            "leased": self._is_leased(),
        }

    def _report(self) -> Any:
        left_s = self._machine.left_s
        jobs = [
            {
                "id": key.job,
                "attempt": key.attempt,
                "phase": "launched",
                "pid": 42,
                "start_s": attempt.start_s,
                "progress": as_object(self._machine.sample(attempt)),
                **({"halted": True} if JobHere(key, attempt).stands() else {}),
            }
            for key, attempt in sorted(self._disk.attempts.items())
            if attempt.phase is AttemptPhase.RUNNING
        ]
        return {
            "agent_id": self._disk.agent_id,
            "cluster_id": self._disk.cluster_id or None,
            **self._disk.heard.as_told(),
            "at_s": self._machine.wall_s,
            "leased": self._is_leased(),
            "lease_left_s": self._disk.lease.left_s(self._machine.since_boot_s),
            "halts": True,
            "halts_told": True,
            "gpus": self._gpus(),
            "jobs": jobs,
            **({} if left_s is None else {"notice": {"reason": "spot", "left_s": left_s}}),
        }

    def _is_leased(self) -> bool:
        return self._disk.lease.is_bound or not self._disk.live()


def forget(machine: Machine) -> None:
    """Leave nothing of it."""
    with suppress(OSError):
        machine.disk.lease.close()
    shutil.rmtree(machine.disk.root, ignore_errors=True)

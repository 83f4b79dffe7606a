"""A life as the server sees it: submissions, faults and wishes at fixed times, and agents that do as they are told.

Agents report every minute. What they report follows from the script and from what the core decided, from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    GpusObserved,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.policy import Policy
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState, SuspendVia
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs

from .log import FrozenLog, is_running
from .workloads import TRAINING, USERS, make_node
from .world import FAMILIES, MIB

REPORT_S = 60.0
FIRST_STEP_S = 20.0
MOMENTS_MAX = 900
SIGTERM = 15


def nodes() -> Mapping[str, Node]:
    """Machines of two types, one with links."""
    made = (make_node("a0", 2, "A100"), make_node("b0", 4, links="minsky"), make_node("b1", 4, sharing="time-slice"))
    return MappingProxyType({node.name: node for node in made})


def spec(random: Random, number: int) -> JobSpec:
    """What is submitted; lengths from minutes to hours, declared steps or none."""
    family, gpus = random.choice(TRAINING), random.choice((1, 1, 1, 1, 2, 2, 4, 5))
    steps = round(random.choice((300, 1200, 3600, 7200)) / FAMILIES[family].step_s)
    return JobSpec(
        name=f"job-{number}", family=family, user=random.choice(USERS), gpus=gpus, multi_node=gpus == 5,
        steps_total=steps, preemptible=random.random() < 0.7, retries=random.choice((0, 1)),
        priority=random.choice((0, 0, 0, 0, 1)), time_limit_s=random.choice((None, None, 7200.0, 21600.0)),
        gpu_memory_bytes=random.choice((None, 6_000 * MIB, 9_000 * MIB)), share=random.random() < 0.9,
        cores=random.choice((0, 0, 1)), host_memory_bytes=random.choice((0, 2_000 * MIB)), batch_size=64,
    )  # fmt: skip


def script() -> list[tuple[float, Event]]:
    """What happens, whatever is decided."""
    random, at_s = Random(15), 0.0
    what: list[tuple[float, Event]] = []
    for number in range(1, 41):
        at_s += REPORT_S * random.choice((0, 0, 3, 5, 12))
        what.append((at_s, Submitted(JobId(number), spec(random, number))))
    known = nodes()
    sick = replace(known["b1"].gpus[3], healthy=False)
    crowded = replace(known["b1"].gpus[2], foreign_bytes=9_000 * MIB)
    lane, host = SuspendVia.LANE, SuspendVia.HOST
    what += [
        (1800, SuspendRequested(JobId(3), "ann", lane)), (2100, SuspendRequested(JobId(5), "bob", host)),
        (2400, SuspendRequested(JobId(2), "ann", host)), (3000, ResumeRequested(JobId(3), "ann")),
        (4200, ResumeRequested(JobId(2), "ann")), (4500, ResumeRequested(JobId(5), "bob")),
        (5400, NodeLost("b0")), (6000, NodeRegistered(known["b0"])),
        (7200, GpusObserved("b1", (*known["b1"].gpus[:2], crowded, sick))), (7500, CancelRequested(JobId(20), "dan")),
        (8400, SuspendRequested(JobId(24), "cyd", lane)), (9000, GpusObserved("b1", known["b1"].gpus)),
        (9600, CancelRequested(JobId(27), "ann")), (10800, ResumeRequested(JobId(24), "cyd")),
    ]  # fmt: skip
    return sorted(what, key=lambda one: one[0])


FAILS_AT = MappingProxyType({(4, 1): 0.5, (11, 1): 0.25, (11, 2): 0.5, (17, 1): 0.75, (30, 1): 0.0})
"""After which part of its steps an attempt of a job fails."""


@dataclass(slots=True)
class _Process:
    """One attempt of a job on its nodes."""

    job: Job
    begun_s: float
    start_s: float | None = None
    first_step_s: float | None = None


@dataclass(slots=True)
class Live:
    """Runs the script under a policy until every job has ended."""

    policy: Policy
    core: Core = field(init=False)
    log: FrozenLog = field(init=False)
    now_s: float = 0.0
    _processes: dict[JobId, _Process] = field(default_factory=dict)
    _steps: dict[JobId, float] = field(default_factory=dict)
    _saved: dict[JobId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.core = Core(self.policy, ClusterState(Beliefs()), CoreConfig(families_agree=False))
        self.log = FrozenLog(self.core)
        self._step([NodeRegistered(node) for node in nodes().values()])
        self._step([ProfileDeclared(_profile(family)) for family in ("resnet", "lstm", "recommender")])

    def run(self) -> str:
        """The log."""
        coming = script()
        for _ in range(MOMENTS_MAX):
            events: list[Event] = []
            while coming and coming[0][0] <= self.now_s:
                events.append(coming.pop(0)[1])
            self._step([*self._reports(), *events, Tick()])
            if not coming and not self.core.state.jobs:
                break
            self.now_s += REPORT_S
        return self.log.text()

    def _step(self, events: list[Event]) -> None:
        outcome = self.core.step(events, self.now_s)
        self.log.outcome(outcome, self.now_s)
        self._follow(outcome)

    def _follow(self, outcome: Outcome) -> None:
        for job in outcome.jobs:
            process = self._processes.get(job.id)
            if job.placement is None or job.has_ended:
                self._processes.pop(job.id, None)
            elif process is None or process.job.attempt != job.attempt:
                self._processes[job.id] = _Process(job, self.now_s)
                self._steps[job.id] = self._saved.get(job.id, 0.0) if job.spec.preemptible else 0.0
            else:
                process.job = job

    def _reports(self) -> list[Event]:
        """What agents say of the minute that has passed."""
        made: list[Event] = []
        speeds = {number: self._speed(process) for number, process in self._processes.items()}
        for number, process in sorted(self._processes.items()):
            made += self._launch(process) if process.start_s is None else self._report(process, speeds[number])
        return made

    def _launch(self, process: _Process) -> list[Event]:
        job, process.start_s = process.job, self.now_s
        if job.state is JobState.STOPPING:
            return self._gone(process, "not-started", Exit(None, None, "asked to stop"))
        living = [node for node in _nodes(job) if node not in job.run.ended_on]
        return [Launched(job.id, job.attempt, 1000 + job.id, self.now_s, node) for node in living]

    def _report(self, process: _Process, speed: float) -> list[Event]:
        job = process.job
        if job.state is JobState.STOPPING:
            self._saved[job.id] = self._steps[job.id]
            return self._gone(process, "signalled", Exit(None, SIGTERM))
        self._steps[job.id] += speed * REPORT_S
        total = float(job.spec.steps_total or 1)
        fails_at = FAILS_AT.get((job.id, job.attempt), 2.0) * total
        if self._steps[job.id] >= fails_at:
            return self._gone(process, "exited", Exit(1, None))
        if self._steps[job.id] >= total:
            return self._gone(process, "exited", Exit(0, None))
        return [Progressed(job.id, job.attempt, self._sample(process, speed), node) for node in _nodes(job)[:1]]

    def _gone(self, process: _Process, outcome: str, how: Exit) -> list[Event]:
        job = process.job
        nodes_left = [node for node in _nodes(job) if node not in job.run.ended_on]
        return [
            Ended(job.id, job.attempt, outcome, how, process.start_s, self.now_s, None, node) for node in nodes_left
        ]

    def _sample(self, process: _Process, speed: float) -> Progress:
        job, steps = process.job, int(self._steps[process.job.id])
        family = FAMILIES[job.spec.family]
        is_off = job.parked or job.suspended_via is SuspendVia.HOST
        is_leaving = job.state is JobState.PAUSED and is_off
        if steps and process.first_step_s is None and process.start_s is not None:
            process.first_step_s = process.start_s + FIRST_STEP_S
        return Progress(
            at_s=self.now_s, steps=steps, steps_total=job.spec.steps_total, first_step_s=process.first_step_s,
            last_step_s=self.now_s if speed and steps else None, step_mean_s=1 / speed if speed and steps else None,
            persistent_bytes=family.persistent_mib * MIB if steps else None,
            peak_bytes=(family.persistent_mib + family.ephemeral_mib) * MIB if steps else None,
            occupancy_ratio=family.demand, bandwidth_ratio=family.demand / 2, occupancy_by="script",
            on_host_bytes=family.persistent_mib * MIB if is_leaving else None,
        )  # fmt: skip

    def _speed(self, process: _Process) -> float:
        """Steps per second where it is: its type, turns in its lane, work of the others on its busiest GPU."""
        job = process.job
        if not is_running(job) or job.placement is None:
            return 0.0
        family = FAMILIES[job.spec.family]
        kind = self.core.state.gpus[job.placement.gpus[0]].gpu.type
        slowest = 1.0
        for slot in job.placement.slots:
            there = [other for other in self._processes.values() if is_running(other.job) and other is not process]
            slots = [(other, own) for other in there for own in other.job.placement.slots if own.gpu == slot.gpu]  # type: ignore[union-attr]
            turns = 1 + sum(own.lane == slot.lane for _, own in slots)
            demand = family.demand + sum(
                FAMILIES[other.job.spec.family].demand for other, own in slots if own.lane != slot.lane
            )
            slowest = max(slowest, turns * max(1.0, demand))
        return dict(family.speeds).get(kind, 1.0) / family.step_s / slowest


def _nodes(job: Job) -> tuple[str, ...]:
    return job.placement.nodes if job.placement is not None else ()


def _profile(name: str) -> Profile:
    """What an owner declares of a family on a V100."""
    family, source = FAMILIES[name], ValueSource.DECLARED
    return Profile(
        key=ProfileKey(name, 64, 1, "V100"),
        step_s=Value(family.step_s, source),
        step_median_s=Value(family.step_s, source),
        persistent_bytes=Value(family.persistent_mib * MIB, source),
        ephemeral_bytes=Value(family.ephemeral_mib * MIB, source),
        occupancy=Value(family.demand * family.step_s * 2e8, source),
    )

"""Random worlds: a core driven by random events as a live cluster would drive it, with every law checked each step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Decision,
    Ended,
    Event,
    IdleParkRequested,
    Launched,
    NodeDrained,
    NodeLost,
    NodeRegistered,
    Outcome,
    PartHalted,
    ProfileDeclared,
    Progressed,
    RequeueRequested,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.policy import Policy
from colane.model.hardware import Drain, Gpu, Node
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState, SuspendVia
from colane.model.job_spec import SAVED, CheckpointContract
from colane.model.phases import STEPPING
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import ASKS, MAY_REST, Progress
from colane.perf.beliefs import Beliefs

GIB = 2**30
FAMILIES = ("vgg11", "vgg19", "resnet18", "resnet50", "unknown")
TYPES = ("A100", "V100")
VIAS = (SuspendVia.LANE, SuspendVia.HOST)


def make_node(name: str, gpus: int, gpu_type: str = "V100", pool: str = "default", cores: int = 16) -> Node:
    devices = tuple(
        Gpu(
            index=i,
            uuid=f"GPU-{name}-{i}",
            type=gpu_type,
            sharing="mps",
            memory_bytes=16 * GIB,
            cores=(2 * i, 2 * i + 1),
        )
        for i in range(gpus)
    )
    return Node(name=name, gpus=devices, cores=tuple(range(cores)), host_memory_bytes=64 * GIB, pool=pool)


def make_profile(family: str, gpu_type: str, occupancy: float, memory_bytes: int, step_s: float = 0.1) -> Profile:
    measured = ValueSource.MEASURED
    return Profile(
        key=ProfileKey(family, 64, 1, gpu_type),
        step_s=Value(step_s, measured, 10),
        persistent_bytes=Value(memory_bytes / 2, measured),
        ephemeral_bytes=Value(memory_bytes / 2, measured),
        occupancy=Value(occupancy, measured, 10, "test"),
        bandwidth=Value(occupancy / 2, measured, 10, "test"),
    )


def living(job: Job) -> list[str]:
    """Nodes on which a job has processes."""
    return [node for node in job.placement.nodes if node not in job.run.ended_on] if job.placement else []


@dataclass
class World:
    """A core, a clock, and agents that do as they are told, at random speed."""

    policy: Policy
    seed: int
    config: CoreConfig = field(default_factory=CoreConfig)
    sized: bool = False
    """Whether some jobs can run on several numbers of GPUs."""
    cpu_only: bool = False
    """Whether some jobs have no GPUs."""
    drains: bool = False
    """Whether nodes are drained, with and without a deadline, and undrained."""
    saves: bool = False
    """Whether some jobs turn out to save their state by themselves, and to go on as fewer ranks."""
    serves: bool = False
    """Whether some jobs answer requests, with and without an objective, whatever their owners allow."""
    groups: bool = False
    """Whether there are more nodes, and some jobs have a number of GPUs on each of theirs."""
    idles: bool = False
    """Whether the rule for idle jobs parks some, which are seen once they would step again."""
    cuts: bool = False
    """Whether nodes fall silent, and come back as they were, with what stands halted there."""
    places: bool = False
    """Whether some jobs name the nodes that they may use, and some take theirs whole."""
    core: Core = field(init=False)
    now_s: float = 0.0
    ended: dict[JobId, Job] = field(default_factory=dict)
    submitted: dict[JobId, JobSpec] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    _next: int = 1

    def look_at_all(self) -> None:
        """Let the next plan look at every job, whoever has come alone."""
        for pool in self.core.state.queues:
            self.core._timers.more_happened(pool)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.core = Core(self.policy, ClusterState(Beliefs()), self.config)
        self.steps: dict[JobId, int] = {}
        self.cut_off: dict[str, Node] = {}
        one, two = (make_node(f"n{i}", 4 if self.sized else 2, TYPES[i == 1]) for i in range(2))
        self.step(NodeRegistered(replace(one, host_bandwidth_bytes_per_s=50 * GIB)), NodeRegistered(two))
        if self.groups:
            self.step(*(NodeRegistered(make_node(f"g{i}", gpus)) for i, gpus in enumerate((2, 3, 4, 1))))
        load = self.random.uniform
        profiles = (make_profile(f, kind, load(1e6, 2e7), 3 * GIB) for f in FAMILIES[:3] for kind in TYPES)
        self.step(*(ProfileDeclared(profile) for profile in profiles))

    def step(self, *events: Event) -> Outcome:
        self.now_s += self.random.choice((0.0, 0.5, 7.0))
        outcome = self.core.step(events, self.now_s)
        self._take(outcome)
        asks = 0
        latest = outcome
        while latest.wake_s is not None and latest.wake_s <= self.now_s:  # as a time limit that is over on resuming
            asks += 1
            assert asks < 10, "it would be asked at this instant for ever"
            latest = self.core.step((), self.now_s)
            self._take(latest)
        return outcome

    def _take(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.ended |= {job.id: job for job in outcome.jobs if job.has_ended}

    def random_event(self) -> Event:
        if self.drains and self.random.random() < 0.08:
            return self.drain()
        if self.cuts and self.random.random() < 0.3:
            return self.cut()
        if self.idles and self.random.random() < 0.15:
            return self.idle()
        makers = (self.submit, self.submit, self.submit, self.progress, self.progress, self.finish, self.other)
        return self.random.choice(makers)()

    def submit(self) -> Event:
        job, spec = JobId(self._next), self.several_sizes(self.spec()) if self.sized else self.spec()
        if self.cpu_only and self.random.random() < 0.3:
            cores = self.random.choice((0, 2, 4))
            spec = JobSpec(name=spec.name, family="cpu", gpus=0, cores=cores, pool=spec.pool, abortable=True)
        if self.serves and self.random.random() < 0.4:
            spec = replace(spec, kind=JobKind.INFERENCE, latency_s=self.random.choice((None, 0.05, 0.2, 5.0)))
        spec = self.in_groups(spec) if self.groups and spec.gpus and self.random.random() < 0.6 else spec
        spec = self.placed(spec) if self.places else spec
        self._next += 1
        self.submitted[job] = spec
        return Submitted(job, spec)

    def spec(self) -> JobSpec:
        pick = self.random
        return JobSpec(
            name=f"job-{self._next}",
            family=pick.choice(FAMILIES),
            user=pick.choice(("ann", "bob")),
            pool=pick.choice(("default", "default", "default", "default", "other")),
            gpus=(gpus := pick.choice((1, 1, 1, 1, 1, 1, 2, 4))),
            multi_node=gpus > 1 and pick.random() < 0.5,
            gpu_type=pick.choice((None, None, None, None, "V100", "A100")),
            gpu_memory_bytes=pick.choice((None, 2 * GIB, 9 * GIB)),
            cores=pick.choice((0, 0, 3)),
            host_memory_bytes=pick.choice((0, 20 * GIB)),
            priority=pick.choice((0, 0, 0, 1)),
            time_limit_s=pick.choice((None, None, 30.0)),
            retries=pick.choice((0, 2)),
            share=pick.random() < 0.9,
            batch_size=64,
            steps_limit=pick.choice((None, None, None, 40)),
            steps_total=pick.choice((None, 50, 400, 3000)),
            preemptible=pick.random() < 0.5,
            checkpoint=CheckpointContract("SIGUSR1", 9.0) if self._next % 3 == 0 else None,
            group=pick.choice(("", "", "g", "h")),
            host_bandwidth_bytes_per_s=pick.choice((0, 0, 30 * GIB)),
        )

    def several_sizes(self, spec: JobSpec) -> JobSpec:
        """Of every other job; those mostly go on from where they were."""
        sizes = self.random.choice(((), (1, 2), (1, 2, 3, 4), (2, 4)))
        return replace(spec, sizes=sizes, gpus=self.random.choice(sizes), preemptible=True) if sizes else spec

    def in_groups(self, spec: JobSpec) -> JobSpec:
        """One to three on each of its nodes; where it has several sizes, multiples of that."""
        each, most = self.random.choice((1, 2, 2, 3)), self.random.choice((1, 2, 3))
        sizes = tuple(each * nodes for nodes in range(1, most + 1)) if spec.sizes and most > 1 else ()
        return replace(spec, gpus=each * most, sizes=sizes, gpus_per_node=each, host_bandwidth_bytes_per_s=0)

    def placed(self, spec: JobSpec) -> JobSpec:
        """On some nodes alone, in every second case; whole ones in every fourth."""
        pick = self.random
        nodes = pick.choice(("", "", "n0", "n1", "n0,n2,z0,z1,z2", "not:n1", "not:n0,z0,z2"))
        return replace(spec, nodes=nodes, whole_node=pick.random() < 0.25)

    def running(self) -> list[Job]:
        return [job for job in self.core.state.jobs.values() if job.placement is not None]

    def progress(self) -> Event:
        running = self.running()
        if not running:
            return Tick()
        leaving = [job for job in running if job.is_leaving_gpus or job.is_on_host]
        job = self.random.choice(leaving if leaving and self.random.random() < 0.5 else running)
        node = self.random.choice(living(job))
        if job.halted is not None:
            return PartHalted(job.id, job.attempt, node)
        if job.state is JobState.ASSIGNED:
            return Launched(job.id, job.attempt, 100 + job.id, self.now_s, node)
        steps = self.steps.get(job.id, 0) + self.random.randrange(30)
        self.steps[job.id] = steps
        sample = self._sample(steps)
        if self.saves:
            sample = replace(sample, saves=job.id % 3 == 0, reforms=job.id % 2 == 0)
        if job.is_leaving_gpus or (job.is_on_host and job.state is JobState.PAUSED):
            moved = job.is_on_host or self.random.random() < 0.7
            refused = "" if moved else "it has two processes"
            sample = replace(sample, on_host_bytes=2 * GIB if moved else None, host_refusal=refused)
        if self.idles:
            waits = job.suspension is not None and job.suspension.until_step
            sample = replace(sample, rest=ASKS if waits and self.random.random() < 0.4 else MAY_REST)
        if job.state is JobState.CHECKPOINTING and self.random.random() < 0.3:
            sample = replace(sample, save_problem="No space left on device", saves_asked=job.run.saves_asked)
        return Progressed(job.id, job.attempt, sample, node)

    def _sample(self, steps: int) -> Progress:
        return Progress(
            at_s=self.now_s,
            steps=steps,
            first_step_s=self.now_s if steps else None,
            last_step_s=self.now_s if steps else None,
            persistent_bytes=GIB,
            peak_bytes=self.random.randrange(GIB, 6 * GIB),
            occupancy_ratio=self.random.random(),
            occupancy_by="test",
        )

    def finish(self) -> Event:
        running, standing = self.running(), sorted(self.core.state.halted)
        if standing and self.random.random() < 0.1:
            job = self.core.state.jobs[self.random.choice(standing)]
            node = self.random.choice(job.halted.placement.nodes) if job.halted is not None else ""
            return Ended(job.id, job.attempt, "signalled", Exit(None, 9), self.now_s - 1, self.now_s, None, node)
        if not running:
            return Tick()
        job = self.random.choice(running)
        ways: tuple[tuple[str, int], ...] = (("exited", 0), ("exited", 0), ("exited", 1), ("out-of-memory", 1))
        if job.state is JobState.CHECKPOINTING:
            ways = (("exited", SAVED), ("exited", SAVED), *ways)
        outcome, code = self.random.choice(ways)
        attempt = job.attempt - self.random.choice((0, 0, 0, 0, 1))
        node = self.random.choice(living(job))
        return Ended(job.id, attempt, outcome, Exit(code, None), self.now_s - 1, self.now_s, None, node)

    def other(self) -> Event:
        pick = self.random
        jobs = sorted(self.core.state.jobs)
        nodes = sorted(self.core.state.nodes)
        choice = pick.randrange(7)
        if choice == 0 and jobs:
            return CancelRequested(pick.choice(jobs), "ann")
        if choice == 1 and len(nodes) > 1:
            return NodeLost(pick.choice(nodes))
        if choice == 2:
            name = f"n{pick.randrange(5)}"
            return NodeRegistered(make_node(name, pick.choice((1, 2, 4)), TYPES[name < "n3"], self.pool(name)))
        if choice == 3:
            profile = make_profile(pick.choice(FAMILIES[:4]), pick.choice(TYPES), pick.uniform(1e6, 3e7), 3 * GIB)
            return ProfileDeclared(profile)
        if choice >= 4 and jobs:
            return self.suspend(jobs) if choice > 4 else self.resume(jobs)
        return Tick()

    def cut(self) -> Event:
        """A node falls silent, or one that has is heard again."""
        pick, there = self.random, self.core.state.nodes
        if self.cut_off and pick.random() < 0.6:
            return NodeRegistered(self.cut_off.pop(pick.choice(sorted(self.cut_off))))
        if not there:
            return Tick()
        name = pick.choice(sorted(there))
        self.cut_off[name] = there[name].node
        return NodeLost(name, frozenset(there), frozenset(there if pick.random() < 0.8 else ()))

    def drain(self) -> Event:
        """Of any node, or an end of it; by an operator or its agent."""
        pick = self.random
        deadline_s = pick.choice((None, self.now_s + 6.0))
        drain = Drain("ann", "a fan", self.now_s, deadline_s) if pick.random() < 0.6 else None
        nodes = sorted(self.core.state.nodes)
        return NodeDrained(pick.choice(nodes), drain, by_agent=pick.random() < 0.4) if nodes else Tick()

    def idle(self) -> Event:
        """Of any job, mostly of one that runs."""
        pick = self.random
        able = [job.id for job in self.running() if job.state is JobState.RUNNING]
        jobs = able if able and pick.random() < 0.8 else sorted(self.core.state.jobs)
        return IdleParkRequested(pick.choice(jobs), pick.uniform(0.0, 1e4)) if jobs else Tick()

    def suspend(self, jobs: list[JobId]) -> Event:
        """Of any job, mostly of one that can be; or it is asked, or asks itself, to be queued again."""
        pick = self.random
        if (held := [job.id for job in self.running()]) and pick.random() < 0.4:
            return RequeueRequested(pick.choice(held), "ann", pick.random() < 0.5)
        able = [job.id for job in self.running() if job.state in {*STEPPING, JobState.PAUSED}]
        return SuspendRequested(pick.choice(able if able and pick.random() < 0.8 else jobs), "ann", pick.choice(VIAS))

    def resume(self, jobs: list[JobId]) -> Event:
        """Of any job, mostly of one that is suspended."""
        pick = self.random
        able = [job for job in jobs if (each := self.core.state.jobs[job]).suspended or each.holds]
        return ResumeRequested(pick.choice(able if able and pick.random() < 0.8 else jobs), "ann")

    @staticmethod
    def pool(name: str) -> str:
        return "other" if name == "n4" else "default"

    def settle(self) -> None:
        """Faults stop: nodes that can hold every job join, and everything that runs ends well."""
        self.step(
            NodeRegistered(make_node("z0", 4, "V100")),
            NodeRegistered(make_node("z1", 4, "A100")),
            NodeRegistered(make_node("z2", 4, "V100", "other")),
            NodeRegistered(make_node("z3", 4, "A100", "other")),
            *(ResumeRequested(job, "ann") for job in self.core.state.jobs),
        )
        for _ in range(20 * len(self.submitted) + 20):
            if not self.core.state.jobs:
                return
            ends = [
                Ended(job.id, job.attempt, "exited", Exit(0, None), self.now_s, self.now_s, None, node)
                for job in self.running()
                for node in living(job)
            ]
            self.step(*ends, Tick())


def decided(world: World, steps: int, *, forgets: bool) -> list[Decision]:
    """What is decided in so many steps of two events, by a scheduler that remembers or one just started each time."""
    for _ in range(steps):
        if forgets:
            world.core.state._derived.clear()
            world.look_at_all()
        world.step(world.random_event(), world.random_event())
    return [decision for outcome in world.outcomes for decision in outcome.decisions]

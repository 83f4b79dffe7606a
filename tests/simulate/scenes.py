"""Small worlds, random workloads and a policy that keeps stopping jobs, for the laws of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import Outcome
from colane.core.policy import Policy
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.watcher import Watcher
from colane.lab.simulate.world import NO_STARTUP, Running, Scope, Startup, World
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId, JobSpec, JobState
from colane.model.placement import Turns
from colane.model.plan import Park, Plan, Stop
from colane.model.profile import Memory
from colane.model.reason import Reason, Why
from colane.scheduling.mechanisms.topology.free import first_fit

GIB = 1 << 30


def node(name: str, gpus: int, *, pool: str = "default", gpu_type: str = "v100") -> Node:
    devices = tuple(
        Gpu(index=i, uuid=f"{name}-{i}", type=gpu_type, memory_bytes=16 * GIB, socket=2 * i // gpus)
        for i in range(gpus)
    )
    return Node(name=name, gpus=devices, cores=tuple(range(8)), host_memory_bytes=64 * GIB, pool=pool)


def cluster(*gpus: int) -> Cluster:
    return Cluster("test", tuple(node(f"n{i}", count) for i, count in enumerate(gpus)))


def job(
    number: int, submit_s: float, duration_s: float | None, *, gpus: int = 1, steps: int | None = None, **needs: object
) -> TraceJob:
    wants: dict[str, object] = {"family": "f", "preemptible": True, **needs}
    spec = JobSpec(name=f"job-{number}", gpus=gpus, steps_total=steps, **wants)  # type: ignore[arg-type]
    return TraceJob(id=JobId(number), submit_s=submit_s, spec=spec, duration_s=duration_s)


def workload(*jobs: TraceJob) -> Workload:
    return Workload(name="test", jobs=jobs)


def random_jobs(seed: int, *, most_gpus: int = 2, with_steps: bool = False) -> tuple[TraceJob, ...]:
    """Up to 25 jobs; whole-numbered times make ties likely."""
    random, submit_s, jobs = Random(seed), 0.0, []
    for number in range(1, random.randint(2, 25)):
        submit_s += random.choice((0.0, 0.0, 1.0, 7.0, 30.0))
        duration_s = float(random.choice((0, 1, 5, 20, 100)))
        steps = random.choice((3, 40, 500)) if with_steps and duration_s > 0 else None
        gpus = random.randint(1, most_gpus)
        family, share = random.choice("abc"), random.random() < 0.9
        made = job(
            number, submit_s, duration_s, gpus=gpus, steps=steps, family=family, share=share,
            gpu_memory_bytes=random.choice((2, 5, 9)) * GIB,
        )  # fmt: skip
        jobs.append(made)
    return tuple(jobs)


def random_cluster(seed: int) -> Cluster:
    random = Random(seed)
    return cluster(*(random.randint(2, 4) for _ in range(random.randint(1, 3))))


class Parkings:
    """Counts how often each job was parked."""

    def __init__(self) -> None:
        self.of_job: Counter[JobId] = Counter()

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        del now_s
        self.of_job.update(done.action.job for done in outcome.decisions if isinstance(done.action, Park))

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest."""


def run(
    jobs: Sequence[TraceJob],
    machines: Cluster,
    policy: Policy,
    world: World,
    config: DriverConfig | None = None,
    *watchers: Watcher,
) -> Run:
    given = Inputs(
        cluster=machines, workload=workload(*jobs), world=world, policy=policy, driver=config or DriverConfig()
    )
    return simulate(given, watchers=lambda _: watchers)


@dataclass(frozen=True)
class Restless:
    """Starts jobs that fit; whenever one finds no place, stops one running job, another one each time."""

    name: str = "restless"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf
    most_attempts: int = 4

    def plan(self, view: ClusterView) -> Plan:
        draft = Draft(view)
        unplaced = False
        for pool in view.pools:
            for job_id in list(view.queue(pool)):
                waiting = view.job(job_id)
                gpus = first_fit(draft, waiting.spec)
                if gpus is None:
                    unplaced = True
                else:
                    draft.start(waiting, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        plan = draft.plan()
        return replace(plan, actions=(*plan.actions, *self._stops(view))) if unplaced else plan

    def _stops(self, view: ClusterView) -> list[Stop]:
        running = [j for j in view.jobs.values() if j.state is JobState.RUNNING and j.attempt < self.most_attempts]
        if not running:
            return []
        victim = running[view.version % len(running)]
        return [Stop(victim.id, Reason(Why.PREEMPTED, {"because": "the test says so"}, (victim.id,)))]


class Doubled:
    """Another world at twice the speed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.name = f"doubled {world.name}"
        self.counts_steps = world.counts_steps
        self.scope = world.scope
        self.refusal, self.work_steps = world.refusal, world.work_steps
        self.memory, self.occupancy_ratio = world.memory, world.occupancy_ratio
        self.startup = world.startup

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        return 2 * self._world.steps_per_s(me, others)


class Crowded:
    """One step a second alone; two on one GPU do not fit, though memory is said to."""

    name = "crowded"
    counts_steps = True
    scope = Scope.GPU

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        return None

    def work_steps(self, job: TraceJob) -> float:
        return float(job.steps or 1)

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        return NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:  # noqa: ARG002
        return 0.0 if others else 1.0

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        return Memory(GIB, GIB)

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        return 0.1

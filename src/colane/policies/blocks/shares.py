"""Who has how much of a pool: by user over several resources, by job over time and GPU types."""

from __future__ import annotations

from collections import Counter

from colane.core.view import ClusterView
from colane.model.job import Job, JobSpec, NeedClass
from colane.policies.blocks.times import RunTimes, present_s

RESOURCES = ("GPUs", "cores", "host memory")


def needs(spec: JobSpec) -> tuple[int, int, int]:
    """What a job takes of each of the resources."""
    return spec.gpus, spec.cores, spec.host_memory_bytes


class UserShares:
    """Dominant shares of users (Ghodsi et al. 2011, section 4)."""

    def __init__(self, view: ClusterView, pool: str) -> None:
        nodes = [node for node in view.nodes.values() if node.node.pool == pool]
        self._capacities = (
            sum(len(node.node.gpus) for node in nodes),
            sum(len(node.node.cores) for node in nodes),
            sum(node.node.host_memory_bytes for node in nodes),
        )
        self._taken: dict[str, list[int]] = {}
        for node in nodes:
            for job in node.jobs:
                self.add(view.jobs[job].spec)

    def add(self, spec: JobSpec) -> None:
        """Count a job that runs."""
        taken = self._taken.setdefault(spec.user, [0, 0, 0])
        for index, amount in enumerate(needs(spec)):
            taken[index] += amount

    def dominant(self, user: str) -> tuple[float, str]:
        """Largest share a user has of a resource, and which it is."""
        taken = self._taken.get(user, (0, 0, 0))
        parts = [amount / all_ if all_ else 0.0 for amount, all_ in zip(taken, self._capacities, strict=True)]
        return max(zip(parts, RESOURCES, strict=True), key=lambda share: share[0])


def fair_level(demands: Counter[int], capacity: float) -> float:
    """Most that any job may have when all that want more have equally much (water-filling).

    Args:
        demands: How many jobs want how many GPUs.
        capacity: GPUs there are.
    """
    left, jobs = capacity, demands.total()
    for demand in sorted(demands):
        if demand * jobs >= left:
            return left / jobs
        left -= demand * demands[demand]
        jobs -= demands[demand]
    return float(max(demands, default=0))


class FairShares:
    """What each job of a pool may have and has had, with GPU types made comparable (Gavel, section 4.1).

    A second on a GPU type counts by the job's throughput there over its throughput under equal time on all GPUs.
    Unknown step times count as equal.
    """

    def __init__(self, view: ClusterView, pool: str, times: RunTimes) -> None:
        nodes = [node for node in view.nodes.values() if node.node.pool == pool]
        self._times = times
        self._gpus = Counter(gpu.type for node in nodes for gpu in node.node.gpus if gpu.healthy)
        self._classes = Counter({need: len(line) for (_, need), line in view.queue(pool).classes.items()})
        running = [view.jobs[job].spec for job in {job for node in nodes for job in node.jobs}]
        self._classes.update(spec.need for spec in running)
        self._specs = {spec.need: spec for spec in running}
        for line in view.queue(pool).classes.values():
            spec = view.jobs[next(iter(line))].spec
            self._specs[spec.need] = spec
        self._types = view.gpu_types(pool)
        self._speeds: dict[NeedClass, dict[str, float]] = {}
        self._means: dict[str, float] = {}
        self.gpus = self._gpus.total()
        self.jobs = self._classes.total()

    @property
    def level(self) -> float:
        """GPUs that each job may have when all share them equally and nobody gets more than he asks for."""
        demands: Counter[int] = Counter()
        for need, jobs in self._classes.items():
            demands[need.gpus] += jobs
        return fair_level(demands, self.gpus)

    def speed(self, spec: JobSpec, gpu_type: str) -> float:
        """Throughput on a GPU type over throughput under equal time on all GPUs."""
        speeds = self._speeds.get(spec.need)
        if speeds is None:
            speeds = self._speeds[spec.need] = self._speeds_of(spec)
        return speeds.get(gpu_type, 1.0)

    def _speeds_of(self, spec: JobSpec) -> dict[str, float]:
        """Speeds on all GPU types on which its step time is known."""
        steps = {kind: self._times.step_s(spec, kind) for kind in self._types}
        known = {kind: 1 / step_s for kind, step_s in steps.items() if step_s}
        total = sum(self._gpus[kind] for kind in known)
        equal = sum(rate * self._gpus[kind] for kind, rate in known.items()) / total if total else 0.0
        return {kind: rate / equal for kind, rate in known.items()} if equal else {}

    def received_gpu_s(self, job: Job, now_s: float, gpu_type: str | None) -> float:
        """GPU-seconds a job has had by now, comparable over types; `gpu_type` is that of the GPUs it holds."""
        seconds = sum(self.speed(job.spec, served.gpu_type) * served.run_s for served in job.served)
        if gpu_type is not None:
            seconds += self.speed(job.spec, gpu_type) * present_s(job, now_s)
        return job.spec.gpus * seconds

    def preferred(self, spec: JobSpec, types: list[str]) -> list[str]:
        """GPU types for a job: first where it is fastest against what others are there, among equals the fastest."""
        if len(types) < 2:
            return types
        gain = {kind: round(self.speed(spec, kind) / self._mean_speed(kind), 9) for kind in types}
        return sorted(types, key=lambda kind: (-gain[kind], -self.speed(spec, kind), kind))

    def _mean_speed(self, gpu_type: str) -> float:
        if gpu_type not in self._means:
            users = [(n, self._specs[need]) for need, n in self._classes.items() if need.gpu_type in (None, gpu_type)]
            total = sum(n for n, _ in users)
            self._means[gpu_type] = sum(n * self.speed(spec, gpu_type) for n, spec in users) / total if total else 1.0
        return self._means[gpu_type]

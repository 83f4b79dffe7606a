"""How much of a pool each has: by user over several resources, by job over time and GPU types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from colane.core.cluster.view import ClusterView
from colane.facts.ran import at_present_size, present_s
from colane.model.hardware import is_instance_type
from colane.model.job import Job, JobSpec
from colane.model.resources import may_be_instances
from colane.scheduling.engine.live import LiveJobs, Need, once
from colane.scheduling.engine.times import RunTimes, gpu_type_of
from colane.scheduling.engine.user_weights import ALL_ALIKE, UserWeights
from colane.scheduling.mechanisms.fairness.users import Amounts, Users, needs, plus

RESOURCES = ("GPUs", "cores", "host memory")


class ShareBy(StrEnum):
    """What of a user's parts counts as the share."""

    DOMINANT = "dominant"  # the largest
    GPUS = "gpus"  # that of GPUs, which paper D takes as dominant


GAINS_APART: Final = 1e9
"""How many times the gains of two GPU types, as parts of 1, tell them apart: less is error of their sums."""


class UserShares:
    """Dominant shares of users (Ghodsi et al. 2011, section 4), with what is decided while a plan is made."""

    def __init__(
        self, view: ClusterView, pool: str, share_by: ShareBy = ShareBy.DOMINANT, weights: UserWeights = ALL_ALIKE
    ) -> None:
        self._share_by = share_by
        self._weights = weights
        self._users = view.derived(Users)
        self._pool = pool
        self._capacities = self._users.capacities(view, pool)
        self._taken: dict[str, Amounts] = {}

    def add(self, spec: JobSpec) -> None:
        """Count a job that will run at that size."""
        self._taken[spec.user] = plus(self._of(spec.user), needs(spec, spec.gpus))

    def weighted(self, user: str) -> float:
        """A user's dominant share over the user's weight."""
        return self.dominant(user)[0] / self._weights.of(user)

    def dominant(self, user: str) -> tuple[float, str]:
        """Largest share a user has of a resource, and which it is."""
        amounts = zip(self._of(user), self._capacities, strict=True)
        parts = [amount / all_ if all_ else 0.0 for amount, all_ in amounts]
        if self._share_by is ShareBy.GPUS:
            return parts[0], RESOURCES[0]
        return max(zip(parts, RESOURCES, strict=True), key=lambda share: share[0])

    def _of(self, user: str) -> Amounts:
        taken = self._taken.get(user)
        return self._users.taken(self._pool, user) if taken is None else taken


def fair_level(demands: Counter[int], capacity: float) -> float:
    """Most that any job may have when all that want more have equally much (water-filling).

    Args:
        demands: How many jobs want how many GPUs.
        capacity: GPUs there are.
    """
    left, jobs = capacity, sum(demands.values())
    for demand, wanting in sorted(demands.items()):
        if demand * jobs >= left:
            return left / jobs
        left -= demand * wanting
        jobs -= wanting
    return float(max(demands, default=0))


class AttainedService(NamedTuple):
    """What a job, as it stands, has had before its present attempt, and how fast it is at what it has now."""

    before_s: float
    speed: float


class FairShares:
    """What each job of a pool may have and has had, with GPU types made comparable (Gavel, section 4.1).

    A second on a GPU type counts by the job's throughput there over its throughput under equal time on all GPUs.
    Unknown step times count as equal.
    """

    def __init__(self, view: ClusterView, pool: str, times: RunTimes) -> None:
        standing = view.derived(LiveJobs)
        self.types = standing.types_in_use(view, pool)
        kept = standing.kept_over(view, pool, tuple(self.types))
        self._view = view
        self._times = times
        gpus = standing.gpus(view, pool)
        self._gpus = Counter({kind: gpus[kind] for kind in self.types})
        self._standing = standing.pool(pool)
        self._kept = kept
        self.gpus = sum(self._gpus.values())
        self.jobs = sum(self._standing.demands.values())

    @property
    def level(self) -> float:
        """GPUs that each job may have when all share them equally and none gets more than it asks for."""
        return fair_level(self._standing.demands, self.gpus)

    def speed(self, spec: JobSpec, gpu_type: str) -> float:
        """Throughput on a GPU type over throughput under equal time on all GPUs."""
        return self._speeds(spec).get(gpu_type, 1.0)

    def speed_if_any(self, spec: JobSpec, gpu_type: str) -> float:
        """The same; 0 where it may not run or is known of others but not of this type, 1 where it is known of none."""
        if spec.gpu_type not in (None, gpu_type) or (is_instance_type(gpu_type) and not may_be_instances(spec)):
            return 0.0
        speeds = self._speeds(spec)
        return speeds.get(gpu_type, 0.0) if speeds else 1.0

    def usable(self, spec: JobSpec) -> list[tuple[str, float]]:
        """GPU types on which a job can run as far as is known, with its speed there."""
        speeds = [(kind, self.speed_if_any(spec, kind)) for kind in self.types]
        return [entry for entry in speeds if entry[1] > 0]

    def _speeds(self, spec: JobSpec) -> Mapping[str, float]:
        speeds = self._kept.speeds.get(spec.need)
        if speeds is None:
            speeds = self._kept.speeds[spec.need] = self._speeds_of(spec)
        return speeds

    def _speeds_of(self, spec: JobSpec) -> dict[str, float]:
        """Speeds on all GPU types on which its step time is known."""
        steps = {kind: self._times.step_s(spec, kind) for kind in self.types}
        known = {kind: 1 / step_s for kind, step_s in steps.items() if step_s}
        total = sum(self._gpus[kind] for kind in known)
        equal = sum(rate * self._gpus[kind] for kind, rate in known.items()) / total if total else 0.0
        return {kind: rate / equal for kind, rate in known.items()} if equal else {}

    def received_gpu_s(self, job: Job, now_s: float) -> float:
        """GPU-seconds a job has had by now, comparable over types."""
        had = once(self._kept.jobs, job, self._service)
        return job.gpu_count * (had.before_s + had.speed * present_s(job, now_s))

    def _service(self, job: Job) -> AttainedService:
        gpu_type = gpu_type_of(self._view, job)
        before_s = sum(
            [
                self.speed(job.effective, one.gpu_type) * (one.run_s * at_present_size(one, job))
                for one in job.totals.served
            ]
        )
        return AttainedService(before_s, 0.0 if gpu_type is None else self.speed(job.effective, gpu_type))

    def preferred(self, spec: JobSpec, types: list[str]) -> list[str]:
        """GPU types for a job: first where it is fastest against what others are there, among equals the fastest."""
        if len(types) < 2:
            return types
        speeds, means, found = self._speeds(spec), self._mean_speeds(), list[tuple[int, float, str]]()
        for kind in types:
            speed = speeds.get(kind, 1.0)
            found.append((-int(speed / means[kind] * GAINS_APART + 0.5), -speed, kind))
        found.sort()
        return [kind for _, _, kind in found]

    def _mean_speeds(self) -> dict[str, float]:
        """Of all jobs that may run on a type, by type."""
        kept = self._kept
        if kept.means_of != self._standing.version:
            needs = [self._known(need) for need in self._standing.needs.values()]
            kept.means_of = self._standing.version
            kept.means = {kind: _mean(needs, kind, place) for place, kind in enumerate(self.types)}
        return kept.means

    def _known(self, need: Need) -> Need:
        """A class with its speeds."""
        if need.of is not self._kept:
            speeds = self._speeds(need.spec)
            need.of, need.speeds = self._kept, [speeds.get(gpu_type, 1.0) for gpu_type in self.types]
        return need


def _mean(needs: list[Need], gpu_type: str, place: int) -> float:
    """Speed of a job on a type, of those that may run there."""
    jobs, speeds = 0, 0.0
    for need in needs:
        only = need.spec.gpu_type
        if only is None or only == gpu_type:
            jobs += need.jobs
            speeds += need.jobs * need.speeds[place]
    return speeds / jobs if jobs else 1.0

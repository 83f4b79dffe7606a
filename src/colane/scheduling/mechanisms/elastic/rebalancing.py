"""Running elastic jobs come to the sizes that are planned for them, if that pays what stopping and starting cost.

What is planned for a pool is carried out node by node, as far as its GPUs reach, and last for the jobs that may span
nodes, on whatever is free then: a job shrinks for one that grows within the same reach, or for one that waits
(`sources.shrinking`). GPUs that are free all the same go to the jobs that get faster by
them, beyond what is planned; they are the first to be taken back. A job that gives GPUs up is resized at once; one that
gets those waits until they are free: two decisions, so that no job is promised what another still holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import launch_s
from colane.model.job import Job, JobId
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.sized_rates import counts_steps
from colane.scheduling.engine.unended import expected_now
from colane.scheduling.engine.usual import UsualMoving
from colane.scheduling.mechanisms.elastic.planned import PlannedSizes
from colane.scheduling.mechanisms.elastic.reach import EVERYWHERE, grown, kept, reach_of, usable
from colane.scheduling.mechanisms.elastic.running import elastic_jobs, is_resizable

STOP_S: Final = 1.0  # what saving the state and stopping is believed to cost beside the launch, where nothing was seen


@dataclass(frozen=True, slots=True)
class Rebalancing(UsualMoving):
    """Resizes running elastic jobs to their planned sizes."""

    sizes: PlannedSizes  # how many GPUs each is to have
    # those of a reach that change must make so many more together (paper E's prototype: 1), if all count steps
    rise_steps_per_s_min: float = 0.0
    rise_ratio_min: float = 0.05  # and so much more than they make now, as a part of it
    pays_back: bool = True  # whether a job that grows must regain its restart in the time it has left

    def plan(self, context: SchedulingContext) -> None:
        """Resize the jobs the plan gives another size, then let others have what is left."""
        context.draft.plan_while_idle(context.pool)
        context.draft.plan_after_moves(context.pool)
        found = _by_reach(context)
        targets = self.sizes.targets(context) if found else {}
        for reach in sorted(found, key=lambda reach: reach == EVERYWHERE):
            jobs = found[reach]
            site = _SitePlan(self, context, reach, jobs)
            site.aim({job.id: targets.get(job.id, job.gpu_count) for job in jobs})
            site.use_leftovers()
            site.carry_out()


def _by_reach(context: SchedulingContext) -> dict[str, list[Job]]:
    """Jobs that may be resized now, and of which nothing has been decided in this plan, by where they may lie."""
    found: dict[str, list[Job]] = {}
    for job in elastic_jobs(context):
        if is_resizable(context.draft, job):
            found.setdefault(reach_of(job), []).append(job)
    return found


class _Surplus:
    """GPUs that jobs have beyond their targets, in order of the jobs.

    Attributes:
        gpus: How many in all.
    """

    def __init__(self) -> None:
        self.gpus = 0
        self._of: deque[tuple[JobId, int]] = deque()

    def add(self, job: JobId, gpus: int) -> None:
        """A job has so many to give."""
        if gpus:
            self.gpus += gpus
            self._of.append((job, gpus))

    def take(self) -> tuple[JobId, int]:
        """All that the next job has."""
        job, gpus = self._of.popleft()
        self.gpus -= gpus
        return job, gpus


class _SitePlan:
    """What becomes of the elastic jobs of one node, or of those that may span nodes.

    Attributes:
        now: Sizes that the jobs come to.
    """

    def __init__(self, settings: Rebalancing, context: SchedulingContext, reach: str, jobs: list[Job]) -> None:
        self._settings = settings
        self._context = context
        self._jobs = jobs
        self._expected = expected_now(context.draft, context.pool)
        self._speeds: dict[tuple[JobId, int], float] = {}
        self.now = {job.id: job.gpu_count for job in jobs}
        kinds = {job.id: context.draft.load(job.gpus_held[0]).gpu.type for job in jobs}
        self._kind = kinds
        self._free = {kind: usable(context, reach, kind) for kind in set(kinds.values())}

    def aim(self, targets: dict[JobId, int]) -> None:
        """Let jobs grow towards their targets, out of free GPUs and of what others have beyond theirs."""
        before, free = dict(self.now), dict(self._free)
        surplus = {kind: _Surplus() for kind in self._free}
        for job in self._jobs:
            surplus[self._kind[job.id]].add(job.id, self._surplus(job, targets[job.id]))
        for job in self._jobs:
            if targets[job.id] > self.now[job.id]:
                self._grow(job, targets[job.id], surplus[self._kind[job.id]])
        if not self._is_worth_it(before):
            self.now, self._free = before, free

    def use_leftovers(self) -> None:
        """Give free GPUs to those that are not resized anyway, one by one to the job that gains most."""
        before, free = dict(self.now), dict(self._free)
        while (best := max(self._steps(), default=None)) is not None:
            _, _, index, size = best
            job = self._jobs[index]
            self._free[self._kind[job.id]] -= size - self.now[job.id]
            self.now[job.id] = size
        if not self._is_worth_it(before):
            self.now, self._free = before, free

    def carry_out(self) -> None:
        """Resize those whose size has changed; a job that gets GPUs another still holds comes later."""
        for job in sorted(self._jobs, key=lambda job: self.now[job.id] - job.gpu_count):
            loads = self._gpus(job, self.now[job.id])
            if loads is not None:
                why = Why.GROWN if len(loads) > job.gpu_count else Why.SHRUNK
                self._context.draft.resize(job, loads, Reason(why, {"had": job.gpu_count, "gpus": len(loads)}))

    def _grow(self, job: Job, target: int, surplus: _Surplus) -> None:
        """To the largest size up to its target that there are GPUs for."""
        kind, now = self._kind[job.id], self.now[job.id]
        within = self._free[kind] + surplus.gpus
        sizes = [n for n in job.effective.sizes if now < n <= min(target, now + within)]
        while sizes and not self._pays(job, sizes[-1]):
            sizes.pop()
        if not sizes:
            return
        while sizes[-1] - now > self._free[kind]:
            giver, gpus = surplus.take()
            self.now[giver] -= gpus
            self._free[kind] += gpus
        self._free[kind] -= sizes[-1] - now
        self.now[job.id] = sizes[-1]

    def _surplus(self, job: Job, target: int) -> int:
        """GPUs a job has beyond its target, down to a size it can run on."""
        if self._context.draft.is_spared(job.id):
            return 0
        size = max([n for n in job.effective.sizes if n <= target], default=self.now[job.id])
        return max(0, self.now[job.id] - size)

    def _steps(self) -> Iterator[tuple[float, float, int, int]]:
        """Larger sizes of jobs that free GPUs allow and that make them faster: gain for a GPU, order, job, size."""
        for index, job in enumerate(self._jobs):
            now = self.now[job.id]
            if now < job.gpu_count:
                continue
            for size in job.effective.sizes:
                if now < size <= now + self._free[self._kind[job.id]]:
                    gain = (self._speed(job, size) - self._speed(job, now)) / (size - now)
                    if gain > 0 and self._pays(job, size):
                        yield gain, -index, index, size

    def _is_worth_it(self, before: dict[JobId, int]) -> bool:
        """Whether those that change make enough steps more by it."""
        changed = [job for job in self._jobs if self.now[job.id] != before[job.id]]
        had = sum([self._speed(job, before[job.id]) for job in changed], 0.0)
        rise = sum([self._speed(job, self.now[job.id]) for job in changed], 0.0) - had
        least = self._settings.rise_ratio_min * had
        if all(counts_steps(self._context.draft, job) for job in changed):
            least = max(least, self._settings.rise_steps_per_s_min)
        return rise > 0 and rise >= least

    def _pays(self, job: Job, gpus: int) -> bool:
        """Whether what is left of a job that grows takes less time by it, its restart counted."""
        if not self._settings.pays_back:
            return True
        now, then = self._speed(job, job.gpu_count), self._speed(job, gpus)
        return then > 0 and self._left_s(job) * (1 - now / then) > launch_s(job) + STOP_S

    def _left_s(self, job: Job) -> float:
        """How long a job is believed to run on as it is; where its length is unknown, as long as it has."""
        left_s, sizes, draft = self._expected.left_s(job), self._settings.sizes, self._context.draft
        if left_s is None:
            return self._expected.rest_s(job)
        now = sizes.rate(draft, job, job.gpu_count)
        return left_s * sizes.rate(draft, job, job.effective.gpus) / now if now > 0 else inf

    def _speed(self, job: Job, gpus: int) -> float:
        asked = (job.id, gpus)
        speed = self._speeds.get(asked)
        if speed is None:
            speed = self._speeds[asked] = self._settings.sizes.rate(self._context.draft, job, gpus)
        return speed

    def _gpus(self, job: Job, gpus: int) -> tuple[GpuLoad, ...] | None:
        """With which it goes on; fewer than planned where cores or host memory lack. None where it stays as it is."""
        if gpus < job.gpu_count:
            return kept(self._context, job, gpus)
        for size in reversed(job.effective.sizes):
            if job.gpu_count < size <= gpus and (size == gpus or self._pays(job, size)):
                loads = grown(self._context, job, size)
                if loads is not None:
                    return loads
        return None

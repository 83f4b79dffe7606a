"""How many GPUs each job of a pool is to have, worked out once in a plan by Listing 1 of paper E.

Planned are the jobs that wait and the elastic ones that run and are not protected; what others hold is not to be had,
and their speed counts in the variance if they are elastic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId, JobSpec, NeedClass
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.sized_rates import goodput, most_on_a_node
from colane.scheduling.engine.times import gpu_type_of
from colane.scheduling.mechanisms.elastic.running import elastic_jobs, is_resizable
from colane.scheduling.mechanisms.elastic.share_out import Throughput, envelope, share_out


class PlannedSizes:
    """A sizer that has a number of GPUs in mind for each job; subclasses say what counts.

    Two that are equal have the same in mind.
    """

    __slots__ = ()

    @property
    def variance_bound(self) -> float:
        """On the variance of speeds; 1 is none."""
        return 1.0

    @property
    def by_goodput(self) -> bool:
        """Whether steps count by what they teach, where a job tells the noise of its gradient; else all alike."""
        return False

    def weight(self, _context: SchedulingContext, _job: Job, _most_steps_per_s: float) -> float:
        """What a step per second of a job counts that makes so many with all GPUs."""
        return 1.0

    def rate(self, draft: Draft, job: Job, gpus: int) -> float:
        """Throughput of a job with so many GPUs, or its goodput: times its statistical efficiency."""
        return goodput(draft, job, gpus, counts_noise=self.by_goodput)

    def targets(self, context: SchedulingContext) -> Mapping[JobId, int]:
        """GPUs for each job that is planned; a job that gets none is left out."""
        asked = (self, context.pool)
        found: Mapping[JobId, int] | None = context.draft.worked_out.get(asked)
        if found is None:
            jobs, gpus, fixed_speeds = _PoolThroughputs(self, context).asks()
            found = context.draft.worked_out[asked] = share_out(jobs, gpus, self.variance_bound, fixed_speeds)
        return found

    def sizes(self, context: SchedulingContext, job: Job) -> Iterator[JobSpec]:
        """The size it is to have; where that finds no place, or it is to have none, the smaller ones."""
        if not job.effective.sizes:
            yield job.effective
            return
        most = max(self.targets(context).get(job.id, 0), self.fewest(job.effective))
        for gpus in reversed(job.effective.sizes):
            if gpus <= most:
                yield job.effective.at(gpus)

    def fewest(self, asked: JobSpec | NeedClass) -> int:
        return asked.sizes[0] if asked.sizes else asked.gpus

    def room_for(self, _context: SchedulingContext, job: Job) -> int:
        return self.fewest(job.effective)


class _PoolThroughputs:
    """What Listing 1 is asked for one pool."""

    def __init__(self, sizes: PlannedSizes, context: SchedulingContext) -> None:
        self._sizes = sizes
        self._context = context
        self._draft = context.draft
        self._known: dict[tuple[object, ...], Throughput | None] = {}
        live = self._draft.view.derived(LiveJobs)
        self._kinds = live.types_in_use(self._draft.view, context.pool)
        self._all = live.usable_gpus(self._draft.view, context.pool)
        self._most_on_a_node = most_on_a_node(self._draft)

    def asks(self) -> tuple[dict[JobId, Throughput], int, list[float]]:
        """Jobs with their throughputs in order of arrival, GPUs to be had, and speeds that stay."""
        jobs: dict[JobId, Throughput] = {}
        fixed: list[float] = []
        gpus = self._free()
        running = list(elastic_jobs(self._context))
        for job in running:
            throughput = self._throughput(job)
            if is_resizable(self._draft, job) and throughput is not None:
                jobs[job.id] = throughput
                gpus += job.gpu_count
            elif throughput is not None:
                fixed.append(self._sizes.rate(self._draft, job, job.gpu_count) / throughput.steps_per_s[-1])
        for job in self._waiting():
            throughput = self._throughput(job)
            if throughput is not None:
                jobs[job.id] = throughput
        return jobs, gpus, fixed

    def _free(self) -> int:
        """GPUs of the pool that are free."""
        masks = [self._draft.free((self._context.pool, kind)).masks[1:] for kind in self._kinds]
        return sum([mask.bit_count() for of_kind in masks for mask in of_kind])

    def _waiting(self) -> Iterator[Job]:
        """Those in the queue, in their order, as many as there are GPUs at most."""
        draft, left = self._draft, self._all
        for job_id in draft.view.queue(self._context.pool):
            if left <= 0:
                return
            job = draft.view.job(job_id)
            left -= job.effective.gpus_min
            yield job

    def _throughput(self, job: Job) -> Throughput | None:
        """By sizes; speeds are asked once for all jobs of a kind."""
        spec = job.effective
        noise = job.noise_scale if self._sizes.by_goodput else None
        asked = (spec.need, gpu_type_of(self._draft.view, job), noise)
        if asked not in self._known:
            most = self._all if spec.multi_node else self._most_on_a_node
            points = [(n, self._sizes.rate(self._draft, job, n)) for n in spec.sizes or (spec.gpus,) if n <= most]
            self._known[asked] = envelope(points, most)
        found = self._known[asked]
        if found is None:
            return None
        return Throughput(found.gpus, found.steps_per_s, self._sizes.weight(self._context, job, found.steps_per_s[-1]))

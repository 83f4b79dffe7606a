"""How many GPUs each job is to have (paper E, Listing 1), worked out once for a pool in a plan.

Planned are the jobs that wait and the elastic ones that run and are not protected; what others hold is not to be had,
and their speed counts in the variance if they are elastic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from colane.core.draft import Draft
from colane.model.job import Job, JobId, JobSpec, JobState, NeedClass
from colane.perf.situation import Situation
from colane.policies.elastic.share_out import Throughput, envelope, share_out
from colane.policies.indexes.live import LiveJobs
from colane.policies.parts import Desk
from colane.policies.times import gpu_type_of


@dataclass(frozen=True, slots=True)
class FairThroughput:
    """See the module.

    Attributes:
        variance_max: Bound on the variance of speeds, each throughput over that with all GPUs there are. The paper's
            evaluation has 0.5, which no variance of numbers in 0..1 reaches.
        normalised: Whether what a job gains counts in parts of what it reaches with all GPUs; else in steps per second,
            as in the paper, which favours jobs with quick steps.
    """

    variance_max: float = 0.05
    normalised: bool = False

    def targets(self, desk: Desk) -> Mapping[JobId, int]:
        """GPUs for each job that is planned; who gets none is left out."""
        asked = (self, desk.pool)
        found: Mapping[JobId, int] | None = desk.draft.worked_out.get(asked)
        if found is None:
            jobs, gpus, fixed_speeds = _PoolThroughputs(desk, normalised=self.normalised).asks()
            found = desk.draft.worked_out[asked] = share_out(jobs, gpus, self.variance_max, fixed_speeds)
        return found

    def sizes(self, desk: Desk, job: Job) -> Iterator[JobSpec]:
        """See `Sizer`: the size it is to have; where that finds no place, or it is to have none, the smaller ones."""
        most = max(self.targets(desk).get(job.id, 0), self.fewest(job.spec))
        for gpus in sorted(job.spec.sizes or (job.spec.gpus,), reverse=True):
            if gpus <= most:
                yield job.spec.at(gpus)

    def fewest(self, asked: JobSpec | NeedClass) -> int:
        """See `Sizer`."""
        return asked.sizes[0] if asked.sizes else asked.gpus


USUAL_SIZES: Final = FairThroughput()


def steps_per_s(draft: Draft, job: Job, gpus: int) -> float:
    """Throughput of a job alone with so many GPUs; in parts of that at the size it asked for, while none is known.

    What is known of one of its sizes gives the unit of the others: steps per second are not weighed against parts.
    """
    gpu_type = gpu_type_of(draft.view, job) or ""
    rate = draft.beliefs.rate(job.spec, Situation(gpu_type, gpus))
    if rate.steps_per_s is not None:
        return rate.steps_per_s
    for size in sorted(job.spec.sizes, key=lambda size: (abs(size - gpus), size)):
        known = draft.beliefs.rate(job.spec, Situation(gpu_type, size))
        if known.steps_per_s is not None:
            return known.steps_per_s * rate.ratio / known.ratio
    return rate.ratio


def is_resizable(job: Job) -> bool:
    """Whether a running job may be given another number of GPUs now."""
    return bool(job.spec.sizes) and job.spec.preemptible and job.state is JobState.RUNNING and not job.parked


def elastic_jobs(desk: Desk) -> Iterator[Job]:
    """Running jobs of the pool of several sizes, in order of id."""
    view = desk.draft.view
    for job_id in sorted(view.derived(ElasticJobs).of(desk.pool)):
        yield view.job(job_id)


class ElasticJobs:
    """Jobs of several sizes that hold GPUs, by pool; kept from one plan to the next."""

    def __init__(self) -> None:
        self._pools: dict[str, set[JobId]] = {}

    def touched(self, node: int) -> None:
        """See `Derived`."""

    def removed(self, node: int) -> None:
        """See `Derived`."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        """See `DerivedOfJobs`."""
        if old is not None and _holds(old):
            self._pools[old.spec.pool].discard(old.id)
        if new is not None and _holds(new):
            self._pools.setdefault(new.spec.pool, set()).add(new.id)

    def of(self, pool: str) -> set[JobId]:
        """Those of a pool."""
        return self._pools.get(pool, NOBODY)


NOBODY: Final[set[JobId]] = set()


def _holds(job: Job) -> bool:
    return bool(job.spec.sizes) and job.placement is not None and not job.home


class _PoolThroughputs:
    """What Listing 1 is asked for one pool."""

    def __init__(self, desk: Desk, *, normalised: bool) -> None:
        self._desk = desk
        self._draft = desk.draft
        self._normalised = normalised
        self._known: dict[tuple[object, ...], Throughput | None] = {}
        kinds = self._draft.view.gpu_types(desk.pool)
        counts = self._draft.view.derived(LiveJobs).gpus(self._draft.view, desk.pool)
        self._all = sum([counts[kind] for kind in kinds])
        taking = [node.node for node in self._draft.view.nodes.values() if not node.node.drains]
        self._most_on_a_node = max([len(node.gpus) for node in taking], default=0)

    def asks(self) -> tuple[dict[JobId, Throughput], int, list[float]]:
        """Jobs with their throughputs in order of arrival, GPUs to be had, and speeds that stay."""
        jobs: dict[JobId, Throughput] = {}
        fixed: list[float] = []
        gpus = self._free()
        running = list(elastic_jobs(self._desk))
        for job in running:
            throughput = self._throughput(job)
            if is_resizable(job) and throughput is not None:
                jobs[job.id] = throughput
                gpus += job.gpu_count
            elif throughput is not None:
                fixed.append(steps_per_s(self._draft, job, job.gpu_count) / throughput.steps_per_s[-1])
        for job in self._waiting():
            throughput = self._throughput(job)
            if throughput is not None:
                jobs[job.id] = throughput
        return jobs, gpus, fixed

    def _free(self) -> int:
        """GPUs of the pool that are free."""
        draft, pool = self._draft, self._desk.pool
        masks = [draft.free((pool, kind)).masks[1:] for kind in draft.view.gpu_types(pool)]
        return sum([mask.bit_count() for of_kind in masks for mask in of_kind])

    def _waiting(self) -> Iterator[Job]:
        """Those in the queue, in their order, as many as there are GPUs at most."""
        draft, left = self._draft, self._all
        for job_id in draft.view.queue(self._desk.pool):
            if left <= 0:
                return
            job = draft.view.job(job_id)
            left -= job.spec.gpus_min
            yield job

    def _throughput(self, job: Job) -> Throughput | None:
        """By sizes; asked once for all jobs of a kind."""
        spec = job.spec
        asked = (spec.need, gpu_type_of(self._draft.view, job))
        if asked not in self._known:
            most = self._all if spec.multi_node else self._most_on_a_node
            points = [(n, steps_per_s(self._draft, job, n)) for n in spec.sizes or (spec.gpus,) if n <= most]
            found = envelope(points, most)
            if found is not None and self._normalised:
                found = found._replace(weight=1 / found.steps_per_s[-1])
            self._known[asked] = found
        return self._known[asked]

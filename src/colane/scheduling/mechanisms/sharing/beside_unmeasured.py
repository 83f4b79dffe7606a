"""Next to co-runners with which sharing was never measured, to be tried; and why a job finds none with which it pays.

What is known of sharing is weighed where all changes are (`mechanisms.price`). A pair is tried one at a time, once the
job there makes steps: what is learnt counts for all such jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from colane.core.cluster.contents import News
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.queue import Line
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, Classes, ClassKey, Order, SchedulingContext
from colane.scheduling.engine.refusals import no_place
from colane.scheduling.engine.usual import BoundSourceDefaults, SourceDefaults
from colane.scheduling.mechanisms.sharing.groups import Hopes
from colane.scheduling.mechanisms.sharing.sharing_places import may_share
from colane.scheduling.mechanisms.sharing.sharing_values import JOBS_PER_GPU_MAX, SharingValues


@dataclass(frozen=True, slots=True)
class BesideUnmeasured(SourceDefaults):
    """The source of GPUs on which sharing is to be tried."""

    jobs_per_gpu_max: int = JOBS_PER_GPU_MAX  # jobs on one GPU at most

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing."""
        return self.jobs_per_gpu_max <= 1

    def bind(self, context: SchedulingContext) -> BoundUnmeasured | None:
        return None if self.is_idle else BoundUnmeasured(context, self.jobs_per_gpu_max)

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """No job is stopped."""
        return inf

    @property
    def awaits_first_steps(self) -> bool:
        return True


TRIED: Final = 0.05
"""What sharing counts as worth when it was never measured: little, so that what is known to pay goes before."""


class BoundUnmeasured(BoundSourceDefaults):
    """`BesideUnmeasured` for one plan.

    Where a plan may look at no more than what has changed (`ClusterView.news`), jobs that came are asked for any GPU,
    others for GPUs that jobs came to or left or on which one may do more than before, as from its first steps on.
    """

    def __init__(self, context: SchedulingContext, jobs_per_gpu_max: int) -> None:
        self._draft = context.draft
        self._pool = context.pool
        self._values = SharingValues(context.draft, context.pool, jobs_per_gpu_max - 1, context.queue)
        self._news = None if context.explains else context.draft.view.news(context.pool)
        self._changed = None if self._news is None else dict.fromkeys(self._news.gpus)

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        for kind in self._draft.view.gpu_types_for(spec):
            load = self._untried(job, spec, kind)
            if load is not None:
                yield self._try(spec, load)

    def changed(self, _gpus: Iterable[GpuLoad]) -> None:
        self._values.look()

    def may_help(self, classes: Classes) -> Classes:
        """Classes for which there is sharing to be tried, cores apart, and those that are looked at one by one."""
        hopes = Hopes()
        if classes is self._draft.view.queue(self._pool).classes:
            hopes = self._values.gpu_groups.hopes.setdefault(self._pool, hopes)
        hopes.look(classes)
        tried, found, news = self._tried(hopes.tries), hopes.found, self._news
        if news is not None and found:
            kinds, came = self._draft.view.gpu_types(self._pool), self._came(news)
            may_try = any(self._values.may_try(kind, self._changed) for kind in kinds)
            found = {key: line for key, line in found.items() if may_try or key[1].home or key in came}
        return {**found, **tried} if tried else found

    def _came(self, news: News) -> dict[ClassKey, None]:
        """Classes of the jobs that came."""
        view = self._draft.view
        came = [view.job(job) for job in news.came if job in view.jobs]
        return dict.fromkeys([(job.spec.priority, job.need) for job in came])

    def _tried(self, classes: Classes) -> Classes:
        """Those of classes of one GPU of which one may be tried, on GPUs whose only job makes steps."""
        view, values, news = self._draft.view, self._values, self._news
        kinds = view.gpu_types(self._pool) if classes else []
        if news is None:
            return self._among(classes, [kind for kind in kinds if values.may_try(kind)])
        changed = [kind for kind in kinds if values.may_try(kind, self._changed)]
        found = self._among(classes, changed, self._changed)
        lines = {key: classes[key] for key in self._came(news) if key in classes and key not in found}
        return {**found, **self._among(lines, [kind for kind in kinds if lines and values.may_try(kind)])}

    def _among(self, classes: Classes, kinds: Sequence[str], gpus: Mapping[GpuId, None] | None = None) -> Classes:
        """Classes of which the first job may be tried on one of these types, on these GPUs where any are named."""
        return {key: line for key, line in classes.items() if self._may_try(line, kinds, gpus)} if kinds else {}

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Co-runners that would not pay, or a first run alone."""
        if not may_share(spec):
            return None
        kinds = self._draft.view.gpu_types_for(spec)
        numbers = [(kind, self._values.number(job, spec, kind)) for kind in kinds]
        known = [(kind, number) for kind, number in numbers if number is not None]
        found = [self._values.nearest(job, spec, number, kind) for kind, number in known]
        best = max([one for one in found if one is not None], key=lambda joining: joining.rise, default=None)
        if best is not None and best.rise <= best.least:
            facts: dict[str, str | int | float] = {
                "gpu": str(best.load.id), "gain": best.rise, "least": best.least
            }  # fmt: skip
            return Reason(Why.NO_GAIN, facts, best.load.jobs)
        lacking = no_place(self._draft, spec)
        is_kept = any(self._draft.view.gpu(gpu).is_free for gpu in self._draft.held)  # then it waits behind that job
        return None if known or is_kept or not lacking.gpus else replace(lacking.reason, why=Why.UNKNOWN_ALONE_FIRST)

    def _may_try(self, line: Line, kinds: Sequence[str], gpus: Mapping[GpuId, None] | None) -> bool:
        job = None if line.first is None else self._draft.view.job(line.first)
        if job is None:
            return False
        found = False
        for kind in kinds:
            if job.spec.gpu_type in {None, kind}:
                number = self._values.number(job, job.effective, kind)
                found = found or (number is not None and self._values.has_untried(number, kind, gpus))
        return found

    def _untried(self, job: Job, spec: JobSpec, kind: str) -> GpuLoad | None:
        number = self._values.number(job, spec, kind) if may_share(spec) else None
        gpus = None if self._news is None or job.id in self._news.came else self._changed
        return None if number is None else self._values.untried(job, spec, number, kind, gpus)

    def _try(self, spec: JobSpec, load: GpuLoad) -> Candidate:
        """No job loses more by it than by taking turns; what is learnt counts for all such jobs."""
        ratio = self._values.rate(spec, load, load.bookings).ratio
        reason = Reason(Why.TRIES_SHARING, {"gpu": str(load.id)}, load.jobs)
        return Candidate((load,), reason, ratio=ratio, harm=ratio - TRIED)

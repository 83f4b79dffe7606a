"""Preemption for a waiting job: the least valuable running ones leave their GPUs.

Their GPUs are free once their processes are gone, or their memory is; until then they are kept for the job that was
done for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf
from typing import Final

from colane.core.cluster.contents import News
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.situations import situation_in
from colane.core.planners.means import cheapest, leaving_s
from colane.model.job import Job, JobSpec
from colane.model.plan import Park, Stop
from colane.model.reason import Reason, Why
from colane.model.resources import Resources, host_needs
from colane.scheduling.engine.choices import urgent_value
from colane.scheduling.engine.contracts import (
    Candidate,
    Classes,
    ClassKey,
    Order,
    Outlook,
    Rank,
    SchedulingContext,
)
from colane.scheduling.engine.live import LiveJobs, Priorities
from colane.scheduling.engine.usual import BoundSourceDefaults, SourceDefaults
from colane.scheduling.engine.waiting import Openings, Waits
from colane.scheduling.engine.walks import by_priority
from colane.scheduling.mechanisms.preemption.vacancies import Vacancies, Vacancy
from colane.scheduling.mechanisms.preemption.victims import Coming, NodeVictims, Pieces, VictimSurvey, add_to, take_from

CLASSES_MAX: Final = 256  # so many classes of waiting jobs are asked whether others leave for them, in order

CLASSES_SEEN_MAX: Final = 32  # the same where no more is looked at than what has changed


class PreemptsFor(StrEnum):
    """Which jobs take which jobs' places."""

    ORDER = "order"  # jobs that go before others in the order of the composition, by as much as the order demands
    GANGS = "gangs"  # by their order, in pools where any job has several GPUs: among jobs of one GPU others decide
    PRIORITY = "priority"  # jobs of higher priority those of lower
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Preemption(SourceDefaults):
    """The source of places that other jobs leave."""

    preempts: PreemptsFor = PreemptsFor.ORDER  # which jobs take which jobs' places
    # whether also on several nodes for a job that may span them, and jobs that run over several leave
    over_nodes: bool = True
    # whether none is preempted for a place that a job would decline: its utility there is below its least
    postpones: bool = False
    # whether others leave at once for a job of several GPUs that has waited too long, whatever that loses: else GPUs
    # are kept for it one by one as they fall free, idle till the last of them does
    for_overdue: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether it does nothing."""
        return self.preempts is PreemptsFor.NEVER

    def bind(self, context: SchedulingContext) -> BoundPreemption | None:
        if self.preempts in {PreemptsFor.ORDER, PreemptsFor.GANGS}:
            return BoundPreemption(self, context, context.queue.displaces)
        if self.preempts is PreemptsFor.PRIORITY and _may_outrank(context):
            return BoundPreemption(self, context, by_priority)
        return None

    def min_runtime_before_preemption_s(self, order: Order) -> float:
        """The order's quantum, which holds among equals only where room is made by the order."""
        return order.quantum_s if self.preempts in {PreemptsFor.ORDER, PreemptsFor.GANGS} else inf


def _may_outrank(context: SchedulingContext) -> bool:
    """Whether a waiting job has a higher priority than a running one."""
    highest = max(context.draft.view.queue(context.pool).lines, default=None)
    lowest = context.draft.view.derived(Priorities).lowest(context.pool)
    return highest is not None and lowest is not None and highest > lowest


class BoundPreemption(BoundSourceDefaults):
    """`Preemption` for one plan."""

    at_home = True
    preempts = True

    def __init__(self, source: Preemption, context: SchedulingContext, displaces: Callable[[Rank, Rank], bool]) -> None:
        self._context = context
        self._for_overdue = source.for_overdue
        self._samples = source.preempts is PreemptsFor.GANGS
        self._news = None if context.explains else context.draft.view.news(context.pool)
        self._live = context.draft.view.derived(LiveJobs).pool(context.pool)
        self._has_gangs = max(self._live.demands, default=0) > 1
        self._gpus_min = 2 if source.preempts is PreemptsFor.GANGS and not self._has_gangs else 1
        self._draft = context.draft
        self._waits = Waits(context.draft, context.pool, context.queue)
        self._openings = Openings(context.draft, context.pool, context.queue)
        self._survey = VictimSurvey(context, displaces, over_nodes=source.over_nodes, samples=self._samples)
        self._vacancies = Vacancies(context, self._survey, over_nodes=source.over_nodes, postpones=source.postpones)
        context.draft.plan_after_moves(context.pool)

    @property
    def outlook(self) -> Outlook:
        """Nothing while nothing comes free and no job may be stopped."""
        return Outlook.NONE if self._survey.is_empty else Outlook.ALL

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        if job.home or spec.gpus >= self._gpus_min:
            vacancy = self._vacancies.find(job, spec, self._rank)
            if vacancy is not None:
                yield from self._candidate(job, spec, vacancy)

    def may_help(self, classes: Classes) -> Classes:
        """None while nothing comes free and no job may be stopped; of very many classes those first in the order.

        Where a plan may look at no more than what has changed, others than those of jobs that came, and of those for
        which jobs are leaving, are asked only where GPUs opened or more jobs may be stopped; none where none could.
        """
        if self._survey.is_empty:
            return {}
        if self._gpus_min > 1:
            classes = {key: line for key, line in classes.items() if key[1].gpus > 1 or key[1].home}
        news, now_s, quantum_s, asked = self._news, self._draft.now_s, self._context.queue.quantum_s, CLASSES_MAX
        if news is not None:  # there may be more room than before where GPUs changed, or more jobs may be stopped
            newly = next(self._live.past_min_runtime(now_s, quantum_s, news.since_s), None)
            asked = CLASSES_SEEN_MAX if newly is not None or any(map(self._survey.opens, news.gpus)) else 0
        if not self._samples:
            return classes
        found = classes
        if len(classes) > asked:
            found = {} if news is None else {key: classes[key] for key in self._awaited(news) if key in classes}
            for key, _ in self._heads(classes) if asked else ():
                if len(found) >= asked:
                    break
                found[key] = classes[key]
        survey = self._survey
        if not found or survey.open_nodes or any(survey.may_displace(self._rank(job)) for _, job in self._heads(found)):
            return found
        self._context.left_out = True
        return {}

    def _heads(self, classes: Classes) -> Iterator[tuple[ClassKey, Job]]:
        """The first job of each class in order: where that finds nothing, none behind it in its class does."""
        for job in (walk := self._context.queue.walk(partial(dict, classes))):
            yield (job.spec.priority, job.need), job
            walk.skip_class()

    def _awaited(self, news: News) -> list[ClassKey]:
        """Classes of the jobs that came, and of those for which others are leaving."""
        jobs, going = self._draft.view.jobs, self._live.going.values()
        numbers = [*sorted(news.came), *[one.preempted_for for one in going if one.preempted_for is not None]]
        return [(jobs[job].spec.priority, jobs[job].need) for job in numbers if job in jobs and jobs[job].is_waiting]

    def plan_again(self) -> None:
        self._survey.plan_again()
        if self._for_overdue and self._has_gangs and not self._survey.is_empty:
            self._context.watch_overdue()

    # -- choosing

    def _is_overdue(self, job: Job) -> bool:
        """Whether a gang has waited so long that others of its priority leave for it whatever they lose."""
        return self._for_overdue and job.effective.gpus > 1 and not job.home and self._context.is_overdue(job)

    def _rank(self, job: Job) -> Rank:
        """Its place in the order; one that is overdue goes first of its priority."""
        rank = self._context.queue.rank(job)
        return (rank[0], *[-inf for _ in rank[1:]]) if self._is_overdue(job) else rank

    # -- deciding

    def _candidate(self, job: Job, spec: JobSpec, vacancy: Vacancy) -> Iterator[Candidate]:
        room, gpus = self._room(job, vacancy), vacancy.gpus
        if room is None or (room and self._would_wait(job, spec, gpus, room)):
            return
        draft, reason = self._draft, Reason(Why.PREEMPTING, {}, tuple([action.job for action in room]))
        waits_for = tuple(sorted({other for load in gpus for other in load.jobs}))
        lacks = [host_needs(spec, len(part.gpus)) - draft.host_free(part.site.node) for part in vacancy.parts]

        pieces = [piece for unit in vacancy.units for piece in self._survey.everywhere(unit)]

        def accepted() -> None:
            """Note which jobs leave, and what of all that comes free the job takes besides what was free."""
            self._leave(job, pieces)
            for part, lack in zip(vacancy.parts, lacks, strict=True):
                self._take(job, part.site, lack)

        harm, cost_s = self._harm(job, room), self._cost_s(room)
        highest = max([draft.view.job(action.job).spec.priority for action in room], default=0)
        if highest < job.spec.priority or self._is_overdue(job):
            harm, cost_s = 1.0 - urgent_value(1.0, harm, cost_s, self._context.queue.left_s(job)), 0.0
        yield Candidate(
            gpus, reason, room=room, waits_for=waits_for, accepted=accepted, is_later=True,
            harm=harm, cost_s=cost_s,
        )  # fmt: skip

    def _would_wait(self, job: Job, spec: JobSpec, there: Sequence[GpuLoad], room: Iterable[Stop | Park]) -> bool:
        """Whether a job had better wait for a place than have those of its own priority leave."""
        if min([self._draft.view.job(action.job).spec.priority for action in room]) < job.spec.priority:
            return False
        if self._is_overdue(job):
            return False
        return self._openings.suffice(job, spec, there)

    def _harm(self, job: Job, room: Iterable[Stop | Park]) -> float:
        """Speed of the jobs that leave, by what it weighs against the job's."""
        draft, weigh, lost = self._draft, self._context.queue.weigh, 0.0
        for victim in [draft.view.job(action.job) for action in room]:
            here = situation_in(draft.view.gpu(victim.gpus_held[0]), victim.id, draft.view.jobs)
            lost += draft.beliefs.rate(victim.effective, here).ratio * weigh(victim) / weigh(job)
        return lost

    def _cost_s(self, room: Iterable[Stop | Park]) -> float:
        view = self._draft.view
        return max([leaving_s(view, view.job(action.job), action) for action in room], default=0.0)

    def _room(self, job: Job, vacancy: Vacancy) -> tuple[Stop | Park, ...] | None:
        """How each job leaves that has to; None where one cannot, as the host lacks memory for all of them."""
        draft, room, host_bytes = self._draft, list[Stop | Park](), dict[str, int]()
        away_s = self._context.queue.left_s(job) or 0.0
        for unit in vacancy.units:
            for victim in map(draft.view.job, unit.jobs):
                node = victim.placement.node if victim.placement is not None else ""
                action = cheapest(
                    draft, victim, job.id, self._context.queue.because_of(job, victim), host_bytes.get(node, 0), away_s
                )
                if action is None or (isinstance(action, Park) and self._waits.keeps_place(victim, job)):
                    return None
                if isinstance(action, Park):
                    host_bytes[node] = host_bytes.get(node, 0) + draft.view.bytes_to_move(victim)
                room.append(action)
        return tuple(room)

    def _leave(self, job: Job, pieces: Pieces) -> None:
        """What comes free is kept for the job, on every node of those that leave."""
        for site, unit in pieces:
            site.coming += [Coming(gpu, job.id) for gpu in unit.gpus]
            add_to(site.cores, job.id, unit.cores)
            add_to(site.host_memory_bytes, job.id, unit.host_memory_bytes)
            add_to(site.host_bandwidth, job.id, unit.host_bandwidth)
        for site in {site.node.order: site for site, _ in pieces}.values():
            self._survey.stopped(site)
            self._survey.keep_open(site)

    def _take(self, job: Job, site: NodeVictims, lack: Resources) -> None:
        take_from(site.cores, job.id, lack.cores)
        take_from(site.host_memory_bytes, job.id, lack.host_memory_bytes)
        take_from(site.host_bandwidth, job.id, int(max(0.0, lack.host_bandwidth_bytes_per_s)))
        self._survey.keep_open(site)

"""The adaptive core allocator: the cores of running training jobs follow what they achieve (CODA, paper D, IV-B).

While a job runs, it is given one number of cores after another for a time each, as its tuner says, and ends with the
fewest that are as good as the best. It waits for nothing and is stopped for nothing: cores change at once, free ones
are taken but for one for each idle GPU, and what is given up is free for others. What a family was found to need is in
its profile, so the next job of it starts with that, or with what there is: as cores come free, or where one job has
more than its part of a node and another less, they are shared out anew (`cpu.shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.contended import is_contended
from colane.core.cluster.core_shares import CoreShares
from colane.core.cluster.draft import Draft, shared_part
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.state import ClusterState
from colane.core.cluster.useful_cores import is_tuned, tries, useful_cores_of
from colane.core.cluster.view import ClusterView
from colane.core.events import Event
from colane.core.planners.sampled import SampleWatch
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.cpu.shares import Share, share_out
from colane.cpu.tuner import TUNERS, CoreTry, found, next_total
from colane.cpu.window import TryWindow
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobState
from colane.model.phases import STEPPING
from colane.model.placement import Placement
from colane.model.plan import Plan
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.words import percent

SLACK_STEPS = 2  # a sample is taken this many steps after the moment that counts, so that a whole step lies behind it


@dataclass(slots=True)
class Search:
    """The search for one attempt's cores."""

    attempt: int  # which
    window: TryWindow  # the number of cores on trial
    # what was tried, the start first; cores of all its GPUs together
    tried: list[CoreTry] = field(default_factory=list)
    changes: int = 0  # how often it had its job's cores changed
    is_over: bool = False  # whether it has ended
    short_of: int = 0  # the number of cores that it ended for want of; it goes on once its job is given more

    @property
    def kept(self) -> int:
        """Cores that its job gave up to be tried with fewer, and may have back."""
        return 0 if self.is_over or not self.tried else max(0, found(self.tried).cores - self.window.cores)


class CoreTuning(SampleWatch):
    """Notices when a try has lasted long enough, and plans the next.

    Args:
        state: The cluster's state.
        config: How; None tunes no job.
        contention: When bandwidth is short; a try in which it was begins anew.
    """

    name = "core-tuning"

    def __init__(
        self, state: ClusterState, config: TuningConfig | None, contention: ContentionConfig | None = None
    ) -> None:
        super().__init__(state, is_on=config is not None)
        self._contention = contention
        self._config = config or TuningConfig()
        self._searches: dict[JobId, Search] = {}
        self._ready: dict[JobId, None] = {}
        self._uneven: dict[str, None] = {}

    @property
    def is_due(self) -> bool:
        """Whether a try is over, and its job's cores may change, or a node's are to be shared out anew."""
        jobs = self._state.jobs
        is_ready = any(job in jobs and jobs[job].state is JobState.RUNNING for job in self._ready)
        return is_ready or bool(self._uneven)

    def notice(self, events: Iterable[Event]) -> None:
        """Look at what was seen in this step, and at nodes on which cores have come free, or a job runs short."""
        super().notice(events)
        if not self.is_on:
            return
        index = self._state.derived(CoreShares)
        for order in index.due if index.jobs else ():
            node = self._state.by_order.get(order)
            if node is not None and self._is_uneven(node, index.jobs.get(node.node.name, {})):
                self._uneven[node.node.name] = None
        index.due.clear()

    def _is_uneven(self, node: NodeState, jobs: Mapping[JobId, None]) -> bool:
        """Whether cores are to be shared out anew among these jobs of a node."""
        if not jobs or node.has_cpu_devices:
            return False
        return bool(share_out(self._shares(node, jobs), _spare(self._state, node) - self._kept(node.node.name)))

    def _kept(self, node: str, of_others_than: JobId | None = None) -> int:
        """Free cores of a node that jobs which are being tried with fewer may have back."""
        searches, jobs = self._searches, self._state.derived(CoreShares).jobs.get(node, {})
        return sum([searches[job].kept for job in jobs if job in searches and job != of_others_than])

    def _shares(self, node: NodeState, jobs: Iterable[JobId]) -> list[Share]:
        """What the jobs of a node whose cores are tuned have of it, and would like to have."""
        found = []
        for job in [self._state.jobs[each] for each in sorted(jobs)]:
            has = 0 if job.placement is None else len(job.placement.cores)
            found.append(Share(job.id, has, max(has, self._wants(job, has)), _part(self._state, node, job)))
        return found

    def _wants(self, job: Job, has: int) -> int:
        """As it was found, or as it would have started; what it has while it is tried how fast it goes with that.

        One that was fastest with the most it could have so far, as its like was, may be faster with more: up to twice
        that, as far as others leave it free, for a try.
        """
        search = self._searches.get(job.id)
        right = 0
        if search is not None and search.attempt == job.attempt and search.tried:
            right = found(search.tried).cores if search.is_over else has
            if not search.is_over or search.short_of or right < _most_tried(search):
                return search.short_of or right
        useful = useful_cores_of(self._state, job)
        if useful is None:
            useful = job.effective.part(job.effective.cores_offered, len(job.gpus_held))
        return max(useful, 2 * right)

    def _share_out(self, draft: Draft, node: NodeState) -> None:
        """Those that give up cores first, so that these are there for the others."""
        jobs = draft.view.derived(CoreShares).jobs.get(node.node.name, {})
        shares = [each for each in self._shares(node, jobs) if draft.is_undecided(each.job)]
        changes = share_out(shares, _spare(self._state, node) - self._kept(node.node.name))
        for job_id in sorted(changes, key=lambda each: changes[each] - len(_cores_of(draft, each))):
            job, count = draft.view.job(job_id), changes[job_id]
            if job.placement is None:
                continue
            had, choice = len(job.placement.cores), _near_first(draft, job.placement)
            because = GIVEN if count > had else TAKEN_BACK
            facts: dict[str, str | int | float] = {"cores": min(count, len(choice)), "had": had, "because": because}
            if facts["cores"] == had:
                continue
            search = self._searches.get(job_id)
            goes_on = search is not None and ((search.short_of > 0 and count > had) or count > _most_tried(search))
            if search is not None and (not search.is_over or goes_on):
                search.is_over, search.short_of, conditions = False, 0, search.window.conditions
                search.window = TryWindow(count, draft.now_s + self._config.settle_s, conditions)
            draft.set_cores(job, tuple(sorted(choice[:count])), Reason(Why.CORES_CHANGED, facts))

    def _forget(self, job: JobId) -> None:
        self._searches.pop(job, None)
        self._ready.pop(job, None)

    def _sampled(self, job: Job, progress: Progress) -> None:
        if job.state in STEPPING:
            self._look(job, progress, self._config)

    def waits_s(self, job: JobId) -> tuple[float, ...]:
        """When a driver that samples only where it matters is to sample a job, counted from a change, in seconds."""
        config, live, search = self._config, self._state.jobs.get(job), self._searches.get(job)
        if not self.is_on or live is None or not _may_be_tuned(live) or (search is not None and search.is_over):
            return ()
        first = config.settle_s if search is not None else config.warm_up_s
        return first, first + config.settle_s, first + 2 * config.settle_s + config.window_s

    def _look(self, job: Job, progress: Progress, config: TuningConfig) -> None:
        search = self._searches.get(job.id)
        if search is None or search.attempt != job.attempt:
            search = self._begin(job, progress, config)
        if search is None or search.is_over or job.id in self._ready:
            return
        if job.placement is None:
            return
        cores, conditions = len(job.placement.cores), self._conditions(job)
        is_other = (search.window.cores, search.window.conditions) != (cores, conditions)
        if is_other or is_contended(self._state, job.placement.node, self._contention, progress.at_s):
            begins_s = progress.at_s + config.settle_s  # how fast it has gone says nothing of its cores now
            search.window = TryWindow(cores, begins_s, conditions)
        best = max([one.speed for one in search.tried if one.cores != search.window.cores], default=None)
        trial = search.window.add(progress, config, is_alone=not self._co_runners(job), best=best)
        if trial is not None:
            search.tried.append(trial)
            self._ready[job.id] = None

    def _begin(self, job: Job, progress: Progress, config: TuningConfig) -> Search | None:
        """Begin with what is known of its kind; the number it has is tried first unless that is known too."""
        if not _may_be_tuned(job) or job.placement is None:
            return None
        unit, cores = len(job.placement.slots), len(job.placement.cores)
        began_s = progress.at_s if progress.first_step_s is None else progress.first_step_s
        window = TryWindow(cores, began_s + config.warm_up_s, self._conditions(job))
        search = self._searches[job.id] = Search(job.attempt, window)
        kind = self._state.gpus[job.placement.gpus[0]].gpu.type
        known = tries(self._state.knowledge.profile(job.effective, kind, unit))
        own = [one for one in known if one.cores == cores]
        if own and len(known) > 1:
            search.tried = own + [one for one in known if one.cores != cores]
            self._ready[job.id] = None
        return search

    def _conditions(self, job: Job) -> tuple[tuple[JobId, ...], float]:
        """What a try is one of: the other jobs on its GPUs, and how long it has stood still so far."""
        return self._co_runners(job), job.run.paused_before_s

    def _co_runners(self, job: Job) -> tuple[JobId, ...]:
        gpus = self._state.gpus
        return tuple(sorted({other for gpu in job.gpus_held for other in gpus[gpu].jobs if other != job.id}))

    def plan(self, view: ClusterView) -> Plan:
        """Give every job whose try is over what its tuner says."""
        draft = Draft(view)
        for job_id in list(self._ready):
            job, search = view.jobs.get(job_id), self._searches.get(job_id)
            if job is None or search is None or search.attempt != job.attempt:
                del self._ready[job_id]
            elif job.state is JobState.RUNNING and job.placement is not None:
                del self._ready[job_id]
                self._go_on(draft, job, job.placement, search)
        for name in self._uneven:
            node = view.nodes.get(name)
            if node is not None:
                self._share_out(draft, node)
        self._uneven.clear()
        return draft.plan()

    def _go_on(self, draft: Draft, job: Job, placement: Placement, search: Search) -> None:
        choice, had = _near_first(draft, placement), len(placement.cores)
        node = draft.view.nodes[placement.node]
        others = shared_part(node, draft.view.jobs, draft.load) + self._kept(placement.node, of_others_than=job.id)
        most = max(had, len(choice) - _idle_gpus(node, draft.load) - others)
        wanted = self._wanted(search, most, len(placement.slots), draft.view.progress(job.id))
        search.is_over = wanted is None or wanted > most
        search.short_of = 0 if wanted is None or wanted <= most else wanted
        cores = min(most, found(search.tried).cores if wanted is None or search.is_over else wanted)
        if search.is_over and found(search.tried).cores > cores:  # those that have more than their part give it back
            self._state.derived(CoreShares).touched(node.order)
        because = _told(search.tried) + ("" if search.is_over else f"; tries {cores}")
        facts: dict[str, str | int | float] = {"cores": cores, "had": had, "because": because}
        if cores == had:
            draft.remark(job, Reason(Why.CORES_KEPT, facts), learn=True)
            return
        search.changes += 1
        search.window = TryWindow(cores, draft.now_s + self._config.settle_s, search.window.conditions)
        draft.set_cores(job, tuple(sorted(choice[:cores])), Reason(Why.CORES_CHANGED, facts))

    def _wanted(self, search: Search, most: int, gpus: int, progress: Progress | None) -> int | None:
        """What is to be tried next; None once its cores are found, or where it ends too soon."""
        if _ends_soon(search, progress, self._config):
            return None
        return next_total(TUNERS[self._config.tuner], search.tried, most, gpus, search.changes)


GIVEN: Final = "others leave them free"
TAKEN_BACK: Final = "others there have less than their part of the node's"


def _most_tried(search: Search) -> int:
    """The most cores that a search has tried; 0 before it has tried any."""
    return max([one.cores for one in search.tried], default=0)


def _cores_of(draft: Draft, job: JobId) -> tuple[int, ...]:
    placement = draft.view.job(job).placement
    return () if placement is None else placement.cores


def _spare(state: ClusterState, node: NodeState) -> int:
    """Cores of a node that may be given away.

    All that are free but one for each GPU on which a job may start, and the parts of jobs that have booked none.
    """
    load = state.gpus.__getitem__
    return node.cores_free - _idle_gpus(node, load) - shared_part(node, state.jobs, load)


def _idle_gpus(node: NodeState, load: Callable[[GpuId], GpuLoad]) -> int:
    """GPUs of a node on which a job may start that has them to itself."""
    return len([gpu for gpu in node.ids.values() if load(gpu).is_free])


def _part(state: ClusterState, node: NodeState, job: Job) -> int:
    """Its part of a node's cores by its GPUs, those that it shares counted in part; one at least."""
    gpus = sum([1 / max(1, len(state.gpus[gpu].bookings)) for gpu in job.gpus_held if gpu in state.gpus])
    return max(1, int(len(node.node.cores) * gpus / max(1, len(node.ids))))


def _may_be_tuned(job: Job) -> bool:
    """Whether it has cores of its own, on one node."""
    placement = job.placement
    return is_tuned(job.effective) and placement is not None and len(placement.nodes) == 1 and bool(placement.cores)


def _near_first(draft: Draft, placement: Placement) -> list[int]:
    """Cores of its node that it has or could have: those near its GPUs first, of these its own."""
    node = draft.view.nodes[placement.node]
    own, loads = set(placement.cores), [draft.load(gpu) for gpu in placement.gpus]
    near = {core for load in loads for core in load.gpu.cores}
    devices = _cores_of_other_devices(node, loads)
    free = [core for core in draft.cores_free(node) if core not in devices]
    return sorted({*own, *free}, key=lambda core: (core not in near, core not in own, core))


def _cores_of_other_devices(node: NodeState, loads: list[GpuLoad]) -> set[int]:
    """Cores that are cpu devices of others."""
    own = {load.gpu.index for load in loads}
    return {core for gpu in node.node.gpus if gpu.is_cpu_device and gpu.index not in own for core in gpu.cores}


def _ends_soon(search: Search, progress: Progress | None, config: TuningConfig) -> bool:
    """Whether it is known to end before tuning would pay."""
    if progress is None or progress.steps_total is None or not progress.steps:
        return False
    return (progress.steps_total - progress.steps) / search.tried[-1].speed < config.left_min_s


def _told(tried: list[CoreTry]) -> str:
    """What was tried, by cores of all its GPUs together."""
    best = max([one.speed for one in tried])
    return "tried " + ", ".join([f"{one.cores} ({percent(one.speed / best)})" for one in tried])

"""The contention eliminator: jobs without GPUs are held back where they slow training jobs (CODA, paper D, V-D).

Agents report how much of the bandwidth of a node's memory each job uses; whether a training job is slowed shows in its
own steps, against those it made while the bandwidth was not short, else against what is believed of it. One that came
when it was short already, and of which nothing is believed, is taken for slowed until it is known. What changes is
a decision like any other: the agent bounds the job's bandwidth where its machine can, else the job has fewer cores, and
jobs with GPUs leave free what it gave up, so that it can have that back. Training and inference are never held back.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.situations import rate_of
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.core.events import BandwidthObserved, Event
from colane.core.planners.sampled import SampleWatch
from colane.cpu.contention import Change, Consumer, ContentionConfig, Look, NodeWatch
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.phases import STEPPING, Throttle
from colane.model.placement import TurnRule
from colane.model.plan import Plan
from colane.model.progress import BandwidthSample, Progress
from colane.model.reason import Reason, Why
from colane.model.words import count, percent
from colane.perf.pace import Paces

CALM_WINDOWS_MAX = 9  # the pace of an undisturbed job is the median of its last so many windows

NO_TRAINING = "no training job makes steps there any more"
NOT_SHORT = "it has not been short for a while"


@dataclass(slots=True)
class TrainingPace:
    """How fast a training job was and is."""

    co_runners: Hashable  # its cores and the jobs on its GPUs; with others it goes at another speed
    began_s: float  # when the window that goes on began
    # times of a step in windows in which the bandwidth of its node was not short
    calm_s: list[float] = field(default_factory=list)
    # time of a step in the latest window; None before one has ended since something was done on its node
    now_s: float | None = None


@dataclass(slots=True)
class Watched:
    """A node that is watched."""

    watch: NodeWatch  # its thresholds and timers
    sample: BandwidthSample  # what was measured last
    short_s: float = float("-inf")  # when the bandwidth was last seen to be short
    changes: int = 0  # how often a job was throttled or released: windows end with each


class Contention(SampleWatch):
    """Notices where training jobs are slowed for lack of bandwidth, and plans which jobs are throttled or released.

    Args:
        state: The cluster's state.
        config: Thresholds; None watches nothing.
    """

    name = "contention"

    def __init__(self, state: ClusterState, config: ContentionConfig | None) -> None:
        super().__init__(state, is_on=config is not None)
        self._config = config or ContentionConfig()
        self._nodes: dict[str, Watched] = {}
        self._trained: dict[JobId, TrainingPace] = {}
        self._paces = Paces()
        self._fresh: list[str] = []

    @property
    def is_due(self) -> bool:
        """Whether something was measured since it was asked last."""
        return bool(self._fresh)

    def _forget(self, job: JobId) -> None:
        self._trained.pop(job, None)
        self._paces.forget(job)

    def _noticed(self, event: Event) -> None:
        if isinstance(event, BandwidthObserved):
            self._measured(event)

    def _measured(self, event: BandwidthObserved) -> None:
        sample, config = event.sample, self._config
        if sample.used_ratio is None or event.node not in self._state.nodes:
            return
        known = self._nodes.get(event.node)
        if known is None:
            known = self._nodes[event.node] = Watched(NodeWatch(config), sample)
        known.sample = sample
        if sample.used_ratio >= config.threshold_ratio:
            known.short_s = sample.at_s
        self._fresh.append(event.node)

    def _sampled(self, job: Job, progress: Progress) -> None:
        if job.placement is None or not trains(job):
            return
        node = self._nodes.get(job.placement.node)
        co_runners = self._co_runners(job)
        known = self._trained.get(job.id)
        if known is None or known.co_runners != co_runners:
            known = self._trained[job.id] = TrainingPace(co_runners, progress.at_s)
        self._window(job, known, node, progress)

    def _window(self, job: Job, known: TrainingPace, node: Watched | None, progress: Progress) -> None:
        """Take a sample; one that ends a window says how fast the job is now, or was while nothing was short."""
        key = known.co_runners, 0 if node is None else node.changes
        steps_min, window_s = self._config.steps_min, self._config.interval_s
        if not self._paces.add(job.id, key, progress, steps_min=steps_min, window_s=window_s):
            return
        known.now_s = self._paces.step_s(job.id)
        if known.now_s is not None and (node is None or node.short_s < known.began_s):
            known.calm_s = [*known.calm_s, known.now_s][-CALM_WINDOWS_MAX:]
        known.began_s = progress.at_s

    def _co_runners(self, job: Job) -> Hashable:
        gpus, placement = self._state.gpus, job.placement
        co_runners = tuple(sorted({other for gpu in job.gpus_held for other in gpus[gpu].jobs if other != job.id}))
        return job.attempt, co_runners, placement.cores if placement is not None else ()

    def plan(self, view: ClusterView) -> Plan:
        """Hold back or let go, node by node."""
        draft, fresh = Draft(view), dict.fromkeys(self._fresh)
        self._fresh = []
        for name in fresh:
            node, known = view.nodes.get(name), self._nodes.get(name)
            if node is None or known is None or known.sample.used_ratio is None:
                self._nodes.pop(name, None)
            else:
                self._judge(draft, node, known, known.sample.used_ratio)
        return draft.plan()

    def _judge(self, draft: Draft, node: NodeState, known: Watched, used_ratio: float) -> None:
        jobs = {job: draft.view.job(job) for job in node.jobs}
        training = [job for job in jobs.values() if trains(job)]
        speeds = {job.id: speed for job in training if (speed := self._speed(job)) is not None}
        least = 1 - self._config.drop_ratio
        slowed = {job: speed for job, speed in speeds.items() if speed < least}
        paced = [(job, self._trained[job.id]) for job in training if job.id in self._trained]
        unknown = [job.id for job, pace in paced if not pace.calm_s and self._believed_step_s(job) is None]
        sample = known.sample
        used = dict(sample.by_job)
        consumers = [_consumer(job, node, used.get(job.id, 0.0)) for job in jobs.values() if may_be_held_back(job)]
        look = Look(sample.at_s, used_ratio, bool(training), bool(slowed or unknown), sample.can_limit)
        for change in known.watch.judge(look, consumers):
            job = jobs[JobId(change.job)]
            throttle = _throttle(draft, node, job, change)
            if throttle != job.throttle:
                known.changes += 1
                for other in training:
                    self._begin_anew(other.id, sample.at_s)
                is_less = _is_less(job.throttle, throttle, node)
                facts = _facts(node, sample, used_ratio, used.get(job.id, 0.0), throttle)
                reason = _held_back(facts, slowed, unknown) if is_less else _let_go(facts, trained=bool(training))
                draft.set_throttle(job, throttle, reason)

    def _begin_anew(self, job: JobId, at_s: float) -> None:
        """What is seen from now on counts: the window that goes on has both in it."""
        known = self._trained.get(job)
        if known is not None:
            known.now_s, known.began_s = None, at_s

    def _speed(self, job: Job) -> float | None:
        """How fast a training job is against itself undisturbed; None while that is not known."""
        known = self._trained.get(job.id)
        if known is None or known.now_s is None:
            return None
        calm_s = median(known.calm_s) if known.calm_s else self._believed_step_s(job)
        return None if calm_s is None else calm_s / known.now_s

    def _believed_step_s(self, job: Job) -> float | None:
        rate = rate_of(self._state, job, TurnRule.FAIR)
        return 1 / rate.steps_per_s if rate is not None and rate.steps_per_s else None


def trains(job: Job) -> bool:
    """Whether a job makes steps of training on GPUs."""
    return bool(job.spec.gpus) and job.spec.kind is JobKind.TRAINING and job.state in STEPPING


def may_be_held_back(job: Job) -> bool:
    """Whether it is a job without GPUs that answers no requests, and runs."""
    return not job.spec.gpus and job.spec.kind is not JobKind.INFERENCE and job.state is JobState.RUNNING


def _whole(job: Job, node: NodeState) -> tuple[int, ...]:
    """Cores a job may use while it is not held back: those it books, else all of its node."""
    booked = job.placement.cores if job.placement is not None else ()
    return tuple(sorted({*booked, *(job.throttle.withheld if job.throttle else ())})) if booked else node.node.cores


def _present(job: Job, node: NodeState) -> tuple[int, ...]:
    return job.throttle.cores if job.throttle is not None else _whole(job, node)


def _consumer(job: Job, node: NodeState, used_ratio: float) -> Consumer:
    ratio = job.throttle.bandwidth_ratio if job.throttle is not None else 1.0
    return Consumer(job.id, used_ratio, len(_present(job, node)), len(_whole(job, node)), ratio)


def _throttle(draft: Draft, node: NodeState, job: Job, change: Change) -> Throttle | None:
    """The very cores: of fewer, those are kept that no other job has booked, and first those no training job is near.

    Of more, what is still free comes back.
    """
    whole, present = _whole(job, node), _present(job, node)
    is_booked = job.placement is not None and bool(job.placement.cores)
    near = {core for gpu in node.node.gpus if draft.load(node.ids[gpu.index]).bookings for core in gpu.cores}
    others = node.cores_booked - set(whole) if is_booked else node.cores_booked
    free = set(draft.cores_unbooked(node)) if is_booked else set(whole)
    own = sorted(present, key=lambda core: (core in others, core in near, core))
    back = [core for core in whole if core in free and core not in present]
    back.sort(key=lambda core: (core in others, core in near))
    cores = tuple(sorted([*own, *back][: change.cores]))
    withheld = tuple([core for core in whole if core not in cores]) if is_booked else ()
    if len(cores) == len(whole) and change.bandwidth_ratio >= 1:
        return None
    return Throttle(cores, withheld, change.bandwidth_ratio)


def _is_less(before: Throttle | None, after: Throttle | None, node: NodeState) -> bool:
    def size(one: Throttle | None) -> tuple[int, float]:
        return (len(node.node.cores) + 1, 1.0) if one is None else (len(one.cores), one.bandwidth_ratio)

    return size(after) < size(before)


Facts = dict[str, str | int | float]


def _facts(node: NodeState, sample: BandwidthSample, used: float, own: float, throttle: Throttle | None) -> Facts:
    return {"node": node.node.name, "used": used, "own": own, "by": sample.by, "may": _words(throttle)}


def _words(throttle: Throttle | None) -> str:
    """What it may use."""
    if throttle is None:
        return "all it had"
    cores = count(len(throttle.cores), "core")
    return cores if throttle.bandwidth_ratio >= 1 else f"{percent(throttle.bandwidth_ratio)} of the memory bandwidth"


def _held_back(facts: Facts, slowed: dict[JobId, float], unknown: list[JobId]) -> Reason:
    if not slowed:
        return Reason(Why.THROTTLED, facts, tuple(sorted(unknown)))
    return Reason(Why.THROTTLED, {**facts, "speed": min(slowed.values())}, tuple(sorted(slowed)))


def _let_go(facts: Facts, *, trained: bool) -> Reason:
    return Reason(Why.LET_GO, {**facts, "because": NOT_SHORT if trained else NO_TRAINING})

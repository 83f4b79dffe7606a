"""What one step of a copied core makes of submitted jobs. A core that was asked this is good for nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from colane.api.jobs import PlaceObject, ReasonObject
from colane.core.core import Core
from colane.core.events import Event, Outcome
from colane.foresee.said import Shown, said_fault, unforeseen
from colane.model.job import Job, JobId
from colane.model.phases import HoldKind
from colane.model.plan import ACTION_NAMES
from colane.perf.composing import SOURCES
from colane.scheduling.foresight import Foresight
from colane.server.views.jobs_and_nodes import place_view
from colane.server.writer.ledger import explain

STARTS_MAX: Final = 20  # of an array, so many starts are told one by one

STARTS, WAITS, HELD = "starts", "waits", "held"


class PlannedCoRunner(NamedTuple):
    """A job on the GPUs of one that starts, and its speed then."""

    job: JobId
    takes_turns: bool
    ratio: float


class Started(NamedTuple):
    """A start at once."""

    element: int | None
    place: PlaceObject
    ratio: float
    speed: str
    beside: tuple[PlannedCoRunner, ...]


class Changed(NamedTuple):
    """Another job that is stopped or changed, and its speed afterwards."""

    job: JobId
    action: str
    ratio: float | None


class Fate(NamedTuple):
    """What becomes of one job."""

    job: JobId
    name: str
    state: str
    starts: tuple[Started, ...]
    starts_count: int
    reason: ReasonObject
    holds: tuple[str, ...]
    eligible_s: float | None


class Fates(NamedTuple):
    """What becomes of all, and of others."""

    jobs: tuple[Fate, ...]
    changed: tuple[Changed, ...]
    starts_in_s: float | None = None  # in how many seconds the first would start, where that can be said
    shown: Mapping[int, Shown] = {}  # what is foreseen of each

    @property
    def starts(self) -> bool:
        """Whether any of them starts at once."""
        return any(fate.starts for fate in self.jobs)

    @property
    def makes_way(self) -> bool:
        """Whether another job leaves devices, or some of them, in this very step."""
        return any(one.action in MAKES_WAY for one in self.changed)


def fates(
    core: Core,
    events: Sequence[Event],
    now_s: float,
    jobs: Sequence[JobId],
    foresight: Foresight | None = None,
    *,
    explains: bool = False,
) -> Fates:
    """Step a copied core, and return what has become of jobs that are among the events.

    By `foresight` it is also told for how long those wait that do not start; if that is to be explained, why, and
    between which bounds.
    """
    outcome = core.step(events, now_s, whole=True)
    own = {job.id for job in outcome.jobs if (job.id if job.element is None else job.element.array) in set(jobs)}
    found = Fates(
        tuple([_fate(core, outcome, job, now_s, explains=explains) for job in jobs]), _changed(core, outcome, own)
    )
    starts_in_s, shown = 0.0 if found.starts else None, dict[int, Shown]()
    if foresight is None:
        return found._replace(starts_in_s=starts_in_s)
    try:
        shown = foresight.board(core, now_s) if explains else {}
        starts_in_s = starts_in_s if found.starts else foresight.start_point_s(core, jobs, now_s)
    except Exception as error:  # noqa: BLE001 - whatever it is, what was asked beside it is answered
        shown = {job: unforeseen(now_s, said_fault(error), waits=True) for job in jobs} | shown
    return found._replace(shown=shown, starts_in_s=starts_in_s)


def _fate(core: Core, outcome: Outcome, job_id: JobId, now_s: float, *, explains: bool) -> Fate:
    told = {job.id: job for job in outcome.jobs}
    job = told[job_id]
    placed = [one for one in outcome.jobs if one.placement is not None and _is_of(one, job_id)]
    starts = tuple([_started(core, one) for one in placed[:STARTS_MAX]])
    holds = tuple([hold for hold in job.holds if hold.kind is not HoldKind.ARRAY])
    state = STARTS if starts else HELD if holds else WAITS
    if starts:
        reason = placed[0].reason
    elif job.has_ended or not explains:
        reason = job.reason
    else:
        free = (one.id for one in outcome.jobs if one.is_waiting and _is_of(one, job_id))  # of an array, an element
        reason = core.why(next(free, job_id), now_s)
    times = [hold.until_s for hold in holds if hold.until_s is not None]
    eligible_s = max(times) if times and len(times) == len(holds) else None
    said = explain(reason) if reason is not None else ReasonObject(why=None, facts={}, jobs=[], sentence="")
    kinds = tuple([f"{hold.kind.value} {hold.after or ''}" for hold in holds])
    return Fate(job_id, job.spec.name, state, starts, len(placed), said, kinds, eligible_s)


def _is_of(job: Job, job_id: JobId) -> bool:
    return job.id == job_id or (job.element is not None and job.element.array == job_id)


def _started(core: Core, job: Job) -> Started:
    pacing = core.pacing(job.id)
    known = pacing.co_runners
    lane_mates, others = ((), ()) if known is None else (known.lane_mates, known.others)
    beside = [PlannedCoRunner(one, one in lane_mates, core.pacing(one).rate.ratio) for one in (*lane_mates, *others)]
    index, rate = None if job.element is None else job.element.index, pacing.rate
    return Started(index, place_view(job.placement), rate.ratio, SOURCES[rate.source], tuple(beside))


def _changed(core: Core, outcome: Outcome, own: set[JobId]) -> tuple[Changed, ...]:
    done = {one.action.job: ACTION_NAMES[type(one.action)] for one in outcome.decisions if one.action.job not in own}
    return tuple([Changed(job, action, _ratio(core, job)) for job, action in done.items() if action in CHANGES])


MAKES_WAY: Final = frozenset({"stop", "park", "resize"})
CHANGES: Final = frozenset({"stop", "park", "move", "resize", "set-cores", "set-throttle"})
"""Actions that a job's owner would notice; a start of another is not for ours, and a remark changes nothing."""


def _ratio(core: Core, job_id: JobId) -> float | None:
    job = core.state.jobs.get(job_id)
    if job is None or job.placement is None or job.is_leaving:
        return None
    return core.pacing(job_id).rate.ratio

"""Rows of jobs for a screen: only the part that is seen, and of each job only what a row shows.

Those that hold a place stand first, then those that wait, each in order of id or of another column; an array stands for
its elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from colane.api.seeing import RowObject, RowRunObject, RowsAnswer
from colane.core.core import QueueReasons
from colane.facts.job import state_word
from colane.model.job import Job, JobId, JobState
from colane.model.phases import HoldKind
from colane.model.reason import Reason
from colane.model.sentences import sentence_of
from colane.model.words import by_name
from colane.server.ground.sight import Sight
from colane.server.views.listing import facts_of, may_of, start_text
from colane.server.views.overview import OverviewMaker, reason_of


class SortKey(StrEnum):
    """A column by which rows are in order."""

    ID = "id"
    NAME = "name"
    USER = "user"
    STATE = "state"
    ASKS = "asks"
    SINCE = "since"
    DONE = "done"
    LEFT = "left"
    STEPS = "steps"
    SPEED = "speed"


_FACT_OF: Final = {
    SortKey.DONE: "done_ratio", SortKey.LEFT: "left_s", SortKey.STEPS: "now_steps_per_s", SortKey.SPEED: "speed_ratio",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Which rows."""

    first: int  # how many of them stand before those wanted
    limit: int  # at most so many
    text: str = ""  # only jobs with this, case folded, in name, user or reason, or as their id; empty for all
    why: str = ""  # only jobs that wait for this reason; empty for all
    jobs: frozenset[int] | None = None  # only these jobs; None for all
    is_mine: bool = False  # only jobs of the caller
    sort: SortKey = SortKey.ID  # by what jobs that run, and those that wait, stand in order among themselves
    is_down: bool = False  # whether the greatest stand first; those of which it is not known stand last


def page_rows(overviews: OverviewMaker, sight: Sight, wanted: RowsWanted) -> RowsAnswer:
    """Return the rows wanted of the live jobs that the caller is told of."""
    event, reasons = overviews.parts.feed.last_number, _Reasons(overviews)
    chosen = _chosen(overviews, sight, wanted, reasons)
    part = chosen[wanted.first : wanted.first + wanted.limit]
    return {
        "event": event,
        "user": sight.caller.name,
        "is_operator": sight.caller.may_all,
        "first": wanted.first,
        "count": len(chosen),
        "rows": [_row(overviews, job, sight, reasons) for job in part],
    }


class _Reasons:
    """Why jobs wait: asked only where it is needed."""

    def __init__(self, overviews: OverviewMaker) -> None:
        self._overviews = overviews
        self._known: QueueReasons | None = None

    def waits(self, job: Job) -> bool:
        """Whether a job holds no place, nor an element of it."""
        if job.array is not None:
            return not any(one.placement for one in self._overviews.parts.read_model.elements_of(job.id))
        return job.state is JobState.QUEUED

    def of(self, job: Job) -> Reason:
        """Why it waits."""
        if self._known is None:
            self._known = self._overviews.waits(self._overviews.shared_ratio_max)
        return reason_of(self._overviews.parts.driver, job, self._known)


def _chosen(overviews: OverviewMaker, sight: Sight, wanted: RowsWanted, reasons: _Reasons) -> list[Job]:
    """All rows in their order: of ten thousand jobs in a few ms, as it is asked for whenever something happens."""
    jobs: Mapping[JobId, Job] = overviews.parts.read_model.jobs
    if wanted.jobs is None:
        known = [job for job in jobs.values() if job.element is None]
    else:
        known = [jobs[JobId(one)] for one in sorted(wanted.jobs) if one in jobs]
    if wanted.is_mine:
        known = [job for job in known if job.spec.user == sight.caller.name]
    elif not sight.is_whole:
        known = [job for job in known if sight.has(job.spec.user)]
    if wanted.text and wanted.jobs is None:
        known = [job for job in known if _has_text(job, wanted.text, reasons)]
    waiting, placed = list[Job](), list[Job]()
    queued = JobState.QUEUED
    for job in known:
        is_waiting = job.state is queued if job.array is None else reasons.waits(job)
        (waiting if is_waiting else placed).append(job)
    if wanted.why and wanted.jobs is None:
        placed, waiting = [], [job for job in waiting if reasons.of(job).why.value == wanted.why]
    if wanted.sort is SortKey.ID and not wanted.is_down:
        return [*placed, *waiting]
    return [*_sorted(overviews, placed, wanted), *_sorted(overviews, waiting, wanted)]


def _sorted(overviews: OverviewMaker, jobs: list[Job], wanted: RowsWanted) -> list[Job]:
    """Jobs in the order that is wanted, those of which it is not known last, alike ones in order of id."""
    values = [(job, _value(overviews, job, wanted.sort)) for job in jobs]
    known = [one for one in values if one[1] is not None]
    known.sort(key=lambda one: one[1], reverse=wanted.is_down)
    return [job for job, _ in known] + [job for job, value in values if value is None]


def _value(overviews: OverviewMaker, job: Job, sort: SortKey) -> Any:  # noqa: ANN401 - of one kind for each column
    if sort in _FACT_OF:
        pacing = None if job.placement is None else overviews.pacing(job.id)
        return None if pacing is None else facts_of(overviews.parts.driver, job, pacing)[_FACT_OF[sort]]  # type: ignore[literal-required]
    if sort is SortKey.STATE:
        return state_word(job, overviews.parts.read_model.elements_of(job.id) if job.array is not None else ())
    if sort is SortKey.SINCE:  # the longest is the earliest
        return -_since_s(job)
    return {
        SortKey.ID: job.id, SortKey.NAME: by_name(job.spec.name), SortKey.USER: by_name(job.spec.user),
        SortKey.ASKS: job.effective.gpus_max,
    }[sort]  # fmt: skip


def _since_s(job: Job) -> float:
    return job.submit_s if job.placement is None or job.start_s is None else job.start_s


def _has_text(job: Job, text: str, reasons: _Reasons) -> bool:
    if text == str(job.id) or text in job.spec.name.casefold() or text in job.spec.user.casefold():
        return True
    return reasons.waits(job) and text in sentence_of(reasons.of(job)).casefold()


def _row(overviews: OverviewMaker, job: Job, sight: Sight, reasons: _Reasons) -> RowObject:
    waits, place = reasons.waits(job), job.placement
    elements = overviews.parts.read_model.elements_of(job.id) if job.array is not None else ()
    return {
        "id": JobId(job.id),
        "name": job.spec.name,
        "user": job.spec.user,
        "state": job.state.value if waits or job.array is None else JobState.RUNNING.value,
        "suspended": job.suspended or job.is_held(HoldKind.USER),
        "gpus": [str(gpu) for gpu in job.gpus_held],
        "nodes": [] if place is None else [*place.nodes],
        "asks": ",".join(map(str, job.effective.sizes)) or str(job.effective.gpus),
        "since_s": _since_s(job),
        "run": None if place is None else _run(overviews, job),
        "reason": sentence_of(reasons.of(job)) if waits or job.array is not None else "",
        "starts": start_text(overviews.parts.driver, job) if waits else "",
        "is_own": sight.caller.owns(job.spec.user),
        "word": state_word(job, elements),
        "may": may_of(overviews.parts.driver, job, sight.caller, elements),
    }


def _run(overviews: OverviewMaker, job: Job) -> RowRunObject:
    """How it goes; what is believed of it is some seconds old at most."""
    pacing = overviews.pacing(job.id)
    facts, co_runners = facts_of(overviews.parts.driver, job, pacing), None if pacing is None else pacing.co_runners
    return {
        "done_ratio": facts["done_ratio"],
        "left_s": facts["left_s"],
        "now_steps_per_s": facts["now_steps_per_s"],
        "steps_per_s": facts["in_turn_steps_per_s"],
        "speed_ratio": facts["speed_ratio"],
        "turn_share_ratio": facts["share_got_ratio"],
        "share_asked_ratio": facts["share_asked_ratio"],
        "slowdown_predicted": None if co_runners is None else co_runners.predicted,
        "slowdown_measured": None if co_runners is None else co_runners.measured,
    }

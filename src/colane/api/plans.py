"""Answers about what would become of jobs if they were submitted now."""

from __future__ import annotations

from typing import Final, NotRequired

from typing_extensions import TypedDict

from colane.api.jobs import ExpectedObject, JobIdAnswer, PlaceObject, ReasonObject

DIGEST_CHARACTERS: Final = 12
INDEX_PATTERN: Final = rf"^\d+-[0-9a-f]{{{DIGEST_CHARACTERS}}}$"
"""Of a plan's index: the version of the state, and a digest of jobs and outcome, which alone is compared."""


class PlannedCoRunnerObject(TypedDict):
    """A job that would share GPUs with a planned one, and how fast it goes now and would then.

    Attributes:
        job: Its id; None of a job of which the caller is not told.
        user: Likewise.
        takes_turns: Whether it would take turns with it in one lane; else both run at once.
        ratio_now: Its speed now, of its speed alone.
        ratio_then: Its speed beside the planned one.
    """

    job: int | None
    user: str | None
    takes_turns: bool
    ratio_now: float | None
    ratio_then: float | None


class MakesWayObject(TypedDict):
    """A job that would be stopped, parked, moved, resized or held back at once.

    Attributes:
        job: Its id; None of a job of which the caller is not told.
        user: Likewise.
        action: `stop`, `park`, `move`, `resize`, `set-cores` or `set-throttle`.
        ratio_now: Its speed now, of its speed alone.
        ratio_then: Its speed afterwards; None while it does not run.
    """

    job: int | None
    user: str | None
    action: str
    ratio_now: float | None
    ratio_then: float | None


class PlannedStartObject(PlaceObject):
    """A start at once: of a job, or of an element of an array (`index`).

    Attributes:
        index: Of an array, which element.
        ratio: Its speed there, of its speed alone as it asked to run.
        speed: On what that rests, in words.
        beside: Jobs on its GPUs.
    """

    index: int | None
    ratio: float
    speed: str
    beside: list[PlannedCoRunnerObject]


class ChangeObject(TypedDict):
    """A smaller need with which a job that would wait would start at once, or sooner.

    Attributes:
        option: As it is given to `colane submit`, as `--gpus 2`.
        field: The field of the request, and the value it would have.
        value: None where the field is left out.
        starts: Where it would start at once, of an array the first element that would; None where it would wait, too.
        starts_in_s: In how many seconds it would start, 0 at once; a guess as `PlanAnswer.starts_in_s`.
    """

    option: str
    field: str
    value: bool | int | float | str | None
    starts: PlannedStartObject | None
    starts_in_s: float


class JobPlanObject(TypedDict):
    """What would become of one job.

    Attributes:
        id: The id it would get if nothing else were submitted before.
        name: Its name.
        state: `starts` at once; `waits` in the queue; `held` as it may not start yet.
        starts: Where, of an array for each element that would start at once (at most 20).
        starts_count: How many would start.
        reason: Why it would start, wait or be held.
        eligible_s: From when on it may start, where a time alone holds it.
        changes: Smallest changes of its needs by which it would start at once, or much sooner, where it waits.
        expected_start: When it would start, where it waits, as an interval that holds four times of five.
        expected_end: When it would end, likewise.
        sentence: All of it in a sentence.
    """

    id: int
    name: str
    state: str
    starts: list[PlannedStartObject]
    starts_count: int
    reason: ReasonObject
    eligible_s: float | None
    changes: list[ChangeObject]
    expected_start: ExpectedObject | None
    expected_end: ExpectedObject | None
    sentence: str


class LeastChangeObject(TypedDict):
    """A need of a waiting job with which it would start at once: `option` says it as `colane submit` takes it."""

    field: str
    value: bool | int | float | str | None
    option: str


class StartAnswer(TypedDict):
    """When a job that waits would start.

    Attributes:
        starts_in_s: In how many seconds, 0 of one that has a place: a guess, see `PlanAnswer`; None: not known.
        now_s: From when.
        sentence: For people.
        expected_start: The same as an interval that holds four times of five; None where it is not foreseen.
        expected_end: When it ends, likewise.
        changes: By which single changes of its needs it would start at once, of each need the least.
    """

    starts_in_s: float | None
    now_s: float
    sentence: str
    expected_start: ExpectedObject | None
    expected_end: ExpectedObject | None
    changes: list[LeastChangeObject]


class SubmittedAnswer(JobIdAnswer):
    """The answer of what submits one job: its id, and where that was asked, when it starts; None: it has ended."""

    start: NotRequired[StartAnswer | None]


class PlanAnswer(TypedDict):
    """What would become of jobs if they were submitted at this moment; nothing was.

    Attributes:
        index: Names this outcome: `?if_plan=INDEX` submits the jobs only while it would still be the same.
        state_version: Of the state that was asked.
        now_s: When.
        jobs: One by one, in their order.
        starts_in_s: In how many seconds the first of them would start, 0 where one does at once: the median of its
            `expected_start`, else a guess by what is known of the jobs that run, as if none came; None: not known.
        makes_way: Jobs that would be stopped or changed.
    """

    index: str
    state_version: int
    now_s: float
    jobs: list[JobPlanObject]
    starts_in_s: float | None
    makes_way: list[MakesWayObject]

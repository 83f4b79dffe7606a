"""Answers that page, `colane top` and `/metrics` share: what needs a look, what waits why, which job was where."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from colane.api.jobs import PlaceSpanObject


class DeviceCountsObject(TypedDict):
    """How many devices there are, each counted once, by the first of these that holds.

    Attributes:
        total: All.
        lost: On nodes that are lost.
        broken: That do not work any more.
        working: On which a job runs.
        suspended: On which jobs wait and keep their memory, and none runs.
        kept: Free, and kept for a job that waits.
        closed: Free, on nodes that take no jobs.
        free: All others.
    """

    total: int
    lost: int
    broken: int
    working: int
    suspended: int
    kept: int
    closed: int
    free: int


class WaitingForObject(TypedDict):
    """The waiting jobs that have one reason: its code, how many, the first of them, and what that one is told."""

    why: str
    count: int
    jobs: list[int]
    sentence: str


class KeptDeviceObject(TypedDict):
    """A device kept for a job: `why` is `reserved`, `preempting`, `returning` or `resizing`.

    `job` is None where the caller is not told of it.
    """

    gpu: str
    job: int | None
    why: str


class LookObject(TypedDict):
    """Something that needs a look, worst first.

    Attributes:
        level: `broken` or `look`.
        code: What it is, as `idle` or `gpu-broken`.
        sentence: For people.
        node: Where; None where it is of no node.
        gpu: Of which device; None where of none.
        job: Of which job; None where of none.
        user: Whose job that is.
        since_s: Since when, unix time; None where that is not known.
        act: What can be done: `cancel`, `undrain`, `why` or `none`.
    """

    level: str
    code: str
    sentence: str
    node: str | None
    gpu: str | None
    job: int | None
    user: str | None
    since_s: float | None
    act: str


class IdleObject(TypedDict):
    """A job that holds devices and uses none: it has made no step and run no kernel since then.

    `problem` is why it cannot be parked, where the rule for idle jobs asks for that; empty else.
    """

    job: int
    since_s: float
    idle_s: float
    problem: str


class OverviewAnswer(TypedDict):
    """The answer of `/overview`.

    Attributes:
        at_s: When, unix time.
        devices: See `DeviceCountsObject`.
        running: Jobs that hold a place, of those the caller is told of.
        waiting: Jobs that wait, elements of arrays that are yet to be made included.
        sharing_devices: Devices with several jobs.
        sharing_gain: What these jobs get done together there, of what one alone would; None where nothing is known.
        why_waiting: Waiting jobs by reason, most first.
        kept: Devices that are kept for a job.
        look: What needs a look.
        idle: Jobs that are idle.
    """

    at_s: float
    devices: DeviceCountsObject
    running: int
    waiting: int
    sharing_devices: int
    sharing_gain: float | None
    why_waiting: list[WaitingForObject]
    kept: list[KeptDeviceObject]
    look: list[LookObject]
    idle: list[IdleObject]


class TimelineJobObject(TypedDict):
    """Where a job was."""

    id: int
    name: str
    user: str
    state: str
    spans: list[PlaceSpanObject]


class CoRunnersAnswer(TypedDict):
    """The answer of `/job/{id}/co_runners`: which jobs were on a job's devices while it was there.

    Attributes:
        id: The job.
        since_s: When it first held devices, unix time; None where it never did.
        until_s: When it last left them, or now.
        jobs: Those that shared devices with it, first come first; their `spans` are the devices of both, and when.
        hidden: How many others there were, of which the caller is not told.
        left_out: Whether there were more than are told; `left_out_count` how many.
    """

    id: int
    since_s: float | None
    until_s: float | None
    jobs: list[TimelineJobObject]
    hidden: int
    left_out: bool
    left_out_count: int


class DeviceMarkObject(TypedDict):
    """From when to when a device was `broken`, or `kept` for a job; `until_s` is null while it is. See `samples.marks`.

    `job` is null where it is of another user, whose jobs the caller is not told of.
    """

    gpu: str
    kind: str
    job: int | None
    since_s: float
    until_s: float | None


class TimelineAnswer(TypedDict):
    """The answer of `/timeline`: jobs that held devices in a time, and how many there were besides those told.

    `marks` tell of devices that no job held: of the time since the scheduler's start.
    """

    since_s: float
    until_s: float
    jobs: list[TimelineJobObject]
    marks: list[DeviceMarkObject]
    left_out: bool
    left_out_count: int


class MoveObject(TypedDict):
    """A job that came into another state: when, which, and why; `number` as `/events` counts."""

    number: int
    at_s: float
    job: int
    name: str
    state: str
    sentence: str


class MovesAnswer(TypedDict):
    """The answer of `/timeline/moves`: what was last decided up to a moment, and what was decided next, in order."""

    at_s: float
    before: list[MoveObject]
    after: list[MoveObject]


class BudgetObject(TypedDict):
    """GPU seconds that a user or a group may use in a month of the calendar, those used, and when the next begins."""

    name: str
    gpu_s: float
    used_gpu_s: float
    until_s: float


class SlowedJobObject(TypedDict):
    """A job whose run took so many times as long as it takes alone."""

    job: int
    ratio: float


class SharedUserObject(TypedDict):
    """What sharing did for one user's jobs that ended on a day, or for those of "all", the last.

    Attributes:
        user: Whose.
        jobs: How many.
        gpu_h: GPU hours they held.
        took_h: Hours from submission to end, summed.
        alone_h: The same, each alone on its GPUs in FIFO: mean, least and most of what may be.
        slowed: Those whose run took over 5 % longer than alone.
        slowed_ratio: By how much the worst of them did; 1 of none.
        slowed_jobs: The worst of them; empty of "all".
    """

    user: str
    jobs: int
    gpu_h: float
    took_h: float
    alone_h: tuple[float, float, float]
    slowed: int
    slowed_ratio: float
    slowed_jobs: list[SlowedJobObject]


class SharedDayObject(TypedDict):
    """What sharing did on a day of the scheduler's time zone, which begins at `start_s`, unix time."""

    start_s: float
    users: list[SharedUserObject]


class UsageDayObject(TypedDict):
    """What a user has had on a day: `start_s` is its beginning, unix time, in UTC.

    `lost_gpu_s` is the part whose steps had to be made again, of jobs that were last interrupted that day.
    """

    start_s: float
    user: str
    gpu_s: float
    lost_gpu_s: float
    ended: int


class UserNoteObject(TypedDict):
    """What a user's jobs could ask for instead: of the first of them, and how many more of a sweep it is said of."""

    job: int
    name: str
    jobs: int
    what: str
    sentence: str
    flag: str
    gpu_s: float


class UserUsedObject(TypedDict):
    """How much of what they asked for a user's last jobs have used together, by GPU time, and notes, of most first.

    `ratios` has `gpu`, `gpu-memory`, `cores`, `host-memory` and `time` as far as they are known; `jobs` were looked at.
    """

    user: str
    jobs: int
    ratios: dict[str, float]
    notes: list[UserNoteObject]
    notes_left_out: int


class UserWaitObject(TypedDict):
    """For how long a user's jobs have waited for one reason, added up over the jobs."""

    user: str
    why: str
    waited_s: float


class EndedJobObject(TypedDict):
    """A job that has ended; `waited_s` in queues, `took_s` from its submission on."""

    id: int
    name: str
    user: str
    state: str
    end_s: float
    waited_s: float | None
    took_s: float
    gpus: int
    reason: str
    may: list[str]


class EndedAnswer(TypedDict):
    """How the jobs that ended since a moment fared.

    Attributes:
        since_s: Since when.
        count: How many, arrays not counted as their elements are.
        states: By how they ended.
        waited_s: Median, 90 % and most of the time in queues, of those that ran; None where none did.
        took_s: From submission to end, of the same.
        slowdown: That over the time that they ran, of those that succeeded.
        lost_s: Run time whose steps had to be made again.
        preemptions: How often they were stopped for others.
        jobs: The last of them, or of those of the state that was asked for, the last ended first.
        left_out: Whether there were more than are counted; `left_out_count` how many.
    """

    since_s: float
    count: int
    states: dict[str, int]
    waited_s: dict[str, float] | None
    took_s: dict[str, float] | None
    slowdown: dict[str, float] | None
    lost_s: float
    preemptions: int
    jobs: list[EndedJobObject]
    left_out: bool
    left_out_count: int


class UsedOfAskedObject(TypedDict):
    """How much of something a job has used, of what it asked for or had; None is unknown.

    Attributes:
        what: `gpu`, `gpu-memory`, `cores`, `host-memory` or `time`.
        used: Mean use of GPU and cores, most of memory and time.
        asked: Of what.
        ratio: The one over the other.
        unit: `devices`, `bytes`, `cores` or `s`.
    """

    what: str
    used: float | None
    asked: float | None
    ratio: float | None
    unit: str


class EfficiencyNoteObject(TypedDict):
    """What could be asked for instead, or looked at: a sentence, and the option with its value, empty where none."""

    what: str
    sentence: str
    flag: str


class EfficiencyAnswer(TypedDict):
    """The answer of `/job/{id}/efficiency`; `is_short` says that it ran too short a time to be judged."""

    id: int
    ran_s: float
    is_short: bool
    rows: list[UsedOfAskedObject]
    notes: list[EfficiencyNoteObject]


class ActCostObject(TypedDict):
    """The answer of `/job/{id}/cost`: what stopping a job costs now, and which jobs wait for it by name.

    Attributes:
        id: The job.
        lost_s: Run time of its present attempt since it last saved its state, all of it where it has not; 0 of one
            that waits.
        saved_s: When it last saved its state in this attempt; None where it has not.
        gpus: Devices that come free.
        helps: The first waiting jobs that wait for this one by name, of those the caller is told of.
        helped: How many do.
    """

    id: int
    lost_s: float
    saved_s: float | None
    gpus: int
    helps: list[int]
    helped: int


class CellsObject(TypedDict):
    """All devices of a large cluster, in order of nodes: a letter each, and those with jobs of the caller's.

    Letters are `f` free, `h` held by a job that runs, `s` by suspended ones alone, `c` free on a node that takes no
    jobs, `b` broken, `l` on a lost node.
    """

    nodes: list[str]
    devices: list[str]
    own: list[str]


class DeviceNowObject(TypedDict):
    """How a device was used last; null is unknown."""

    index: int
    busy_ratio: float | None
    used_bytes: float | None


class RowRunObject(TypedDict):
    """How a job of a row runs; null is unknown.

    `now_steps_per_s` counts its waiting for turns, `steps_per_s` does not; `done_ratio` is of its steps, `speed_ratio`
    of its speed alone; `turn_share_ratio` is the part of the time it wanted
    its lanes in which it had them, `share_asked_ratio` that which it may ask for (null without turns); slowdowns are
    step time over step time alone.
    """

    done_ratio: float | None
    left_s: float | None
    now_steps_per_s: float | None
    steps_per_s: float | None
    speed_ratio: float | None
    turn_share_ratio: float | None
    share_asked_ratio: float | None
    slowdown_predicted: float | None
    slowdown_measured: float | None


class RowObject(TypedDict):
    """A row; `is_own` says whether the caller may change the job, `may` by which verbs, `word` what it does.

    `reason` is empty of a job that runs, and says of an array that runs how its elements stand;
    `asks` is its number of GPUs, as `2` or `1,2,4`; `gpus` are those that it holds, none while its memory is on the
    host; `nodes` are those of a job that has a place; `since_s` is when it was
    submitted, or was given its place; `run` is null of one that waits, and of an array; `starts` says when one that
    waits is expected to start, empty where that is not foreseen.
    """

    id: int
    name: str
    user: str
    state: str
    suspended: bool
    gpus: list[str]
    nodes: list[str]
    asks: str
    since_s: float
    run: RowRunObject | None
    reason: str
    starts: str
    is_own: bool
    word: str
    may: list[str]


class RowsAnswer(TypedDict):
    """Some rows, of how many; `event` is the number of the last event, as `/events` counts them."""

    event: int
    user: str
    is_operator: bool
    first: int
    count: int
    rows: list[RowObject]
    overview: NotRequired[OverviewAnswer]
    cells: NotRequired[CellsObject]
    uses: NotRequired[dict[str, list[DeviceNowObject]]]


class LiveChangeObject(TypedDict, total=False):
    """What of a `RowsAnswer` has become another; `overview` has only those of its parts that have.

    `rows` are those that are new or changed; `ids` all rows there are now, in order, where that is not as before.
    """

    event: int
    user: str
    is_operator: bool
    first: int
    count: int
    ids: list[int]
    rows: list[RowObject]
    overview: dict[str, object]
    cells: CellsObject
    uses: dict[str, list[DeviceNowObject]]


class UnchangedAnswer(TypedDict):
    """The answer of `/page_rows` where nothing has happened since the event that was seen."""

    event: int


class PageLinkAnswer(TypedDict):
    """A path of the scheduler that signs a browser in, once."""

    path: str

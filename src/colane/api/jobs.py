"""Answers about jobs."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from colane.api.of_record import ProgressObject, StallObject

JobRequestObject = dict[str, Any]
"""A job request as it is sent: its fields are the rows of `model.job_fields`, by which `JobRequest` judges it."""


class JobIdAnswer(TypedDict):
    """The answer of what changes one job."""

    id: int


class JobIdsAnswer(TypedDict):
    """The answer of what submits or changes several jobs, in their order."""

    ids: list[int]


class ReasonObject(TypedDict):
    """Why a job is where it is.

    Attributes:
        why: Code; None where nothing is known.
        facts: The numbers and names of the sentence.
        jobs: Other jobs that it names.
        sentence: For people.
    """

    why: str | None
    facts: dict[str, object]
    jobs: list[int]
    sentence: str


class SizeSpeedObject(TypedDict):
    """How fast an elastic job is believed to go alone with so many GPUs; see `core.SizedSpeed`.

    `speedup` is against the GPUs that it has, or asked for while it has none; null is unknown.
    """

    gpus: int
    steps_per_s: float | None
    speedup: float | None
    source: str


class WhyAnswer(ReasonObject):
    """The answer of `/job/{id}/why`; `now` has sentences about how a running job stands.

    `sizes` is empty of a job of one size, and of one that has ended; `otherwise` says by what a plan with what was
    asked forced differs from the policy's own.
    """

    now: list[str]
    otherwise: list[str]
    sizes: list[SizeSpeedObject]


class StoryLineObject(ReasonObject):
    """A move of a job's life; `held_by` are the kinds of holds (see `HoldObject`) that it had from then on."""

    at_s: float
    state: str
    held_by: list[str]


class HoldObject(TypedDict):
    """What keeps a waiting job from starting; see `model.Hold`. `after` is a condition, as `ok:12`."""

    kind: str
    by: str
    until_s: float | None
    after: str | None


class CheckpointObject(TypedDict):
    """How a job is asked to save its state; see `model.CheckpointContract`."""

    signal: str
    lead_s: float
    saved_codes: list[int]
    reforms: bool
    is_notice: bool
    to_shell: bool


class NeedsObject(TypedDict):
    """What its owner declared of a job's needs: the fields that `model.job_fields` places here, and two besides.

    `sizes` is empty where `gpus` is the only number it can run on; `batch_per_gpu` says that `batch_size` is of each.
    """

    gpus: int
    gpu_type: str | None
    gpu_memory_bytes: int | None
    cores: int
    host_memory_bytes: int
    host_bandwidth_bytes_per_s: int
    time_limit_s: float | None
    deadline_s: float | None
    after: str
    if_never: str
    retries: int
    share: bool
    preemptible: bool
    checkpoint: CheckpointObject | None
    abortable: bool
    kind: str
    latency_s: float | None
    weight: float
    group: str
    multi_node: bool
    anti_collocation: bool
    gpus_per_node: int
    nodes: str
    whole_node: bool
    utility_min: float
    comm_weight: int | None
    comm_pattern: str
    category: str
    core_hints: list[str]
    steps_limit: int | None
    measurement_group: str | None
    measurement_group_size: int
    batch_per_gpu: bool
    sizes: list[int]


class PromisedGpusObject(TypedDict):
    """GPUs, as `node/0`, that are a job's own, and by when it is to start there, so that it ends by its deadline."""

    gpus: list[str]
    start_by_s: float


class ConstraintsObject(TypedDict, total=False):
    """What was learnt of a job or imposed on it; see `model.Constraints`. What does not hold is left out."""

    isolated: bool
    not_preemptible: bool
    checkpoint: CheckpointObject
    sizes_lost: list[int]
    cores: int
    sharing_domain: str
    gpu_memory_bytes: int
    steps_total_doubted: bool
    steps_total_said: int
    family: str
    needs_cores: bool
    time_limit_s: float | None
    after: str
    promised: PromisedGpusObject
    away: list[str]


class ThrottleObject(TypedDict):
    """How a job without GPUs is held back; see `model.Throttle`."""

    cores: list[int]
    withheld_cores: list[int]
    bandwidth_ratio: float


class SharingObject(TypedDict):
    """How a running job shares its GPUs: with jobs in its lanes, and others. Slowdowns are against running alone."""

    lane_mates: list[int]
    others: list[int]
    share_asked_ratio: float | None
    slowdown_predicted: float | None
    slowdown_measured: float | None


class FactorObject(TypedDict):
    """One thing that changes a job's speed; see `perf.Factor`."""

    slowdown: float
    source: str
    samples: int
    spread_ratio: float | None


class FactorsObject(TypedDict):
    """What a job's speed is made of; see `perf.Factors`."""

    size: FactorObject
    cores: FactorObject
    turns: FactorObject
    bus: FactorObject
    gpu: FactorObject


class RateObject(TypedDict):
    """How fast a job is believed to go; see `perf.Rate`. `ratio` is of its speed alone, as it asked to run."""

    steps_per_s: float | None
    ratio: float
    source: str
    sentence: str
    samples: int
    spread_ratio: float
    factors: FactorsObject


class TimeSpentObject(TypedDict):
    """Where a job's time had gone when it came into its present state; see `model.TimeSpent`."""

    queueing_s: float
    launching_s: float
    running_s: float
    paused_s: float
    checkpointing_s: float
    untold_s: float


class PlaceSpanObject(TypedDict):
    """Devices that a job had, and from when to when; `until_s` is None while it has them."""

    gpus: list[str]
    since_s: float
    until_s: float | None


class AttemptObject(TypedDict):
    """One attempt of a job: where its log lies, when it ran, why it ended (empty while it goes on).

    `spans` are the devices that it had, and when.
    """

    number: int
    node: str
    assigned_s: float
    start_s: float | None
    end_s: float | None
    why: str
    spans: list[PlaceSpanObject]


class DeclaredObject(TypedDict):
    """What its owner declared of a job: the fields that `model.job_fields` places in the job itself."""

    name: str
    priority: int
    labels: dict[str, str]
    comment: str
    pool: str
    user: str
    family: str
    steps_total: int | None
    batch_size: int | None


class PlaceObject(TypedDict):
    """Where a job runs: lanes are in the order of `gpus`, whose names are `node/number`. Empty of one that waits."""

    node: str | None
    nodes: list[str]
    gpus: list[str]
    lanes: list[int]
    booked_cores: list[int]


class EndingObject(TypedDict, total=False):
    """What a job that has ended has besides: how its last attempt ended, None where it had none."""

    exit_code: int | None
    signal: int | None
    outcome: str | None
    detail: str | None
    log_bytes: int | None
    step_durations_s: list[float]
    log_truncated: bool


class ArrayObject(TypedDict):
    """An array's elements: their indexes, how many may run at once, and how many do what; see `model.Array`.

    `pending` are first and last index of those that are no jobs of their own yet, `cut` of those that never were.
    """

    indexes: str
    throttle: int | None
    count: int
    running: int
    waiting: int
    succeeded: int
    failed: int
    cancelled: int
    pending: list[list[int]]
    cut: list[list[int]]


class ExpectedObject(TypedDict):
    """When something is expected, as an interval that holds four times of five; in seconds from when it is told.

    Attributes:
        p10_s: One of ten comes sooner; None, as the others, where it is not known.
        p50_s: Half come sooner.
        p90_s: One of ten comes later.
        at_once_ratio: The probability that it comes within a minute; None likewise.
        said_s: Unix time at which it was worked out.
        basis: What tells the job's own length: `told`, or `learnt` of others.
        sentence: For people, such as `in 20 min (5 to 50 min)`.
    """

    p10_s: float | None
    p50_s: float | None
    p90_s: float | None
    at_once_ratio: float | None
    said_s: float
    basis: str
    sentence: str


class FactsObject(TypedDict):
    """What is told of a job, the same wherever it is shown (`colane.facts`); null is unknown.

    Attributes:
        word: What it does: its state, or a `facts.job.StateWord`.
        gpus: Those that it holds, as `node/number`; none while its memory is on the host.
        nodes: Where it has a place.
        steps: Made so far, those that earlier attempts left included.
        steps_total: How many it will have made; None where nothing tells.
        done_ratio: Of its steps, or by `left_p50_s` of its time.
        is_length_guessed: It is the latter.
        left_s: How long it will still run, as decisions go by it.
        left_p10_s: One of ten has less left; the same as `left_s` where that is told, as the others.
        left_p50_s: Half have less.
        left_p90_s: One of ten has more.
        left_by: What tells that (`facts.job.LeftBy`).
        limit_left_s: How long it may still run.
        now_steps_per_s: Steps it makes in a second, its waiting for turns included; 0 while it makes none any more.
        in_turn_steps_per_s: The same while it has its turn.
        whole_steps_per_s: The same on average since the first step of its attempt.
        is_speed_believed: No step of it was measured yet: so fast jobs like it are believed to go where it runs.
        speed_ratio: Its believed speed, of that alone as it asked to run; None of one that holds no GPU or is
            launching, and where nothing tells of it.
        share_got_ratio: Part of the time it wanted its lanes in which it had them; None without turns.
        share_asked_ratio: Part of that time that it may ask for; None likewise.
        ran_s: How long its present or last attempt has run, pauses left out.
        spent_s: How long ago it first started, or was submitted; of one that has ended, until its end.
        saved_ago_s: How long ago it saved its state.
        time_spent: Where its time has gone until now.
        expected_start: When it starts, of one that waits; None where that is not foreseen.
        expected_end: When it ends, likewise.
    """

    word: str
    gpus: list[str]
    nodes: list[str]
    steps: int
    steps_total: int | None
    done_ratio: float | None
    is_length_guessed: bool
    left_s: float | None
    left_p10_s: float | None
    left_p50_s: float | None
    left_p90_s: float | None
    left_by: str | None
    limit_left_s: float | None
    now_steps_per_s: float | None
    in_turn_steps_per_s: float | None
    whole_steps_per_s: float | None
    is_speed_believed: bool
    speed_ratio: float | None
    share_got_ratio: float | None
    share_asked_ratio: float | None
    ran_s: float
    spent_s: float
    saved_ago_s: float | None
    time_spent: TimeSpentObject
    expected_start: ExpectedObject | None
    expected_end: ExpectedObject | None


class CommonJobObject(DeclaredObject, PlaceObject):
    """What every answer has of a job, live or ended."""

    id: int
    submit_s: float
    first_start_s: float | None
    start_s: float | None
    first_step_s: float | None
    end_s: float | None
    attempt: int
    failures: int
    throttle: ThrottleObject | None
    state: str
    elements: ArrayObject | None
    array_id: int | None
    array_index: int | None
    model_name: str | None
    suspended: bool
    suspended_via: str
    holds: list[HoldObject]
    on_host_bytes: int | None
    sharing: SharingObject | None
    rate: RateObject | None
    cores_useful: int | None
    policy: str
    needs: NeedsObject
    constraints: ConstraintsObject
    saved_s: float | None
    lost_s: float
    time_spent: TimeSpentObject
    steps_kept: int
    saves_failed: int
    why: str | None
    reason: str | None
    steps: int
    progress: ProgressObject | None
    story_left_out: int
    story: list[StoryLineObject]
    stalled: StallObject | None
    steps_total_learned: int | None
    facts: FactsObject


class ShownObject(TypedDict, total=False):
    """What `/job/{id}` alone has; command, directory and output only where its owner or an operator asks.

    `may` are the verbs that the caller may use on it now.
    """

    may: list[str]
    attempts: list[AttemptObject]
    command: list[str] | None
    workdir: str | None
    output: str | None


class JobObject(CommonJobObject, EndingObject, ShownObject):
    """A job, live or ended, as whichever answer has it."""


class LeftOutObject(TypedDict):
    """How many jobs a listing leaves out; of ended ones, whether there are more."""

    running: int
    queued: int
    ended: bool


class ListingAnswer(TypedDict):
    """The answer of `/listing`."""

    jobs: list[JobObject]
    left_out: LeftOutObject

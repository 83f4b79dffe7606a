"""Jobs as policies see them: needs and progress, no command, environment or secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from colane.model.hardware import GpuId
from colane.model.job_spec import (
    UNCONSTRAINED,
    CommPattern,
    Constraints,
    JobKind,
    JobSpec,
    NeedClass,
    need_class,
    under,
)
from colane.model.phases import (
    ENDED,
    LEAVING,
    MOVABLE,
    NONE,
    NOT_YET,
    REQUEUEABLE,
    Array,
    Attempt,
    Element,
    Exit,
    FallBack,
    Halted,
    Hold,
    HoldKind,
    JobId,
    JobState,
    Leaving,
    OnHost,
    Parking,
    Served,
    StateChange,
    SuspendVia,
    Suspension,
    Throttle,
    Totals,
)
from colane.model.placement import Placement
from colane.model.reason import Reason

__all__ = [
    "ENDED", "Attempt", "CommPattern", "Exit", "FallBack", "Job", "JobId", "JobKind", "JobSpec", "JobState",
    "Leaving", "NeedClass", "OnHost", "Parking", "Served", "StateChange", "SuspendVia", "Suspension", "Totals",
    "need_class",
]  # fmt: skip

QUEUED: Final = JobState.QUEUED
PAUSED: Final = JobState.PAUSED


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Job:
    """A job and its state; an immutable value: `core.lifecycle` makes the next one."""

    id: JobId  # unique, ascending with submission
    spec: JobSpec  # its needs, as its owner declared them
    submit_s: float  # Unix seconds, as are all times
    state: JobState  # see `JobState`
    attempt: int  # number of starts so far; fences reports of older processes
    placement: Placement | None  # where it runs; None while queued
    first_start_s: float | None  # first process start of any attempt
    end_s: float | None  # when it ended for good
    since_s: float | None  # when it came into its present state; None where that was when it was submitted
    reason: Reason | None  # why it is in its present state
    # changes of state, oldest first: the first and the last ones of a long life. No decision reads it
    story: tuple[StateChange, ...]
    # how many changes are left out of it, after its first `STORY_FIRST` (see `colane.model.phases`)
    story_left_out: int
    throttle: Throttle | None  # how it is held back for training jobs on its node; None where it is not
    saved_s: float | None  # when it last saved its state, as far as is known
    turn: str  # `ungated` while its agent lets it run without turns, `kept` while it waits for such a one; else empty
    # noise of its gradient against the gradient, in samples, as it said; None while it has not
    noise_scale: float | None
    # what keeps it from starting while it is QUEUED, see `core.eligibility`; empty in every other state
    holds: tuple[Hold, ...]
    constraints: Constraints  # what was learnt of it or imposed on it besides
    run: Attempt  # what is told of its present attempt, or of its last one while it has none
    totals: Totals  # what its attempts have come to, all together
    falls_back: FallBack | None  # while it has been resized and has not stepped at its new size
    suspension: Suspension | None  # while its owner or an operator wants it not to go on, though it was running
    leaving: Leaving | None  # what becomes of it, while it is CHECKPOINTING or STOPPING
    parking: Parking | None  # while a plan wants it off its GPUs though it lives on
    on_host: OnHost | None  # while its GPU memory lies on the host
    array: Array | None  # what it knows of its elements, where it is an array; such a job never starts itself
    element: Element | None  # which element of which array it is; None where it is none
    halted: Halted | None  # while it waits, its last attempt, where that stands on nodes that are silent, or were
    # its needs under these constraints, which all that decides looks at; worked out once
    effective: JobSpec = field(init=False, repr=False, compare=False)

    def __init__(  # noqa: PLR0913, PLR0917 - a record
        self,
        id: JobId,
        spec: JobSpec,
        submit_s: float,
        state: JobState = JobState.QUEUED,
        attempt: int = 0,
        placement: Placement | None = None,
        first_start_s: float | None = None,
        end_s: float | None = None,
        since_s: float | None = None,
        reason: Reason | None = None,
        story: tuple[StateChange, ...] = (),
        story_left_out: int = 0,
        throttle: Throttle | None = None,
        saved_s: float | None = None,
        turn: str = "",
        noise_scale: float | None = None,
        holds: tuple[Hold, ...] = (),
        constraints: Constraints = UNCONSTRAINED,
        run: Attempt = NOT_YET,
        totals: Totals = NONE,
        falls_back: FallBack | None = None,
        suspension: Suspension | None = None,
        leaving: Leaving | None = None,
        parking: Parking | None = None,
        on_host: OnHost | None = None,
        array: Array | None = None,
        element: Element | None = None,
        halted: Halted | None = None,
        effective: JobSpec | None = None,
    ) -> None:
        self.id = id
        self.spec = spec
        self.submit_s = submit_s
        self.state = state
        self.attempt = attempt
        self.placement = placement
        self.first_start_s = first_start_s
        self.end_s = end_s
        self.since_s = since_s
        self.reason = reason
        self.story = story
        self.story_left_out = story_left_out
        self.throttle = throttle
        self.saved_s = saved_s
        self.turn = turn
        self.noise_scale = noise_scale
        self.holds = holds
        self.constraints = constraints
        self.run = run
        self.totals = totals
        self.falls_back = falls_back
        self.suspension = suspension
        self.leaving = leaving
        self.parking = parking
        self.on_host = on_host
        self.array = array
        self.element = element
        self.halted = halted
        self.effective = under(spec, constraints) if effective is None else effective

    def copied(self) -> Job:
        """An equal one of its own."""
        return Job(
            self.id,
            self.spec,
            self.submit_s,
            self.state,
            self.attempt,
            self.placement,
            self.first_start_s,
            self.end_s,
            self.since_s,
            self.reason,
            self.story,
            self.story_left_out,
            self.throttle,
            self.saved_s,
            self.turn,
            self.noise_scale,
            self.holds,
            self.constraints,
            self.run,
            self.totals,
            self.falls_back,
            self.suspension,
            self.leaving,
            self.parking,
            self.on_host,
            self.array,
            self.element,
            self.halted,
            self.effective,
        )

    def halted_as(self) -> Job:
        """What it was when its attempt was halted that may go on: itself where there is none."""
        halted = self.halted
        if halted is None:
            return self
        was = self.copied()
        was.state, was.placement, was.run, was.totals = halted.state, halted.placement, halted.run, halted.totals
        was.throttle, was.turn, was.on_host = halted.throttle, halted.turn, halted.on_host
        was.suspension, was.parking, was.halted, was.holds = halted.suspension, halted.parking, None, ()
        if was.constraints.cores != halted.cores:
            return was.under(was.constraints._replace(cores=halted.cores))
        return was

    def under(self, constraints: Constraints) -> Job:
        """The job with other constraints."""
        fresh = self.copied()
        fresh.constraints, fresh.effective = constraints, under(self.spec, constraints)
        return fresh

    def in_pool(self, pool: str) -> Job:
        """The job in another of the pools that it may be in."""
        fresh = self.copied()
        fresh.spec = self.spec.in_pool(pool)
        fresh.effective = under(fresh.spec, self.constraints)
        return fresh

    def with_holds(self, holds: tuple[Hold, ...]) -> Job:
        """The job with these holds in place of its own."""
        fresh = self.copied()
        fresh.holds = holds
        return fresh

    def of_run(self, run: Attempt) -> Job:
        """The job with other facts of its attempt."""
        fresh = self.copied()
        fresh.run = run
        return fresh

    def with_totals(self, totals: Totals) -> Job:
        """The job with other totals."""
        fresh = self.copied()
        fresh.totals = totals
        return fresh

    @property
    def said(self) -> str:
        """How people name it: `16`, or `12[3]`."""
        return str(self.id) if self.element is None else str(self.element)

    @property
    def due_s(self) -> float | None:
        """When it is to have ended; None where it has no deadline."""
        deadline_s, promised = self.spec.deadline_s, self.constraints.promised
        if promised is not None and promised.due_s is not None:
            return promised.due_s
        return None if deadline_s is None else self.submit_s + deadline_s

    @property
    def has_started(self) -> bool:
        """Whether it has ever; of an array, whether each of its elements has, or has ended without."""
        return self.first_start_s is not None if self.array is None else self.array.all_started

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue, and may start or, parked, come back."""
        if self.state is QUEUED:
            return not self.holds
        is_parked = self.parking is not None and self.parking.home != ""
        return is_parked and self.state is PAUSED and self.suspension is None

    @property
    def may_roam(self) -> bool:
        """Whether it waits in each of the pools that it named, and not for GPUs of its own or of a set in one."""
        is_bound = self.constraints.promised is not None or self.spec.measurement_group is not None
        return self.state is QUEUED and not self.holds and not is_bound

    def is_held(self, kind: HoldKind) -> bool:
        """Whether a hold of this kind keeps it from starting."""
        return any(hold.kind is kind for hold in self.holds)

    @property
    def ending(self) -> JobState | None:
        """The state it comes into once its processes are gone, while it leaves its GPUs."""
        return None if self.leaving is None else self.leaving.ending

    @property
    def may_be_requeued(self) -> bool:
        """Whether it holds what it runs on, and is on no way to an end: that of its time limit may still be turned."""
        return self.placement is not None and (self.ending is None or self.ending in REQUEUEABLE) and not self.has_ended

    @property
    def resizes_to(self) -> Placement | None:
        """Where it goes on once its processes are gone; booked besides its placement."""
        return None if self.leaving is None else self.leaving.resizes_to

    @property
    def preempted_for(self) -> JobId | None:
        """The job it is stopped or parked for, until it is off its GPUs."""
        if self.leaving is not None:
            return self.leaving.for_job
        return None if self.parking is None else self.parking.for_job

    @property
    def start_s(self) -> float | None:
        """Process start of its present attempt, or of its last one."""
        return self.run.start_s

    @property
    def first_step_s(self) -> float | None:
        """First step of its present attempt, or of its last one."""
        return self.run.first_step_s

    @property
    def suspended(self) -> bool:
        """Whether its owner or an operator wants it not to go on, though it was running."""
        return self.suspension is not None

    @property
    def suspended_via(self) -> SuspendVia:
        """How it is kept from going on: by the host also from the moment it is resumed until its memory is back."""
        if self.suspension is not None:
            return self.suspension.via
        return SuspendVia.HOST if self.on_host is not None and self.parking is None else SuspendVia.LANE

    @property
    def parked(self) -> bool:
        """Whether a plan wants it off its GPUs while it lives on."""
        return self.parking is not None

    @property
    def home(self) -> str:
        """Where alone it may go on while it waits parked; empty otherwise."""
        return "" if self.parking is None else self.parking.home

    @property
    def on_host_bytes(self) -> int | None:
        """GPU memory of it that lies on the host; None while it is on its GPUs."""
        return None if self.on_host is None else self.on_host.size_bytes

    @property
    def left_beside(self) -> tuple[JobId, ...]:
        """Jobs beside which it may come back from the host."""
        return () if self.on_host is None else self.on_host.left_beside

    @property
    def is_on_host(self) -> bool:
        """Whether its GPU memory lies on the host, so that it holds no GPU."""
        return self.on_host is not None

    @property
    def has_left_gpus(self) -> bool:
        """Whether it is parked and off its GPUs: of its node it books host memory alone."""
        return self.parking is not None and self.on_host is not None

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way off GPUs that it still holds."""
        return self.state in LEAVING or (self.parking is not None and self.on_host is None)

    @property
    def is_movable(self) -> bool:
        """Whether it may be taken off its GPUs to make room, as far as its own record tells.

        A job over several nodes leaves all of them, and cannot be parked. One that answers requests stays,
        as does one whose deadline is kept.
        """
        if self.placement is None or not self.placement.slots or self.is_on_host or self.spec.kind is JobKind.INFERENCE:
            return False
        if self.constraints.promised is not None:
            return False
        if self.effective.preemptible and self.state in MOVABLE and not self.parked:
            return True
        if len(self.placement.nodes) > 1:
            return False
        steps = self.state is JobState.RUNNING and self.first_step_s is not None
        return steps and not self.suspended and not self.run.host_refusal and self.spec.measurement_group is None

    @property
    def is_leaving_gpus(self) -> bool:
        """Whether its GPU memory is to be on the host, and it holds its GPUs until then."""
        to_host = self.suspension is not None and self.suspension.via is SuspendVia.HOST
        return (to_host or self.parking is not None) and self.state is PAUSED and self.on_host is None

    @property
    def is_returning(self) -> bool:
        """Whether the GPUs its memory left are kept for it, to go on there."""
        is_let_go = self.on_host is not None and self.suspension is None and not self.home
        return is_let_go and self.state is PAUSED

    @property
    def gpu_count(self) -> int:
        """How many GPUs it has by its placement, or asks for."""
        return self.effective.gpus if self.placement is None else len(self.placement.slots)

    @property
    def gpus_held(self) -> tuple[GpuId, ...]:
        """GPUs it holds, in rank order: not those of nodes it is gone from."""
        if self.placement is None or self.on_host is not None:
            return ()
        if not self.run.ended_on:
            return self.placement.gpus
        return tuple([gpu for gpu in self.placement.gpus if gpu.node not in self.run.ended_on])

    @property
    def need(self) -> NeedClass:
        """All that decides where it may run: its spec's class of need, or while it waits parked that of its home."""
        home = "" if self.parking is None else self.parking.home
        return self.effective.need._replace(home=home) if home else self.effective.need

    @property
    def changes(self) -> int:
        """How often its state has changed."""
        return len(self.story) + self.story_left_out

    @property
    def moves(self) -> int:
        """How often a plan has moved it: starts that were neither its first nor after a failure."""
        totals = self.totals
        return max(0, self.attempt - 1 - totals.failures - totals.losses - totals.sent_back)

    def changes_since(self, count: int) -> tuple[StateChange, ...]:
        """Its changes of state after the first `count`, as far as its story has them."""
        return self.story[-new:] if (new := self.changes - count) > 0 else ()

    @property
    def began_s(self) -> float | None:
        """Since when its present attempt makes steps, as far as is known; its start where that was not seen."""
        known_s = self.run.began_s if self.run.first_step_s is None else self.run.first_step_s
        start_s = self.run.start_s
        return start_s if known_s is None or start_s is None else max(start_s, known_s)

    def paused_s(self, now_s: float) -> float:
        """How long its present attempt has been paused until now; its last, when it holds no GPUs any more."""
        since_s, before_s = self.run.paused_since_s, self.run.paused_before_s
        return before_s if since_s is None else before_s + max(0.0, now_s - since_s)

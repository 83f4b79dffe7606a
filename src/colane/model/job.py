"""Jobs as policies see them: needs and progress, no command, environment or secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from colane.model.bandwidth import Throttle
from colane.model.constraints import UNCONSTRAINED, Constraints, under
from colane.model.hardware import GpuId
from colane.model.hold import Hold, HoldKind
from colane.model.job_spec import JobSpec, NeedClass, need_class
from colane.model.kinds import CommPattern, JobKind
from colane.model.phases import JobId, Leaving, OnHost, Parking, Suspension
from colane.model.placement import Placement
from colane.model.reason import Reason
from colane.model.story import ENDED, LEAVING, Exit, JobState, Served, StateChange, SuspendVia

__all__ = [
    "ENDED", "CommPattern", "Exit", "Job", "JobId", "JobKind", "JobSpec", "JobState", "Leaving", "NeedClass", "OnHost",
    "Parking", "Served", "StateChange", "SuspendVia", "Suspension", "need_class",
]  # fmt: skip

QUEUED: Final = JobState.QUEUED
PAUSED: Final = JobState.PAUSED


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Job:
    """A job and where it stands; a value: `core.lifecycle` makes the next one, nobody changes it.

    Attributes:
        id: Unique, ascending with submission.
        spec: Its needs, as its owner declared them.
        constraints: What was learnt of it or imposed on it besides.
        suspension: While its owner or an operator wants it not to go on, though it was running.
        leaving: What becomes of it, while it is CHECKPOINTING or STOPPING.
        parking: While a plan wants it off its GPUs though it lives on.
        on_host: While its GPU memory lies on the host.
        effective: Its needs under these constraints, which all that decides looks at; worked out once.
        state: See `JobState`.
        submit_s: Unix seconds, as are all times.
        attempt: Number of starts so far; fences reports of older processes.
        failures: Attempts that failed by the job's own fault.
        placement: Where it runs; None while queued.
        first_start_s: First process start of any attempt.
        start_s: Process start of this attempt.
        first_step_s: First step of this attempt.
        end_s: When it ended for good.
        exit: How its last process ended.
        ended_on: Nodes from which its processes of this attempt are gone, while others of its nodes still have some.
        served: What its earlier attempts have had, by GPU type and number in their order; the present one is not in it.
        steps_kept: Steps it had made when its last attempt was stopped, as far as was seen, if it saves its state.
        saves_asked: How often this attempt was asked to save its state before it is stopped.
        saves_failed: How often it did not, of all attempts.
        saved_s: When it last saved its state, as far as is known.
        falls_back_to: Where it ran before it was resized, until it steps at its new size.
        launches_failed: How often its launch has failed since it was resized.
        preemptions: How often a plan has stopped it for another job.
        launch_s: How long the launch of this attempt took, where it has gone on as fewer ranks since; else None.
        noise_scale: Noise of its gradient against the gradient, in samples, as it said; None while it has not.
        lost_s: Run time whose steps had to be made again, or are to be, as far as was seen.
        holds: What keeps it from starting while it is QUEUED, see `core.eligibility`; empty in every other state.
        host_refusal: Why its agent could not move this attempt's memory to the host; empty where it was not refused.
        assigned_s: When it was last given GPUs by a start.
        paused_since_s: Since when it is PAUSED; None while it is not.
        paused_before_s: How long this attempt was PAUSED in all, before that.
        since_s: When it came into its present state; None where that was when it was submitted.
        losses: How often it has lost the hardware it ran on.
        turn: `ungated` while its agent lets it run without turns, `kept` while it waits for such a one; else empty.
        sent_back: How often in a row agents have sent it back before it was started, for want of memory.
        throttle: How it is held back for training jobs on its node; None where it is not.
        reason: Why it is in its present state.
        story: Changes of state, oldest first: the first and the last ones of a long life. No decision reads it.
        story_left_out: How many changes are left out of it, after its first `STORY_FIRST` (see `colane.model.story`).
    """

    id: JobId
    spec: JobSpec
    submit_s: float
    state: JobState
    attempt: int
    failures: int
    placement: Placement | None
    first_start_s: float | None
    start_s: float | None
    first_step_s: float | None
    end_s: float | None
    exit: Exit | None
    ended_on: tuple[str, ...]
    served: tuple[Served, ...]
    host_refusal: str
    assigned_s: float | None
    paused_since_s: float | None
    paused_before_s: float
    since_s: float | None
    losses: int
    reason: Reason | None
    story: tuple[StateChange, ...]
    story_left_out: int
    steps_kept: int
    throttle: Throttle | None
    saves_asked: int
    saves_failed: int
    saved_s: float | None
    falls_back_to: Placement | None
    launches_failed: int
    lost_s: float
    turn: str
    sent_back: int
    noise_scale: float | None
    preemptions: int
    launch_s: float | None
    holds: tuple[Hold, ...]
    constraints: Constraints
    suspension: Suspension | None
    leaving: Leaving | None
    parking: Parking | None
    on_host: OnHost | None
    effective: JobSpec = field(init=False, repr=False, compare=False)

    def __init__(  # noqa: PLR0913, PLR0917 - a record
        self,
        id: JobId,
        spec: JobSpec,
        submit_s: float,
        state: JobState = JobState.QUEUED,
        attempt: int = 0,
        failures: int = 0,
        placement: Placement | None = None,
        first_start_s: float | None = None,
        start_s: float | None = None,
        first_step_s: float | None = None,
        end_s: float | None = None,
        exit: Exit | None = None,
        ended_on: tuple[str, ...] = (),
        served: tuple[Served, ...] = (),
        host_refusal: str = "",
        assigned_s: float | None = None,
        paused_since_s: float | None = None,
        paused_before_s: float = 0.0,
        since_s: float | None = None,
        losses: int = 0,
        reason: Reason | None = None,
        story: tuple[StateChange, ...] = (),
        story_left_out: int = 0,
        steps_kept: int = 0,
        throttle: Throttle | None = None,
        saves_asked: int = 0,
        saves_failed: int = 0,
        saved_s: float | None = None,
        falls_back_to: Placement | None = None,
        launches_failed: int = 0,
        lost_s: float = 0.0,
        turn: str = "",
        sent_back: int = 0,
        noise_scale: float | None = None,
        preemptions: int = 0,
        launch_s: float | None = None,
        holds: tuple[Hold, ...] = (),
        constraints: Constraints = UNCONSTRAINED,
        suspension: Suspension | None = None,
        leaving: Leaving | None = None,
        parking: Parking | None = None,
        on_host: OnHost | None = None,
        effective: JobSpec | None = None,
    ) -> None:
        self.id = id
        self.spec = spec
        self.submit_s = submit_s
        self.state = state
        self.attempt = attempt
        self.failures = failures
        self.placement = placement
        self.first_start_s = first_start_s
        self.start_s = start_s
        self.first_step_s = first_step_s
        self.end_s = end_s
        self.exit = exit
        self.ended_on = ended_on
        self.served = served
        self.host_refusal = host_refusal
        self.assigned_s = assigned_s
        self.paused_since_s = paused_since_s
        self.paused_before_s = paused_before_s
        self.since_s = since_s
        self.losses = losses
        self.reason = reason
        self.story = story
        self.story_left_out = story_left_out
        self.steps_kept = steps_kept
        self.throttle = throttle
        self.saves_asked = saves_asked
        self.saves_failed = saves_failed
        self.saved_s = saved_s
        self.falls_back_to = falls_back_to
        self.launches_failed = launches_failed
        self.lost_s = lost_s
        self.turn = turn
        self.sent_back = sent_back
        self.noise_scale = noise_scale
        self.preemptions = preemptions
        self.launch_s = launch_s
        self.holds = holds
        self.constraints = constraints
        self.suspension = suspension
        self.leaving = leaving
        self.parking = parking
        self.on_host = on_host
        self.effective = under(spec, constraints) if effective is None else effective

    def copied(self) -> Job:
        """An equal one of its own."""
        return Job(
            self.id,
            self.spec,
            self.submit_s,
            self.state,
            self.attempt,
            self.failures,
            self.placement,
            self.first_start_s,
            self.start_s,
            self.first_step_s,
            self.end_s,
            self.exit,
            self.ended_on,
            self.served,
            self.host_refusal,
            self.assigned_s,
            self.paused_since_s,
            self.paused_before_s,
            self.since_s,
            self.losses,
            self.reason,
            self.story,
            self.story_left_out,
            self.steps_kept,
            self.throttle,
            self.saves_asked,
            self.saves_failed,
            self.saved_s,
            self.falls_back_to,
            self.launches_failed,
            self.lost_s,
            self.turn,
            self.sent_back,
            self.noise_scale,
            self.preemptions,
            self.launch_s,
            self.holds,
            self.constraints,
            self.suspension,
            self.leaving,
            self.parking,
            self.on_host,
            self.effective,
        )

    def under(self, constraints: Constraints) -> Job:
        """The job with other constraints."""
        fresh = self.copied()
        fresh.constraints, fresh.effective = constraints, under(self.spec, constraints)
        return fresh

    def with_holds(self, holds: tuple[Hold, ...]) -> Job:
        """The job with these holds in place of its own."""
        fresh = self.copied()
        fresh.holds = holds
        return fresh

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

    def is_held(self, kind: HoldKind) -> bool:
        """Whether a hold of this kind keeps it from starting."""
        return any(hold.kind is kind for hold in self.holds)

    @property
    def ending(self) -> JobState | None:
        """The state it comes into once its processes are gone, while it leaves its GPUs."""
        return None if self.leaving is None else self.leaving.ending

    @property
    def resizes_to(self) -> Placement | None:
        """Where it goes on once its processes are gone; booked besides its placement."""
        return None if self.leaving is None else self.leaving.resizes_to

    @property
    def makes_room_for(self) -> JobId | None:
        """The job it is stopped or parked for, until it is off its GPUs."""
        if self.leaving is not None:
            return self.leaving.for_job
        return None if self.parking is None else self.parking.for_job

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
    def has_given_way(self) -> bool:
        """Whether it is parked and off its GPUs: of its node it books host memory alone."""
        return self.parking is not None and self.on_host is not None

    @property
    def is_leaving(self) -> bool:
        """Whether it is on its way off GPUs that it still holds."""
        return self.state in LEAVING or (self.parking is not None and self.on_host is None)

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
        if not self.ended_on:
            return self.placement.gpus
        return tuple([gpu for gpu in self.placement.gpus if gpu.node not in self.ended_on])

    @property
    def need(self) -> NeedClass:
        """All that decides where it may run: its spec's class of need, or while it waits parked that of its home."""
        home = "" if self.parking is None else self.parking.home
        return self.effective.need._replace(home=home) if home else self.effective.need

    @property
    def changes(self) -> int:
        """How often its state has changed."""
        return len(self.story) + self.story_left_out

    def changes_since(self, count: int) -> tuple[StateChange, ...]:
        """Its changes of state after the first `count`, as far as its story has them."""
        return self.story[-new:] if (new := self.changes - count) > 0 else ()

    def paused_s(self, now_s: float) -> float:
        """How long its present attempt has been paused until now; its last, when it holds no GPUs any more."""
        since_s = self.paused_since_s
        return self.paused_before_s if since_s is None else self.paused_before_s + max(0.0, now_s - since_s)

"""What a policy wants changed now, and why; based on one version of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple, final

from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, NeedClass
from colane.model.phases import Throttle
from colane.model.placement import Placement
from colane.model.reason import Reason


@final
@dataclass(unsafe_hash=True, slots=True)
class Start:
    """Run a queued job there."""

    job: Final[JobId]
    placement: Final[Placement]
    reason: Final[Reason]


@final
@dataclass(unsafe_hash=True, slots=True)
class Stop:
    """Take a running job off its GPUs and queue it again."""

    job: Final[JobId]  # the job
    reason: Final[Reason]  # why, for people: no code of it decides what happens
    for_job: Final[JobId | None] = None  # the job this preemption is for, if any
    # whether it is asked to save its state first, where it has said how; else it is stopped at once
    save: Final[bool] = field(default=True, kw_only=True)
    final: Final[bool] = field(default=False, kw_only=True)  # it ends as failed, and is not queued again
    # what the jobs on its GPUs achieved together is learnt before it leaves them
    learn: Final[bool] = field(default=False, kw_only=True)
    isolate: Final[bool] = field(default=False, kw_only=True)  # from its next start on it has its GPUs to itself


@final
@dataclass(unsafe_hash=True, slots=True)
class Park:
    """Let a stepping job wait at its next step boundary and give its devices up, its process alive.

    Its GPU memory is moved to the host; on cpu devices waiting alone frees the device.
    """

    job: Final[JobId]  # the job
    reason: Final[Reason]  # why, for people
    for_job: Final[JobId | None] = None  # the job this preemption is for, if any
    isolate: Final[bool] = field(default=False, kw_only=True)  # from now on it has a GPU to itself wherever it goes on


@final
@dataclass(unsafe_hash=True, slots=True)
class Move:
    """Let a living job go on elsewhere on the nodes it lives on, without a restart.

    A parked job comes back to its own or another device; a stepping one goes to another lane of its GPU.
    """

    job: Final[JobId]
    placement: Final[Placement]
    reason: Final[Reason]


@final
@dataclass(unsafe_hash=True, slots=True)
class Resize:
    """Let a running job go on with another number of GPUs, or elsewhere: it is stopped, and restarted there.

    `for_job` is the job this was preempted for, if any.
    """

    job: Final[JobId]
    placement: Final[Placement]
    reason: Final[Reason]
    for_job: Final[JobId | None] = None


@final
@dataclass(unsafe_hash=True, slots=True)
class SetCores:
    """Give a running job other cores, of its first node and of its others, at once and for all its processes."""

    job: Final[JobId]
    cores: Final[tuple[int, ...]]
    cores_elsewhere: Final[tuple[tuple[str, tuple[int, ...]], ...]]
    reason: Final[Reason]


@final
@dataclass(unsafe_hash=True, slots=True)
class Remark:
    """Record a reason with a running job, which goes on as before."""

    job: Final[JobId]  # the job
    reason: Final[Reason]  # what is remarked
    # what was seen of the jobs on its GPUs until now is learnt at once
    learn: Final[bool] = field(default=False, kw_only=True)


@final
@dataclass(unsafe_hash=True, slots=True)
class SetThrottle:
    """Hold a running job without GPUs back, or let it go (None), at once and for all its processes."""

    job: Final[JobId]
    throttle: Final[Throttle | None]
    reason: Final[Reason]


Action = Start | Stop | Park | Move | Resize | SetCores | SetThrottle | Remark

ACTION_NAMES: Final[Mapping[type, str]] = MappingProxyType(
    {
        Start: "start",
        Stop: "stop",
        Park: "park",
        Move: "move",
        Resize: "resize",
        SetCores: "set-cores",
        SetThrottle: "set-throttle",
        Remark: "remark",
    }
)
"""What records and logs call each kind of action."""


def placement_of(action: Action) -> Placement | None:
    """Where an action puts its job; None for one that gives it no place."""
    return action.placement if isinstance(action, (Start, Move, Resize)) else None


class Replan(NamedTuple):
    """When a pool is planned again, other than because something has changed there while a job waits.

    Attributes:
        at_s: Then, if nothing happens before; infinite where no time is known.
        after_moves: At once after what this plan changes, and whenever a job of the pool is being stopped or may be
            stopped from now on: another may have its place.
        while_idle: Whenever something changes, even while no job waits: running jobs are moved.
        newcomers_only: A job that waits now finds nothing before something else happens than that jobs come: until then
            a plan may look at those alone (`ClusterView.newcomers`).
        full_up_to: Nor do these, up to this priority: no plan is asked for on their account.
        news_until_s: Until then a plan may look at no more than jobs that come and GPUs that change, while nothing else
            happens (`ClusterView.news`): nothing is forced at that time.
        settled: Nothing is left to decide after what this plan changes: for that alone it is not planned again.
        goes_on: More is left to decide than one plan may: the next step goes on with it, so that whatever else waits
            for the core has its turn between. What this plan was told of the pool the next one is told, too.

    In functions called with 400 queued jobs and 256 GPUs (`tests/costs`), without and with: `newcomers_only` 2,521 and
    539 for an arrival under `colocate`, `full_up_to` 222 and 89 under `easy-backfill`, `news_until_s` 17,950 and 900
    under `colane`, and 36,897 and 3,434 for an end, as `settled` 5,700 and 3,434.
    """

    at_s: float = inf
    after_moves: bool = False
    while_idle: bool = False
    newcomers_only: bool = False
    full_up_to: float = -inf
    news_until_s: float = -inf
    settled: bool = False
    goes_on: bool = False


ON_CHANGE: Final = Replan()  # whenever something changes while a job waits, and at no other time

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@final
@dataclass(unsafe_hash=True, slots=True)
class Plan:
    """Changes, and for every job still waiting a reason."""

    based_on: Final[int]  # version of the state it was made from
    actions: Final[tuple[Action, ...]] = ()  # changes in order
    # reasons of the waiting jobs the policy looked at one by one
    waits: Final[Mapping[JobId, Reason]] = field(default_factory=dict)
    # reasons that hold for every other waiting job of a class
    class_waits: Final[Mapping[NeedClass, Reason]] = field(default_factory=dict)
    rest: Final[Mapping[str, Reason]] = field(default_factory=dict)  # reasons of all other waiting jobs, by pool
    # when each pool is planned again; `ON_CHANGE` for those not named
    replan: Final[Mapping[str, Replan]] = field(default_factory=dict)
    # GPUs kept for waiting jobs in this plan: no other job starts on them by it
    holds: Final[Mapping[JobId, tuple[GpuId, ...]]] = field(default_factory=dict)
    # whether it has placed the jobs without GPUs too, so that no other planner does after it
    serves_cpu_only: Final[bool] = field(default=False, kw_only=True)
    # nodes, by name, reserved for a waiting job that they cannot hold yet; only users are told of it
    reserved: Final[Mapping[str, JobId]] = field(default_factory=dict, kw_only=True)

    def reason_for(self, job: Job) -> Reason | None:
        """Why a job starts or waits under this plan; None where it says nothing of it."""
        for action in self.actions:
            if action.job == job.id:
                return action.reason
        return self.wait_of(job)

    def wait_of(self, job: Job) -> Reason | None:
        """Why a job that no action concerns waits; None where it says nothing of it."""
        return (
            self.waits.get(job.id)
            or self.class_waits.get(job.need)
            or self.class_waits.get(job.effective.need)
            or self.rest.get(job.spec.pool)
        )

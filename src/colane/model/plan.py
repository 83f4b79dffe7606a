"""What a policy wants changed now, and why; based on one version of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, final

from colane.model.job import Job, JobId, NeedClass
from colane.model.placement import Placement
from colane.model.reason import Reason, Why


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Start:
    """Run a queued job there."""

    job: Final[JobId]
    placement: Final[Placement]
    reason: Final[Reason]

    def __init__(self, job: JobId, placement: Placement, reason: Reason) -> None:
        self.job = job
        self.placement = placement
        self.reason = reason


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Stop:
    """Take a running job off its GPUs and queue it again."""

    job: Final[JobId]
    reason: Final[Reason]

    def __init__(self, job: JobId, reason: Reason) -> None:
        self.job = job
        self.reason = reason


Action = Start | Stop


class Blocked(NamedTuple):
    """What a pool waits for: while this job is first in its line and no node has so many GPUs free, nothing changes.

    Attributes:
        job: First in line.
        gpus: GPUs it needs free on one node.
        gpu_type: Of this type; None for any one type.
    """

    job: JobId
    gpus: int
    gpu_type: str | None


NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@final
@dataclass(init=False, unsafe_hash=True, slots=True)
class Plan:
    """Changes, and for every job still waiting a reason.

    Attributes:
        based_on: Version of the state it was made from.
        actions: Changes in order.
        waits: Reasons of the waiting jobs the policy looked at one by one.
        class_waits: Reasons that hold for every other waiting job of a class.
        rest: Reasons of all other waiting jobs, by pool.
        again_s: When the policy wants to be asked again about a pool, even if nothing happens there before. A pool
            named here is also asked about at once after the actions, if there are any, and when one of its jobs is
            being stopped, or is preemptible and may be moved from now on.
        blocked: Pools the policy need not be asked about before what blocks them has changed.
    """

    based_on: Final[int]
    actions: Final[tuple[Action, ...]]
    waits: Final[Mapping[JobId, Reason]]
    class_waits: Final[Mapping[NeedClass, Reason]]
    rest: Final[Mapping[str, Reason]]
    again_s: Final[Mapping[str, float]]
    blocked: Final[Mapping[str, Blocked]]

    def __init__(
        self,
        based_on: int,
        actions: tuple[Action, ...] = (),
        waits: Mapping[JobId, Reason] = NOTHING,
        class_waits: Mapping[NeedClass, Reason] = NOTHING,
        rest: Mapping[str, Reason] = NOTHING,
        again_s: Mapping[str, float] = NOTHING,
        blocked: Mapping[str, Blocked] = NOTHING,
    ) -> None:
        self.based_on = based_on
        self.actions = actions
        self.waits = waits
        self.class_waits = class_waits
        self.rest = rest
        self.again_s = again_s
        self.blocked = blocked

    def reason_for(self, job: Job) -> Reason:
        """Why a job starts or waits under this plan."""
        for action in self.actions:
            if action.job == job.id:
                return action.reason
        return (
            self.waits.get(job.id)
            or self.class_waits.get(job.spec.need)
            or self.rest.get(job.spec.pool)
            or Reason(Why.SUBMITTED)
        )

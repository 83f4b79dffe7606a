"""What `/events` tells: the data of each kind of event, a type each. All have `at_s` besides: when it was."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NotRequired

from typing_extensions import TypedDict

from colane.api.jobs import ReasonObject
from colane.api.nodes import ReservationObject
from colane.api.of_record import ProfileKeyObject

SlotRow = tuple[str, int, int]
"""Node, number of the GPU, lane."""


JobHappened = Literal["started", "taken-off", "parked-idle", "elements-cut"]
"""What a change of state means besides the state itself.

`started`: the first process of an attempt runs. `taken-off`: it has left its devices, or leaves them, without having
ended or failed: it was preempted, parked, requeued or drained, or has lost them. `parked-idle`: it leaves them as it
used nothing. `elements-cut`: elements of this array were cancelled before they were jobs, and have no events.
"""


class JobEventObject(ReasonObject):
    """A job has come into another state; `element` names one of an array as `12[3]`, and is None of any other.

    `held_by` are the kinds of holds it had from then on. It and `happened` lack where a version before 0.3 has written
    the event.
    """

    job: int
    name: str
    state: str
    attempt: int
    element: str | None
    happened: NotRequired[JobHappened | None]
    held_by: NotRequired[list[str]]


class PlacementObject(TypedDict):
    """Where a job is put: slots in rank order, and the cores that it books on its first node and on others."""

    slots: list[SlotRow]
    cores: list[int]
    cores_elsewhere: dict[str, list[int]]
    port: int
    node: str


class DecidedPlaceObject(TypedDict, total=False):
    """Of a decision that gives a place."""

    placement: PlacementObject


class DecisionEventObject(ReasonObject, DecidedPlaceObject):
    """A policy has decided about a job."""

    policy: str
    job: int
    action: str


class FlawObject(TypedDict):
    """What is wrong with a plan."""

    code: str
    detail: str
    jobs: list[int]


class RejectedPlanEventObject(TypedDict):
    """A policy's plan was refused whole; it is kept as evidence."""

    policy: str
    based_on: int
    actions: list[DecisionEventObject]
    flaws: list[FlawObject]


class NodeEventObject(TypedDict):
    """Something has become of a node."""

    node: str


class NodeRegisteredEventObject(NodeEventObject):
    """A node was made known, or described anew; `gpus` are their types."""

    pool: str
    gpus: list[str]


class NodeDrainedEventObject(NodeEventObject):
    """A node takes no new jobs."""

    by: str
    reason: str
    deadline_s: float | None


class NodeReservedEventObject(NodeEventObject):
    """By which reservations it is kept for some users, from now on."""

    reservations: list[str]
    kept: NotRequired[list[ReservationObject]]  # these, whole


class NodeNoticeEventObject(NodeEventObject):
    """Its agent has notice of its machine's end; null: no more."""

    reason: str | None


class NodeSetApartEventObject(NodeEventObject):
    """Its agent has heard what this store does not know, and is told another cluster."""

    epoch: NotRequired[int]
    events_seen: int | None
    cluster_id: str


class StoreAdoptedEventObject(TypedDict):
    """An operator goes on from a store that lacks what agents have heard of: jobs of these nodes are ended there."""

    by: str
    lost: int
    nodes: list[str]
    jobs: list[int]


class MessageEventObject(NodeEventObject):
    """An agent has something to say."""

    message: str


class AttemptEndedEventObject(NodeEventObject):
    """An agent has told the end of an attempt."""

    job: int
    attempt: int
    outcome: str


class TokenMadeEventObject(TypedDict):
    """A token counts from now on."""

    token: str
    stands_for: str
    by: str


class TokenRevokedEventObject(TypedDict):
    """A token counts no longer."""

    token: str
    stood_for: str
    by: str


class ProfileDeclaredEventObject(TypedDict):
    """An operator has declared what is known of a family."""

    key: ProfileKeyObject


class ProfilesForgottenEventObject(TypedDict):
    """All that was known of a family is forgotten."""

    family: str
    by: str


class OldJobsRemovedEventObject(TypedDict):
    """Records of jobs that ended long ago are removed, by what is to be kept."""

    jobs: int
    keep: str


class JobsDroppedEventObject(TypedDict):
    """Jobs of a batch that a fault of the scheduler keeps from entering the queue."""

    jobs: list[int]
    problem: str


class SettingsReadEventObject(TypedDict):
    """The files of limits and of channels are read: again, or at a start with other limits than were told before."""

    by: str
    limits: NotRequired[dict[str, dict[str, object]]]  # as the file of limits has them: default, user, group, qos


class NothingMoreObject(TypedDict):
    """An event whose kind says all."""


EVENTS: Final[Mapping[str, type]] = MappingProxyType(
    {
        "job": JobEventObject,
        "decision": DecisionEventObject,
        "rejected-plan": RejectedPlanEventObject,
        "attempt-ended": AttemptEndedEventObject,
        "node-registered": NodeRegisteredEventObject,
        "node-lost": NodeEventObject,
        "node-returned": NodeEventObject,
        "node-removed": NodeEventObject,
        "node-drained": NodeDrainedEventObject,
        "node-undrained": NodeEventObject,
        "node-reserved": NodeReservedEventObject,
        "node-notice": NodeNoticeEventObject,
        "node-set-apart": NodeSetApartEventObject,
        "store-adopted": StoreAdoptedEventObject,
        "message": MessageEventObject,
        "token-made": TokenMadeEventObject,
        "token-revoked": TokenRevokedEventObject,
        "profile-declared": ProfileDeclaredEventObject,
        "profiles-forgotten": ProfilesForgottenEventObject,
        "finished-jobs-removed": NothingMoreObject,
        "old-jobs-removed": OldJobsRemovedEventObject,
        "jobs-dropped": JobsDroppedEventObject,
        "settings-read": SettingsReadEventObject,
    }
)
"""By kind. A line of the story of events that cannot be read is told as `unreadable`."""

"""What the core is told, and what it answers. Data only: a driver brings events and carries out outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

from colane.core.usage import UsedGpus
from colane.model.hardware import Drain, Gpu, KeptFor, Node
from colane.model.job import Exit, Job, JobId, JobSpec, SuspendVia
from colane.model.job_spec import NewLimit, PromisedGpus
from colane.model.lengths import FamilyLengths
from colane.model.phases import Array, Hold, Ordinals
from colane.model.plan import Action, Plan
from colane.model.profile import Profile, SetMeasurement
from colane.model.progress import BandwidthSample, Progress
from colane.model.reason import Reason


@final
@dataclass(unsafe_hash=True, slots=True)
class Submitted:
    """A job entered the queue, with what keeps it from starting yet. Ids ascend with submission.

    Of an array, `array` says which elements it has; their ids are those behind its own. `elements` are those of them,
    counted from 0, that wait for something of their own, each with that. `after` names the jobs that the spec's means.
    `promised` are the GPUs by which its deadline is kept; with a `refusal` it ends at once, as it cannot be.
    """

    job: Final[JobId]
    spec: Final[JobSpec]
    holds: Final[tuple[Hold, ...]] = ()
    array: Final[Array | None] = None
    elements: Final[tuple[tuple[int, tuple[Hold, ...]], ...]] = ()
    after: Final[str] = ""
    promised: Final[PromisedGpus | None] = None
    refusal: Final[Reason | None] = None


class DependenciesEnded(NamedTuple):
    """Jobs that had ended before the jobs that wait for them entered the queue, in this very step."""

    jobs: tuple[Job, ...]


class CancelRequested(NamedTuple):
    """Its owner (or `by`) wants the job gone; of an array, these of its elements, all where none are named."""

    job: JobId
    by: str
    elements: tuple[Ordinals, ...] = ()


class RequeueRequested(NamedTuple):
    """Its owner (or `by`) wants a job that runs to leave its GPUs, its state saved, and to wait anew.

    Or its own process does, which has saved what it needs.
    """

    job: JobId
    by: str
    is_own: bool = False


class SuspendRequested(NamedTuple):
    """Its owner (or `by`) wants the job not to go on for a while."""

    job: JobId
    by: str
    via: SuspendVia = SuspendVia.LANE


class IdleParkRequested(NamedTuple):
    """A job has used nothing for `idle_s`: it shall give its GPUs up until it comes to its next step boundary."""

    job: JobId
    idle_s: float


class ResumeRequested(NamedTuple):
    """Its owner (or `by`) asks that a suspended job go on; one whose memory is on the host waits for its GPUs.

    One that waits may start, but not before `begin`, where that is given.
    """

    job: JobId
    by: str
    begin: Hold | None = None


class LimitsChanged(NamedTuple):
    """Its owner (or `by`) gives a live job other limits; what is None stays as it is."""

    job: JobId
    by: str
    time_limit: NewLimit | None = None
    at_once: NewLimit | None = None


class GroupsSeen(NamedTuple):
    """Of which groups of the system, that have limits, a user is a member."""

    user: str
    groups: tuple[str, ...]


class NodeRegistered(NamedTuple):
    """A node joined, came back, or changed what it has; `generation` is never below what it saw before."""

    node: Node


class NodeLost(NamedTuple):
    """A node was silent for too long, or was removed.

    Of one that is silent `halting` names all nodes, itself among them, on which processes may stand halted and go on
    later; none where nothing on it can. `told` are those whose agents halt a part of a job when they are told to.
    """

    node: str
    halting: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()

    def halts(self, nodes: tuple[str, ...]) -> bool:
        """Whether all processes on these can stand halted: of a job over several as soon as one of them is silent."""
        return (self.told if len(nodes) > 1 else self.halting).issuperset(nodes)


class PartHalted(NamedTuple):
    """What runs of an attempt on a node stands halted, as its agent was told."""

    job: JobId
    attempt: int
    node: str


class NodeDrained(NamedTuple):
    """A node takes no new jobs and lets those go that it has; or does not any more, where `drain` is None.

    It is an operator's word, or notice that the agent has of the machine's end: both hold until taken back.
    """

    node: str
    drain: Drain | None
    by_agent: bool = False


class NodeReserved(NamedTuple):
    """A node is kept for some users for these times."""

    node: str
    reservations: tuple[KeptFor, ...]


class GpusObserved(NamedTuple):
    """Health and foreign memory of a node's GPUs changed."""

    node: str
    gpus: tuple[Gpu, ...]


@final
@dataclass(unsafe_hash=True, slots=True)
class Launched:
    """The process of this attempt runs since `start_s`; `node` says where, for a job that spans several."""

    job: Final[JobId]
    attempt: Final[int]
    pid: Final[int]
    start_s: Final[float]
    node: Final[str] = ""


@final
@dataclass(unsafe_hash=True, slots=True)
class Progressed:
    """A sample of a running attempt; `node` says whence, for a job that spans several."""

    job: Final[JobId]
    attempt: Final[int]
    progress: Final[Progress]
    node: Final[str] = ""


@final
@dataclass(unsafe_hash=True, slots=True)
class Ended:
    """The process of this attempt is gone from `node`, with all its children.

    `outcome` is one of `exited`, `signalled`, `out-of-memory`, `not-started`, `supervisor-died`,
    `lease-run-out`, `node-fault`, `no-memory`, `stopped`, `mps-fault`, `mps-fault-of-other`, `mps-fault-unknown`,
    `gpu-refused`,
    `unknown`. `was_stopped` says whether it had been told to end, or to save its state, before it ended; None where
    its agent does not say.
    """

    job: Final[JobId]
    attempt: Final[int]
    outcome: Final[str]
    exit: Final[Exit]
    start_s: Final[float | None]
    end_s: Final[float]
    progress: Final[Progress | None] = None
    node: Final[str] = ""
    was_stopped: Final[bool | None] = None


class BandwidthObserved(NamedTuple):
    """An agent measured how much of the bandwidth of its node's memory each job uses."""

    node: str
    sample: BandwidthSample


class ProfileDeclared(NamedTuple):
    """An owner states what is known of a family."""

    profile: Profile


class ProfilesForgotten(NamedTuple):
    """What was learnt or declared of a family holds no more, nor what others were like next to it."""

    family: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; nothing else happened."""


Event = (
    Submitted
    | DependenciesEnded
    | CancelRequested
    | RequeueRequested
    | SuspendRequested
    | IdleParkRequested
    | ResumeRequested
    | LimitsChanged
    | GroupsSeen
    | NodeRegistered
    | NodeLost
    | PartHalted
    | NodeDrained
    | NodeReserved
    | GpusObserved
    | Launched
    | Progressed
    | Ended
    | BandwidthObserved
    | ProfileDeclared
    | ProfilesForgotten
    | Tick
)


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something a plan may not do. `code` has a heading in `docs/reference/reasons.md`."""

    code: str
    detail: str
    jobs: tuple[int, ...] = ()

    def __str__(self) -> str:
        """In one sentence."""
        return f"{self.detail} ({self.code})"


@dataclass(frozen=True, slots=True)
class RejectedPlan:
    """A plan that failed `check`, kept as evidence; it changed nothing."""

    plan: Plan
    flaws: tuple[Flaw, ...]


@final
@dataclass(unsafe_hash=True, slots=True)
class Decision:
    """One action that was carried out, with its reason, for audit and explanation."""

    at_s: Final[float]
    policy: Final[str]
    action: Final[Action]

    @property
    def reason(self) -> Reason:
        """Why."""
        return self.action.reason


@final
@dataclass(unsafe_hash=True, slots=True)
class Outcome:
    """What one `Core.step` changed and what the driver must do.

    The driver first makes `jobs`, `nodes`, `profiles` and `measurements` durable in one transaction, then nudges.
    """

    version: Final[int]  # version of the state after the step
    jobs: Final[tuple[Job, ...]] = ()  # new values of all changed jobs, ended ones included, in order of id
    # names of nodes whose desired jobs or hardware changed; their generation is now `version`
    nodes: Final[tuple[str, ...]] = ()
    lost_nodes: Final[tuple[str, ...]] = ()  # names of nodes that left
    profiles: Final[tuple[Profile, ...]] = ()  # new or changed profiles
    measurements: Final[tuple[SetMeasurement, ...]] = ()  # sets that were measured
    decisions: Final[tuple[Decision, ...]] = ()  # actions carried out
    rejected: Final[RejectedPlan | None] = None  # evidence of a plan that failed its check
    stale: Final[tuple[tuple[Event, str], ...]] = ()  # events that were not believed, each with the reason
    wake_s: Final[float | None] = None  # when the next timer is due; None when there is none
    used: Final[tuple[UsedGpus, ...]] = ()  # what users have used whose jobs have left GPUs
    # families of which nothing is known any more but what is among `profiles`, `measurements` and `lengths`
    forgotten: Final[tuple[str, ...]] = ()
    lengths: Final[tuple[FamilyLengths, ...]] = ()  # how long the jobs of families ran of which one has ended

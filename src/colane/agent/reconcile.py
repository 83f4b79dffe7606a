"""What to do so that the jobs that run are the jobs that shall run: a pure function.

Rules:
    * A job is started once for each attempt. Where anything of an attempt is on disk, it is not started again,
      unless it is unclaimed.
    * An attempt waits until older ones of its job have ended here: they hold the memory it needs.
    * A desired state older than the last one followed changes nothing.
    * An end is reported until it is answered, wanted or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from colane.agent.processes import ProcessId
from colane.model.placement import Turns
from colane.model.profile import Memory


class Key(NamedTuple):
    """One start of one job."""

    job: int
    attempt: int

    def __str__(self) -> str:
        """`job-attempt`, the name of its directory."""
        return f"{self.job}-{self.attempt}"


class SaveRequest(NamedTuple):
    """A job is to save its state: by which signal it is told, and which such asking of its attempt it is.

    And as how many ranks it is to go on then; 0: it is to leave.
    """

    signal: str
    number: int
    ranks: int = 0


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the processes of a job meet, and which of them are here."""

    address: str  # host of the first rank, as the others reach it
    port: int  # port there, handed out to this job
    ranks: int  # processes of the whole job
    first_rank: int = 0  # rank of the first process on this node
    nodes: int = 1  # nodes of the job
    node: int = 0  # which of them this is

    def hints(self, here: int) -> dict[str, str]:
        """Give what a launcher of the job's own may use: it changes nothing by itself."""
        numbers = {"MASTER_PORT": self.port, "NNODES": self.nodes, "NODE_RANK": self.node, "NPROC_PER_NODE": here}
        return {"MASTER_ADDR": self.address, **{name: str(value) for name, value in numbers.items()}}

    def orders(self, here: int) -> dict[str, str]:
        """Give what ranks that we start need beside their own numbers."""
        return {**self.hints(here), "WORLD_SIZE": str(self.ranks), "GROUP_RANK": str(self.node)}


@dataclass(frozen=True, slots=True)
class DesiredJob:
    """A job the scheduler has placed here."""

    key: Key  # which start of it
    run: bool  # whether it shall run; False asks for its end
    gpus: tuple[int, ...] = ()  # indexes of its devices in rank order
    cores: tuple[int, ...] = ()  # cores booked for it alone; empty shares those near its devices
    lanes: tuple[int, ...] = ()  # its lane on each of its devices
    weight: float = 1.0  # its share of turns under `fair`
    priority: int = 0  # higher goes first under `priority`
    serves: bool = False  # it answers requests
    steps_total: int | None = None  # steps until it is done, None when unknown
    paused: bool = False  # it is kept at its next step boundary
    flush: bool = False  # it gives cached GPU memory back when it yields
    to_host: bool = False  # its GPU memory is moved to the host while it is paused
    at_rest: bool = False  # it is not waited for at a step boundary for that: it makes no step
    meeting: Meeting | None = None  # where its ranks here meet those on other nodes; None for a job on this node alone
    save: SaveRequest | None = None  # how it is to be asked to save its state now; None where it is not
    memory_limit_bytes: int = 0  # host memory that its processes here may use together; 0 does not bound them
    bandwidth_ratio: float = 1.0  # part of the bandwidth of the node's memory that it may use; 1 does not bound it
    # what it books of each of its devices; None where it books none, or the scheduler does not know
    memory: Memory | None = None
    because: str = ""  # why it shall not run
    halt: bool = False  # all that runs of it shall stand, as another part of it is silent


@dataclass(frozen=True, slots=True)
class Desired:
    """All that shall run here, as of one generation of the node, and how jobs of one lane take turns.

    `bandwidth_interval_s` is how often bandwidth of memory is reported by job; None: never.
    """

    generation: int
    jobs: tuple[DesiredJob, ...]
    turns: Turns = field(default_factory=Turns)
    bandwidth_interval_s: float | None = None


class AttemptPhase(Enum):
    """How far an attempt has come on this machine."""

    PREPARED = auto()  # its directory is there, unclaimed: a launch that a crash broke off
    STARTING = auto()  # its supervisor has been started and has not claimed it yet
    RUNNING = auto()  # its supervisor lives
    LOST = auto()  # its supervisor is gone and left no record
    ENDED = auto()  # its record is there, the scheduler has not answered yet
    DELIVERED = auto()  # the scheduler knows its end


class Evidence(NamedTuple):
    """What is known of one attempt."""

    claimed_by: ProcessId | None  # the process that claimed it
    alive: ProcessId | None  # the process under that pid now
    has_ended: bool  # whether there is a record of its end
    spawned: bool  # whether a supervisor of ours is on its way


class Act(Enum):
    """What can be done to an attempt."""

    START = auto()
    STOP = auto()
    REJECT = auto()  # it shall stop and has never been here: say that it was not started
    REAP = auto()  # remove what its dead supervisor left, and record that
    REPORT = auto()


class Action(NamedTuple):
    """One thing to do."""

    act: Act
    key: Key


def phase_of(evidence: Evidence) -> AttemptPhase:
    """Judge how far an attempt is; a pid that another process has now counts as gone."""
    if evidence.has_ended:
        return AttemptPhase.ENDED
    if evidence.claimed_by is not None:
        return AttemptPhase.RUNNING if evidence.alive == evidence.claimed_by else AttemptPhase.LOST
    return AttemptPhase.STARTING if evidence.spawned else AttemptPhase.PREPARED


def reconcile(desired: Desired | None, observed: Mapping[Key, AttemptPhase], followed: int = -1) -> list[Action]:
    """Say what to do.

    Args:
        desired: What shall run; None while the scheduler has not told.
        observed: What is here.
        followed: Newest generation followed so far.

    Returns:
        Actions: ends first, so that starts find their memory free; each in order of job and attempt.
    """
    actions = [Action(_ENDINGS[phase], key) for key, phase in sorted(observed.items()) if phase in _ENDINGS]
    if desired is None or desired.generation < followed:
        return actions
    return actions + _stops(desired, observed) + _starts(desired, observed)


_ENDINGS = {AttemptPhase.LOST: Act.REAP, AttemptPhase.ENDED: Act.REPORT}
_STOPPABLE = frozenset({AttemptPhase.PREPARED, AttemptPhase.STARTING, AttemptPhase.RUNNING})
_IN_THE_WAY = frozenset({AttemptPhase.STARTING, AttemptPhase.RUNNING, AttemptPhase.LOST})


def _stops(desired: Desired, observed: Mapping[Key, AttemptPhase]) -> list[Action]:
    wanted = {job.key for job in desired.jobs if job.run}
    unwanted = sorted(key for key, phase in observed.items() if phase in _STOPPABLE and key not in wanted)
    unknown = sorted(job.key for job in desired.jobs if not job.run and job.key not in observed)
    return [Action(Act.STOP, key) for key in unwanted] + [Action(Act.REJECT, key) for key in unknown]


def _starts(desired: Desired, observed: Mapping[Key, AttemptPhase]) -> list[Action]:
    wanted = sorted(job.key for job in desired.jobs if job.run)
    fresh = (key for key in wanted if observed.get(key, AttemptPhase.PREPARED) is AttemptPhase.PREPARED)
    return [Action(Act.START, key) for key in fresh if not _others_alive(key, observed.items())]


def _others_alive(key: Key, observed: Iterable[tuple[Key, AttemptPhase]]) -> bool:
    return any(o.job == key.job and o != key and phase in _IN_THE_WAY for o, phase in observed)

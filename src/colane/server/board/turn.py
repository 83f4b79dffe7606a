"""One turn of the writer: what all waiting requests want, gathered before the core is asked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from colane.api.wire_nodes import NodeBody
from colane.core.events import Event
from colane.model.hardware import Drain, KeptFor, Node
from colane.model.job import JobId
from colane.model.progress import Progress
from colane.server.board.clock import ClockMark
from colane.server.board.read_model import ReadModel
from colane.server.board.reads import Reads
from colane.server.board.slices import BatchSlice
from colane.server.board.submission import Admitted
from colane.server.ground.access import TokenRecord
from colane.server.store.documents import Body
from colane.server.store.store import AuditEntry, Delete, Put

GIVEN: Final = frozenset({"read_model", "now_s", "next_job_id", "progress", "clock", "reads", "gpus_entering"})
"""Fields that a turn begins with, and what only counts; requests add to the others."""


@dataclass(slots=True)
class Turn:
    """Requests add to it, in order of arrival; the first check what they need and only then add anything."""

    read_model: ReadModel  # what was durable before this turn
    now_s: float  # the turn's time
    next_job_id: int  # id of the next job submitted in this turn
    progress: Mapping[JobId, Progress]  # latest samples of running jobs
    clock: ClockMark | None = None  # by which the next process goes on from here; None for a turn that is only tried
    reads: Reads = field(default_factory=Reads)  # what requests read of the store
    events: list[Event] = field(default_factory=list)  # what the core will be told
    admitted: dict[JobId, Admitted] = field(default_factory=dict)  # jobs that enter the queue in this turn
    # parts of batches that become durable in this turn, and enter in later ones
    slices: list[BatchSlice] = field(default_factory=list)
    # such parts, of earlier turns, that enter in this one, or are dropped
    entered: list[BatchSlice] = field(default_factory=list)
    # bodies of `/finished_job` whose attempt ends in this turn
    finished: dict[tuple[JobId, str], Body] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)  # agents that registered in this turn, by node
    messages: dict[str, tuple[str, ...]] = field(default_factory=dict)  # new messages of nodes
    registered: dict[str, NodeBody] = field(default_factory=dict)  # how nodes were described in this turn, by name
    without_agent: dict[str, Node] = field(default_factory=dict)  # those of these that no agent speaks for yet
    # why nodes that are lost are drained once they are back; None where they are not
    drained: dict[str, Drain | None] = field(default_factory=dict)
    # what nodes are reserved for once they are back
    reserved: dict[str, tuple[KeptFor, ...]] = field(default_factory=dict)
    leased: dict[str, bool] = field(default_factory=dict)  # whether jobs of nodes end by themselves, where that is news
    # whether they are halted, and not ended, for want of word, and when told, where that is news
    halts: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    # tokens made in this turn, by digest; None for one that is revoked
    tokens: dict[str, TokenRecord | None] = field(default_factory=dict)
    # what the agents of nodes are told to be of instead of the cluster's own id
    set_apart: dict[str, str] = field(default_factory=dict)
    removed_nodes: set[str] = field(default_factory=set)  # nodes to forget
    clears: list[str] = field(default_factory=list)  # collections to empty
    puts: list[Put] = field(default_factory=list)  # single documents to write beside those that the outcome gives
    # single documents to remove beside those that the outcome gives
    deletes: list[Delete] = field(default_factory=list)
    answers: dict[str, Body] = field(default_factory=dict)  # first answers by idempotency key
    # how many jobs were submitted, by name of the limit that counts them
    submissions: Counter[str] = field(default_factory=Counter)
    # the groups of the system of each user that the core is told of in this turn
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gpus_entering: int = 0  # how many GPUs the nodes have that join or come back
    audit: list[AuditEntry] = field(default_factory=list)  # lines beside those that the outcome gives

    @property
    def size(self) -> tuple[int, ...]:
        """How much stands in it: the same before and after a request that added nothing."""
        return tuple([len(getattr(self, part)) for part in ADDED])

    @property
    def gpus_coming(self) -> int:
        """How many GPUs come in with nodes, or come free, in this turn: an end counts as one."""
        return len(self.finished) + self.gpus_entering

    def drain_of(self, known: Node) -> Drain | None:
        """Why a node is drained that is known: what was asked in this turn counts."""
        return self.drained.get(known.name, known.drain)

    def reservations_of(self, known: Node) -> tuple[KeptFor, ...]:
        """For which users a node is kept that is known: what was asked in this turn counts."""
        return self.reserved.get(known.name, known.reservations)

    def record(self, kind: str, **body: Any) -> None:  # noqa: ANN401
        """Add an audit line."""
        self.audit.append(AuditEntry(self.now_s, kind, body))


ADDED: Final = tuple(each.name for each in fields(Turn) if each.name not in GIVEN)  # what requests add to

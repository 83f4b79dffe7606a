"""One turn of the writer: what all waiting requests want, gathered before the core is asked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from colane.api.wire_nodes import NodeBody
from colane.core.events import Event
from colane.model.hardware import Drain
from colane.model.job import JobId
from colane.model.progress import Progress
from colane.server.board.admitted import Admitted
from colane.server.board.clock import ClockMark
from colane.server.board.read_model import ReadModel
from colane.server.board.reads import Reads
from colane.server.board.slices import BatchSlice
from colane.server.ground.access import TokenRecord
from colane.server.store.documents import Body
from colane.server.store.store import AuditEntry, Delete, Put

GIVEN: Final = frozenset({"read_model", "now_s", "next_job_id", "progress", "clock", "reads", "gpus_entering"})
"""Fields that a turn begins with, and what only counts; requests add to the others."""


@dataclass(slots=True)
class Turn:
    """Requests add to it, in order of arrival; the first check what they need and only then add anything.

    Attributes:
        read_model: What was durable before this turn.
        now_s: The turn's time.
        next_job_id: Id of the next job submitted in this turn.
        progress: Latest samples of running jobs.
        clock: By which the next process goes on from here; None for a turn that is only tried.
        reads: What requests read of the store.
        events: What the core will be told.
        admitted: Jobs that enter the queue in this turn.
        slices: Parts of batches that become durable in this turn, and enter in later ones.
        entered: Such parts, of earlier turns, that enter in this one, or are dropped.
        finished: Bodies of `/finished_job` whose attempt ends in this turn.
        agents: Agents that registered in this turn, by node.
        messages: New messages of nodes.
        registered: How nodes were described in this turn, by name.
        drained: Why nodes that are lost are drained once they are back; None where they are not.
        leased: Whether jobs of nodes end by themselves, where that is news.
        halts: Whether they are halted, and not ended, for want of word, where that is news.
        tokens: Tokens made in this turn, by digest; None for one that is revoked.
        set_apart: What the agents of nodes are told to be of instead of the cluster's own id.
        removed_nodes: Nodes to forget.
        clears: Collections to empty.
        puts: Single documents to write beside those that the outcome gives.
        deletes: Single documents to remove beside those that the outcome gives.
        answers: First answers by idempotency key.
        submissions: How many jobs were submitted, by name of the limit that counts them.
        groups: The groups of the system of each user that the core is told of in this turn.
        gpus_entering: How many GPUs the nodes have that join or come back.
        audit: Lines beside those that the outcome gives.
    """

    read_model: ReadModel
    now_s: float
    next_job_id: int
    progress: Mapping[JobId, Progress]
    clock: ClockMark | None = None
    reads: Reads = field(default_factory=Reads)
    events: list[Event] = field(default_factory=list)
    admitted: dict[JobId, Admitted] = field(default_factory=dict)
    slices: list[BatchSlice] = field(default_factory=list)
    entered: list[BatchSlice] = field(default_factory=list)
    finished: dict[tuple[JobId, str], Body] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    messages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    registered: dict[str, NodeBody] = field(default_factory=dict)
    drained: dict[str, Drain | None] = field(default_factory=dict)
    leased: dict[str, bool] = field(default_factory=dict)
    halts: dict[str, bool] = field(default_factory=dict)
    tokens: dict[str, TokenRecord | None] = field(default_factory=dict)
    set_apart: dict[str, str] = field(default_factory=dict)
    removed_nodes: set[str] = field(default_factory=set)
    clears: list[str] = field(default_factory=list)
    puts: list[Put] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    answers: dict[str, Body] = field(default_factory=dict)
    submissions: Counter[str] = field(default_factory=Counter)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gpus_entering: int = 0
    audit: list[AuditEntry] = field(default_factory=list)

    @property
    def size(self) -> tuple[int, ...]:
        """How much stands in it: the same before and after a request that added nothing."""
        return tuple([len(getattr(self, part)) for part in ADDED])

    @property
    def gpus_coming(self) -> int:
        """How many GPUs come in with nodes, or come free, in this turn: an end counts as one."""
        return len(self.finished) + self.gpus_entering

    def record(self, kind: str, **body: Any) -> None:  # noqa: ANN401
        """Add an audit line."""
        self.audit.append(AuditEntry(self.now_s, kind, body))


ADDED: Final = tuple(each.name for each in fields(Turn) if each.name not in GIVEN)
"""What requests add to."""

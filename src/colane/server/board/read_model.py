"""What is durable now, as clients may see it: live jobs and nodes, one step behind the core while a commit runs.

Only the driver changes it, and only after a commit; everything in it is immutable, so readers need no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from colane.api.forms import choice, record, several
from colane.facts.job import waiting
from colane.model.arrays import both, has
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobState
from colane.server.board.hardware import Hardware
from colane.server.board.slices import BatchSlice, read_slices
from colane.server.ground.access import Caller, Role, TokenRecord
from colane.server.store import documents
from colane.server.store.attempts import ATTEMPTS, AttemptRecord
from colane.server.store.documents import Body
from colane.server.store.store import (
    ASSIGNED_JOBS,
    FINISHED_JOBS,
    MEASUREMENTS,
    META,
    NODES,
    PROFILES,
    RUN_TIMES,
    SUBMITTED_JOBS,
    TOKENS,
    USED,
    Store,
)
from colane.server.store.unreadable import read_one, readable

COUNTERS_KEY: Final = "counters"
LIMITS_KEY: Final = "limits"  # of the limits that the story of events told last
CLOCK_KEY: Final = "clock"  # where the service's time stood at the last commit


class AgentDoor(NamedTuple):
    """How an agent is called: its base URL, empty where it has none, and what it demands of the caller."""

    address: str
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request to it."""
        return {"Authorization": f"Bearer {self.secret}"} if self.secret else {}


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as the store keeps it."""

    node: Node  # its hardware and agent
    generation: int  # version of the state at which its desired jobs or hardware last changed
    order: int  # place in order of first registration
    lost: bool = False  # its agent was silent for too long; it holds no jobs
    messages: tuple[str, ...] = ()  # what its agent has to say (MPS that could not be started, ...)
    leased: bool = True  # its jobs end by themselves when it is silent; of one without a lease, silence tells nothing
    secret: str = field(default="", repr=False)  # what its agent demands of callers
    runs_as: str = ""  # the one user whose jobs its agent can run, empty where it runs those of all users
    agent_version: str = ""  # version of its agent, empty of one that does not say
    cluster_id: str = ""  # what its agent is told to be of instead of the cluster's own id; empty where it is told that
    replaced: bool = False  # another node takes its place when it is gone, so its jobs do not wait for it
    halts: bool = False  # its jobs are halted, and not ended, for want of word
    halts_told: bool = False  # a job of it can be halted, too, as its agent is told

    @property
    def door(self) -> AgentDoor:
        """How its agent is called."""
        return AgentDoor(self.node.address, self.secret)


@dataclass(frozen=True, slots=True)
class Counters:
    """Numbers that must never be given twice."""

    next_job_id: int = 1  # id of the next job submitted
    next_node_order: int = 0  # place of the next node registered
    version: int = 0  # version of the cluster's state


V = TypeVar("V")


@dataclass(slots=True)
class ReadModel:
    """Live jobs and nodes."""

    jobs: dict[JobId, Job] = field(default_factory=dict)  # live jobs by id, in order of id
    model_names: dict[JobId, str] = field(default_factory=dict)  # built-in model of the jobs that run one
    # what is known of the attempts of live jobs
    attempts: dict[JobId, tuple[AttemptRecord, ...]] = field(default_factory=dict)
    # nodes by name, lost ones included, in order of first registration
    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    on_node: dict[str, set[JobId]] = field(default_factory=dict)  # live jobs that hold GPUs of a node, in order of id
    # jobs that wait while an attempt of theirs stands halted on a node
    halted_on: dict[str, set[JobId]] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)  # see `Counters`
    tokens: dict[str, TokenRecord] = field(default_factory=dict)  # tokens by digest
    # elements that are live jobs, by their array; live arrays alone
    elements: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    queued: Counter[str] = field(default_factory=Counter)  # how many live jobs of each user wait in the queue
    limits_told: Mapping[str, Any] | None = None  # as tables of a file; None where none were ever told
    # parts of batches that are to enter the queue, by the id of their first job, in order
    entering: dict[JobId, BatchSlice] = field(default_factory=dict)
    _queued_as: dict[JobId, tuple[str, int]] = field(default_factory=dict)
    _hardware: Hardware | None = None

    @property
    def hardware(self) -> Hardware:
        """What all nodes have, for judging requests; made when it is asked for, as most turns ask for none."""
        if self._hardware is None:
            self._hardware = Hardware(known.node for known in self.nodes.values())
        return self._hardware

    def array_with(self, job_id: int) -> Job | None:
        """Return the live array one of whose elements has an id; None where there is none."""
        for array_id in self.elements:
            job = self.jobs.get(array_id)
            if job is not None and job.array is not None and has(array_id, job.array, job_id):
                return job
        return None

    def has_unmade(self, job_id: int) -> bool:
        """Whether an id is that of an element of an array that waits and is no job of its own yet."""
        owner = self.array_with(job_id)
        if owner is None or owner.array is None:
            return False
        ordinal = job_id - owner.id - 1
        return bool(both(owner.array.pending, ((ordinal, ordinal),)))

    def model_of(self, job: Job) -> str | None:
        """Return the built-in model that a live job runs; None of a command."""
        return self.model_names.get(job.id if job.element is None else job.element.array)

    def elements_of(self, array_id: JobId) -> list[Job]:
        """Return the elements of an array that are live jobs, in order of id."""
        return [self.jobs[job] for job in sorted(self.elements.get(array_id, ()))]

    def put_job(self, job: Job) -> None:
        """Take a job's new value; an ended one leaves."""
        old = self.jobs.get(job.id)
        self._count(job.id, (job.spec.user, waiting(job)) if job.state is JobState.QUEUED else None)
        self._leave_nodes(old)
        if job.array is not None or job.element is not None:
            if job.element is not None and job.has_ended:
                self.elements.get(job.element.array, {}).pop(job.id, None)
            elif job.element is not None:
                self.elements.setdefault(job.element.array, {})[job.id] = None
            elif job.has_ended:
                self.elements.pop(job.id, None)
            else:
                self.elements.setdefault(job.id, {})
        if job.has_ended:
            self.jobs.pop(job.id, None)
            self.model_names.pop(job.id, None)
            self.attempts.pop(job.id, None)
            return
        self.jobs[job.id] = job
        for node in _held_nodes(job):
            self.on_node.setdefault(node, set()).add(job.id)
        for node in job.halted.placement.nodes if job.halted is not None else ():
            self.halted_on.setdefault(node, set()).add(job.id)

    def _leave_nodes(self, job: Job | None) -> None:
        if job is None:
            return
        for node in _held_nodes(job):
            self.on_node[node].discard(job.id)
        for node in job.halted.placement.nodes if job.halted is not None else ():
            self.halted_on[node].discard(job.id)

    def drop_job(self, job_id: JobId) -> None:
        """Forget a job that has ended."""
        job = self.jobs.pop(job_id, None)
        if job is None:
            return
        self._count(job_id, None)
        self._leave_nodes(job)
        self.model_names.pop(job_id, None)
        self.attempts.pop(job_id, None)
        self.elements.pop(job_id, None)
        if job.element is not None:
            self.elements.get(job.element.array, {}).pop(job_id, None)

    def _count(self, job_id: JobId, waits: tuple[str, int] | None) -> None:
        """Note whose job waits in the queue now, and for how many it counts; None where it does not."""
        if (before := self._queued_as.pop(job_id, None)) is not None:
            self.queued[before[0]] -= before[1]
            if not self.queued[before[0]]:
                del self.queued[before[0]]
        if waits is not None:
            self._queued_as[job_id] = waits
            self.queued[waits[0]] += waits[1]

    def put_nodes(self, records: Iterable[NodeRecord], removed: Iterable[str] = ()) -> None:
        """Take new values of nodes and drop others."""
        for known in records:
            name, before = known.node.name, self.nodes.get(known.node.name)
            self.nodes[name] = known
            if before is None or before.node is not known.node:  # most records are new for their jobs' sake
                self._hardware = None
        for name in removed:
            if self.nodes.pop(name, None) is not None:
                self._hardware = None

    def put_tokens(self, changed: Mapping[str, TokenRecord | None]) -> None:
        """Take new tokens, and drop those that are None."""
        _take(self.tokens, changed)

    def assigned(self, node: str) -> list[Job]:
        """Live jobs that hold GPUs of a node, in order of id."""
        return [self.jobs[job] for job in sorted(self.on_node.get(node, ()))]

    def wanted(self, node: str) -> list[Job]:
        """The same with those that may go on there, placed as they were."""
        standing, here = self.halted_on.get(node, set()), self.on_node.get(node, set())
        if not standing:
            return self.assigned(node)
        stood = {job: self.jobs[job].halted_as() for job in standing - here}
        for job, was in stood.items():
            was.halted = self.jobs[job].halted  # it is told to stand
        return [stood.get(job) or self.jobs[job] for job in sorted({*here, *stood})]


def _take(known: dict[str, V], changed: Mapping[str, V | None]) -> None:
    for key, value in changed.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value


def _held_nodes(job: Job) -> tuple[str, ...]:
    """Nodes on which a job has processes, or shall have."""
    if job.placement is None:
        return ()
    return tuple([node for node in job.placement.nodes if node not in job.run.ended_on])


NODE_RECORD: Final = record(NodeRecord, node=documents.NODE, messages=several())
COUNTERS: Final = record(Counters)
TOKEN: Final = record(TokenRecord, caller=record(Caller, role=choice(Role)))


def encode_record(node: NodeRecord) -> Body:
    """Return a node's document."""
    body: Body = NODE_RECORD.write(node)
    return body


def decode_record(body: Mapping[str, Any]) -> NodeRecord:
    """Return the record of `encode_record`."""
    return NODE_RECORD.read(body)


def encode_counters(counters: Counters) -> Body:
    """Return the counters' document."""
    body: Body = COUNTERS.write(counters)
    return body


def encode_live(job: Job, model_name: str | None, attempts: tuple[AttemptRecord, ...] = ()) -> Body:
    """Return a live job's document."""
    return {**documents.encode_job(job), "model_name": model_name, "attempts": ATTEMPTS.write(attempts)}


Live = tuple[Job, str | None, tuple[AttemptRecord, ...]]


class LiveMemo:
    """Decodes live jobs, and knows again what it has decoded: most of a long queue is the same at the next reading."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, Any], Live]] = {}
        self._seen: dict[int, tuple[Mapping[str, Any], Live]] = {}

    def __call__(self, body: Mapping[str, Any]) -> Live:
        """Return what `decode_live` does."""
        number = body.get("id")
        known = self._known.get(number) if isinstance(number, int) else None
        if known is None or (known[0] is not body and known[0] != body):
            known = (body, decode_live(body))
        self._seen[known[1][0].id] = known
        return known[1]

    def forget_others(self) -> None:
        """Keep what was seen since this was last called."""
        self._known, self._seen = self._seen, {}


def read_board(store: Store, decode: Callable[[Mapping[str, Any]], Live] | None = None) -> ReadModel:
    """Read everything back; live jobs by `decode` where one is given. Raises StoreError: the store cannot be read."""
    read_model = ReadModel()
    read_model.counters = read_one(store, META, COUNTERS_KEY, COUNTERS.read) or Counters()
    read_model.limits_told = read_one(store, META, LIMITS_KEY, dict)
    read_model.entering.update(read_slices(store))
    records = readable(store, NODES, store.read_all(NODES), decode_record)
    read_model.put_nodes(sorted(records, key=lambda known: known.order))
    tokens = readable(store, TOKENS, store.read_all(TOKENS), TOKEN.read)
    read_model.tokens.update((token.digest, token) for token in tokens)
    queues = (SUBMITTED_JOBS, ASSIGNED_JOBS)
    live = [one for name in queues for one in readable(store, name, store.read_all(name), decode or decode_live)]
    for job, model_name, attempts in sorted(live, key=lambda one: one[0].id):
        read_model.put_job(job)
        if model_name is not None:
            read_model.model_names[job.id] = model_name
        if attempts:
            read_model.attempts[job.id] = attempts
    return read_model


def decode_live(body: Mapping[str, Any]) -> tuple[Job, str | None, tuple[AttemptRecord, ...]]:
    """Return a live job, its built-in model and its attempts, of `encode_live`."""
    return documents.decode_job(body), body.get("model_name"), ATTEMPTS.read(body.get("attempts", ()))


DECODERS: Final[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {
    SUBMITTED_JOBS: decode_live,
    ASSIGNED_JOBS: decode_live,
    FINISHED_JOBS: lambda body: documents.decode_job(body["job"]),
    NODES: decode_record,
    TOKENS: TOKEN.read,
    USED: documents.USED.read,
    PROFILES: documents.decode_profile,
    MEASUREMENTS: documents.decode_measurement,
    RUN_TIMES: documents.RUN_TIME.read,
}
"""How documents are read whose readers want more than a JSON object."""

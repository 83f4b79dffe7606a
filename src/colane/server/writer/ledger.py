"""From an outcome of the core to one transaction: documents and audit lines that become durable together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from colane.api.events import (
    DecidedPlaceObject,
    DecisionEventObject,
    JobEventObject,
    JobHappened,
    RejectedPlanEventObject,
)
from colane.api.jobs import ReasonObject
from colane.core.events import Decision, Outcome, RejectedPlan
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobState
from colane.model.phases import LEAVING, StateChange
from colane.model.plan import ACTION_NAMES, placement_of
from colane.model.profile import ProfileKey
from colane.model.reason import Reason
from colane.server.board import submission
from colane.server.board.clock import CLOCK_MARK, ClockMark
from colane.server.board.read_model import (
    CLOCK_KEY,
    COUNTERS_KEY,
    TOKEN,
    Counters,
    NodeRecord,
    ReadModel,
    encode_counters,
    encode_live,
    encode_record,
)
from colane.server.board.slices import BatchSlice, put_slice
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.access import TokenRecord
from colane.server.store import documents
from colane.server.store.attempts import ATTEMPTS, AttemptRecord, with_moves
from colane.server.store.documents import Body
from colane.server.store.store import (
    ASSIGNED_JOBS,
    FINISHED_JOBS,
    IDEMPOTENCY,
    LAUNCH_SPECS,
    MEASUREMENTS,
    META,
    NODES,
    PROFILES,
    RUN_TIMES,
    SUBMITTED_JOBS,
    TOKENS,
    USED,
    AuditEntry,
    Delete,
    Document,
    Put,
    Transaction,
    job_key,
)

# -- What a change of a job's state means to those who follow it, by its records of before and after.
#
# Its reason explains the change, and is read by people alone: no notice, count or follower asks for a reason's code.


def changes(old: Job | None, job: Job) -> Iterator[tuple[StateChange, JobHappened | None]]:
    """Yield a job's changes of state since its record of before, and what each has brought, if it is one of those."""
    state = None if old is None else old.state
    lines = job.changes_since(0 if old is None else old.changes)
    for line, following in zip_longest(lines, lines[1:]):
        to = line.state
        happened: JobHappened | None = None
        if job.array is not None:
            happened = "elements-cut" if job.array.cut != _cut(old) else None
        elif state is JobState.ASSIGNED and to is JobState.LAUNCHING:
            happened = "started"
        elif to is JobState.PAUSED and state is not to:
            happened = _paused(job)
        elif to is JobState.QUEUED and old is not None and _is_taken_off(old, state, job):
            goes_on = old.resizes_to is not None and following is not None and following.state is JobState.ASSIGNED
            happened = None if goes_on else "taken-off"
        yield line, happened
        state = to


def _cut(old: Job | None) -> object:
    return () if old is None or old.array is None else old.array.cut


def _paused(job: Job) -> JobHappened | None:
    if job.suspension is not None and job.suspension.until_step:
        return "parked-idle"
    return None if job.parking is None else "taken-off"


def _is_taken_off(old: Job, state: JobState | None, job: Job) -> bool:
    """Whether it had to leave its devices, or has lost them: none of its processes has failed by itself."""
    if job.totals.losses > old.totals.losses:
        return True
    if job.totals.failures > old.totals.failures:
        return False
    return state in LEAVING and (old.leaving is None or not old.leaving.has_failed)


FINISHED_FIELDS = (
    "node", "start_s", "end_s", "exit_code", "signal", "outcome", "detail", "step_durations_s", "progress",
    "log_bytes", "log_truncated",
)  # fmt: skip
"""Fields of a finished object that its record keeps beside the job's own."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What a turn writes, and what the board takes over once it is durable."""

    transaction: Transaction  # to be committed
    jobs: tuple[Job, ...]  # new values of jobs
    model_names: Mapping[JobId, str]  # built-in models of new jobs
    attempts: Mapping[JobId, tuple[AttemptRecord, ...]]  # what is known of the attempts of the jobs of this turn
    nodes: tuple[NodeRecord, ...]  # new values of nodes
    removed_nodes: frozenset[str]  # nodes that are forgotten
    counters: Counters  # new values of the counters
    tokens: Mapping[str, TokenRecord | None]  # tokens that are new, None for revoked ones
    slices: tuple[BatchSlice, ...] = ()  # parts of batches that are to enter the queue
    entered: tuple[BatchSlice, ...] = ()  # those that have

    def apply(self, read_model: ReadModel) -> None:
        """Show what is durable now."""
        read_model.model_names.update(self.model_names)
        read_model.attempts.update(self.attempts)
        for job in self.jobs:
            read_model.put_job(job)
        read_model.put_nodes(self.nodes, self.removed_nodes)
        read_model.counters = self.counters
        read_model.put_tokens(self.tokens)
        read_model.entering.update((part.first, part) for part in self.slices)
        for part in self.entered:
            read_model.entering.pop(part.first, None)


LaunchSpecs = Callable[[Job], Document | None]  # gives what is kept for the launch of a live job


def compose(
    turn: Turn, outcome: Outcome, hardware: Mapping[str, Node], policy: str, launch_specs: LaunchSpecs
) -> LedgerEntry:
    """Put a turn and its outcome into one transaction.

    Args:
        turn: What was asked.
        outcome: What came of it.
        hardware: The core's nodes named in `outcome.nodes`.
        policy: Name of the policy that decides now.
        launch_specs: Asked of the jobs that end.

    Raises:
        StoreError: The store cannot be read.
    """
    records = tuple(_records(turn, outcome, hardware))
    new = sum(record.node.name not in turn.read_model.nodes for record in records)
    counters = Counters(turn.next_job_id, turn.read_model.counters.next_node_order + new, outcome.version)
    attempts = dict(_attempts(turn, outcome))
    puts, deletes = _job_changes(turn, outcome, policy, attempts, launch_specs)
    puts += [Put(NODES, record.node.name, encode_record(record)) for record in records]
    puts += [*turn.puts, *_learnt(outcome)]
    puts += [Put(USED, f"user {used.user}", documents.USED.write(used)) for used in outcome.used]
    puts += [Put(IDEMPOTENCY, key, answer) for key, answer in turn.answers.items()]
    puts += map(put_slice, turn.slices)
    deletes += [Delete(META, part.key) for part in turn.entered]
    removed = turn.removed_nodes - set(outcome.nodes)
    written = {(put.collection, put.key) for put in puts}  # what a forgotten family has taught since in this very turn
    puts += [Put(TOKENS, key, TOKEN.write(token)) for key, token in turn.tokens.items() if token is not None]
    deletes += [Delete(TOKENS, key) for key, token in turn.tokens.items() if token is None]
    deletes += [Delete(NODES, name) for name in sorted(removed)]
    deletes += [delete for delete in turn.deletes if (delete.collection, delete.key) not in written]
    audit = [*turn.audit, *_audit(turn, outcome, policy)]
    if puts or deletes or audit or turn.clears:
        puts.append(Put(META, COUNTERS_KEY, encode_counters(counters)))
        puts += [put_clock(turn.clock)] if turn.clock is not None else []
    names = {job: asked.model_name for job, asked in turn.admitted.items() if asked.model_name is not None}
    return LedgerEntry(
        Transaction(puts, deletes, audit, tuple(turn.clears)),
        outcome.jobs,
        names,
        attempts,
        records,
        frozenset(removed),
        counters,
        turn.tokens,
        tuple(turn.slices),
        tuple(turn.entered),
    )


def put_clock(mark: ClockMark) -> Put:
    """Write where the service's time stands."""
    return Put(META, CLOCK_KEY, CLOCK_MARK.write(mark))


def _records(turn: Turn, outcome: Outcome, hardware: Mapping[str, Node]) -> Iterator[NodeRecord]:
    order = turn.read_model.counters.next_node_order
    for name in outcome.nodes:
        old = turn.read_model.nodes.get(name)
        fresh = replace(old, lost=False) if old else NodeRecord(hardware[name], outcome.version, order)
        order += old is None
        yield _said(turn, replace(fresh, node=hardware[name], generation=outcome.version))
    for name in outcome.lost_nodes:
        if name in turn.read_model.nodes and name not in outcome.nodes and name not in turn.removed_nodes:
            yield _said(turn, replace(turn.read_model.nodes[name], lost=True, generation=outcome.version))
    for name, node in turn.without_agent.items():
        old = turn.read_model.nodes.get(name)
        yield _said(turn, NodeRecord(node, outcome.version, order if old is None else old.order, lost=True))
        order += old is None
    told = turn.messages.keys() | turn.leased.keys() | turn.registered.keys() | turn.drained.keys() | turn.halts.keys()
    said = told | turn.reserved.keys() | turn.set_apart.keys()
    for name in said - {*outcome.nodes, *outcome.lost_nodes, *turn.removed_nodes, *turn.without_agent}:
        yield _said(turn, turn.read_model.nodes[name])


def _said(turn: Turn, known: NodeRecord) -> NodeRecord:
    """A record with what its agent has said in this turn."""
    name = known.node.name
    messages, leased = turn.messages.get(name, known.messages), turn.leased.get(name, known.leased)
    body = turn.registered.get(name)
    if body is not None:
        known = replace(
            known, secret=body.secret, runs_as=body.runs_as, agent_version=body.version, replaced=body.replaced
        )
    node = known.node
    if name in turn.drained or name in turn.reserved:
        node = replace(node, drain=turn.drain_of(node), reservations=turn.reservations_of(node))
    cluster_id = turn.set_apart.get(name, known.cluster_id)
    halts, told = turn.halts.get(name, (known.halts, known.halts_told))
    known = replace(known, messages=messages, leased=leased, node=node, cluster_id=cluster_id)
    return replace(known, halts=halts, halts_told=told)


def _attempts(turn: Turn, outcome: Outcome) -> Iterator[tuple[JobId, tuple[AttemptRecord, ...]]]:
    """What is known of the attempts of the jobs that a turn changes, where they have had any."""
    read_model = turn.read_model
    for job in outcome.jobs:
        known = with_moves(read_model.attempts.get(job.id, ()), read_model.jobs.get(job.id), job)
        if known:
            yield job.id, known


def _job_changes(
    turn: Turn,
    outcome: Outcome,
    policy: str,
    attempts: Mapping[JobId, tuple[AttemptRecord, ...]],
    launch_specs: LaunchSpecs,
) -> tuple[list[Put], list[Delete]]:
    puts: list[Put] = []
    deletes: list[Delete] = []
    for job in outcome.jobs:
        key, old, asked = job_key(job.id), turn.read_model.jobs.get(job.id), _asked(turn, job)
        model_name = asked.model_name if asked else turn.read_model.model_of(job)
        home = _collection(job)
        if job.has_ended:
            launch = asked.launch if asked is not None else launch_specs(job)
            kept = {"submitted": submission.for_record(launch), "attempts": ATTEMPTS.write(attempts.get(job.id, ()))}
            puts.append(Put(home, key, {**_finished(turn, job, model_name, policy), **kept}))
        else:
            puts.append(Put(home, key, encode_live(job, model_name, attempts.get(job.id, ()))))
        if asked is not None and job.element is None and not job.has_ended:
            puts.append(Put(LAUNCH_SPECS, key, asked.launch))
        if old is not None and _collection(old) != home:
            deletes.append(Delete(_collection(old), key))
        if old is not None and job.has_ended and job.element is None:
            deletes.append(Delete(LAUNCH_SPECS, key))
    return puts, deletes


def _asked(turn: Turn, job: Job) -> Admitted | None:
    """What a job was admitted as, if that was in this turn; an element is what its array is."""
    return turn.admitted.get(job.id if job.element is None else job.element.array)


def _collection(job: Job) -> str:
    if job.has_ended:
        return FINISHED_JOBS
    return SUBMITTED_JOBS if job.placement is None else ASSIGNED_JOBS


def _finished(turn: Turn, job: Job, model_name: str | None, policy: str) -> Body:
    reported = _reported(turn, job)
    return {
        "job": documents.encode_job(job),
        "model_name": model_name,
        "policy": policy,
        "finished": {name: reported[name] for name in FINISHED_FIELDS if name in reported},
    }


def _reported(turn: Turn, job: Job) -> Body:
    """What was reported of a job's end; of a gang, how the process ended that ended it."""
    nodes = job.placement.nodes if job.placement is not None else ()
    reports = [turn.finished[job.id, node] for node in nodes if (job.id, node) in turn.finished]
    last = job.run.exit
    if not reports or len(nodes) == 1 or last is None:
        return reports[0] if reports else {}
    return {**reports[0], "exit_code": last.code, "signal": last.signal, "detail": last.detail}


def _learnt(outcome: Outcome) -> list[Put]:
    puts = [Put(PROFILES, profile_name(profile.key), documents.encode_profile(profile)) for profile in outcome.profiles]
    puts += [Put(RUN_TIMES, one.family, documents.RUN_TIME.write(one)) for one in outcome.lengths]
    for position, measurement in enumerate(outcome.measurements):
        key = f"{job_key(outcome.version)}-{position:04d}"
        puts.append(Put(MEASUREMENTS, key, documents.encode_measurement(measurement)))
    return puts


def profile_name(key: ProfileKey) -> str:
    """Return the key of a profile in a store."""
    return "|".join([key.gpu_type, str(key.gpus), "" if key.batch_size is None else str(key.batch_size), key.family])


def _audit(turn: Turn, outcome: Outcome, policy: str) -> Iterator[AuditEntry]:
    told: dict[int, ReasonObject] = {}  # by identity: all jobs of a batch have one reason
    for job in outcome.jobs:
        old = turn.read_model.jobs.get(job.id)
        for line, happened in changes(old, job):
            reason = told.get(id(line.reason))
            if reason is None:
                reason = told[id(line.reason)] = explain(line.reason)
            body: JobEventObject = {
                "job": job.id,
                "name": job.spec.name,
                "state": line.state.value,
                "attempt": job.attempt,
                "element": None if job.element is None else str(job.element),
                "happened": happened,
                "held_by": [kind.value for kind in line.held_by],
                **reason,
            }
            yield AuditEntry(turn.now_s, "job", body)
    for decision in outcome.decisions:
        yield AuditEntry(turn.now_s, "decision", _decision(decision))
    for name in outcome.lost_nodes:
        yield AuditEntry(turn.now_s, "node-lost", {"node": name})
    if outcome.rejected is not None:
        yield AuditEntry(turn.now_s, "rejected-plan", _rejected(outcome.rejected, policy))


def _decision(decision: Decision) -> DecisionEventObject:
    action = decision.action
    placement = placement_of(action)
    place: DecidedPlaceObject = {} if placement is None else {"placement": documents.encode_placement(placement)}
    return {
        "policy": decision.policy,
        "job": action.job,
        "action": ACTION_NAMES[type(action)],
        **place,
        **explain(action.reason),
    }


def _rejected(rejected: RejectedPlan, policy: str) -> RejectedPlanEventObject:
    plan = rejected.plan
    return {
        "policy": policy,
        "based_on": plan.based_on,
        "actions": [_decision(Decision(0.0, policy, action)) for action in plan.actions],
        "flaws": [{"code": flaw.code, "detail": flaw.detail, "jobs": list(flaw.jobs)} for flaw in rejected.flaws],
    }


def explain(reason: Reason) -> ReasonObject:
    """Return a reason's code, sentence, numbers and jobs."""
    return {
        "why": reason.why.value,
        "facts": dict(reason.facts),
        "jobs": [*reason.jobs],
        "sentence": documents.sentence(reason),
    }

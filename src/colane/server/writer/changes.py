"""What each mutating request adds to a turn. Each function checks first and adds after, so a refusal adds nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from colane.api.topologies import decode_topology
from colane.api.wire import ProfileBody, ValueBody
from colane.api.wire_nodes import BandwidthBody, FinishedBody, JobReport, NodeBody, ReportBody
from colane.core.cluster.state import ClusterState
from colane.core.events import (
    BandwidthObserved,
    CancelRequested,
    DependenciesEnded,
    Ended,
    GpusObserved,
    IdleParkRequested,
    Launched,
    NodeLost,
    NodeRegistered,
    PartHalted,
    ProfileDeclared,
    ProfilesForgotten,
    Progressed,
    RequeueRequested,
    ResumeRequested,
    SuspendRequested,
)
from colane.core.reducers import idling, suspension
from colane.facts.may import may_requeue
from colane.model.hardware import TIME_SLICE, Gpu, Node
from colane.model.job import Exit, Job, JobId, JobState, SuspendVia
from colane.model.phases import Hold, Ordinals, is_in
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import BandwidthSample, Progress
from colane.model.words import count
from colane.server.board.clock import AGENT_OFFSET_MIN_S, offset_s
from colane.server.board.read_model import NodeRecord, ReadModel
from colane.server.board.slices import BatchSlice, sliced, submitted, with_ids
from colane.server.board.submission import Admitted
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.nodes import draining
from colane.server.store.documents import encode_progress
from colane.server.store.store import FINISHED_JOBS, MEASUREMENTS, PROFILES, RUN_TIMES, Delete, Document
from colane.server.store.unreadable import keyed
from colane.server.writer.meanwhile import met_meanwhile, without_lost
from colane.settings.readers import Retention

SHIFTED: Final = ("at_s", "first_step_s", "last_step_s")
GOES_ON: Final = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})
"""Of a sample, the times that are told by its agent's clock."""

UNKNOWN_TYPE = "unknown"  # GPU type of a node registered in paper A's form, which says no more than the indexes


def submit(turn: Turn, jobs: Sequence[Admitted], texts: Sequence[str] | None = None) -> list[JobId]:
    """Append jobs to the queue's end and return their ids, ascending; in slices in later turns, where their texts are.

    Args:
        turn: Of their submission.
        jobs: They, in order.
        texts: Of each slice `slices.jobs_text` of what its jobs were before this turn.
    """
    first = turn.next_job_id
    numbered = [*with_ids(first, jobs)]
    turn.next_job_id += sum(job.ids for job in jobs)
    if texts is None:
        _enter(turn, numbered)
    else:
        turn.slices += sliced(first, jobs, texts)
    return [job_id for job_id, _ in numbered]


def enter(turn: Turn, part: BatchSlice) -> None:
    """Let a slice of a batch into the queue, with what has become since of the jobs that its jobs wait for.

    Raises StoreError: the store cannot be read.
    """
    met = met_meanwhile(turn, part)
    _enter(turn, ((job_id, without_lost(job, met.lost)) for job_id, job in part.by_id))
    if met.ended:
        turn.events.append(DependenciesEnded(met.ended))
    turn.entered.append(part)


def _enter(turn: Turn, jobs: Iterable[tuple[JobId, Admitted]]) -> None:
    for job_id, job in jobs:
        turn.admitted[job_id] = job
        turn.events.append(submitted(job_id, job))


def cancel(turn: Turn, job_id: JobId, by: str, elements: tuple[Ordinals, ...] = ()) -> None:
    """Ask for the end of a live job, of an array of some elements; the caller has made sure that it has not ended.

    Raises RefusedError: 404, there is no such live job.
    """
    if job_id not in turn.read_model.jobs and turn.read_model.array_with(job_id) is None:
        raise RefusedError.because(404, f"there is no live job {job_id}")
    turn.events.append(CancelRequested(job_id, by, elements))


def requeue(turn: Turn, job_id: JobId, by: str, *, is_own: bool = False) -> None:
    """Ask that a job which runs leaves its GPUs and waits anew; the caller has made sure that it has not ended.

    Args:
        turn: What is asked for together with it.
        job_id: The job.
        by: Who asks.
        is_own: Whether its own process does.

    Raises:
        RefusedError: 404, there is no such live job; 409, it waits, is measured, or is stopped for good.
    """
    job = turn.read_model.jobs.get(job_id)
    if job is None and turn.read_model.has_unmade(job_id):
        raise RefusedError.because(409, f"job {job_id} has not started: only a job that runs can be queued again")
    if job is None:
        raise RefusedError.because(404, f"there is no live job {job_id}")
    if not may_requeue(job, turn.read_model.elements_of(job_id) if job.array is not None else ()):
        if job.array is not None:
            raise RefusedError.because(409, f"no element of array {job_id} runs: only those that do are queued again")
        if job.ending is not None and not job.may_be_requeued:
            fix = "'colane again' submits it once more"
            raise RefusedError.because(409, f"job {job_id} is on its way out, as {job.ending}: {fix}")
        raise RefusedError.because(409, f"job {job_id} {is_in(job.state)}: only a job that runs can be queued again")
    turn.events.append(RequeueRequested(job_id, by, is_own))


def suspend(turn: Turn, state: ClusterState, job_id: JobId, by: str, via: SuspendVia = SuspendVia.LANE) -> None:
    """Ask that a live job does not go on for a while; the caller has made sure that it is not an ended one.

    Args:
        turn: What is asked for together with it.
        state: The core's, which knows whether that is possible.
        job_id: The job.
        by: The caller.
        via: Whether its GPU memory shall be moved to the host.

    Raises:
        RefusedError: 404, there is no such live job; 409, it cannot be suspended as it stands.
    """
    job = turn.read_model.jobs.get(job_id)
    if job is None and turn.read_model.has_unmade(job_id):
        turn.events.append(SuspendRequested(job_id, by, via))
        return
    if job is None:
        raise RefusedError.because(404, f"there is no live job {job_id}")
    problem = suspension.refusal(state, job, turn.progress.get(job_id), via)
    if problem is not None:
        raise RefusedError.because(409, problem)
    turn.events.append(SuspendRequested(job_id, by, via))


def park_idle(turn: Turn, state: ClusterState, job: Job, idle_s: float) -> str | None:
    """Ask that a job that has used nothing for so long gives its GPUs up; why it cannot, where it cannot.

    Args:
        turn: What is asked for together with it.
        state: The core's, which knows whether that is possible.
        job: The job.
        idle_s: For how long.
    """
    problem = idling.refusal(state, job, turn.progress.get(job.id))
    if problem is None:
        turn.events.append(IdleParkRequested(job.id, idle_s))
    return problem


def resume(turn: Turn, job_id: JobId, by: str, begin: Hold | None = None) -> None:
    """Ask that a live job goes on; the caller has made sure that it is not an ended one.

    Raises RefusedError: 404, there is no such live job; 409, it runs and is to begin later.
    """
    job = turn.read_model.jobs.get(job_id)
    if job is None and not turn.read_model.has_unmade(job_id):
        raise RefusedError.because(404, f"there is no live job {job_id}")
    if job is not None and begin is not None and job.state is not JobState.QUEUED:
        raise RefusedError.because(
            409, f"job {job_id} {is_in(job.state)}: only of a job that waits may the start be put off"
        )
    turn.events.append(ResumeRequested(job_id, by, begin))


CANCELS_PER_TURN_MAX: Final = 256
"""So many jobs are cancelled in one turn, of some 0.06 ms each, where all that wait are."""


def queued_of(read_model: ReadModel, caller: Caller, user: str | None = None) -> list[JobId]:
    """Return the queued jobs, all or those of a user, that are the caller's to touch, elements of arrays aside."""
    queued = [job for job in read_model.jobs.values() if job.state is JobState.QUEUED and job.element is None]
    return [job.id for job in queued if caller.owns(job.spec.user) and user in {None, job.spec.user}]


def fits_one_turn(read_model: ReadModel, queued: Iterable[JobId]) -> bool:
    """Whether so many jobs, with the elements of arrays that are jobs of their own, are cancelled in one turn."""
    number = 0
    for job_id in queued:
        number += 1 + len(read_model.elements.get(job_id, ()))
        if number > CANCELS_PER_TURN_MAX:
            return False
    return True


def cancel_queued(turn: Turn, queued: Sequence[JobId], by: str) -> int:
    """Cancel the first of some jobs that waited, as many as one turn takes, and return how many these are.

    Those that have started since are cancelled as well, those that have ended are passed over; of an array what has not
    started is, elements that run go on.
    """
    most = len(turn.events) + CANCELS_PER_TURN_MAX
    for number, job_id in enumerate(queued):
        if len(turn.events) >= most:
            return number
        job = turn.read_model.jobs.get(job_id)
        if job is None:
            continue
        if job.array is None or job.array.pending:
            turn.events.append(CancelRequested(job_id, by, () if job.array is None else job.array.pending))
        if job.array is not None:
            made = [each for each in turn.read_model.elements_of(job_id) if each.state is JobState.QUEUED]
            turn.events += [CancelRequested(each.id, by) for each in made]
    return len(queued)


def forget(turn: Turn, records: list[Delete], keep: Retention) -> None:
    """Remove records of jobs that ended long ago."""
    turn.deletes += records
    turn.record("old-jobs-removed", jobs=len(records), keep=str(keep))


def register(turn: Turn, body: NodeBody, *, is_heard: bool) -> None:
    """Take a node in, or its new description; one that is not heard any more loses its jobs to another agent.

    One that names no agent, as paper A's form does, waits for its agent as lost nodes do, and has no jobs. Raises
    RefusedError: 409, another live agent has the name; 422, two GPUs have one index, or the topology others.
    """
    known = turn.read_model.nodes.get(body.name)
    holder = turn.agents.get(body.name, known.node.agent_id if known and not known.lost else body.agent_id)
    if holder != body.agent_id and not is_heard and body.name not in turn.agents:
        turn.events.append(NodeLost(body.name))
    elif holder != body.agent_id:
        raise RefusedError.because(
            409,
            f"another live agent (id {holder or 'none'}) has the name {body.name!r}; give this one another name, "
            "or stop that one and wait until its node is lost",
            "name",
        )
    node = _node(body)
    if known is not None:  # it is drained until a user says otherwise
        was = known.node
        node = replace(
            node, drain=turn.drain_of(was), notice=was.notice, closed=was.closed, reservations=turn.reservations_of(was)
        )
    if len({gpu.index for gpu in node.gpus}) != len(node.gpus):
        raise RefusedError.because(422, "each GPU needs an index of its own", "gpus")
    if node.topology is not None and node.topology.gpus != len(node.gpus):
        text = f"connects {count(node.topology.gpus, 'GPU')}, but the node has {len(node.gpus)}"
        raise RefusedError.because(422, text, "topology")
    turn.agents[body.name] = body.agent_id
    turn.leased[body.name] = body.leased
    turn.registered[body.name] = body
    if body.agent_id:
        turn.events.append(NodeRegistered(node))
        turn.gpus_entering += len(node.gpus)
    else:
        turn.without_agent[body.name] = node
        turn.messages[body.name] = (f"waits for its agent: colane agent --name {body.name} --scheduler URL, there",)
        turn.events += [NodeLost(body.name)] if known is not None and not known.lost else []
    turn.record("node-registered", node=node.name, pool=node.pool, gpus=[gpu.type for gpu in node.gpus])


def _node(body: NodeBody) -> Node:
    gpus = tuple(_gpu(gpu, body.name) for gpu in body.gpus)
    return Node(
        name=body.name,
        gpus=gpus,
        cores=tuple(body.cores),
        host_memory_bytes=body.host_memory_bytes,
        host_bandwidth_bytes_per_s=body.host_bandwidth_bytes_per_s,
        park_s=body.park_s,
        to_host_bytes_per_s=body.to_host_bytes_per_s,
        pool=body.pool,
        address=body.address.rstrip("/"),
        agent_id=body.agent_id,
        topology=None if body.topology is None else decode_topology(body.topology),
        host_refusal=body.host_refusal,
    )


def _gpu(body: dict[str, Any] | str, node: str) -> Gpu:
    if isinstance(body, str):
        return Gpu(index=int(body), uuid=f"{node}-{int(body)}", type=UNKNOWN_TYPE, memory_bytes=0)
    return Gpu(**{"sharing": TIME_SLICE, **body, "cores": tuple(body.get("cores", ()))})


def remove_nodes(turn: Turn) -> list[str]:
    """Forget all nodes and return their names. Raises RefusedError: 409 while jobs are assigned."""
    busy = sorted(name for name, jobs in turn.read_model.on_node.items() if jobs)
    if busy:
        raise RefusedError.because(409, f"jobs are assigned to {', '.join(busy[:5])}; cancel them first")
    names = list(turn.read_model.nodes)
    turn.removed_nodes.update(names)
    turn.events.extend(NodeLost(record.node.name) for record in turn.read_model.nodes.values() if not record.lost)
    return names


def remove_node(turn: Turn, name: str, *, reports: bool) -> None:
    """Forget a node and queue its jobs again: the caller vouches that nothing of them runs there any more.

    Raises RefusedError: 404; 409 while its agent reports, for then its jobs run there and would be started twice.
    """
    record = turn.read_model.nodes.get(name)
    if record is None:
        raise RefusedError.because(404, f"there is no node {name!r}")
    jobs = turn.read_model.on_node.get(name)
    if reports and jobs and not record.lost:
        told = ", ".join(map(str, sorted(jobs)[:5]))
        raise RefusedError.because(
            409, f"the agent of {name} reports, and has jobs {told}: drain the node or cancel them, then stop its agent"
        )
    turn.removed_nodes.add(name)
    if not record.lost:
        turn.events.append(NodeLost(name))
    turn.record("node-removed", node=name)


def remove_finished(turn: Turn) -> None:
    """Forget all finished jobs."""
    turn.clears.append(FINISHED_JOBS)
    turn.record("finished-jobs-removed")


def agent_record(turn: Turn, name: str, agent_id: str) -> NodeRecord:
    """Return the node an agent speaks for.

    Raises RefusedError: 404, it is not registered; 409, it belongs to another agent.
    """
    record = turn.read_model.nodes.get(name)
    if record is None:
        raise RefusedError.because(404, f"there is no node {name!r}; register it first")
    if record.node.agent_id != agent_id:
        raise RefusedError.because(
            409, f"node {name!r} belongs to another agent (id {record.node.agent_id or 'none'})", "agent_id"
        )
    return record


def report(turn: Turn, name: str, body: ReportBody) -> None:
    """Take in what an agent observes; what is already known adds nothing. Raises RefusedError: see `agent_record`."""
    record = agent_record(turn, name, body.agent_id)
    gpus = tuple(_gpu(gpu, name) for gpu in body.gpus)
    if record.lost:
        known, reservations = record.node, turn.reservations_of(record.node)
        node = replace(known, gpus=gpus or known.gpus, drain=turn.drain_of(known), reservations=reservations)
        turn.events.append(NodeRegistered(node))
        turn.gpus_entering += len(node.gpus)
        turn.record("node-returned", node=name)
    elif gpus and gpus != record.node.gpus:
        turn.events.append(GpusObserved(name, gpus))
    draining.apply_notice(turn, record, body.notice)
    messages = tuple(body.messages)
    if messages != record.messages:
        turn.messages[name] = messages
        for message in messages:
            if message not in record.messages:
                turn.record("message", node=name, message=message)
    if body.bandwidth is not None:  # first: in what its jobs did until now, this was so
        turn.events.append(BandwidthObserved(name, _bandwidth(body.bandwidth, turn.now_s)))
    for job in body.jobs:
        _report_job(turn, name, job, offset_s(turn.now_s, body.at_s))


def _bandwidth(body: BandwidthBody, now_s: float) -> BandwidthSample:
    by_job = tuple([(int(job), ratio) for job, ratio in body.by_job.items()])
    return BandwidthSample(now_s, body.used_ratio, by_job, body.by, body.can_limit)


def lease(turn: Turn, name: str, body: ReportBody, *, may_be_endless: bool) -> None:
    """Take in whether a node's jobs are halted, or end by themselves: an endless lease is noted before it is told."""
    record, is_leased = turn.read_model.nodes[name], body.leased
    if (halts := (body.halts, body.halts_told)) != (record.halts, record.halts_told):
        turn.halts[name] = halts
    if is_leased is not None and record.leased is not (now := is_leased and not may_be_endless):
        turn.leased[name] = now


def _report_job(turn: Turn, name: str, body: JobReport, shift_s: float) -> None:
    """Take in what is said of a job; `shift_s` brings its agent's times to ours."""
    job = _believed(turn, name, body.id, body.attempt)
    if job is None or body.phase != "launched":
        return
    if body.halted and job.halted is not None and name not in job.run.ended_on:
        turn.events.append(PartHalted(job.id, body.attempt, name))
    if job.state is JobState.ASSIGNED:
        start_s = turn.now_s if body.start_s is None else min(body.start_s + shift_s, turn.now_s)
        turn.events.append(Launched(job.id, body.attempt, body.pid or 0, start_s, name))
    if body.progress is not None:
        progress = _to_progress(body.progress, shift_s, job.start_s or job.submit_s, turn.now_s)
        if turn.progress.get(job.id) != progress:
            turn.events.append(Progressed(job.id, body.attempt, progress, name))


def has_stepped(turn: Turn, name: str, body: ReportBody) -> bool:
    """Whether a job has made steps since it was last heard of: then a report has news, whatever else it says."""
    for told in body.jobs:
        if told.progress is None or told.phase != "launched" or _believed(turn, name, told.id, told.attempt) is None:
            continue
        known = turn.progress.get(JobId(told.id))
        if known is None or known.steps != told.progress.get("steps", 0):
            return True
    return False


def is_routine(turn: Turn, name: str, body: ReportBody) -> bool:
    """Whether a report says no more than how jobs that run go on: that can wait until others have been served."""
    record = turn.read_model.nodes.get(name)
    if record is None or record.lost or body.gpus or body.notice is not None or tuple(body.messages) != record.messages:
        return False
    for told in body.jobs:
        job = _believed(turn, name, told.id, told.attempt)
        if job is not None and (
            job.state not in GOES_ON or job.first_step_s is None or job.parked or job.suspended or job.is_on_host
        ):
            return False
    return True


def _believed(turn: Turn, node: str, job_id: int, attempt: int) -> Job | None:
    job = turn.read_model.jobs.get(JobId(job_id))
    if job is None or job.attempt != attempt or job.placement is None or node not in job.placement.nodes:
        return None
    return job


def finish(turn: Turn, body: FinishedBody) -> bool:
    """Take in how an attempt ended; return whether it is believed (the present attempt, by its own agent)."""
    record = turn.read_model.nodes.get(body.node)
    job = _believed(turn, body.node, body.id, body.attempt)
    if job is None or record is None or record.node.agent_id != body.agent_id:
        return record is not None and _is_of_halted(turn, record, body)
    if (job.id, body.node) in turn.finished or body.node in job.run.ended_on:
        return _is_of_halted(turn, record, body)  # a part of a lost node counts as gone: now it has ended for good
    start_s, end_s = _lasted(job, body, turn.now_s)
    shift_s = end_s - body.end_s
    progress = None if body.progress is None else _to_progress(body.progress, shift_s, start_s, turn.now_s)
    turn.finished[job.id, body.node] = _finished_fields(body, progress or turn.progress.get(job.id))
    ending = Exit(body.exit_code, body.signal, body.detail)
    times = (None if body.start_s is None else start_s, end_s)
    turn.events.append(Ended(job.id, body.attempt, body.outcome, ending, *times, progress, body.node, body.was_stopped))
    turn.record("attempt-ended", job=job.id, attempt=body.attempt, node=body.node, outcome=body.outcome)
    return True


def _is_of_halted(turn: Turn, record: NodeRecord, body: FinishedBody) -> bool:
    """Take in the end of a part of an attempt that stands halted: it does not go on.

    Raises RefusedError: 409, its node is lost: with its next report it is back, and the attempt goes on and ends.
    """
    job = turn.read_model.jobs.get(JobId(body.id))
    if job is None or job.halted is None or body.node not in job.halted.placement.nodes:
        return False
    if (job.attempt, record.node.agent_id) != (body.attempt, body.agent_id):
        return False
    if record.lost:
        raise RefusedError.because(409, f"{body.node} was lost, with job {job.id} on it: it has to report first")
    ending = Exit(body.exit_code, body.signal, body.detail)
    turn.events.append(Ended(job.id, body.attempt, body.outcome, ending, None, turn.now_s, None, body.node))
    return True


def _lasted(job: Job, body: FinishedBody, now_s: float) -> tuple[float, float]:
    """Start and end of an attempt in our time: of its agent's clock only the difference is believed."""
    lasted_s = 0.0 if body.start_s is None else max(0.0, body.end_s - body.start_s)
    start_s = now_s - lasted_s if job.start_s is None else job.start_s
    end_s = start_s + lasted_s if body.start_s is not None else now_s
    return max(start_s, job.submit_s), min(max(end_s, job.submit_s), now_s)


def _to_progress(body: Mapping[str, Any], shift_s: float, first_s: float, last_s: float) -> Progress:
    """Return what is told of a job as a sample in our time.

    Nothing in it is before the job's start or after now, but for what clocks may differ.
    """

    def ours(at_s: float) -> float:
        return min(max(at_s + shift_s, first_s), last_s + AGENT_OFFSET_MIN_S)

    values = dict(body)
    for name in SHIFTED:
        at_s = values.get(name)
        if at_s is not None:
            values[name] = ours(at_s)
    return Progress(**values)


def _finished_fields(body: FinishedBody, progress: Progress | None) -> dict[str, Any]:
    fields = body.model_dump()
    fields["progress"] = None if progress is None else encode_progress(progress)
    return fields


def declare(turn: Turn, body: ProfileBody) -> None:
    """Take in a declared profile."""
    key = ProfileKey(**body.key.model_dump())
    values: dict[str, Any] = {
        name: _value(getattr(body, name))
        for name in (
            "step_s",
            "step_median_s",
            "persistent_bytes",
            "ephemeral_bytes",
            "overhead_bytes",
            "occupancy",
            "bandwidth",
        )
    }
    profile = Profile(key=key, updated_s=turn.now_s, users=tuple(body.users), **values)
    turn.events.append(ProfileDeclared(profile))
    turn.record("profile-declared", key=key._asdict())


def forget_family(turn: Turn, family: str, caller: Caller) -> int:
    """Forget all that is known of a family; how many profiles, sets and lengths that are.

    Raises RefusedError: 404, nothing is known of it; 403, it was learnt from jobs of others, too.
    """
    reads = turn.reads
    known = list(keyed(reads, PROFILES, reads.read_all(PROFILES), _whose))
    profiles = [key for key, (of, _) in known if of == family]
    users = {user for _, (of, whose) in known if of == family for user in whose}
    together = keyed(reads, MEASUREMENTS, reads.read_all(MEASUREMENTS), _families)
    sets = [key for key, families in together if family in families]
    times = keyed(reads, RUN_TIMES, reads.read_all(RUN_TIMES), lambda known: str(known["family"]))
    lengths = [key for key, of in times if of == family]
    if not caller.may_all and not (users and all(caller.owns(user) for user in users)):
        whose = "an operator, or a user from whose jobs alone it was learnt,"
        raise RefusedError.because(403, f"only {whose} may forget family {family}; you are {caller}", "family")
    if not (profiles or sets or lengths):
        unknown = f"nothing is known of family {family}; colane profile --list shows what is"
        raise RefusedError.because(404, unknown, "family")
    turn.deletes += [Delete(PROFILES, key) for key in profiles]
    turn.deletes += [Delete(MEASUREMENTS, key) for key in sets]
    turn.deletes += [Delete(RUN_TIMES, key) for key in lengths]
    turn.events.append(ProfilesForgotten(family))
    turn.record("profiles-forgotten", family=family, by=caller.name)
    return len(profiles) + len(sets) + len(lengths)


def _whose(profile: Document) -> tuple[str, tuple[str, ...]]:
    """The family of a profile, and from whose jobs it was learnt."""
    return profile["key"]["family"], tuple(profile.get("users", ()))


def _families(measured: Document) -> set[str]:
    return {key["family"] for key in measured["keys"]}


def _value(given: ValueBody | float | None) -> Value | None:
    if given is None:
        return None
    if isinstance(given, ValueBody):
        return Value(given.value, ValueSource.DECLARED, given.samples, given.by)
    return Value(float(given), ValueSource.DECLARED)

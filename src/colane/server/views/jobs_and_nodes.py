"""What clients see of jobs and nodes. Nothing here holds a command or an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import urlsplit

from colane.api.jobs import (
    CheckpointObject,
    CommonJobObject,
    ConstraintsObject,
    DeclaredObject,
    EndingObject,
    FactorObject,
    FactsObject,
    HoldObject,
    JobObject,
    NeedsObject,
    PlaceObject,
    RateObject,
    ReasonObject,
    SharingObject,
    SizeSpeedObject,
    StoryLineObject,
    ThrottleObject,
    TimeSpentObject,
)
from colane.api.nodes import (
    BandwidthUseObject,
    BandwidthWishObject,
    DesiredJobObject,
    GangObject,
    HardwareObject,
    SaveObject,
    ShownNodeObject,
)
from colane.core.cluster.co_runners import CoRunners, Pacing
from colane.core.cluster.sized_speeds import SizedSpeed
from colane.core.reducers import reforming
from colane.cpu.contention import ContentionConfig
from colane.facts.job import job_facts, stalled
from colane.facts.node import booked_by, node_word
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobState, StateChange, SuspendVia
from colane.model.job_fields import JOB_FIELDS, Shelf
from colane.model.job_spec import UNCONSTRAINED, CheckpointContract, Constraints, JobSpec
from colane.model.phases import Hold, HoldKind, Throttle
from colane.model.placement import Placement, Turns
from colane.model.progress import BandwidthSample, Progress
from colane.model.sentences import sentence_of
from colane.model.time_spent import time_spent
from colane.model.versions import own_version
from colane.perf.composing import SOURCES
from colane.perf.rate import Factor, Rate
from colane.server.board.arrays import array_view
from colane.server.board.read_model import NodeRecord
from colane.server.store import documents
from colane.server.writer.driver import MemoryView
from colane.server.writer.ledger import explain

_SPEC_SCALARS = tuple(field.name for field in JOB_FIELDS if field.in_spec and field.shelf is Shelf.JOB)
_NEEDS = (*(field.name for field in JOB_FIELDS if field.in_spec and field.shelf is Shelf.NEEDS), "batch_per_gpu")


_spec_scalars_of, _needs_of = attrgetter(*_SPEC_SCALARS), attrgetter(*_NEEDS)
"""Ten thousand waiting jobs are shown at once: what is looked up by name is half of that."""


NO_TOTALS: Mapping[JobId, int | None] = MappingProxyType({})


NO_MEMORY = MemoryView()


def job_view(
    job: Job,
    model_name: str | None,
    policy: str,
    facts: FactsObject,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    elements: Sequence[Job] = (),
) -> JobObject:
    """Return a job as the API shows it, live or ended.

    An array of whose `elements`, those that are live jobs, some run is said to run, too. What is new of a job is told
    in `facts`: other fields are as clients of older versions know them.
    """
    spec, reason = job.spec, job.reason
    told = None if reason is None else explain(reason)
    declared = _declared(spec)
    is_open = job.state is JobState.QUEUED or (job.first_start_s is None and job.placement is None)
    if spec.pools and is_open and job.constraints.promised is None:
        declared["pool"] = ",".join([way.pool for way in spec.pools])
    stalls = stalled(job, progress)
    steps_total = declared["steps_total"]
    if progress and progress.steps_total is not None:
        steps_total = progress.steps_total
    body: CommonJobObject = {
        "id": job.id,
        "submit_s": job.submit_s,
        "first_start_s": job.first_start_s,
        "start_s": job.start_s,
        "first_step_s": job.first_step_s,
        "end_s": job.end_s,
        "attempt": job.attempt,
        "failures": job.totals.failures,
        **declared,
        "steps_total": steps_total,
        **place_view(job.placement),
        "throttle": None if job.throttle is None else _throttle(job.throttle),
        "state": JobState.RUNNING.value if any(one.placement for one in elements) else job.state.value,
        "elements": array_view(job, elements),
        "array_id": None if job.element is None else job.element.array,
        "array_index": None if job.element is None else job.element.index,
        "model_name": model_name,
        "suspended": job.suspended or job.is_held(HoldKind.USER),
        "suspended_via": job.suspended_via.value,
        "holds": [_hold(hold) for hold in job.holds],
        "on_host_bytes": job.on_host_bytes,
        "sharing": sharing_view(pacing.co_runners if pacing else None),
        "rate": rate_view(pacing.rate) if pacing else None,
        "cores_useful": pacing.cores_useful if pacing else None,
        "policy": policy,
        "needs": _needs(spec),
        "constraints": _constraints(job.constraints),
        "saved_s": job.saved_s,
        "lost_s": job.totals.lost_s,
        "time_spent": _time_spent(job),
        "steps_kept": job.totals.steps_kept,
        "saves_failed": job.totals.saves_failed,
        "why": reason.why.value if reason else None,
        "reason": None if told is None else told["sentence"],
        "steps": progress.steps if progress else 0,
        "progress": documents.encode_progress(progress) if progress else None,
        "story_left_out": job.story_left_out,
        "story": [
            _story_line(move, told if told is not None and move.reason is reason else explain(move.reason))
            for move in job.story
        ],
        "stalled": None if stalls is None else {"no_step_s": stalls.no_step_s, "step_s": stalls.step_s},
        "steps_total_learned": None,
        "facts": facts,
    }
    return cast("JobObject", body)


def _declared(spec: JobSpec) -> DeclaredObject:
    """What the table of fields places in the job itself; `tests/test_job_fields.py` compares it with the type."""
    body = dict(zip(_SPEC_SCALARS, _spec_scalars_of(spec), strict=True))
    body["labels"] = dict(spec.labels)
    return cast("DeclaredObject", body)


def _needs(spec: JobSpec) -> NeedsObject:
    """What the table of fields places in its needs; compared likewise."""
    body = dict(zip(_NEEDS, _needs_of(spec), strict=True))
    body["sizes"] = list(spec.sizes)
    body["checkpoint"] = _checkpoint(spec.checkpoint)
    return cast("NeedsObject", body)


def _story_line(move: StateChange, told: ReasonObject) -> StoryLineObject:
    held_by = [kind.value for kind in move.held_by]
    return {"at_s": move.at_s, "state": move.state.value, "held_by": held_by, **told}


def _hold(hold: Hold) -> HoldObject:
    after = None if hold.after is None else str(hold.after)
    return {"kind": hold.kind.value, "by": hold.by, "until_s": hold.until_s, "after": after}


def _time_spent(job: Job) -> TimeSpentObject:
    """Where its time had gone when it came into its present state."""
    until_s = job.story[-1].at_s if job.story else job.submit_s
    return cast("TimeSpentObject", time_spent(job.story, job.story_left_out, until_s)._asdict())


def _checkpoint(contract: CheckpointContract | None) -> CheckpointObject | None:
    if contract is None:
        return None
    return {
        "signal": contract.signal,
        "lead_s": contract.lead_s,
        "saved_codes": [*contract.saved_codes],
        "reforms": contract.reforms,
        "is_notice": contract.is_notice,
        "to_shell": contract.to_shell,
    }


def _constraints(held_to: Constraints) -> ConstraintsObject:
    """What a job is held to besides what was declared; empty of most."""
    if held_to == UNCONSTRAINED:
        return {}
    body = {name: value for name, value in held_to._asdict().items() if value != getattr(UNCONSTRAINED, name)}
    if held_to.checkpoint is not None:
        body["checkpoint"] = _checkpoint(held_to.checkpoint)
    body |= {name: list(body[name]) for name in ("sizes_lost", "away") if name in body}
    if held_to.promised is not None:
        promised = held_to.promised
        body["promised"] = {"gpus": [str(gpu) for gpu in promised.gpus], "start_by_s": promised.start_by_s}
    if held_to.time_limit is not None:
        body["time_limit_s"] = body.pop("time_limit").value
    return cast("ConstraintsObject", body)


def sharing_view(co_runners: CoRunners | None) -> SharingObject | None:
    """Return how a running job shares its GPUs; None when it shares none."""
    if co_runners is None:
        return None
    return {
        "lane_mates": list(co_runners.lane_mates),
        "others": list(co_runners.others),
        "share_asked_ratio": co_runners.share_ratio,
        "slowdown_predicted": co_runners.predicted,
        "slowdown_measured": co_runners.measured,
    }


def rate_view(rate: Rate) -> RateObject:
    """Return how fast a job is believed to go, and what makes it differ from itself alone as it asked to run."""
    size, cores, turns, bus, gpu = map(_factor, rate.factors)
    return {
        "steps_per_s": rate.steps_per_s,
        "ratio": rate.ratio,
        "source": rate.source.value,
        "sentence": SOURCES[rate.source],
        "samples": rate.samples,
        "spread_ratio": rate.spread_ratio,
        "factors": {"size": size, "cores": cores, "turns": turns, "bus": bus, "gpu": gpu},
    }


def sizes_view(speeds: Sequence[SizedSpeed]) -> list[SizeSpeedObject]:
    """Return how fast an elastic job is believed to go at each of its sizes."""
    return [
        {"gpus": one.gpus, "steps_per_s": one.steps_per_s, "speedup": one.speedup, "source": one.source.value}
        for one in speeds
    ]


def _factor(factor: Factor) -> FactorObject:
    return {
        "slowdown": factor.slowdown,
        "source": factor.source.value,
        "samples": factor.samples,
        "spread_ratio": factor.spread_ratio,
    }


def _throttle(throttle: Throttle) -> ThrottleObject:
    return {
        "cores": list(throttle.cores),
        "withheld_cores": list(throttle.withheld),
        "bandwidth_ratio": throttle.bandwidth_ratio,
    }


def place_view(placement: Placement | None) -> PlaceObject:
    """Return where a job runs, or would."""
    if placement is None:
        return {"node": None, "nodes": [], "gpus": [], "lanes": [], "booked_cores": []}
    return {
        "node": placement.node,
        "nodes": list(placement.nodes),
        "gpus": [str(gpu) for gpu in placement.gpus],
        "lanes": [slot.lane for slot in placement.slots],
        "booked_cores": list(placement.cores),
    }


def finished_view(document: Mapping[str, Any]) -> JobObject:
    """Return a finished job's record: the job's own fields joined with the finished object's."""
    job = documents.decode_job(document["job"])
    finished = document["finished"]
    sample = finished.get("progress")
    progress = documents.decode_progress(sample) if sample else None
    facts = job_facts(job, progress, None, job.submit_s if job.end_s is None else job.end_s)
    body = job_view(job, document["model_name"], document["policy"], facts, progress)
    told = {name: value for name, value in finished.items() if name not in _FROM_THE_JOB}
    return cast("JobObject", {**body, **_never_ran(), **told})


def _never_ran() -> EndingObject:
    """What a job that has ended has besides, if it has never run."""
    return {
        "exit_code": None,
        "signal": None,
        "outcome": None,
        "detail": None,
        "log_bytes": None,
        "step_durations_s": [],
        "log_truncated": False,
    }


def unmade_view(element: Job, policy: str, now_s: float) -> JobObject:
    """Return an element of an array that is no job of its own, and perhaps was cancelled, as one."""
    body = job_view(element, None, policy, job_facts(element, None, None, now_s))
    ending = _never_ran() if element.has_ended else {}
    return cast("JobObject", {**body, **ending, "attempts": []})


_FROM_THE_JOB = frozenset({"node", "start_s", "end_s", "progress"})
"""Of how the last attempt ended, what the job itself says, in the scheduler's time."""


def node_view(
    record: NodeRecord,
    last_seen_s: float | None,
    jobs: list[Job],
    turns: Turns,
    nodes: Mapping[str, NodeRecord],
    memory: MemoryView = NO_MEMORY,
    totals: Mapping[JobId, int | None] = NO_TOTALS,
    contention: ContentionConfig | None = None,
) -> ShownNodeObject:
    """Return the node object: hardware, the whole desired state of its jobs, and how those of one lane take turns.

    `totals` are the steps of jobs, where known.
    """
    desired: list[DesiredJobObject] = [
        _desired(job, job.placement, record.node.name, nodes, memory, totals.get(job.id, job.effective.steps_total))
        for job in jobs
        if job.placement is not None
    ]
    return {
        **_told_of(record.node),
        "generation": record.generation,
        "state": node_word(record.node, is_lost=record.lost, has_jobs=bool(jobs)).value,
        "lost": record.lost,
        "last_seen_s": last_seen_s,
        "messages": [*record.messages, *closed(record.node)],
        "runs_as": record.runs_as,
        "agent_version": record.agent_version,
        "scheduler_version": own_version(),
        "turns": {"rule": turns.rule.value, "quantum_s": turns.quantum_s},
        "bandwidth": _measured(jobs, contention),
        "bandwidth_use": None,
        "booked": booked_by(desired),
        "jobs": desired,
    }


NODES_KEPT: Final = 8_192
"""The hardware of so many nodes is kept as it is told: it changes seldom, and is told with each answer to a report."""
_told: dict[str, tuple[Node, HardwareObject]] = {}


def _told_of(node: Node) -> HardwareObject:
    """A node's hardware, written down once for as long as it stays; what is in it is not changed."""
    known = _told.get(node.name)
    if known is None or known[0] is not node:
        if len(_told) >= NODES_KEPT:
            _told.clear()
        known = _told[node.name] = node, documents.encode_node(node)
    return known[1]


def closed(node: Node) -> list[str]:
    """Say why a node is out of scheduling, where it is."""
    return [] if node.closed is None else [f"takes no jobs, and is tried again later: {node.closed.why}"]


def _measured(jobs: list[Job], contention: ContentionConfig | None) -> BandwidthWishObject | None:
    """How often an agent is to report use of its memory's bandwidth; None where no job could be throttled."""
    alone = all(job.spec.gpus for job in jobs) or not any(job.spec.gpus for job in jobs)
    if contention is None or (alone and not any(job.throttle is not None for job in jobs)):
        return None
    return {"interval_s": contention.interval_s}


BANDWIDTH_FRESH_S: Final = 60.0  # what was measured longer ago is not what is used now


def bandwidth_view(seen: BandwidthSample | None, now_s: float) -> BandwidthUseObject | None:
    """How much of its memory's bandwidth a node uses; None where that is not known."""
    if seen is None or seen.used_ratio is None or not seen.at_s <= now_s <= seen.at_s + BANDWIDTH_FRESH_S:
        return None
    return {"at_s": seen.at_s, "used_ratio": seen.used_ratio, "by": seen.by}


def _desired(
    job: Job,
    placement: Placement,
    node: str,
    nodes: Mapping[str, NodeRecord],
    memory: MemoryView,
    steps_total: int | None,
) -> DesiredJobObject:
    """What an agent is told of a job: its part of it, and how its part finds the others."""
    return {
        "id": job.id,
        "attempt": job.attempt,
        "run": job.state is not JobState.STOPPING or job.halted is not None,
        "halt": job.halted is not None,
        "because": sentence_of(job.reason) if job.state is JobState.STOPPING and job.reason is not None else "",
        "slots": [{"gpu": slot.gpu.number, "lane": slot.lane} for slot in placement.slots_on(node)],
        "cores": list(placement.cores_on(node) if job.throttle is None else job.throttle.cores),
        "bandwidth_ratio": 1.0 if job.throttle is None else job.throttle.bandwidth_ratio,
        "gang": _gang(placement, node, nodes),
        "time_limit_s": job.effective.time_limit_s,
        "memory_limit_bytes": job.effective.part(job.spec.host_memory_bytes, len(placement.slots_on(node))),
        "weight": job.spec.weight,
        "priority": job.spec.priority,
        "kind": job.spec.kind.value,
        "paused": job.state is JobState.PAUSED,
        "to_host": job.state is JobState.PAUSED and (job.parked or job.suspended_via is SuspendVia.HOST),
        "at_rest": job.suspension is not None and job.suspension.until_step,
        "on_host": job.is_on_host,
        "save": _save(job),
        "steps_total": steps_total,
        "flush": any(slot.gpu.number in memory.tight for slot in placement.slots_on(node)),
        "memory": memory.booked.get(job.id),
    }


def _save(job: Job) -> SaveObject | None:
    """The signal that asks a job to save its state now, and which asking of this attempt it is; None of others."""
    contract = job.effective.checkpoint
    if job.state is not JobState.CHECKPOINTING or contract is None:
        return None
    ranks = reforming.ranks_wanted(job)
    asked: SaveObject = {"signal": contract.signal, "number": job.run.saves_asked}
    if ranks:
        asked["ranks"] = ranks
    return asked


def _gang(placement: Placement, node: str, nodes: Mapping[str, NodeRecord]) -> GangObject | None:
    """Where a node's ranks stand in a job that spans several; None for a job on one node."""
    if len(placement.nodes) == 1:
        return None
    known = nodes.get(placement.node)
    first = next(rank for rank, slot in enumerate(placement.slots) if slot.gpu.node == node)
    return {
        "nodes": list(placement.nodes),
        "node_rank": placement.nodes.index(node),
        "rank_first": first,
        "world_size": len(placement.slots),
        "address": urlsplit(known.node.address).hostname if known is not None else None,
        "port": placement.port,
    }

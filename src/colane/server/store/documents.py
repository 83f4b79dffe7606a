"""Model types as JSON documents and back: `decode(encode(x)) == x`, also through JSON text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from colane.api.events import PlacementObject
from colane.api.forms import MAPPING, Form, choice, flat, lean, maybe, record, row, several
from colane.api.nodes import HardwareObject
from colane.api.of_record import MeasurementObject, ProfileObject, ProgressObject, form_of
from colane.api.topologies import TOPOLOGY
from colane.core.lifecycle import PHASES
from colane.core.usage import UsedGpus
from colane.model.field_values import OneOf, SomeOf
from colane.model.hardware import Closed, Drain, Gpu, GpuId, KeptFor, Node
from colane.model.job import (
    Attempt,
    Exit,
    FallBack,
    Job,
    JobId,
    JobSpec,
    JobState,
    Leaving,
    OnHost,
    Parking,
    Served,
    StateChange,
    SuspendVia,
    Suspension,
    Totals,
)
from colane.model.job_fields import JOB_FIELDS
from colane.model.job_spec import UNCONSTRAINED, Category, CheckpointContract, NewLimit, PoolWay, PromisedGpus
from colane.model.lengths import FamilyLengths, LengthBin
from colane.model.phases import (
    LEAVING,
    NOT_YET,
    Array,
    Dependency,
    DependsOn,
    Element,
    Halted,
    Hold,
    HoldKind,
    Throttle,
)
from colane.model.phases import NONE as NO_TOTALS
from colane.model.placement import Placement, Slot
from colane.model.profile import CorePace, MemoryWindow, Profile, SetMeasurement
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of

Body = dict[str, Any]


def _read_slot(body: Sequence[Any]) -> Slot:
    node, number, lane = body
    return Slot(GpuId(node, number), lane)


def _read_gpu(text: str) -> GpuId:
    node, _, number = text.rpartition("/")
    return GpuId(node, int(number))


def _read_elsewhere(body: Mapping[str, Sequence[int]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((node, tuple(ids)) for node, ids in body.items())


STATE: Final = choice(JobState)
WHY: Final = choice(Why)
HELD_BY: Final = several(choice(HoldKind))


def _write_reason(reason: Reason) -> Body:
    """By hand, as is the next: each job of a batch is written with its reason twice."""
    return {"why": WHY.write(reason.why), "facts": {**reason.facts}, "jobs": [*reason.jobs]}


def _write_change(change: StateChange) -> Body:
    told = {"at_s": change.at_s, "state": STATE.write(change.state), "held_by": HELD_BY.write(change.held_by)}
    return {**told, **_write_reason(change.reason)}


REASON: Final = Form(_write_reason, record(Reason, why=WHY, facts=MAPPING, jobs=several()).read)
LINE: Final = record(StateChange, state=STATE, reason=REASON, held_by=HELD_BY)
CHANGE: Final = Form(_write_change, flat(LINE, "reason").read)
SPEC: Final = lean(
    JobSpec(name="", family=""),
    "name",
    "family",
    "user",
    "labels",
    sizes=several(),
    labels=MAPPING,
    pools=several(row(PoolWay)),
    category=choice(Category),
    checkpoint=maybe(row(CheckpointContract, saved_codes=several())),
    **{field.name: choice(field.takes.of) for field in JOB_FIELDS if field.in_spec and isinstance(field.takes, OneOf)},
    **{
        field.name: several(choice(field.takes.of))
        for field in JOB_FIELDS
        if field.in_spec and isinstance(field.takes, SomeOf)
    },
)
PLACEMENT: Final = record(
    Placement,
    slots=several(Form(lambda slot: [*slot.gpu, slot.lane], _read_slot)),
    cores=several(),
    cores_elsewhere=Form(lambda cores: {node: list(ids) for node, ids in cores}, _read_elsewhere),
)
PROMISED: Final = record(PromisedGpus, gpus=several(Form(str, _read_gpu)))
CONSTRAINTS: Final = lean(
    UNCONSTRAINED,
    checkpoint=maybe(row(CheckpointContract, saved_codes=several())),
    sizes_lost=several(),
    away=several(),
    promised=maybe(PROMISED),
    time_limit=maybe(record(NewLimit)),
)
ORDINALS: Final = several(Form(list, tuple))
ARRAY: Final = record(Array, pending=ORDINALS, cut=ORDINALS)
HOLDS: Final = several(
    record(
        Hold,
        kind=choice(HoldKind),
        after=maybe(record(Dependency, on=choice(DependsOn), element=maybe(record(Element)))),
    )
)
RUN: Final = lean(NOT_YET, ended_on=several(), exit=maybe(row(Exit)))
TOTALS: Final = lean(NO_TOTALS, served=several(row(Served)))
SUSPENSION: Final = maybe(record(Suspension, via=choice(SuspendVia)))
PARKING: Final = maybe(record(Parking))
ON_HOST: Final = maybe(record(OnHost, left_beside=several()))
THROTTLE: Final = maybe(row(Throttle, cores=several(), withheld=several()))
HALTED: Final = record(
    Halted,
    state=STATE,
    placement=PLACEMENT,
    run=RUN,
    totals=TOTALS,
    agents=several(),
    uuids=several(),
    throttle=THROTTLE,
    suspension=SUSPENSION,
    parking=PARKING,
    on_host=ON_HOST,
)
JOB: Final = record(
    Job,
    spec=SPEC,
    constraints=CONSTRAINTS,
    run=RUN,
    totals=TOTALS,
    falls_back=maybe(record(FallBack, to=PLACEMENT)),
    suspension=SUSPENSION,
    leaving=maybe(record(Leaving, ending=STATE, resizes_to=maybe(PLACEMENT))),
    parking=PARKING,
    on_host=ON_HOST,
    state=STATE,
    placement=maybe(PLACEMENT),
    reason=maybe(REASON),
    story=several(CHANGE),
    throttle=THROTTLE,
    array=maybe(ARRAY),
    element=maybe(record(Element)),
    holds=HOLDS,
    halted=maybe(HALTED),
)
USED: Final = record(UsedGpus)
PROGRESS: Final = form_of(Progress)
GPU: Final = record(Gpu, cores=several())
DRAIN: Final = maybe(record(Drain))
CLOSED: Final = maybe(row(Closed))
NODE: Final = record(
    Node, gpus=several(GPU), cores=several(), topology=maybe(TOPOLOGY), drain=DRAIN, notice=DRAIN, closed=CLOSED,
    reservations=several(record(KeptFor, users=several())),
)  # fmt: skip
PROFILE: Final = form_of(Profile, CorePace, MemoryWindow)
MEASUREMENT: Final = form_of(SetMeasurement)
RUN_TIME: Final = form_of(FamilyLengths, LengthBin)
_SUSPENSIONS: Final = frozenset({Why.HELD, Why.SUSPENDED, Why.SUSPENDED_TO_HOST})
_LOSSES: Final = frozenset({Why.NODE_LOST, Why.GPU_LOST, Why.SUPERVISOR_DIED})
_ISOLATING: Final = frozenset({Why.TOO_SLOW_TOGETHER})
_LET_GO: Final[Mapping[str, HoldKind]] = {
    "resumed": HoldKind.USER,
    "begin-reached": HoldKind.BEGIN,
    "after-met": HoldKind.AFTER,
    "array-turn": HoldKind.ARRAY,
}
"""What codes of reasons stood for in records of before, where a field says it now."""


def encode_job(job: Job) -> Body:
    """Return a job with its spec and story."""
    body: Body = JOB.write(job)
    return body


def decode_job(body: Mapping[str, Any]) -> Job:
    """Return the job of `encode_job`, also of an older Colane."""
    if "held_by" not in next(iter(body.get("story", ())), {"held_by": ()}):
        body = {**body, "story": _held_by_of(body["story"])}
    if "reason" not in body:
        body = {**body, **_told_by(tuple(CHANGE.read(line) for line in body.get("story", ())))}
    if "leaving" not in body:
        body = {**body, **_phases_of(body)}
    if "constraints" not in body:
        body = {**body, **_as_declared(body["spec"])}
    if "holds" not in body:
        body = {**body, "holds": _holds_of(body)}
    if "suspension" not in body:
        body = {**body, "suspension": _suspension_of(body)}
    if "run" not in body:
        body = {**body, **_attempts_of(body)}
    return JOB.read(body)


def _attempts_of(flat: Mapping[str, Any]) -> Body:
    """What an older Colane wrote of a job's attempts as fields of the job itself."""
    back = flat.get("falls_back_to")
    return {
        "run": {name: flat[name] for name in Attempt._fields if name in flat},
        "totals": {name: flat[name] for name in Totals._fields if name in flat},
        "falls_back": None if back is None else {"to": back, "launches_failed": flat.get("launches_failed", 0)},
    }


def _held_by_of(story: Sequence[Body]) -> list[Body]:
    """Stories of before told by codes alone that a hold had ended: the line before it was one under that hold."""
    ended = [_LET_GO.get(line["why"]) if line["state"] == JobState.QUEUED.value else None for line in story[1:]]
    kinds = [[] if kind is None else [kind.value] for kind in (*ended, None)]
    return [{**line, "held_by": held_by} for line, held_by in zip(story, kinds, strict=True)]


def _holds_of(body: Mapping[str, Any]) -> list[Body]:
    """Records of before said that a job which waits was suspended; what a limit holds is found anew."""
    is_held = body.get("state") == JobState.QUEUED and body.get("suspended")
    if not is_held or body.get("suspended_via") == "limit":
        return []
    return [{"kind": HoldKind.USER.value, "by": body.get("suspended_by", ""), "until_s": None}]


def _suspension_of(flat: Mapping[str, Any]) -> Body | None:
    """The suspension that an older Colane wrote as fields of the job itself, which it kept when the job had ended."""
    if not flat.get("suspended") or JobState(flat["state"]) not in PHASES["suspension"]:
        return None
    return {"via": flat.get("suspended_via", SuspendVia.LANE.value), "by": flat.get("suspended_by", "")}


def _phases_of(flat: Mapping[str, Any]) -> Body:
    """The phases that an older Colane wrote as fields of the job itself."""
    parked, on_host_bytes, for_job = flat.get("parked", False), flat.get("on_host_bytes"), flat.get("preempted_for")
    home, left_beside = flat.get("home", ""), flat.get("left_beside", ())
    phases: Body = {
        "leaving": None,
        "parking": {"for_job": for_job, "home": home} if parked else None,
        "on_host": None if on_host_bytes is None else {"size_bytes": on_host_bytes, "left_beside": left_beside},
    }
    if flat.get("ending") is not None and JobState(flat["state"]) in LEAVING:
        why = None if flat.get("reason") is None else Why(flat["reason"]["why"])
        phases["leaving"] = {
            "ending": flat["ending"],
            "resizes_to": flat.get("resizes_to"),
            "for_job": for_job,
            "isolates": flat.get("isolates", why in _ISOLATING),
            "is_loss": flat.get("is_loss", why in _LOSSES),
        }
    return phases


def _as_declared(spec: Mapping[str, Any]) -> Body:
    """What an older Colane had written over the owner's words, beside them, as far as it had kept these."""
    asked, sharing_domain = spec.get("cores_asked"), spec.get("circle", "")
    constraints = {"circle": sharing_domain, "cores": None if asked is None else spec["cores"]}
    return {"spec": {**spec, "circle": "", **({} if asked is None else {"cores": asked})}, "constraints": constraints}


def _told_by(story: Sequence[StateChange]) -> Body:
    """Fields that records of before did not have, read from their stories."""
    reason = REASON.write(story[-1].reason) if story else None
    values: Body = {"reason": reason, "paused_before_s": 0.0, "paused_since_s": None}
    left = (line.reason.why for line in story if line.state in (JobState.QUEUED, JobState.FAILED))
    values["losses"] = sum(why in _LOSSES for why in left)
    for line in story:
        since_s = values["paused_since_s"]
        if line.state is JobState.PAUSED:
            values["paused_since_s"] = line.at_s if since_s is None else since_s
        elif since_s is not None:
            values |= {"paused_since_s": None, "paused_before_s": values["paused_before_s"] + line.at_s - since_s}
        if line.state is JobState.ASSIGNED:
            values |= {"assigned_s": line.at_s, "paused_before_s": 0.0}
        if line.reason.why in _SUSPENSIONS:
            values["suspended_by"] = str(line.reason.facts["by"])
    if story and story[-1].state is JobState.STOPPING and story[-1].reason.why is Why.PREEMPTED:
        values["preempted_for"] = JobId(story[-1].reason.jobs[0])
    return values


def encode_placement(placement: Placement) -> PlacementObject:
    """Return slots as `[node, number, lane]` in rank order, and the booked cores of each node."""
    body: PlacementObject = PLACEMENT.write(placement)
    return body


def encode_progress(progress: Progress) -> ProgressObject:
    """Return a sample's fields by name."""
    body: ProgressObject = PROGRESS.write(progress)
    return body


def decode_progress(body: Mapping[str, Any]) -> Progress:
    """Return the sample of `encode_progress`."""
    return PROGRESS.read(body)


def encode_node(node: Node) -> HardwareObject:
    """Return a node with its GPUs."""
    body: HardwareObject = NODE.write(node)
    return body


def encode_profile(profile: Profile) -> ProfileObject:
    """Return a profile; each value with source, samples and what took it."""
    body: ProfileObject = PROFILE.write(profile)
    return body


def decode_profile(body: Mapping[str, Any]) -> Profile:
    """Return the profile of `encode_profile`."""
    return PROFILE.read(body)


def encode_measurement(measurement: SetMeasurement) -> MeasurementObject:
    """Return a measured set."""
    body: MeasurementObject = MEASUREMENT.write(measurement)
    return body


def decode_measurement(body: Mapping[str, Any]) -> SetMeasurement:
    """Return the measurement of `encode_measurement`."""
    return MEASUREMENT.read(body)


def sentence(reason: Reason) -> str:
    """Return a reason's sentence; one whose facts a policy of the user's left out falls back to code and facts."""
    try:
        return sentence_of(reason)
    except (KeyError, ValueError, TypeError):
        facts = ", ".join(f"{name}={value}" for name, value in reason.facts.items())
        return f"{reason.why}: {facts}" if facts else str(reason.why)

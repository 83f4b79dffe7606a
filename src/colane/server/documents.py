"""Model types as JSON documents and back: `decode(encode(x)) == x`, also through JSON text.

Fields a document lacks take the type's default, so that a store from before a field existed is readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from colane.model.hardware import Gpu, GpuId, Node
from colane.model.job import CommPattern, Exit, Job, JobId, JobKind, JobSpec, JobState, Move, Served, SuspendVia
from colane.model.placement import Placement, Slot
from colane.model.profile import PlacePace, Profile, ProfileKey, SetMeasurement, Slowdown, Source, Value
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.topology import Link, LinkKind, Topology

Body = dict[str, Any]

SPEC_FIELDS: Final = tuple(field.name for field in fields(JobSpec) if field.init)
_SPEC_ENUMS: Final = (("kind", JobKind), ("comm_pattern", CommPattern))
PROGRESS_FIELDS: Final = tuple(field.name for field in fields(Progress))
_GPU_FIELDS: Final = tuple(field.name for field in fields(Gpu))
_NODE_SCALARS: Final = (
    "name",
    "host_memory_bytes",
    "host_bandwidth_bytes_per_s",
    "pool",
    "address",
    "agent_id",
    "host_refusal",
)
_JOB_SCALARS: Final = (
    "id", "submit_s", "attempt", "failures", "first_start_s", "start_s", "first_step_s", "end_s", "suspended",
    "on_host_bytes",
)  # fmt: skip
_PROFILE_VALUES: Final = (
    "step_s", "step_median_s", "persistent_bytes", "ephemeral_bytes", "occupancy", "bandwidth",
)  # fmt: skip
_MEASUREMENT_SCALARS: Final = ("sharing", "delta", "delta_general", "at_s")
_MEASUREMENT_LISTS: Final = ("step_alone_s", "step_together_s", "steps")


def encode_job(job: Job) -> Body:
    """Return a job with its spec and story."""
    body: Body = {name: getattr(job, name) for name in _JOB_SCALARS}
    body["state"] = job.state.value
    body["ending"] = None if job.ending is None else job.ending.value
    body["suspended_via"] = job.suspended_via.value
    body["left_beside"] = list(job.left_beside)
    body["exit"] = None if job.exit is None else list(job.exit)
    body["spec"] = encode_spec(job.spec)
    body["placement"] = None if job.placement is None else encode_placement(job.placement)
    body["served"] = [list(served) for served in job.served]
    body["story"] = [_encode_move(move) for move in job.story]
    return body


def decode_job(body: Mapping[str, Any]) -> Job:
    """Return the job of `encode_job`."""
    values: Body = {name: body[name] for name in _JOB_SCALARS if name in body}
    values["id"] = JobId(body["id"])
    values["state"] = JobState(body["state"])
    values["ending"] = None if body.get("ending") is None else JobState(body["ending"])
    values["suspended_via"] = SuspendVia(body.get("suspended_via", SuspendVia.LANE))
    values["left_beside"] = tuple(JobId(other) for other in body.get("left_beside", ()))
    values["exit"] = None if body.get("exit") is None else Exit(*body["exit"])
    values["spec"] = decode_spec(body["spec"])
    values["placement"] = None if body.get("placement") is None else decode_placement(body["placement"])
    values["served"] = tuple(Served(*served) for served in body.get("served", ()))
    values["story"] = tuple(_decode_move(move) for move in body.get("story", ()))
    return Job(**values)


def encode_spec(spec: JobSpec) -> Body:
    """Return a spec's fields by name."""
    body = {name: getattr(spec, name) for name in SPEC_FIELDS}
    body["labels"] = dict(spec.labels)
    body.update((name, body[name].value) for name, _ in _SPEC_ENUMS)
    return body


def decode_spec(body: Mapping[str, Any]) -> JobSpec:
    """Return the spec of `encode_spec`."""
    values = dict(body)
    for name, kind in _SPEC_ENUMS:
        if name in values:
            values[name] = kind(values[name])
    return JobSpec(**values)


def encode_placement(placement: Placement) -> Body:
    """Return slots as `[node, number, lane]` in rank order, and the booked cores of each node."""
    slots = [[*slot.gpu, slot.lane] for slot in placement.slots]
    elsewhere = {node: list(cores) for node, cores in placement.cores_elsewhere}
    return {"slots": slots, "cores": list(placement.cores), "cores_elsewhere": elsewhere, "port": placement.port}


def decode_placement(body: Mapping[str, Any]) -> Placement:
    """Return the placement of `encode_placement`."""
    slots = tuple(Slot(GpuId(node, number), lane) for node, number, lane in body["slots"])
    elsewhere = tuple((node, tuple(cores)) for node, cores in body.get("cores_elsewhere", {}).items())
    return Placement(slots, tuple(body["cores"]), elsewhere, body.get("port", 0))


def encode_reason(reason: Reason) -> Body:
    """Return a reason's code, numbers and jobs."""
    return {"why": reason.why.value, "facts": dict(reason.facts), "jobs": list(reason.jobs)}


def decode_reason(body: Mapping[str, Any]) -> Reason:
    """Return the reason of `encode_reason`."""
    return Reason(Why(body["why"]), body["facts"], tuple(body["jobs"]))


def _encode_move(move: Move) -> Body:
    return {"at_s": move.at_s, "state": move.state.value, **encode_reason(move.reason)}


def _decode_move(body: Mapping[str, Any]) -> Move:
    return Move(body["at_s"], JobState(body["state"]), decode_reason(body))


def encode_progress(progress: Progress) -> Body:
    """Return a sample's fields by name."""
    return {name: getattr(progress, name) for name in PROGRESS_FIELDS}


def encode_gpu(gpu: Gpu) -> Body:
    """Return a GPU's fields by name."""
    return {**{name: getattr(gpu, name) for name in _GPU_FIELDS}, "cores": list(gpu.cores)}


def decode_gpu(body: Mapping[str, Any]) -> Gpu:
    """Return the GPU of `encode_gpu`."""
    return Gpu(**{**body, "cores": tuple(body.get("cores", ()))})


def encode_node(node: Node) -> Body:
    """Return a node with its GPUs."""
    body: Body = {name: getattr(node, name) for name in _NODE_SCALARS}
    topology = None if node.topology is None else encode_topology(node.topology)
    return {**body, "gpus": [encode_gpu(gpu) for gpu in node.gpus], "cores": list(node.cores), "topology": topology}


def decode_node(body: Mapping[str, Any]) -> Node:
    """Return the node of `encode_node`."""
    values: Body = {name: body[name] for name in _NODE_SCALARS if name in body}
    known = body.get("topology")
    values["topology"] = None if known is None else decode_topology(known)
    return Node(gpus=tuple(decode_gpu(gpu) for gpu in body["gpus"]), cores=tuple(body.get("cores", ())), **values)


def encode_topology(topology: Topology) -> Body:
    """Return a topology; a link is `[kind, lanes, bandwidth_bytes_per_s]`."""
    links = [[[link.kind.value, *link[1:]] for link in row] for row in topology.links]
    return {
        "links": links,
        "sockets": list(topology.sockets),
        "switches": list(topology.switches),
        "nvswitch": topology.nvswitch,
    }


def decode_topology(body: Mapping[str, Any]) -> Topology:
    """Return the topology of `encode_topology`."""
    links = tuple(tuple(Link(LinkKind(kind), *rest) for kind, *rest in row) for row in body["links"])
    return Topology(links, tuple(body["sockets"]), tuple(body["switches"]), body["nvswitch"])


def encode_key(key: ProfileKey) -> Body:
    """Return a profile key's fields by name."""
    return key._asdict()


def decode_key(body: Mapping[str, Any]) -> ProfileKey:
    """Return the key of `encode_key`."""
    return ProfileKey(**body)


def encode_profile(profile: Profile) -> Body:
    """Return a profile; each value with source, samples and what took it."""
    values = {name: _encode_value(getattr(profile, name)) for name in _PROFILE_VALUES}
    return {
        "key": encode_key(profile.key),
        **values,
        "updated_s": profile.updated_s,
        "users": list(profile.users),
        "places": [{"distance": pace.distance, "step_s": _encode_value(pace.step_s)} for pace in profile.places],
        "slowdowns": [
            {"beside": encode_key(one.beside), "distance": one.distance, "ratio": _encode_value(one.ratio)}
            for one in profile.slowdowns
        ],
    }


def decode_profile(body: Mapping[str, Any]) -> Profile:
    """Return the profile of `encode_profile`."""
    values = {name: _decode_value(body.get(name)) for name in _PROFILE_VALUES}
    return Profile(
        key=decode_key(body["key"]),
        updated_s=body.get("updated_s", 0.0),
        users=tuple(body.get("users", ())),
        places=tuple(PlacePace(one["distance"], _decode_number(one["step_s"])) for one in body.get("places", ())),
        slowdowns=tuple(
            Slowdown(decode_key(one["beside"]), one["distance"], _decode_number(one["ratio"]))
            for one in body.get("slowdowns", ())
        ),
        **values,
    )


def _encode_value(value: Value | None) -> Body | None:
    return None if value is None else {**value._asdict(), "source": value.source.value}


def _decode_value(body: Mapping[str, Any] | None) -> Value | None:
    return None if body is None else _decode_number(body)


def _decode_number(body: Mapping[str, Any]) -> Value:
    return Value(**{**body, "source": Source(body["source"])})


def encode_measurement(measurement: SetMeasurement) -> Body:
    """Return a measured set."""
    body: Body = {name: getattr(measurement, name) for name in _MEASUREMENT_SCALARS}
    lists = {name: list(getattr(measurement, name)) for name in _MEASUREMENT_LISTS}
    return {"keys": [encode_key(key) for key in measurement.keys], **body, **lists}


def decode_measurement(body: Mapping[str, Any]) -> SetMeasurement:
    """Return the measurement of `encode_measurement`."""
    values: Body = {name: body[name] for name in _MEASUREMENT_SCALARS}
    lists: Body = {name: tuple(body[name]) for name in _MEASUREMENT_LISTS}
    return SetMeasurement(keys=tuple(decode_key(key) for key in body["keys"]), **values, **lists)

"""The JSON objects between agent and scheduler (docs/reference/interfaces.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from colane.agent.config import AgentConfig
from colane.agent.gate.values import Seen
from colane.agent.launch.gang import LOOPBACK, Meeting
from colane.agent.reconcile import Desired, DesiredJob, Key, SaveWish
from colane.devices import Devices
from colane.model.hardware import Gpu
from colane.model.job import JobKind
from colane.model.lane import TurnRule, Turns
from colane.model.profile import Memory
from colane.model.versions import own_version, read_as

Object = dict[str, Any]


class Door(NamedTuple):
    """How the scheduler calls this agent: its base URL, and what it must bring."""

    address: str
    secret: str


MESSAGES_MAX = 100
"""Messages of one report: people read the first few, the scheduler takes no more."""


def node_object(
    config: AgentConfig, agent_id: str, door: Door, devices: Devices, gpus: Sequence[Gpu], host_refusal: str = ""
) -> Object:
    """Describe this node for its registration."""
    return {
        "secret": door.secret,
        "name": config.name,
        "version": own_version(),
        "agent_id": agent_id,
        "address": door.address,
        "pool": config.pool,
        "gpus": gpu_objects(gpus),
        "topology": asdict(devices.topology),
        "cores": list(devices.host.cores),
        "host_memory_bytes": devices.host.memory_bytes,
        "host_bandwidth_bytes_per_s": config.host_bandwidth_bytes_per_s,
        "host_refusal": host_refusal,
    }


def report_object(
    agent_id: str, at_s: float, gpus: Sequence[Gpu], messages: Iterable[str], jobs: list[Object]
) -> Object:
    """Say what is here now."""
    return {
        "agent_id": agent_id,
        "at_s": at_s,
        "gpus": gpu_objects(gpus),
        "messages": list(messages)[:MESSAGES_MAX],
        "jobs": jobs,
    }


def gpu_objects(gpus: Iterable[Gpu]) -> list[Object]:
    """Give devices as JSON carries them."""
    return [{**asdict(gpu), "cores": list(gpu.cores)} for gpu in gpus]


def with_sharing(gpus: Iterable[Gpu], mps_active: frozenset[int], through_mps: Mapping[int, bool]) -> tuple[Gpu, ...]:
    """Say of the GPUs with an MPS daemon that jobs share them through it.

    Args:
        gpus: As observed.
        mps_active: Indexes of the GPUs with a daemon.
        through_mps: Of the GPUs that carry jobs, whether all of these were started through the daemon.
    """
    shared = {index for index in mps_active if through_mps.get(index, True)}
    return tuple(replace(gpu, sharing="mps") if gpu.index in shared else gpu for gpu in gpus)


def read_desired(node: Object) -> Desired:
    """Read what shall run from the node object."""
    jobs = tuple(_desired_job(job) for job in node["jobs"])
    interval_s = (node.get("bandwidth") or {}).get("interval_s")
    return Desired(node["generation"], jobs, _turns(node.get("turns") or {}), interval_s)


def _desired_job(job: Object) -> DesiredJob:
    return DesiredJob(
        key=Key(job["id"], job["attempt"]),
        run=job["run"],
        gpus=tuple(slot["gpu"] for slot in job["slots"]),
        cores=tuple(job.get("cores") or ()),
        lanes=tuple(slot.get("lane", 0) for slot in job["slots"]),
        weight=job.get("weight", 1.0),
        priority=job.get("priority", 0),
        serves=job.get("kind") == JobKind.INFERENCE,
        steps_total=job.get("steps_total"),
        paused=bool(job.get("paused")),
        flush=bool(job.get("flush")),
        to_host=bool(job.get("to_host")),
        meeting=_meeting(job.get("gang")),
        save=_save(job["save"]) if job.get("save") else None,
        memory_limit_bytes=job.get("memory_limit_bytes") or 0,
        bandwidth_ratio=job.get("bandwidth_ratio", 1.0),
        memory=Memory(*job["memory"][: len(Memory._fields)]) if job.get("memory") else None,
        because=job.get("because") or "",
    )


def _save(part: Object) -> SaveWish:
    """Read how a job is asked to save, without what a newer scheduler says besides."""
    return SaveWish(**{name: part[name] for name in SaveWish._fields if name in part})


def _meeting(part: Object | None) -> Meeting | None:
    """Where the ranks of a job over several nodes meet."""
    if part is None:
        return None
    return Meeting(
        address=part["address"] or LOOPBACK,
        port=part["port"],
        ranks=part["world_size"],
        first_rank=part["rank_first"],
        nodes=len(part["nodes"]),
        node=part["node_rank"],
    )


def _turns(turns: Object) -> Turns:
    """Read how turns are handed out; a rule that this agent does not know yet is the default one."""
    return Turns(rule=read_as(TurnRule, turns.get("rule"), Turns().rule), quantum_s=turns.get("quantum_s", 0.0))


def with_turns(sample: Object, seen: Seen | None) -> Object:
    """Add to what is said of a job how it fares in its turns, if it shares a lane."""
    if seen is None or not sample.get("progress"):
        return sample
    turn: Object = {
        "turn": seen.state,
        "turn_service_s": seen.service_s,
        "turn_wait_s": seen.wait_s,
        "turn_share_ratio": seen.share_ratio,
        "turn_quantum_s": seen.quantum_s,
        "turn_handoff_s": seen.handoff_s,
    }
    if seen.note:
        turn["note"] = "; ".join(filter(None, (sample["progress"]["note"], seen.note)))
    return {**sample, "progress": {**sample["progress"], **turn}}

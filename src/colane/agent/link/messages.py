"""The JSON objects between agent and scheduler (docs/reference/interfaces.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from colane.agent.config import AgentConfig
from colane.agent.gate.values import Seen
from colane.agent.launch.gang import LOOPBACK
from colane.agent.reconcile import Desired, DesiredJob, Key, Meeting, SaveRequest
from colane.api.nodes import (
    DesiredJobObject,
    FinishedAnswer,
    FinishedJobsAnswer,
    GangObject,
    LaunchObject,
    NodeObject,
    TurnsObject,
)
from colane.api.of_record import ProgressObject, as_object
from colane.api.reports import FinishedObject, JobReportObject, RegistrationObject, ReportObject
from colane.devices import Devices
from colane.model.hardware import EXCLUSIVE, Gpu
from colane.model.job import JobKind
from colane.model.placement import TurnRule, Turns
from colane.model.profile import Memory
from colane.model.versions import own_version, read_as

# -- What the agent asks of the scheduler; `colane.client.agent_link.AgentLink` is the real one.


class Scheduler(Protocol):
    """The agent's side of the scheduler's REST API.

    Every method raises `SchedulerUnreachable` when there is no answer, and another `SchedulerError` with the
    answer's `status` when the scheduler refuses.
    """

    async def register(self, node: RegistrationObject) -> NodeObject:
        """Make this node known; refused with 409 while another live agent has its name."""
        ...

    async def report(self, name: str, report: ReportObject) -> NodeObject:
        """Tell what is here, and learn what shall be: the node object."""
        ...

    async def launch_info(self, job_id: int) -> LaunchObject:
        """Give what is needed to start a job."""
        ...

    async def finished(self, finished: FinishedObject) -> FinishedAnswer:
        """Tell that an attempt has ended; the answer tells how far the cluster is."""
        ...

    async def finished_together(self, ends: Sequence[FinishedObject]) -> FinishedJobsAnswer:
        """Tell that several attempts have ended, at most `ENDS_MAX`; refused with 405 by one that is older."""
        ...


class Door(NamedTuple):
    """How the scheduler calls this agent: its base URL, and what it must bring."""

    address: str
    secret: str


EXCLUSIVE_SAID: Final = (
    "GPUs {gpus} are in compute mode EXCLUSIVE_PROCESS: jobs share them through MPS only (`nvidia-smi -c DEFAULT`)"
)
MESSAGES_MAX = 100  # messages of one report: people read the first few, the scheduler takes no more


def node_object(
    config: AgentConfig, agent_id: str, door: Door, devices: Devices, gpus: Sequence[Gpu], host_refusal: str = ""
) -> RegistrationObject:
    """Describe this node for its registration."""
    return {
        "secret": door.secret,
        "name": config.name,
        "version": own_version(),
        "agent_id": agent_id,
        "address": door.address,
        "pool": config.pool,
        "gpus": [as_object(gpu) for gpu in gpus],
        "topology": as_object(devices.topology),
        "cores": list(devices.host.cores),
        "host_memory_bytes": devices.host.memory_bytes,
        "host_bandwidth_bytes_per_s": config.host_bandwidth_bytes_per_s,
        "host_refusal": host_refusal,
    }


def report_object(
    agent_id: str, at_s: float, gpus: Sequence[Gpu], messages: Iterable[str], jobs: list[JobReportObject]
) -> ReportObject:
    """Say what is here now."""
    return {
        "agent_id": agent_id,
        "at_s": at_s,
        "gpus": [as_object(gpu) for gpu in gpus],
        "messages": list(messages)[:MESSAGES_MAX],
        "jobs": jobs,
    }


def exclusive_message(gpus: Iterable[Gpu]) -> str:
    """Say which GPUs no jobs share, for their driver lets one process have each; empty of none."""
    which = [str(gpu.index) for gpu in gpus if gpu.sharing == EXCLUSIVE]
    return EXCLUSIVE_SAID.format(gpus=", ".join(which)) if which else ""


def with_sharing(gpus: Iterable[Gpu], mps_active: frozenset[int], through_mps: Mapping[int, bool]) -> tuple[Gpu, ...]:
    """Say of the GPUs with an MPS daemon that jobs share them through it.

    Args:
        gpus: As observed.
        mps_active: Indexes of the GPUs with a daemon.
        through_mps: Of the GPUs that carry jobs, whether all of these were started through the daemon.
    """
    shared = {index for index in mps_active if through_mps.get(index, True)}
    return tuple(replace(gpu, sharing="mps") if gpu.index in shared else gpu for gpu in gpus)


def read_desired(node: NodeObject) -> Desired:
    """Read what shall run from the node object."""
    jobs = tuple(_desired_job(job) for job in node["jobs"])
    request, turns = node.get("bandwidth"), node.get("turns")
    interval_s = request.get("interval_s") if request else None
    return Desired(node["generation"], jobs, _turns(turns) if turns else WITHOUT_QUANTUM, interval_s)


def _desired_job(job: DesiredJobObject) -> DesiredJob:
    save, memory = job.get("save"), job.get("memory")
    return DesiredJob(
        key=Key(job["id"], job["attempt"]),
        run=job["run"],
        halt=bool(job.get("halt")),
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
        at_rest=bool(job.get("at_rest")),
        meeting=_meeting(job.get("gang")),
        save=SaveRequest(save["signal"], save["number"], save.get("ranks", 0)) if save else None,
        memory_limit_bytes=job.get("memory_limit_bytes") or 0,
        bandwidth_ratio=job.get("bandwidth_ratio", 1.0),
        memory=Memory(*memory[: len(Memory._fields)]) if memory else None,
        because=job.get("because") or "",
    )


def _meeting(part: GangObject | None) -> Meeting | None:
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


WITHOUT_QUANTUM: Final = Turns(quantum_s=0.0)  # what a scheduler means that says nothing of turns


def _turns(turns: TurnsObject) -> Turns:
    """Read how turns are handed out; a rule that this agent does not know yet is the default one."""
    return Turns(rule=read_as(TurnRule, turns.get("rule"), Turns().rule), quantum_s=turns.get("quantum_s", 0.0))


def with_turns(sample: JobReportObject, seen: Seen | None) -> JobReportObject:
    """Add to what is said of a job how it fares in its turns, if it shares a lane."""
    if seen is None or "progress" not in sample:
        return sample
    progress: ProgressObject = {
        **sample["progress"],
        "turn": seen.state,
        "turn_service_s": seen.service_s,
        "turn_wait_s": seen.wait_s,
        "turn_share_ratio": seen.share_ratio,
        "turn_quantum_s": seen.quantum_s,
        "turn_handoff_s": seen.handoff_s,
    }
    if seen.note:
        progress["note"] = "; ".join(filter(None, (progress["note"], seen.note)))
    told: JobReportObject = {**sample, "progress": progress}
    if "use" in sample:
        told["use"] = {**sample["use"], "share_ratio": seen.share_ratio}
    return told

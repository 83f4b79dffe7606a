"""What is told of one node: its state in a word, Slurm's word for it, the jobs on its GPUs, and what they book."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from operator import itemgetter

from colane.api.nodes import BookedObject, DesiredJobObject, NodeObject
from colane.model.hardware import Node


class NodeWord(StrEnum):
    """What a node does."""

    UP = "up"
    TAKEN_OUT = "taken-out"  # something is wrong with it: it takes no jobs, and is tried again later
    DRAINING = "draining"  # it takes no new jobs, and some are left
    DRAINED = "drained"
    LOST = "lost"
    NO_AGENT = "no-agent"  # it was registered without one, and waits for it as a lost node does


def node_word(node: Node, *, is_lost: bool, has_jobs: bool) -> NodeWord:
    """Return the state of a node; what its operator says of it goes before what was found."""
    if is_lost:
        return NodeWord.LOST if node.agent_id else NodeWord.NO_AGENT
    if node.drains:
        return NodeWord.DRAINING if has_jobs else NodeWord.DRAINED
    return NodeWord.UP if node.closed is None else NodeWord.TAKEN_OUT


def slurm_word(word: str, gpus: int, held: int, *, has_jobs: bool) -> str:
    """Return Slurm's short word for a node in a state, of whose GPUs jobs hold some."""
    if word in {NodeWord.LOST, NodeWord.NO_AGENT}:
        return "down"
    if word != NodeWord.UP:
        return "drng" if has_jobs else "drain"
    return "alloc" if gpus and held >= gpus else "mix" if has_jobs else "idle"


def lanes_of(node: NodeObject) -> dict[int, dict[int, list[DesiredJobObject]]]:
    """Return the jobs on each GPU of a node that has some, by the GPU's index, lane by lane.

    One that was moved to the host is on none: its GPUs are free for others.
    """
    found: dict[int, dict[int, list[DesiredJobObject]]] = {}
    on = ((slot["gpu"], slot["lane"], job) for job in node["jobs"] if not job.get("on_host") for slot in job["slots"])
    for gpu, lane, job in sorted(on, key=itemgetter(0, 1)):
        found.setdefault(gpu, {}).setdefault(lane, []).append(job)
    return found


def booked(jobs: Iterable[tuple[Iterable[int], Iterable[int], int]]) -> BookedObject:
    """Return what jobs hold of a node, of each its GPUs, its cores and its bytes; what several share counts once."""
    all_gpus, all_cores, all_bytes = set[int](), set[int](), 0
    for gpus, cores, memory_bytes in jobs:
        all_gpus.update(gpus)
        all_cores.update(cores)
        all_bytes += memory_bytes
    return {"gpus": len(all_gpus), "cores": len(all_cores), "host_memory_bytes": all_bytes}


def booked_by(jobs: Iterable[DesiredJobObject]) -> BookedObject:
    """Return what jobs hold of their node as they are told to its agent; one on the host holds no GPU."""
    return booked(
        (
            [] if job.get("on_host") else [slot["gpu"] for slot in job["slots"]],
            job["cores"],
            job.get("memory_limit_bytes", 0),
        )
        for job in jobs
    )

"""Which jobs run near a job: on other GPUs of its sockets."""

from __future__ import annotations

from colane.core.cluster.state import ClusterState
from colane.model.job import Job, JobId
from colane.model.phases import STEPPING
from colane.perf.nearby import Near, SocketNeighbours
from colane.perf.topology import cost, shape_of_node


def no_neighbours() -> SocketNeighbours | None:
    """What is given where a job's pace says nothing about neighbours."""
    return None


def socket_neighbours_of(state: ClusterState, job_id: JobId) -> SocketNeighbours | None:
    """Where a job runs and which jobs are near it; None where its pace says nothing about neighbours.

    That is while it shares a GPU or spans nodes, while it or a neighbour does not step, and while others use a GPU
    of its node.
    """
    job = state.jobs[job_id]
    if job.placement is None or len(job.placement.nodes) > 1 or not job.gpus_held or not _steps(job):
        return None
    own = job.gpus_held
    if any(len(state.gpus[gpu].bookings) != 1 for gpu in own):
        return None
    node = state.nodes[own[0].node].node
    if any(gpu.is_disturbed for gpu in node.gpus):
        return None
    shape = shape_of_node(node)
    numbers = tuple(sorted(gpu.number for gpu in own))
    mine = shape.sockets_of(numbers)
    near: dict[JobId, Near] = {}
    for gpu, socket in zip(node.gpus, shape.sockets, strict=True):
        if mine >> socket & 1 and gpu.index not in numbers:
            for booking in state.gpus[own[0]._replace(number=gpu.index)].bookings:
                other = state.jobs[booking.job]
                if not _steps(other):
                    return None
                near[other.id] = Near(other.id, other.attempt, booking.key)
    key = state.gpus[own[0]].bookings[0].key
    return SocketNeighbours(key, cost(shape, numbers), tuple(near[other] for other in sorted(near) if other != job_id))


def _steps(job: Job) -> bool:
    return job.state in STEPPING and not job.suspended

"""What must hold of every state, computed anew from jobs and nodes without any index."""

from __future__ import annotations

from colane.core.events import Outcome
from colane.core.state import ClusterState
from colane.lanes.safety import is_safe
from colane.model.hardware import GpuId
from colane.model.job import JobId, JobState
from colane.model.plan import Start


def audit(state: ClusterState) -> None:
    """Raise AssertionError if any index, booking or bound is not what the records say."""
    _bookings(state)
    _nodes(state)
    _queues(state)
    _indexes(state)


def _bookings(state: ClusterState) -> None:
    expected: dict[GpuId, set[int]] = {gpu: set() for gpu in state.gpus}
    for job in state.jobs.values():
        assert (job.placement is None) == (job.state is JobState.QUEUED)
        assert job.suspended or job.state is not JobState.PAUSED or job.is_on_host
        assert not job.is_on_host or (job.spec.gpus == 1 and job.state in {JobState.PAUSED, JobState.STOPPING})
        for gpu in job.placement.gpus if job.placement else ():
            if gpu.node not in job.ended_on and not job.is_on_host:
                expected[gpu].add(job.id)
    assert set(state.returning) == {job.id for job in state.jobs.values() if job.is_returning}
    for gpu, load in state.gpus.items():
        assert set(load.jobs) == expected[gpu]
        assert load.returning == tuple(sorted(j for j in state.returning if gpu in _placed(state, j)))
        members = [(b.lane, b.memory) for b in load.bookings if b.memory is not None]
        if len(load.bookings) > 1:
            assert len(members) == len(load.bookings)
            assert all(booking.share for booking in load.bookings)
            assert all(b.memory == state.beliefs.memory(state.jobs[b.job].spec, load.gpu.type) for b in load.bookings)


def _placed(state: ClusterState, job: JobId) -> tuple[GpuId, ...]:
    placement = state.jobs[job].placement
    return placement.gpus if placement is not None else ()


def audit_decisions(state: ClusterState, outcome: Outcome) -> None:
    """A GPU just decided on is safe by what is believed now; beliefs may outgrow only older decisions."""
    for decision in outcome.decisions:
        if not isinstance(decision.action, Start):
            stopped = state.jobs[decision.action.job]
            assert stopped.spec.preemptible
            assert stopped.state is JobState.STOPPING
            continue
        for gpu in decision.action.placement.gpus:
            load = state.gpus[gpu]
            assert not load.returning
            beliefs = ((b, state.beliefs.memory(state.jobs[b.job].spec, load.gpu.type)) for b in load.bookings)
            members = [(b.lane, memory) for b, memory in beliefs if memory is not None]
            assert is_safe(members, load.capacity_bytes)
            assert load.gpu.healthy


def _nodes(state: ClusterState) -> None:
    for name, node in state.nodes.items():
        placed = [job for job in state.jobs.values() if job.placement and name in job.placement.nodes]
        jobs = [job for job in placed if name not in job.ended_on]
        assert set(node.jobs) == {job.id for job in jobs}
        cores = [core for job in jobs if job.placement for core in job.placement.cores_on(name)]
        assert len(cores) == len(set(cores))
        assert node.cores_booked == set(cores)
        ranks = [len(job.placement.slots_on(name)) for job in jobs if job.placement]
        parts = [job.spec.part(job.spec.host_memory_bytes, here) for job, here in zip(jobs, ranks, strict=True)]
        moved = sum(job.on_host_bytes or 0 for job in jobs)
        assert node.host_memory_booked_bytes == sum(parts) + moved
        assert sum(parts) <= node.node.host_memory_bytes
        rates = [job.spec.part(job.spec.host_bandwidth_bytes_per_s, n) for job, n in zip(jobs, ranks, strict=True)]
        assert node.host_bandwidth_booked == sum(rates)
        assert sum(rates) <= node.node.host_bandwidth_bytes_per_s or not node.node.host_bandwidth_bytes_per_s


def _queues(state: ClusterState) -> None:
    for pool, queue in state.queues.items():
        waiting = {j.id for j in state.jobs.values() if j.is_waiting and j.spec.pool == pool}
        assert {*queue, *queue.companies} == waiting
        assert queue.count == len(waiting)
        plain = {job for line in queue.classes.values() for job in line}
        assert plain == set(queue)
        order = [(-state.jobs[job].spec.priority, job) for job in queue]
        assert order == sorted(order)


def _indexes(state: ClusterState) -> None:
    for (pool, kind), index in state.free.items():
        for node in state.nodes.values():
            free = sum(
                state.gpus[GpuId(node.node.name, gpu.index)].is_free
                for gpu in node.node.gpus
                if gpu.type == kind and node.node.pool == pool
            )
            counted = [count for count, mask in enumerate(index.masks) if count and mask >> node.order & 1]
            assert counted == list(range(1, free + 1))
    for (kind_of, jobs), keys in state._open.items():
        loads = [load for load in state.gpus.values() if state.kind_of(load) == kind_of]
        assert keys == sorted(load.sort_key for load in loads if len(load.bookings) == jobs and load.is_open)

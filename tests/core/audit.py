"""What must hold of every state, computed anew from jobs and nodes without any index."""

from __future__ import annotations

from collections import Counter

from colane.core.cluster.load import Booking
from colane.core.cluster.situations import rates_of
from colane.core.cluster.state import ClusterState
from colane.core.cluster.to_host import is_on_cpu_devices, parking_refusal
from colane.core.events import Outcome
from colane.core.lifecycle import PHASES
from colane.core.reducers.suspension import refusal
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobState, SuspendVia
from colane.model.phases import LEAVING
from colane.model.placement import Placement
from colane.model.plan import Move, Park, Resize, SetCores, SetThrottle, Start, Stop
from colane.model.profile import Memory
from colane.model.resources import is_safe


def audit(state: ClusterState) -> None:
    """Raise AssertionError if any index, booking or bound is not what the records say."""
    _bookings(state)
    _nodes(state)
    _queues(state)
    _indexes(state)
    _rates(state)
    _parking(state)


def _parking(state: ClusterState) -> None:
    """One rule says who may be parked on a plan's word, suspended to the host on a user's, and counts as movable."""
    for job in state.jobs.values():
        if job.state is not JobState.RUNNING:
            continue
        refused = parking_refusal(state, job)
        by_user = refusal(state, job, None, SuspendVia.HOST)  # by its record, as a plan: a newer sample may tell more
        if refused is None and not state.steps_unseen:
            assert job.is_movable, job
        if refused is None and not is_on_cpu_devices(state, job):
            assert by_user is None, by_user
        if job.spec.kind is JobKind.INFERENCE:
            assert refused is not None, job
        elif by_user is None and not job.run.host_refusal:
            assert refused is None, refused


def _rates(state: ClusterState) -> None:
    """Every placed job goes at some speed, and none at its own size faster than alone."""
    for job in state.jobs.values():
        for rate in rates_of(state, job):
            assert 0 < rate.ratio <= 1 or job.gpu_count != job.effective.gpus
            assert rate.step_s is None or rate.step_s > 0
            assert rate.spread_ratio >= 0


def _bookings(state: ClusterState) -> None:
    expected: dict[GpuId, set[int]] = {gpu: set() for gpu in state.gpus}
    for job in state.jobs.values():
        assert (job.placement is None) == (job.state is JobState.QUEUED)
        assert job.suspended or job.state is not JobState.PAUSED or job.is_on_host or job.parked
        assert not any(getattr(job, phase) and job.state not in states for phase, states in PHASES.items())
        assert bool(job.home) == (job.parked and job.is_on_host)
        assert job.home in {"", *_homes(job)}
        if job.state is JobState.CHECKPOINTING:
            assert job.effective.checkpoint is not None
            assert job.run.saves_asked
            assert job.ending is JobState.QUEUED
        assert (job.leaving is not None) == (job.state in LEAVING)
        assert not job.is_on_host or job.gpu_count == 1
        for gpu in _held(job) if not job.is_on_host else ():
            if gpu in expected:
                expected[gpu].add(job.id)
    assert set(state.returning) == {job.id for job in state.jobs.values() if job.is_returning}
    for gpu, load in state.gpus.items():
        assert set(load.jobs) == expected[gpu]
        assert load.returning == tuple(sorted(j for j in state.returning if gpu in _placed(state, j)))
        if len(load.bookings) > 1:
            unknown = [b.job for b in load.bookings if b.memory is None]
            others = [state.jobs[other].spec.kind for other in load.jobs if other not in unknown]
            assert not unknown or (len(unknown) == 1 and set(others) == {JobKind.INFERENCE})
            assert all(booking.share for booking in load.bookings)
            assert all(b.memory == _memory(state, b, load.gpu.type) for b in load.bookings)


def _memory(state: ClusterState, booking: Booking, gpu_type: str) -> Memory | None:
    """What is believed now of a job with so many GPUs as it has; without turns it may hold all of it at any time."""
    job = state.jobs[booking.job]
    memory = state.beliefs.memory(job.effective, gpu_type, booking.key.gpus)
    return Memory(sum(memory), 0) if memory is not None and job.turn == "ungated" else memory


def _homes(job: Job) -> set[str]:
    return {str(gpu) for gpu in job.placement.gpus} | set(job.placement.nodes) if job.placement else set()


def _held(job: Job) -> set[GpuId]:
    """GPUs on which it has a part, and those it is to have."""
    has = [gpu for gpu in job.placement.gpus if gpu.node not in job.run.ended_on] if job.placement else []
    return {*has, *(job.resizes_to.gpus if job.resizes_to else ())}


def _placed(state: ClusterState, job: JobId) -> tuple[GpuId, ...]:
    placement = state.jobs[job].placement
    return placement.gpus if placement is not None else ()


def audit_decisions(state: ClusterState, outcome: Outcome) -> None:
    """A GPU just decided on is safe by what is believed now; beliefs may outgrow only older decisions.

    Relief is of GPUs that are not safe, and may stop anybody. Of several decisions on a job, the last one holds.
    """
    for decision in {decision.action.job: decision for decision in outcome.decisions}.values():
        action, job, is_relief = decision.action, state.jobs[decision.action.job], decision.policy == "relief"
        if isinstance(action, Stop | Resize):
            assert job.effective.preemptible or is_relief
            assert job.state in LEAVING
        elif isinstance(action, Park):
            assert job.parked
            assert job.is_leaving_gpus
        elif isinstance(action, SetCores):
            assert job.placement is not None
            assert (job.placement.cores, job.placement.cores_elsewhere) == (action.cores, action.cores_elsewhere)
        elif isinstance(action, SetThrottle):
            assert job.throttle == action.throttle
        elif isinstance(action, Start | Move) and not is_relief:
            assert job.state not in {JobState.QUEUED, JobState.PAUSED}
            _safe(state, action.placement.gpus)


def _safe(state: ClusterState, gpus: tuple[GpuId, ...]) -> None:
    for gpu in gpus:
        load = state.gpus[gpu]
        assert not load.returning
        beliefs = ((b, _memory(state, b, load.gpu.type)) for b in load.bookings)
        members = [(b.lane, memory) for b, memory in beliefs if memory is not None]
        assert is_safe(members, load.capacity_bytes)
        assert load.gpu.healthy


def _nodes(state: ClusterState) -> None:
    for name, node in state.nodes.items():
        jobs = [job for job in state.jobs.values() if _is_on(job, name)]
        assert set(node.jobs) == {job.id for job in jobs}
        alone = [job for job in jobs if not job.spec.gpus]
        assert node.cores_used == sum(len(_cores(job, name)) or max(1, job.spec.cores) for job in alone)
        going = [job for job in jobs if not (job.parked and job.is_on_host)]
        cores = [core for job in going for core in _cores(job, name)]
        assert len(cores) == len(set(cores))
        assert node.cores_booked == set(cores)
        withheld = [core for job in jobs if job.throttle is not None for core in job.throttle.withheld]
        assert node.cores_withheld == Counter(withheld)
        assert not any(set(job.throttle.withheld) & _cores(job, name) for job in jobs if job.throttle)
        parts = [max(_parts(job, name, job.spec.host_memory_bytes)) for job in jobs]
        moved = sum(job.on_host_bytes or 0 for job in jobs)
        assert node.host_memory_booked_bytes == sum(parts) + moved
        assert sum(parts) <= node.node.host_memory_bytes
        rates = [max(_parts(job, name, job.spec.host_bandwidth_bytes_per_s)) for job in going]
        assert node.host_bandwidth_booked == sum(rates)
        assert sum(rates) <= node.node.host_bandwidth_bytes_per_s or not node.node.host_bandwidth_bytes_per_s


def _is_on(job: Job, name: str) -> bool:
    """Whether a job books anything of a node."""
    return any(name in place.nodes for place in _places(job, name))


def _places(job: Job, name: str) -> list[Placement]:
    """Where it books anything of a node: by a part that is there, and by what it is to have."""
    has = job.placement if name not in job.run.ended_on else None
    return [place for place in (has, job.resizes_to) if place is not None]


def _cores(job: Job, name: str) -> set[int]:
    return {core for place in _places(job, name) for core in place.cores_on(name)}


def _parts(job: Job, name: str, total: int) -> list[int]:
    return [job.effective.part(total, len(place.slots_on(name))) for place in _places(job, name)]


def _queues(state: ClusterState) -> None:
    for pool, queue in state.queues.items():
        waiting = {j.id for j in state.jobs.values() if j.is_waiting and j.spec.pool == pool}
        cpu_only = {job for line in queue.cpu_only.values() for job in line}
        assert {*queue, *queue.measurement_groups, *cpu_only} == waiting
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
        assert list(keys) == sorted(load.sort_key for load in loads if len(load.bookings) == jobs and load.is_open)

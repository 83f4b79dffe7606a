"""What the jobs on a GPU were seen to need of its memory, without safety factors."""

from __future__ import annotations

from colane.core.cluster.load import Booking, GpuLoad
from colane.core.cluster.state import ClusterState
from colane.lanes.assign import LaneMember, Layout
from colane.model.job import Job, JobKind, JobState
from colane.model.profile import Memory, ValueSource


def seen_layout(state: ClusterState, load: GpuLoad) -> Layout:
    """Lanes of the jobs that remain on a GPU, in order of their start.

    Those that need more than declared come last, and before all others those that answer requests: the last have to go.
    """
    members = []
    for booking in sorted(load.bookings, key=lambda booking: _last_out(state.jobs[booking.job])):
        memory = _need(state, booking)
        if memory is not None and state.jobs[booking.job].state is not JobState.STOPPING:
            members.append(LaneMember(booking.job, booking.lane, memory))
    return Layout(load.capacity_bytes, tuple(members))


def _last_out(job: Job) -> tuple[bool, bool]:
    return job.spec.kind is not JobKind.INFERENCE, job.constraints.gpu_memory_bytes is not None


def is_overfull(state: ClusterState, load: GpuLoad) -> bool:
    """Whether jobs that share a GPU were seen to need more than it has, so that one of them has to go."""
    return len(load.bookings) > 1 and seen_layout(state, load).needed_bytes > load.capacity_bytes


def _need(state: ClusterState, booking: Booking) -> Memory | None:
    """P and E, within what is declared; as booked where nothing was measured."""
    profile = state.beliefs.profiles.get(booking.key)
    if profile is None or profile.persistent_bytes is None or profile.ephemeral_bytes is None:
        return booking.memory
    persistent, ephemeral = int(profile.persistent_bytes.value), int(profile.ephemeral_bytes.value)
    declared = state.jobs[booking.job].effective.gpu_memory_bytes
    if declared is None or profile.persistent_bytes.source is not ValueSource.MEASURED:
        return Memory(persistent, ephemeral)
    persistent = min(persistent, declared)
    return Memory(persistent, min(ephemeral, declared - persistent))

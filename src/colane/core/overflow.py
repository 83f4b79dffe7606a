"""Jobs that turn out to need more memory than they were booked with: the ledger follows, and so must the GPU.

Safety factors are there to be eaten by growth, so a GPU is relieved only when what its jobs were *seen* to need, lane
by lane, is more than there is. Then the youngest that does not fit is stopped and queued again; it starts where there
is room for what is known of it now. Waiting for somebody to run out of memory could cost an older job its work instead.
"""

from __future__ import annotations

from colane.core.load import Booking, GpuLoad
from colane.core.step import Step
from colane.lanes.assign import Layout, Member, outgrown
from colane.model.job import JobId, JobState
from colane.model.profile import Memory, ProfileKey
from colane.model.reason import Reason, Why


def relieve(step: Step, key: ProfileKey) -> None:
    """A kind of job was seen to need more: stop whom the GPUs that carry it cannot hold any more."""
    for gpu in sorted(step.state.keys_in_use.get(key, ())):
        load = step.state.gpus[gpu]
        if len(load.bookings) > 1 and all(booking.company is None for booking in load.bookings):
            _relieve_gpu(step, load)


def _relieve_gpu(step: Step, load: GpuLoad) -> None:
    layout = _seen(step, load)
    for job_id in outgrown(layout):
        rest = tuple(sorted(one.job for one in layout.members if one.job != job_id))
        need_bytes, have_bytes = layout.needed_bytes, load.capacity_bytes
        facts: dict[str, str | int | float] = {"gpu": str(load.id), "need_bytes": need_bytes, "have_bytes": have_bytes}
        step.stop(step.state.jobs[JobId(job_id)], JobState.QUEUED, Reason(Why.OUTGROWN, facts, rest))


def _seen(step: Step, load: GpuLoad) -> Layout:
    """What the jobs that stay on a GPU were seen to need, in order of their start."""
    members = []
    for booking in load.bookings:
        memory = _need(step, booking)
        if memory is not None and step.state.jobs[booking.job].state is not JobState.STOPPING:
            members.append(Member(booking.job, booking.lane, memory))
    return Layout(load.capacity_bytes, tuple(members))


def _need(step: Step, booking: Booking) -> Memory | None:
    """P and E without safety factors; as booked where nothing was measured."""
    profile = step.state.beliefs.profiles.get(booking.key)
    if profile is None or profile.persistent_bytes is None or profile.ephemeral_bytes is None:
        return booking.memory
    return Memory(int(profile.persistent_bytes.value), int(profile.ephemeral_bytes.value))

"""Jobs that turn out to need more memory than they were booked with: the ledger follows, and so must the GPU.

Safety factors are there to be eaten by growth, so a GPU is relieved only when what its jobs were *seen* to need, lane
by lane, is more than there is. Then the cheapest that frees enough is done with the youngest that does not fit: it goes
to a lane in which it takes turns with others, so that not everybody's largest need comes at once; where that is not
enough, it is stopped and queued again, and starts where there is room for what is known of it now. Waiting for somebody
to run out of memory could cost an older job its work instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from colane.core.lifecycle import move
from colane.core.load import Booking, GpuLoad
from colane.core.step import Step
from colane.core.suspension import STEPPING
from colane.lanes.assign import Layout, Member, squeeze
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.placement import Slot
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
    moves, gone = squeeze(layout, partial(_may_take_turns, step))
    need_bytes, have_bytes = layout.needed_bytes, load.capacity_bytes
    facts: dict[str, str | int | float] = {"gpu": str(load.id), "need_bytes": need_bytes, "have_bytes": have_bytes}
    for job_id, lane in moves:
        _change_lane(step, load.id, step.state.jobs[JobId(job_id)], lane, facts)
    for job_id in gone:
        rest = tuple(sorted(one.job for one in layout.members if one.job != job_id))
        step.stop(step.state.jobs[JobId(job_id)], JobState.QUEUED, Reason(Why.OUTGROWN, facts, rest))


def _may_take_turns(step: Step, job_id: int, mates: Sequence[int]) -> bool:
    """Whether a job may come to a lane while it runs: all there reach step boundaries, and nobody's answers wait."""
    if step.state.jobs[JobId(job_id)].state not in STEPPING:
        return False
    return all(_reaches_boundaries(step, step.state.jobs[JobId(each)]) for each in (job_id, *mates))


def _reaches_boundaries(step: Step, job: Job) -> bool:
    progress = step.state.progress.get(job.id)
    steps = progress is not None and progress.steps > 0 and job.state in {*STEPPING, JobState.PAUSED}
    return steps and job.spec.gpus == 1 and job.spec.kind is JobKind.TRAINING


def _change_lane(step: Step, gpu: GpuId, job: Job, lane: int, facts: Mapping[str, str | int | float]) -> None:
    mates = tuple(b.job for b in step.state.gpus[gpu].bookings if b.lane == lane)
    step.company_changed([gpu])
    step.state.change_lane(gpu, job.id, lane)
    placement = replace(job.placement, slots=(Slot(gpu, lane),)) if job.placement is not None else None
    reason = Reason(Why.CHANGED_LANE, {**facts, "lane": lane}, mates)
    step.put(move(job, job.state, step.now_s, reason, placement=placement))


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

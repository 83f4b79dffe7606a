"""Learning from samples how much memory jobs hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from colane.core.cluster.load import GpuLoad
from colane.core.reducers.step import Step
from colane.model.job import Job, JobKind
from colane.model.profile import Memory, ProfileKey
from colane.model.progress import Progress
from colane.perf.observe import MEMORY_GROWTH_RATIO, memory_seen


def learn_memory(
    step: Step, job: Job, progress: Progress, growth_ratio: float = MEMORY_GROWTH_RATIO
) -> tuple[Job, ProfileKey | None]:
    """Believe what a sample shows of memory, where that is so many times what was known.

    Before its first step a job may be loading still: then only what shows that too little was booked for it is
    believed. Some jobs, of frameworks that Colane does not follow, never show a step. A server that has run for a
    while without a request has loaded what it answers with.

    Returns:
        The job, booked by what it was seen to need where that is more than was declared; and its kind, if it or its
        kind was seen to need more than before.
    """
    if not job.gpus_held:
        return job, None
    progress = _within_device(step, job, progress)
    load = step.state.gpus[job.gpus_held[0]]
    if progress.steps == 0 and not _serves_idle(step, job) and not _takes_too_much(job, load, progress.peak_bytes or 0):
        return job, None
    key = step.state.beliefs.terms(job.effective, load.gpu.type, job.gpu_count).key
    seen = memory_seen(key, progress, step.state.beliefs.profiles.get(key), growth_ratio)
    if seen is not None:
        step.learn(replace(seen, users=(job.spec.user,) if job.spec.user else ()))
    held = _memory(progress)
    lately = None if held is None else step.state.knowledge.see_memory(key, held, growth_ratio)
    if lately is not None:
        step.note(lately)
    exceeding = _exceeds(step, job, key, progress)
    return exceeding or job, None if seen is None and exceeding is None else key


LOADED_AFTER_S: Final = 60.0
"""A server that runs for so long, and was asked for nothing, is taken to hold what it holds."""


def _serves_idle(step: Step, job: Job) -> bool:
    start_s = job.start_s
    return job.spec.kind is JobKind.INFERENCE and start_s is not None and step.now_s >= start_s + LOADED_AFTER_S


def _takes_too_much(job: Job, load: GpuLoad, peak_bytes: int) -> bool:
    """Whether a job holds more than was booked for it; of one of unknown needs, more than the others leave."""
    booked = next((b.memory for b in load.bookings if b.job == job.id), None)
    if booked is not None:
        return peak_bytes > booked.persistent_bytes + booked.ephemeral_bytes
    return len(load.bookings) > 1 and peak_bytes > load.without(job.id).left_bytes


def attempt_ended(step: Step, job: Job) -> None:
    """What its kind was once seen to need gives way, after enough attempts, to what was needed lately.

    An attempt counts that has shown what it holds; so do jobs of the kind that run still.
    """
    beliefs, progress = step.state.knowledge, step.state.progress.get(job.id)
    if not job.gpus_held or progress is None or not progress.steps or _memory(progress) is None:
        return
    key = beliefs.terms(job.effective, step.state.gpus[job.gpus_held[0]].gpu.type, job.gpu_count).key
    counted = beliefs.count_attempt(key, job.spec.user)
    if counted is None:
        return
    step.note(counted)
    if not beliefs.is_window_over(key):
        return
    lowered = beliefs.give_way(key, _held_by_others(step, job, key), MEMORY_GROWTH_RATIO)
    if lowered is None:
        step.note(beliefs.profiles[key])
    else:
        step.relearnt(lowered)


def _held_by_others(step: Step, job: Job, key: ProfileKey) -> list[Memory]:
    """The most that other jobs of a kind hold; none where none has shown what it holds. There may be thousands."""
    state = step.state
    loads = [state.gpus[gpu] for gpu in state.keys_in_use.get(key, ())]
    least_bytes = min([load.gpu.memory_bytes for load in loads], default=0)
    persistent_bytes, ephemeral_bytes = -1, -1
    for other in {one.job for load in loads for one in load.bookings if one.key == key} - {job.id}:
        progress = state.progress.get(other)
        if progress is None or not progress.steps:
            continue
        if max(progress.peak_bytes or 0, progress.persistent_bytes or 0, progress.overhead_bytes or 0) > least_bytes:
            progress = _within_device(step, state.jobs[other], progress)
        if progress.peak_bytes is not None and progress.persistent_bytes is not None:
            persistent_bytes = max(persistent_bytes, progress.persistent_bytes)
            ephemeral_bytes = max(ephemeral_bytes, progress.peak_bytes - progress.persistent_bytes, 0)
    return [] if persistent_bytes < 0 else [Memory(persistent_bytes, ephemeral_bytes)]


def _memory(progress: Progress) -> Memory | None:
    if progress.peak_bytes is None or progress.persistent_bytes is None:
        return None
    return Memory(progress.persistent_bytes, max(0, progress.peak_bytes - progress.persistent_bytes))


def _within_device(step: Step, job: Job, progress: Progress) -> Progress:
    """A job writes its page itself, and may hold more than there is of what stands in for a GPU: it needs all of it."""
    if progress.peak_bytes is None or progress.persistent_bytes is None:
        return progress
    device_bytes = max([step.state.gpus[gpu].gpu.memory_bytes for gpu in job.gpus_held])
    if max(progress.peak_bytes, progress.persistent_bytes, progress.overhead_bytes or 0) <= device_bytes:
        return progress
    return replace(
        progress,
        peak_bytes=min(progress.peak_bytes, device_bytes),
        persistent_bytes=min(progress.persistent_bytes, device_bytes),
        overhead_bytes=None if progress.overhead_bytes is None else min(progress.overhead_bytes, device_bytes),
    )


def _exceeds(step: Step, job: Job, key: ProfileKey, progress: Progress) -> Job | None:
    """A job that holds more than was declared, booked by what it holds; None where it does not."""
    declared, peak_bytes = job.effective.gpu_memory_bytes, progress.peak_bytes or 0
    if declared is None or peak_bytes <= declared:
        return None
    device_bytes = max([step.state.gpus[gpu].gpu.memory_bytes for gpu in job.gpus_held])
    need_bytes = min(device_bytes, int(peak_bytes * step.state.knowledge.total_factor))
    if need_bytes <= declared:
        return None
    exceeding = job.under(job.constraints._replace(gpu_memory_bytes=need_bytes))
    step.put(exceeding)
    step.state.refresh_bookings(key)
    return exceeding

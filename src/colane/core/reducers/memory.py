"""Learning from samples how much memory jobs hold."""

from __future__ import annotations

from colane.core.reducers.step import Step
from colane.model.job import Job
from colane.model.profile import ProfileKey
from colane.model.progress import Progress
from colane.perf.observe import MEMORY_GROWTH_RATIO, memory_seen


def learn_memory(
    step: Step, job: Job, progress: Progress, growth_ratio: float = MEMORY_GROWTH_RATIO
) -> ProfileKey | None:
    """Believe what a sample shows of memory, where that is so many times what was known; its kind, if it did.

    Before its first step a job may be loading still: then only what shows that too little was booked for it is
    believed. Some jobs, of frameworks that Colane does not follow, never show a step.
    """
    if not job.gpus_held:
        return None
    load = step.state.gpus[job.gpus_held[0]]
    if progress.steps == 0:
        booked = next((b.memory for b in load.bookings if b.job == job.id), None)
        if booked is None or (progress.peak_bytes or 0) <= booked.persistent_bytes + booked.ephemeral_bytes:
            return None
    key = step.state.beliefs.terms(job.effective, load.gpu.type, job.gpu_count).key
    seen = memory_seen(key, progress, step.state.beliefs.profiles.get(key), growth_ratio)
    if seen is None:
        return None
    step.learn(seen)
    return key

"""How many steps a command took when it last ran to success: a guess at what the next of its kind needs.

It is shown, and never decided by: a family's name holds no arguments' values, so the next job may be another length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colane.model.job import Job, JobKind, JobSpec, JobState


def kind_of(spec: JobSpec) -> str:
    """Return what jobs of one length have in common, as the key of a document; the GPU type changes no count."""
    batch = "" if spec.batch_size is None else str(spec.batch_size)
    return f"{spec.gpus}|{batch}|{spec.family}"


def family_of(kind: str) -> str:
    """Return the family in such a key, which may be what a damaged store has in its place."""
    return kind.split("|", 2)[-1]


def learnt(job: Job, finished: Mapping[str, Any]) -> int | None:
    """Return the steps of a job that has ended, if they tell how many its kind needs.

    They do of training that a single attempt brought to its end: a later one may have gone on from a checkpoint, and
    one that was stopped (at its `steps_limit`, say) was not at its end.
    """
    was_stopped = len(job.story) > 1 and job.story[-2].state is JobState.STOPPING
    ended_by_itself = job.state is JobState.SUCCEEDED and not was_stopped
    if not ended_by_itself or job.attempt > 1 or job.spec.kind is JobKind.INFERENCE:
        return None
    steps = (finished.get("progress") or {}).get("steps")
    return int(steps) if steps else None

"""How many steps a command took when it last ran to success: a guess at what the next of its kind needs.

It is shown, and never decided by. A family's name holds no arguments' values, and one with other numbers in them may be
of another length: of the kinds that differ in these alone the last that ran is known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from colane.model.job import Job, JobKind, JobSpec, JobState


def kind_of(spec: JobSpec) -> str:
    """Return what jobs of one length have in common, as the key of a document; the GPU type changes no count."""
    batch = "" if spec.batch_size is None else str(spec.batch_size)
    numbers = f"{NUMBERS}{spec.numbers}" if spec.numbers else ""
    return f"{spec.gpus}|{batch}{numbers}|{spec.family}"


NUMBERS: Final = ";"
_NUMBER: Final = re.compile(
    r"""(?:^|[\s=:,"'])[+-]?(\d[\d_]*(?:\.\d*)?(?:e[+-]?\d+)?)[kmgb]?(?=$|[\s,;"'])""", re.ASCII | re.IGNORECASE
)
_SEED: Final = re.compile(r"(?:^|[\s-])\w*seed[=\s:]+\d+", re.ASCII | re.IGNORECASE)
_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)


def numbers_of(command: Sequence[str]) -> str:
    """Return a digest of the counts in a command's arguments, or in a script in them; empty of one without.

    No count is a seed, what is less than one (rates are), nor digits in names and paths: jobs that differ in these
    alone are of one length.
    """
    text = _SEED.sub(" ", _COMMENT.sub("", "\n".join(command[1:])))
    found = " ".join(one[0] for one in _NUMBER.finditer(text) if float(one[1].rstrip("_")) >= 1)
    return hashlib.sha256(found.encode()).hexdigest()[:8] if found else ""


def others_of(kind: str, known: Mapping[str, int]) -> list[str]:
    """Return the kinds that differ from one in numbers alone."""
    start, end = _without_numbers(kind)
    return [other for other in known if other != kind and other.endswith(end) and _without_numbers(other)[0] == start]


def _without_numbers(kind: str) -> tuple[str, str]:
    gpus, batch, family = kind.split("|", 2)
    return f"{gpus}|{batch.partition(NUMBERS)[0]}", f"|{family}"


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

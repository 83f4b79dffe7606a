"""Why nothing is known of a job's speed though jobs of its family have run: they were disturbed, or told no steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from colane.model.hardware import DISTURBED_RATIO
from colane.model.job import Job
from colane.model.job_spec import JobKind
from colane.model.progress import Progress
from colane.model.words import count, percent
from colane.perf.knowledge import Knowledge
from colane.server.ground.sight import Sight
from colane.server.store.store import FINISHED_JOBS, Store

LOOKED_AT: Final = 50
"""So many jobs of the family are looked at, those that ended last."""
RUNS_MAX: Final = 20
"""So many runs tell."""
Seen = tuple[int, float | None]
"""Steps of a run, and the part of its devices that others used."""


def is_untaught(job: Job, beliefs: Knowledge) -> bool:
    """Whether nothing was measured of how fast jobs of a job's family run, and that matters to it, as it may share."""
    is_known = any(profile.step_s is not None for profile in beliefs.of_family(job.effective.family))
    return bool(job.effective.gpus) and job.spec.share and job.spec.kind is JobKind.TRAINING and not is_known


def untaught(store: Store, sight: Sight, job: Job, running: Iterable[Progress]) -> list[str]:
    """Return why runs of a job's family have taught nothing, as far as the caller may see them; nothing of no run.

    Args:
        store: Tells of the runs that have ended.
        sight: What the caller may be told.
        job: The job.
        running: Samples of those of its family that run.

    Raises:
        StoreError: The store cannot be read.
    """
    live: list[Seen] = [(sample.steps, sample.others_ratio) for sample in running if sample.steps]
    runs = list(islice(chain(live, _ended(store, sight, job.effective.family)), RUNS_MAX))
    if not runs:
        return []
    stepping = [others for steps, others in runs if steps]
    disturbed = [others for others in stepping if others is not None and others >= DISTURBED_RATIO]
    told = f"{count(len(stepping or runs), 'run')} of its family"
    if not stepping:
        fix = "how it may report them: docs/explanation/adaptor.md"
        return [f"nothing is known of its speed, so it shares no GPU: {told} told no steps; {fix}"]
    if not disturbed:
        return []
    some = f", {len(disturbed)} of them" if len(disturbed) < len(stepping) else ", each" if len(stepping) > 1 else ""
    used = percent(sum(disturbed, 0.0) / len(disturbed))
    others = f"by work that is not Colane's, which used {used} of its devices"
    return [f"nothing is known of its speed alone: {told}{some} disturbed {others}"]


def _ended(store: Store, sight: Sight, family: str) -> Iterator[Seen]:
    """Yield the runs of a family that ended last."""
    for _, document in store.page_back(FINISHED_JOBS, None, LOOKED_AT, (json.dumps(family),)):
        spec: dict[str, Any] = document["job"].get("spec", {})
        sample = (document.get("finished") or {}).get("progress")
        if spec.get("family") == family and sample and sight.has(str(spec.get("user", ""))):
            yield int(sample.get("steps") or 0), sample.get("others_ratio")

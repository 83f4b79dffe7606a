"""What a job is held to besides what its owner declared: learnt of it, or imposed by the scheduler.

The declaration (`Job.spec`) is never rewritten. What decides looks at `Job.effective`, which is worked out of both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from colane.model.checkpoint import CheckpointContract
from colane.model.job_spec import JobSpec


class Constraints(NamedTuple):
    """What was learnt of a job, or imposed on it.

    Attributes:
        isolated: It has its GPUs to itself: it was too slow next to other jobs, or ran out of memory.
        not_preemptible: No plan stops it any more: it has failed too often at saving its state.
        checkpoint: How it is asked to save, as learnt of it, in place of what was declared.
        sizes_lost: Numbers of GPUs at which it does not come up.
        cores: Cores it is to start with, where these are tuned, in place of those declared.
        sharing_domain: Only jobs of the same domain may share a GPU with it; empty where all may.
        gpu_memory_bytes: What it was seen to need of a GPU, where that is more than was declared.
        steps_total_doubted: Its declared total of steps is not believed: it has gone past it, or its owner's jobs have.
    """

    isolated: bool = False
    not_preemptible: bool = False
    checkpoint: CheckpointContract | None = None
    sizes_lost: tuple[int, ...] = ()
    cores: int | None = None
    sharing_domain: str = ""
    gpu_memory_bytes: int | None = None
    steps_total_doubted: bool = False


UNCONSTRAINED: Final = Constraints()


def under(spec: JobSpec, constraints: Constraints) -> JobSpec:
    """What a job needs under its constraints; the declaration itself where there are none."""
    if constraints == UNCONSTRAINED:
        return spec
    lost = constraints.sizes_lost
    left = tuple([size for size in spec.sizes if size not in lost]) if lost else spec.sizes
    learnt, held_bytes = constraints.checkpoint, constraints.gpu_memory_bytes
    saves = spec.preemptible or (learnt is not None and spec.checkpoint is None)
    return replace(
        spec,
        gpus=left[-1] if left and spec.gpus in lost else spec.gpus,
        sizes=left if len(left) > 1 or not lost else (),
        share=spec.share and not constraints.isolated,
        preemptible=saves and not constraints.not_preemptible,
        checkpoint=spec.checkpoint if learnt is None else learnt,
        cores=spec.cores if constraints.cores is None else constraints.cores,
        sharing_domain=constraints.sharing_domain,
        gpu_memory_bytes=spec.gpu_memory_bytes if held_bytes is None else held_bytes,
        steps_total=None if constraints.steps_total_doubted else spec.steps_total,
    )

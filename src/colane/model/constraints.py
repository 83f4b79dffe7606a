"""What a job is held to besides what its owner declared: learnt of it, or imposed by the scheduler.

The declaration (`Job.spec`) is never rewritten. What decides looks at `Job.effective`, which is worked out of both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from colane.model.checkpoint import CheckpointContract
from colane.model.hardware import GpuId
from colane.model.job_spec import JobSpec
from colane.model.kinds import JobKind


class NewLimit(NamedTuple):
    """A limit in place of another: seconds, or elements at once; None for none."""

    value: float | None


class PromisedGpus(NamedTuple):
    """GPUs that are a job's own until it has ended, so that it ends by its deadline.

    Attributes:
        gpus: They.
        start_by_s: It is to start there by then: Unix seconds.
    """

    gpus: tuple[GpuId, ...]
    start_by_s: float


class Constraints(NamedTuple):
    """What was learnt of a job, or imposed on it.

    Attributes:
        isolated: It has its GPUs to itself: it was too slow next to other jobs, or ran out of memory.
        not_preemptible: No plan stops it any more: it has failed too often at saving its state.
        checkpoint: How it is asked to save, as learnt of it, in place of what was declared.
        sizes_lost: Numbers of GPUs at which it does not come up.
        cores: Cores it is to start with where there are as many, where these are tuned, in place of those declared: an
            offer, so that it waits for none.
        needs_cores: That it does wait for these, as the policy makes room for them (CODA).
        sharing_domain: Only jobs of the same domain may share a GPU with it; empty where all may.
        gpu_memory_bytes: What it was seen to need of a GPU, where that is more than was declared.
        steps_total_doubted: Its declared total of steps is not believed: it has gone past it, or its owner's jobs have.
        time_limit: Its time limit as it was changed since, by its owner or an operator; None: as declared.
        after: The jobs that its declared `after` means, by id (`ok:12` of `ok:@`); empty: as declared.
        promised: The GPUs by which its deadline is kept; None where it has none.
        family: Whose beliefs count for it, where those of its own family are another user's word alone; empty: its own.
    """

    isolated: bool = False
    not_preemptible: bool = False
    checkpoint: CheckpointContract | None = None
    sizes_lost: tuple[int, ...] = ()
    cores: int | None = None
    sharing_domain: str = ""
    gpu_memory_bytes: int | None = None
    steps_total_doubted: bool = False
    family: str = ""
    needs_cores: bool = False
    time_limit: NewLimit | None = None
    after: str = ""
    promised: PromisedGpus | None = None


UNCONSTRAINED: Final = Constraints()


def under(spec: JobSpec, constraints: Constraints) -> JobSpec:
    """What a job needs under its constraints; the declaration itself where there are none. No server is preemptible."""
    serves = spec.kind is JobKind.INFERENCE
    if (constraints is UNCONSTRAINED or constraints == UNCONSTRAINED) and not (serves and spec.preemptible):
        return spec
    lost = constraints.sizes_lost
    left = tuple([size for size in spec.sizes if size not in lost]) if lost else spec.sizes
    learnt, held_bytes = constraints.checkpoint, constraints.gpu_memory_bytes
    offered = 0 if constraints.needs_cores else constraints.cores or 0
    saves = spec.preemptible or (learnt is not None and spec.checkpoint is None)
    return replace(
        spec,
        family=constraints.family or spec.family,
        gpus=left[-1] if left and spec.gpus in lost else spec.gpus,
        sizes=left if len(left) > 1 or not lost else (),
        share=spec.share and not constraints.isolated,
        preemptible=saves and not constraints.not_preemptible and not serves,
        checkpoint=spec.checkpoint if learnt is None else learnt,
        cores=_needed(spec, constraints),
        cores_offered=offered,
        cores_beside=min(offered, spec.cores),
        sharing_domain=constraints.sharing_domain,
        gpu_memory_bytes=spec.gpu_memory_bytes if held_bytes is None else held_bytes,
        steps_total=None if constraints.steps_total_doubted else spec.steps_total,
        time_limit_s=spec.time_limit_s if constraints.time_limit is None else constraints.time_limit.value,
        after=constraints.after or spec.after,
    )


def serves_elsewhere(spec: JobSpec, constraints: Constraints) -> bool:
    """Whether a job that answers requests, which is stopped for no other, may leave its node for another."""
    saves = spec.preemptible or (constraints.checkpoint or spec.checkpoint) is not None
    return spec.kind is JobKind.INFERENCE and saves and not constraints.not_preemptible


def _needed(spec: JobSpec, constraints: Constraints) -> int:
    """Cores without which a job does not start."""
    if constraints.cores is None:
        return spec.cores
    return constraints.cores if constraints.needs_cores else 0

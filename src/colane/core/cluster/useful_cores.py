"""How many cores are right for a job, by what was measured, and how many it starts with (paper D, section IV-B)."""

from __future__ import annotations

from colane.core.cluster.state import ClusterState
from colane.cpu.start import CoreHistory, start_cores
from colane.cpu.tuner import CoreTry, found
from colane.model.job import Job, JobKind, JobSpec
from colane.model.profile import Profile
from colane.perf.estimates import Estimates, profile_key

TRIED_MIN = 2  # speed with one number of cores says nothing of others


def is_tuned(spec: JobSpec) -> bool:
    """Whether its cores are for Colane to find: training on GPUs, and not measured on purpose."""
    is_measured = spec.measurement_group is not None or spec.steps_limit is not None
    return spec.gpus > 0 and spec.kind is JobKind.TRAINING and not is_measured


def tries(profile: Profile | None) -> list[CoreTry]:
    """What was measured of a kind of job by cores, in all."""
    paces = () if profile is None else profile.core_paces
    return [CoreTry(pace.cores, 1 / pace.step_s.value) for pace in paces if pace.step_s.value > 0]


def useful_cores(profile: Profile | None) -> int | None:
    """Fewest cores with which it is as fast as with any that was tried; None while too few were."""
    known = tries(profile)
    return found(known).cores if len(known) >= TRIED_MIN else None


def useful_cores_believed(beliefs: Estimates, spec: JobSpec, gpu_type: str, ranks: int) -> int | None:
    """The same of a kind of job on so many GPUs of a type."""
    return useful_cores(beliefs.profiles.get(profile_key(spec, gpu_type, ranks)))


def useful_cores_of(state: ClusterState, job: Job) -> int | None:
    """The same of a job on the GPUs it has; None of one without."""
    if job.placement is None or not job.placement.slots or job.placement.gpus[0] not in state.gpus:
        return None
    kind = state.gpus[job.placement.gpus[0]].gpu.type
    return useful_cores(state.knowledge.profile(job.effective, kind, len(job.placement.slots)))


def start_cores_of(state: ClusterState, spec: JobSpec, *, is_need: bool = False) -> int | None:
    """How many cores a job is to start with; None where that is not for Colane to say.

    As many as were found to be of use, else by what its owner's jobs have used, or the default of its category; those
    are a need under CODA, whatever was asked for, and otherwise no more than was: it is given more where it is seen to
    go faster. A job that asks for none shares the cores that none has booked, which costs no other job of its kind
    anything: only under CODA is it given some of its own.
    """
    if not is_tuned(spec) or not (spec.cores or is_need):
        return None
    known = [useful_cores(state.knowledge.profile(spec, kind)) for kind in state.gpu_types.get(spec.pool, [])]
    cores = max([cores for cores in known if cores is not None], default=0)
    if not cores:
        cores = _by_history(state, spec)
        cores = cores if is_need else min(cores, spec.cores)
    most = _most_cores(state, spec)
    return min(cores, most) if most else cores


def _by_history(state: ClusterState, spec: JobSpec) -> int:
    history = []
    for profile in state.beliefs.profiles.values():
        cores = useful_cores(profile) if spec.user in profile.users else None
        if cores is not None:
            history.append(CoreHistory(profile.category, max(1, round(cores / profile.key.gpus))))
    return start_cores(spec.category, history, spec.core_hints, gpus=spec.gpus_max).total


def _most_cores(state: ClusterState, spec: JobSpec) -> int:
    """Cores of the largest node that has the GPUs it asks for; 0 while there is none."""
    nodes = [node.node for node in state.nodes.values() if node.node.pool == spec.pool]
    return max([len(node.cores) for node in nodes if len(node.gpus) >= spec.gpus or spec.multi_node], default=0)

"""Which of Colane's mechanisms are on, and why others are off: for `/health` and the line that `colane up` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import inf
from typing import Final

from colane.core.config import CoreConfig
from colane.core.policy import Policy
from colane.model.hardware import MPS, Node
from colane.model.limits import too_much
from colane.model.progress import BY_CPU_TIME
from colane.model.resources import Guarantee
from colane.model.words import count
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.cpu.lending import CpuArrayBeside
from colane.scheduling.mechanisms.lanes.in_lane import InLane
from colane.scheduling.mechanisms.sharing.beside_servers import BesideServers
from colane.scheduling.mechanisms.topology.free import Free, NodesBy

FOLDER: Final = "colane.scheduling.mechanisms."
ON: Final = "on"
THEIRS: Final = ": jobs with GPUs wait for theirs"  # where cores are no offer, but what they book
NO_ARRAYS: Final = "places jobs without GPUs wherever cores are free"


def mechanisms_view(
    policy: Policy, config: CoreConfig, nodes: Iterable[Node], bandwidth_by: Iterable[str]
) -> Mapping[str, str]:
    """Return each mechanism with `on`, perhaps with more of it, or `off: ` and why.

    Args:
        policy: What decides; what a user's own does is not known.
        config: How jobs are treated besides.
        nodes: Those that are there.
        bandwidth_by: What measures the use of memory bandwidth, on each of them.
    """
    parts = list(_used(policy))
    used = {_mechanism(part) for part in parts}
    gpus = [gpu for node in nodes for gpu in node.gpus]
    real = [gpu for gpu in gpus if not gpu.is_cpu_device]

    # By a part of any mechanism; by priority alone they are stopped at any time, by that of preemption.
    stops = isinstance(policy, Composed) and policy.min_runtime_before_preemption_s < inf

    co_location = _co_location(parts)
    split = any(getattr(part, "nodes", None) is NodesBy.ARRAYS for part in getattr(policy, "sources", ()))
    waits = bool(getattr(policy, "makes_room_for_cores", False))

    def of_policy(name: str, does: str) -> str:
        if not isinstance(policy, Composed):
            return f"as policy {policy.name} has it"
        return ON if name in used else f"off: policy {policy.name} {does}"

    return {
        "co-location": co_location or of_policy("sharing", "gives each job whole GPUs"),
        "mps": _mps(len(real), len([gpu for gpu in real if gpu.sharing == MPS]))
        if co_location.startswith(ON) or not isinstance(policy, Composed)
        else f"off: policy {policy.name} runs no two jobs at once on a GPU",
        "lanes": _turns(parts) or of_policy("lanes", "has no jobs take turns"),
        "topology": of_policy("topology", "takes any free GPUs of a node"),
        "preemption": ON if stops else of_policy("preemption", "stops no job for another"),
        "arrays": f"{ON}: of GPUs" if split and "cpu" not in used else of_policy("cpu", NO_ARRAYS + _arrays_by(policy)),
        "elastic sizes": of_policy("elastic", "leaves jobs the GPUs they started with"),
        **_guarantees(policy, config.limits.guarantees, len(gpus)),
        "cores": ON + THEIRS * waits if config.tuning else "off: --core-tuner is off",
        "bandwidth": _bandwidth(config, set(bandwidth_by)),
    }


def _co_location(parts: Iterable[object]) -> str:
    """How jobs run at once on one GPU, by the parts that have them do so; empty where none does."""
    sharing = [part for part in parts if _mechanism(part) == "sharing"]
    if any(not isinstance(part, BesideServers) for part in sharing):
        return ON
    lanes = [part for part in parts if isinstance(part, InLane)]
    if any(part.opens for part in lanes):
        return f"{ON}: in lanes"
    if lanes:
        return "off: jobs on one GPU take turns in one lane"
    return f"{ON}: beside servers" if sharing else ""


def _turns(parts: Iterable[object]) -> str:
    """Which jobs take turns in a lane; empty where none do. Beside servers any part of sharing has them do so."""
    lanes, told = [part for part in parts if isinstance(part, InLane)], ""
    if lanes:
        told = ON if any(part.joins for part in lanes) else f"{ON}: without turns"
    elif any(_mechanism(part) == "sharing" for part in parts):
        told = f"{ON}: beside servers"
    return told


def _guarantees(policy: Policy, guarantees: Sequence[Guarantee], gpus: int) -> Mapping[str, str]:
    """Whether groups get what they are guaranteed, where any are; of more than there is too, as nodes may yet come."""
    if not guarantees:
        return {}
    if not isinstance(policy, Composed):
        return {"guarantees": f"as policy {policy.name} has it"}
    fits = f"{sum(each.gpus for each in guarantees)} of {count(gpus, 'GPU')}"
    return {"guarantees": f"{ON}: {too_much(guarantees, gpus) or fits}"}


def _arrays_by(policy: Policy) -> str:
    """The option that divides it into arrays, where it has one."""
    has = isinstance(policy, Composed) and isinstance(policy.cpu_jobs, CpuArrayBeside)
    return "; arrays=yes keeps some for jobs with GPUs" if has else ""


def _mps(real: int, by_mps: int) -> str:
    if not real:
        return "off: no GPU"
    if not by_mps:
        return "off: no GPU is shared by MPS; 'colane nodes' says why"
    return f"{ON}: {by_mps} of {count(real, 'GPU')}"


def _bandwidth(config: CoreConfig, by: set[str]) -> str:
    if config.contention is None:
        return "off: --contention is off"
    return f"{ON}: estimated" if by == {BY_CPU_TIME} else ON


def _used(part: object) -> Iterator[object]:
    """Parts of a policy that are of a mechanism and do something. Taking what is free is none, nor is an idle part."""
    if isinstance(part, tuple):
        for each in part:
            yield from _used(each)
    elif is_dataclass(part) and not isinstance(part, Free) and not getattr(part, "is_idle", False):
        yield part
        for field in fields(part):
            yield from _used(getattr(part, field.name))


def _mechanism(part: object) -> str:
    """The mechanism that a part is of: each is a folder; empty where it is of none."""
    module = type(part).__module__
    return module.removeprefix(FOLDER).split(".")[0] if module.startswith(FOLDER) else ""

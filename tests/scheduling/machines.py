"""Small machines for topology-aware policies, and the words to run jobs on them."""

from __future__ import annotations

from collections.abc import Iterable

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, Submitted
from colane.core.policy import Policy
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, JobId, JobSpec
from colane.model.profile import ProfileKey
from colane.model.topologies import PRESETS
from colane.perf.beliefs import Beliefs
from colane.perf.neighbours import Beside, NeighbourBeliefs

GIB = 2**30


def machine(name: str = "n0", sockets: tuple[int, ...] = (0, 0, 1, 1), *, linked: bool = True) -> Node:
    """A Minsky, or a machine of these sockets."""
    gpus = tuple(
        Gpu(index=i, uuid=f"{name}-{i}", type="P100", memory_bytes=16 * GIB, socket=s) for i, s in enumerate(sockets)
    )
    topology = PRESETS["minsky"]() if linked and sockets == (0, 0, 1, 1) else None
    return Node(name=name, gpus=gpus, cores=tuple(range(16)), host_memory_bytes=64 * GIB, topology=topology)


def disturbing(*pairs: tuple[str, str, float]) -> NeighbourBeliefs:
    """Jobs of one GPU: the first is slowed so much beside the second."""
    key = {family: ProfileKey(family, 1, 1, "P100") for pair in pairs for family in pair[:2]}
    return NeighbourBeliefs({Beside(key[a], key[b]): slowdown for a, b, slowdown in pairs})


def start(policy: Policy, nodes: Iterable[Node], neighbours: NeighbourBeliefs | None = None) -> Core:
    core = Core(policy, ClusterState(Beliefs(neighbours=neighbours)), CoreConfig(opaque_after_s=0.0))
    core.step([NodeRegistered(node) for node in nodes], 0.0)
    return core


def submit(core: Core, number: int, at_s: float = 0.0, **needs: object) -> None:
    spec = JobSpec(**{"name": "j", "family": "f", "batch_size": 1, **needs})  # type: ignore[arg-type]
    assert core.step([Submitted(JobId(number), spec)], at_s).rejected is None


def end(core: Core, number: int, at_s: float) -> None:
    job = core.state.jobs[JobId(number)]
    core.step([Launched(job.id, job.attempt, 1, at_s)], at_s)
    outcome = core.step([Ended(job.id, job.attempt, "exited", Exit(0, None), at_s, at_s)], at_s)
    assert outcome.rejected is None


def places(core: Core) -> dict[int, str]:
    return {j.id: " ".join(map(str, j.placement.gpus)) for j in core.state.jobs.values() if j.placement}

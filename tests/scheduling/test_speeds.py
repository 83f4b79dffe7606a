"""On several GPU types a job gets the one on which it is believed to be fastest, whatever the policy."""

from __future__ import annotations

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import NodeRegistered, ProfileDeclared, Submitted
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId, JobSpec
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.choices import fastest_first
from colane.scheduling.registry import create
from tests.core.worlds import make_profile

GIB = 2**30
TYPES = ("K80", "P100", "V100")


def node(gpu_type: str) -> Node:
    gpus = (Gpu(index=0, uuid=gpu_type, type=gpu_type, memory_bytes=16 * GIB, sharing="mps"),)
    return Node(name=gpu_type.lower(), gpus=gpus, cores=tuple(range(8)), host_memory_bytes=64 * GIB)


def started(policy: str, **steps_s: float) -> Core:
    """A GPU of each type, and a family of these step times."""
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
    core.step([NodeRegistered(node(kind)) for kind in TYPES], 0.0)
    core.step([ProfileDeclared(make_profile("f", kind, 1e6, GIB, step_s)) for kind, step_s in steps_s.items()], 0.0)
    return core


def submit(core: Core, number: int, **needs: object) -> str:
    spec = JobSpec(**{"name": "j", "family": "f", "batch_size": 64, **needs})  # type: ignore[arg-type]
    assert core.step([Submitted(JobId(number), spec)], float(number)).rejected is None
    placement = core.state.jobs[JobId(number)].placement
    return placement.node if placement is not None else ""


@pytest.mark.parametrize(
    "policy", ["fifo", "best-fit", "drf", "srtf", "las", "max-min", "colocate", "pack", "coda", "topo-aware"]
)
def test_the_fastest_type_that_is_free_is_taken(policy: str) -> None:
    core = started(policy, K80=0.4, P100=0.2, V100=0.1)
    assert [submit(core, number) for number in (1, 2, 3)] == ["v100", "p100", "k80"]


@pytest.mark.parametrize("policy", ["fifo", "topo-aware"])
def test_a_job_that_names_a_type_gets_it(policy: str) -> None:
    assert submit(started(policy, K80=0.4, V100=0.1), 1, gpu_type="K80") == "k80"


def test_of_types_that_seem_alike_one_never_tried_goes_first() -> None:
    core = started("fifo", K80=0.1)
    draft_types = ClusterView(core.state, 0.0).gpu_types("default")
    assert draft_types == list(TYPES)
    assert submit(core, 1) == "p100"


def test_types_named_by_an_option_go_before_faster_ones() -> None:
    assert submit(started("fifo:gpu_types=P100/K80", K80=0.4, P100=0.2, V100=0.1), 1) == "p100"


def test_nothing_is_asked_where_there_is_one_type() -> None:
    draft = Draft(ClusterView(ClusterState(Beliefs()), 0.0))
    assert fastest_first(draft, JobSpec(name="j", family="f"), ["V100"]) == ["V100"]

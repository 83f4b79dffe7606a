"""Jobs of several GPUs share: where a gain was measured, of them or their like, in lanes of their own or in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.events import (
    CancelRequested,
    Ended,
    Launched,
    NodeRegistered,
    Outcome,
    ProfileDeclared,
    Progressed,
    Submitted,
)
from colane.model.hardware import GpuId
from colane.model.job import Exit, JobId, JobSpec
from colane.model.placement import Placement, Slot
from colane.model.plan import Plan, Resize, Start
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.scheduling.registry import create, preset
from tests.core.audit import audit
from tests.core.worlds import GIB, World, make_node

SIZES = (1, 2, 4)


def profile(family: str, gpus: int) -> Profile:
    held, more, step_s = (Value(part, ValueSource.MEASURED) for part in (float(GIB), float(2 * GIB), 0.1))
    key = ProfileKey(family, None, gpus, "V100")
    return Profile(key=key, persistent_bytes=held, ephemeral_bytes=more, step_s=step_s)


def pair(one: int, other: int, slowdown: float) -> SetMeasurement:
    keys = ProfileKey("a", None, one, "V100"), ProfileKey("b", None, other, "V100")
    return SetMeasurement(
        keys=keys, sharing="mps", step_alone_s=(0.1, 0.1), step_together_s=(0.1 * slowdown, 0.1 * slowdown),
        steps=(99, 99), delta=2 / slowdown, delta_general=2 / slowdown, at_s=0.0,
    )  # fmt: skip


def make_core(nodes: int = 1, memory_gib: int = 12, slowdown: float | None = 1.25, **options: object) -> Core:
    """Nodes of two GPUs; pairs of an a and a b were measured to be slowed alike by so much, at all sizes."""
    policy = preset("pack", **{"gangs": True, **options})
    core = Core(policy, ClusterState(Beliefs(PerfConfig(persistent_factor=1.0, total_factor=1.0))))
    for number in range(nodes):
        node = make_node(f"n{number}", 2)
        gpus = tuple(replace(gpu, memory_bytes=memory_gib * GIB) for gpu in node.gpus)
        core.step([NodeRegistered(replace(node, gpus=gpus))], 0.0)
    core.step([ProfileDeclared(profile(family, gpus)) for family in "abc" for gpus in SIZES], 0.0)
    for one in SIZES if slowdown else ():
        for other in SIZES:
            core.state.knowledge.learn_set(pair(one, other, slowdown or 1.0))
    return core


def submit(core: Core, family: str, gpus: int = 1, at_s: float = 1.0, **more: object) -> Outcome:
    needs: dict[str, Any] = {"multi_node": gpus > 2, **more}
    spec = JobSpec(name=family, family=family, gpus=gpus, **needs)
    return core.step([Submitted(JobId(1 + max(core.state.jobs, default=0)), spec)], at_s)


def lanes(core: Core) -> dict[str, dict[int, int]]:
    """By GPU, the lane of each job."""
    return {str(gpu): {b.job: b.lane for b in load.bookings} for gpu, load in core.state.gpus.items() if load.bookings}


def filled(kind: str, **options: object) -> Core:
    """A cluster with the first of a pairing."""
    core = make_core(2 if kind == "two nodes" else 1, **options)  # type: ignore[arg-type]
    if kind == "singles":
        submit(core, "a")
        submit(core, "a")
    else:
        submit(core, "a", 4 if kind == "two nodes" else 2)
    return core


PAIRINGS = {"gang": 2, "singles": 2, "two nodes": 4}
"""What is there, and the GPUs of the gang that comes."""


@pytest.mark.parametrize("kind", PAIRINGS)
def test_a_gang_enters_in_lanes_of_its_own_where_the_gain_was_measured(kind: str) -> None:
    core = filled(kind)
    there = [job for job in core.state.jobs if core.state.jobs[job].gpus_held]
    submit(core, "b", PAIRINGS[kind])
    new = JobId(max(core.state.jobs))
    assert all(mine == {min(mine): 0, new: 1} for mine in lanes(core).values())
    assert len(lanes(core)) == PAIRINGS[kind]
    assert core.why(new, 2.0).why is Why.NEW_LANE
    assert core.why(new, 2.0).jobs == tuple(there)


@pytest.mark.parametrize("kind", PAIRINGS)
@pytest.mark.parametrize("event", ["leaves", "dies", "stop"])
def test_what_one_of_them_does_touches_no_other(kind: str, event: str) -> None:
    core = filled(kind)
    submit(core, "b", PAIRINGS[kind])
    new, before = JobId(max(core.state.jobs)), lanes(core)
    nodes = core.state.jobs[new].placement.nodes  # type: ignore[union-attr]
    if event == "stop":
        core.step([CancelRequested(new, "ann")], 4.0)
    how = Exit(0, None) if event == "leaves" else Exit(None, 9)
    for place, node in enumerate(nodes):
        core.step(
            [Ended(new, 1, "exited" if event == "leaves" else "signalled", how, 1.0, 5.0, None, node)], 5.0 + place
        )
        audit(core.state)
    assert lanes(core) == {gpu: {job: lane for job, lane in on.items() if job != new} for gpu, on in before.items()}
    submit(core, "b", PAIRINGS[kind], at_s=9.0)
    assert [len(on) for on in lanes(core).values()] == [2] * PAIRINGS[kind], "its lanes are free for the next"


@pytest.mark.parametrize("kind", PAIRINGS)
@pytest.mark.parametrize(
    ("options", "over_nodes", "on_one"),  # on one node they might take turns, which gains nothing
    [
        ({"slowdown": None}, Why.NO_FREE_GANG, Why.NO_GAIN),
        ({"slowdown": 1.95}, Why.NO_GAIN, Why.NO_GAIN),
        ({"gangs": False}, Why.NO_FREE_GANG, Why.NO_FREE_GPU),
        ({"memory_gib": 5}, Why.NO_FREE_GANG, Why.NO_GAIN),
    ],
)
def test_no_gang_enters_where_no_gain_was_measured_or_where_there_is_no_room(
    kind: str, options: dict[str, object], over_nodes: Why, on_one: Why
) -> None:
    core = filled(kind, **options)
    before = lanes(core)
    submit(core, "b", PAIRINGS[kind])
    assert lanes(core) == before
    why = core.why(JobId(max(core.state.jobs)), 2.0).why
    assert why is (over_nodes if kind == "two nodes" else on_one)


@pytest.mark.parametrize("gpus", [1, 2])
def test_one_gpu_gained_does_not_pay_for_several_slowed(gpus: int) -> None:
    """Beside a gang of two at 0.6 of the speeds, one makes 0.6 and costs it 0.8: together they lose."""
    core = make_core(slowdown=1 / 0.6)
    submit(core, "a", 2)
    submit(core, "b", gpus)
    assert (2 in {job for on in lanes(core).values() for job in on}) is (gpus == 2)


@pytest.mark.parametrize(("gain_min", "turns"), [(0.0, True), (None, True), (0.1, False)])
def test_gangs_of_one_node_take_turns_on_all_of_their_gpus(gain_min: float | None, turns: bool) -> None:
    """P 1 and E 2 of 5 GiB: no room for a lane of its own. Turns gain nothing, so less than 0.1."""
    core = make_core(memory_gib=5, gain_min=gain_min)
    submit(core, "a", 2)
    submit(core, "b", 2)
    assert lanes(core) == {f"n0/{k}": {1: 0, 2: 0} if turns else {1: 0} for k in range(2)}


def test_no_turns_over_nodes() -> None:
    """Each node hands out its own: two gangs could each have one node's and wait for the other's for ever."""
    core = make_core(2, memory_gib=5, gain_min=0.0)
    submit(core, "a", 4)
    submit(core, "b", 4)
    submit(core, "b", 1)
    assert all(list(on) == [1] for on in lanes(core).values())
    gpus = [GpuId(f"n{node}", number) for node in range(2) for number in range(2)]
    for job, held in ((JobId(2), gpus), (JobId(3), gpus[:1])):
        placement = Placement(tuple(Slot(gpu, 0) for gpu in held))
        plan = Plan(core.state.version, (Start(job, placement, Reason(Why.NEW_LANE)),))
        assert {flaw.code for flaw in check(core.state, plan)} == {"turns-over-nodes"}


def test_a_resize_brings_no_turns_over_nodes() -> None:
    core = make_core(2, memory_gib=5)
    submit(core, "a", 2, sizes=(2, 3), preemptible=True, multi_node=True)
    submit(core, "b", 1)
    core.step([Launched(JobId(1), 1, 77, 2.0)], 2.0)
    for at_s in (3.0, 400.0):  # running, and past the time in which what has just come is not moved
        core.step([Progressed(JobId(1), 1, Progress(at_s=at_s, steps=int(at_s), first_step_s=2.5))], at_s)

    placement = core.state.jobs[JobId(1)].placement
    assert placement is not None
    wider = replace(placement, slots=(*placement.slots, Slot(GpuId("n1", 0), 0)))
    plan = Plan(core.state.version, (Resize(JobId(1), wider, Reason(Why.NEW_LANE)),))
    assert "turns-over-nodes" in {flaw.code for flaw in check(core.state, plan)}


@pytest.mark.parametrize("seed", range(12))
def test_plans_are_legal_in_random_worlds(seed: int) -> None:
    world = World(create("pack:gangs=yes,gain_min=" + ("none", "0", "0.1")[seed % 3]), seed)
    for _ in range(80):
        outcome = world.step(world.random_event(), world.random_event())
        assert outcome.rejected is None, outcome.rejected
        audit(world.core.state)

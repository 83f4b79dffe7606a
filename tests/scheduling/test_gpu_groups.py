"""GPUs by what sharing them is worth: every GPU is in the group it would be put in anew."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from colane.core.cluster.draft import Draft
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.model.job import Job, JobSpec
from colane.model.profile import ProfileKey, SetMeasurement
from colane.perf.estimates import profile_key
from colane.perf.rate import Situation
from colane.scheduling.mechanisms.sharing.groups import GpuGroup, GpuGroupIndex, Site
from colane.scheduling.mechanisms.sharing.sharing_values import SharingValues
from colane.scheduling.registry import create
from tests.core.worlds import FAMILIES, TYPES, World
from tests.examples import examples

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def stands(state: ClusterState) -> dict[str, tuple[object, ...]]:
    """What a group is to say of every GPU that jobs of one GPU use and that stays as it is."""
    found: dict[str, tuple[object, ...]] = {}
    for gpu, load in state.gpus.items():
        leaves = any(state.jobs[booking.job].is_leaving for booking in load.bookings)
        alone = len(load.bookings) == 1 and state.jobs[load.jobs[0]].gpu_count > 1
        if load.bookings and not load.returning and load.gpu.healthy and not leaves and not alone:
            asked = [state.jobs[booking.job].spec.gpu_type for booking in load.bookings]
            keys = tuple(zip([booking.key for booking in load.bookings], asked, strict=True))
            sharing_domains = {booking.sharing_domain for booking in load.bookings}
            sharing_domain = load.bookings[0].sharing_domain if load.is_joinable and len(sharing_domains) == 1 else None
            found[str(gpu)] = keys, load.left_bytes, sharing_domain
    return found


def kept(index: GpuGroupIndex, state: ClusterState) -> dict[str, tuple[object, ...]]:
    """The same by the index, each GPU in one group."""
    found: dict[str, tuple[object, ...]] = {}
    for kind in {state.kind_of(load) for load in state.gpus.values()}:
        for gpu_group in index.present(kind):
            for gpu in gpu_group.gpus:
                who = [index.co_runners.known[number] for number in gpu_group.members]
                keys = tuple((one.key, one.asked) for one in who)
                assert str(gpu) not in found
                found[str(gpu)] = keys, gpu_group.left_bytes, gpu_group.sharing_domain
    return found


@examples(25)
@given(seed=SEEDS)
def test_every_gpu_is_in_its_group_after_every_event(seed: int) -> None:
    world = World(create("colane:quantum_s=1,move_s=0"), seed)
    state, seen = world.core.state, 0
    for _ in range(40):
        world.step(world.random_event())
        index = state.derived(GpuGroupIndex)
        index.look(Draft(ClusterView(state, world.now_s)))
        assert kept(index, state) == stands(state)
        seen += len(stands(state))
    assert seen


def total(state: ClusterState, site: Site, specs: list[JobSpec]) -> float:
    """Sum of the speeds of such jobs on a GPU, worked out anew."""
    found = 0.0
    for place, spec in enumerate(specs):
        beside = tuple(profile_key(other, site[0]) for at, other in enumerate(specs) if at != place)
        found += state.beliefs.rate(spec, Situation(site[0], 1, None, site[1], beside)).ratio
    return found


def measured(random: Random) -> SetMeasurement:
    """A pair that ran together, slower than alone."""
    kind = random.choice(TYPES)
    keys = tuple(sorted((ProfileKey(family, 64, 1, kind) for family in random.choices(FAMILIES, k=2)), key=str))
    together_s = (random.uniform(0.1, 0.3), random.uniform(0.1, 0.3))
    together_s = together_s if keys[0] != keys[1] else (together_s[0], together_s[0])
    return SetMeasurement(
        keys=keys, sharing="mps", step_alone_s=(0.1, 0.1), step_together_s=together_s, steps=(20, 20),
        delta=1.0, delta_general=1.0, at_s=0.0,
    )  # fmt: skip


@examples(15)
@given(seed=SEEDS)
def test_what_was_learnt_counts_at_once_for_all_jobs_it_concerns(seed: int) -> None:
    world, random, seen = World(create("colane:quantum_s=1,move_s=0"), seed), Random(seed), 0
    state = world.core.state
    for _ in range(30):
        world.step(world.random_event())
        if random.random() < 0.5:
            state.knowledge.learn_set(measured(random))
        view = ClusterView(state, world.now_s)
        for job in [job for job in state.jobs.values() if job.is_waiting and job.effective.gpus == 1]:
            for gpu_type in view.gpu_types(job.spec.pool, job.spec.gpu_type):
                values = SharingValues(Draft(view), job.spec.pool, 1)
                number = values.number(job, job.effective, gpu_type)
                if number is None:
                    continue
                for group in values.gpu_groups.present((job.spec.pool, gpu_type)):
                    rise = values.rise_at(number, group)
                    there = [values.gpu_groups.co_runners.specs[member] for member in group.members]
                    anew = total(state, group.site, [*there, job.effective]) - total(state, group.site, there)
                    assert rise == -inf or rise == pytest.approx(anew)
                    seen += rise > -inf
    event(f"sharing was worth something {min(seen, 3)} times or more")


@examples(15)
@given(seed=SEEDS)
def test_the_nearest_co_runners_are_the_best_of_all(seed: int) -> None:
    world, seen = World(create("colane:quantum_s=1,move_s=0"), seed), 0
    state = world.core.state
    for _ in range(30):
        world.step(world.random_event())
        view = ClusterView(state, world.now_s)
        for job in [job for job in state.jobs.values() if job.is_waiting and job.effective.gpus == 1]:
            for gpu_type in view.gpu_types(job.spec.pool):
                draft = Draft(view)
                values = SharingValues(draft, job.spec.pool, 1)
                number = values.number(job, job.effective, gpu_type)
                if number is not None:
                    groups = values.gpu_groups.present((job.spec.pool, gpu_type))
                    rises = [
                        values.rise_at(number, group) for group in groups if may_join(draft, values, job, number, group)
                    ]
                    best = values.nearest(job, job.effective, number, gpu_type)
                    assert (-inf if best is None else best.rise) == max(rises, default=-inf)
                    seen += best is not None
    event(f"there were co-runners {min(seen, 3)} times or more")


def may_join(draft: Draft, values: SharingValues, job: Job, number: int, group: GpuGroup) -> bool:
    """Whether a job could join the only job on one of these GPUs, and there is room."""
    if len(group.members) != 1 or values.rise_at(number, group) == -inf:
        return False
    loads = [draft.load(gpu) for gpu in group.joinable]
    rooms = [draft.has_room_beside(draft.view.nodes[load.id.node], job.effective) for load in loads]
    declines = [values.is_declined(load, group.site, group.members, number, job) for load in loads]
    return any(room and not declined for room, declined in zip(rooms, declines, strict=True))

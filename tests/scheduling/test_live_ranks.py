"""What is kept of live jobs from plan to plan, held against what is worked out of each of them anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from colane.core import ClusterState, Core
from colane.core import core as core_module
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Submitted
from colane.core.policy import Planner
from colane.model.job import Exit, Job, JobId
from colane.model.plan import Plan
from colane.perf.beliefs import Beliefs
from colane.scheduling.engine.contracts import BoundOrder
from colane.scheduling.engine.times import Course, Expected
from colane.scheduling.mechanisms.price.chooser import FIRST_OF
from colane.scheduling.orders.live_ranks import EACH_MAX, SAMPLE_MAX, LiveRanks
from colane.scheduling.orders.price import ByShadowPrice, shadow_price
from colane.scheduling.registry import create
from tests.core.worlds import World, make_node

from .life import known, step_time

POLICY = "colane:quantum_s=1"


def counted(jobs: Iterable[Job]) -> list[Job]:
    return [job for job in jobs if job.spec.gpus > 0 and (job.placement is not None or job.is_waiting)]


def prices_asked(queue: BoundOrder, jobs: list[Job], gpus: int) -> dict[JobId, float]:
    """Of each job, with those counted one by one that come no earlier."""
    ranks = {job.id: queue.place(job) for job in jobs}
    behind = {job.id: sum(rank >= ranks[job.id] for rank in ranks.values()) - 1 for job in jobs}
    return {job.id: shadow_price(job.gpu_count, behind[job.id], gpus) for job in jobs}


class Checked:
    """Looks at all prices, and at what goes first, before each plan."""

    def __init__(self) -> None:
        self.compared = 0
        self.classes = 0

    def __call__(self, planner: Planner, view: ClusterView) -> Plan:
        for pool in view.pools:
            self.check(Draft(view), pool)
        return planner.plan(view)

    def check(self, draft: Draft, pool: str) -> None:
        queue, view = ByShadowPrice(makespan_weight=0.0).bind(draft, pool), draft.view
        jobs = counted([job for job in view.jobs.values() if job.spec.pool == pool])
        asked = {job.effective.gpu_type for job in jobs}
        gpus = sum(
            gpu.healthy and known.node.takes_jobs and (None in asked or gpu.type in asked)
            for known in view.nodes.values()
            if known.node.pool == pool
            for gpu in known.node.gpus
        )
        for number, price in prices_asked(queue, jobs, gpus).items():
            assert queue.weigh(view.job(number)) == price
            self.compared += 1
        if queue.firsts is None:  # several users
            return
        firsts, classes = queue.firsts(FIRST_OF), view.queue(pool).classes
        for key, line in classes.items():
            if not FIRST_OF.serves(key[1]):
                assert key in firsts.others
                continue
            in_order = sorted([(queue.place(view.job(number)), number) for number in line])
            assert firsts.by_class[key] == FIRST_OF.of(view.jobs, iter(in_order), key)
            self.classes += 1
        assert firsts.in_order == sorted([head for heads in firsts.by_class.values() for head in heads], key=_entry)
        assert set(firsts.by_class) | set(firsts.others) == set(classes)


def _entry(head: tuple[tuple[float, ...], JobId, object]) -> tuple[tuple[float, ...], JobId]:
    return head[:2]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_kept_of_live_jobs_is_as_if_each_was_looked_at(seed: int) -> None:
    world, checked = World(create(POLICY), seed), Checked()
    world.core.ask = checked
    for _ in range(80):
        world.step(world.random_event())
    assert checked.compared > 100
    assert checked.classes > 0


def full_of_jobs(gpus: int) -> Core:
    """So many jobs run, each of another length, and none waits."""
    core = Core(create(POLICY), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node(f"n{number}", 8)) for number in range(gpus // 8)], 0.0)
    core.step([ProfileDeclared(step_time(1.0))], 0.0)
    core.step([Submitted(JobId(number), known(0, 100 + number).spec) for number in range(gpus)], 0.0, whole=True)
    core.step([Launched(job.id, job.attempt, 1, 0.0) for job in core.state.jobs.values()], 0.0)
    return core


def test_of_very_many_running_jobs_a_part_stands_for_all() -> None:
    gpus = EACH_MAX + 176
    core = full_of_jobs(gpus)
    draft, jobs = Draft(ClusterView(core.state, 10.0)), list(core.state.jobs.values())
    queue = ByShadowPrice(makespan_weight=0.0).bind(draft, "default")
    assert all(job.placement is not None for job in jobs)
    for job in jobs[::50]:
        behind = gpus - 1 - int(job.id)
        assert queue.weigh(job) == pytest.approx(shadow_price(1, behind, gpus), abs=0.05)


@pytest.mark.skipif(not core_module.__file__.endswith(".py"), reason="methods of compiled classes cannot be replaced")
def test_a_lesson_has_no_more_of_very_many_running_jobs_looked_at_than_are_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core, asked = full_of_jobs(EACH_MAX + 176), list[JobId]()
    found = Expected.course

    def course(expected: Expected, job: Job) -> Course | None:
        asked.append(job.id)
        return found(expected, job)

    monkeypatch.setattr(Expected, "course", course)
    for step_s in (2.0, 3.0):
        asked.clear()
        core.step([ProfileDeclared(step_time(step_s))], 10.0 * step_s)
        draft = Draft(ClusterView(core.state, 10.0 * step_s))
        queue = ByShadowPrice(makespan_weight=0.0).bind(draft, "default")
        queue.weigh(next(iter(core.state.jobs.values())))
        assert 0 < len(asked) == len(set(asked)) < 1.5 * SAMPLE_MAX


@pytest.mark.skipif(not core_module.__file__.endswith(".py"), reason="methods of compiled classes cannot be replaced")
def test_very_many_running_jobs_are_ranked_once_a_second_or_when_one_of_those_that_are_ranked_went(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core, looked = full_of_jobs(EACH_MAX + 176), list[float]()
    found = LiveRanks._look

    def look(ranks: LiveRanks, view: ClusterView, *others: Any) -> bool:
        looked.append(view.now_s)
        return found(ranks, view, *others)

    monkeypatch.setattr(LiveRanks, "_look", look)

    def weigh(now_s: float) -> None:
        queue = ByShadowPrice(makespan_weight=0.0).bind(Draft(ClusterView(core.state, now_s)), "default")
        queue.weigh(next(iter(core.state.jobs.values())))

    for now_s in (10.0, 10.2, 10.9, 11.0, 11.5):
        weigh(now_s)
    assert looked == [10.0, 11.0]
    for number in range(2 * (EACH_MAX // SAMPLE_MAX)):  # one in four or eight is ranked
        core.step(
            [Ended(JobId(number), core.state.jobs[JobId(number)].attempt, "exited", Exit(0, None), 11.5, 11.6)], 11.6
        )
    weigh(11.7)
    assert looked[2:]

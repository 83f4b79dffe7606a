"""Under `colane` nobody is stopped for a job that has a place before it could be through, if all who wait have one."""

from __future__ import annotations

from colane.policies.registry import create
from tests.core.worlds import make_node

from .life import Coming, Life, known, step_time

EAGER = "colane:quantum_s=0,move_s=0"
STEPS = [step_time(s, kind, gpus=gpus) for s, kind in ((1.0, "V100"), (4.0, "K80")) for gpus in (1, 2)]
BUSY = [known(0, 100), known(0, 300)]
"""Two jobs on two GPUs: one falls free after 100 s."""


def lives(*coming: Coming, busy: list[Coming] = BUSY, policy: str = EAGER) -> Life:
    return Life(create(policy), [make_node("n0", 2)], [*busy, *coming], STEPS).run()


def test_it_waits_for_a_gpu_that_falls_free_before_it_could_be_through() -> None:
    life = lives(known(20, 90))
    assert life.spans == {1: [(0, 100)], 2: [(0, 300)], 3: [(100, 190)]}


def test_it_does_not_wait_where_that_is_switched_off() -> None:
    life = lives(known(20, 90), policy=f"{EAGER},awaits=no")
    assert life.spans[3] == [(20, 110)]
    assert len(life.spans[2]) == 2


def test_a_job_that_would_be_through_before_takes_the_place() -> None:
    life = lives(known(20, 70))
    assert life.spans[3] == [(20, 90)]


def test_where_more_wait_than_gpus_fall_free_one_takes_the_place() -> None:
    life = lives(known(20, 90), known(20, 95))
    assert life.spans[3] == [(20, 110)]


def test_a_higher_priority_does_not_wait() -> None:
    life = lives(known(20, 90, priority=1))
    assert life.spans[3][0][0] == 20


def test_a_gpu_on_which_it_is_slower_does_not_count() -> None:
    nodes = [make_node("n0", 1), make_node("n1", 1, "K80")]
    jobs = [known(0, 300, gpu_type="V100"), known(0, 50, gpu_type="K80"), known(20, 190)]
    life = Life(create(EAGER), nodes, jobs, STEPS, lambda _spec, kind: 0.25 if kind == "K80" else 1.0).run()
    assert life.spans[2] == [(0, 200)]
    assert life.spans[3] == [(20, 210)]


def test_jobs_of_several_gpus_take_places_as_before() -> None:
    nodes, busy = [make_node("n0", 2), make_node("n1", 2)], [known(0, 100, gpus=2), known(0, 300, gpus=2)]
    life = Life(create(EAGER), nodes, [*busy, known(20, 90, gpus=2)], STEPS).run()
    assert life.spans[3] == [(20, 110)]

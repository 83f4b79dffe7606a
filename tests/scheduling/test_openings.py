"""Under `colane` no job is stopped for a job that has a place before it could be through, if all who wait have one."""

from __future__ import annotations

import pytest

from colane.scheduling.registry import create
from tests.core.worlds import make_node

from .life import Coming, Life, known, step_time
from .machines import machine

EAGER = "colane:quantum_s=0,move_s=0"
STEPS = [step_time(s, kind, gpus=gpus) for s, kind in ((1.0, "V100"), (4.0, "K80")) for gpus in (1, 2)]
BUSY = [known(0, 100), known(0, 300, gpus=2)]
"""Two jobs on three GPUs: one falls free after 100 s. Where a job has several GPUs this holds for jobs of one, too."""


def lives(*coming: Coming, busy: list[Coming] = BUSY, policy: str = EAGER) -> Life:
    return Life(create(policy), [make_node("n0", 3)], [*busy, *coming], STEPS).run()


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
    nodes = [make_node("n0", 2), make_node("n1", 1, "K80")]
    jobs = [known(0, 300, gpus=2, gpu_type="V100"), known(0, 50, gpu_type="K80"), known(20, 190)]
    life = Life(create(EAGER), nodes, jobs, STEPS, lambda _spec, kind: 0.25 if kind == "K80" else 1.0).run()
    assert life.spans[2] == [(0, 200)]
    assert life.spans[3] == [(20, 210)]


def gangs(*busy: Coming, apart: str = "", policy: str = EAGER) -> list[list[tuple[float, float]]]:
    """When jobs run on two nodes of two GPUs, on two sockets of one; the last is a gang of 90 s after 20 s."""
    nodes, coming = [machine(n, (0, int(n == apart))) for n in ("n0", "n1")], [*busy, known(20, 90, gpus=2)]
    spans = Life(create(policy), nodes, coming, [step_time(1.0, "P100", gpus=gpus) for gpus in (1, 2)]).run().spans
    return [spans[number] for number in range(1, len(coming) + 1)]


SHORT, LONG = known(0, 100, gpus=2), known(0, 300, gpus=2)


def test_a_gang_waits_for_gpus_that_fall_free_at_once() -> None:
    assert gangs(SHORT, LONG) == [[(0, 100)], [(0, 300)], [(100, 190)]]


@pytest.mark.parametrize(("awaits", "span"), [("yes", (100, 190)), ("no", (20, 110))])
def test_so_it_does_by_the_shadow_price(awaits: str, span: tuple[float, float]) -> None:
    assert gangs(SHORT, LONG, policy=f"colane:quantum_s=0,move_s=0,awaits={awaits}")[-1] == [span]


def test_gpus_that_fall_free_one_by_one_are_no_place_for_a_gang() -> None:
    assert gangs(known(0, 100), known(0, 105), LONG)[-1] == [(20, 110)]


@pytest.mark.parametrize(("apart", "span"), [("n0", (20, 110)), ("n1", (100, 190))])
def test_gpus_that_lie_farther_apart_are_no_place_for_a_gang(apart: str, span: tuple[float, float]) -> None:
    """Those of `n0` fall free after 100 s, those of `n1` after 300."""
    assert gangs(SHORT, LONG, apart=apart)[-1] == [span]

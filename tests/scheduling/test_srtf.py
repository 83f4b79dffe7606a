"""Shortest remaining time first: which jobs it stops, which it spares, and why."""

from __future__ import annotations

from colane.core import Core
from colane.model.job import JobId, JobState
from colane.model.reason import Why
from colane.scheduling.registry import preset
from tests.core.worlds import make_node

from .life import Life, known, step_time

EAGER = preset("srtf", quantum_s=0.0)
ONE = [make_node("n0", 1)]
STEP = [step_time(1.0), step_time(1.0, gpus=2)]


def test_a_shorter_job_takes_the_place_of_a_longer_one_which_goes_on_later() -> None:
    life = Life(EAGER, ONE, [known(0, 100), known(20, 10)], STEP).run()
    assert life.spans == {1: [(0, 20), (30, 110)], 2: [(20, 30)]}


def test_the_textbook_schedule() -> None:
    """Silberschatz, Operating System Concepts, 5.3.2: bursts 8, 4, 9, 5 at 0, 1, 2, 3."""
    bursts = [known(at, run) for at, run in enumerate((8, 4, 9, 5))]
    life = Life(preset("srtf", quantum_s=0.0, displaces_min=1.0), ONE, bursts, STEP).run()
    assert life.spans == {1: [(0, 1), (10, 17)], 2: [(1, 5)], 3: [(17, 26)], 4: [(5, 10)]}


def test_on_a_slow_type_a_job_is_not_taken_to_be_longer_than_it_is() -> None:
    """A step takes 1 s on a V100, 4 s on a K80; both jobs run on the K80 and each is 5 % from the other."""
    nodes = [make_node("n0", 1, "K80"), make_node("n1", 1)]
    steps = [step_time(1.0), step_time(4.0, "K80")]
    jobs = [known(0, 1000, gpu_type="V100"), known(0, 100), known(1, 95)]
    life = Life(EAGER, nodes, jobs, steps, lambda _spec, kind: 0.25 if kind == "K80" else 1.0).run()
    assert len(life.spans[2]) == 1


def test_srsf_counts_gpus() -> None:
    """Tiresias, section 2.3: a gang goes behind a single job three times as long."""
    jobs = [known(0, 5, gpus=4), known(1, 20, gpus=4), known(2, 60)]
    steps = [*STEP, step_time(1.0, gpus=4)]
    first = {
        policy: Life(preset(policy, quantum_s=0.0), [make_node("n0", 4)], jobs, steps).run().spans[3][0]
        for policy in ("srtf", "srsf")
    }
    assert first == {"srtf": (25, 85), "srsf": (5, 65)}


def test_a_small_gain_is_not_worth_a_stop() -> None:
    life = Life(EAGER, ONE, [known(0, 100), known(20, 70)], STEP).run()
    assert life.spans == {1: [(0, 100)], 2: [(100, 170)]}


def test_a_job_is_left_alone_for_its_quantum_and_the_policy_wakes_when_it_is_over() -> None:
    life = Life(preset("srtf", quantum_s=60.0), ONE, [known(0, 500), known(20, 10)], STEP).run()
    assert life.spans == {1: [(0, 60), (70, 510)], 2: [(60, 70)]}


def test_a_job_that_is_not_preemptible_is_left_alone() -> None:
    life = Life(EAGER, ONE, [known(0, 100, preemptible=False), known(20, 10)], STEP).run()
    assert life.spans == {1: [(0, 100)], 2: [(100, 110)]}


def test_the_longest_are_stopped_and_no_more_than_needed() -> None:
    jobs = [known(0, 300), known(0, 500), known(0, 400), known(10, 20, gpus=2)]
    life = Life(EAGER, [make_node("n0", 3)], jobs, STEP).run()
    assert life.spans[1] == [(0, 300)]
    assert life.spans[4] == [(10, 30)]
    assert [len(life.spans[k]) for k in (2, 3)] == [2, 2]


def test_a_gang_is_not_stopped_where_a_single_job_does() -> None:
    nodes = [make_node("n0", 2), make_node("n1", 1)]
    life = Life(EAGER, nodes, [known(0, 500, gpus=2), known(0, 500), known(10, 20)], STEP).run()
    assert life.spans[1] == [(0, 500)]
    assert life.nodes_used[3] == ["n1"]


def test_jobs_of_unknown_length_neither_stop_nor_spare_each_other() -> None:
    jobs = [known(0, 50, steps_total=None), known(5, 50, steps_total=None), known(10, 5)]
    life = Life(EAGER, ONE, jobs, STEP).run()
    assert life.spans == {1: [(0, 10), (15, 55)], 2: [(55, 105)], 3: [(10, 15)]}


def test_a_higher_priority_stops_even_a_shorter_job() -> None:
    life = Life(EAGER, ONE, [known(0, 10), known(5, 100, priority=1)], STEP).run()
    assert life.spans == {1: [(0, 5), (105, 110)], 2: [(5, 105)]}


def test_stop_and_wait_name_each_other() -> None:
    seen: list[tuple[Why, tuple[int, ...]]] = []

    def look(core: Core, now_s: float) -> None:
        if now_s == 20 and core.state.jobs[JobId(1)].state is JobState.STOPPING:
            seen.extend((reason.why, reason.jobs) for reason in (core.why(JobId(k), now_s) for k in (1, 2)))

    Life(EAGER, ONE, [known(0, 100), known(20, 10)], STEP, on_step=look).run()
    assert seen == [(Why.PREEMPTED, (2,)), (Why.PREEMPTING, (1,))]

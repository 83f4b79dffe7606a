"""EASY backfill by hand, and its promise: the first in line never starts later than its reservation."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from colane.core import Core
from colane.core.events import Submitted
from colane.model.job import JobId, JobSpec, JobState
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.scheduling.registry import preset
from tests.core.worlds import GIB, make_node
from tests.examples import examples

from .life import Coming, Life, job, step_time

FOUR = [make_node("n0", 4)]


def limited(at_s: float, run_s: float, limit_s: float | None = None, **needs: object) -> Coming:
    """A job whose owner declares a time limit; by default the true one."""
    return job(at_s, run_s, time_limit_s=run_s if limit_s is None else limit_s, **needs)


def test_a_short_job_passes_and_a_long_one_does_not() -> None:
    """Job 2 needs all four GPUs, which are free at 10; job 3 would end at 12, job 4 at 9."""
    jobs = [limited(0, 10, gpus=2), limited(1, 5, gpus=4), limited(2, 10), limited(3, 6)]
    life = Life(preset("easy-backfill"), FOUR, jobs).run()
    assert life.spans == {1: [(0, 10)], 2: [(10, 15)], 3: [(15, 25)], 4: [(3, 9)]}


def test_ending_exactly_at_the_reservation_is_in_time() -> None:
    jobs = [limited(0, 10, gpus=2), limited(1, 5, gpus=4), limited(2, 8), limited(2, 8.5)]
    life = Life(preset("easy-backfill"), FOUR, jobs).run()
    assert life.starts(2) == [10]
    assert life.starts(3) == [2]
    assert life.starts(4) == [15]


def test_a_long_job_may_use_what_the_first_in_line_leaves() -> None:
    """At 10 all four GPUs are free and job 2 takes three, so one long job may stay, but not two."""
    jobs = [limited(0, 10, gpus=2), limited(1, 5, gpus=3), limited(2, 100), limited(2, 100)]
    life = Life(preset("easy-backfill"), FOUR, jobs).run()
    assert life.starts(2) == [10]
    assert life.starts(3) == [2]
    assert life.starts(4) == [15]


def test_other_nodes_are_free_for_all() -> None:
    nodes = [make_node("n0", 4), make_node("n1", 1)]
    life = Life(preset("easy-backfill"), nodes, [limited(0, 10, gpus=2), limited(1, 5, gpus=4), limited(2, 100)]).run()
    assert life.starts(3) == [2]
    assert life.nodes_used[3] == ["n1"]
    assert life.starts(2) == [10]


def test_only_the_first_in_line_is_protected() -> None:
    """EASY, unlike conservative backfill: job 3 is delayed by job 4."""
    jobs = [limited(0, 10, gpus=3), limited(1, 10, gpus=2), limited(2, 5, gpus=4), limited(3, 50)]
    life = Life(preset("easy-backfill"), FOUR, jobs).run()
    assert life.starts(2) == [10]
    assert life.starts(4) == [3]
    assert life.starts(3) == [53]


def test_a_job_that_ends_early_lets_the_first_in_line_start_early() -> None:
    life = Life(preset("easy-backfill"), FOUR, [limited(0, 4, 10, gpus=2), limited(1, 5, gpus=4), limited(2, 1)]).run()
    assert life.starts(2) == [4]


def test_an_overrun_moves_the_reservation_and_lets_no_job_pass() -> None:
    """Without limits step times serve as bounds; job 1 takes 20 s instead of the 10 predicted."""
    jobs = [job(0, 20, gpus=2, steps_total=10), job(1, 5, gpus=4, steps_total=5), job(12, 3, steps_total=3)]
    profiles = [step_time(1.0, gpus=gpus) for gpus in (1, 2, 4)]
    life = Life(preset("easy-backfill"), FOUR, jobs, profiles).run()
    assert life.spans == {1: [(0, 20)], 2: [(20, 25)], 3: [(25, 28)]}


def test_without_bounds_it_is_fifo() -> None:
    life = Life(preset("easy-backfill"), FOUR, [job(0, 10, gpus=2), job(1, 5, gpus=4), job(2, 1)]).run()
    assert life.order == [1, 2, 3]


def test_cores_and_host_memory_are_reserved_as_well() -> None:
    """Job 2 waits for cores, not for GPUs: job 3 would hold two of them too long, job 4 none."""
    jobs = [
        limited(0, 10, cores=10),
        limited(1, 5, cores=14),
        limited(2, 100, cores=4),
        limited(2, 100),
        limited(3, 100, cores=2),
        limited(3, 100, host_memory_bytes=GIB),
    ]
    life = Life(preset("easy-backfill"), [make_node("n0", 8, cores=16)], jobs).run()
    assert life.starts(2) == [10]
    assert life.starts(3) == [15], "only two cores are left beside job 2"
    assert [life.starts(number) for number in (4, 5, 6)] == [[2], [3], [3]]


def test_a_job_no_node_can_hold_is_passed() -> None:
    core_jobs = [limited(0, 10, gpus=2), limited(1, 5, gpus=2), limited(2, 5, gpus=4), limited(3, 5)]
    life = Life(preset("easy-backfill"), FOUR, core_jobs)
    life.core.step([Submitted(JobId(99), JobSpec(name="huge", family="f", gpus=5, priority=9))], 0.0)
    for coming, number in zip(core_jobs, range(100, 104), strict=True):
        life.core.step([Submitted(JobId(number), coming.spec)], coming.at_s)
    placed = [j.id for j in life.core.state.jobs.values() if j.placement is not None]
    assert placed == [100, 101]
    assert life.core.why(JobId(99), 4.0).why is Why.NO_FREE_GPU
    assert life.core.why(JobId(102), 4.0).why is Why.RESERVED


def test_everyone_is_told_why() -> None:
    life = Life(preset("easy-backfill"), FOUR, [])
    specs = [limited(0, 10, gpus=2), limited(0, 5, gpus=4), limited(0, 20), limited(0, 4), limited(0, 4, gpus=3)]
    life.core.step([Submitted(JobId(k), coming.spec) for k, coming in enumerate(specs, 1)], 0.0)
    assert sentence_of(life.core.state.jobs[JobId(4)].story[-1].reason) == "n0/2 is free, and it does not delay job 2"
    assert sentence_of(life.core.why(JobId(2), 4.0)) == (
        "Resources: first in line; n0, held by jobs 1, 4, is reserved for it in at most 6 s"
    )
    assert life.core.why(JobId(3), 4.0).why is Why.WOULD_DELAY
    assert life.core.why(JobId(5), 4.0).why is Why.NO_FREE_GPU


def test_the_search_ends_where_it_is_told_to() -> None:
    jobs = [limited(0, 10, gpus=2), limited(1, 5, gpus=4), limited(2, 60), limited(2, 50), limited(2, 3)]
    assert Life(preset("easy-backfill", depth_max=2), FOUR, jobs).run().starts(5) == [15]
    assert Life(preset("easy-backfill", depth_max=3), FOUR, jobs).run().starts(5) == [2]


COMINGS = st.builds(
    limited,
    st.integers(0, 40).map(float),
    st.integers(1, 30).map(float),
    gpus=st.sampled_from((1, 1, 1, 2, 3, 4)),
    cores=st.sampled_from((0, 0, 1, 5)),
    host_memory_bytes=st.sampled_from((0, 0, 20 * GIB)),
    gpu_type=st.sampled_from((None, None, "V100", "A100")),
)


@examples(150)
@given(comings=st.lists(COMINGS, min_size=3, max_size=25))
def test_the_first_in_line_never_starts_later_than_reserved_if_limits_are_exact(comings: list[Coming]) -> None:
    comings.sort(key=lambda coming: coming.at_s)
    comings = [replace(coming, spec=replace(coming.spec, retries=0)) for coming in comings]
    nodes = [make_node("n0", 4), make_node("n1", 2, "A100"), make_node("n2", 4, "A100", cores=8)]
    promised: dict[int, float] = {}

    def look(core: Core, now_s: float) -> None:
        for waiting in core.state.jobs.values():
            reason = core.why(waiting.id, now_s) if waiting.state is JobState.QUEUED else None
            if reason is not None and reason.why is Why.RESERVED:
                at_s = now_s + float(reason.facts["in_s"])
                promised[waiting.id] = min(at_s, promised.get(waiting.id, at_s))

    life = Life(preset("easy-backfill"), nodes, comings, on_step=look).run()
    for number, at_s in promised.items():
        assert life.starts(number)[0] <= at_s + 1e-9

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.lab.report.metrics import (
    batch_differences,
    compare,
    cover,
    covered_s,
    gpu_active_ratio,
    makespan_s,
    measure,
    percent_change,
    run_spans_alone,
    shared_ratios,
    step_times,
    summarise,
)
from colane.lab.report.records import Device, RunGroup, RunRecord, without
from colane.model.job import JobState

from .batches import DEVICES, colocate, fifo, key, record


def test_summary_is_numpys_linear_percentiles() -> None:
    found = summarise([1.0, 2.0, 3.0, 4.0])
    assert found is not None
    # p50 halfway between 2 and 3; p95 at rank 2.85, p99 at rank 2.97
    assert found == pytest.approx((4, 2.5, 2.5, 3.85, 3.97))
    assert summarise([]) is None


def test_fifo_by_hand() -> None:
    found = measure(fifo())
    assert found.makespan_s == 20.0
    assert found.run_span_s is not None
    assert found.run_span_s.mean == pytest.approx(40 / 3)
    assert found.queue_s is not None
    assert found.queue_s.mean == pytest.approx(10 / 3)
    assert found.jct_s is not None
    assert found.jct_s.mean == pytest.approx(50 / 3)
    assert found.gpu_active_ratio == 1.0
    assert found.jobs_per_hour == pytest.approx(3 / 20 * 3600)
    assert found.steps_per_s == pytest.approx(30 / 20)
    assert (found.jobs, found.finished, found.failures, found.restarts, found.devices) == (3, 3, 0, 0, 2)


def test_colocate_by_hand_against_fifo() -> None:
    groups = [fifo(), colocate()]
    alone_s = run_spans_alone(groups)
    # work of family a alone: 10 and 10 under fifo; of b: 20 under fifo, 16 under colocate
    assert alone_s == {(key("a", None), 10): 10.0, (key("b", None), 10): 18.0}
    base, other = (measure(group, alone_s) for group in groups)
    assert other.makespan_s == 16.0
    assert other.gpu_active_ratio == pytest.approx((12 + 16) / 32)
    assert other.slowdown_exec is not None
    assert other.slowdown_exec.mean == pytest.approx((1.2 + 1.2 + 16 / 18) / 3)
    assert base.slowdown_total is not None
    assert base.slowdown_total.mean == pytest.approx((1.0 + 20 / 18 + 2.0) / 3)
    spread = [1.0, 20 / 18, 2.0]
    mean = sum(spread) / 3
    assert base.slowdown_variance == pytest.approx(sum((x - mean) ** 2 for x in spread) / 3)
    change = compare(base, other)
    assert change.makespan_percent == pytest.approx(-20.0)
    assert change.run_span_percent == pytest.approx(0.0)
    assert change.queue_percent == pytest.approx(-100.0)
    assert change.gpu_active_points == pytest.approx(-12.5)


def test_step_times_alone_and_together_leave_out_the_first_step() -> None:
    found = {times.key.family: times for times in step_times([fifo(), colocate()])}
    assert (found["a"].alone_s, found["a"].alone_jobs) == (1.0, 2)
    assert found["a"].together_s == pytest.approx(1.3)
    assert found["a"].slowdown == pytest.approx(1.3)
    assert (found["b"].alone_jobs, found["b"].together_s, found["b"].slowdown) == (2, None, None)


def test_a_failed_job_counts_in_makespan_but_not_in_means() -> None:
    failed = record(9, 100, 100, 140, state=JobState.FAILED, attempt=3)
    group = fifo()
    found = measure(RunGroup("x", (*group.records, failed), DEVICES))
    assert found.makespan_s == 40.0
    assert found.run_span_s is not None
    assert found.run_span_s.jobs == 3
    assert (found.jobs, found.finished, found.failures, found.restarts) == (4, 3, 1, 2)


def test_a_job_cancelled_in_the_queue_stretches_nothing() -> None:
    cancelled = record(9, 0, None, 10_000, state=JobState.CANCELLED)
    found = measure(RunGroup("x", (*fifo().records, cancelled), DEVICES))
    assert found.makespan_s == 20.0
    assert found.gpu_active_ratio == 1.0
    assert (found.never_started, found.failures) == (1, 0)


@pytest.mark.parametrize("records", [(), (record(1, 0, None, 5, state=JobState.CANCELLED),)])
def test_nothing_that_ran_has_no_times(records: tuple[RunRecord, ...]) -> None:
    found = measure(RunGroup("x", records))
    assert found.makespan_s is None
    assert found.jct_s is None
    assert found.gpu_active_ratio is None
    assert found.slowdown_variance is None
    assert compare(found, found).makespan_percent is None


def test_an_idle_device_lowers_gpu_activity() -> None:
    jobs = (record(1, 0, 0, 10),)
    assert gpu_active_ratio(RunGroup("x", jobs, DEVICES)) == 0.5
    assert gpu_active_ratio(RunGroup("x", jobs)) == 1.0


def test_shared_ratio_of_a_job_on_two_gpus_is_over_both() -> None:
    wide = record(1, 0, 0, 10, gpus=("n/0", "n/1"))
    small = record(2, 0, 5, 10, gpus=("n/1",))
    assert shared_ratios([wide, small]) == {1: pytest.approx(0.25), 2: pytest.approx(1.0)}


def test_a_record_may_bring_its_own_slowdown() -> None:
    found = measure(RunGroup("x", (record(1, 0, 0, 10, slowdown_total=3.5, steps=None),)))
    assert found.slowdown_total is not None
    assert found.slowdown_total.mean == 3.5
    assert found.slowdown_exec is None


def test_work_of_unknown_steps_is_never_taken_for_equal() -> None:
    assert run_spans_alone([RunGroup("x", (record(1, 0, 0, 10, steps=None),))]) == {}


def test_a_restarted_job_is_no_measure_of_running_alone() -> None:
    assert run_spans_alone([RunGroup("x", (record(1, 0, 0, 10, attempt=2),))]) == {}


def test_device_types_keep_work_apart() -> None:
    jobs = (record(1, 0, 0, 10), record(2, 0, 0, 30, gpus=("n/1",)))
    group = RunGroup("x", jobs, (Device("n/0", "V100"), Device("n/1", "A100")))
    assert sorted(run_spans_alone([group]).values()) == [10.0, 30.0]


def test_different_batches_are_told_apart() -> None:
    assert batch_differences(fifo(), colocate()) == ()
    smaller = RunGroup("colocate", colocate().records[1:], DEVICES)
    assert batch_differences(fifo(), smaller) == ("a: 2 in fifo, 1 in colocate",)


def test_percent_change_of_nothing_is_unknown() -> None:
    assert percent_change(0.0, 3.0) is None
    assert percent_change(None, 3.0) is None
    assert percent_change(4.0, 3.0) == -25.0


times = st.integers(min_value=0, max_value=50)


@st.composite
def groups(draw: st.DrawFn) -> RunGroup:
    jobs = []
    for job in range(draw(st.integers(min_value=1, max_value=8))):
        submit, wait, span = draw(times), draw(times), draw(times)
        ran = draw(st.booleans()) or job == 0
        state = draw(st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]))
        gpus = draw(st.sets(st.sampled_from(["n/0", "n/1", "n/2"]), min_size=1)) if ran else ()
        start = float(submit + wait) if ran else None
        end = float(submit + wait + span)
        jobs.append(record(job, float(submit), start, end, state=state, gpus=tuple(sorted(gpus))))
    return RunGroup("x", tuple(jobs), DEVICES)


@given(groups())
def test_invariants_of_any_group(group: RunGroup) -> None:
    found = measure(group)
    assert found.makespan_s is not None
    assert found.gpu_active_ratio is None or 0.0 <= found.gpu_active_ratio <= 1.0
    for summary in (found.jct_s, found.queue_s, found.run_span_s, found.slowdown_total):
        assert summary is None or summary.p50 <= summary.p95 <= summary.p99
    for job in group.records:
        if job.run_span_s is not None and job.queue_s is not None:
            assert math.isclose(job.jct_s, job.queue_s + job.run_span_s)
            assert job.jct_s <= found.makespan_s
    assert all(0.0 <= ratio <= 1.0 for ratio in shared_ratios(group.records).values())


@given(groups(), st.integers(min_value=-1000, max_value=1000))
def test_only_differences_of_time_matter(group: RunGroup, by_s: int) -> None:
    moved = tuple(
        dataclasses.replace(
            job,
            submit_s=job.submit_s + by_s,
            end_s=job.end_s + by_s,
            first_start_s=None if job.first_start_s is None else job.first_start_s + by_s,
        )
        for job in group.records
    )
    first, second = measure(group), measure(RunGroup("x", tuple(reversed(moved)), DEVICES))
    assert first.makespan_s == second.makespan_s
    assert first.gpu_active_ratio == pytest.approx(second.gpu_active_ratio)
    assert first.queue_s == pytest.approx(second.queue_s)


@given(st.lists(st.tuples(times, times)), st.integers(min_value=1, max_value=3), times, times)
def test_cover_agrees_with_counting_second_by_second(
    raw: list[tuple[int, int]], depth: int, low: int, high: int
) -> None:
    intervals = [(float(min(pair)), float(max(pair))) for pair in raw]
    low, high = min(low, high), max(low, high)
    counted = sum(
        sum(start <= second and second + 1 <= end for start, end in intervals) >= depth for second in range(low, high)
    )
    assert covered_s(cover(intervals, depth), low, high) == pytest.approx(counted)


@given(groups(), groups())
def test_percent_changes_undo_one_another(base: RunGroup, other: RunGroup) -> None:
    there = percent_change(makespan_s(base.records), makespan_s(other.records))
    back = percent_change(makespan_s(other.records), makespan_s(base.records))
    if there is not None and back is not None:
        assert (1 + there / 100) * (1 + back / 100) == pytest.approx(1.0)


def test_time_in_which_a_job_was_parked_is_not_shared_and_tells_nothing_of_alone() -> None:
    """Job 1 is parked from 4 to 8 while job 2 has the device; they were never there together."""
    parked, urgent = record(1, 0, 0, 10, pauses_s=((4.0, 8.0),)), record(2, 4, 4, 8)
    assert parked.ran_s == ((0, 4), (8, 10))
    assert shared_ratios([parked, urgent]) == {1: 0.0, 2: 0.0}
    assert gpu_active_ratio(RunGroup("g", (parked, urgent), DEVICES[:1])) == 1.0
    assert list(run_spans_alone([RunGroup("g", (parked, urgent), DEVICES[:1])]).values()) == [4.0]


@pytest.mark.parametrize(
    ("pauses_s", "left"),
    [
        ((), ((0, 10),)),
        (((0, 3), (9, 12)), ((3, 9),)),
        (((-5, -1), (2, 2), (20, 30)), ((0, 2), (2, 10))),
        (((0, 10),), ()),
    ],
)
def test_what_pauses_leave_of_a_run(
    pauses_s: tuple[tuple[float, float], ...], left: tuple[tuple[float, float], ...]
) -> None:
    assert without((0.0, 10.0), pauses_s) == left

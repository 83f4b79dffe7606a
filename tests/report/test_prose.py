from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.lab.report.metrics import Comparison, measure, run_spans_alone
from colane.lab.report.prose import (
    change_sentence,
    duration,
    failed_jobs,
    jobs_at_once,
    load_by_others,
    not_measured,
    percent,
    sentences,
)
from colane.lab.report.records import RunGroup
from colane.model.job import JobState

from .batches import DEVICES, colocate, fifo, record


def said(*groups: RunGroup) -> tuple[str, ...]:
    return sentences(groups, [measure(group, run_spans_alone(groups)) for group in groups])


def notes(*groups: RunGroup) -> str:
    return "\n".join(not_measured(groups, [measure(group, run_spans_alone(groups)) for group in groups]))


def test_the_summary_says_what_sharing_bought_and_cost() -> None:
    change = Comparison("fifo", "colocate", -38.0, 22.0, None, None, None)
    expected = "Co-location ended the batch in 61 s instead of 98 s (-38 %); a job ran 22 % longer on average."
    assert change_sentence(change, 98.0, 61.0) == expected


@pytest.mark.parametrize(
    ("makespan", "run_span", "ending"),
    [
        (12.0, 22.0, "(+12 %); a job ran 22 % longer on average."),
        (-12.0, -5.0, "(-12 %); a job ran 5 % shorter on average."),
        (-12.0, 0.2, "(-12 %); a job ran as long on average."),
        (0.1, 30.0, "(no change); a job ran 30 % longer on average."),
        (-12.0, None, "(-12 %)."),
    ],
)
def test_a_worse_outcome_is_not_dressed_up(makespan: float, run_span: float | None, ending: str) -> None:
    change = Comparison("fifo", "colocate", makespan, run_span, None, None, None)
    assert change_sentence(change, 100.0, 100.0 + makespan).endswith(ending)


def test_groups_are_compared_with_the_first() -> None:
    slowdown = (12 / 10 + 12 / 10 + 16 / 18) / 3  # b ran alone twice, for 20 s and 16 s
    (sentence,) = said(fifo(), colocate())
    assert sentence == (
        "Co-location ended the batch in 16 s instead of 20 s (-20 %); a job ran as long on average: "
        f"1.2 jobs ran at once on a device, each {slowdown:.2f} times as long as alone."
    )


def test_one_group_is_described() -> None:
    assert said(fifo()) == ("FIFO ended 3 jobs in 20 s; they ran 13.3 s and queued 3.33 s on average.",)


def test_failures_and_different_batches_are_said_with_the_comparison() -> None:
    broken = RunGroup("mine", (*fifo().records[:2], record(8, 100, 100, 101, state=JobState.FAILED)), DEVICES)
    assert "Not all jobs succeeded: 1 of 3 in mine did not." in said(fifo(), broken)[0]
    smaller = replace(colocate(), records=colocate().records[:1])
    assert "The two batches are not the same (a: 2 in fifo, 1 in colocate; b:" in said(fifo(), smaller)[0]


def test_nothing_to_report_is_said() -> None:
    never = record(1, 0, None, 5, state=JobState.CANCELLED)
    for groups in ((), (RunGroup("fifo", ()),), (RunGroup("fifo", (never,)),)):
        assert said(*groups) == ("No finished job has run, so there is nothing to compare.",)


def test_what_was_not_measured_is_said() -> None:
    jobs = (
        record(1, 0, None, 5, state=JobState.CANCELLED),
        record(2, 0, 1, 9, attempt=3, steps=None),
        record(3, 5, 4, 9, state=JobState.OUT_OF_MEMORY, reason="ran out of memory: 3 GB"),
    )
    found = notes(RunGroup("x", jobs), RunGroup("empty", ()))
    assert "x: means and percentiles leave out jobs that did not succeed (1 cancelled, 1 out-of-memory," in found
    assert "x: 1 job never started; no time includes them." in found
    assert "x: 2 restarts: run span includes the time between attempts" in found
    assert "x: its devices are not known" in found
    assert "x: 2 jobs reported no step times." in found
    assert "x: slowdown is not known for 1 job" in found
    assert "x: 1 time ran backwards (clocks of the machines differ); taken as 0 s." in found
    assert "empty: no finished jobs" in found


def test_a_clean_run_has_only_the_standing_note() -> None:
    assert notes(fifo()).startswith("Devices in use: whether a device had a job")


def test_failed_jobs_are_named_with_the_reason_and_counted() -> None:
    jobs = tuple(record(i, 0, 0, 1, state=JobState.FAILED, reason="exited with code 1") for i in range(7))
    lines = failed_jobs([RunGroup("x", jobs)])
    assert lines[0] == "x: job 0 (job-0) ended failed: exited with code 1."
    assert lines[-1] == "x: 2 more jobs failed; see the jobs table."
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.0342, "34.2 ms"),
        (0.9999, "1 s"),
        (9.34, "9.34 s"),
        (61.3, "61 s"),
        (119.6, "2 min 00 s"),
        (725.0, "12 min 05 s"),
        (12_000.0, "3 h 20 min"),
    ],
)
def test_durations_read_well(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@given(st.floats(min_value=0, max_value=1e8))
def test_a_duration_is_close_to_the_time_it_names(seconds: float) -> None:
    text = duration(seconds)
    units = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
    named = sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (ms|s|min|h)", text))
    assert re.fullmatch(r"[\d.]+ (ms|s)|\d+ min \d\d s|\d+ h \d\d min", text)
    last_digit = 30.0 if "h" in text else 0.5 if seconds >= 19.9 else max(0.006 * seconds, 0.0005 * 0.001)
    assert abs(named - seconds) <= last_digit + 1e-9


def test_percent_hides_no_sign() -> None:
    assert [percent(x) for x in (-37.6, 22.2, 0.4, None)] == ["-38 %", "+22 %", "no change", "-"]


def test_jobs_at_once_are_counted_over_the_time_in_which_any_ran() -> None:
    spans = [(0.0, 10.0), (0.0, 10.0), (5.0, 10.0), (100.0, 105.0)]
    records = [record(number, 0.0, start_s, end_s) for number, (start_s, end_s) in enumerate(spans)]
    assert jobs_at_once(records) == pytest.approx((10 + 10 + 5 + 5) / 15)
    assert jobs_at_once([]) == 0
    parked = replace(records[0], pauses_s=((2.0, 8.0),))
    without_device = replace(records[0], gpus=())
    assert jobs_at_once([parked, *records[1:], without_device]) == pytest.approx((4 + 10 + 5 + 5) / 15)


def test_other_work_on_the_devices_is_spoken_of_where_there_was_some() -> None:
    quiet = fifo()
    assert load_by_others([quiet]) == ()
    barely = replace(quiet, records=tuple(replace(record, others_ratio=0.03) for record in quiet.records))
    assert load_by_others([barely]) == ()
    busy = replace(colocate(), records=tuple(replace(record, others_ratio=0.8) for record in colocate().records))
    (sentence,) = load_by_others([barely, busy])
    assert "others used 3 % in the run of FIFO, 80 % in the run of Co-location." in sentence

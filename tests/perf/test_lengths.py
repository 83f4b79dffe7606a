"""What is left of jobs of unknown length, by how long those ran that have ended: the Gittins quotient."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.lengths import BIN_MAX, JOBS_MAX, FamilyLengths, LengthBin, bin_of, bounds_s
from colane.perf.lengths import MADE_UP, MADE_UP_MIN_S, MADE_UP_RATIO, OTHERS_JOBS, Lengths
from tests.examples import examples

RUN_S = st.floats(0.0, 1e7)


def learnt(*runs_s: float, family: str = "f") -> Lengths:
    """What jobs of one family that ran for so long have taught, after a restart."""
    record = FamilyLengths(family)
    for run_s in runs_s:
        record = record.with_job(run_s)
    return Lengths([record])


def left_of(lengths: Lengths, *had_s: float) -> list[float]:
    return [lengths.left_s("f", one_s) for one_s in had_s]


@pytest.mark.parametrize("ended", [(), (20.0,) * 50], ids=["none-ended", "all-shorter"])
def test_of_jobs_longer_than_any_before_the_older_goes_on_between_made_up_lengths(ended: tuple[float, ...]) -> None:
    """Else alike jobs take turns: while none of them has ended, each would have the more left the longer it ran."""
    lengths = learnt(*ended)
    for level in range(6):
        from_s = MADE_UP_MIN_S * MADE_UP_RATIO**level
        left_s = left_of(lengths, *[from_s * (1 + n / 10) for n in range(30)])
        assert left_s == sorted(left_s, reverse=True)
        assert left_s[-1] < left_of(lengths, from_s * MADE_UP_RATIO)[0]


@examples(50)
@given(run_s=st.floats(20.0, 1e6), ages=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)))
def test_of_jobs_that_run_alike_the_older_never_has_more_left(run_s: float, ages: tuple[float, float]) -> None:
    """To the very end: none is taken to have outlived the others before it has."""
    younger, older = left_of(learnt(*[run_s] * 50), *[part * run_s for part in sorted(ages)])
    assert older <= younger * 1.0001


def test_of_jobs_that_run_alike_the_less_is_left_the_longer_one_has_run() -> None:
    lengths = learnt(*[3600.0] * 50)
    left_s = [lengths.left_s("f", had_s) for had_s in (0.0, 900.0, 1800.0, 2700.0)]
    assert left_s == pytest.approx([3600.0, 2700.0, 1800.0, 900.0], rel=0.25)


def test_where_most_end_soon_one_that_has_not_has_much_left() -> None:
    lengths = learnt(*[36_000.0, *[60.0] * 9] * 12)
    assert lengths.left_s("f", 0.0) < 120.0
    assert lengths.left_s("f", 100.0) > 3_000.0


def test_one_that_outlives_all_is_expected_to_go_on_the_longer_the_longer_it_has_run() -> None:
    lengths = learnt(*[60.0] * 50)
    made_up_s = [MADE_UP_MIN_S * MADE_UP_RATIO**level for level in range(12)]
    left_s = left_of(lengths, *made_up_s)
    assert left_s == sorted(left_s)
    assert all(had_s <= left <= 8 * had_s for had_s, left in zip(made_up_s, left_s, strict=True))


def test_a_family_is_told_by_its_own_jobs_and_a_new_one_by_all() -> None:
    lengths = learnt(*[60.0] * 30, family="short")
    for _ in range(30):
        lengths.learn("long", 36_000.0)
    short_s, new_s, long_s = (lengths.left_s(family, 0.0) for family in ("short", "new", "long"))
    assert short_s < new_s < long_s
    lengths.forget("short")
    assert lengths.left_s("short", 0.0) == lengths.left_s("new", 0.0) > new_s


@examples(50)
@given(runs_s=st.lists(st.floats(0.0, 2.0**33), max_size=40), before=st.integers(0, int(JOBS_MAX)))
def test_a_record_counts_each_job_in_its_bin_and_halves_all_once_there_are_many(
    runs_s: list[float], before: int
) -> None:
    record, jobs = FamilyLengths("f", (LengthBin(7, float(before)),)), {7: float(before)}
    for run_s in runs_s:
        record = record.with_job(run_s)
        jobs[bin_of(run_s)] = jobs.get(bin_of(run_s), 0.0) + 1
        if sum(jobs.values()) > JOBS_MAX:
            jobs = {number: count / 2 for number, count in jobs.items()}
        assert record.bins == tuple(sorted(jobs.items()))


def quotient_s(record: FamilyLengths, had_s: float) -> float:
    """The same of one family by its definition, over a fine grid of lengths and of slices."""
    part = 1 + min(1.0, OTHERS_JOBS / record.jobs)
    runs = list[tuple[float, float]]()
    for number, jobs in record.bins:
        lower_s, upper_s = bounds_s(number)
        runs += [(lower_s + (upper_s - lower_s) * (n + 0.5) / 200, part * jobs / 200) for n in range(200)]
    rests = [(run_s - had_s, jobs) for run_s, jobs in runs if run_s > had_s]
    made_up = (1 + sum(jobs for _, jobs in rests)) ** -0.5
    levels_s = [MADE_UP_MIN_S * MADE_UP_RATIO**level for level in range(20)]
    next_s = next(level_s for level_s in levels_s if level_s > max(had_s, bounds_s(record.bins[-1].number)[0]))
    rests = [(next_s * times - had_s, made_up) for times in MADE_UP] + rests
    slices = [bounds_s(number)[1] - had_s for number, _ in record.bins] + [rest_s for rest_s, _ in rests[:2]]
    best_s = inf
    for slice_s in [slice_s for slice_s in slices if slice_s > 0]:
        ended = sum(jobs for rest_s, jobs in rests if rest_s <= slice_s)
        spent_s = sum(min(rest_s, slice_s) * jobs for rest_s, jobs in rests)
        best_s = min(best_s, spent_s / ended if ended else inf)
    return best_s


@examples(50)
@given(runs_s=st.lists(st.floats(10.0, 1e5), min_size=1, max_size=12), had=st.integers(0, 15 * 16))
def test_it_is_what_a_slice_takes_for_each_end_in_the_best_of_slices(runs_s: list[float], had: int) -> None:
    had_s = 2.0 ** (had / 16) if had else 0.0
    lengths = learnt(*runs_s)
    record = lengths.of_family("f")
    assert record is not None
    assert lengths.left_s("f", had_s) == pytest.approx(quotient_s(record, had_s), rel=0.02)


@examples(20)
@given(runs_s=st.lists(st.floats(0.0, 1e12), max_size=300))
def test_a_record_is_bounded_and_holds_each_job_where_it_belongs(runs_s: list[float]) -> None:
    record = FamilyLengths("f")
    for run_s in runs_s:
        record = record.with_job(run_s)
        lower_s, upper_s = bounds_s(bin_of(run_s))
        assert lower_s <= max(1.0, run_s)
        assert run_s < upper_s or bin_of(run_s) == BIN_MAX
    assert record.jobs == pytest.approx(len(runs_s))
    assert len(record.bins) <= BIN_MAX + 1


def test_what_came_long_ago_counts_less() -> None:
    lengths = learnt(*[60.0] * 5_000, *[36_000.0] * 2_000)
    record = lengths.of_family("f")
    assert record is not None
    assert record.jobs <= JOBS_MAX
    assert record.bins[0].jobs < 0.1 * record.jobs


def test_jobs_are_judged_anew_the_more_rarely_the_more_have_ended() -> None:
    lengths, versions = Lengths(), list[int]()
    for number in range(400):
        lengths.learn(f"f{number}", 60.0)
        versions.append(lengths.version)
    judged = [number + 1 for number, (old, new) in enumerate(pairwise([versions[0] - 1, *versions])) if new > old]
    assert judged[:7] == [1, 2, 4, 8, 16, 26, 36]
    assert versions[399] - versions[299] <= 4


@examples(50)
@given(runs=st.lists(st.tuples(st.sampled_from("abc"), RUN_S), max_size=60), had_s=RUN_S)
def test_what_is_noted_says_the_same_as_what_is_learnt_at_once(runs: list[tuple[str, float]], had_s: float) -> None:
    learnt_at_once, noted = Lengths(), Lengths()
    for family, run_s in runs:
        learnt_at_once.learn(family, run_s)
        noted.note(family, run_s)
    assert noted.version == learnt_at_once.version
    for family in "abcd":
        assert noted.of_family(family) == learnt_at_once.of_family(family)
        assert noted.left_s(family, had_s) == learnt_at_once.left_s(family, had_s)


def test_what_is_noted_of_a_family_that_is_forgotten_is_gone() -> None:
    lengths = Lengths()
    lengths.note("f", 60.0)
    lengths.forget("f")
    assert lengths.of_family("f") is None
    assert lengths.left_s("f", 50.0) == Lengths().left_s("f", 50.0)

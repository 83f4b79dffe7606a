"""What is left of jobs of unknown length, by how long those ran that have ended: the Gittins quotient."""

from __future__ import annotations

from itertools import pairwise
from math import exp, inf, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.lengths import BIN_MAX, JOBS_MAX, FamilyLengths, LengthBin, bin_of, bounds_s
from colane.perf.lengths import (
    DOUBT,
    MADE_UP,
    MADE_UP_JOBS,
    MADE_UP_MIN_S,
    MADE_UP_RATIO,
    OTHERS_JOBS,
    Lengths,
)
from tests.examples import examples

RUN_S = st.floats(0.0, 1e7)
LEVELS_S = [MADE_UP_MIN_S * MADE_UP_RATIO**level for level in range(20)]


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
    assert all(had_s / 4 <= left <= 8 * had_s for had_s, left in zip(made_up_s, left_s, strict=True))


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


def quotient_s(record: FamilyLengths, had_s: float) -> tuple[float, float]:
    """The same of one family by its definition, over a fine grid of lengths and of slices; how many ends say so."""
    part = 1 + min(1.0, OTHERS_JOBS / record.jobs)
    runs = list[tuple[float, float]]()
    for number, jobs in record.bins:
        lower_s, upper_s = bounds_s(number)
        runs += [(lower_s + (upper_s - lower_s) * (n + 0.5) / 200, part * jobs / 200) for n in range(200)]
    rests = [(run_s - had_s, jobs) for run_s, jobs in runs if run_s > had_s]
    made_up = MADE_UP_JOBS * (1 + sum(jobs for _, jobs in rests)) ** -0.5
    next_s = next(level_s for level_s in LEVELS_S if level_s > max(had_s, bounds_s(record.bins[-1].number)[0]))
    rests = [(next_s * times - had_s, made_up) for times in MADE_UP] + rests
    slices = [bounds_s(number)[1] - had_s for number, _ in record.bins] + [rest_s for rest_s, _ in rests[:2]]
    best = inf, 0.0
    for slice_s in [slice_s for slice_s in slices if slice_s > 0]:
        ended = sum(jobs for rest_s, jobs in rests if rest_s <= slice_s)
        told = ended - sum(jobs for rest_s, jobs in rests[2:] if rest_s <= slice_s) * (1 - 1 / part)
        spent_s = sum(min(rest_s, slice_s) * jobs for rest_s, jobs in rests)
        best = min(best, (spent_s / ended if ended else inf, told))
    return best


@examples(50)
@given(runs_s=st.lists(st.floats(10.0, 1e5), min_size=1, max_size=12), had=st.integers(0, 15 * 16))
def test_it_is_what_an_end_takes_in_the_best_of_slices_if_above_that_of_a_new_job_then_as_far_as_is_sure(
    runs_s: list[float], had: int
) -> None:
    had_s = 2.0 ** (had / 16) if had else 0.0
    lengths = learnt(*runs_s)
    record = lengths.of_family("f")
    assert record is not None
    (seems_s, ends), (new_s, new_ends) = quotient_s(record, had_s), quotient_s(record, 0.0)
    sure_s = seems_s * exp(-DOUBT * sqrt(1 / ends + 1 / new_ends))
    outlived_s = max([0.0, *[level_s for level_s in LEVELS_S if level_s <= had_s]]) / 3
    if outlived_s > sum([sum(bounds_s(number)) / 2 * jobs for number, jobs in record.bins]) / record.jobs:
        sure_s = max(sure_s, min(seems_s, outlived_s))
    left_s = min(seems_s, max(new_s, sure_s))
    assert lengths.left_s("f", had_s) == pytest.approx(left_s, rel=0.02)


@pytest.mark.parametrize(("ended", "part_max"), [(20, 0.3), (80, 0.25), (320, 0.15)])
def test_a_job_that_ends_as_likely_at_any_time_rarely_seems_to_have_more_left_than_a_new_one(
    ended: int, part_max: float
) -> None:
    """Chance alone tells so, and it would lose its place to one that is no better."""
    worse = 0
    for draw in range(40):
        random = Random(draw)
        lengths = learnt(*[random.expovariate(1 / 900) for _ in range(ended)])
        new_s = lengths.left_s("f", 0.0)
        left_s = [lengths.left_s("f", random.expovariate(1 / 900)) for _ in range(100)]
        worse += sum([one_s > 1.25 * (new_s + 60.0) for one_s in left_s])
    assert worse <= part_max * 4_000


@pytest.mark.parametrize("ended", [8, 40, 200])
def test_what_many_ends_tell_is_believed_all_but_wholly(ended: int) -> None:
    """One in four runs for ten hours, the others for a minute."""
    lengths = learnt(*[36_000.0, *[60.0] * 3] * (ended // 4))
    assert lengths.left_s("f", 100.0) > 36_000.0 * exp(-2 * DOUBT / sqrt(ended / 4)) / 1.2


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

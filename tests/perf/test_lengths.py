"""What is left of jobs of unknown length, by how long those ran that have ended, and have run that have not."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import exp, inf, log
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.lengths import BIN_MAX, BINS_PER_OCTAVE, JOBS_MAX, FamilyLengths, LengthBin, bin_of
from colane.perf.estimates import Unended
from colane.perf.length_law import (
    BINS,
    COMMON_PARTS,
    COMMON_WEIGHTS,
    EDGES_S,
    FIRST_BIN,
    LAW_JOBS,
    LOG_MEDIANS,
    SIGMA_WEIGHTS,
    SIGMAS,
    Law,
    prior,
    score,
)
from colane.perf.lengths import AGE_MIN_S, Lengths, age_of
from tests.examples import examples

RUN_S = st.floats(0.0, 1e7)


def learnt(*runs_s: float, family: str = "f") -> Lengths:
    """What jobs of one family that ran for so long have taught, after a restart."""
    record = FamilyLengths(family)
    for run_s in runs_s:
        record = record.with_job(run_s)
    return Lengths([record])


def unended(*had_s: float) -> dict[int, int]:
    """Jobs that have had so much, by bin."""
    return Counter([age_of(one_s) for one_s in had_s])


def seen(*had_s: float, halved_s: float = -inf) -> dict[Unended, int]:
    """The same, and by when, before they came, all that had ended came to count half."""
    return {(number, halved_s): jobs for number, jobs in unended(*had_s).items()}


@pytest.mark.parametrize("family", ["none-ended", "some-ended"])
def test_a_job_that_has_run_for_long_tells_that_its_siblings_are_as_long(family: str) -> None:
    """Else each of them runs as far as it, and loses its place to the next."""
    lengths = learnt(*[3_000.0] * 3, family="some-ended")
    before_s = lengths.left_s(family, 0.0)
    lengths.see_unended({family: seen(40_000.0)})
    one_s = lengths.left_s(family, 0.0)
    lengths.see_unended({family: seen(*[40_000.0] * 8)})
    assert lengths.left_s(family, 0.0) > one_s > before_s
    lengths.see_unended({}, are_all=True)
    assert lengths.left_s(family, 0.0) <= one_s


def test_jobs_that_have_run_for_long_count_beside_those_that_ended_as_when_they_came() -> None:
    """20 that run on for months are no fiftieth of all where 5,000 came with them and have ended."""
    record = FamilyLengths("f")
    for number in range(5_000):
        record = record.with_job(600.0, float(number))
    parts = dict[str, float]()
    for name, came_s in (("with-the-first", -1.0), ("with-the-last", 5_000.0)):
        lengths = Lengths([record])
        lengths.see_unended({"f": seen(*[1e6] * 20, halved_s=lengths.halved_before_s("f", came_s))})
        parts[name] = 1.0 - lengths.ends_within("f", 0.0, 10_000.0)
    assert parts["with-the-last"] > 0.015
    assert parts["with-the-first"] < 0.001


@pytest.mark.parametrize("since_s", [-1.0, 1_000.0, 1_700.0, 2_600.0, 9_000.0])
def test_what_jobs_count_that_have_not_ended_is_the_same_after_a_restart(since_s: float) -> None:
    lengths = Lengths()
    for number in range(9_000):
        record = lengths.learn("f", 600.0, float(number))
        if number == max(0.0, since_s):
            lengths.see_unended({"f": seen(*[1e6] * 40, halved_s=lengths.halved_before_s("f", since_s))})
    again = Lengths([record])
    again.see_unended({"f": seen(*[1e6] * 40, halved_s=again.halved_before_s("f", since_s))})
    lengths.see_unended({"f": seen(*[1e6] * 40, halved_s=lengths.halved_before_s("f", since_s))})
    assert again.ends_within("f", 0.0, 10_000.0) == pytest.approx(lengths.ends_within("f", 0.0, 10_000.0), rel=0.01)


@examples(50)
@given(run_s=st.floats(20.0, 1e6), ages=st.tuples(st.floats(0.0, 0.8), st.floats(0.0, 0.8)))
def test_of_jobs_that_run_alike_the_older_has_less_left(run_s: float, ages: tuple[float, float]) -> None:
    younger, older = (learnt(*[run_s] * 50).left_s("f", part * run_s) for part in sorted(ages))
    assert older <= younger * 1.0001


def test_of_jobs_that_run_alike_the_less_is_left_the_longer_one_has_run() -> None:
    lengths = learnt(*[3600.0] * 50)
    left_s = [lengths.left_s("f", had_s) for had_s in (0.0, 900.0, 1800.0, 2700.0)]
    assert left_s == pytest.approx([3600.0, 2700.0, 1800.0, 900.0], rel=0.6)


def test_where_most_end_soon_one_that_has_not_has_much_left() -> None:
    lengths = learnt(*[36_000.0, *[60.0] * 9] * 12)
    assert lengths.left_s("f", 0.0) < 120.0
    assert lengths.left_s("f", 100.0) > 5 * lengths.left_s("f", 0.0)


def test_a_family_is_told_by_its_own_jobs_and_a_new_one_by_all() -> None:
    lengths = learnt(*[60.0] * 30, family="short")
    for _ in range(30):
        lengths.learn("long", 36_000.0)
    short_s, new_s, long_s = (lengths.left_s(family, 0.0) for family in ("short", "new", "long"))
    assert short_s < new_s < long_s
    lengths.forget("short")
    assert lengths.left_s("short", 0.0) == lengths.left_s("new", 0.0) > new_s


def test_how_much_the_lengths_of_a_family_differ_is_learnt_of_the_others() -> None:
    """Two ends of a family say much where each of others has lengths of its own, and little where none has."""
    random = Random(1)
    alike = Lengths()
    apart = Lengths()
    for number in range(20):
        middle_s = exp(random.uniform(log(600), log(86_400)))
        for _ in range(10):
            alike.learn(f"f{number}", middle_s * random.lognormvariate(0.0, 0.05))
            apart.learn(f"f{number}", exp(random.uniform(log(600), log(86_400))))
    for lengths in (alike, apart):
        for _ in range(2):
            lengths.learn("new", 10_000.0)
    assert alike.ends_within("new", 0.0, 14_000.0) > apart.ends_within("new", 0.0, 14_000.0) + 0.1
    assert alike.ends_within("new", 0.0, 7_000.0) < apart.ends_within("new", 0.0, 7_000.0)


def quotient_s(parts: list[float], first: int) -> float:
    """What an end takes in the best of slices, by its definition."""
    had_s, best = EDGES_S[first] if first >= 0 else 0.0, float("inf")
    for last in range(max(first, 0), BINS):
        slice_s, spent_s = EDGES_S[last + 1] - had_s, 0.0
        for place in range(max(first, 0), BINS):
            rest_s = max((EDGES_S[place] * EDGES_S[place + 1]) ** 0.5 - had_s, (EDGES_S[place + 1] - had_s) / 2)
            spent_s += parts[place] * (rest_s if place <= last else slice_s)
        ended = sum(parts[max(first, 0) : last + 1])
        best = min(best, spent_s / ended) if ended > 1e-9 else best
    return best


@pytest.mark.parametrize("had_s", [(), (900.0,), (30.0, 5_000.0, 5_000.0)], ids=["none-runs", "one-runs", "three-run"])
def test_it_is_the_mean_of_all_laws_each_as_likely_as_it_makes_what_was_seen(  # noqa: C901
    had_s: tuple[float, ...],
) -> None:
    """With the family's own: of two that have ended a fifth in either bin beside theirs, and of those that have not."""
    law, norm, width = dict[tuple[int, float, float], float](), NormalDist(), log(2.0) / 4
    ended, going = {20: 1.0, 34: 1.0}, unended(*had_s)
    for (at, mean), (sigma, weight), (common, often) in product(
        enumerate(LOG_MEDIANS), zip(SIGMAS, SIGMA_WEIGHTS, strict=True), zip(COMMON_PARTS, COMMON_WEIGHTS, strict=True)
    ):
        told = log(weight * often) - 0.5 * (mean - log(3600.0)) ** 2 / 2.0
        for place, jobs in ended.items():
            low, high = (place - 2 * at - 0.5) * width / sigma, (place - 2 * at + 0.5) * width / sigma
            part = norm.cdf(high) - norm.cdf(low) if low < 0 else norm.cdf(-low) - norm.cdf(-high)
            told += jobs * log((1 - common) * (part + 1e-7) + common / BINS)
        for place, jobs in going.items():
            left = norm.cdf(-(place - 2 * at - 0.5) * width / sigma)
            told += jobs * log((1 - common) * left + common * 0.3 + 1e-6)
        law[at, sigma, common] = told
    most = max(law.values())
    weights = {cell: exp(told - most) for cell, told in law.items()}
    all_weights, mean_law = sum(weights.values()), [0.0] * BINS
    for (at, sigma, common), weight in weights.items():
        for place in range(BINS):
            low, high = (place - 2 * at - 0.5) * width / sigma, (place - 2 * at + 0.5) * width / sigma
            part = (1 - common) * (norm.cdf(high) - norm.cdf(low)) + common / BINS
            mean_law[place] += weight / all_weights * part
    own = [0.0] * BINS
    for place, jobs in ended.items():
        for at, part in ((place - 1, 0.2), (place, 0.6), (place + 1, 0.2)):
            own[at] += part * jobs
    base, found = [LAW_JOBS * one + more for one, more in zip(mean_law, own, strict=True)], mean_law
    for _ in range(3):
        each = [sum(jobs / sum(found[at:]) for at, jobs in going.items() if at <= place) for place in range(BINS)]
        mixed = [one + part * more for one, part, more in zip(base, found, each, strict=True)]
        found = [one / sum(mixed) for one in mixed]
    bins = [(place + FIRST_BIN, jobs) for place, jobs in ended.items()]
    made = Law.of(prior(()), bins, score(bins), going, [1 / BINS] * BINS)
    for place in (-1, 10, 30):
        assert made.left_s(place) == pytest.approx(quotient_s(found, place), rel=0.01)
    for rest_s in (100.0, 3_000.0, 50_000.0):
        shorter = sum(found[n] for n in range(BINS) if EDGES_S[n] * EDGES_S[n + 1] < rest_s**2)
        assert made.ends_within(-1, rest_s) == pytest.approx(shorter, abs=1e-3)


@examples(30)
@given(
    runs_s=st.lists(st.floats(20.0, 1e6), max_size=8),
    had_s=st.tuples(RUN_S, RUN_S),
    families=st.sampled_from([("f", "g"), ("f", "f")]),
    times=st.sampled_from([0.25, 1.0, 3.0]),
)
def test_of_two_jobs_either_ends_before_the_other(
    runs_s: list[float], had_s: tuple[float, float], families: tuple[str, str], times: float
) -> None:
    lengths = learnt(*runs_s)
    lengths.learn("g", 5_000.0)
    (one, other), (had, other_had) = families, had_s
    first = lengths.ends_before(one, had, other, other_had, times)
    second = lengths.ends_before(other, other_had, one, had, 1.0 / times)
    assert 0.0 <= first <= 1.0
    assert first + second <= 1.0 + 1e-9
    assert first <= lengths.ends_before(one, had, other, other_had, 2.0 * times)


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


@examples(20)
@given(runs_s=st.lists(st.floats(0.0, 1e12), max_size=300))
def test_a_record_is_bounded_and_holds_each_job_where_it_belongs(runs_s: list[float]) -> None:
    record = FamilyLengths("f")
    for run_s in runs_s:
        record = record.with_job(run_s)
        number = bin_of(run_s)
        lower_s, upper_s = (2.0 ** (at / BINS_PER_OCTAVE) for at in (number, number + 1))
        lower_s = lower_s if number else 0.0
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


def test_a_family_is_judged_anew_by_its_own_news_alone_and_the_more_rarely_the_more_there_is() -> None:
    lengths, judged = Lengths(), list[int]()
    lengths.learn("other", 5_000.0)
    other = (lengths.version, lengths.version_of("other"))[1]
    for number in range(200):
        before = lengths.version_of("f")
        lengths.left_s("f", 0.0)  # what nobody has asked is no news to anybody
        lengths.learn("f", 60.0 + number)
        if lengths.version and lengths.version_of("f") != before:
            judged.append(number + 1)
    assert judged[:11] == [*range(1, 11), 12]
    assert len([number for number in judged if number > 100]) <= 20
    assert lengths.version_of("other") == other


@examples(30)
@given(
    runs=st.lists(st.tuples(st.sampled_from("abc"), RUN_S, st.sampled_from("abcd"), st.booleans()), max_size=20),
    had_s=RUN_S,
)
def test_what_a_reader_was_told_holds_until_the_version_of_the_family_grows(
    runs: list[tuple[str, float, str, bool]], had_s: float
) -> None:
    lengths, told = Lengths(), dict[str, tuple[int, float]]()
    for family, run_s, asked, is_asked in runs:
        lengths.note(family, run_s)
        if is_asked:
            left_s = lengths.left_s(asked, had_s)
            told[asked] = lengths.version, left_s
    version = lengths.version
    for asked, (since, left_s) in told.items():
        holds, families = lengths.version_of(asked) <= since, lengths.judged_since(since)
        assert holds or since < version
        assert holds or families is None or asked in families
        assert not holds or lengths.left_s(asked, had_s) == left_s


def test_no_lesson_about_a_family_of_which_nobody_asks_changes_what_holds() -> None:
    lengths = Lengths()
    before = lengths.version
    for number in range(30):
        lengths.learn(f"f{number % 3}", 60.0 + number)
        assert lengths.version == before


@examples(30)
@given(runs=st.lists(st.tuples(st.sampled_from("abc"), RUN_S), max_size=40), had_s=RUN_S)
def test_what_is_noted_says_the_same_as_what_is_learnt_at_once(runs: list[tuple[str, float]], had_s: float) -> None:
    learnt_at_once, noted = Lengths(), Lengths()
    for family, run_s in runs:
        learnt_at_once.learn(family, run_s)
        noted.note(family, run_s)
    assert noted.version == learnt_at_once.version
    for family in "abcd":
        assert noted.of_family(family) == learnt_at_once.of_family(family)
        assert noted.left_s(family, had_s) == learnt_at_once.left_s(family, had_s)


@examples(10)
@given(runs=st.lists(st.tuples(st.sampled_from("abc"), st.floats(20.0, 1e6)), max_size=20), had_s=st.floats(0.0, 1e6))
def test_after_a_restart_much_the_same_is_believed(runs: list[tuple[str, float]], had_s: float) -> None:
    """What families have in common is then learnt of all at once: it had been of those that had ended by then."""
    lengths = Lengths()
    for family, run_s in runs:
        lengths.learn(family, run_s)
        lengths.version  # noqa: B018
    again = Lengths([known for family in "abc" if (known := lengths.of_family(family)) is not None])
    for family in "abcd":
        left_s, again_s = lengths.left_s(family, had_s), again.left_s(family, had_s)
        assert again_s == pytest.approx(left_s, rel=3.0)


def test_what_is_noted_of_a_family_that_is_forgotten_is_gone() -> None:
    lengths = Lengths()
    lengths.note("f", 60.0)
    lengths.forget("f")
    assert lengths.of_family("f") is None
    assert lengths.left_s("f", 50.0) == pytest.approx(Lengths().left_s("f", 50.0))


@pytest.mark.parametrize("had_s", [0.0, 15.0, 16.0, 1e3, 2.0**20, 1e9])
def test_as_much_is_left_up_to_the_end_of_a_bin(had_s: float) -> None:
    lengths = learnt(*[5_000.0] * 3)
    until_s = lengths.same_until_s(had_s)
    assert until_s >= had_s or age_of(had_s) == BINS - 1
    assert lengths.left_s("f", until_s) == lengths.left_s("f", had_s)
    assert age_of(until_s * 1.001) == age_of(had_s) + 1 or age_of(had_s) == BINS - 1 or had_s < AGE_MIN_S

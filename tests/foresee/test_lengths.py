"""Lengths that are drawn: never below what a job has had, as decisions believe and as its kind's, alike in a sweep."""

from __future__ import annotations

import json

import numpy as np
import pytest

from colane.foresee.lengths import WEIGHT_MAX, LearntLengths
from colane.foresee.scene import PresentJob
from colane.perf.lengths import Lengths


def taught(lengths_s: list[float], *, gap_s: float = 7200.0, owner: str = "ann") -> LearntLengths:
    known = LearntLengths()
    for number, length_s in enumerate(lengths_s):
        known.submitted(number, owner, 1, number * gap_s)
        known.ended(number, length_s, number * gap_s + length_s)
    return known


def lived(job: int, had_s: float) -> PresentJob:
    return PresentJob(job, "ann", 1, had_s, None, None, None, False, False, ())


def drawn(known: LearntLengths, *live: PresentJob, times: int = 400, law: Lengths | None = None) -> np.ndarray:
    draws, random = known.draws(live, law or Lengths()), np.random.default_rng(3)
    return np.array([draws.draw(random) for _ in range(times)])


@pytest.mark.parametrize("had_s", [0.0, 500.0, 90_000.0, 400 * 86_400.0])
def test_no_draw_is_below_what_a_job_has_had(had_s: float) -> None:
    known = taught([100.0, 1000.0, 50_000.0] * 20)
    known.submitted(99, "ann", 1, 1e6)
    found = drawn(known, lived(99, had_s))
    assert np.isfinite(found).all()
    assert found.min() >= had_s


def test_draws_are_as_lengths_of_the_kind_and_those_of_another_owner_differ() -> None:
    known = taught(np.random.default_rng(1).lognormal(7, 0.4, 300).tolist())
    for number in range(300):
        known.submitted(1000 + number, "bob", 1, number * 7200.0)
        known.ended(1000 + number, 20 * 1096.6, number * 7200.0 + 20 * 1096.6)
    known.submitted(5000, "ann", 1, 1e7)
    known.submitted(5001, "bob", 1, 1e7)
    ann, bob = np.median(drawn(known, lived(5000, 0.0), lived(5001, 0.0)), axis=0)
    assert 800 < ann < 1500
    assert 15_000 < bob < 32_000


def test_of_a_kind_never_seen_draws_are_the_law_by_which_decisions_are_made() -> None:
    """Its quantiles, given what each has had; and no others where the kind is all there is of its family."""
    law, known, random = Lengths(), LearntLengths(), np.random.default_rng(5)
    for number, length_s in enumerate(random.lognormal(7, 1.0, 200).tolist()):
        law.note("train", length_s)
        known.submitted(-number, "ann|train", 1, 7200.0 * number)
        known.ended(-number, length_s, 7200.0 * number + length_s)
    for number, (owner, had_s) in enumerate([("bob|train", 0.0), ("bob|train", 2048.0), ("ann|train", 0.0)]):
        known = known if owner == "ann|train" else LearntLengths()
        known.submitted(1000 + number, owner, 1, 4e6)
        left_s = drawn(known, lived(1000 + number, had_s), times=4000, law=law)[:, 0] - had_s
        rest = law.rest("train", had_s)
        for part, said_s in ((0.1, rest.p10_s), (0.5, rest.p50_s), (0.9, rest.p90_s)):
            assert np.quantile(left_s, part) == pytest.approx(said_s, rel=0.2), (owner, had_s, part)


def sweeps(*, alike: bool) -> LearntLengths:
    """Forty sweeps of ten, whose lengths are those of the sweep, or each its own."""
    random, known, job = np.random.default_rng(2), LearntLengths(), 0
    for sweep in range(40):
        level = random.lognormal(8, 1.5)
        for element in range(10):
            at_s = sweep * 90_000.0 + element
            length_s = level * random.lognormal(0, 0.05) if alike else random.lognormal(8, 1.5)
            known.submitted(job, "ann", 1, at_s)
            known.ended(job, length_s, at_s + length_s)
            job += 1
    for element in range(20):
        known.submitted(10_000 + element, "ann", 1, 4e6 + element)
    return known


def spread(known: LearntLengths) -> float:
    """p90 over p10 of how long twenty jobs that were just submitted take together."""
    low, high = np.quantile(drawn(known, *[lived(10_000 + n, 0.0) for n in range(20)]).sum(axis=1), [0.1, 0.9])
    return float(high / low)


def test_the_sum_of_a_sweep_is_far_less_sure_where_neighbours_are_alike() -> None:
    assert spread(sweeps(alike=True)) > 1.5 * spread(sweeps(alike=False))


def test_a_neighbour_that_has_ended_tells_the_length_of_those_behind_it() -> None:
    known = sweeps(alike=True)
    told = np.abs(drawn(known, lived(10_001, 0.0)) / 333.0 - 1) < 0.15
    known.ended(10_000, 333.0, 4e6 + 400)
    tells = np.abs(drawn(known, lived(10_001, 0.0)) / 333.0 - 1) < 0.15
    assert (told.mean() < 0.1, tells.mean() > 0.15) == (True, True)


def test_what_is_old_counts_less() -> None:
    known = taught([100.0] * 50)
    for number in range(20):
        known.submitted(1000 + number, "ann", 1, 100 * 86_400.0 + number * 7200)
        known.ended(1000 + number, 8000.0, 100 * 86_400.0 + number * 7200 + 8000)
    assert known.mean_s(1) > 6000


def test_counts_that_grow_with_time_are_begun_anew_before_they_are_too_large() -> None:
    known = LearntLengths()
    for number in range(60):
        known.submitted(number, "ann", 1, number * 10 * 86_400.0)
        known.ended(number, 500.0, number * 10 * 86_400.0 + 500)
    assert known.mean_s(1) == pytest.approx(1500, rel=0.6)
    assert max(known._jobs) < 3 * WEIGHT_MAX


@pytest.mark.parametrize("again", [False, True])
def test_those_that_run_for_months_are_as_few_as_they_were_among_all_that_came(again: bool) -> None:
    """Of 20,000 jobs a hundred run still; draws are as the others were, also after a restart."""
    known, random = LearntLengths(), np.random.default_rng(6)
    runs = list(range(0, 20_000, 200))
    lengths_s = random.lognormal(7, 0.5, 20_000)
    for number, length_s in enumerate(lengths_s.tolist()):
        known.submitted(number, "ann", 4, 600.0 * number)
        if number not in runs:
            known.ended(number, length_s, 600.0 * number + length_s)
    if again:
        known, kept = LearntLengths(), json.loads(json.dumps(known.kept()))
        known.take_back(kept)
        for number in runs:
            known.submitted(number, "ann", 4, 600.0 * number)
    now_s = 600.0 * 20_000
    known.submitted(20_000, "ann", 3, now_s)  # of their kind, and of their size none came before it
    found = drawn(known, *[lived(one, now_s - 600.0 * one) for one in runs], lived(20_000, 0.0), times=2000)[:, -1]
    assert np.quantile(found, 0.97) < 5 * lengths_s.mean()


def test_of_no_history_something_is_said_all_the_same() -> None:
    known = LearntLengths()
    known.submitted(1, "ann", 8, 0.0)
    assert np.isfinite(drawn(known, lived(1, 0.0))).all()
    assert known.mean_s(8) == 3600


def test_jobs_that_are_told_teach_how_long_others_of_their_kind_are_before_they_end() -> None:
    """Fifty wait that will run for a day, of a kind of which five were through in 100 s; of its size none came."""
    known = LearntLengths()
    for number in range(56):
        known.submitted(number, "ann", 3 if number == 55 else 4, 7200.0 * number)
    for number in range(5):
        known.ended(number, 100.0, 400_000.0)
    told = [lived(number, 0.0)._replace(left_s=86_400.0) for number in range(5, 55)]
    alone, beside = drawn(known, lived(55, 0.0))[:, 0], drawn(known, *told, lived(55, 0.0))[:, -1]
    assert ((beside > 10_000).mean() > 0.7, (alone > 10_000).mean() < 0.5) == (True, True)

"""What is said of a pool: by order, by what is told, and never of what was not known then."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from colane.foresee.foreseer import Foreseer
from colane.foresee.judged import Foretold, judged
from colane.foresee.rollout import FAR_S
from colane.foresee.said import AHEAD, BY_MEANS, ROLLED, StartQuote
from colane.foresee.scene import PoolScene, PresentJob


def present(
    job: int, left_s: float | None = None, *, gpus: int = 1, runs: bool = False, rank: float = 0.0
) -> PresentJob:
    return PresentJob(job, "ann", gpus, 0.0, left_s, None, None, runs, runs, (0.0, rank))


def quotes(foreseer: Foreseer, scene: PoolScene, asked: Collection[int]) -> list[StartQuote]:
    """What is said and kept."""
    said = foreseer.say(scene, asked)
    for one in said:
        foreseer.keep(one)
    return [one.quote for one in said]


def asked(*jobs: PresentJob, gpus: int = 2, of: int) -> tuple[Foreseer, tuple[float, ...]]:
    foreseer = Foreseer()
    for one in jobs:
        foreseer.submitted(one.job, one.owner, one.gpus, 0.0)
    return foreseer, foreseer.points(PoolScene(0.0, gpus, list(jobs)), [of])[of].starts_s


def test_where_all_is_told_a_roll_out_is_exact() -> None:
    _, said = asked(present(1, 100.0, runs=True), present(2, 300.0, runs=True), present(3, 50.0), present(4, 9.0), of=4)
    assert (said[ROLLED], said[BY_MEANS], said[AHEAD]) == (150.0, 150.0, 25.0)


@pytest.mark.parametrize(("rank", "starts_s"), [(0.0, 100.0), (2.0, 150.0)])
def test_the_order_says_which_goes_first(rank: float, starts_s: float) -> None:
    runs, waits = present(1, 100.0, gpus=2, runs=True), present(2, 50.0, gpus=2, rank=1.0)
    _, said = asked(runs, waits, present(3, 9.0, gpus=2, rank=rank), of=3)
    assert said[ROLLED] == starts_s


def test_of_one_rank_what_runs_goes_first() -> None:
    """As under LAS, where one that waits takes the place of later queues alone."""
    runs = present(2, 100.0, runs=True)._replace(stays=False)
    _, said = asked(present(1, 50.0), runs, gpus=1, of=1)
    assert said[ROLLED] == 100.0


@pytest.mark.parametrize(("jobs", "worlds"), [(100, 16), (8_000, 8)])
def test_of_a_longer_line_fewer_worlds_are_drawn(jobs: int, worlds: int) -> None:
    line = [present(one, 50.0) for one in range(2, jobs + 2)]
    foreseer = Foreseer()
    for one in (present(1, 100.0, runs=True), *line):
        foreseer.submitted(one.job, one.owner, one.gpus, 0.0)
    found = foreseer.points(PoolScene(0.0, 1, [present(1, 100.0, runs=True), *line]), [jobs + 1])[jobs + 1]
    assert (len(found.lengths_s), found.starts_s[ROLLED]) == (worlds, 100.0 + 50.0 * (jobs - 1))


def test_one_job_of_unknown_length_leaves_none_without_an_answer() -> None:
    _, said = asked(present(1, runs=True, gpus=2), present(2, 50.0), present(3), of=3)
    assert all(0 < one < FAR_S for one in (said[ROLLED], said[BY_MEANS]))


def test_a_job_that_is_told_hands_its_length_on_to_those_of_its_sweep() -> None:
    """It runs, or waits itself; of none of the sweep is any more known."""
    foreseer = Foreseer()
    for number in range(40):
        foreseer.submitted(number, "ann", 1, number % 2)
    for number in range(40):
        foreseer.ended(number, 100.0, 0.0)
    jobs = [present(40, 90_000.0, runs=True), *[present(number, 90_000.0) for number in range(41, 45)], present(45)]
    for one in jobs:
        foreseer.submitted(one.job, one.owner, one.gpus, 1e6)
    (length_s,) = [points.lengths_s for points in foreseer.points(PoolScene(1e6, 1, jobs), [45]).values()]
    assert sum([80_000.0 < one < 100_000.0 for one in length_s]) > 8


def test_a_limit_bounds_what_is_drawn() -> None:
    limited = present(1, runs=True, gpus=2)._replace(most_s=30.0)
    _, said = asked(limited, present(2), of=2)
    assert said[ROLLED] <= 30


def test_what_has_no_room_is_not_known_and_keeps_no_other_off() -> None:
    jobs = [present(1, gpus=3), present(2, 50.0)]
    foreseer, _ = asked(*jobs, of=2)
    scene = PoolScene(0.0, 2, jobs)
    assert not scene.is_beyond(jobs[0]._replace(least_gpus=1))
    assert not scene.is_beyond(jobs[0]._replace(runs=True))
    assert [one.job for one in quotes(foreseer, scene, [1, 2])] == [2]
    shown = foreseer.board(scene)
    assert shown[1].problem == "it asks for 3 GPUs of 2 to be had"
    assert not shown[2].problem
    assert shown[2].start is not None
    assert shown[2].start.p50_s < 60


def test_later_ones_that_pass_put_a_start_off() -> None:
    jobs = [present(1, 1000.0, runs=True), present(2, 9000.0, rank=9000.0)]
    alone, quiet = asked(*jobs, gpus=1, of=2)
    for number in range(2100, 3, -1):
        alone.ranked(present(number, 300.0, rank=300.0), -600.0 * number)
    busy = alone.points(PoolScene(0.0, 1, jobs), [2])[2].starts_s
    assert busy[ROLLED] > 1.2 * quiet[ROLLED]


def test_what_others_leave_their_gpus_for_is_told_by_what_came_of_such_alone() -> None:
    """They start at once; those that came beside them, behind the same jobs, after three hours."""
    foreseer = Foreseer()
    for number in range(40):
        at_s, waits = number * 40_000.0, [present(3 * number + 1), present(3 * number + 2)]
        jobs = [present(3 * number, 9000.0, gpus=2, runs=True), *waits]
        for one in jobs:
            foreseer.submitted(one.job, one.owner, one.gpus, at_s)
        scene = PoolScene(at_s, 2, jobs, cleared=frozenset({waits[0].job}))
        first, second = quotes(foreseer, scene, [one.job for one in waits])
        shown = foreseer.board(scene)
        for one, wait_s in zip(waits, (5.0, 10_000.0), strict=True):
            foreseer.started(one.job, at_s + wait_s)
        if number == 38:  # as over a restart
            kept, foreseer = foreseer.kept(), Foreseer(foreseer.lengths)
            foreseer.take_back(json.loads(json.dumps(kept)))
    assert first.start.is_known
    assert first.start.at_once > 0.9
    assert first.start.p10_s <= 5.0 <= first.start.p90_s
    assert second.start.at_once < 0.02
    assert second.start.p10_s > 3600
    for quote in (first, second):
        start = shown[quote.job].start
        assert start is not None
        assert start.at_once == pytest.approx(quote.start.at_once, abs=0.02)


def test_the_same_things_said_in_the_same_order_give_the_same_quotes() -> None:
    def said() -> list[object]:
        foreseer, scene = Foreseer(seed=7), PoolScene(0.0, 1, [present(1, runs=True), present(2), present(3)])
        for one in scene.present:
            foreseer.submitted(one.job, one.owner, one.gpus, 0.0)
        return list(quotes(foreseer, scene, [2, 3]))

    assert said() == said()


def test_quotes_are_judged_by_what_came_of_them() -> None:
    foreseer, scene = Foreseer(), PoolScene(0.0, 1, [present(1, 100.0, runs=True), present(2, 50.0)])
    for one in scene.present:
        foreseer.submitted(one.job, one.owner, one.gpus, 0.0)
    (quote,) = quotes(foreseer, scene, [2])
    half = [Foretold(quote, 100.0, 150.0), Foretold(quote, float("nan"), float("nan"))]
    found = judged([*half, Foretold(quote, 100.0, 150.0), Foretold(quote, 1e7, 1e7)])
    assert (found["foreseen"].quotes, found["foreseen"].holds, found["foreseen"].late) == (2, 0.5, 0.5)
    assert (found["foreseen"].known.quotes, found["end"].quotes) == (0, 2)
    assert judged([]) == {}

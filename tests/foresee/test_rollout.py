"""The bare loop starts jobs as a plain search over time does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.foresee.rollout import FAR_S, middles_s, point_said_s, starts_in_s
from colane.foresee.scene import PoolScene, PresentJob

JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 15)), max_size=8)


def searched(gpus: int, running: list[tuple[int, int]], line: list[tuple[int, int]], levels: list[int]) -> list[float]:
    """Second by second, each in order for which so many GPUs are free, while none of a level before waits."""
    stays = [(0, end, held) for end, held in running]
    found, now = dict[int, float](), 0
    while len(found) < len(line):
        for place, (asks, long) in enumerate(line):
            if place in found:
                continue
            if any(levels[one] < levels[place] and one not in found for one in range(place)):
                break
            if gpus - sum(held for start, end, held in stays if start <= now < end) >= asks:
                stays.append((now, now + long, asks))
                found[place] = float(now)
        now += 1
    return [found[place] for place in range(len(line))]


@given(JOBS, JOBS, st.sampled_from([1, 3, 8]))
def test_starts_are_those_of_a_plain_search(
    running: list[tuple[int, int]], line: list[tuple[int, int]], of_level: int
) -> None:
    gpus, levels = 4 + sum(held for held, _ in running), [place // of_level for place in range(len(line))]
    ends = [(float(end), held) for held, end in running]
    found = starts_in_s(4, ends, [asks for asks, _ in line], [float(long) for _, long in line], levels)
    assert found == searched(gpus, [(end, held) for held, end in running], line, levels)


def test_what_never_has_room_starts_far_off() -> None:
    assert min(starts_in_s(2, [(10.0, 1)], [4, 1], [5.0, 5.0], [0, 1])) >= FAR_S
    assert starts_in_s(2, [(10.0, 1)], [4, 1], [5.0, 5.0], [0, 0]) == [FAR_S, 0.0]


def present(job: int, gpus: int, left_s: float | None, *, runs: bool = False, stays: bool = False) -> PresentJob:
    return PresentJob(job, "ann|f", gpus, 0.0, left_s, None, None, runs, stays, (float(job),))


def test_by_the_middle_what_runs_stays_and_what_is_not_known_does_not_end() -> None:
    line = [present(3, 2, 100.0), present(4, 1, 50.0), present(4, 1, None), present(5, 3, 1.0), present(6, 1, 1.0)]
    found = middles_s(PoolScene(0.0, 2, [present(1, 1, 10.0, runs=True), present(2, 1, 30.0, runs=True), *line]))
    assert found[1] == (0.0, 10.0)
    assert found[3] == (30.0, 130.0)
    assert found[4][0] == 130.0, "of an array the first"
    assert found[4][1] >= FAR_S, "and the last, of which nothing is known"
    assert 5 not in found, "it asks for more than there is"
    assert found[6] == (180.0, 181.0)


def test_more_run_than_there_are_gpus_where_they_share() -> None:
    runs = [present(job, 1, 10.0 * job, runs=True) for job in range(1, 5)]
    assert middles_s(PoolScene(0.0, 2, [*runs, present(5, 1, 1.0)]))[5] == (10.0, 11.0)


@pytest.mark.parametrize(("start_s", "told"), [(0.0, None), (5.0, 5.0), (FAR_S, None), (float("inf"), None)])
def test_what_has_room_at_once_or_never_is_told_no_time(start_s: float, told: float | None) -> None:
    assert point_said_s(start_s) == told

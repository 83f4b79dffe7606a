"""The bare loop starts jobs as a plain search over time does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.foresee.rollout import FAR_S, starts_in_s

JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50)), max_size=12)


def searched(gpus: int, running: list[tuple[int, int]], line: list[tuple[int, int]]) -> list[float]:
    """Each at the first whole second, no sooner than the one before it, at which so many GPUs are free."""
    stays = [(0, end, held) for end, held in running]
    found, now = list[float](), 0
    for asks, long in line:
        while gpus - sum(held for start, end, held in stays if start <= now < end) < asks:
            now += 1
        stays.append((now, now + long, asks))
        found.append(float(now))
    return found


@given(JOBS, JOBS)
def test_starts_are_those_of_a_plain_search(running: list[tuple[int, int]], line: list[tuple[int, int]]) -> None:
    gpus = 4 + sum(held for held, _ in running)
    ends = [(float(end), held) for held, end in running]
    found = starts_in_s(4, ends, [asks for asks, _ in line], [float(long) for _, long in line])
    assert found == searched(gpus, [(end, held) for held, end in running], line)


def test_what_never_has_room_starts_far_off() -> None:
    assert min(starts_in_s(2, [(10.0, 1)], [4, 1], [5.0, 5.0])) >= FAR_S

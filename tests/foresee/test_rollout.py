"""The bare loop starts jobs as a plain search over time does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.foresee.rollout import FAR_S, starts_in_s

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

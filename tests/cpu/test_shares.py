"""How a node's cores are shared out among the jobs whose cores are tuned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.cpu.shares import Share, share_out
from colane.model.job import JobId
from tests.examples import examples


def share(job: int, has: int, wants: int, part: int) -> Share:
    return Share(JobId(job), has, wants, part)


def test_what_is_free_goes_to_those_that_have_least_of_their_part() -> None:
    assert share_out([share(1, 1, 4, 4), share(2, 3, 4, 4)], 2) == {1: 3}
    assert share_out([share(1, 1, 4, 4), share(2, 3, 4, 4)], 9) == {1: 4, 2: 4}
    assert share_out([share(1, 4, 4, 4)], 9) == {}


def test_what_one_has_above_its_part_goes_to_those_below_theirs() -> None:
    assert share_out([share(1, 10, 12, 4), share(2, 1, 3, 4)], 0) == {1: 8, 2: 3}
    assert share_out([share(1, 10, 12, 4), share(2, 1, 9, 4)], 0) == {1: 7, 2: 4}
    assert share_out([share(1, 4, 12, 4), share(2, 1, 3, 4)], 0) == {}
    assert share_out([share(1, 6, 6, 2), share(2, 5, 5, 2), share(3, 1, 3, 2)], 0) == {1: 5, 3: 2}


SHARES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 8)), min_size=1, max_size=8)


@given(SHARES, st.integers(-3, 12))
@examples(300)
def test_no_core_is_made_none_is_left_to_jobs_that_lack_and_no_part_is_cut(
    drawn: list[tuple[int, int, int]], free: int
) -> None:
    shares = [share(job, has, max(has, wants), part) for job, (has, wants, part) in enumerate(drawn, 1)]
    changed = share_out(shares, free)
    after = {each.job: changed.get(each.job, each.has) for each in shares}
    more = sum(after.values()) - sum(each.has for each in shares)
    assert 0 <= more <= max(0, free)
    assert set(changed) == {each.job for each in shares if after[each.job] != each.has}
    for each in shares:
        assert min(each.has, each.part) <= after[each.job] <= each.wants
    lacks = [each for each in shares if after[each.job] < each.wants]
    assert not lacks or more == max(0, free)
    poor = [each for each in shares if after[each.job] < min(each.wants, each.part)]
    assert not poor or all(after[each.job] <= each.part for each in shares)
    again = [share(each.job, after[each.job], each.wants, each.part) for each in shares]
    assert share_out(again, max(0, free) - more) == {}

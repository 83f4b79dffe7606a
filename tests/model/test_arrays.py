"""Arrays in words: which indexes a text names, what is refused and why, and sets of elements."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model import arrays
from colane.model.arrays import Indexes, array_of, parse_array, parse_indexes, parse_name
from colane.model.phases import Element, JobId
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "shown", "throttle", "indexes"),
    [
        ("0-3", "0-3", None, [0, 1, 2, 3]),
        ("0-3%8", "0-3%8", 8, [0, 1, 2, 3]),
        (" 0-3 %2 ", "0-3%2", 2, [0, 1, 2, 3]),
        ("7", "7", None, [7]),
        ("7-7", "7", None, [7]),
        ("9,1,3-4", "1,3-4,9", None, [1, 3, 4, 9]),
        ("0-10:5", "0-10:5", None, [0, 5, 10]),
        ("0-9:5%1", "0-5:5%1", 1, [0, 5]),
        ("3-4:7", "3", None, [3]),
        ("2147483647", "2147483647", None, [2147483647]),
        ("1, 2", "1,2", None, [1, 2]),
    ],
)
def test_what_is_named(text: str, shown: str, throttle: int | None, indexes: list[int]) -> None:
    asked = parse_array(text)
    assert (str(asked), asked.throttle, asked.indexes.size) == (shown, throttle, len(indexes))
    assert [asked.indexes.index_of(ordinal) for ordinal in range(len(indexes))] == indexes
    assert [asked.indexes.ordinal_of(index) for index in indexes] == list(range(len(indexes)))
    assert (asked.indexes.first, asked.indexes.last) == (indexes[0], indexes[-1])
    assert asked.indexes.ordinal_of(indexes[-1] + 1) is None
    assert parse_array(str(asked)) == asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-99%0", "%0 lets no element run: give at least %1, or leave it out"),
        ("0-99%", "must be indexes as 0-99"),
        ("0-99%-1", "must be indexes as 0-99"),
        ("0-99%1%2", "must be indexes as 0-99"),
        ("0-99%1e3", "must be indexes as 0-99"),
        ("5-1", "5-1 goes down: write 1-5"),
        ("0-1e9", "must be indexes as 0-99"),
        ("0-1000000000", "names 1,000,000,001 elements, and may name 1,000,000"),
        ("0-9999999999", "0-9999999999 has an index above 2147483647"),
        ("0-99999999999", "must be indexes as 0-99"),
        ("-1", "must be indexes as 0-99"),
        ("-5-1", "must be indexes as 0-99"),
        ("0-5,3", "names indexes twice: 0-5 and 3 overlap"),
        ("3,3", "names indexes twice: 3 and 3 overlap"),
        ("0-10:2,1-11:2", "names indexes twice: 0-10:2 and 1-11:2 overlap"),
        ("0-9:0", "0-9:0 has a step of 0"),
        ("", "must be indexes as 0-99"),
        (",", "must be indexes as 0-99"),
        ("1,,2", "must be indexes as 0-99"),
        ("a", "must be indexes as 0-99"),
        ("٣", "must be indexes as 0-99"),
        ("1.5", "must be indexes as 0-99"),
        (",".join(str(2 * index) for index in range(1_001)), "names 1001 separate ranges, and may name 1000"),
    ],
)
def test_what_is_refused_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        parse_array(text)


@pytest.mark.parametrize(
    ("text", "job", "elements"),
    [("12", 12, None), ("12[3]", 12, "3"), ("12[3,7-9]", 12, "3,7-9"), ("12_3", 12, "3"), (" 12[0-8:4] ", 12, "0-8:4")],
)
def test_names_of_jobs(text: str, job: int, elements: str | None) -> None:
    named, indexes = parse_name(text)
    assert (named, None if indexes is None else str(indexes)) == (job, elements)
    one = None if elements is None or not elements.isdecimal() else str(Element(JobId(job), int(elements)))
    assert one in {None, text, text.replace("_3", "[3]")}


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "x", "12[", "12[]", "12]", "12[3", "12[3]4", "12[a]", "12[3][4]", "1" * 16]
)
def test_what_names_no_job(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_name(text)


def test_elements_have_the_ids_behind_their_arrays() -> None:
    array, owner = array_of(parse_array("0-8:4,100")), JobId(12)
    assert [arrays.has(owner, array, job) for job in (12, 13, 16, 17)] == [False, True, True, False]
    assert [str(arrays.element_of(owner, array, job)) for job in (13, 14, 15, 16)] == [
        "12[0]",
        "12[4]",
        "12[8]",
        "12[100]",
    ]
    assert arrays.element_id(owner, 3) == 16


INDEXES = st.sets(st.integers(0, 60), min_size=1, max_size=20)
RANGES = st.sets(st.integers(0, 40), max_size=20).map(lambda found: arrays.joined([(one, one) for one in found]))


def as_text(indexes: set[int]) -> str:
    return ",".join(map(str, sorted(indexes)))


@examples(200)
@given(INDEXES, INDEXES, st.booleans())
def test_elements_with_indexes_are_those_that_have_them(own: set[int], wanted: set[int], is_run: bool) -> None:
    asked = parse_indexes(f"{min(wanted)}-{max(wanted)}" if is_run else as_text(wanted))
    wanted = set(range(min(wanted), max(wanted) + 1)) if is_run else wanted
    found, missing = parse_indexes(as_text(own)).ordinals_of(asked)
    order = sorted(own)
    assert {order[ordinal] for ordinal in arrays.each_of(found)} == own & wanted
    assert missing == min(wanted - own, default=None)


def test_elements_of_steps_are_found_in_ranges_and_the_reverse() -> None:
    whole = parse_indexes("0-20:5,30-32")
    assert whole.ordinals_of(parse_indexes("4-31")) == (((1, 6),), 4)
    assert whole.ordinals_of(parse_indexes("0-10:10,31")) == (((0, 0), (2, 2), (6, 6)), None)
    assert parse_indexes("0-999999").ordinals_of(parse_indexes("5-999999")) == (((5, 999_999),), None)


@examples(200)
@given(RANGES, RANGES, st.integers(0, 50))
def test_sets_of_elements(ranges: tuple[tuple[int, int], ...], others: tuple[tuple[int, int], ...], most: int) -> None:
    one, two = set(arrays.each_of(ranges)), set(arrays.each_of(others))
    assert set(arrays.each_of(arrays.both(ranges, others))) == one & two
    assert set(arrays.each_of(arrays.without(ranges, others))) == one - two
    assert set(arrays.each_of(arrays.joined([*ranges, *others]))) == one | two
    assert arrays.first_of(ranges, most) == tuple(sorted(one)[:most])
    assert arrays.number_of(ranges) == len(one)


def test_indexes_beyond_the_last_are_none() -> None:
    with pytest.raises(IndexError):
        Indexes(parse_indexes("0-3").ranges).index_of(4)

"""Amounts with units: what is read, what is refused in one sentence, and that what is written is read back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.quantities import (
    DURATION_UNITS,
    SIZE_UNITS,
    parse_bandwidth_bytes_per_s,
    parse_count,
    parse_duration_s,
    parse_number,
    parse_size_bytes,
)

PARSERS: tuple[Callable[[object], float], ...] = (
    parse_duration_s, parse_size_bytes, parse_bandwidth_bytes_per_s, parse_count, parse_number,
)  # fmt: skip
UNITS = sorted(DURATION_UNITS.keys() - {""})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("5", 5), ("2GB", 2 * 10**9), ("4g", 4 * 10**9), ("1.5 kB", 1500), ("512mib", 2**29), ("1TiB", 2**40),
        (" 2 GiB ", 2**31), (7, 7),
    ],
)  # fmt: skip
def test_sizes(text: object, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("90", 90), ("1h30m", 5400), ("250ms", 0.25), ("2 d", 172800), ("1h 30min", 5400), (1.5, 1.5),
        ("5:00", 300), ("01:30:00", 5400), ("100:00:01", 360001), ("1-0", 86400), ("1-12", 129600),
        ("1-12:30", 131400), ("1-12:30:15", 131415),
    ],
)  # fmt: skip
def test_durations(text: object, duration_s: float) -> None:
    assert parse_duration_s(text) == duration_s


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("20GB/s", 2e10),
        ("20 gb / sec", 2e10),
        ("8Gb/s", 1e9),
        ("8Gbit/s", 1e9),
        ("8 gbits/s", 1e9),
        ("1GB", 1e9),
        (5, 5),
    ],
)
def test_bandwidths(text: object, bytes_per_s: float) -> None:
    assert parse_bandwidth_bytes_per_s(text) == bytes_per_s


@pytest.mark.parametrize("text", ["", " ", "-1", "GB", "1PB", "2GB!", "nan", "inf", "1 parsec", -1, True, None, []])
@pytest.mark.parametrize("parse", PARSERS)
def test_what_is_no_quantity_is_refused(parse: Callable[[object], float], text: object) -> None:
    with pytest.raises(ValueError, match=r"^must be .*, got "):
        parse(text)


@pytest.mark.parametrize("text", ["1:60", "1:2:3:4", ":30", "1-", "-1:00", "1:00:60", "1-2:3:4:5", "1.5:00"])
def test_broken_clock_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 90"):
        parse_duration_s(text)


def test_a_count_out_of_range_names_the_range() -> None:
    with pytest.raises(ValueError, match="must be a whole number from 1 to 8, got '9'"):
        parse_count("9", 1, 8)
    with pytest.raises(ValueError, match=r"must be a whole number from 0 up, got 1\.5"):
        parse_count(1.5)
    with pytest.raises(ValueError, match="must be a number from 0 to 1, got '2'"):
        parse_number("2", most=1.0)


@given(number=st.integers(0, 10**15), unit=st.sampled_from(sorted(SIZE_UNITS)))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert (
        parse_size_bytes(f"{number}{unit.upper()}")
        == parse_size_bytes(f" {number} {unit} ")
        == number * SIZE_UNITS[unit]
    )
    assert parse_bandwidth_bytes_per_s(f"{number}{unit.upper()}/s") == float(number * SIZE_UNITS[unit])


@given(parts=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(UNITS)), min_size=1))
def test_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    total_s = parse_duration_s("".join(f"{number}{unit}" for number, unit in parts))
    assert total_s == pytest.approx(sum(number * DURATION_UNITS[unit] for number, unit in parts))


@given(days=st.integers(0, 10**4), hours=st.integers(0, 99), minutes=st.integers(0, 59), seconds=st.integers(0, 59))
def test_clock_times_are_the_same_duration_in_units(days: int, hours: int, minutes: int, seconds: int) -> None:
    clock = f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    assert parse_duration_s(clock) == parse_duration_s(f"{days}d{hours}h{minutes}m{seconds}s")


@given(text=st.text(max_size=60), parse=st.sampled_from(PARSERS))
def test_any_text_is_read_or_refused_in_one_short_line(text: str, parse: Callable[[object], float]) -> None:
    try:
        problem = "" if parse(text) >= 0 else "less than 0"
    except ValueError as error:
        problem = str(error)
    assert not problem or (problem.startswith("must be ") and len(problem) < 400)

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.agent.files.logs import read_log, read_tail, segments
from colane.agent.supervisor import shim_files
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler


def write(place: Path, parts: dict[int, bytes]) -> Path:
    for offset, data in parts.items():
        (place / f"log.{offset}").write_bytes(data)
    return place


def test_ranges(tmp_path: Path) -> None:
    write(tmp_path, {0: b"abcde", 5: b"fghij", 10: b"kl"})
    assert read_log(tmp_path) == (b"abcdefghijkl", 12)
    assert read_log(tmp_path, 3, 4) == (b"defg", 7)
    assert read_log(tmp_path, -3) == (b"jkl", 12)
    assert read_log(tmp_path, -100) == (b"abcdefghijkl", 12)
    assert read_log(tmp_path, 12) == (b"", 12)
    assert read_log(tmp_path, 50) == (b"", 50)
    assert read_log(tmp_path, 0, 0) == (b"", 0)
    assert read_tail(tmp_path, 2) == "kl"


def test_a_gap_says_how_much_is_missing(tmp_path: Path) -> None:
    write(tmp_path, {0: b"abc", 100: b"xyz"})
    assert read_log(tmp_path) == (b"abc\n[... 97 bytes were not kept ...]\nxyz", 103)
    assert read_log(tmp_path, 50) == (b"\n[... 50 bytes were not kept ...]\nxyz", 103)


def test_no_log_yet(tmp_path: Path) -> None:
    assert read_log(tmp_path) == (b"", 0)
    assert read_tail(tmp_path, 10) == ""


def test_followers_read_every_byte_once(tmp_path: Path) -> None:
    write(tmp_path, {0: b"abcde", 5: b"fghij"})
    offset, seen = 0, b""
    while part := read_log(tmp_path, offset, 3):
        if not part.data:
            break
        seen, offset = seen + part.data, part.next_offset
    assert seen == b"abcdefghij"


def test_a_segment_that_vanishes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {0: b"abc", 3: b"def", 6: b"ghi"})
    kept = segments(tmp_path)
    (tmp_path / "log.3").unlink()
    monkeypatch.setattr("colane.agent.files.logs.segments", lambda _: kept)
    assert read_log(tmp_path) == (b"abcghi", 9)


@given(cap=st.integers(8, 200), chunks=st.lists(st.binary(max_size=50), max_size=30))
def test_first_and_latest_output_is_kept_within_the_cap(
    tmp_path_factory: pytest.TempPathFactory, cap: int, chunks: list[bytes]
) -> None:
    place = tmp_path_factory.mktemp("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        log = shim_files.CappedLog(cap)
        for chunk in chunks:
            log.write(chunk)
        log.close()
    whole = b"".join(chunks)
    kept = segments(place)
    assert log.seen_bytes == len(whole)
    assert sum(segment.size for segment in kept) <= cap
    assert all(segment.path.read_bytes() == whole[segment.start : segment.end] for segment in kept)
    assert log.truncated == (sum(segment.size for segment in kept) < len(whole))
    half = shim_files.LOG_SEGMENTS // 2 * (cap // shim_files.LOG_SEGMENTS)
    assert read_log(place, 0, min(half, len(whole))).data == whole[:half]
    tail = half - cap // shim_files.LOG_SEGMENTS
    assert tail == 0 or read_log(place, -tail, tail).data == whole[-tail:]


@pytest.mark.live
@pytest.mark.parametrize("path", ["/log/1/" + "9" * 5000, "/log/-1/1", "/log/a/b", "/log/٣/1"])
async def test_a_path_that_names_no_attempt(fake: FakeScheduler, tmp_path: Path, path: str) -> None:
    async with running(tmp_path, fake) as agent:
        assert (await agent.get(path)).status_code == 404

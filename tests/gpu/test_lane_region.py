"""The experiment with one region for a lane on a double of the driver: allocator, sharing by processes, its flag."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from gpu.lane_region_job import load

from tests.gpu.test_scripts import ROOT, read, run

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="the experiment needs gcc")

MIB = 2**20
CHUNKS = 4


def build(source: Path, to: Path) -> str:
    words: list[str | Path] = [
        "gcc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        to,
        source,
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(words, check=True)
    return str(to)


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """A region of 16 MiB on the double."""
    fake = build(ROOT / "tests" / "gpu" / "fake_cuda.c", tmp_path / "fake_cuda.so")
    monkeypatch.setenv("LANE_REGION_LIBCUDA", fake)
    found = load(build(ROOT / "gpu" / "lane_region.c", tmp_path / "lane_region.so"))
    assert found.lane_open(0, CHUNKS * 4 * MIB, 4 * MIB, 0, None) == 0
    assert (found.lane_chunks(), found.lane_total()) == (CHUNKS, 16 * MIB)
    return found


def test_blocks_do_not_overlap_and_come_back_whole(lane: ctypes.CDLL) -> None:
    lots = Random(7)
    held: dict[int, int] = {}
    for _ in range(2000):
        if held and lots.random() < 0.5:
            place = lots.choice(list(held))
            lane.lane_free(place, held.pop(place), 0, None)
            continue
        size = lots.choice((1, MIB, 2 * MIB, 3 * MIB, 7 * MIB))
        place = lane.lane_malloc(size, 0, None)
        assert place
        assert all(place + size <= other or other + held[other] <= place for other in held)
        held[place] = size
    for place, size in held.items():
        lane.lane_free(place, size, 0, None)
    assert (lane.lane_used(), lane.lane_high() <= lane.lane_total()) == (0, True)
    whole = lane.lane_malloc(lane.lane_total(), 0, None)
    assert whole == lane.lane_base()


def test_a_full_region_falls_back_to_private_memory(lane: ctypes.CDLL) -> None:
    whole = lane.lane_malloc(16 * MIB, 0, None)
    more = lane.lane_malloc(MIB, 0, None)
    assert more
    assert not whole <= more < whole + 16 * MIB
    assert lane.lane_fallbacks() == 1
    lane.lane_free(more, MIB, 0, None)
    assert lane.lane_used() == 16 * MIB


def test_what_is_mapped_anew_is_still_there(lane: ctypes.CDLL) -> None:
    assert lane.lane_fill(0, 7, lane.lane_total()) == 0
    assert (lane.lane_unmap(), lane.lane_map()) == (0, 0)
    last = ctypes.c_ubyte()
    assert lane.lane_read(ctypes.byref(last), 16 * MIB - 1, 1) == 0
    assert last.value == 7


@pytest.mark.live
def test_processes_share_a_region_that_outlives_its_maker(tmp_path: Path) -> None:
    where = ("--tiny", "--out", tmp_path / "out", "--state", tmp_path / "state")
    code, lines = run("lane_region.py", "--region", *where)
    assert code == 0, lines
    share = read(tmp_path / "out" / "lane_region" / "share.json")
    assert (share["status"], share["chunks"], share["turns"]) == ("complete", CHUNKS, 30)
    assert all(check["passed"] for check in share["checks"])


def test_without_its_flag_it_says_what_it_is(tmp_path: Path) -> None:
    code, lines = run("lane_region.py", "--tiny", "--out", tmp_path)
    assert (code, lines) == (0, [{"script": "lane_region", "status": "an experiment; give --region to run it"}])
    assert list(tmp_path.iterdir()) == []

"""The agent's side of control pages: what a job may put in their place harms no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colane.adaptor import turns, wire
from colane.adaptor.writer import CONTROL_OFFSET
from colane.agent.files.jobdir import RANKS_MAX
from colane.agent.gate import page
from colane.agent.gate.page import ControlPage, PageCounters, pages_of


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    path = tmp_path / "steps"
    wire.create(path)
    return path


def words(path: Path) -> tuple[int, ...]:
    data = path.read_bytes()[CONTROL_OFFSET : CONTROL_OFFSET + 24]
    return tuple(memoryview(data).cast("Q"))


def test_orders_are_read_by_the_job(steps: Path) -> None:
    page = ControlPage(steps)
    writer = wire.Writer(str(steps))
    page.order(flag=True, pause_at=7, flush=True)
    assert [writer.control[word] for word in (turns.FLAG, turns.PAUSE_AT, turns.FLUSH)] == [1, 7, 1]
    page.order(flag=False, pause_at=0, flush=False)
    assert words(steps) == (0, 0, 0)
    writer.step(1.0, 0.1)
    assert page.counters() == PageCounters(os.getpid(), 1, is_computing=False)
    writer.set_phase(wire.IN_STEP)
    assert page.counters().is_computing
    writer.close()
    page.close()


def test_a_truncated_file_reports_nothing(steps: Path) -> None:
    page = ControlPage(steps)
    os.truncate(steps, 0)
    assert page.counters() == PageCounters(0, 0, is_computing=False)
    page.order(flag=True, pause_at=0, flush=False)
    page.close()


def test_only_plain_files_of_one_name_are_written(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * 9000)
    (tmp_path / "linked").symlink_to(precious)
    (tmp_path / "hard").hardlink_to(precious)
    os.mkfifo(tmp_path / "pipe")
    for name in ("linked", "hard", "pipe", "absent", "."):
        with pytest.raises(OSError, match=r".+"):
            ControlPage(tmp_path / name)
    assert precious.read_bytes() == b"x" * 9000


def test_pages_are_found_by_rank(tmp_path: Path, steps: Path) -> None:
    for name in ("steps.1", "steps.12", "steps.x", f"steps.{RANKS_MAX}", "steps.new", "other.2", "steps.-1"):
        wire.create(tmp_path / name)
    assert pages_of(steps) == {0: steps, 1: tmp_path / "steps.1", 12: tmp_path / "steps.12"}
    assert pages_of(tmp_path / "gone" / "steps") == {0: tmp_path / "gone" / "steps"}


def test_a_folder_that_its_job_fills_is_looked_through_no_further_than_names_may_be(
    steps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked at anew whenever the job changes it."""
    for number in range(1, 40):
        (steps.parent / f"{steps.name}.{number}").touch()
    monkeypatch.setattr(page, "NAMES_MAX", 10)
    assert len(pages_of(steps)) <= 11

"""A disk that is full, or fills up, costs jobs and not the service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.disks import fill, small_disk

__all__ = ["small_disk"]

pytestmark = pytest.mark.live


async def test_a_full_disk_refuses_jobs_and_not_the_service(
    fake: FakeScheduler, small_disk: Path, mark: dict[str, str]
) -> None:
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: fake.reports)
        filler = small_disk / "filler"
        fill(filler)
        fake.want(7, "true", env=mark)
        await agent.until(lambda: fake.ends)
        assert "cannot be written: No space left on device" in fake.ends[7, 1]["detail"]
        assert fake.ends[7, 1]["outcome"] == "node-fault"
        await agent.until(lambda: "takes no jobs" in str(fake.reports[-1]["messages"]))
        assert [gpu["healthy"] for gpu in fake.reports[-1]["gpus"]] == [False]
        fake.want(9, "true", env=mark)
        await agent.until(lambda: (9, 1) in fake.ends)  # it waited for the end of the fault in vain
        assert fake.ends[9, 1]["outcome"] == "node-fault"
        filler.unlink()
        await agent.until(lambda: fake.reports[-1]["gpus"][0]["healthy"])
        assert fake.reports[-1]["messages"] == []
        fake.want(8, "true", env=mark)
        await agent.until(lambda: (8, 1) in fake.ends)
    assert fake.ends[8, 1]["exit_code"] == 0


async def test_a_disk_that_fills_up_while_a_job_runs(
    fake: FakeScheduler, small_disk: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sh", "-c", f"cat /dev/zero >{small_disk}/filler; exit 5", env=mark)
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: fake.ends)
    assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 5)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A pipe that a job reads a line of, and our end; open both ways, so that neither side waits for the other."""
    path = tmp_path / "door"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    yield path, end
    os.close(end)


async def test_an_end_is_told_at_once_though_others_have_filled_the_disk(
    fake: FakeScheduler, small_disk: Path, mark: dict[str, str], door: tuple[Path, int]
) -> None:
    fake.want(7, "sh", "-c", f"echo begins; read line <{door[0]}; echo ends; exit 5", env=mark)
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: fake.launched(7))
        fill(small_disk / "filler")
        os.write(door[1], b"go\n")
        await agent.until(lambda: (7, 1) in fake.ends)
    end = fake.ends[7, 1]
    assert (end["outcome"], end["exit_code"], end["start_s"] is not None) == ("exited", 5, True)


async def test_an_agent_that_starts_on_a_full_disk_tells_of_what_ended_meanwhile(
    fake: FakeScheduler, small_disk: Path, mark: dict[str, str], door: tuple[Path, int]
) -> None:
    fake.want(7, "sh", "-c", f"read line <{door[0]}; exit 5", env=mark)
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: fake.launched(7))
    fill(small_disk / "filler")
    os.write(door[1], b"go\n")
    async with running(small_disk / "state", fake) as agent:
        await agent.until(lambda: (7, 1) in fake.ends)
    assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 5)

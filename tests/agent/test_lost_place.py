"""Directories that are deleted under a running agent cost what ran in them, and no job runs twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.errors import AgentError
from tests.agent.agents import Running, running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.live


async def started(agent: Running, fake: FakeScheduler, mark: dict[str, str]) -> int:
    """Have a job run that never ends by itself; give its process."""
    fake.want(7, "sleep", "1000", env=mark)
    return int((await agent.until(lambda: fake.launched(7)))["pid"])


def left_at(state: Path) -> list[str]:
    return [str(path) for path in state.parent.glob(f"{state.name}*")]


def lose(state: Path, how: str) -> None:
    """Take the directory away."""
    if how == "moved":
        state.rename(state.with_name("elsewhere"))
    else:
        shutil.rmtree(state / "jobs" if how == "emptied" else state)
    if how == "replaced":
        for path in (state, state / "jobs", state / "ended"):
            path.mkdir()


async def run_and_lose(fake: FakeScheduler, state: Path, mark: dict[str, str], how: str) -> None:
    async with running(state, fake) as agent:
        await started(agent, fake, mark)
        lose(state, how)
        await agent.task


@pytest.mark.parametrize("how", ["deleted", "moved", "emptied", "replaced"])
async def test_an_agent_without_its_directory_ends_its_jobs_and_says_so(
    fake: FakeScheduler, state: Path, mark: dict[str, str], how: str
) -> None:
    with pytest.raises(AgentError, match="deleted, moved or replaced while the agent ran: its jobs were stopped"):
        await run_and_lose(fake, state, mark, how)
    assert fake.ends[7, 1]["outcome"] == "supervisor-died"
    assert str(state) in fake.ends[7, 1]["detail"]
    assert processes.marked(b"COLANE_TEST_MARK=" + mark["COLANE_TEST_MARK"].encode()) == []


@pytest.mark.parametrize("how", ["deleted", "emptied", "replaced"])
async def test_the_next_agent_in_its_place_is_the_same_to_the_scheduler(
    fake: FakeScheduler, state: Path, mark: dict[str, str], how: str
) -> None:
    with pytest.raises(AgentError, match="deleted, moved or replaced"):
        await run_and_lose(fake, state, mark, how)
    fake.want(8, "true", env=mark)
    async with running(state, fake) as agent:
        await agent.until(lambda: (8, 1) in fake.ends)
    assert fake.ends[8, 1]["exit_code"] == 0


async def test_who_moves_a_directory_takes_its_identity_along(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    with pytest.raises(AgentError, match="deleted, moved or replaced"):
        await run_and_lose(fake, state, mark, "moved")
    assert left_at(state) == []


async def test_a_job_whose_directory_was_deleted_ends_and_does_not_run_twice(
    fake: FakeScheduler, state: Path, mark: dict[str, str], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    fake.want(7, "sh", "-c", f"echo $$ >> {runs}; exec sleep 1000", env=mark)
    async with running(state, fake) as agent:
        pid = int((await agent.until(lambda: fake.launched(7)))["pid"])
        shutil.rmtree(state / "jobs" / "7-1")
        await agent.until(lambda: (7, 1) in fake.ends)
        assert processes.identify(pid) is None
        fake.want(8, "true", env=mark)
        await agent.until(lambda: (8, 1) in fake.ends)
    assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["detail"]) == (
        "supervisor-died",
        "its directory was deleted while it ran",
    )
    assert runs.read_text().splitlines() == [str(pid)]
    assert fake.ends[8, 1]["exit_code"] == 0

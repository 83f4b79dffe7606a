"""The scheduler's records were lost: it counts its jobs from 1 again, and means others by the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.live


async def test_a_job_of_a_new_cluster_runs_though_one_of_its_number_has_ended_here(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    fake.cluster_id = "first"
    fake.want(1, "true", env=mark)
    fake.want(2, "sleep", "600", env=mark)
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: (1, 1) in fake.ends and fake.launched(2))
        lost = FakeScheduler()
        fake.__dict__.update(lost.__dict__)
        fake.cluster_id = "second"
        fake.want(1, "sh", "-c", "exit 3", env=mark)
        await agent.until(lambda: fake.ends.get((1, 1), {}).get("exit_code") == 3)
        assert fake.ends[2, 1]["cluster_id"] == "first"
        assert fake.ends[1, 1]["cluster_id"] == "second"
    assert (tmp_path / "state" / "former" / "2-1").is_dir()

"""Jobs end by themselves when the scheduler was not heard of for their lease, whatever has become of the agent."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest

from colane.agent import shim, shim_files
from colane.agent.lease import KILL_MARGIN_S, Lease
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

LEASE_S = 3.0


class TestFile:
    def test_it_is_endless_until_it_is_bound(self, tmp_path: Path) -> None:
        lease = Lease(tmp_path, grace_s=10.0)
        assert not lease.is_bound
        assert shim_files.read_lease(str(tmp_path / shim_files.LEASE)) == (math.inf, math.inf)
        lease.renew(100.0, 30.0)
        assert shim_files.read_lease(str(tmp_path / shim_files.LEASE)) == (129.0 - 10.0, 129.0)
        assert Lease(tmp_path, grace_s=10.0).is_bound
        lease.renew(200.0, None)
        assert shim_files.read_lease(str(tmp_path / shim_files.LEASE)) == (math.inf, math.inf)
        lease.close()

    @pytest.mark.parametrize("lease_s", [0.5, 2.0, 5.0, 60.0])
    def test_the_end_is_within_it_and_leaves_time_to_stop(self, tmp_path: Path, lease_s: float) -> None:
        lease = Lease(tmp_path, grace_s=10.0)
        lease.renew(0.0, lease_s)
        known = shim_files.read_lease(str(tmp_path / shim_files.LEASE))
        assert known is not None
        assert 0.0 <= known[0] < known[1] <= max(lease_s - KILL_MARGIN_S, lease_s / 2)
        lease.close()

    @pytest.mark.parametrize("text", ["", "1 2", "1 2 1 3", "a b a b c"])
    def test_one_that_is_not_whole_is_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "lease").write_text(text)
        assert shim_files.read_lease(str(tmp_path / "lease")) is None


@pytest.mark.live
class TestJobs:
    async def test_a_scheduler_that_is_away_for_too_long_ends_them(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        fake.lease_s = LEASE_S
        fake.want(7, "sleep", "600", env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: fake.launched(7))
            fake.away = True
            await agent.until((tmp_path / "jobs" / "7-1" / "exit").exists)
            fake.away = False
            await agent.until(lambda: fake.ends)
        end = fake.ends[7, 1]
        assert (end["outcome"], end["signal"], end["detail"]) == ("lease-run-out", signal.SIGTERM, shim.NO_WORD)

    async def test_one_whose_lease_is_endless_goes_on(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        fake.want(7, "sh", "-c", f"sleep {LEASE_S}; exit 4", env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: fake.launched(7))
            fake.away = True
            await agent.until((tmp_path / "jobs" / "7-1" / "exit").exists)
            fake.away = False
            await agent.until(lambda: fake.ends)
        assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 4)

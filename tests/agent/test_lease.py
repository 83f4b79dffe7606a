"""Jobs end by themselves when the scheduler was not heard of for their lease, whatever has become of the agent."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest

from colane.agent.running.jobdir import JobDir
from colane.agent.running.lease import KILL_MARGIN_S, Lease, since_boot_s
from colane.agent.supervisor import shim, shim_files
from colane.server.nodes.leases import DRIFT_RATIO
from colane.settings import table
from colane.settings.readers import LEASE_MIN_S
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

    def test_the_shortest_that_is_taken_outlasts_two_late_reports(self, tmp_path: Path) -> None:
        lease = Lease(tmp_path, grace_s=3600.0)
        lease.renew(0.0, LEASE_MIN_S / (1 + DRIFT_RATIO))
        known = shim_files.read_lease(str(tmp_path / shim_files.LEASE))
        assert known is not None
        assert known[0] > 2.5 * float(str(table.HEARTBEAT.default))
        lease.close()

    def test_reports_are_due_three_times_in_it(self, tmp_path: Path) -> None:
        lease = Lease(tmp_path, grace_s=10.0)
        due_s = [lease.report_within_s]
        for lease_s in (30.0, 15.0, None):
            lease.renew(0.0, lease_s)
            due_s.append(lease.report_within_s)
        assert due_s == [math.inf, 10.0, 5.0, math.inf]
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

    async def test_one_that_has_run_out_is_not_renewed_before_they_have_ended(
        self, fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
    ) -> None:
        """On a machine that stood still the agent may be the first to wake; here a supervisor still sleeps."""
        lease = str(tmp_path / shim_files.LEASE)
        fake.lease_s = LEASE_S
        fake.want(7, "sleep", "600", env=mark)
        async with running(tmp_path, fake) as agent:
            await agent.until(lambda: fake.launched(7))
            supervisor = JobDir(tmp_path / "jobs" / "7-1").claimed_by()
            assert supervisor is not None
            os.kill(supervisor.pid, signal.SIGSTOP)
            fake.away = True
            await agent.until(lambda: _stop_s(lease) <= since_boot_s())
            run_out_s, reports = _stop_s(lease), len(fake.reports)
            fake.away = False
            fake.want(8, "true", env=mark)
            await agent.until(lambda: len(fake.reports) > reports + 2)
            assert _stop_s(lease) == run_out_s
            assert not fake.ends, "no other is started under it"
            os.kill(supervisor.pid, signal.SIGCONT)
            await agent.until(lambda: (8, 1) in fake.ends)
            assert _stop_s(lease) > since_boot_s()
        assert (fake.ends[7, 1]["outcome"], fake.ends[8, 1]["outcome"]) == ("lease-run-out", "exited")


def _stop_s(path: str) -> float:
    known = shim_files.read_lease(path)
    assert known is not None
    return known[0]

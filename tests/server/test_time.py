"""Time: a scheduler that was paused loses no node, a wall clock that is set changes no duration."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from colane.server.board.clock import SLEW_RATIO, ClockMark, Clocks, ServiceClock
from colane.server.nodes.liveness import Liveness
from tests.memory_store import MemoryStore
from tests.server.harness import DEADLINE_S, SteadyClock, finished, launched, node, report, world

HOUR_S = 3600.0


class Machine:
    """A machine whose clocks a test turns."""

    def __init__(self) -> None:
        self.wall_s = 1e9
        self.steady = SteadyClock(step_s=1.0)
        self.boot = "boot-1"

    def clocks(self) -> Clocks:
        return Clocks(
            wall=lambda: self.wall_s + self.steady.now_s,
            steady=self.steady,
            since_boot=lambda: self.steady.now_s,
            boot=lambda: self.boot,
        )


class TestPaused:
    def test_silence_counts_only_while_the_scheduler_listens(self) -> None:
        clock = SteadyClock()
        liveness = Liveness(30.0, clock, look_s=1.0)
        liveness.hear("n1", 0.0)
        clock.skip(40.0)
        assert liveness.silent(["n1"], {}) == []
        for _ in range(30):
            clock.skip(1.0)
            assert liveness.silent(["n1"], {}) == []
        clock.skip(1.0)
        assert liveness.silent(["n1"], {}) == ["n1"]

    @pytest.mark.parametrize("cut", ["all", "all but one", "one"])
    @pytest.mark.parametrize("spread_s", [0.0, 9.0], ids=["at once", "a heartbeat apart"])
    @pytest.mark.parametrize("back", ["all", "one"])
    def test_a_pool_of_which_no_node_is_heard_keeps_them_all(self, cut: str, spread_s: float, back: str) -> None:
        """Nothing could start elsewhere; once one is heard the others have the whole time again."""
        clock, lease_s = SteadyClock(), 30.0
        liveness = Liveness(lease_s, clock, look_s=1.0)
        pools = {"a": "p", "b": "p", "c": "p", "other": "q"}
        gone = {"all": "abc", "all but one": "bc", "one": "c"}[cut]

        def go_on(seconds: int, speaking: str) -> set[str]:
            lost = set[str]()
            for _ in range(seconds):
                clock.skip(1.0)
                for name in (*speaking, "other"):
                    liveness.hear(name, clock.now_s)
                lost |= set(liveness.silent(pools, pools))
            return lost

        for name in pools:
            liveness.hear(name, 0.0)
        left = "abc".replace(gone[0], "")
        assert go_on(int(spread_s), left) == set()
        lost = go_on(5 * int(lease_s), left.translate(str.maketrans("", "", gone)))
        assert lost == (set() if cut == "all" else set(gone))
        if cut == "all":
            speaking = "abc" if back == "all" else "b"
            assert go_on(int(lease_s), speaking) == set()
            assert go_on(2, speaking) == set("abc") - set(speaking)

    async def test_a_paused_scheduler_keeps_nodes_and_jobs(self) -> None:
        clock = SteadyClock()
        async with world(clocks=Clocks(steady=clock), node_timeout_s=30.0, tick_s=0.01) as w:
            await w.good("POST", "/node", node())
            job = await w.submit()
            await w.good("POST", "/node/n1/report", report(launched(job)))
            clock.skip(40.0)
            await w.submit()  # answered by a turn after the pause
            await w.good("POST", "/node/n1/report", report(launched(job)))
            assert (await w.good("GET", "/node/n1"))["lost"] is False
            assert (await w.good("GET", f"/job/{job}"))["attempt"] == 1


class TestClockIsSet:
    async def started(self, w: Any, **fields: Any) -> int:
        await w.good("POST", "/node", node())
        job = int(await w.submit(**fields))
        await w.good("POST", "/node/n1/report", report(launched(job), at_s=1e9))
        return job

    async def test_forward_times_no_job_out_and_back_stops_no_time(self, caplog: pytest.LogCaptureFixture) -> None:
        machine = Machine()
        async with world(clocks=machine.clocks(), tick_s=0.01, node_timeout_s=HOUR_S) as w:
            job = await self.started(w, time_limit_s=600.0)
            with caplog.at_level(logging.WARNING, logger="colane"):
                machine.wall_s += 2 * HOUR_S
                await w.submit()
                await w.submit()
            assert "the wall clock was set forward by 7200.0 s" in caplog.text
            assert await w.state(job) == "launching"
            machine.wall_s -= 4 * HOUR_S
            machine.steady.go_on(620.0)
            line = await w.line(lambda line: line.kind == "job" and line.body["why"] == "time-limit")
            assert line.body["job"] == job

    def test_what_is_shown_comes_right_again(self) -> None:
        machine = Machine()
        clock = ServiceClock(machine.clocks())
        machine.wall_s += 10.0
        before_s = clock.now()
        machine.steady.skip(100.0)
        assert clock.now() - before_s == pytest.approx(100.0 * (1 + SLEW_RATIO))
        machine.steady.skip(5_000.0)
        assert clock.now() == pytest.approx(machine.clocks().wall())

    def test_it_never_goes_back(self) -> None:
        machine = Machine()
        clock = ServiceClock(machine.clocks())
        times = []
        for step_s in (5.0, -9_000.0, 0.0, 3.0, -1.0):
            machine.wall_s += step_s
            machine.steady.skip(1.0)
            times.append(clock.now())
        assert times == sorted(times)
        assert times[-1] - times[0] == pytest.approx(4.0, rel=SLEW_RATIO)

    async def test_the_next_process_goes_on_from_there(self) -> None:
        machine, store = Machine(), MemoryStore()
        async with world(store, clocks=machine.clocks()) as w:
            await self.started(w, time_limit_s=600.0)
        machine.wall_s += 2 * HOUR_S
        machine.steady.skip(50.0)
        async with world(store, clocks=machine.clocks(), tick_s=0.01) as w:
            await w.submit()
            assert await w.state(1) == "running"
            job = await w.good("GET", "/job/1")
            assert w.service.driver.now() - job["start_s"] == pytest.approx(50.0, abs=2.0)

    def test_after_a_reboot_it_is_never_earlier(self) -> None:
        machine = Machine()
        clock = ServiceClock(machine.clocks())
        clock.resume(ClockMark(2e9, "another boot", 5.0))
        assert clock.now() == pytest.approx(2e9)

    async def test_a_node_with_another_clock_does_not_shift_its_jobs(self) -> None:
        machine = Machine()
        async with world(clocks=machine.clocks(), tick_s=0.01) as w:
            await w.good("POST", "/node", node())
            job = await w.submit(time_limit_s=600.0)
            ahead_s = machine.wall_s + 3 * HOUR_S
            said = launched(job, start_s=ahead_s - 4.0, progress={"at_s": ahead_s, "steps": 1, "first_step_s": ahead_s})
            await w.good("POST", "/node/n1/report", report(said, at_s=ahead_s))
            shown = await w.good("GET", f"/job/{job}")
            assert shown["start_s"] == shown["submit_s"]  # four seconds ago is before it was submitted
            assert machine.wall_s <= shown["first_step_s"] <= machine.wall_s + 2.0
            machine.steady.go_on(20.0)
            await w.good("POST", "/finished_job", finished(job, start_s=ahead_s - 4.0, end_s=ahead_s + 8.0))
            async with asyncio.timeout(DEADLINE_S):
                ended = await w.good("GET", f"/job/{job}")
            assert ended["end_s"] - ended["start_s"] <= 12.0

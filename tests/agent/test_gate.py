"""The gate with real processes: turns, hangs, deaths, gangs, strangers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from colane.adaptor import turns, wire
from colane.agent.gate import gate
from colane.agent.launch.launcher import gate_path
from colane.lanes.turns import QUANTUM_MAX_S
from tests.agent.agents import running
from tests.agent.lane import BOUND_S, GATED, JOB, STEP_S, Lane, overlaps

pytestmark = [pytest.mark.live]

FORKING = str(Path(__file__).with_name("forking_job.py"))
GANG = str(Path(__file__).with_name("gang_job.py"))


@pytest.mark.parametrize("quantum_s", [0.0, 0.02, None])
async def test_three_equal_jobs_get_a_third_each_one_at_a_time(
    lane: Lane, tmp_path: Path, quantum_s: float | None
) -> None:
    lane.fake.turns = {"rule": "fair", "quantum_s": quantum_s}
    for job in (1, 2, 3):
        lane.want(job)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2, 3))
        await lane.is_in(agent, (1, 2, 3), GATED)
        began_s = max(lane.steps(job)[-1][1] for job in (1, 2, 3))

        def is_fair() -> bool:
            shares = [lane.progress(job) for job in (1, 2, 3)]
            enough = all((share.get("turn_service_s") or 0) > 0.5 for share in shares)
            return enough and all(abs(share["turn_share_ratio"] - 1 / 3) <= 0.05 for share in shares)

        await agent.until(is_fair, "a third within 5 points")
        seen = lane.progress(1)
        assert seen["turn_handoff_s"] > 0
        chosen_s = min(QUANTUM_MAX_S, 99 * seen["turn_handoff_s"])
        assert seen["turn_quantum_s"] == pytest.approx(chosen_s if quantum_s is None else quantum_s)
        await lane.end(agent, (1, 2, 3))
    assert overlaps(lane, (1, 2, 3), began_s) == []


async def test_a_newcomer_has_its_share_at_once(lane: Lane, tmp_path: Path) -> None:
    lane.want(1)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2), 50)
        lane.want(3)
        await agent.until(lambda: lane.count(3) >= 160)
        await lane.end(agent, (1, 2, 3))
    from_s, until_s = lane.steps(3)[2][0], lane.steps(3)[152][0]
    # Time is shared, not steps: where the machine is busy with others, some steps take ten times as long.
    took_s = {
        job: [ended - began for began, ended in lane.steps(job) if from_s <= began < until_s] for job in (1, 2, 3)
    }
    longest_s, own_s = max(max(steps, default=0.0) for steps in took_s.values()), sum(took_s[3])
    for other in (1, 2):
        assert abs(sum(took_s[other]) - own_s) <= 0.5 * own_s + 3 * longest_s, took_s


async def test_jobs_that_start_at_once_take_turns_from_their_first_step(lane: Lane, tmp_path: Path) -> None:
    first_s = 50 * STEP_S
    for job in (1, 2, 3):
        program = (JOB, str(lane.notes(job)), str(STEP_S), "0", "sleep", str(first_s))
        lane.fake.want(job, sys.executable, *program, env=lane.env)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2, 3))
        await lane.end(agent, (1, 2, 3))
    assert overlaps(lane, (1, 2, 3), 0.0) == []


async def test_the_shortest_preempts_within_a_step(lane: Lane, tmp_path: Path) -> None:
    lane.fake.turns = {"rule": "srtf", "quantum_s": 0.0}
    lane.want(1, total=100_000)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1,), 20)
        lane.want(2, total=60)
        await agent.until(lambda: (2, 1) in lane.fake.ends, "the short job ends")
        await lane.goes_on(agent, (1,))
        await lane.end(agent, (1,))
    short = lane.steps(2)
    assert lane.fake.ends[2, 1]["progress"]["steps"] == 60 == len(short)
    between = [began for began, _ in lane.steps(1) if short[1][0] < began < short[-1][0]]
    assert len(between) <= 1, "the long job does at most the step it was in"


async def test_a_suspended_job_stays_at_its_boundary(lane: Lane, tmp_path: Path) -> None:
    lane.want(1)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1,))
        lane.fake.pause(1)
        await lane.is_in(agent, (1,), ("paused",))
        stood = lane.count(1)
        lane.want(2)
        await lane.goes_on(agent, (2,), 20)
        assert lane.count(1) == stood
        lane.fake.pause(1, paused=False)
        await lane.goes_on(agent, (1, 2))
        await lane.end(agent, (1, 2))


async def test_a_killed_holder_leaves_the_lane_to_the_next(lane: Lane, tmp_path: Path) -> None:
    lane.fake.turns = {"rule": "fifo", "quantum_s": 0.0}
    lane.want(1)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1,), 20)
        await lane.is_in(agent, (2,), ("waiting",))
        os.kill(lane.pid(1), signal.SIGKILL)
        await lane.goes_on(agent, (2,))
        await agent.until(lambda: (1, 1) in lane.fake.ends)
        await lane.end(agent, (2,))
    assert lane.fake.ends[1, 1]["signal"] == signal.SIGKILL


async def test_a_child_that_a_job_forks_takes_no_turns_and_holds_none(lane: Lane, tmp_path: Path) -> None:
    """It has the parent's connection open; its steps count for no job."""
    lane.fake.want(1, sys.executable, FORKING, str(lane.notes(1)), str(STEP_S), "20", env=lane.env)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2))
        await lane.is_in(agent, (1, 2), GATED)
        began_s = max(lane.steps(job)[-1][1] for job in (1, 2))
        await agent.until(lambda: lane.count(1) > 40, "it goes on after its fork")
        await lane.goes_on(agent, (1, 2), 20)
        assert abs(lane.progress(1)["steps"] - lane.count(1)) < 500, "the child has said a thousand steps"
        os.kill(lane.pid(1), signal.SIGKILL)
        await lane.goes_on(agent, (2,), 20)
        await agent.until(lambda: (1, 1) in lane.fake.ends)
        await lane.end(agent, (2,))
    assert overlaps(lane, (1, 2), began_s) == []


async def test_a_stopped_holder_is_left_out_reported_and_taken_in_again(lane: Lane, tmp_path: Path) -> None:
    lane.want(1)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake, yield_bound_s=BOUND_S) as agent:
        await lane.goes_on(agent, (1, 2))
        os.kill(lane.pid(1), signal.SIGSTOP)
        await lane.goes_on(agent, (2,), 50)
        await lane.says(agent, "job 1 was asked for its turn and reaches no step")
        await lane.is_in(agent, (1,), ("ungated",))
        os.kill(lane.pid(1), signal.SIGCONT)
        await lane.goes_on(agent, (1, 2))
        await lane.is_in(agent, (1, 2), GATED)
        await agent.until(lambda: not lane.fake.reports[-1]["messages"], "no message")
        assert lane.progress(1)["note"] == ""
        await lane.end(agent, (1, 2))


async def test_a_lane_mate_without_room_beside_one_that_is_left_out_waits_until_it_is_back(
    lane: Lane, tmp_path: Path
) -> None:
    for job in (1, 2):  # of 1 GB; together 0.8 GB in turns, 1.4 GB side by side
        lane.want(job, memory=[100_000_000, 600_000_000])
    async with running(tmp_path / "state", lane.fake, yield_bound_s=BOUND_S) as agent:
        await lane.goes_on(agent, (1, 2))
        await lane.is_in(agent, (1, 2), GATED)
        os.kill(lane.pid(1), signal.SIGSTOP)
        await lane.is_in(agent, (1,), ("ungated",))
        await lane.is_in(agent, (2,), ("kept",))
        assert "beside job 1, which runs without turns" in lane.progress(2)["note"]
        done, reports = lane.count(2), len(lane.fake.reports)
        await agent.until(lambda: len(lane.fake.reports) > reports + 10, "more reports")
        assert lane.count(2) == done
        os.kill(lane.pid(1), signal.SIGCONT)
        await lane.goes_on(agent, (1, 2))
        await lane.is_in(agent, (1, 2), GATED)
        began_s = max(lane.steps(job)[-1][1] for job in (1, 2))
        await lane.goes_on(agent, (1, 2), 20)
        await lane.end(agent, (1, 2))
    assert overlaps(lane, (1, 2), began_s) == []


async def test_one_that_never_steps_is_reported_and_not_killed(lane: Lane, tmp_path: Path) -> None:
    lane.want(1)
    lane.fake.want(2, "sleep", "1000", env=lane.env)
    async with running(tmp_path / "state", lane.fake, first_step_bound_s=BOUND_S) as agent:
        await lane.goes_on(agent, (1,), 20)
        await lane.says(agent, "job 2 shares a lane and has reached no step boundary")
        await lane.is_in(agent, (2,), ("ungated",))
        assert lane.progress(2)["note"].startswith("shares a lane and has reached no step boundary")
        await lane.goes_on(agent, (1,))
        await lane.end(agent, (1, 2))


async def test_strangers_are_refused_and_harm_no_job(lane: Lane, tmp_path: Path) -> None:
    lane.want(1)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2))
        loop = asyncio.get_running_loop()
        path = str(gate_path(tmp_path / "state"))
        for packet in (request(lane.pid(1)), b"", b"x" * 1000, request(os.getpid())):
            with turns.connect(path) as stranger:
                await loop.sock_sendall(stranger, packet or b"\0")
                assert await loop.sock_recv(stranger, 100) == b"", "hung up on"
        silent = [turns.connect(path) for _ in range(20)]
        await lane.goes_on(agent, (1, 2))
        for stranger in silent:
            stranger.close()
        await lane.end(agent, (1, 2))


async def test_a_job_that_holds_connections_keeps_no_newcomer_out(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "LINKS_MAX", 8)
    async with running(tmp_path / "state", lane.fake) as agent:
        await agent.until(lambda: gate_path(tmp_path / "state").exists())
        path = str(gate_path(tmp_path / "state"))
        held = [turns.connect(path) for _ in range(20)]
        lane.want(1)
        lane.want(2)
        await lane.goes_on(agent, (1, 2))
        for stranger in held:
            stranger.close()
        await lane.end(agent, (1, 2))


def request(pid: int) -> bytes:
    return turns.REQUEST.pack(b"CLNG", turns.PROTOCOL, turns.YIELD, pid, 1, 1, 1)


async def test_jobs_outlive_the_agent_and_are_taken_in_again(lane: Lane, tmp_path: Path) -> None:
    lane.want(1)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2))
        await lane.is_in(agent, (1, 2), GATED)
    without = {job: lane.count(job) for job in (1, 2)}
    async with running(tmp_path / "state", lane.fake) as agent:
        await agent.until(lambda: all(lane.count(job) > without[job] for job in (1, 2)))
        await lane.is_in(agent, (1, 2), GATED)
        await agent.until(lambda: all((lane.progress(job).get("turn_wait_s") or 0) > 0 for job in (1, 2)), "turns")
        began_s = max(lane.steps(job)[-1][1] for job in (1, 2))
        await lane.goes_on(agent, (1, 2), 20)
        await lane.end(agent, (1, 2))
    assert overlaps(lane, (1, 2), began_s) == []


async def test_ranks_of_a_gang_park_at_one_step(lane: Lane, tmp_path: Path) -> None:
    """The ranks meet at every step, as in a collective: parked at different steps they would wait for ever."""
    lane.fake.want(1, sys.executable, GANG, str(lane.notes(1)), str(STEP_S), env=lane.env)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1,), 10)
        lane.want(2)
        await lane.goes_on(agent, (1, 2), 30)
        await lane.is_in(agent, (1, 2), GATED)
        lane.fake.pause(1)
        await lane.is_in(agent, (1,), ("paused",))
        await lane.goes_on(agent, (2,))
        parked = {
            rank: steps_at(tmp_path / "state" / "jobs" / "1-1" / "own" / name)
            for rank, name in ((0, "steps"), (1, "steps.1"))
        }
        assert parked[0] == parked[1]
        lane.fake.pause(1, paused=False)
        await lane.goes_on(agent, (1, 2), 30)
        await lane.end(agent, (1, 2))


def steps_at(path: Path) -> int:
    steps = wire.read(path)
    assert steps is not None
    return steps.steps

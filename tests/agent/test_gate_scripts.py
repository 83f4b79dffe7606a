"""The gate with scripts as people write them: first steps, evaluations, saving, and bits that turns leave alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colane.adaptor import wire
from tests.agent.agents import running
from tests.agent.lane import GATED, JOB, QUIET, STEP_S, Lane, overlaps
from tests.needs import needs

pytestmark = [pytest.mark.live]

ALONE, FIRST, RESTING = (str(Path(__file__).with_name(name)) for name in ("alone.py", "first_job.py", "resting_job.py"))


@pytest.mark.parametrize("where", ["attach", "forward", "backward", "update"])
async def test_a_newcomers_first_step_runs_within_a_turn(lane: Lane, tmp_path: Path, where: str) -> None:
    """It takes as long as a hundred steps of those that were there."""
    first_s = 100 * STEP_S
    notes = str(lane.notes(3))
    explicit = [JOB, notes, str(STEP_S), "0", "sleep", str(first_s)]
    program = explicit if where == "attach" else [FIRST, notes, str(first_s), str(STEP_S), where]
    lane.want(1)
    lane.want(2)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1, 2))
        await lane.is_in(agent, (1, 2), GATED)
        began_s = max(lane.steps(job)[-1][1] for job in (1, 2))
        lane.fake.want(3, sys.executable, *program, env=QUIET | lane.env)
        await lane.goes_on(agent, (1, 2, 3))
        await lane.end(agent, (1, 2, 3))
    first = lane.steps(3)[0]
    assert first[1] - first[0] >= first_s
    assert overlaps(lane, (1, 2, 3), began_s) == []


@pytest.mark.parametrize("what", ["evaluate", "load", "work", "save"])
async def test_no_job_waits_for_the_rests_of_another(lane: Lane, tmp_path: Path, what: str) -> None:
    """It evaluates, waits for data or saves for the time of two hundred steps; others have their turns meanwhile."""
    rest_s = 200 * STEP_S
    lane.want(1)
    async with running(tmp_path / "state", lane.fake) as agent:
        await lane.goes_on(agent, (1,))
        lane.fake.want(
            2, sys.executable, RESTING, str(lane.notes(2)), str(STEP_S), str(rest_s), what, env=QUIET | lane.env
        )
        rests = tmp_path / "notes-2.rests"
        await agent.until(lambda: rests.exists() and rests.read_bytes().count(b"\n") >= 4, "four rests")
        await lane.end(agent, (1, 2))
    spans = [tuple(map(float, line.split()[1:])) for line in rests.read_bytes().split(b"\n")[:-1]]
    for began_s, ended_s in spans[1:4]:  # that data come late is not known the first time
        assert ended_s - began_s >= (rest_s / 4 if what == "work" else rest_s), "a worker loads ahead"
        within = [one for one, other in lane.steps(1) if began_s <= one and other <= ended_s]
        assert len(within) >= 4, what
    assert overlaps(lane, (1, 2), lane.steps(2)[0][0]) == []
    assert lane.fake.ends[2, 1]["progress"]["steps"] < 60, "steps of training only"


SHAPES = ("plain", "accumulation", "gan", "ddp", "lightning", "inference")
"""Scripts in `shapes`, as people write them; each takes the number of its steps."""
STEPS = 120
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
START_S = 180.0
"""Nine processes that import PyTorch and more, on two cores that others use too."""


def script(shape: str) -> str:
    return str(Path(__file__).parent / "shapes" / f"{shape}.py")


def weights(output: bytes) -> list[bytes]:
    """What a script printed of its weights at the end, among what its framework says."""
    return [line for line in output.splitlines() if line.startswith(b"weights ")]


@pytest.fixture
def alone(tmp_path: Path, mark: dict[str, str]) -> Iterator[Callable[[], bytes]]:
    """Run all scripts alone meanwhile; what they print."""
    needs("pytorch_lightning", "one of the scripts trains with it")
    scripts = [f"{script(shape)}:2" if shape == "ddp" else script(shape) for shape in SHAPES]
    with (tmp_path / "alone").open("wb") as out:
        process = subprocess.Popen([sys.executable, ALONE, str(STEPS), *scripts], env=QUIET | mark, stdout=out)

    def printed() -> bytes:
        assert process.wait(START_S) == 0
        return (tmp_path / "alone").read_bytes()

    yield printed
    process.kill()
    process.wait()


@pytest.mark.timeout(400)
async def test_unmodified_scripts_in_turns_count_their_steps_and_give_the_same_bits(
    lane: Lane, tmp_path: Path, alone: Callable[[], bytes]
) -> None:
    jobs = dict(enumerate(SHAPES, start=1))
    for job, shape in jobs.items():
        command = (*(TORCHRUN if shape == "ddp" else ()), script(shape), str(STEPS))
        lane.fake.want(job, sys.executable, *command, env=QUIET | lane.env, turn={"paused": True})

    def is_parked(job: int) -> bool:
        """It has come to its first use of the device, and waits there."""
        path = tmp_path / "state" / "jobs" / f"{job}-1" / "own" / "steps"
        seen = wire.read(path) if path.exists() else None
        return seen is not None and bool(seen.phase & wire.BETWEEN_STEPS) and lane.progress(job)["steps"] == 0

    async with running(tmp_path / "state", lane.fake) as agent:
        await agent.until(lambda: all(map(is_parked, jobs)), "all are parked", START_S)
        for job in jobs:
            lane.fake.pause(job, paused=False)
        await agent.until(lambda: len(lane.fake.ends) == len(jobs), "all end", START_S)
        logs = {job: (await agent.get(f"/log/{job}/1")).content for job in jobs}
    seen = [job for report in lane.fake.reports for job in report["jobs"]]
    assert {job["id"] for job in seen if (job.get("progress") or {}).get("turn") == "waiting"} == set(jobs)
    expected = weights(alone())
    assert len(set(expected)) == len(SHAPES)
    ends = {job: lane.fake.ends[job, 1] for job in jobs}
    assert {job: end["exit_code"] for job, end in ends.items()} == dict.fromkeys(jobs, 0), logs
    assert {job: end["progress"]["steps"] for job, end in ends.items()} == dict.fromkeys(jobs, STEPS)
    assert [weights(logs[job]) for job in jobs] == [[line] for line in expected]

"""Jobs that take turns on an emulated GPU: their steps take the time of the device, and none runs in another's turn."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.agent.agents import Running, running
from tests.agent.lane import BOUND_S, QUIET, Lane
from tests.agent.test_gate_scripts import TORCHRUN
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S, hand_over, late_kernels
from tests.emulated.job.emulated_cuda.device import Kind
from tests.emulated.machine import Kernel, Machine, Mark, Ran, told_mean_s
from tests.emulated.nvml import EmulatedNvml

pytestmark = [pytest.mark.live]


async def all_wait(agent: Running, machine: Machine, processes: dict[int, int]) -> None:
    """Wait until so many processes of each job are at a boundary: what a job does before that needs no turn.

    An agent says that a job is paused as soon as that is wanted, and its set-up may go on for seconds.
    """
    await agent.until(
        lambda: all(machine.at_boundaries(job) >= count for job, count in processes.items()), "all wait", START_S
    )


@pytest.mark.parametrize(
    ("shapes", "kernel_ms"),
    [(("plain", "reads_tenth_loss"), 2.0), (("graph", "accumulates"), 1.0), (("plain", "plain"), 20.0)],
)
async def test_in_turns_steps_take_the_time_of_the_device(
    lane: Lane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shapes: tuple[str, str],
    kernel_ms: float,
) -> None:
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", run_ahead=20))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    count = int(min(120, 1600 / kernel_ms / 2))
    env = lane.env | machine.env
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.0 if kernel_ms > 10 else 0.1}
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        for job, shape in enumerate(shapes, start=1):
            command = (LOOPS, shape, str(count), str(kernel_ms))
            lane.fake.want(job, sys.executable, *command, env=env, turn={"paused": True})
        await all_wait(agent, machine, {1: 1, 2: 1})
        lane.fake.resume(1, 2)
        await agent.until(lambda: len(lane.fake.ends) == 2, "both end", START_S)
    ends = {job: lane.fake.ends[job, 1] for job in (1, 2)}
    assert {job: end["exit_code"] for job, end in ends.items()} == {1: 0, 2: 0}
    ran = {job: machine.ran(job) for job in (1, 2)}
    for job, shape in enumerate(shapes, start=1):
        durations_s = ends[job]["step_durations_s"]
        assert ends[job]["progress"]["steps"] == count, shape
        assert len(durations_s) > 0.8 * count
        kernels = len(ran[job].kernels)
        first = kernels - (kernels // count if shape != "graph" else 2 * 4)
        truth_s = ran[job].mean_step_s(count - 1, first)
        assert told_mean_s(durations_s) == pytest.approx(truth_s, rel=0.02), shape
        turns = len(ran[job].turns())
        assert turns > 2
        waits = ran[job].counts()["synchronize"] - 2 * (shape == "graph")
        assert waits <= turns + 5, "one for each turn, at its end"
    assert late_kernels(ran[1], [ran[2]]) == []
    assert late_kernels(ran[2], [ran[1]]) == []


async def test_a_gang_with_run_ahead_gives_way_as_one(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks on two GPUs, each of which they share with a job: nothing of these runs in each other's turns."""
    machine = Machine(tmp_path / "gpus", Kind("GPU-0"), Kind("GPU-1"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env | QUIET
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.1}
    count = 60
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        wait = {"paused": True}
        ranks = (*TORCHRUN, LOOPS, "ranks", str(count), "2")
        lane.fake.want(1, sys.executable, *ranks, env=env, gpus=(0, 1), turn=wait)
        for job in (2, 3):
            plain = (LOOPS, "plain", str(3 * count), "2")
            lane.fake.want(job, sys.executable, *plain, env=env, gpus=(job - 2,), turn=wait)
        await all_wait(agent, machine, {1: 2, 2: 1, 3: 1})
        lane.fake.resume(1, 2, 3)
        await agent.until(lambda: len(lane.fake.ends) == 3, "all end", START_S)
    ends = {job: lane.fake.ends[job, 1] for job in (1, 2, 3)}
    assert {job: (end["exit_code"], end["progress"]["steps"]) for job, end in ends.items()} == {
        1: (0, count),
        2: (0, 3 * count),
        3: (0, 3 * count),
    }
    gang = {ran.kernels[0].gpu: ran for ran in machine.all_ran(1)}
    assert set(gang) == {"GPU-0", "GPU-1"}
    for job, uuid in ((2, "GPU-0"), (3, "GPU-1")):
        ran = machine.ran(job)
        assert ran.turns()
        assert late_kernels(gang[uuid], [ran]) == []
        assert late_kernels(ran, [gang[uuid]]) == []
    assert [len(ran.turns()) for ran in gang.values()] == [len(next(iter(gang.values())).turns())] * 2


async def test_gangs_with_collectives_in_flight_take_turns_with_each_other(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP and FSDP2 on the same two GPUs: a rank that waits for its GPU there waits for the other rank's launches."""
    machine = Machine(tmp_path / "gpus", Kind("GPU-0"), Kind("GPU-1"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env | QUIET
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.1}
    count = 60
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        for job, shape in ((1, "ranks_in_flight"), (2, "sharded")):
            ranks = (*TORCHRUN, LOOPS, shape, str(count), "3")
            lane.fake.want(job, sys.executable, *ranks, env=env, gpus=(0, 1), turn={"paused": True})
        await all_wait(agent, machine, {1: 2, 2: 2})
        lane.fake.resume(1, 2)
        await agent.until(lambda: len(lane.fake.ends) == 2, "both end", START_S)
    gangs = {job: {ran.kernels[0].gpu: ran for ran in machine.all_ran(job)} for job in (1, 2)}
    for job, other in ((1, 2), (2, 1)):
        end = lane.fake.ends[job, 1]
        assert (end["exit_code"], end["progress"]["steps"]) == (0, count)
        first = gangs[job]["GPU-0"]
        each = len(first.kernels) // count
        later = first.told_apart(count - 1, each)
        truth_s = first.mean_step_s(later, later * each)
        assert told_mean_s(end["step_durations_s"][-later - 1 :]) == pytest.approx(truth_s, rel=0.02)
        assert len(first.turns()) > 2
        assert len(first.turns()) == len(gangs[job]["GPU-1"].turns())
        for uuid in ("GPU-0", "GPU-1"):
            assert late_kernels(gangs[job][uuid], [gangs[other][uuid]]) == []
    met = [
        {kernel.label: kernel for kernel in ran.kernels if "collective" in kernel.label} for ran in gangs[2].values()
    ]
    assert met[0].keys() == met[1].keys()
    assert len(met[0]) >= 4 * count
    apart_s = [abs(met[0][label].began_s - met[1][label].began_s) for label in met[0]]
    assert max(apart_s) < 1e-5, "ranks meet on their GPUs"


async def test_loops_that_do_more_than_train_take_turns(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluation in the middle, a fork after CUDA, and what a compiler made, on one GPU."""
    shapes = dict(enumerate(("evaluates", "forks", "compiled"), start=1))
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", run_ahead=20))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env
    lane.fake.turns = {"rule": "fair", "quantum_s": 0.1}
    count = 80
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        for job, shape in shapes.items():
            lane.fake.want(job, sys.executable, LOOPS, shape, str(count), "3", env=env, turn={"paused": True})
        await all_wait(agent, machine, dict.fromkeys(shapes, 1))
        lane.fake.resume(*shapes)
        await agent.until(lambda: len(lane.fake.ends) == len(shapes), "all end", START_S)
    ran = {job: machine.ran(job) for job in shapes}
    for job, shape in shapes.items():
        end = lane.fake.ends[job, 1]
        assert (end["exit_code"], end["progress"]["steps"]) == (0, count), shape
        later = (count - 1) * 8 + (count if shape == "evaluates" else 0)
        truth_s = ran[job].mean_step_s(count - 1, later)
        assert told_mean_s(end["step_durations_s"]) == pytest.approx(truth_s, rel=0.02), shape
        assert late_kernels(ran[job], [other for key, other in ran.items() if key != job]) == [], shape
    assert sum(len(one.turns()) for one in ran.values()) > 2 * len(shapes)


async def test_at_every_handover_nothing_is_left_under_way(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step a turn, and as many kernels ahead as a job may have; `COLANE_FUZZ=50` makes 10,000 handovers."""
    count = 200 * int(os.environ.get("COLANE_FUZZ", "1"))
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", run_ahead=40))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        seen = await hand_over(agent, lane, machine, count, START_S * count / 200)
    assert seen.made >= count
    assert (seen.under_way_max, seen.late) == (0, [])


@pytest.mark.parametrize(
    ("kernel_s", "is_late"),
    [((1.0, 2.0), False), ((2.5, 3.5), True), ((3.2, 3.4), True), ((3.9, 4.5), True), ((4.0, 5.0), False)],
)
def test_a_kernel_in_the_turn_of_another_is_seen(kernel_s: tuple[float, float], is_late: bool) -> None:
    turns = [Mark(at_s, f"{label}:1:0") for at_s, label in ((0.0, "go"), (0.5, "yield"), (3.0, "go"), (4.0, "leave"))]
    ran = Ran([Kernel("GPU-0", 0.0, *kernel_s, "sleep")], [])
    assert bool(late_kernels(ran, [Ran([], turns)])) is is_late


async def test_a_job_whose_boundaries_stop_coming_is_said_and_leaves_the_lane(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "gpus", Kind("GPU-0"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    env = lane.env | machine.env
    async with running(tmp_path / "state", lane.fake, devices="gpu", yield_bound_s=BOUND_S) as agent:
        lane.fake.want(1, sys.executable, LOOPS, "loses_its_steps", "100000", "2", env=env, turn={"paused": True})
        lane.fake.want(2, sys.executable, LOOPS, "plain", "30", "2", env=env, turn={"paused": True})
        await all_wait(agent, machine, {1: 1, 2: 1})
        lane.fake.pause(1, paused=False)
        await agent.until(lambda: lane.progress(1).get("steps") == 3, "it has made the last step it tells", START_S)
        lane.fake.pause(2, paused=False)  # now: its steps may fit in one turn, and alone the first is not asked
        await agent.until(lambda: lane.progress(1).get("turn") == "ungated", "it is left out", START_S)
        said = [message for message in lane.fake.reports[-1]["messages"] if message.startswith("job 1 ")]
        assert "reaches no step boundary" in said[0]
        await agent.until(lambda: (2, 1) in lane.fake.ends, "the other goes on", START_S)
        lane.fake.end(1)
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it is ended")
    assert lane.fake.ends[2, 1]["progress"]["steps"] == 30

"""To the host and back by a driver: a real library that moves what processes hold of emulated GPUs."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colane.devices import suspend
from colane.devices.suspend import CannotSuspendError, ProcessState, Saved, Suspender
from tests.agent.agents import running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.job.emulated_cuda.device import HOME_ENV, Kind
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc to build the driver's double with"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="processes can be moved off a GPU on x86_64 only"),
]
SOURCE = Path(__file__).with_name("libcuda.c")
CELLS, IDLER = (str(Path(__file__).with_name(name)) for name in ("cells.py", "idler.py"))
START_S = 120.0
GIB, MIB = 2**30, 2**20


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return str(made)


@pytest.fixture
def gpus(tmp_path: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A GPU of 2 GiB whose driver is the double, for agents of this process as well."""
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", total_bytes=2 * GIB, context_bytes=450 * MIB))
    monkeypatch.setenv(HOME_ENV, str(machine.home))
    monkeypatch.setattr(suspend, "LIBRARY", library)
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.setattr("colane.devices.gpu.is_first_namespace", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


class Pipe:
    """A named pipe that a job reads lines of; it is open here, so that its end never comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._file = os.fdopen(os.open(path, os.O_RDWR), "w", buffering=1)

    def write(self, line: str) -> None:
        self._file.write(f"{line}\n")

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "lines")
    yield made
    made.close()


def stands(machine: Machine, pid: int) -> tuple[ProcessState, bool]:
    """How a process stands, or stood when it ended, and whether it was ever restored."""
    state, was_restored = struct.unpack_from("=ii", (machine.home / f"checkpoint.{pid}").read_bytes())
    return ProcessState(state), bool(was_restored)


def test_the_driver_takes_what_a_process_holds_and_gives_it_back(gpus: Machine) -> None:
    driver, own = Suspender(), os.getpid()
    with pytest.raises(CannotSuspendError, match="cuCheckpointProcessGetState gives CUDA_ERROR_INVALID_VALUE"):
        driver.state(own)
    gpus.gpu().hold(100 * MIB)
    saved = driver.suspend(own, 550 * MIB)
    assert (gpus.gpu().held(), driver.state(own)) == ({own: 0}, ProcessState.CHECKPOINTED)
    driver.resume(saved, lambda: 2 * GIB)
    assert (gpus.gpu().held(), driver.state(own)) == ({own: 550 * MIB}, ProcessState.RUNNING)
    with pytest.raises(CannotSuspendError, match="is running, not suspended"):
        driver.resume(saved, lambda: 2 * GIB)


def test_a_restore_without_room_loses_the_process(gpus: Machine) -> None:
    """What `resume` looks for room for: asked a GPU that has none, the driver leaves the process as failed."""
    driver, own = Suspender(), os.getpid()
    gpus.gpu().hold(100 * MIB)
    driver.suspend(own, 550 * MIB)
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(CannotSuspendError, match="Restore gives CUDA_ERROR_OUT_OF_MEMORY"):
            driver.resume(Saved(own, 0), lambda: 2 * GIB)
        other.communicate(b"")
    assert stands(gpus, own)[0] is ProcessState.FAILED


HOLDS = """
import sys, os
from pathlib import Path
sys.path.insert(0, %r)
from tests.emulated.job.emulated_cuda.device import Gpu, kinds_of
home = Path(os.environ["EMULATED_CUDA"])
Gpu(home, kinds_of(home)[0]).hold(1200 * 2**20)
print("held", flush=True)
sys.stdin.read()
""" % str(Path(__file__).parents[2])  # noqa: UP031


async def test_a_job_leaves_its_gpu_comes_back_and_is_off_it_again_when_it_is_killed(
    lane: Lane, gpus: Machine, tmp_path: Path
) -> None:
    own = os.getpid()
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        lane.fake.want(1, sys.executable, LOOPS, "holds", "1000000", "2", env=lane.env | gpus.env)
        await agent.until(lambda: lane.progress(1).get("steps", 0) > 20, "it steps", START_S)
        ((pid, held_bytes),) = gpus.gpu().held().items()
        lane.fake.pause(1, to_host=True)
        await agent.until(lambda: lane.progress(1).get("on_host_bytes") == held_bytes, "its memory is on the host")
        assert gpus.gpu().held() == {pid: 0}
        kernels = len(gpus.ran(1).kernels)
        gpus.gpu().hold(1000 * MIB)
        lane.fake.pause(1, paused=False)
        await lane.says(agent, "the GPU memory of job 1 stays on the host")
        assert gpus.gpu().held()[pid] == 0
        gpus.gpu().hold(0)
        await agent.until(lambda: gpus.gpu().held()[pid] == held_bytes, "it has its memory again")
        await agent.until(lambda: len(gpus.ran(1).kernels) > kernels, "it goes on")
        lane.fake.end(1)
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it is ended")
    assert lane.fake.ends[1, 1]["outcome"] == "signalled"
    assert stands(gpus, pid) == (ProcessState.CHECKPOINTED, True)
    assert set(gpus.gpu().held()) == {own}


async def test_an_idle_notebook_leaves_its_gpu_between_two_cells_and_asks_for_it_at_the_next(
    lane: Lane, gpus: Machine, pipe: Pipe, tmp_path: Path
) -> None:
    """Told to be parked within a cell, it waits at its next step boundary, and asks from there."""
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        lane.fake.want(1, sys.executable, CELLS, str(pipe.path), env=lane.env | gpus.env)
        pipe.write("1000000")
        await agent.until(lambda: lane.progress(1).get("steps", 0) > 5, "a cell runs", START_S)
        lane.fake.change(1, paused=True, to_host=True, at_rest=True)
        await agent.until(lambda: lane.progress(1).get("rest") == "asks", "it asks from its boundary")
        done = lane.progress(1)["steps"]
        lane.fake.change(1, paused=False, to_host=False, at_rest=False)
        await agent.until(lambda: lane.progress(1)["steps"] > done, "it goes on")
        enough = f"{pipe.path}.enough"
        os.mknod(enough)
        await agent.until(Path(f"{pipe.path}.ended").exists, "the cell has ended")
        ((pid, held_bytes),) = gpus.gpu().held().items()
        lane.fake.change(1, paused=True, to_host=True, at_rest=True)
        await agent.until(lambda: lane.progress(1).get("on_host_bytes") == held_bytes, "its memory is on the host")
        done = lane.progress(1)["steps"]
        assert (gpus.gpu().held(), lane.progress(1)["rest"]) == ({pid: 0}, "possible")
        kernels = len(gpus.ran(1).kernels)
        os.unlink(enough)  # noqa: PTH108 - as `os.mknod`, and within the loop
        pipe.write("3")
        await agent.until(lambda: lane.progress(1)["rest"] == "asks", "the next cell would use the GPU")
        assert (gpus.gpu().held()[pid], len(gpus.ran(1).kernels)) == (0, kernels)
        lane.fake.change(1, paused=False, to_host=False, at_rest=False)
        await agent.until(lambda: lane.progress(1)["steps"] == done + 3, "it goes on")
        assert gpus.gpu().held()[pid] == held_bytes
        lane.fake.end(1)
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it is ended")


def busy_ratio(lane: Lane) -> float | None:
    ratio: float | None = lane.fake.reports[-1]["jobs"][0]["use"]["busy_ratio"]
    return ratio


@pytest.mark.parametrize("way", ["reads", "looks", "serves"])
async def test_a_job_that_stands_still_leaves_its_gpu_and_is_seen_once_it_would_go_on(
    lane: Lane, gpus: Machine, pipe: Pipe, tmp_path: Path, way: str
) -> None:
    """What it calls next waits in the driver: its threads are seen to have moved."""
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        lane.fake.want(1, sys.executable, IDLER, str(pipe.path), way, env=lane.env | gpus.env)
        await agent.until(lambda: lane.progress(1).get("steps") == 20, "it has trained", START_S)
        assert lane.progress(1)["rest"] == "possible"
        await agent.until(lambda: busy_ratio(lane) == 0, "nothing runs on its GPU, whose driver tells of no process")
        ((pid, held_bytes),) = gpus.gpu().held().items()
        kernels = len(gpus.ran(1).kernels)
        lane.fake.change(1, paused=True, to_host=True, at_rest=True)
        await agent.until(lambda: lane.progress(1).get("on_host_bytes") == held_bytes, "its memory is on the host")
        assert (gpus.gpu().held(), lane.progress(1)["rest"]) == ({pid: 0}, "possible")
        pipe.write("3")
        await agent.until(lambda: lane.progress(1)["rest"] == "asks", "it would go on")
        assert (gpus.gpu().held()[pid], len(gpus.ran(1).kernels)) == (0, kernels)
        lane.fake.change(1, paused=False, to_host=False, at_rest=False)
        await agent.until(lambda: lane.progress(1)["steps"] == 23, "it goes on")
        assert gpus.gpu().held()[pid] == held_bytes
        lane.fake.change(1, paused=True, to_host=True, at_rest=True)
        await agent.until(lambda: lane.progress(1).get("on_host_bytes") == held_bytes, "it can leave once more")
        lane.fake.end(1)
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it is ended")


async def test_what_goes_on_while_its_agent_is_away_is_seen_by_the_next(
    lane: Lane, gpus: Machine, pipe: Pipe, tmp_path: Path
) -> None:
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        lane.fake.want(1, sys.executable, IDLER, str(pipe.path), "reads", env=lane.env | gpus.env)
        await agent.until(lambda: lane.progress(1).get("steps") == 20, "it has trained", START_S)
        lane.fake.change(1, paused=True, to_host=True, at_rest=True)
        await agent.until(lambda: lane.progress(1).get("on_host_bytes"), "its memory is on the host")
    pipe.write("3")
    async with running(tmp_path / "state", lane.fake, devices="gpu") as agent:
        await agent.until(lambda: lane.progress(1)["rest"] == "asks", "it would go on")
        lane.fake.change(1, paused=False, to_host=False, at_rest=False)
        await agent.until(lambda: lane.progress(1)["steps"] == 23, "it goes on")
        lane.fake.end(1)
        await agent.until(lambda: (1, 1) in lane.fake.ends, "it is ended")

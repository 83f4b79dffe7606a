"""A kernel that fails for good: under MPS all jobs of the GPU end, by one event; under time slicing one does."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.running import mps_faults
from tests.agent.agents import Running, running
from tests.agent.lane import Lane
from tests.emulated.conftest import LOOPS
from tests.emulated.handovers import START_S
from tests.emulated.job.emulated_cuda.device import Kind, started_ticks
from tests.emulated.machine import Machine
from tests.emulated.nvml import EmulatedNvml
from tests.emulated.test_turns import all_wait

pytestmark = [pytest.mark.live]
CONTROL = Path(__file__).parents[1] / "agent" / "fake-mps-control"
ASSERTION = "Loss.cu: block: [0,0,0], thread: [1,0,0] Assertion `t >= 0` failed."
ERROR = "RuntimeError: CUDA error: an illegal memory access was encountered"
ENDED = "RuntimeError: CUDA error: the MPS client has been terminated by the server"
SAYS = 'read -r words < "$1"; echo "$words"; exit 1'
CAUSED, OF_OTHER, UNKNOWN = "mps-fault", "mps-fault-of-other", "mps-fault-unknown"


@pytest.fixture
def mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put MPS's control program on the path; gives where its double looks for what it is to say."""
    place, programs = tmp_path / "fake", tmp_path / "bin"
    place.mkdir()
    programs.mkdir()
    shutil.copy(CONTROL, programs / "nvidia-cuda-mps-control")
    monkeypatch.setenv("MPS_FAKE", str(place))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    yield place
    left = processes.marked(f"MPS_FAKE={place}".encode())
    processes.kill(one for pid in left if (one := processes.identify(pid)) is not None)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with one GPU, that the agent sees."""
    machine = Machine(tmp_path / "gpus", Kind("GPU-0", sharing="mps"))
    monkeypatch.setitem(sys.modules, "pynvml", EmulatedNvml(machine.home))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


async def runs(agent: Running, lane: Lane, *jobs: int) -> None:
    await agent.until(lambda: all(lane.fake.launched(job) for job in jobs), f"jobs {jobs} run", START_S)


async def ends(agent: Running, lane: Lane, *jobs: int) -> dict[int, str]:
    await agent.until(lambda: all((job, 1) in lane.fake.ends for job in jobs), f"jobs {jobs} end", START_S)
    return {job: lane.fake.ends[job, 1]["outcome"] for job in jobs}


def waits_for_words(lane: Lane, job: int) -> Path:
    """Have a job that ends with the words it is given."""
    words = lane.folder / f"words-{job}"
    os.mkfifo(words)
    lane.fake.want(job, "sh", "-c", SAYS, "sh", str(words), env=lane.env)
    return words


@pytest.mark.parametrize(
    ("mode", "said", "outcomes"),
    [
        ("on", (ASSERTION, ERROR), (CAUSED, OF_OTHER)),
        ("on", (ERROR, ASSERTION), (OF_OTHER, CAUSED)),
        ("on", (ERROR, ENDED), (CAUSED, OF_OTHER)),
        ("on", (ENDED, ERROR), (OF_OTHER, CAUSED)),
        ("on", (ERROR, ERROR), (UNKNOWN, UNKNOWN)),
        ("on", (ENDED, ENDED), (UNKNOWN, UNKNOWN)),
        ("on", (ERROR, "ValueError: no such file"), ("exited", "exited")),
        ("off", (ASSERTION, ERROR), ("exited", "exited")),
        ("off", (ERROR, ENDED), ("exited", "exited")),
    ],
)
@pytest.mark.usefixtures("mps", "node")
async def test_a_job_that_caused_it_is_told_as_far_as_it_can_be(
    lane: Lane, state: Path, mode: str, said: tuple[str, str], outcomes: tuple[str, str]
) -> None:
    words = {job: waits_for_words(lane, job) for job in (1, 2)}
    async with running(state, lane.fake, devices="gpu", mps=mode) as agent:
        await runs(agent, lane, 1, 2)
        for job, text in zip((1, 2), said, strict=True):
            words[job].write_text(f"{text}\n")
        assert tuple((await ends(agent, lane, 1, 2)).values()) == outcomes
        if CAUSED in outcomes:
            causer = 1 + outcomes.index(CAUSED)
            assert lane.fake.ends[3 - causer, 1]["detail"] == f"job {causer} caused it"
            assert lane.fake.ends[causer, 1]["detail"] == f"job {3 - causer} ended with it"
        is_event = any(outcome.startswith("mps-") for outcome in outcomes)
        if is_event:
            await agent.until(lambda: lane.fake.is_told("fatal error"), "it is told with the next report")
        messages = [message for message in lane.fake.reports[-1]["messages"] if "fatal error" in message]
        assert len(messages) == is_event, "one event for all"


@pytest.mark.usefixtures("node")
async def test_a_job_that_has_not_noticed_is_ended_and_no_new_one_goes_through_a_server_that_has_failed(
    lane: Lane, state: Path, mps: Path
) -> None:
    (mps / "servers").write_text(f"{os.getpid()}\n")
    words = {job: waits_for_words(lane, job) for job in (1, 2)}
    async with running(state, lane.fake, devices="gpu", mps="on") as agent:
        await runs(agent, lane, 1, 2)
        (mps / "status").write_text("FAULT\n")
        words[1].write_text(f"{ASSERTION}\n")
        assert await ends(agent, lane, 1, 2) == {1: CAUSED, 2: OF_OTHER}
        shown = ("sh", "-c", 'echo "through ${CUDA_MPS_PIPE_DIRECTORY:-nothing}"')
        lane.fake.want(3, *shown, env=lane.env)
        await ends(agent, lane, 3)
        assert (await agent.get("/log/3/1")).text == "through nothing\n"
        await agent.until(partial(lane.fake.is_told, "MPS on GPU 0 takes no new job"), "it is said")
        (mps / "status").write_text("ACTIVE\n")
        lane.fake.want(4, *shown, env=lane.env)
        await ends(agent, lane, 4)
        assert (await agent.get("/log/4/1")).text.startswith(f"through {state}")
        await agent.until(lambda: lane.fake.reports[-1]["messages"] == [], "what is over is no longer said")


@pytest.mark.usefixtures("mps", "node")
async def test_a_job_beside_which_the_others_go_on_has_failed_by_itself(
    lane: Lane, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has printed such words, and no server has failed."""
    monkeypatch.setattr(mps_faults, "SETTLE_S", 0.2)
    words = {job: waits_for_words(lane, job) for job in (1, 2)}
    async with running(state, lane.fake, devices="gpu", mps="on") as agent:
        await runs(agent, lane, 1, 2)
        words[1].write_text(f"{ERROR}\n")
        assert await ends(agent, lane, 1) == {1: "exited"}
        assert lane.fake.launched(2)
        words[2].write_text("done\n")
        assert await ends(agent, lane, 2) == {2: "exited"}


@pytest.mark.usefixtures("mps")
async def test_an_assertion_in_a_kernel_ends_the_jobs_that_share_the_gpu_by_one_event(
    lane: Lane, state: Path, node: Machine
) -> None:
    async with running(state, lane.fake, devices="gpu", mps="on") as agent:
        env = lane.env | node.env
        lane.fake.want(1, sys.executable, LOOPS, "asserts", "3", "0.5", env=env, turn={"paused": True})
        lane.fake.want(2, sys.executable, LOOPS, "reads_each_loss", "1000000", "0.5", env=env)
        await all_wait(agent, node, {1: 1})
        await agent.until(lambda: lane.progress(2).get("steps", 0) > 0, "the other has made a step", START_S)
        lane.fake.resume(1)
        assert await ends(agent, lane, 1, 2) == {1: CAUSED, 2: OF_OTHER}
        assert "unspecified launch failure" in (await agent.get("/log/2/1")).text
        assert node.gpu().held() == {}
        node.gpu().hold(0)  # a new client is let in once all are gone


PLAIN = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(1000)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PLAIN
LATE = "import signal; signal.signal(signal.SIGTERM, lambda *_: None); " + PLAIN.replace(
    "time.sleep(1000)", "[time.sleep(1) for _ in range(1000)]"
)
GREEDY = PLAIN.replace("time.sleep", "open(sys.argv[1] + '.go').read(); held = bytearray(300 * 2**20); time.sleep")
WAYS = {
    "ended": PLAIN,
    "ended, and it ignores that": STUBBORN,
    "ended, and it is too late": LATE,
    "memory": GREEDY,
    "supervisor": PLAIN,
    "outside": PLAIN,
    "mute": PLAIN,
}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_is_let_go_by_the_server_before_it_is_killed(
    lane: Lane, state: Path, mps: Path, way: str
) -> None:
    """On each way out; where the daemon is mute it ends too."""
    (mps / "servers").write_text(f"{os.getpid()}\n")
    told = lane.folder / "pid"
    command = [sys.executable, "-c", WAYS[way], str(told)]
    if way == "supervisor":  # its first process dies with it
        command = ["sh", "-c", '"$@" & wait', "sh", *command]
    go = lane.folder / "pid.go"
    os.mkfifo(go)
    limit = {"memory_limit_bytes": 200 * 2**20} if way == "memory" else {}
    async with running(state, lane.fake, devices="gpu", mps="on", grace_s=0.5) as agent:
        lane.fake.want(1, *command, env=lane.env, turn=limit)
        await runs(agent, lane, 1)
        await agent.until(lambda: told.exists() and told.read_text() != "", "it has begun", START_S)
        pid = int(told.read_text())
        (mps / "clients").write_text(f"4\n{pid}\n")
        if way == "mute":
            (mps / "mute").touch()
        if way == "supervisor":
            os.kill(parent_of(parent_of(pid)), signal.SIGKILL)
        elif way == "outside":
            os.kill(parent_of(pid), signal.SIGTERM)
        elif way == "memory":
            go.write_text("go")
        else:
            lane.fake.end(1)
        await ends(agent, lane, 1)
        (mps / "mute").unlink(missing_ok=True)
    calls = (mps / "calls.log").read_text().splitlines()
    assert started_ticks(pid) == 0
    if way != "mute":
        assert calls.count(f"let go {pid}") == 1, "while it lives"
        assert f"terminate_client {os.getpid()} {pid}" in calls
        assert not any(call.endswith(" 4") for call in calls), "no other's client"

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from colane.adaptor import bundle
from colane.agent import processes
from colane.agent.config import AgentConfig
from colane.agent.errors import AgentError
from colane.agent.files.jobdir import JobDir
from colane.agent.launch.environment import THREAD_POOLS
from colane.model.hardware import Link, LinkKind, Topology
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.waiting import read_state, until_gone

pytestmark = pytest.mark.live

SRC = str(Path(__file__).parents[2] / "src")


async def test_it_registers_its_node(fake: FakeScheduler, state: Path) -> None:
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.reports)
        assert (await agent.get("/health")).json() == {"status": "ok", "node": "node-1", "jobs": 0}
    node = fake.nodes["node-1"]
    assert node["address"] == agent.address
    assert node["agent_id"] == (state / "agent_id").read_text()
    assert node["cores"] == sorted(os.sched_getaffinity(0))
    assert node["topology"] == {"links": [[["X", 0, 0.0]]], "sockets": [0], "switches": [-1], "nvswitch": False}

    assert node["gpus"] == [
        {
            "index": 0,
            "uuid": "cpu-0",
            "type": "cpu",
            "memory_bytes": 10**9,
            "socket": 0,
            "cores": node["cores"],
            "healthy": True,
            "foreign_bytes": 0,
            "others_ratio": 0.0,
            "sharing": "cpu",
        }
    ]
    assert fake.registrations == 1


async def test_it_registers_the_topology_it_is_given(fake: FakeScheduler, state: Path) -> None:
    cut_off = Topology(((Link(LinkKind.SELF),),), (3,))
    async with running(state, fake, topology=cut_off) as agent:
        await agent.until(lambda: fake.reports)
    assert fake.nodes["node-1"]["topology"]["sockets"] == [3]


async def test_a_job_runs_and_its_end_is_told(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    fake.want(7, "sh", "-c", "echo hello; read x </dev/null; kill -STOP $$; exit 3", env=mark)
    async with running(state, fake) as agent:
        seen = await agent.until(lambda: fake.launched(7), "the launch")
        assert seen["progress"]["cpu_s"] is not None
        await agent.until(lambda: read_state(seen["pid"]) == "T")
        os.kill(seen["pid"], signal.SIGCONT)
        await agent.until(lambda: fake.ends)
        log = await agent.get("/log/7/1")
        assert (log.content, log.headers["X-Colane-Next-Offset"]) == (b"hello\n", "6")
    end = fake.ends[7, 1]
    assert (end["outcome"], end["exit_code"], end["signal"]) == ("exited", 3, None)
    assert end["start_s"] == seen["start_s"] < end["end_s"]
    assert (end["node"], end["log_bytes"], end["log_truncated"]) == ("node-1", 6, False)
    assert fake.told == {(7, 1): 1}


async def test_a_nudge_starts_a_job_at_once(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    async with running(state, fake, heartbeat_s=1000.0) as agent:
        await agent.until(lambda: fake.reports)
        fake.want(7, "true", env=mark)
        assert (await agent.get("/run")).json() == {"accepted": True}
        await agent.until(lambda: fake.ends, "the end, which needs no heartbeat either")


@pytest.mark.parametrize(
    ("launch", "outcome", "says"),
    [
        ({"command": ["colane-no-such-command"]}, "not-started", "command 'colane-no-such-command': No such file"),
        ({"workdir": "/no/such/place"}, "not-started", "working directory '/no/such/place': No such file"),
        ({"gpus_at": (3,)}, "not-started", "this node has no device 3"),
        ({"command": ["sh", "-c", "printf 'a\\0b MemoryError\\033[0m' >&2; exit 1"]}, "out-of-memory", "a b Memory"),
        ({"command": []}, "not-started", "the command is empty"),
        ({"command": ["echo", "a\0b"]}, "not-started", "holds a NUL character"),
        ({"command": ["sh", "-c", "kill -SEGV $$"]}, "signalled", ""),
        ({"command": ["sh", "-c", "echo MemoryError >&2; exit 1"]}, "out-of-memory", "MemoryError"),
    ],
)
async def test_other_ends(
    fake: FakeScheduler, state: Path, mark: dict[str, str], launch: dict[str, Any], outcome: str, says: str
) -> None:
    gpus = launch.pop("gpus_at", (0,))
    fake.want(7, "true", gpus=gpus, env=mark, **launch)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["outcome"] == outcome
    assert says in fake.ends[7, 1]["detail"]
    assert (fake.ends[7, 1]["start_s"] is None) == (outcome == "not-started")
    assert fake.told == {(7, 1): 1}


async def test_the_environment_is_exactly_as_promised(
    fake: FakeScheduler, state: Path, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SOMETHING", "1")
    monkeypatch.setenv("COLANE_TOKEN", "secret")
    core = min(os.sched_getaffinity(0))
    fake.want(7, "/usr/bin/env", "-0", env={**mark, "CUDA_VISIBLE_DEVICES": "5"}, cores=[core])
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
        text = (await agent.get("/log/7/1")).text
    seen = dict(item.split("=", 1) for item in text.split("\0")[:-1])
    basics = {name: os.environ[name] for name in ("HOME", "USER", "LANG") if name in os.environ}
    assert {name: value for name, value in seen.items() if name not in {*basics, "SHELL", "LOGNAME", "LC_ALL"}} == {
        **mark,
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **dict.fromkeys(THREAD_POOLS, "1"),
        "COLANE_THREADS": "1",
        "COLANE_JOB_ID": "7",
        "COLANE_ATTEMPT": "1",
        "COLANE_NODE": "node-1",
        "COLANE_POOL": "default",
        "COLANE_URL": "http://fake",
        "COLANE_STEPS_FILE": str(state / "jobs" / "7-1" / "own" / "steps"),
        "COLANE_ADAPTOR_DIR": str(bundle.place(state)),
        "COLANE_GATE": str(state / "gate"),
        "PYTHONPATH": str(bundle.place(state)),
        "PYTHONUNBUFFERED": "1",
    }


async def test_a_job_runs_on_its_cores(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    cores = sorted(os.sched_getaffinity(0))
    fake.want(7, "grep", "Cpus_allowed_list", "/proc/self/status", env=mark, cores=cores[:1])
    fake.want(8, "sh", "-c", "echo $OMP_NUM_THREADS", env=mark)
    async with running(state, fake) as agent:
        await agent.until(lambda: len(fake.ends) == 2)
        assert (await agent.get("/log/7/1")).text.split() == ["Cpus_allowed_list:", str(cores[0])]
        assert (await agent.get("/log/8/1")).text.split() == [str(len(cores))]


@pytest.mark.parametrize("how", ["end", "forget"])
async def test_a_job_that_shall_not_run_is_stopped(
    fake: FakeScheduler, state: Path, mark: dict[str, str], how: str
) -> None:
    fake.want(7, "sh", "-c", "trap '' TERM; sleep 1000 & setsid sleep 1000 & wait; sleep 1000", env=mark)
    async with running(state, fake, grace_s=0.3) as agent:
        await agent.until(lambda: fake.launched(7))
        getattr(fake, how)(7)
        await agent.until(lambda: fake.ends)
        assert (await agent.get("/log/7/1")).status_code == 200, "its log is kept"
    assert fake.ends[7, 1]["signal"] == signal.SIGKILL


async def test_the_end_of_a_job_that_never_came_is_told(fake: FakeScheduler, state: Path) -> None:
    fake.want(7, "true")
    fake.end(7)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["outcome"] == "not-started"


async def test_a_job_whose_command_its_scheduler_cannot_read_any_more_ends(fake: FakeScheduler, state: Path) -> None:
    fake.want(7, "true")
    fake.lost_commands.add(7)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["detail"]) == ("not-started", "submit it again")


async def test_a_new_attempt_waits_for_the_end_of_the_old(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sleep", "1000", env=mark)
    async with running(state, fake) as agent:
        old = (await agent.until(lambda: fake.launched(7)))["pid"]
        fake.want(7, "sh", "-c", f"kill -0 {old} && echo still there || echo gone", attempt=2, env=mark)
        await agent.until(lambda: (7, 2) in fake.ends)
        assert b"gone" in (await agent.get("/log/7/2")).content
    assert fake.ends[7, 1]["signal"] == signal.SIGTERM


async def test_while_the_scheduler_is_away_jobs_go_on_and_ends_are_kept(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sh", "-c", "kill -STOP $$; exit 4", env=mark)
    async with running(state, fake) as agent:
        pid = (await agent.until(lambda: fake.launched(7)))["pid"]
        await agent.until(lambda: read_state(pid) == "T")
        fake.away = True
        job = JobDir(state / "jobs" / "7-1")
        os.kill(pid, signal.SIGCONT)
        await agent.until(job.finished)
        assert not fake.ends
        fake.away = False
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["exit_code"] == 4
    assert fake.told == {(7, 1): 1}


async def test_an_end_is_told_until_it_is_answered(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    fake.refuse_ends, fake.lose_answers = 2, 1
    fake.want(7, "true", env=mark)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.told[7, 1] == 2, "again after the answer was lost")
        await agent.until(lambda: not list((state / "jobs").iterdir()))
    assert fake.told[7, 1] == 2


@pytest.mark.parametrize("together", [True, False], ids=["together", "older scheduler"])
async def test_ends_that_wait_are_told_with_one_request(
    fake: FakeScheduler, state: Path, mark: dict[str, str], together: bool
) -> None:
    for job in (7, 8, 9):
        fake.want(job, "sh", "-c", "kill -STOP $$; exit 4", env=mark)
    fake.takes_ends_together = together
    async with running(state, fake) as agent:
        await agent.until(lambda: all(fake.launched(job) for job in (7, 8, 9)))
        pids = [job["pid"] for job in fake.reports[-1]["jobs"]]
        await agent.until(lambda: all(read_state(pid) == "T" for pid in pids))
        fake.away = True
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        for job in (7, 8, 9):
            await agent.until(JobDir(state / "jobs" / f"{job}-1").finished)
        assert not fake.ends
        fake.away = False
        await agent.until(lambda: len(fake.ends) == 3)
        await agent.until(lambda: not list((state / "jobs").iterdir()))
    assert fake.told == {(7, 1): 1, (8, 1): 1, (9, 1): 1}
    assert fake.told_together == ([[(7, 1), (8, 1), (9, 1)]] if together else [])


async def test_a_scheduler_that_forgot_the_node_is_told_again(fake: FakeScheduler, state: Path) -> None:
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.reports)
        fake.nodes.clear()
        await agent.until(lambda: fake.registrations == 2)


async def test_one_agent_for_each_directory(fake: FakeScheduler, state: Path) -> None:
    async with running(state, fake):
        with pytest.raises(AgentError, match=rf"another agent \(pid {os.getpid()}\) uses the state directory"):
            async with running(state, fake):
                raise AssertionError


async def test_one_agent_for_each_name(fake: FakeScheduler, tmp_path: Path) -> None:
    async with running(tmp_path / "a", fake) as agent:
        await agent.until(lambda: fake.reports)
        with pytest.raises(AgentError, match="refuses node 'node-1': name: node node-1 has a live agent"):
            async with running(tmp_path / "b", fake) as second:
                await second.task


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"devices": "cpu:9999"}, "--devices cpu:9999"),
        ({"topology": Topology((), ())}, "--topology: connects 0 GPUs, but this agent has 1 device"),
        ({"host": "192.0.2.1"}, "cannot listen on 192.0.2.1:0"),
    ],
)
async def test_settings_that_cannot_be(fake: FakeScheduler, state: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(AgentError, match=says):
        async with running(state, fake, **changes):
            raise AssertionError


async def test_a_node_whose_name_was_given_away_gives_up(fake: FakeScheduler, state: Path) -> None:
    async def lose_the_name() -> None:
        async with running(state, fake) as agent:
            await agent.until(lambda: fake.reports)
            fake.nodes["node-1"]["agent_id"] = "another"
            await agent.task

    with pytest.raises(AgentError, match="has a live agent"):
        await lose_the_name()


async def test_steps_and_loss_are_the_jobs_own(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    program = (
        "import colane.adaptor as colane, os, signal\nsteps = colane.attach(total_steps=30)\n"
        "for i in range(25): steps.step(loss=1.0 / (i + 1))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    fake.want(7, sys.executable, "-c", program, env={**mark, "PYTHONPATH": SRC})
    async with running(state, fake) as agent:
        await agent.until(lambda: (seen := fake.launched(7)) and seen["progress"]["steps"] == 25)
        seen = fake.launched(7)
        assert seen is not None
        os.kill(seen["pid"], signal.SIGCONT)
        await agent.until(lambda: fake.ends)
    progress = seen["progress"]
    assert (progress["steps_total"], progress["loss"]) == (30, 1.0 / 25)
    assert 0 < progress["step_mean_s"] < 1
    assert 0 < progress["step_median_s"] < 1
    assert progress["first_step_s"] <= progress["last_step_s"]
    assert progress["peak_bytes"] >= progress["persistent_bytes"] > 0
    end = fake.ends[7, 1]
    assert len(end["step_durations_s"]) == end["progress"]["steps"] == 25
    assert end["progress"]["cpu_s"] > 0


async def test_occupancy_of_a_cpu_device_is_its_cpu_time(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    core = min(os.sched_getaffinity(0))
    fake.want(7, "sh", "-c", "while :; do :; done", env=mark, cores=[core])
    fake.want(8, "sleep", "1000", env=mark, cores=[core])

    def measured() -> bool:
        jobs = [fake.launched(7), fake.launched(8)]
        return all(job is not None and (job["progress"]["cpu_s"] > 0.2 or job["id"] == 8) for job in jobs)

    async with running(state, fake, stop_jobs=True) as agent:
        await agent.until(measured)
        busy, idle = (job["progress"] for job in fake.reports[-1]["jobs"])
    assert busy["occupancy_by"] == idle["occupancy_by"] == "cpu-time"
    assert 0.02 < busy["occupancy_ratio"] <= 1.0
    assert idle["occupancy_ratio"] < 0.02 < busy["occupancy_ratio"]


async def test_logs_over_the_api(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    fake.want(7, "sh", "-c", "printf 0123456789", env=mark)
    async with running(state, fake, token="of the scheduler") as agent:
        await agent.until(lambda: fake.ends)
        key = {"Authorization": f"Bearer {fake.nodes['node-1']['secret']}"}
        assert (await agent.get("/log/7/1", Authorization="")).status_code == 401
        assert (await agent.get("/run", Authorization="Bearer of the scheduler")).status_code == 401
        assert (await agent.get("/health")).status_code == 200
        part = await agent.get("/log/7/1?offset=2&limit=3", **key)
        assert (part.content, part.headers["X-Colane-Next-Offset"]) == (b"234", "5")
        assert (await agent.get("/log/7/1?offset=-2", **key)).content == b"89"
        missing = await agent.get("/log/7/2", **key)
        assert (missing.status_code, "job 7, attempt 2" in missing.json()["detail"]) == (404, True)
        wrong = await agent.get("/log/7/1?offset=two", **key)
        assert (wrong.status_code, wrong.json()["detail"]) == (422, "offset must be a whole number, got 'two'")


def test_config_has_the_documented_defaults(tmp_path: Path) -> None:
    config = AgentConfig(name="n", scheduler_url="http://x", state_dir=tmp_path)
    assert (config.host, config.port, config.mps, config.stop_jobs) == ("127.0.0.1", 0, "auto", False)


async def test_what_runs_is_gone_when_its_supervisor_says_so(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sleep", "1000", env=mark)
    async with running(state, fake) as agent:
        seen = await agent.until(lambda: fake.launched(7))
        main = processes.identify(seen["pid"])
        assert main is not None
        fake.end(7)
        await agent.until(lambda: fake.ends)
        until_gone(main)

"""`colane up`: starting, stopping, being killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colane.agent.files.logs import read_log
from colane.api.jobs import JobObject
from colane.cli.service import terminal
from colane.client.errors import SchedulerError
from colane.engines import local
from tests.cli.conftest import START_MAX_S, Gate, Up, run_colane, until
from tests.server.redis_server import opened, redis_server

pytestmark = pytest.mark.live

MakeUp = Callable[..., Up]


def submit(up: Up, command: list[str]) -> int:
    with up.client as client:
        return client.submit({"command": command, "env": {"PATH": os.environ["PATH"]}})


def test_it_says_where_and_what(make_up: MakeUp) -> None:
    up = make_up("--devices", "cpu:1:2GB", "--policy", "fifo", "--name", "me", is_warm=False)
    assert f"colane scheduler at {up.url}, policy fifo, state in {up.state}" in up.greeting
    assert "device me/0: cpu, 2 GB, cores 0" in up.greeting
    assert f"export COLANE_STATE={up.state}" in up.greeting
    assert up.end(signal.SIGTERM) == (0, "stopping\nstopped\n")
    up.leaves_none()
    assert not (up.state / "server.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_cancels_what_runs_and_keeps_what_waits(make_up: MakeUp, gate: Gate, number: int) -> None:
    up = make_up("--devices", "cpu:1", "--policy", "fifo")
    running, waiting = submit(up, gate.job), submit(up, ["true"])
    up.wait_for(running, "launching")
    assert up.end(number)[0] == 0
    up.leaves_none()
    again = make_up("--devices", "cpu:1", "--policy", "fifo")
    assert again.wait_for(running, "cancelled")["reason"] == "cancelled by the end of colane up"
    again.wait_for(waiting, "succeeded")


def test_a_job_here_outlasts_a_scheduler_that_is_away_for_longer_than_the_lease(
    make_up: MakeUp, tmp_path: Path
) -> None:
    up = make_up("--devices", "cpu:1", "--policy", "fifo", "--lease", "10s")
    assert "lease 10 s: while the scheduler is away for longer" in up.greeting
    lines = tmp_path / "lines"
    job = submit(up, ["sh", "-c", f'for i in $(seq 24); do echo "$COLANE_ATTEMPT $i" >>{lines}; sleep 0.5; done'])
    up.wait_for(job, "launching")
    with up.client as client:
        until(lambda: [node["leased"] for node in client.nodes()] == [False], "it is told that its lease is endless")
    scheduler = json.loads((up.state / "server.json").read_text())["pid"]
    os.kill(scheduler, signal.SIGSTOP)
    until(lambda: lines.exists() and lines.read_text().endswith(" 24\n"), "it goes on to its end")
    os.kill(scheduler, signal.SIGCONT)
    record = up.wait_for(job, "succeeded", "failed")
    assert (record["state"], record["attempt"]) == ("succeeded", 1)
    assert lines.read_text() == "".join(f"1 {line}\n" for line in range(1, 25))


def test_kept_jobs_go_on_and_are_taken_over(make_up: MakeUp, gate: Gate) -> None:
    up = make_up("--devices", "cpu:1", "--keep-jobs")
    job = submit(up, gate.job)
    up.wait_for(job, "launching")
    assert up.end(signal.SIGINT)[0] == 0
    again = make_up("--devices", "cpu:1", "--keep-jobs")
    assert "from before: 1 running, 0 waiting" in again.greeting
    gate.open()
    ended = again.wait_for(job, "succeeded")
    assert ended["attempt"] == 1


def test_the_crash_of_a_parent_is_no_order(make_up: MakeUp, gate: Gate) -> None:
    """`up` is killed: scheduler and agent end with it, its job goes on, and the next one has it."""
    up = make_up("--devices", "cpu:1")
    job = submit(up, gate.job)
    up.wait_for(job, "launching")
    up.process.kill()
    up.process.wait()
    until(lambda: not any(b"colane.cli" in _command(pid) for pid in up.processes()), "the end of scheduler and agent")
    again = make_up("--devices", "cpu:1")
    assert "from before: 1 running, 0 waiting" in again.greeting
    gate.open()
    ended = again.wait_for(job, "succeeded")
    assert ended["attempt"] == 1


def test_a_closed_terminal_is_no_order(make_up: MakeUp, gate: Gate) -> None:
    up = make_up("--devices", "cpu:1", "--policy", "fifo")
    running, waiting = submit(up, gate.job), submit(up, ["true"])
    up.wait_for(running, "launching")
    up.process.send_signal(signal.SIGHUP)
    log = up.state / terminal.UP_LOG
    until(log.exists, "it says so in its log")
    gate.open()
    assert up.wait_for(waiting, "succeeded")["attempt"] == 1
    assert f"it goes on in the background; kill {up.process.pid} stops all" in log.read_text()
    assert up.end(signal.SIGTERM) == (0, "")
    assert log.read_text().endswith("stopping\nstopped\n")
    up.leaves_none()


SAVING = """
import os, signal, sys, time
def save(number, frame):  # asked while it still prints, it could not print
    time.sleep(1.5); os.write(1, f"saved at {signal.Signals(number).name}\\n".encode()); sys.exit(75)
signal.signal(signal.SIGUSR1, save)
signal.signal(signal.SIGTERM, save)
print("trains", flush=True)
while True: time.sleep(1)
"""
"""Takes longer to save than what is left behind has to end."""


def test_every_order_of_the_scheduler_lets_a_script_save(make_up: MakeUp, tmp_path: Path) -> None:
    """Cancelled, over its time, drained, stopped with `up`; asked by the signal that its owner named, or by SIGTERM."""
    (tmp_path / "train.py").write_text(SAVING)
    up = make_up("--devices", "cpu:2", "--policy", "fifo", "--name", "here", "--grace", "60s")
    script = ["sh", "-c", f"{sys.executable} train.py; exit $?"]
    asked = {"checkpoint": "plain", "checkpoint_lead_s": 60.0}
    requests: list[dict[str, Any]] = [asked, {}, {**asked, "time_limit_s": 20.0}, {"time_limit_s": 10.0}]
    with up.client as client:

        def start(**request: Any) -> int:
            env = {"PATH": os.environ["PATH"]}
            job = client.submit({"command": script, "workdir": str(tmp_path), "env": env, **request})
            until(lambda: b"trains" in _log(up, job), "it trains")
            return job

        ids = [start(**one) for one in requests[:2]]
        for job in ids:
            client.cancel(job)
        ids += [start(**one) for one in requests[2:]]
        ends = [up.wait_for(job, "cancelled", "timed-out") for job in ids]
        logs = [_log(up, job).decode() for job in ids]
        last, drained = start(), start(**asked)
        client.drain("here", deadline_s=100.0)
        until(lambda: b"saved at SIGUSR1" in _log(up, drained), "it saves, and leaves")
    assert up.end(signal.SIGINT)[0] == 0
    assert "saved at SIGTERM" in _log(up, last).decode()
    assert [end["state"] for end in ends] == ["cancelled", "cancelled", "timed-out", "timed-out"]
    for log, signal_name in zip(logs, ["SIGUSR1", "SIGTERM"] * 2, strict=True):
        assert f"saved at {signal_name}" in log
    told = "told to save its state: it reaches its time limit of 20 s in 10 s"
    assert f"colane: {told}\ncolane: SIGUSR1 asks it to save its state within 60 s" in logs[2]
    start_s, end_s = ends[2]["start_s"], ends[2]["end_s"]
    assert start_s is not None
    assert end_s is not None
    assert end_s - start_s < 20.0, "it was asked its lead before, at most half of its time"


@pytest.mark.parametrize("who", ["server", "agent"])
def test_what_is_killed_is_started_again(make_up: MakeUp, gate: Gate, who: str) -> None:
    up = make_up("--devices", "cpu:1")
    job = submit(up, gate.job)
    up.wait_for(job, "launching")
    child = next(pid for pid in up.processes() if f"colane.cli\0{who}\0".encode() in _command(pid))
    os.kill(child, signal.SIGKILL)
    assert up.process.stderr is not None
    # The agent may say first that the scheduler does not answer.
    assert any("has died (signal 9) and is started again" in line for line in up.process.stderr)
    assert _answer(up)["id"] == job
    gate.open()
    until(lambda: _answer(up)["state"] == "succeeded", "the job's end")
    assert _answer(up)["attempt"] == 1
    assert up.end(signal.SIGINT)[0] == 0


def test_jobs_outlast_a_scheduler_that_is_killed_over_a_store_in_redis(make_up: MakeUp, gate: Gate) -> None:
    with redis_server() as server:
        up = make_up("--devices", "cpu:1", "--store", server.url())
        job = submit(up, gate.job)
        up.wait_for(job, "launching")
        child = next(pid for pid in up.processes() if b"colane.cli\0server\0" in _command(pid))
        os.kill(child, signal.SIGKILL)
        assert up.process.stderr is not None
        assert any("has died (signal 9) and is started again" in line for line in up.process.stderr)
        gate.open()
        until(lambda: _answer(up)["state"] == "succeeded", "the job's end")
        assert _answer(up)["attempt"] == 1
        assert up.end(signal.SIGINT)[0] == 0
        with opened(server) as store:
            assert store.count("finished_jobs") == 1


def test_it_ends_where_its_state_directory_is_deleted(make_up: MakeUp, gate: Gate) -> None:
    up = make_up("--devices", "cpu:1")
    job = submit(up, gate.job)
    up.wait_for(job, "launching")
    shutil.rmtree(up.state, ignore_errors=True)
    _, said = up.process.communicate(timeout=START_MAX_S)
    assert (up.process.returncode, up.processes()) == (1, [])
    assert f"{up.state} was deleted, moved or replaced meanwhile, so nothing can be kept: start anew" in said


def _log(up: Up, job: int) -> bytes:
    """What the job has printed in its first attempt, as it lies on the disk."""
    found = next(up.state.glob(f"agent/*/{job}-1"), None)
    return b"" if found is None else read_log(found).data


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _answer(up: Up) -> JobObject:
    """What the scheduler says of job 1, as soon as it answers."""

    def ask() -> JobObject | None:
        try:
            with up.client as client:
                return client.job(1)
        except SchedulerError:
            return None

    found: JobObject = until(ask, "an answer")
    return found


def test_two_on_one_state_directory(make_up: MakeUp) -> None:
    up = make_up("--devices", "cpu:1")
    said = run_colane(["up", "--port", "0", "--state", str(up.state)])
    assert said.code == 1
    assert len(said.err.splitlines()) == 1
    assert "another scheduler" in said.err


def test_a_port_in_use(make_up: MakeUp, tmp_path: Path) -> None:
    port = make_up("--devices", "cpu:1").url.rpartition(":")[2]
    said = run_colane(["up", "--port", port, "--state", str(tmp_path / "other")])
    assert said.code == 1
    assert len(said.err.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in said.err
    assert "choose another --port" in said.err


def test_a_token_is_demanded(make_up: MakeUp) -> None:
    up = make_up("--devices", "cpu:1", is_warm=False, COLANE_TOKEN="secret")
    without = run_colane(["ps"], COLANE_URL=up.url)
    assert without.code == 2
    assert "COLANE_TOKEN" in without.err
    assert run_colane(["ps", "--json"], COLANE_URL=up.url, COLANE_TOKEN="secret").json == []
    assert all(b"secret" not in _command(pid) for pid in up.processes() if pid != up.process.pid)
    assert up.end(signal.SIGINT)[0] == 0


def test_server_and_agent_apart(make_up: MakeUp, tmp_path: Path) -> None:
    """An agent of its own joins; one of the same name is refused."""
    up = make_up("--devices", "cpu:1", "--name", "twin")
    said = run_colane(["agent", "--name", "twin", "--devices", "cpu:1", "--state", str(tmp_path / "agent")], **up.env)
    assert said.code == 1
    assert "twin" in said.err.splitlines()[-1]
    assert len(said.err.splitlines()) <= 2, "as root it says besides which users it serves"


SPINS = "print('spins', flush=True)\nwhile True: pass"


def test_work_of_others_on_a_device_is_seen(make_up: MakeUp) -> None:
    up = make_up("--devices", "cpu:1", COLANE_OTHERS="respect")
    spinning = [subprocess.Popen([sys.executable, "-c", SPINS]) for _ in os.sched_getaffinity(0)]
    try:
        until(lambda: _others_ratio(up) >= 0.25, "the load of others")
        assert "others use" in run_colane(["nodes"], **up.env).out
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def _others_ratio(up: Up) -> float:
    with up.client as client:
        return float(client.nodes()[0]["gpus"][0]["others_ratio"])


def test_a_slow_start_is_waited_for_and_spoken_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "START_LONG_S", 0.0)
    told: list[str] = []
    child: Any = SimpleNamespace(name="agent", pidfd=os.pidfd_open(os.getpid()), tell=told.append)
    answers = iter([None, None, None, "here"])
    assert local._wait_for(child, lambda: next(answers)) == "here"
    assert told == ["the agent takes long to start: this machine is busy"]
    os.close(child.pidfd)

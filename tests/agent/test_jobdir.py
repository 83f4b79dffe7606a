from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from colane.adaptor import wire
from colane.agent.errors import AgentError
from colane.agent.files.jobdir import FINISHED, JobDir, LaunchFacts, StateDir, write_json
from colane.agent.processes import ProcessId
from colane.agent.reconcile import Key
from colane.agent.supervisor import shim, shim_files
from colane.agent.supervisor.command import Command
from colane.devices.host import boot_id

FACTS = LaunchFacts(boot_id(), 5.0, (0, 1), (2, 3), cpu_devices=True, mps=False)
COMMAND = Command(("true",), "/", {"SECRET": "x"})


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    return StateDir(tmp_path / "state")


def test_an_attempt_is_read_back(state: StateDir) -> None:
    state.prepare(Key(7, 2), COMMAND, FACTS)
    (job,) = state.live()
    assert (job.key, job.facts()) == (Key(7, 2), FACTS)
    assert shim.ShimCommand((job.path / shim_files.COMMAND).read_bytes()).env == COMMAND.env
    assert job.claimed_by() is None
    assert not job.has_ended()
    assert state.find(Key(7, 2)) == job.path
    assert state.steps_path(Key(7, 2)) == job.steps_path
    assert job.steps_path.exists()


def test_an_attempt_is_prepared_once(state: StateDir) -> None:
    state.prepare(Key(7, 2), COMMAND, FACTS)
    with pytest.raises(OSError, match="not empty"):
        state.prepare(Key(7, 2), COMMAND, FACTS)
    assert [path.name for path in state.jobs.iterdir()] == ["7-2"], "no draft is left"


def test_a_claim_names_its_process(state: StateDir) -> None:
    job = state.prepare(Key(7, 1), COMMAND, FACTS)
    (job.path / shim_files.CLAIM).write_text("12 345 some-boot\n")
    assert job.claimed_by() == ProcessId(12, 345, "some-boot")
    assert not job.close("not-started", "too late")
    assert not job.has_ended()


def test_an_attempt_from_before_a_reboot_counts_as_claimed(state: StateDir) -> None:
    job = state.prepare(Key(7, 1), COMMAND, LaunchFacts("earlier", 5.0))
    assert job.claimed_by() == ProcessId(0, 0, "earlier")


def test_an_unclaimed_attempt_is_closed(state: StateDir) -> None:
    job = state.prepare(Key(7, 1), COMMAND, FACTS)
    assert job.close("not-started", "no more")
    record = job.exit_record()
    assert record is not None
    assert (record["outcome"], record["detail"], record["start_s"]) == ("not-started", "no more", 5.0)


def test_delivered_attempts_keep_their_log_and_lose_their_secrets(state: StateDir) -> None:
    job = state.prepare(Key(7, 1), COMMAND, FACTS)
    (job.path / "log.0").write_text("said")
    wire.create(f"{job.steps_path}.1")
    state.deliver(job)
    assert state.live() == []
    assert state.is_delivered(Key(7, 1))
    place = state.find(Key(7, 1))
    assert place == state.ended / "7-1"
    assert sorted(path.name for path in place.iterdir()) == ["launch.json", "log.0"]


def deliver_old(state: StateDir, job: int, *, ended_s: float, size: int = 10) -> None:
    directory = state.prepare(Key(job, 1), COMMAND, FACTS)
    write_json(directory.path / FINISHED, {"id": job})
    os.utime(directory.path / FINISHED, (ended_s, ended_s))
    (directory.path / "log.0").write_bytes(b"x" * size)
    state.deliver(directory)


@pytest.mark.parametrize(
    ("bounds", "left"),
    [
        ({}, {"1-1", "2-1", "3-1"}),
        ({"jobs_max": 2}, {"2-1", "3-1"}),
        ({"bytes_max": 25_000}, {"2-1", "3-1"}),
        ({"age_max_s": 50}, {"3-1"}),
    ],
)
def test_the_oldest_ended_attempts_are_dropped(
    state: StateDir, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, int], left: set[str]
) -> None:
    for job in (1, 2, 3):
        deliver_old(state, job, ended_s=1000.0 + 60 * job, size=10_000)
    monkeypatch.setattr("colane.agent.files.jobdir.time.time", lambda: 1190.0)
    settings = {"jobs_max": 100, "age_max_s": 1e6, "bytes_max": 10**9} | bounds
    state.trim(
        jobs_max=int(settings["jobs_max"]), age_max_s=settings["age_max_s"], bytes_max=int(settings["bytes_max"])
    )
    assert {path.name for path in state.ended.iterdir()} == left


def test_the_agent_is_the_same_after_a_restart(tmp_path: Path) -> None:
    first = StateDir(tmp_path)
    first.close()
    assert StateDir(tmp_path).agent_id == first.agent_id


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentError, match="file/state cannot be used: Not a directory"):
        StateDir(tmp_path / "file" / "state")


def test_what_is_no_attempt_is_left_alone(state: StateDir) -> None:
    (state.jobs / "lost+found").mkdir()
    (state.jobs / ".9-1").mkdir()
    assert state.live() == []
    assert JobDir(state.jobs / "10-2").key == Key(10, 2)


def test_an_exit_record_of_a_lost_supervisor_tells_what_is_kept(state: StateDir) -> None:
    job = state.prepare(Key(7, 1), COMMAND, FACTS)
    (job.path / shim_files.STARTED).write_text(json.dumps({"pid": 1, "start_ticks": 2, "start_s": 77.0}))
    (job.path / "log.0").write_bytes(b"abc")
    (job.path / "log.10").write_bytes(b"de")
    job.record_end("supervisor-died", "it was killed")
    record = job.exit_record()
    assert record is not None
    assert (record["start_s"], record["log_bytes"], record["log_truncated"]) == (77.0, 12, True)


def test_a_jobs_token_is_its_users_alone_and_goes_with_its_end(state: StateDir) -> None:
    job = state.prepare(Key(7, 1), COMMAND, FACTS, "its token")
    file = job.path / "own" / "token"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("its token", 0o600)
    assert [path for path in job.path.rglob("*") if path.is_file() and b"its token" in path.read_bytes()] == [file]
    state.deliver(job)
    assert not list(state.root.rglob("token"))

"""An agent that ends, is started again, or finds what a crash has left."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from colane.agent import processes
from colane.agent.files.jobdir import OWN, JobDir, LaunchFacts, StateDir
from colane.agent.files.logs import read_log
from colane.agent.launch.launcher import Launcher
from colane.agent.processes import ProcessId
from colane.agent.reconcile import Key
from colane.agent.supervisor import shim_files, shim_system
from colane.agent.supervisor.command import Command
from colane.devices.host import boot_id
from tests.agent.agents import GRACE_S, running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.waiting import read_state, until_gone

pytestmark = pytest.mark.live


def supervisor_of(state: Path, job: int, attempt: int = 1) -> ProcessId:
    claimed_by = JobDir(state / "jobs" / f"{job}-{attempt}").claimed_by()
    assert claimed_by is not None
    return claimed_by


async def test_a_job_whose_supervisor_dies_is_cleaned_up(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    script = "echo said; setsid sh -c 'trap \"\" TERM; echo $$ >&2; sleep 1000; sleep 1000' & wait"
    fake.want(7, "sh", "-c", script, env=mark)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.launched(7))
        await agent.until(lambda: len(read_log(state / "jobs" / "7-1").data.split()) == 2)
        os.kill(supervisor_of(state, 7).pid, signal.SIGKILL)
        await agent.until(lambda: fake.ends)
        assert not processes.marked(f"COLANE_STEPS_FILE={state / 'jobs' / '7-1' / 'steps'}".encode())
    assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("supervisor-died", None)
    assert fake.ends[7, 1]["log_bytes"] > 0


async def test_a_restarted_agent_takes_its_jobs_up_again(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sh", "-c", "kill -STOP $$; exit 4", env=mark)
    async with running(state, fake) as agent:
        pid = (await agent.until(lambda: fake.launched(7)))["pid"]
    first_id = fake.nodes["node-1"]["agent_id"]
    fake.reports.clear()
    async with running(state, fake) as agent:
        assert (await agent.until(lambda: fake.launched(7)))["pid"] == pid
        await agent.until(lambda: read_state(pid) == "T")
        os.kill(pid, signal.SIGCONT)
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["exit_code"] == 4
    assert fake.told == {(7, 1): 1}
    assert fake.nodes["node-1"]["agent_id"] == first_id


@pytest.mark.parametrize(("then", "expected"), [("exit 0", (0, False)), ("exit 4", (4, False)), ("", (None, True))])
async def test_a_restarted_agent_knows_whether_a_job_had_ended_before_it_was_to(
    fake: FakeScheduler, state: Path, mark: dict[str, str], then: str, expected: tuple[int | None, bool]
) -> None:
    """It ends while the agent is away, or is still there: by then it is to end, as the scheduler took it to run."""
    fake.want(7, "sh", "-c", f"kill -STOP $$; {then or 'exec sleep 1000'}", env=mark)
    async with running(state, fake) as agent:
        pid = (await agent.until(lambda: fake.launched(7)))["pid"]
        await agent.until(lambda: read_state(pid) == "T")
    supervisor = supervisor_of(state, 7)
    os.kill(pid, signal.SIGCONT)
    if then:
        until_gone(supervisor)
    fake.end(7)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert (fake.ends[7, 1]["exit_code"], fake.ends[7, 1]["was_stopped"]) == expected


async def test_jobs_end_with_the_agent_where_so_configured(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sleep", "1000", env=mark)
    async with running(state, fake, stop_jobs=True) as agent:
        await agent.until(lambda: fake.launched(7))
    end = fake.ends[7, 1]
    assert (end["signal"], end["outcome"]) == (signal.SIGTERM, "stopped"), "no failure of the job"
    assert "told to end together with its jobs" in end["detail"]
    assert fake.reports[-1]["notice"]["reason"] == end["detail"], "or it would be started here once more"


async def test_a_job_that_is_ended_from_outside_is_told_of_after_notice(
    fake: FakeScheduler, state: Path, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine, or the pilot that holds this agent, may end: the agent may be the last to hear of it."""
    fake.want(7, "sleep", "1000", env=mark)
    take, known = fake.finished, []

    async def finished(told: Any) -> Any:
        known.append(fake.reports[-1].get("notice"))
        return await take(told)

    monkeypatch.setattr(fake, "finished", finished)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.launched(7))
        assert fake.reports[-1].get("notice") is None
        os.kill(supervisor_of(state, 7).pid, signal.SIGTERM)
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["outcome"] == "stopped"
    assert known[0] is not None
    assert "from outside of Colane" in known[0]["reason"]


def prepare(state: Path, mark: dict[str, str], *argv: str, boot: str | None = None) -> JobDir:
    """Leave what an agent leaves that dies right after preparing attempt 1 of job 7."""
    directory = StateDir(state)
    command = Command(argv, "/", mark, grace_s=GRACE_S)
    job = directory.prepare(Key(7, 1), command, LaunchFacts(boot or boot_id(), 1.0, (0,), (0,), cpu_devices=True))
    directory.close()
    return job


async def test_an_agent_that_ends_right_after_a_launch_leaves_no_child(state: Path, mark: dict[str, str]) -> None:
    job = prepare(state, mark, "true")
    launcher, before = Launcher(state), set(shim_system.children(os.getpid()))
    launcher.spawn(job, lambda _: None)
    launcher.close()
    assert set(shim_system.children(os.getpid())) <= before
    claimed_by = job.claimed_by()
    assert claimed_by is not None
    until_gone(claimed_by)


async def test_a_launch_that_a_crash_broke_off_is_taken_up_once(
    fake: FakeScheduler, state: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "never used: the directory says what to run")
    prepare(state, mark, "sh", "-c", "echo ran")
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
        assert (await agent.get("/log/7/1")).content == b"ran\n"
    assert fake.ends[7, 1]["exit_code"] == 0


async def test_a_half_written_directory_is_no_launch(fake: FakeScheduler, state: Path, mark: dict[str, str]) -> None:
    prepare(state, mark, "true").path.rename(state / "jobs" / ".7-1")
    fake.want(7, "sh", "-c", "exit 6", env=mark)
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["exit_code"] == 6


async def test_a_launch_that_is_not_wanted_any_more_is_not_taken_up(
    fake: FakeScheduler, state: Path, mark: dict[str, str], tmp_path: Path
) -> None:
    prepare(state, mark, "touch", str(tmp_path / "ran"))
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["outcome"] == "not-started"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["recycled pid", "dead pid", "agent's own claim", "earlier boot"])
async def test_what_has_no_supervisor_is_neither_adopted_nor_run_again(
    fake: FakeScheduler, state: Path, mark: dict[str, str], tmp_path: Path, kind: str
) -> None:
    fake.want(7, "touch", str(tmp_path / "ran"), env=mark)
    boot = "an-earlier-boot" if kind == "earlier boot" else boot_id()
    job = prepare(state, mark, "touch", str(tmp_path / "ran"), boot=boot)
    innocent = processes.identify(os.getpid())
    assert innocent is not None
    claims = {
        "recycled pid": f"{innocent.pid} {innocent.start_ticks - 1} {boot}",
        "dead pid": f"{2**22 - 1} 1 {boot}",
        "agent's own claim": f"0 0 {boot}",
    }
    if kind in claims:
        (job.path / shim_files.CLAIM).write_text(claims[kind])
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["outcome"] == "supervisor-died"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["launch.json", "claim", "finished.json"])
async def test_files_that_a_power_cut_emptied(
    fake: FakeScheduler, state: Path, mark: dict[str, str], tmp_path: Path, name: str
) -> None:
    job = prepare(state, mark, "touch", str(tmp_path / "ran"), boot="before the power cut")
    (job.path / name).write_bytes(b"")
    async with running(state, fake) as agent:
        await agent.until(lambda: fake.ends)
    assert fake.ends[7, 1]["outcome"] == "supervisor-died"
    assert not (tmp_path / "ran").exists()


def test_secrets_are_for_the_owner_only(state: Path, mark: dict[str, str]) -> None:
    job = prepare(state, mark, "true")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (job.path / shim_files.COMMAND, job.path / OWN))
    # Root's others may pass through to what is their job's, and look at nothing.
    assert all(path.stat().st_mode & 0o066 == 0 for path in (state, job.path))

"""Functions and commands as jobs, against a real scheduler: futures as those of the standard library."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, as_completed
from pathlib import Path

import pytest

from colane.client.errors import Refused, SchedulerUnreachable
from colane.client.futures import JobExecutor, JobFailed, NotPicklable, RemoteError
from tests.cli.conftest import Gate, Up

pytestmark = pytest.mark.live


class OddError(Exception):
    """One that cannot be made again from what it holds."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def square(number: int) -> int:
    return number * number


def refuse(kind: str) -> None:
    raise OddError(1, 2) if kind == "odd" else KeyError("missing")


def leave() -> None:
    os._exit(7)


@pytest.fixture
def jobs(slurm_up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobExecutor]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    with JobExecutor(url=slurm_up.url, token=slurm_up.env["COLANE_TOKEN"], gpus=0) as made:
        yield made


def test_results_come_as_of_any_executor(jobs: JobExecutor) -> None:
    assert list(jobs.map(square, [1, 2])) == [1, 4]
    made = jobs.array(square, range(3), at_once=2)
    assert sorted(job.result() for job in as_completed(made)) == [0, 1, 4]
    assert made[1].id == made[0].id + 1
    asking = jobs.asking(name="named", labels={"run": "a"})
    job = asking.submit(square, 5)
    assert (job.result(), job.exception(), job.state()) == (25, None, "succeeded")


def test_a_result_is_there_soon_after_the_process_has_ended(jobs: JobExecutor, slurm_up: Up) -> None:
    """The best of five, as other tests run at the same time."""
    lags = []
    for _ in range(5):
        job = jobs.submit(square, 2)
        job.result()
        seen_s = time.time()
        with slurm_up.client as client:
            end_s = client.job(job.id)["end_s"]
        assert end_s is not None
        lags.append(seen_s - end_s)
    assert min(lags) < 1.0, lags  # told, not asked for now and then


def test_a_job_can_be_awaited(jobs: JobExecutor) -> None:
    async def both() -> list[int]:
        return list(await asyncio.gather(jobs.submit(square, 3), jobs.submit(square, 4)))

    assert asyncio.run(both()) == [9, 16]


def test_what_a_function_raises_is_raised(jobs: JobExecutor) -> None:
    known, odd, gone = jobs.submit(refuse, "key"), jobs.submit(refuse, "odd"), jobs.submit(leave)
    with pytest.raises(KeyError, match="missing"):
        known.result()
    with pytest.raises(RemoteError, match="OddError: 1 and 2") as raised:
        odd.result()
    assert "raise OddError(1, 2)" in raised.value.trace
    with pytest.raises(JobFailed, match=f"job {gone.id} failed") as failed:
        gone.result()
    assert failed.value.exit_code == 7


def test_what_cannot_be_sent_or_submitted(jobs: JobExecutor) -> None:
    with pytest.raises(NotPicklable, match="square cannot be sent to a job"):
        jobs.submit(square, threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(Refused, match="gpu"):
        jobs.asking(gpus=99).submit(square, 1)
    with pytest.raises(SchedulerUnreachable), JobExecutor(url="http://127.0.0.1:1") as nowhere:
        nowhere.submit(square, 1)


def test_commands_and_their_end(jobs: JobExecutor, gate: Gate) -> None:
    told = jobs.command("sh", "-c", "echo said; exit 3")
    assert told.result() == 3
    assert b"".join(told.logs()) == b"said\n"
    waits, held = jobs.command(*gate.job), jobs.asking(hold=True).command("true")
    assert next(waits.logs(follow=True)).startswith(b"at the gate")
    assert waits.cancel()
    assert held.cancel()
    with pytest.raises(CancelledError):
        waits.result()
    with pytest.raises(CancelledError):
        held.result()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")

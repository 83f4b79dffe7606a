"""`colane attach`: beside a job until it ends, with its output and exit code."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from colane.model.job import JobState
from tests.cli.conftest import COLANE, Colane, Up, environment

RUNNING = (JobState.LAUNCHING.value, JobState.RUNNING.value, JobState.RUNNING_PROTECTED.value)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """What a job waits for until a test opens it."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def submitted(live: Colane, pipe: Path, *options: str) -> str:
    script = f"seq 1 30; read -r line < {pipe}; echo $line; exit 3"
    return live("submit", *options, "--", "sh", "-c", script).out.split()[-1]


def attached(shared_up: Up, job: str, *options: str) -> subprocess.Popen[bytes]:
    words, env = [*COLANE, "attach", job, *options], environment(**shared_up.env)
    # Unbuffered: what is behind a line that was read is not lost to who reads the rest.
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


def rest(beside: subprocess.Popen[bytes]) -> tuple[str, str]:
    out, err = beside.communicate(timeout=60)
    return out.decode(), err.decode()


def test_it_prints_the_last_lines_what_follows_and_leaves_with_the_jobs_code(
    live: Colane, shared_up: Up, pipe: Path
) -> None:
    job = submitted(live, pipe)
    shared_up.wait_for(int(job), *RUNNING)
    beside = attached(shared_up, job)
    assert beside.stdout is not None
    first = beside.stdout.readline()  # whichever it is: the job may not have printed all yet
    pipe.write_text("through\n")
    out, err = rest(beside)
    lines = [first.decode().strip(), *out.split()]
    assert lines[-2:] == ["30", "through"]
    assert lines[:-1] == [str(number) for number in range(31 - len(lines) + 1, 31)]
    assert beside.returncode == 3
    assert f"job {job} failed: " in err


def test_it_waits_for_a_job_that_waits_and_ends_with_it(live: Colane, shared_up: Up) -> None:
    job = live("submit", "--hold", "--", "echo", "late").out.split()[-1]
    beside = attached(shared_up, job)
    assert beside.stderr is not None
    assert beside.stderr.readline().decode().startswith(f"job {job} is queued: JobHeldUser")
    assert live("release", job).code == 0
    out, err = rest(beside)
    assert (out, beside.returncode) == ("late\n", 0)
    assert f"job {job} succeeded" in err


def test_who_leaves_leaves_the_job_running(live: Colane, shared_up: Up, pipe: Path) -> None:
    job = submitted(live, pipe)
    shared_up.wait_for(int(job), *RUNNING)
    beside = attached(shared_up, job, "-n", "30")
    assert beside.stdout is not None
    assert beside.stdout.readline() == b"1\n"
    beside.send_signal(signal.SIGINT)
    _, err = rest(beside)
    assert beside.returncode == 130
    assert f"left job {job}, which goes on. To stop it: colane cancel {job}" in err
    assert live("show", job, "--format", "{end_s}").out == "-\n"
    pipe.write_text("through\n")
    assert live("wait", job).code == 3
    assert live("attach", job).code == 3, "of one that has ended it prints the end"


def test_what_cannot_be_attached_to_is_refused(live: Colane) -> None:
    array = live("submit", "--array", "0-3", "--hold", "--", "true").out.split()[-1]
    said = live("attach", array)
    assert (said.code, said.err) == (
        2,
        f"colane: job {array} is an array: attach to one of its elements, as {array}[0]\n",
    )
    assert live("cancel", array).code == 0
    assert live("attach", "999999").code == 2

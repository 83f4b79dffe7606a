"""`colane submit --pty` and `colane attach`: a terminal on the job's machine, from one's own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from colane.client.terminal import Escapes
from tests.cli.conftest import COLANE, START_MAX_S, Colane, Up, environment, marked, run_colane, until

SHELL = ("sh", "-c", "PS1='here> ' ENV= exec sh -i")
"""A shell that prompts alike whoever runs it."""


class Person:
    """Somebody who types at a terminal of their own and reads what stands there."""

    def __init__(self, *words: str, **variables: str) -> None:
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execvpe(COLANE[0], [*COLANE, *words], environment(TERM="xterm", **variables))  # noqa: S606
        self.seen = b""

    def window(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def sees(self, what: str) -> str:
        """Wait for what matches, and return what stands there up to it."""
        until_s = time.monotonic() + START_MAX_S
        while not (found := re.search(what.encode(), self.seen)):
            ready, _, _ = select.select([self.fd], [], [], until_s - time.monotonic())
            assert ready, f"no {what} in {self.seen!r}"
            self.seen += os.read(self.fd, 65536)
        text, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return text.decode()

    def leaves(self) -> int:
        """Return its exit code once it has gone; it shows the rest meanwhile."""
        with open(self.fd, "rb", buffering=0, closefd=False) as left:
            try:
                while data := left.read(65536):
                    self.seen += data
            except OSError:
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@contextmanager
def person(up: Up, *words: str) -> Iterator[Person]:
    found = Person(*words, **up.env)
    try:
        yield found
    finally:
        os.close(found.fd)


def job_of(found: Person) -> int:
    number = re.search(r"job (\d+)", found.sees(r"submitted job \d+\r"))
    assert number is not None
    return int(number[1])


def test_a_shell_is_typed_at_resized_interrupted_left_and_come_back_to(shared_up: Up) -> None:
    with person(shared_up, "submit", "--pty", "--", *SHELL) as ann:
        ann.window(33, 99)
        job = job_of(ann)
        ann.sees("here> ")
        ann.types("stty size; tty; echo $((40+2))\n")
        assert re.search(r"\n33 99\r\n/dev/pts/\d+\r\n42\r\nhere> $", ann.sees("42\r\nhere> "))
        ann.window(20, 70)
        ann.types("until [ \"$(stty size)\" = '20 70' ]; do :; done; echo smaller now\n")
        ann.sees("\nsmaller now")
        ann.types("sleep 1000; echo $?\n")
        until(lambda: runs(job, "sleep"), "sleep")
        ann.types("\x03")
        ann.sees("here> ")
        ann.types("echo kept; echo ~.\n~.")
        assert f"left job {job}, which goes on" in ann.sees("colane cancel")
        assert ann.leaves() == 0
    with person(shared_up, "attach", str(job)) as ann:
        ann.sees("kept")
        ann.types("exit 3\n")
        ann.sees(f"job {job} failed")
        assert ann.leaves() == 3
    assert "smaller now" in run_colane(["logs", str(job)], **shared_up.env).out


def test_a_client_that_vanishes_leaves_its_job_to_the_jobs_own_rule(shared_up: Up) -> None:
    with person(shared_up, "submit", "--pty", "--", *SHELL) as ann:
        job = job_of(ann)
        ann.sees("here> ")
        os.kill(ann.pid, signal.SIGKILL)
        os.waitpid(ann.pid, 0)
    with person(shared_up, "attach", str(job)) as ann:
        ann.sees("comes back\r\n")
        ann.types("echo still $((40+2))\n")
        ann.sees("still 42")
        ann.types("exit 0\n")
        assert ann.leaves() == 0


def runs(job: int, program: str) -> bool:
    """Whether a process of a job runs a program."""
    mark = f"COLANE_JOB_ID={job}\0".encode()
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            is_its = place.name.isdecimal() and mark in (place / "environ").read_bytes()
            if is_its and (place / "comm").read_text().strip() == program:
                return True
    return False


def test_it_goes_on_though_scheduler_and_agent_are_killed(make_up: Callable[..., Up]) -> None:
    up = make_up("--devices", "cpu:1")
    ann = Person("submit", "--pty", "--", *SHELL, COLANE_STATE=str(up.state))
    ann.sees("here> ")
    for pid in marked(up.state):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if {b"server", b"agent"} & set(words):
                os.kill(pid, signal.SIGKILL)
    ann.sees("comes once it answers")
    ann.types("echo typed mean$((10+7))while\n")
    ann.sees("typed mean17while")
    ann.types("exit\n")
    ann.sees("succeeded")
    assert ann.leaves() == 0
    os.close(ann.fd)


def test_a_pipe_is_typed_to_its_end(shared_up: Up) -> None:
    words = [*COLANE, "submit", "--pty", "--", "sh", "-c", "stty -echo; cat; echo over"]
    done = subprocess.run(
        words,
        input=b"one\ntwo\n",
        env=environment(**shared_up.env),
        capture_output=True,
        timeout=START_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(b"\r", b"").split()[-3:] == [b"one", b"two", b"over"]


def test_who_gives_up_while_it_waits_has_cancelled_it(shared_up: Up) -> None:
    with person(shared_up, "submit", "--pty", "--hold", "--", *SHELL) as ann:
        job = job_of(ann)
        ann.sees("is queued")
        ann.types("\x03")
        ann.sees(f"cancelled job {job}")
        assert ann.leaves() == 130
    assert shared_up.wait_for(job, "cancelled")["state"] == "cancelled"


def test_a_shell_that_waits_to_be_typed_at_ends_at_once_when_it_is_cancelled(shared_up: Up) -> None:
    """An interactive shell takes no notice of SIGTERM: it would have its whole grace time."""
    with person(shared_up, "submit", "--pty", "--", "bash", "--norc", "-i") as ann:
        job = job_of(ann)
        ann.sees("[$#] ")
        began_s = time.monotonic()
        run_colane(["cancel", str(job)], **shared_up.env)
        ann.sees(f"job {job} cancelled")
        assert ann.leaves() != 0
    assert shared_up.wait_for(job, "cancelled")["signal"] == signal.SIGHUP, time.monotonic() - began_s


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["--array", "0-3"], "goes without array"),
        (["--gpus", "2", "--ranks", "per-gpu"], "goes without ranks"),
        (["--gpus", "2", "--multi-node"], "goes without --multi-node"),
        (["--input", "/dev/null"], "goes without input"),
    ],
)
def test_what_has_no_place_at_one_terminal_is_refused(live: Colane, words: list[str], fix: str) -> None:
    said = live("submit", "--pty", *words, "--", "sh")
    assert said.code == 2
    assert fix in said.err
    assert "--pty" in said.err


def test_a_job_without_one_is_followed(shared_up: Up) -> None:
    job = run_colane(["submit", "--", "sh", "-c", "echo here; exec sleep 1000"], **shared_up.env).out.split()[-1]
    with person(shared_up, "attach", job) as ann:
        ann.sees("here")
        ann.types("\x03")
        ann.sees("left job")
        assert ann.leaves() == 130
    run_colane(["cancel", job], **shared_up.env)


@pytest.mark.parametrize(
    ("typed", "sent", "is_left"),
    [
        ([b"ls\r"], b"ls\r", False),
        ([b"~."], b"", True),
        ([b"a~.\r"], b"a~.\r", False),
        ([b"a\r~", b"."], b"a\r", True),
        ([b"\n~~."], b"\n~.", False),
        ([b"~", b"a~.\n", b"~.left out"], b"~a~.\n", True),
    ],
)
def test_a_line_that_begins_with_tilde_and_dot_leaves(typed: list[bytes], sent: bytes, is_left: bool) -> None:
    escapes, all_sent, has_left = Escapes(), b"", False
    for part in typed:
        said, has_left = escapes.parse(part)
        all_sent += said
    assert (all_sent, has_left) == (sent, is_left)

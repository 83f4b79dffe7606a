"""The three-line interface of jobs that save their state: restore, step, save."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import colane.adaptor as colane
from colane.adaptor import wire

JOB = """
import os, signal, sys
import colane.adaptor as colane
path, ends = sys.argv[1], int(sys.argv[2])

def load():
    return int(open(path).read()) if os.path.exists(path) else None

def write(steps):
    with open(path + ".new", "w") as file:
        file.write(str(steps))
    os.replace(path + ".new", path)

steps = colane.attach(total_steps=ends)
done = steps.restore(load)
print("begins", done)
while steps.steps_done < ends:
    steps.step()
    if steps.steps_done == 30:
        os.kill(os.getpid(), getattr(signal, os.environ.get("COLANE_CHECKPOINT_SIGNAL", "SIGUSR1")))
    steps.save(write)
print("done", steps.steps_done)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "steps"
    wire.create(made)
    monkeypatch.setenv(wire.STEPS_FILE_ENV, str(made))
    return made


def run(state: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", JOB, str(state), "50"]
    return subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["", "SIGUSR2"])
def test_a_job_that_is_asked_saves_leaves_and_goes_on_where_it_was(tmp_path: Path, path: Path, name: str) -> None:
    env = {"COLANE_CHECKPOINT_SIGNAL": name} if name else {}
    first = run(tmp_path / "state", **env)
    assert (first.returncode, first.stdout) == (75, "begins 0\n"), first.stderr
    seen = wire.read(path)
    assert seen is not None
    assert (seen.steps, seen.saves, seen.steps_saved, seen.steps_restored) == (30, True, 30, 0)
    assert seen.saved_s is not None
    wire.create(path)
    second = run(tmp_path / "state", **env)
    assert (second.returncode, second.stdout) == (0, "begins 30\ndone 50\n"), second.stderr
    seen = wire.read(path)
    assert seen is not None
    assert (seen.steps, seen.steps_restored, seen.saved_s) == (20, 30, None)


@pytest.mark.parametrize("variable", ["TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION"])
def test_below_a_launcher_it_leaves_as_one_that_did_not_fail(tmp_path: Path, path: Path, variable: str) -> None:
    assert path.exists()
    assert run(tmp_path / "state", **{variable: "no"}).returncode == 0


ENDING = """
import atexit, gc, os, signal, sys

def last():
    print("frozen" if gc.get_freeze_count() else "not frozen")

class Holder:
    def __init__(self, path):
        self.me, self.file = self, open(path, "w")
        self.file.write("kept")

atexit.register(last)
import colane.adaptor as colane
held = Holder(sys.argv[1])
steps = colane.attach()
steps.restore(lambda: None)
atexit.register(print, "first")
steps.step()
if sys.argv[2] == "asked":
    os.kill(os.getpid(), signal.SIGUSR1)
steps.save(lambda done: None)
"""


@pytest.mark.parametrize(("asked", "code", "last"), [("asked", 75, "frozen"), ("no", 0, "not frozen")])
def test_a_job_that_leaves_looks_for_no_cycles_and_loses_nothing_by_it(
    tmp_path: Path, path: Path, asked: str, code: int, last: str
) -> None:
    assert path.exists()
    words = [sys.executable, "-c", ENDING, str(tmp_path / "file"), asked]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, f"first\n{last}\n"), ended.stderr
    assert (tmp_path / "file").read_text() == "kept"


ASKED_LATE = """
import os, signal
import colane.adaptor as colane

class Late:  # its module is taken apart at the very end, when the interpreter has let its handlers go
    def __del__(self, kill=os.kill, me=os.getpid(), number=signal.SIGUSR1, say=os.write):
        kill(me, number)
        say(1, b"asked late")

late = Late()
steps = colane.attach()
steps.restore(lambda: None)
steps.step()
"""


def test_a_job_that_is_asked_while_it_ends_is_not_killed_by_that(path: Path) -> None:
    assert path.exists()
    ended = subprocess.run([sys.executable, "-c", ASKED_LATE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "asked late"), ended.stderr


def test_a_disk_that_takes_nothing_keeps_the_job_running(tmp_path: Path, path: Path) -> None:
    ended = run(tmp_path / "no-such-directory" / "state")
    assert (ended.returncode, ended.stdout) == (0, "begins 0\ndone 50\n")
    assert "colane: the state is not saved" in ended.stderr
    seen = wire.read(path)
    assert seen is not None
    assert (seen.steps, seen.saved_s, os.strerror(seen.save_error)) == (50, None, "No such file or directory")
    assert seen.save_failed_s is not None


def test_another_error_is_the_jobs_own(path: Path) -> None:
    assert path.exists()
    steps = colane.attach()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        assert steps.restore(lambda: None) == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        steps.step()
        with pytest.raises(ZeroDivisionError):
            steps.save(lambda done: done / 0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_it_saves_as_often_as_it_wants_outside_colane_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wire.STEPS_FILE_ENV, raising=False)
    steps, saved = colane.attach(), list[int]()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        steps.restore(lambda: 7)
        for _ in range(3):
            steps.step()
            steps.save(saved.append, every_s=0.0)
        steps.save(saved.append, every_s=3600.0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert saved == [8, 9, 10]


def test_a_job_that_is_asked_while_it_saves_unasked_saves_again_and_leaves(path: Path) -> None:
    assert path.exists()
    steps, saved = colane.attach(), list[int]()

    def write(number: int) -> None:
        saved.append(number)
        if len(saved) == 1:
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.getsignal(signal.SIGUSR1)
    try:
        steps.restore(lambda: None)
        steps.step()
        steps.save(write, every_s=0.0)
        steps.step()
        with pytest.raises(SystemExit):
            steps.save(write)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert saved == [1, 2]


def test_a_process_is_told_its_part_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (wire.STEPS_FILE_ENV, "COLANE_BATCH_SIZE", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    steps = colane.attach()
    assert steps.batch_size(32) == 32
    monkeypatch.setenv("COLANE_BATCH_SIZE", "128")
    assert steps.batch_size(32) == 128
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert steps.batch_size(32) == 32
    monkeypatch.setenv("COLANE_BATCH_SIZE", "many")
    assert steps.batch_size(7) == 7

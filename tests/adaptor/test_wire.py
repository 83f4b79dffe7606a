from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.adaptor import wire, writer
from tests.examples import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "steps"
    wire.create(made)
    return made


def poke(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_fresh_file_has_no_writer_and_no_holes(path: Path) -> None:
    assert wire.read(path) is None
    held = path.stat()
    assert held.st_blocks * 512 >= held.st_size == writer.FILE_BYTES
    assert held.st_mode & 0o777 == 0o600


def test_an_attached_writer_shows_before_its_first_step(path: Path) -> None:
    wire.Writer(str(path), total_steps=9)
    steps = wire.read(path)
    assert steps == wire.Steps(0, 9, os.getpid(), None, None, None, None, None, ())


def test_steps_come_back_as_written(path: Path) -> None:
    job = wire.Writer(str(path))
    job.step(100.0, 0.5)
    job.set_memory(1000, 3000)
    job.step(101.0, 0.25, 2.5)
    assert wire.read(path) == wire.Steps(
        2, None, os.getpid(), 100.0, 101.0, 2.5, 1000, 3000, (0.5, 0.25), heartbeat_s=101.0
    )


def test_loss_and_memory_that_were_not_reported_are_none(path: Path) -> None:
    job = wire.Writer(str(path))
    job.step(1.0, 1.0, 0.0)
    job.step(2.0, 1.0)
    steps = wire.read(path)
    assert steps is not None
    assert (steps.loss, steps.persistent_bytes, steps.peak_bytes) == (None, None, None)


def test_a_diverged_loss_is_told_as_it_is(path: Path) -> None:
    wire.Writer(str(path)).step(1.0, 1.0, math.nan)
    steps = wire.read(path)
    assert steps is not None
    assert steps.loss is not None
    assert math.isnan(steps.loss)


@examples(12)
@given(count=st.integers(0, 2 * wire.RING_STEPS + 9), after=st.integers(-1, 2 * wire.RING_STEPS))
def test_the_ring_holds_the_last_steps_in_order(
    tmp_path_factory: pytest.TempPathFactory, count: int, after: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "steps"
    wire.create(path)
    job = wire.Writer(str(path))
    for step in range(1, count + 1):
        job.step(float(step), float(step))
    job.close()
    steps = wire.read(path, after_step=after)
    assert steps is not None
    assert steps.steps == count
    first = max(after, 0, count - wire.RING_STEPS)
    assert steps.durations_s == tuple(float(step) for step in range(first + 1, count + 1))


def test_steps_before_training_are_taken_back(path: Path) -> None:
    job = wire.Writer(str(path))
    for step in range(1, 8):
        job.step(float(step), float(step))
    job.uncount()
    before = wire.read(path)
    assert before is not None
    assert (before.steps, before.first_step_s, before.last_step_s, before.durations_s) == (0, None, None, ())
    for step in range(8, 11):
        job.step(float(step), float(step))
    after, later = wire.read(path), wire.read(path, after_step=2)
    assert after is not None
    assert later is not None
    assert (after.steps, job.steps - job.uncounted, after.first_step_s, after.last_step_s) == (3, 3, 8.0, 10.0)
    assert (after.durations_s, later.durations_s) == ((8.0, 9.0, 10.0), (10.0,))


def test_steps_of_an_earlier_process_are_never_taken_back(path: Path) -> None:
    first = wire.Writer(str(path))
    first.step(1.0, 1.0)
    first.close()
    second = wire.Writer(str(path))
    second.step(2.0, 1.0)
    second.uncount()
    steps = wire.read(path)
    assert steps is not None
    assert steps.steps == 2


def test_a_reader_never_sees_a_record_of_another_step(path: Path) -> None:
    """A second process writes steps whose values all tell their number, while this one reads."""
    code = (
        "import sys\nfrom colane.adaptor.writer import Writer\njob = Writer(sys.argv[1])\nn = 0\n"
        "while True:\n    n += 1\n    job.set_memory(n, n)\n    job.step(n, n, n)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as process:
        try:
            seen: set[int] = set()
            while len(seen) < 50:
                assert process.poll() is None
                seen.add(whole_step(wire.read(path)))
        finally:
            process.kill()


def whole_step(steps: wire.Steps | None) -> int:
    """Check that all values tell the same step, and return it."""
    if steps is None or not steps.steps:
        return 0
    number = steps.steps
    assert (steps.last_step_s, steps.loss, steps.peak_bytes) == (number, number, number)
    assert steps.first_step_s == 1
    durations = steps.durations_s
    assert durations == tuple(range(number - len(durations) + 1, number + 1))
    return number


def test_a_step_that_was_not_finished_is_not_seen(path: Path) -> None:
    """Killed between the record and the counter, a job has done one step less, and nothing is torn."""
    job = wire.Writer(str(path))
    job.step(1.0, 1.0, 1.0)
    poke(path, writer.RING_OFFSET + 8, struct.pack("=d", 7.0))
    poke(path, writer.RECORD_OFFSETS[0], writer.RECORD.pack(7.0, 7.0, 7, 7, 7, 3))
    steps = wire.read(path)
    assert steps is not None
    assert (steps.steps, steps.last_step_s, steps.loss, steps.durations_s) == (1, 1.0, 1.0, (1.0,))


@pytest.mark.parametrize(
    ("offset", "data", "words"),
    [
        (0, b"NOTSTEPS", "wrong magic"),
        (8, struct.pack("=Q", 99), "version 99"),
        (16, struct.pack("=Q", 5), "ring of 5"),
    ],
)
def test_another_format_is_refused_by_both_sides(path: Path, offset: int, data: bytes, words: str) -> None:
    poke(path, offset, data)
    with pytest.raises(wire.WireError, match=words):
        wire.read(path)
    with pytest.raises(wire.WireError, match=words):
        wire.Writer(str(path))


@pytest.mark.parametrize(("offset", "words"), [(writer.RING_OFFSET, "duration"), (writer.RECORD_OFFSETS[1], "time")])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_no_writer_writes_are_refused(path: Path, offset: int, words: str, value: float) -> None:
    wire.Writer(str(path)).step(1.0, 1.0)
    poke(path, offset, struct.pack("=d", value))
    with pytest.raises(wire.WireError, match=words):
        wire.read(path)


@examples(50)
@given(garbage=st.binary(min_size=64, max_size=256))
def test_garbage_behind_the_magic_is_an_error_or_numbers(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    path = tmp_path_factory.mktemp("garbage") / "steps"
    wire.create(path)
    poke(path, writer.IDENTITY.size, garbage)
    try:
        steps = wire.read(path)
    except wire.WireError:
        return
    assert steps is None or steps.steps >= 0


@pytest.mark.parametrize("size", [0, 10, writer.RING_OFFSET])
def test_a_short_file_is_refused_by_both_sides(path: Path, size: int) -> None:
    os.truncate(path, size)
    with pytest.raises(wire.WireError, match=f"is {size} bytes long"):
        wire.read(path)
    with pytest.raises(wire.WireError, match=f"is {size} bytes long"):
        wire.Writer(str(path))


def test_a_missing_file_and_a_link_are_refused(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    for wrong in (tmp_path / "none", link):
        with pytest.raises(wire.WireError, match=wrong.name):
            wire.read(wrong)
        with pytest.raises(wire.WireError, match=wrong.name):
            wire.Writer(str(wrong))


def test_a_fifo_does_not_block_the_agent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(wire.WireError):
        wire.read(tmp_path / "fifo")


def test_a_second_living_process_is_refused(path: Path) -> None:
    wire.Writer(str(path))
    code = "import sys\nfrom colane.adaptor.writer import Writer\nWriter(sys.argv[1])"
    second = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert f"process {os.getpid()} already reports" in second.stderr


def test_a_later_process_goes_on_counting(path: Path) -> None:
    code = "import sys\nfrom colane.adaptor.writer import Writer\nWriter(sys.argv[1]).step(5.0, 1.0)"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    wire.Writer(str(path)).step(6.0, 2.0)
    steps = wire.read(path)
    assert steps is not None
    assert (steps.steps, steps.pid, steps.first_step_s, steps.durations_s) == (2, os.getpid(), 5.0, (1.0, 2.0))


def test_create_replaces_at_once_and_leaves_nothing_beside(path: Path) -> None:
    wire.Writer(str(path)).step(1.0, 1.0)
    wire.create(path)
    assert wire.read(path) is None
    assert list(path.parent.iterdir()) == [path]


def test_create_says_when_there_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wire.create(tmp_path / "none" / "steps")

"""A training that is stopped and goes on is the same training: every step, every weight, bit by bit."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colane.adaptor import wire
from colane.workloads.statefile import CorruptStateError, SavedState, StateFile
from tests.adaptor.forks import Forks
from tests.needs import needs
from tests.workloads.test_trainer import command, environment

needs("torch", "the built-in trainer needs PyTorch")

NET = {"model_name": "vgg11", "image_size": "32", "width": "0.03", "iters": "10", "log_every": "1", "seed": "7"}
NAME = "vgg11-3.state"
"""Of job 3."""


ASKED = """
import os, signal, sys
from colane.workloads import __main__, progress
asks_after, step = int(sys.argv.pop(1)), progress.Log.step
def step_and_ask(log, loss):
    step(log, loss)
    if log._done == asks_after:
        os.kill(os.getpid(), signal.SIGUSR1)
progress.Log.step = step_and_ask
sys.exit(__main__.main())
"""
"""The trainer, asked to save its state at the end of a step."""


Ran = tuple[int, list[str]]
"""An exit code, and the lines that were printed."""


def prepared(folder: Path, batch: str, options: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """A command that trains until the end, and its environment."""
    told = {"COLANE_BATCH_SIZE": batch} if batch else {}
    words = command(**(NET | options), checkpoint_dir=str(folder), checkpoint_every_s="0")
    return words, environment(COLANE_JOB_ID="3", **told)


@pytest.fixture
def run(tmp_path: Path, forks: Forks) -> Callable[..., Ran]:
    """Train until the end, or until it is asked to save its state, in a fork of a Python that has imported PyTorch."""
    script = tmp_path / "asked.py"
    script.write_text(ASKED)

    def train(folder: Path, *, asks_after: int = 0, batch: str = "", **options: str) -> Ran:
        (_, _, _, *words), env = prepared(folder, batch, options)
        ran = forks.start(script, str(asks_after), *words, env=env, cwd=tmp_path)
        return ran.wait(), (ran.out + ran.errors).splitlines()

    return train


def run_from_nothing(folder: Path, **options: str) -> Ran:
    """Train until the end as a command that is started does."""
    words, env = prepared(folder, "", options)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def losses(said: list[str]) -> list[tuple[str, str]]:
    found = [re.match(r"step (\d+)/10 loss (\S+)", line) for line in said]
    return [(one[1], one[2]) for one in found if one]


def saved(folder: Path) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - see tests/needs.py

    (newest, *_) = StateFile(folder / NAME).states()
    assert isinstance(newest, SavedState)
    state: dict[str, Any] = torch.load(io.BytesIO(newest.data), weights_only=True)
    return state


def same(one: object, other: object) -> bool:
    """Whether two states are equal, bit by bit."""
    import torch  # noqa: PLC0415

    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return bool(one.dtype == other.dtype and torch.equal(one, other))
    return one == other


@pytest.mark.live
@pytest.mark.parametrize(("workers", "optim", "stops"), [("0", "sgd", (3, 7)), ("2", "adam", (4,))])
def test_a_training_that_was_stopped_is_bit_by_bit_the_one_that_was_not(
    tmp_path: Path, run: Callable[..., Ran], workers: str, optim: str, stops: tuple[int, ...]
) -> None:
    options: dict[str, Any] = {"workers": workers, "optim": optim}
    code, whole = run_from_nothing(tmp_path / "whole", **options)
    assert (code, len(losses(whole))) == (0, 10), whole
    parts: list[str] = []
    for asks_after in (*stops, 0):
        code, said = run(tmp_path / "parts", asks_after=asks_after, **options)
        assert code == (75 if asks_after else 0), said
        parts += said
    assert losses(parts) == losses(whole)
    assert len({loss for _, loss in losses(whole)}) > 6, "a curve, not a line"
    assert same(saved(tmp_path / "parts"), saved(tmp_path / "whole"))
    assert saved(tmp_path / "whole")["steps"] == 10


@pytest.mark.live
def test_a_corrupt_state_is_named_and_the_one_before_taken(tmp_path: Path, run: Callable[..., Ran]) -> None:
    assert run(tmp_path, asks_after=6)[0] == 75
    path = tmp_path / NAME
    made = saved(tmp_path)["steps"]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    code, said = run(tmp_path)
    assert code == 0
    assert any(line.startswith(f"{path} is corrupt") and line.endswith("going on from the one before") for line in said)
    assert f"goes on from step {made - 1} of {path}.before" in said
    assert losses(said)[0][0] == str(made)


@pytest.mark.live
def test_a_state_of_another_training_is_refused(tmp_path: Path, run: Callable[..., Ran]) -> None:
    assert run(tmp_path, asks_after=3)[0] == 75
    code, said = run(tmp_path, width="0.05")
    assert (code, said[-1].startswith(f"python -m colane.workloads: {tmp_path / NAME} is the state of another")) == (
        2,
        True,
    )


@pytest.mark.live
def test_a_directory_that_is_none_keeps_it_training(
    tmp_path: Path, run: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tmp_path / "steps"
    wire.create(steps)
    monkeypatch.setenv(wire.STEPS_FILE_ENV, str(steps))
    (tmp_path / "file").write_text("in the way")
    code, said = run(tmp_path / "file", asks_after=3)
    assert (code, len(losses(said))) == (0, 10)
    assert "colane: the state is not saved: [Errno 20] Not a directory" in "\n".join(said)
    seen = wire.read(steps)
    assert seen is not None
    assert (seen.saved_s, seen.save_error) == (None, errno.ENOTDIR)


def contents(file: StateFile) -> list[bytes | str]:
    return [found.data if isinstance(found, SavedState) else "corrupt" for found in file.states()]


def test_the_last_state_and_the_one_before_are_kept(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state")
    assert contents(file) == []
    for data in (b"one", b"two", b"three"):
        file.write(data)
    assert contents(file) == [b"three", b"two"]
    file.path.write_bytes(file.path.read_bytes()[:-1])
    assert contents(file) == ["corrupt", b"two"]
    (corrupt, _) = file.states()
    assert isinstance(corrupt, CorruptStateError)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_breaks_off_leaves_a_whole_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    file = StateFile(tmp_path / "state")
    file.write(b"one")
    file.write(b"two")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        owner: object = os if call == "fsync" else Path
        patched.setattr(owner, call, full)
        with pytest.raises(OSError, match="No space left"):
            file.write(b"three")
    assert contents(file)[0] == b"two"
    file.write(b"four")
    assert contents(file) == [b"four", b"two"]


@pytest.mark.live
def test_a_kill_at_any_moment_of_a_write_leaves_a_whole_state(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from colane.workloads.statefile import StateFile\n"
        "file = StateFile(Path(sys.argv[1])); number = 0\n"
        "while True:\n    number += 1; file.write(str(number).encode() * 2000); print(number, flush=True)"
    )
    path = tmp_path / "state"
    for after in range(1, 9):
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(after):
                number = int(process.stdout.readline())
            process.kill()
        newest = next(iter(StateFile(path).states()))
        assert isinstance(newest, SavedState)
        assert int(newest.data[: len(newest.data) // 2000]) >= number


@pytest.mark.live
def test_a_training_that_goes_on_with_another_batch_takes_every_sample_after_the_last(
    tmp_path: Path, run: Callable[..., Ran]
) -> None:
    code, said = run(tmp_path, asks_after=4, batch="8")
    assert (code, saved(tmp_path)["samples"]) == (75, 32), said
    assert any("batch 8" in line for line in said)
    code, said = run(tmp_path, batch="16", asks_after=9)
    assert (code, saved(tmp_path)["steps"], saved(tmp_path)["samples"]) == (75, 9, 32 + 5 * 16), said
    assert any("batch 16" in line for line in said)

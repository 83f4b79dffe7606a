"""A data-parallel training that is as small as can be: a process for each device, one batch shared among them.

It needs NumPy alone and starts at once, so that resizing shows as what it is. The batch of a step follows from seed and
step and is the same on any number of devices; gradients are summed over the processes, so the weights are, too, up to
rounding. What a sample takes on an accelerator is waited for; the cores of one machine scale in their own way.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.sharedctypes import RawArray
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

import colane.adaptor as colane
from colane.model.words import count
from colane.workloads.progress import say
from colane.workloads.statefile import SavedState, StateFile

Floats = NDArray[np.float64]

INPUTS, HIDDEN, OUTPUTS = 16, 32, 4
RATE: Final = 0.05
SHAPES: Final = ((INPUTS, HIDDEN), (HIDDEN, OUTPUTS))
SIZE: Final = sum(rows * columns for rows, columns in SHAPES)
MEET_MAX_S: Final = 60.0
"""Processes that wait longer for each other take the others for dead."""


class TinyTraining(NamedTuple):
    """What is to be trained, and what a device takes for it."""

    steps: int
    batch: int
    sample_ms: float
    seed: int
    state: Path | None
    losses: Path | None


class Shared:
    """What the processes of a training share: weights, a gradient and a loss of each, and where they meet."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.weights = _array(SIZE)
        self.gradients = _array(devices * SIZE).reshape(devices, SIZE)
        self.losses = _array(devices)
        self.step = RawArray("q", 1)
        self.begun: Barrier = multiprocessing.get_context("fork").Barrier(devices)
        self.done: Barrier = multiprocessing.get_context("fork").Barrier(devices)


def _array(size: int) -> Floats:
    return np.frombuffer(RawArray("d", size), dtype=np.float64)


def main(words: Sequence[str]) -> int:
    """Train to the last step, or until Colane asks for the state."""
    asked = _parsed(words)
    shared = Shared(devices())
    workers = [
        multiprocessing.get_context("fork").Process(target=_work, args=(shared, place, asked), daemon=True)
        for place in range(1, shared.devices)
    ]
    for worker in workers:
        worker.start()
    try:
        _train(shared, asked)
    finally:
        for worker in workers:
            worker.kill()
    return 0


def devices() -> int:
    """How many this job has."""
    return int(os.environ.get("NPROC_PER_NODE", "1"))


def _parsed(words: Sequence[str]) -> TinyTraining:
    parser = argparse.ArgumentParser(prog="python -m colane.workloads data-parallel", description=__doc__)
    parser.add_argument("--steps", type=_positive, default=1000)
    parser.add_argument("--batch", type=_positive, default=48, help="samples of a step, over all devices")
    parser.add_argument("--sample-ms", type=_milliseconds, default=2.0, help="what one takes on a device")
    parser.add_argument("--seed", type=_positive, default=1)
    parser.add_argument("--state", type=Path, help="file that the state is saved to and taken up from")
    parser.add_argument("--losses", type=Path, help="file that a line is added to for each step: step, devices, loss")
    asked = TinyTraining(**vars(parser.parse_args(words)))
    for option, path in (("--state", asked.state), ("--losses", asked.losses)):
        if path is not None and not path.parent.is_dir():
            parser.error(f"{option}: {path.parent} is no directory")
    return asked


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 up, got {text!r}")
    return int(text)


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"must be milliseconds from 0 up, got {text!r}")
    return value


def _train(shared: Shared, asked: TinyTraining) -> None:
    """Make the steps; this process is the one that reports and saves."""
    file = None if asked.state is None else StateFile(asked.state)
    shared.weights[:] = np.random.default_rng(asked.seed).normal(0.0, 0.3, SIZE)
    steps = colane.attach(total_steps=asked.steps)
    done = steps.restore(lambda: _load(shared, file)) if file is not None else 0
    with ExitStack() as stack:
        lines = None if asked.losses is None else stack.enter_context(asked.losses.open("a", buffering=1))
        for step in range(done, asked.steps):
            loss = _step(shared, asked, step)
            _tell(lines, step + 1, shared.devices, loss)
            steps.step(loss=loss)
            if file is not None:
                steps.save(lambda steps_done: file.write(_packed(shared, steps_done)))
    say(
        f"made {count(asked.steps, 'step')}; the last loss is {loss:.6f}"
        if asked.steps > done
        else "nothing was left to do"
    )


def _tell(lines: TextIO | None, step: int, many: int, loss: float) -> None:
    if lines is not None:
        lines.write(f"{step} {many} {loss!r}\n")


def _step(shared: Shared, asked: TinyTraining, step: int) -> float:
    """One step of all processes; the mean loss of its samples."""
    shared.step[0] = step
    shared.begun.wait(MEET_MAX_S)
    _share(shared, 0, asked, step)
    shared.done.wait(MEET_MAX_S)
    shared.weights -= RATE * shared.gradients.sum(axis=0) / asked.batch
    return float(shared.losses.sum()) / asked.batch


def _work(shared: Shared, place: int, asked: TinyTraining) -> None:
    """What another process than the first does, until it is killed or left alone."""
    while True:
        try:
            shared.begun.wait(MEET_MAX_S)
            _share(shared, place, asked, int(shared.step[0]))
            shared.done.wait(MEET_MAX_S)
        except (BrokenBarrierError, KeyboardInterrupt):
            return


def _share(shared: Shared, place: int, asked: TinyTraining, step: int) -> None:
    """Gradient and loss of every n-th sample of a step, in the time a device takes for them."""
    began_s = time.monotonic()
    inputs, labels = _samples(asked, step)
    inputs, labels = inputs[place :: shared.devices], labels[place :: shared.devices]
    shared.losses[place], shared.gradients[place] = _gradient(shared.weights, inputs, labels)
    left_s = len(labels) * asked.sample_ms / 1000 - (time.monotonic() - began_s)
    time.sleep(max(0.0, left_s))


def _samples(asked: TinyTraining, step: int) -> tuple[Floats, NDArray[np.int64]]:
    """Points and which of a few random directions each lies along most; the directions follow from the seed."""
    directions = np.random.default_rng([asked.seed, 2**32]).normal(size=(INPUTS, OUTPUTS))
    inputs = np.random.default_rng([asked.seed, step]).normal(size=(asked.batch, INPUTS))
    return inputs, (inputs @ directions).argmax(axis=1)


def _gradient(weights: Floats, inputs: Floats, labels: NDArray[np.int64]) -> tuple[float, Floats]:
    """Sum of the cross-entropy over samples, and its gradient: two layers with tanh between."""
    first, second = (part.reshape(shape) for part, shape in zip(_parts(weights), SHAPES, strict=True))
    hidden = np.tanh(inputs @ first)
    logits = hidden @ second
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(shares[rows, labels]).sum())
    shares[rows, labels] -= 1.0
    below = (shares @ second.T) * (1 - hidden**2)
    return loss, np.concatenate([(inputs.T @ below).ravel(), (hidden.T @ shares).ravel()])


def _parts(weights: Floats) -> list[Floats]:
    return np.split(weights, [SHAPES[0][0] * SHAPES[0][1]])


def _packed(shared: Shared, steps_done: int) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, steps=steps_done, weights=shared.weights)
    return buffer.getvalue()


def _load(shared: Shared, file: StateFile) -> int:
    """Take up the newest whole state; the steps in it."""
    for found in file.states():
        if isinstance(found, SavedState):
            with np.load(io.BytesIO(found.data)) as state:
                values: dict[str, Any] = dict(state)
            shared.weights[:] = values["weights"]
            return int(values["steps"])
        say(f"{found}; going on from the one before")
    return 0

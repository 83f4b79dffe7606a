"""Every shape of training loop on an emulated GPU, alone: its steps are counted, and its device time is told."""

from __future__ import annotations

import pytest

from tests.emulated.conftest import Loop
from tests.emulated.machine import Machine, told_mean_s

SHAPES = (
    "plain", "reads_each_loss", "reads_tenth_loss", "accumulates", "gan", "mixed_precision", "lbfgs", "graph",
    "graph_then_saves", "evaluates", "several_streams", "side_thread", "copies_ahead", "second_gpu", "two_gpus",
    "data_parallel", "forks", "refuses_statistics", "compiled", "thread_beside", "thread_before", "pool_beside",
)  # fmt: skip
"""Of `loops.py`, which imports PyTorch and so is imported by no test; others there have tests of their own."""
STEPS = 40
KERNEL_MS = 1
TOLD_APART = range(4, 20)
"""Steps left out of a loop with two optimizers: until these are told from two steps, some share an event."""
WAITING = ("synchronize", "event", "stream")
"""What waits for a GPU; what reads a tensor does as well."""


@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_counted_and_device_time_is_told(loop: Loop, machine: Machine, shape: str) -> None:
    job = loop(shape, str(STEPS), str(KERNEL_MS))
    seen, ran = job.seen(), machine.ran()
    assert seen is not None
    assert seen.steps == STEPS
    later, kernels = STEPS - 1, int(job.out.split()[-1])
    if shape == "gan":
        each = kernels // later
        later = next(STEPS - first for first in TOLD_APART if ran.has_event_before((STEPS - first) * each))
        kernels = later * each
    truth_s = ran.mean_step_s(later, kernels)
    assert told_mean_s(seen.durations_s[-later - 1 :]) == pytest.approx(truth_s, rel=0.02)


@pytest.mark.parametrize("shape", ["plain", "graph", "reads_tenth_loss"])
def test_no_step_waits_for_its_gpu(loop: Loop, machine: Machine, shape: str) -> None:
    """What the script itself waits for is the same with the adaptor and without."""
    loop(shape, str(STEPS), str(KERNEL_MS))
    with_it = machine.ran().counts()
    for path in machine.home.glob("kernels.*"):
        path.unlink()
    loop(shape, str(STEPS), str(KERNEL_MS), COLANE_ADAPTOR="off")
    without = machine.ran().counts()
    assert {name: with_it.get(name, 0) for name in WAITING} == {name: without.get(name, 0) for name in WAITING}


def test_a_gpu_without_statistics_has_its_memory_told_by_its_driver_alone(loop: Loop, machine: Machine) -> None:
    seen = loop("refuses_statistics", str(STEPS), str(KERNEL_MS)).seen()
    assert seen is not None
    assert (seen.steps, seen.reserved_bytes) == (STEPS, None)
    assert machine.gpu().held() == {}, "the process is gone, and what it held"

"""Every shape of training loop on an emulated GPU, alone.

Its steps are counted, its device time is told, and it does and waits for what it would without the adaptor.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.adaptor.forks import Forks
from tests.adaptor.jobs import Job
from tests.agent.lane import QUIET
from tests.agent.test_gate_scripts import TORCHRUN
from tests.emulated.conftest import LOOPS, Loop
from tests.emulated.handovers import START_S
from tests.emulated.machine import Machine, told_mean_s

SHAPES = (
    "plain", "reads_each_loss", "reads_tenth_loss", "accumulates", "gan", "mixed_precision", "lbfgs", "graph",
    "graph_then_saves", "graph_inference", "graph_sizes", "graph_pieces", "engine", "graph_by_hand", "graphed",
    "graphed_frozen", "captures_beside", "evaluates", "several_streams", "side_thread", "copies_ahead", "second_gpu",
    "two_gpus", "data_parallel", "forks", "refuses_statistics", "compiled", "thread_beside", "thread_before",
    "pool_beside",
)  # fmt: skip
"""Of `loops.py`, which imports PyTorch and so is imported by no test; others there have tests of their own."""
FIRST = {"graph_inference": 3, "graph_sizes": 3, "graph_pieces": 3, "engine": 3, "graph_by_hand": 3}
"""So many steps begin a loop, of which no more is told than that they were made."""
STEPS = 40
KERNEL_MS = 1
TOLD_APART = 3
"""Steps left out of a loop with two optimizers: until these are told from two steps, some share an event."""
WAITING = ("synchronize", "event", "stream")
"""What waits for a GPU; what reads a tensor does as well."""


@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_counted_and_device_time_is_told(loop: Loop, machine: Machine, shape: str) -> None:
    job = loop(shape, str(STEPS), str(KERNEL_MS))
    seen, ran = job.seen(), machine.ran()
    assert seen is not None
    assert seen.steps == STEPS
    later, kernels = STEPS - FIRST.get(shape, 1), int(job.out.split()[-1])
    each, rest = divmod(kernels, later)
    if not rest:  # of a loop whose steps are alike any may be left out
        later = ran.told_apart(later - TOLD_APART * (shape == "gan"), each)
        kernels = later * each
    truth_s = ran.mean_step_s(later, kernels)
    assert told_mean_s(seen.durations_s[-later - 1 :]) == pytest.approx(truth_s, rel=0.02)


SCRIPTS = str(Path(LOOPS).with_name("scripts.py"))
SCRIPT_OF = {
    shape: path
    for path in (LOOPS, SCRIPTS)
    for shape in re.findall(r"\w+", re.findall(r"for one in \((.*?)\n    \)", Path(path).read_text(), re.DOTALL)[0])
}
PARTS = {"acts", "holds_what_stays"}
"""Loops that are no jobs by themselves: one is another's second process, one is told what it holds."""
BESIDE = {"actor_beside", "kernels_beside", "process_beside", "actors_and_learner"}
"""How often these wait is as their threads and processes come to it."""
OF_RANKS = ("ranks_in_flight", "sharded", "sharded_flat", "static_ddp")


class Done(NamedTuple):
    """What became of a loop: what it ended with and printed, and how often each rank waited for its GPU."""

    code: int
    out: list[str]
    errors: list[str]
    waits: list[dict[str, int]]


@pytest.fixture(scope="session")
def meeting(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Give what torchrun puts into the environments of two ranks, which would be six imports of PyTorch a loop."""
    folder = tmp_path_factory.mktemp("meeting")
    os.mkfifo(told := folder / "port")
    store = forks.start(str(Path(LOOPS).with_name("meeting.py")), str(told), env=dict(os.environ), cwd=folder)
    shared = QUIET | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": told.read_text(), "WORLD_SIZE": "2"}
    attempts = itertools.count()

    def ranks() -> list[dict[str, str]]:
        apart = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(next(attempts))}
        return [shared | apart | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01"]

    yield ranks
    store.send_signal(signal.SIGTERM)
    store.wait()


@pytest.fixture
def done(forks: Forks, job: Job, machine: Machine, meeting: Callable[[], list[dict[str, str]]]) -> Callable[..., Done]:
    """Run a loop, with the adaptor or without, by two ranks where it is one for several."""

    def run(shape: str, switch: str) -> Done:
        env = job.env | {"COLANE_ADAPTOR": switch, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        argv = (SCRIPT_OF[shape], shape, str(STEPS), "0.05")
        if shape == "ranks":
            ended = subprocess.run(
                (sys.executable, *TORCHRUN, *argv), env=env | QUIET, cwd=job.folder, check=False, capture_output=True,
                text=True, timeout=START_S,
            )  # fmt: skip
            code, out, errors = ended.returncode, ended.stdout, ended.stderr
        else:
            ranks = enumerate(meeting() if shape in OF_RANKS else [{}])
            each = [forks.start(*argv, env=env | one, cwd=job.folder, stem=f"{switch}{rank}") for rank, one in ranks]
            code = max(fork.wait() for fork in each)
            out, errors = ("".join(getattr(fork, what) for fork in each) for what in ("out", "errors"))
        waits = [{name: ran.counts().get(name, 0) for name in WAITING} for ran in machine.all_ran()]
        for path in machine.home.glob("kernels.*"):
            path.unlink()
        said = re.findall(r"^(?!colane: |W\d{4} |USDT:|\[rank).+", errors, re.MULTILINE)
        return Done(code, sorted(out.splitlines()), said, waits)

    return run


@pytest.mark.parametrize("shape", [shape for shape in SCRIPT_OF if shape not in PARTS])
def test_a_loop_ends_prints_and_waits_as_it_would_without_the_adaptor(done: Callable[..., Done], shape: str) -> None:
    with_it, without = done(shape, "on"), done(shape, "off")
    if shape in BESIDE:
        with_it, without = with_it._replace(waits=[]), without._replace(waits=[])
    assert with_it == without
    assert with_it.code == (1 if shape == "asserts" else 0)


def test_a_gpu_without_statistics_has_its_memory_told_by_its_driver_alone(loop: Loop, machine: Machine) -> None:
    seen = loop("refuses_statistics", str(STEPS), str(KERNEL_MS)).seen()
    assert seen is not None
    assert (seen.steps, seen.reserved_bytes) == (STEPS, None)
    assert machine.gpu().held() == {}, "the process is gone, and what it held"

"""Measures what co-location buys on a CPU device: delta of sets of built-in jobs, run as real processes.

    python benchmarks/delta_cpu.py [--reps 3] [--window-s 4] [--only NAME]

delta = sum of step times alone / longest step time together (paper A, eq. 4.1). For each set it is given twice:
against the same jobs alone with the same threads, and against each job alone with the threads that suit it best
(the fair comparison: no one runs a job alone with a worse setting). Steps count only while all jobs of the
set run. Alone and together are interleaved; the median over the repetitions is reported. A window in which other
processes used the cores is measured again, a few times.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from colane.adaptor import wire
from colane.workloads import catalogue

WARM_STEPS = 5
"""Steps until caches, allocator and worker queues have settled."""
FOREIGN_CORES_MAX = 0.15
"""More than this much work by others in a window spoils it."""
TRIES = 6
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Setting:
    """How a job uses its device's cores."""

    threads: int
    passive: bool = False

    def environment(self) -> dict[str, str]:
        """Return the variables for the job, over what this process has."""
        base = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        wait = {"OMP_WAIT_POLICY": "PASSIVE"} if self.passive else {}
        return {**base, **wait, "OMP_NUM_THREADS": str(self.threads)}

    def __str__(self) -> str:
        return f"{self.threads} thread{'s' * (self.threads > 1)}{', passive' * self.passive}"


@dataclass(frozen=True)
class Job:
    """A built-in job, small or large."""

    model: str
    batch: int
    width: float
    workers: int = 0

    def arguments(self) -> list[str]:
        """Return the command after the interpreter; it trains until it is stopped."""
        job = {
            "model_name": self.model,
            "batch_size": self.batch,
            "width": self.width,
            "workers": self.workers,
            "dataset": "digits",
            "iters": 2**31 - 1,
            "lr": 0.001,
            "device": "cpu",
            "seed": 1,
        }
        return catalogue.command(job)


ALONE = (Setting(1), Setting(2))


def small(*models: str) -> tuple[Job, ...]:
    """Return jobs whose convolutions are too small for two threads."""
    return tuple(Job(model, batch=8, width=0.125) for model in models)


def large(*models: str) -> tuple[Job, ...]:
    """Return jobs that fill both cores by themselves."""
    return tuple(Job(model, batch=32, width=0.5) for model in models)


def medium(*models: str) -> tuple[Job, ...]:
    """Return jobs between the two, with a data worker each."""
    return tuple(Job(model, batch=8, width=0.25, workers=1) for model in models)


SETS: dict[str, tuple[tuple[Job, ...], tuple[Setting, ...]]] = {
    "small vgg19+vgg11": (small("vgg19", "vgg11"), (Setting(1),)),
    "small vgg19+resnet18": (small("vgg19", "resnet18"), (Setting(1), Setting(2, passive=True), Setting(2))),
    "small vgg11+resnet18": (small("vgg11", "resnet18"), (Setting(1),)),
    "small vgg19+vgg11+resnet18": (small("vgg19", "vgg11", "resnet18"), (Setting(1),)),
    "medium vgg19+resnet18": (medium("vgg19", "resnet18"), (Setting(1), Setting(2, passive=True))),
    "large vgg19+resnet18": (large("vgg19", "resnet18"), (Setting(1), Setting(2, passive=True), Setting(2))),
}


def busy_s() -> float:
    """Return CPU seconds used on the machine since it started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def used_s(processes: Sequence[subprocess.Popen[bytes]]) -> float:
    """Return CPU seconds used so far by processes and their live children."""
    family = [each for root in processes for each in _tree(root.pid)]
    return sum(sum(each.cpu_times()[:2]) for each in family)


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


@contextmanager
def running(jobs: Sequence[Job], setting: Setting) -> Iterator[list[tuple[Path, subprocess.Popen[bytes]]]]:
    """Start the jobs together, yield each with its steps file, and stop them."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        try:
            for index, job in enumerate(jobs):
                path = Path(folder, str(index))
                wire.create(path)
                environment = {**setting.environment(), wire.STEPS_FILE_ENV: str(path)}
                command = [sys.executable, *job.arguments()]
                started.append((path, subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)))
            yield started
        finally:
            for _, process in started:
                process.terminate()
            for _, process in started:
                process.wait()


def steps_between(path: Path, start_s: float, end_s: float) -> list[float]:
    """Return the durations of steps that ran wholly within the window, or the one that covers it."""
    steps = wire.read(path)
    assert steps is not None
    assert steps.last_step_s is not None
    inside: list[float] = []
    end = steps.last_step_s
    for duration in reversed(steps.durations_s):
        if end - duration < start_s and inside:
            break
        if end <= end_s:
            inside.append(duration)
        end -= duration
    return inside


def warm_up(started: Sequence[tuple[Path, subprocess.Popen[bytes]]]) -> bool:
    """Wait until every job has made its first steps; False if they do not within the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        seen = [wire.read(path) for path, _ in started]
        if all(each is not None and each.steps >= WARM_STEPS for each in seen):
            return True
        time.sleep(0.05)
        assert all(process.poll() is None for _, process in started), "a job ended early"
    return False


@dataclass(frozen=True)
class Window:
    """One measured window: step times (s) of each job, and how many cores other processes used meanwhile."""

    times_s: list[float]
    foreign_cores: float


def measure(jobs: Sequence[Job], setting: Setting, window_s: float) -> list[Window]:
    """Run the jobs together and take windows until one is quiet, a few at most."""
    with running(jobs, setting) as started:
        if not warm_up(started):
            return [Window([math.inf] * len(jobs), 0.0)]
        windows = [look(started, window_s)]
        while len(windows) < TRIES and windows[-1].foreign_cores > FOREIGN_CORES_MAX:
            windows.append(look(started, window_s))
    names = "+".join(job.model for job in jobs)
    times, foreign = milliseconds(windows[-1].times_s), windows[-1].foreign_cores
    print(f"  {names} ({setting}): {times} ms, others {foreign:.2f} cores", file=sys.stderr, flush=True)
    return windows


def look(started: Sequence[tuple[Path, subprocess.Popen[bytes]]], window_s: float) -> Window:
    """Watch running jobs for a while."""
    processes = [process for _, process in started]
    start_s, busy, used = time.time(), busy_s(), used_s(processes)
    time.sleep(window_s)
    end_s, busy, used = time.time(), busy_s() - busy, used_s(processes) - used
    durations = [steps_between(path, start_s, end_s) for path, _ in started]
    means = [statistics.fmean(each) if each else window_s for each in durations]
    return Window(means, max(busy - used, 0) / (end_s - start_s))


Key = tuple[tuple[Job, ...], Setting]


def settled(windows: Sequence[Window]) -> Window:
    """Return the medians over the quiet windows, or the quietest where none was quiet."""
    quiet = [each for each in windows if each.foreign_cores <= FOREIGN_CORES_MAX]
    if not quiet:
        return min(windows, key=lambda each: each.foreign_cores)
    times = [statistics.median(each) for each in zip(*(each.times_s for each in quiet), strict=True)]
    return Window(times, max(each.foreign_cores for each in quiet))


def milliseconds(times_s: Sequence[float]) -> str:
    """Return step times as text."""
    return ", ".join(f"{each * 1000:.1f}" for each in times_s)


def run(names: Sequence[str], reps: int, window_s: float) -> dict[Key, Window]:
    """Measure every set and each of its jobs alone, interleaved."""
    together = {(SETS[name][0], setting) for name in names for setting in SETS[name][1]}
    alone = {((job,), setting) for jobs, own in together for job in jobs for setting in (*ALONE, own)}
    seen: dict[Key, list[Window]] = defaultdict(list)
    for _ in range(reps):
        for key in sorted(alone | together, key=str):
            seen[key] += measure(*key, window_s)
    return {key: settled(windows) for key, windows in seen.items()}


def report(names: Sequence[str], measured: dict[Key, Window]) -> None:
    """Print the table."""
    print(
        "| set | threads | alone, same threads (ms) | alone, best threads (ms) | together (ms) "
        "| delta, same threads | delta, best threads | sum of speeds | others (cores) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        for setting in SETS[name][1]:
            print(f"| {name} | {setting} | {' | '.join(cells(SETS[name][0], setting, measured))} |")


def cells(jobs: tuple[Job, ...], setting: Setting, measured: dict[Key, Window]) -> list[str]:
    """Return the figures of one set under one setting as text."""
    choices = [[measured[(job,), each] for each in (*ALONE, setting)] for job in jobs]
    own = [each[-1].times_s[0] for each in choices]
    best = [min(window.times_s[0] for window in each) for each in choices]
    joint = measured[jobs, setting]
    speeds = sum(alone / shared for alone, shared in zip(best, joint.times_s, strict=True))
    ratios = [sum(own) / max(joint.times_s), sum(best) / max(joint.times_s), speeds]
    noise = max(joint.foreign_cores, *(window.foreign_cores for each in choices for window in each))
    return [*map(milliseconds, (own, best, joint.times_s)), *(f"{each:.2f}" for each in (*ratios, noise))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=4.0)
    parser.add_argument("--only", action="append", choices=SETS, help="may be given several times")
    given = parser.parse_args()
    names = given.only or list(SETS)
    report(names, run(names, given.reps, given.window_s))


if __name__ == "__main__":
    main()

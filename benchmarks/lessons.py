"""What a report of a running job costs that teaches something: jobs of one family, all running, report their progress.

    python benchmarks/lessons.py [--policy NAME ...] [--running N ...] [--queued N]

Prints, for each policy and number of running jobs, CPU time of a report in milliseconds (mean, median, and the most of
all but the first), its ratio to the same under `fifo` in the same run, and how many functions Python calls for one,
which is the same on every machine. None of them may grow with the number of jobs that run.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.calls import calls_of

from colane.core import ClusterState, Core
from colane.core.events import Launched, NodeRegistered, Progressed, Submitted
from colane.model.hardware import Gpu, Node
from colane.model.job import Job, JobId, JobSpec
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import NAMES, create

GIB = 2**30
GPUS = 8
STEP_S = 0.2
BEAT_S = 10.0
"""Each job reports so often."""


def node(number: int) -> Node:
    """One server."""
    gpus = tuple(
        Gpu(index=k, uuid=f"GPU-{number}-{k}", type="A100", memory_bytes=80 * GIB, socket=k // 4) for k in range(GPUS)
    )
    return Node(name=f"n{number:05d}", gpus=gpus, cores=tuple(range(64)), host_memory_bytes=512 * GIB)


def report(job: Job, at_s: float, steps: int, occupancy: float) -> Progressed:
    """A sample of a job that steps evenly."""
    progress = Progress(
        at_s=at_s,
        steps=steps,
        first_step_s=1.0,
        last_step_s=at_s,
        step_mean_s=STEP_S,
        step_median_s=STEP_S,
        persistent_bytes=2 * GIB,
        peak_bytes=4 * GIB,
        memory_by="nvml",
        occupancy_ratio=occupancy,
        occupancy_by="nvml",
    )
    return Progressed(job.id, job.attempt, progress)


class Running:
    """A cluster on which so many jobs of one family run, and so many wait."""

    def __init__(self, policy: str, running: int, queued: int = 0) -> None:
        self.core = Core(create(policy), ClusterState(Beliefs()))
        self.core.step([NodeRegistered(node(number)) for number in range(running // GPUS)], 0.0)
        spec = JobSpec(name="job", family="net", batch_size=64, user="ada")
        self.core.step([Submitted(JobId(number), spec) for number in range(running + queued)], 0.0, whole=True)
        self.jobs = [job for job in self.core.state.jobs.values() if job.placement is not None]
        self.core.step([Launched(job.id, job.attempt, 1, 0.0) for job in self.jobs], 0.0)
        self._round = 0

    def reports(self) -> list[tuple[Progressed, float]]:
        """One of each job with its time, in turn; the steps of each are a few more or less, so that all of it moves."""
        self._round += 1
        found, begin_s = [], BEAT_S * 2**self._round
        for place, job in enumerate(self.jobs):
            at_s = begin_s + BEAT_S * place / len(self.jobs)
            uneven = 1.0 + 0.02 * (place % 7)
            found.append((report(job, at_s, int(at_s / STEP_S / uneven), 0.4 + 0.001 * (place % 11)), at_s))
        return found

    def step(self, event: Progressed, at_s: float) -> None:
        """Tell the core."""
        self.core.step([event], at_s)

    @property
    def updates(self) -> int:
        """So many have been learnt."""
        return self.core.state.beliefs.updates


class Row(NamedTuple):
    """What was measured of one policy with so many running jobs; times in milliseconds."""

    running: int
    lessons: int
    mean_ms: float
    median_ms: float
    most_ms: float
    calls: float


def measure(policy: str, running: int, queued: int) -> Row:
    """Reports of all jobs, after rounds in which they have become known."""
    made = Running(policy, running, queued)
    for _ in range(3):
        for event, at_s in made.reports():
            made.step(event, at_s)
    gc.collect()
    gc.freeze()
    before, costs = made.updates, list[float]()
    for event, at_s in made.reports():
        begin_s = process_time()
        made.step(event, at_s)
        costs.append(process_time() - begin_s)
    taught = made.updates - before
    calls = [calls_of(made.step, event, at_s) for event, at_s in made.reports()[:100]]
    gc.unfreeze()
    return Row(len(made.jobs), taught, mean(costs) * 1e3, median(costs) * 1e3, max(costs[1:]) * 1e3, median(calls))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--policy", action="append", choices=sorted(NAMES), help="may be repeated")
    parser.add_argument("--running", type=int, action="append", help="may be repeated")
    parser.add_argument("--queued", type=int, default=0)
    args = parser.parse_args()
    print(f"{'policy':16}" + "".join(f"{column:>12}" for column in (*Row._fields, "to_fifo")))
    for running in args.running or [400, 2000]:
        fifo = measure("fifo", running, args.queued)
        for policy in args.policy or ["colane", "colocate"]:
            row = measure(policy, running, args.queued)
            cells = "".join(f"{value:12.3f}" if isinstance(value, float) else f"{value:12}" for value in row)
            print(f"{policy:16}{cells}{row.mean_ms / fifo.mean_ms:12.1f}", flush=True)


if __name__ == "__main__":
    main()

"""How soon CPU jobs of a month like CODA's could start at all: every core in one pool, any that fits starts.

Training jobs are there at once with the cores they have use for, whatever runs, and end as soon as these let them. The
CPU jobs that wait are asked in order of arrival, and start when so many cores are free, however they lie on nodes. What
nodes and borrowing cost a scheduler is what it lacks of this.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from colane.lab.papers.claims import Claim, ours
from colane.lab.papers.cpu_month import SHORT_S, cluster
from colane.lab.papers.cpu_world import CpuMonthWorld, best_cores
from colane.lab.traces.workload import TraceJob, Workload


class OnePool:
    """All cores of a cluster in virtual time.

    Args:
        cores: How many.
    """

    def __init__(self, cores: int) -> None:
        self._free = cores
        self._world = CpuMonthWorld()
        self._ends: list[tuple[float, int]] = []
        self._waiting: list[TraceJob] = []
        self.waits_s: list[float] = []

    def submit(self, job: TraceJob) -> None:
        """A job comes; jobs that have ended by then make room first."""
        self.until(job.submit_s)
        if job.spec.gpus:
            self._start(best_cores(job.model, job.spec.gpus), job.submit_s, self._world.work_steps(job))
        else:
            self._waiting.append(job)
            self._serve(job.submit_s)

    def until(self, now_s: float) -> None:
        """Let time pass."""
        while self._ends and self._ends[0][0] <= now_s:
            end_s, cores = heappop(self._ends)
            self._free += cores
            self._serve(end_s)

    def _serve(self, now_s: float) -> None:
        """Start all that fit, in order of arrival."""
        left: list[TraceJob] = []
        for job in self._waiting:
            if job.spec.cores <= self._free:
                self.waits_s.append(now_s - job.submit_s)
                self._start(job.spec.cores, now_s, job.duration_s or 0.0)
            else:
                left.append(job)
        self._waiting = left

    def _start(self, cores: int, now_s: float, length_s: float) -> None:
        self._free -= cores
        heappush(self._ends, (now_s + length_s, cores))


def cpu_jobs_within(workload: Workload, cores: int, wait_s: float) -> float:
    """Part of the CPU jobs that could start within so long, 0..1."""
    pool = OnePool(cores)
    for job in workload.jobs:
        pool.submit(job)
    pool.until(float("inf"))
    return float(np.mean(np.array(pool.waits_s) <= wait_s))


def pool_claim(workload: Workload) -> Claim:
    """What the month's own CPU jobs allow, beside claim D-e."""
    cores = sum(len(node.cores) for node in cluster().nodes)
    within = 100 * cpu_jobs_within(workload, cores, SHORT_S)
    claim = "CPU jobs that could start within 3 min: all cores one pool, training first, by arrival"
    note = "What coda lacks of it is the price of 80 nodes and of borrowing."
    return Claim("D-e-pool", claim, (ours("", f"{within:.1f} %"),), "the month, without nodes", note)

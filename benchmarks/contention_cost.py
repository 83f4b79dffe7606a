"""What the eliminator costs an agent and the core: CPU time of one measurement and one decision, over its interval.

    python benchmarks/contention_cost.py [--jobs 8] [--rounds 200]

A node with so many jobs; each round is what happens every 10 s: CPU time is read, the report's part is made, the core
is told, tunes and decides. Bound: less than 1 % of a core together. Exits with 1 when it is broken.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from colane.agent import processes
from colane.agent.measuring.bandwidth import BandwidthMeter
from colane.agent.reconcile import Desired, DesiredJob, Key
from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import BandwidthObserved, Launched, NodeRegistered, Progressed, Submitted
from colane.cpu.config import TuningConfig
from colane.cpu.contention import ContentionConfig
from colane.model.hardware import Gpu, Node
from colane.model.job import JobId, JobSpec
from colane.model.progress import BandwidthSample, Progress
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import preset

COST_MAX_RATIO = 0.01


def agent_s(jobs: int, rounds: int) -> float:
    """CPU time of one measurement."""
    me = processes.identify(os.getpid())
    keys = [Key(number, 1) for number in range(jobs)]
    meter = BandwidthMeter(sorted(os.sched_getaffinity(0)), 0)
    meter.follow(Desired(1, tuple(DesiredJob(key, run=True) for key in keys), bandwidth_interval_s=0.2))
    began_s = time.process_time()
    for now in range(rounds):
        meter.sample(float(now), lambda _: [me] if me else [], dict.fromkeys(keys, float(now)))
    return (time.process_time() - began_s) / rounds


def core_s(jobs: int, rounds: int) -> float:
    """CPU time of telling the core of one interval, half of the jobs with GPUs, tuned and measured."""
    config = CoreConfig(protection_factor=0.0, contention=ContentionConfig(), tuning=TuningConfig())
    core = Core(preset("fifo"), ClusterState(Beliefs()), config)
    gpus = tuple(Gpu(index=i, uuid=f"g{i}", type="v100", memory_bytes=16 << 30) for i in range(jobs // 2))
    core.step([NodeRegistered(Node(name="n", gpus=gpus, cores=tuple(range(8 * jobs))))], 0.0)
    for number in range(jobs):
        spec = JobSpec(name=f"j{number}", family=f"f{number}", gpus=number % 2, cores=4)
        core.step([Submitted(JobId(number + 1), spec)], 1.0)
        core.step([Launched(JobId(number + 1), 1, 1, 1.0)], 1.0)
    began_s = time.process_time()
    for turn in range(1, rounds + 1):
        now_s = 10.0 * turn
        sample = Progress(at_s=now_s, steps=100 * turn, first_step_s=2.0, last_step_s=now_s)
        trained = [Progressed(JobId(number + 1), 1, sample) for number in range(1, jobs, 2)]
        by_job = tuple((number + 1, 0.1) for number in range(0, jobs, 2))
        core.step([*trained, BandwidthObserved("n", BandwidthSample(now_s, 0.9, by_job))], now_s)
    return (time.process_time() - began_s) / rounds


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    agent, core = agent_s(arguments.jobs, arguments.rounds), core_s(arguments.jobs, arguments.rounds)
    ratio = (agent + core) / ContentionConfig().interval_s
    print(f"{arguments.jobs} jobs: agent {1e3 * agent:.2f} ms, core {1e3 * core:.2f} ms of CPU time an interval")
    print(f"of a core: {ratio:.4%}, at most {COST_MAX_RATIO:.0%}")
    return int(ratio > COST_MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())

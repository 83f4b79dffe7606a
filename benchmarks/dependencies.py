"""What it costs that jobs start after others: an end in a chain, and one for which many wait.

    python benchmarks/dependencies.py [--jobs 10000]

Prints CPU milliseconds for an end of a running job in the core, its replacement included: with so many other jobs
waiting for nothing (the base), with each of them waiting for the one before it (a chain), and with all waiting for one
(a fan, let go at once); and the cancellation of a chain from its head. The ratio is to the base of the same run.
"""

from __future__ import annotations

import argparse
import json
from statistics import median
from time import process_time

from colane.core import ClusterState, Core
from colane.core.events import CancelRequested, Ended, Event, Launched, NodeRegistered, Submitted
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, JobId, JobSpec
from colane.model.phases import Dependency, DependsOn, Hold, HoldKind
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

LOOKS = 50


def core_with(jobs: int, waits_for: dict[int, int]) -> Core:
    """One GPU, on which the first job runs; the others wait for the job that is named, or for nothing."""
    core = Core(create("fifo"), ClusterState(Beliefs()))
    gpu = Gpu(index=0, uuid="n-0", type="cpu", memory_bytes=2**30)
    core.step([NodeRegistered(Node(name="n", gpus=(gpu,)))], 0.0)
    events: list[Event] = []
    for job in range(1, jobs + 1):
        holds: tuple[Hold, ...] = ()
        if job in waits_for:
            holds = (Hold(HoldKind.AFTER, "", None, Dependency(DependsOn.OK, waits_for[job])),)
        events.append(Submitted(JobId(job), JobSpec(name="j", family="f"), holds))
    core.step(events, 1.0)
    return core


def ends_ms(core: Core, looks: int = LOOKS) -> float:
    """The median of some ends, one after another."""
    found = []
    for job in range(1, looks + 1):
        at_s = 10.0 * job
        core.step([Launched(JobId(job), 1, job, at_s, "n")], at_s)
        began_s = process_time()
        outcome = core.step([Ended(JobId(job), 1, "exited", Exit(0, None), at_s, at_s + 1, None, "n")], at_s + 1)
        found.append(process_time() - began_s)
        if not outcome.decisions:
            raise AssertionError(f"no job starts after {job}")
    return 1e3 * median(found)


def main() -> None:
    """Measure, and print one object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    base_ms = ends_ms(core_with(jobs, {}))
    chain = {job: job - 1 for job in range(2, jobs + 1)}
    chain_ms = ends_ms(core_with(jobs, chain))
    fan_ms = ends_ms(core_with(jobs, dict.fromkeys(range(2, jobs + 1), 1)), 1)
    core = core_with(jobs, chain)
    core.step([CancelRequested(JobId(1), "ann"), Launched(JobId(1), 1, 1, 2.0, "n")], 2.0)
    began_s = process_time()
    outcome = core.step([Ended(JobId(1), 1, "exited", Exit(1, None), 2.0, 3.0, None, "n")], 3.0)
    cancel_ms = 1e3 * (process_time() - began_s)
    print(
        json.dumps(
            {
                "jobs": jobs,
                "end_ms": round(base_ms, 3),
                "end_in_chain_ms": round(chain_ms, 3),
                "ratio": round(chain_ms / base_ms, 2),
                "end_for_all_ms": round(fan_ms, 1),
                "cancel_chain_ms": round(cancel_ms, 1),
                "cancelled": len(outcome.jobs),
            }
        )
    )


if __name__ == "__main__":
    main()

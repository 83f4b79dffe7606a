"""How long planning sizes takes: many elastic jobs on 10,000 GPUs, on one node each or over several.

    python benchmarks/decide_elastic.py [--jobs 1000] [--nodes 1250] [--policy f-sched --policy colane] [--repeat 5]

All jobs are elastic (1, 2, 4, 8 GPUs; those over nodes also 16 and 32), of families whose throughput at every size is
known, and save their state. In CPU time: the plan that fills the empty cluster; a pass in which everybody may be
resized and nothing has changed (the median of some); one arrival; one end, after which others may grow. Exits with 1
where one of these is over 100 ms with at most 1,000 jobs, or over 1 s with more.
"""

from __future__ import annotations

import argparse
import gc
import sys
from functools import partial
from statistics import median
from time import process_time
from typing import TYPE_CHECKING

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeRegistered, ProfileDeclared, Submitted, Tick
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30
GPU_TYPE = "Tesla V100-SXM2-16GB"
FAMILIES = 26
SIZES, SIZES_OVER_NODES = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32)
BOUND_S, BOUND_MANY_S = 0.1, 1.0
LATER_S = 100_000.0
"""Long enough after the last start that everybody may be resized."""


def node(number: int) -> Node:
    """One server of eight."""
    gpus = tuple(Gpu(index=k, uuid=f"GPU-{number}-{k}", type=GPU_TYPE, memory_bytes=16 * GIB) for k in range(8))
    return Node(name=f"n{number:05d}", gpus=gpus, cores=tuple(range(32)), host_memory_bytes=256 * GIB)


def profile(family: int, gpus: int) -> Profile:
    """Families that scale more or less well."""
    exponent = 0.6 + 0.35 * family / FAMILIES
    step_s = (0.1 + 0.01 * family) / gpus**exponent
    return Profile(key=ProfileKey(f"f{family}", 64, gpus, GPU_TYPE), step_s=Value(step_s, ValueSource.MEASURED, 10))


def spec(number: int, *, over_nodes: bool) -> JobSpec:
    """One elastic job."""
    sizes = SIZES_OVER_NODES if over_nodes else SIZES
    return JobSpec(
        name=str(number), family=f"f{number % FAMILIES}", batch_size=64, gpus=sizes[-1], sizes=sizes,
        multi_node=over_nodes, preemptible=True, share=False, steps_total=50_000_000 + 1000 * number,
    )  # fmt: skip


def timed(action: Callable[[], object]) -> float:
    """Seconds of CPU."""
    start_s = process_time()
    action()
    return process_time() - start_s


def settle(core: Core, now_s: float) -> float:
    """Let all that the core has decided come about, until it decides nothing more; the time then."""
    for _ in range(100):
        events: list[Event] = []
        for job in list(core.state.jobs.values()):
            if job.state is JobState.ASSIGNED:
                events.append(Launched(job.id, job.attempt, 1, now_s))
            elif job.state in {JobState.STOPPING, JobState.CHECKPOINTING} and job.placement is not None:
                nodes = job.placement.nodes
                events += [
                    Ended(job.id, job.attempt, "signalled", Exit(None, 15), now_s, now_s, None, n) for n in nodes
                ]
        if not events:
            return now_s
        core.step(events, now_s)
        now_s += 1.0
        core.step([Tick()], now_s)
    raise SystemExit("the sizes do not settle")


def ended(job: Job, now_s: float) -> list[Event]:
    """It has succeeded, on all of its nodes."""
    nodes = job.placement.nodes if job.placement is not None else ()
    return [Ended(job.id, job.attempt, "exited", Exit(0, None), now_s, now_s, None, name) for name in nodes]


def measure(policy: str, jobs: int, nodes: int, repeat: int, *, over_nodes: bool) -> dict[str, float]:
    """Milliseconds of each."""
    core = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0, guard=False))
    core.step([NodeRegistered(node(k)) for k in range(nodes)], 0.0)
    core.step([ProfileDeclared(profile(f, n)) for f in range(FAMILIES) for n in SIZES_OVER_NODES], 0.0)
    submitted = [Submitted(JobId(k), spec(k, over_nodes=over_nodes)) for k in range(1, jobs + 1)]
    gc.collect()
    gc.freeze()
    fill_s = timed(lambda: core.step(submitted, 1.0))
    now_s = settle(core, 2.0) + LATER_S
    resized_s = timed(lambda: core.step([Tick()], now_s))
    now_s = settle(core, now_s) + LATER_S
    core.step([Tick()], now_s)
    now_s = settle(core, now_s) + LATER_S
    passes = [timed(lambda: core.step([Tick()], now_s)) for _ in range(repeat)]
    arrivals, ends = [], []
    for number in range(jobs + 1, jobs + 1 + repeat):
        one = [Submitted(JobId(number), spec(number, over_nodes=over_nodes))]
        arrivals.append(timed(partial(core.step, one, now_s)))
        now_s = settle(core, now_s) + LATER_S
        core.step([Tick()], now_s)
        now_s = settle(core, now_s) + LATER_S
        gone = next(job for job in core.state.jobs.values() if job.state is JobState.RUNNING)
        ends.append(timed(partial(core.step, ended(gone, now_s), now_s)))
        now_s = settle(core, now_s) + LATER_S
    running = [job for job in core.state.jobs.values() if job.placement is not None]
    return {
        "running": len(running),
        "gpus": sum(job.gpu_count for job in running),
        "fill_ms": fill_s * 1e3,
        "first_resize_ms": resized_s * 1e3,
        "pass_ms": median(passes) * 1e3,
        "arrival_ms": median(arrivals) * 1e3,
        "end_ms": median(ends) * 1e3,
    }


def main() -> int:
    """Print a table; judge."""
    parser = argparse.ArgumentParser(description="How long planning sizes takes.")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    bound_ms = 1e3 * (BOUND_S if args.jobs <= 1000 else BOUND_MANY_S)
    is_over = False
    for policy in args.policy or ("f-sched", "colane"):
        for over_nodes in (False, True):
            row = measure(policy, args.jobs, args.nodes, args.repeat, over_nodes=over_nodes)
            where = "over nodes" if over_nodes else "one node each"
            told = "".join(f"{name} {value:8.1f}  " for name, value in row.items())
            print(f"{policy:10} {where:14} {told}", flush=True)
            is_over = is_over or any(value > bound_ms for name, value in row.items() if name.endswith("_ms"))
    print(f"bound {bound_ms:g} ms: {'not held' if is_over else 'held'}")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main())

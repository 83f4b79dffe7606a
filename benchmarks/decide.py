"""How long deciding takes: 10,000 queued jobs on 1,000 nodes x 8 GPUs, for every policy.

    python benchmarks/decide.py [--policy NAME ...]
    python benchmarks/decide.py --matrix [--kind NAME ...] [--nodes N] [--families F] [--csv FILE]

Policies with lanes look at every waiting job, so they take minutes (`salus-code` most); they are measured only where
they are named.

Prints, for each policy, in CPU time: the pass that fills the empty cluster, a pass over a full queue, one arrival, one
end of a job (with its replacement), each as the median of repeated runs, and the ratio to sorting the same queue once,
which any policy that looks at every job must at least do. `ripe_pass_ms` is a pass in which all running jobs are
preemptible, alike and have run for 100 s, as long as all that wait would: those that may be stopped are compared, and
no job gains.

`--matrix` prints what each event takes under `colane` for each kind of job on 8, 64, 240 and 8,000 GPUs with 26 and
1,000 families, beside `fifo-skip` on the same jobs in turn: an arrival, a report, an end, a look at everything (each
the median of repeated ones, in all the steps they take), many ends and arrivals at once, and the longest step of all.
`fill` is the longest step of those that start jobs on all GPUs at once. As source it counts functions called, too.

`all-sources` is no named policy but a composition of every source there is: free GPUs, beside others, in their lanes,
connected ones, and room made by the order.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from csv import DictWriter
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.calls import calls_of

from colane.core import ClusterState, Core
from colane.core import core as core_of_colane
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import (
    Ended,
    Event,
    Launched,
    NodeRegistered,
    ProfileDeclared,
    Progressed,
    Submitted,
    Tick,
)
from colane.core.policy import Policy
from colane.model.hardware import Gpu, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.scheduling.admissions.ageing import DAY_S, Ageing
from colane.scheduling.engine.choices import FIRST
from colane.scheduling.engine.loop import Composed
from colane.scheduling.mechanisms.fairness.service import LeastAttained
from colane.scheduling.mechanisms.lanes.in_lane import InLane
from colane.scheduling.mechanisms.preemption.preemption import Preemption
from colane.scheduling.mechanisms.sharing.beside import BesideLightest
from colane.scheduling.mechanisms.topology.free import Free
from colane.scheduling.mechanisms.topology.placement import Connected
from colane.scheduling.registry import NAMES, create

GIB = 2**30
GPU_TYPE = "Tesla V100-SXM2-16GB"
FAMILIES = 26
"""Gavel's table has 26 single-GPU models; `--families` makes more of them, over the same range of load."""

LOAD_RANGE = 5.0, 31.0
"""Occupancy of the lightest family and of one beyond the heaviest, in millions: the heaviest do not pair."""


SOURCES = (Free(), BesideLightest(), InLane(), Connected(), Preemption())
COMPOSITIONS = {
    "all-sources": Composed("all-sources", LeastAttained(), SOURCES, (Ageing(DAY_S),), choose=FIRST),
}


def policy_of(name: str) -> Policy:
    """A named policy, or one of those above."""
    return COMPOSITIONS.get(name) or create(name)


def node(number: int, gpus: int) -> Node:
    """One server."""
    devices = tuple(Gpu(index=k, uuid=f"GPU-{number}-{k}", type=GPU_TYPE, memory_bytes=16 * GIB) for k in range(gpus))
    return Node(name=f"n{number:05d}", gpus=devices, cores=tuple(range(32)), host_memory_bytes=256 * GIB)


GANGS = (1, 2, 4, 8, 16, 32)
"""Numbers of GPUs of which step times are known."""


def profile(family: int, families: int, gpus: int = 1) -> Profile:
    """Families of rising load."""
    measured, (least, beyond) = ValueSource.MEASURED, LOAD_RANGE
    load = least + (beyond - least) * family / families
    return Profile(
        key=ProfileKey(f"f{family}", 64, gpus, GPU_TYPE),
        step_s=Value(0.1, measured, 10),
        persistent_bytes=Value(float(GIB), measured),
        ephemeral_bytes=Value(2.0 * GIB, measured),
        occupancy=Value(1e6 * load, measured, 10),
        bandwidth=Value(5e5 * load, measured, 10),
    )


MATRIX_SIZES = (1, 300), (8, 600), (30, 1_000), (125, 2_000), (1_000, 10_000)
"""Nodes of 8 GPUs, and jobs that wait, of the cells of the matrix."""


class Size(NamedTuple):
    """How much there is of everything."""

    nodes: int
    gpus: int
    queued: int
    families: int


def cluster(policy: str, size: Size, config: CoreConfig | None = None) -> Core:
    """An empty cluster that knows every family."""
    core = Core(policy_of(policy), ClusterState(Beliefs()), config or CoreConfig())
    core.step([NodeRegistered(node(k, size.gpus)) for k in range(size.nodes)], 0.0)
    known = [profile(family, size.families, gpus) for family in range(size.families) for gpus in GANGS]
    core.step([ProfileDeclared(one) for one in known], 0.0)
    return core


def submissions(first: int, count: int, families: int, kind: str = "unknown") -> list[Submitted]:
    """Jobs of all families in turn."""
    return [Submitted(JobId(k), KINDS[kind](k, families)) for k in range(first, first + count)]


MIXES = 618_033
"""Spreads the numbers of jobs over lengths."""


def steps_of(number: int) -> int:
    """Lengths between 5 minutes and 28 hours, the same for every kind."""
    return round(10 ** (3.5 + number * MIXES % 1_000 / 400))


def unknown(number: int, families: int) -> JobSpec:
    """Of one GPU; its owner gives no length."""
    return JobSpec(name=str(number), family=f"f{number % families}", batch_size=64)


def plain(number: int, families: int) -> JobSpec:
    """Of one GPU and known length."""
    return replace(unknown(number, families), steps_total=steps_of(number))


def gang(number: int, families: int) -> JobSpec:
    """Of one, two, four or eight GPUs of a node."""
    return replace(plain(number, families), gpus=1 << number % 4)


def wide(number: int, families: int) -> JobSpec:
    """Of one to 32 GPUs, also of several nodes."""
    return replace(plain(number, families), gpus=1 << number % 6, multi_node=number % 6 > 3)


def elastic(number: int, families: int) -> JobSpec:
    """Of one, two or four GPUs, at any time."""
    return replace(plain(number, families), gpus=2, sizes=(1, 2, 4), preemptible=True)


def due(number: int, families: int) -> JobSpec:
    """To be through within a week."""
    return replace(plain(number, families), deadline_s=7 * DAY_S)


def stoppable(number: int, families: int) -> JobSpec:
    """Of unknown length, and may be stopped."""
    return replace(unknown(number, families), preemptible=True)


def untold_gang(number: int, families: int) -> JobSpec:
    """As a gang, of unknown length."""
    return replace(gang(number, families), steps_total=None)


def untold_wide(number: int, families: int) -> JobSpec:
    """Of one to 32 GPUs, of unknown length, and may be stopped."""
    return replace(wide(number, families), steps_total=None, preemptible=True)


def parked(number: int, families: int) -> JobSpec:
    """Cannot be stopped, and shares with none: some of those that run are parked for urgent ones."""
    return replace(plain(number, families), share=False)


def guaranteed(number: int, families: int) -> JobSpec:
    """Of two users; one of them has GPUs guaranteed."""
    return replace(plain(number, families), user=f"u{number % 2}", preemptible=True)


GUARANTEED = Quotas(groups={"lab": GroupQuota(Limits(), frozenset({"u1"}), 6)})

KINDS: Mapping[str, Callable[[int, int], JobSpec]] = {
    "plain": plain, "unknown": unknown, "stoppable": stoppable, "gang": gang, "wide": wide, "elastic": elastic,
    "due": due, "untold-gang": untold_gang, "untold-wide": untold_wide, "parked": parked, "guaranteed": guaranteed,
}  # fmt: skip


def timed(action: Callable[[], object]) -> float:
    """Seconds of CPU one call takes; nothing of it waits for anything."""
    start = process_time()
    action()
    return process_time() - start


def fill(policy: str, size: Size) -> tuple[Core, float]:
    """Seconds the first plan takes, on an empty cluster with a full queue."""
    core = cluster(policy, size)
    nodes_there = [known.node for known in core.state.nodes.values()]
    for at in nodes_there:
        core.state.put_node(replace(at, gpus=tuple(replace(gpu, healthy=False) for gpu in at.gpus)))
    core.step(submissions(0, size.queued, size.families), 1.0)
    for at in nodes_there:
        core.state.put_node(at)
    seconds = timed(lambda: core.policy.plan(ClusterView(core.state, 1.0)))
    core.step([], 1.0, whole=True)
    return core, seconds


Meter = Callable[[Callable[[], object]], float]

MANY: Final = 100
"""So many jobs come, and as many of those that run end, at once."""


class Metered:
    """A cluster of one kind of jobs, and what each of its steps takes by a meter."""

    def __init__(self, policy: str, kind: str, size: Size, meter: Meter) -> None:
        quotas = GUARANTEED if kind == "guaranteed" else Quotas()
        self.core = cluster(policy, size, CoreConfig(protection_factor=0.0, limits=quotas))
        self.meter = meter
        self.steps: list[float] = []

    def step(self, events: Sequence[Event], at_s: float) -> float:
        """What events take, in all the steps they need."""
        first = len(self.steps)
        self.steps.append(self.meter(partial(self._turn, events, at_s)))
        while self.core.goes_on:
            self.steps.append(self.meter(partial(self._turn, (), at_s)))
        return sum(self.steps[first:])

    def _turn(self, events: Sequence[Event], at_s: float) -> None:
        """A step, behind which garbage is collected as the scheduler does (`colane.server.writer.driver`)."""
        self.core.step(events, at_s)
        gc.collect(0)

    def launch(self, at_s: float) -> None:
        """What was started makes steps."""
        started = [job for job in self.core.state.jobs.values() if job.state is JobState.ASSIGNED]
        self.step([Launched(job.id, job.attempt, 1, at_s, node) for job in started for node in _nodes(job)], at_s)

    def park(self, first: int, count: int, at_s: float) -> None:
        """Have urgent jobs come, for which others are parked."""
        spec = replace(plain(0, 1), priority=1, steps_total=steps_of(0), preemptible=True, share=False)
        self.step([Submitted(JobId(first + k), spec) for k in range(count)], at_s)
        leaving = [job for job in self.core.state.jobs.values() if job.state is JobState.PAUSED]
        on_host = Progress(at_s=at_s, steps=8, first_step_s=at_s, persistent_bytes=GIB, on_host_bytes=GIB)
        self.step([Progressed(job.id, job.attempt, on_host) for job in leaving], at_s + 1.0)
        self.launch(at_s + 2.0)


def of_kind(policy: str, kind: str, size: Size, repeat: int, meter: Meter) -> dict[str, float]:
    """What each event takes where as many jobs wait as are queued beyond those that find GPUs, by this meter."""
    world, gpus = Metered(policy, kind, size, meter), size.nodes * size.gpus
    core, total = world.core, size.queued + gpus
    world.step(submissions(0, total, size.families, kind), 1.0)
    found = dict[str, float]()
    world.launch(2.0)
    if kind == "parked":
        world.park(total, gpus // 4, 300.0)
        total += gpus // 4
    world.step([Tick()], 302.5)  # timers of launches
    found["fill"] = max(world.steps)
    world.steps.clear()
    running = [job for job in core.state.jobs.values() if job.placement is not None and not job.home]
    ending = [job for job in running if len(_nodes(job)) == 1]
    many = min(MANY, gpus // 4)
    now_s = 303.0
    for name, events in (
        ("arrival", [[one] for one in submissions(total, repeat, size.families, kind)]),
        ("report", [[Progressed(job.id, job.attempt, _first_steps(job))] for job in running[-repeat:]]),
        ("end", [[_ends(job)] for job in ending[:repeat]]),
        ("look", [[Tick()]]),
        (
            "many",
            [[*submissions(total + repeat, many, size.families, kind), *map(_ends, ending[repeat : repeat + many])]],
        ),
    ):
        taken = list[float]()
        for event in events:
            now_s += 400.0 if name == "look" else 0.1
            taken.append(world.step(event, now_s))
        found[name] = median(taken)
    return {**found, "longest": max(world.steps)}


def _nodes(job: Job) -> list[str]:
    return list(dict.fromkeys([gpu.node for gpu in job.gpus_held]))


def _ends(job: Job) -> Event:
    return Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, 4.0)


def _first_steps(job: Job) -> Progress:
    return Progress(at_s=2.9 + job.id / 1e6, steps=8, first_step_s=2.1, last_step_s=2.9)


def print_matrix(args: argparse.Namespace) -> None:
    """A line for each cell, in milliseconds and functions called, with ratios to `fifo-skip`; as CSV where asked."""
    is_source = core_of_colane.__file__.endswith(".py")
    gc.set_threshold(10_000, 2**30, 2**30)  # as the scheduler does (`colane.server.main`)
    rows = list[dict[str, object]]()
    for nodes, queued in MATRIX_SIZES:
        for families in (FAMILIES, 1000) if args.families is None else (args.families,):
            for kind in args.kind or KINDS:
                if args.nodes is None or nodes == args.nodes:
                    gc.collect()
                    size = Size(nodes, args.gpus, queued, families)
                    base, ours = [of_kind(name, kind, size, args.repeat, timed) for name in ("fifo-skip", "colane")]
                    rows += _rows(kind, size, "source ms" if is_source else "compiled ms", 1e3, base, ours)
                    if is_source and args.calls:
                        counted = [of_kind(name, kind, size, 4, calls_of) for name in ("fifo-skip", "colane")]
                        rows += _rows(kind, size, "calls", 1, *counted)
    if args.csv is not None:
        with args.csv.open("w") as file:
            writer = DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def _rows(
    kind: str, size: Size, unit: str, factor: float, base: Mapping[str, float], ours: Mapping[str, float]
) -> Iterator[dict[str, object]]:
    cells = [f"{name} {factor * ours[name]:.2f} ({ours[name] / base[name]:.1f})" for name in ours]
    print(f"{size.nodes * size.gpus:5} {size.families:5} {kind:12} {unit:12} " + ", ".join(cells), flush=True)
    for name, value in ours.items():
        yield {
            "gpus": size.nodes * size.gpus, "queued": size.queued, "families": size.families, "kind": kind,
            "event": name, "unit": unit, "colane": round(factor * value, 3), "ratio": round(value / base[name], 2),
        }  # fmt: skip


def past_min_runtime(policy: str, size: Size, repeat: int) -> float:
    """Seconds of a pass in which running jobs might be stopped, and none is."""
    core = cluster(policy, size, CoreConfig(opaque_after_s=0.0))
    spec = JobSpec(name="j", family="f0", batch_size=64, preemptible=True, share=False, steps_total=20_000)
    core.step([Submitted(JobId(k), spec) for k in range(size.nodes * size.gpus + size.queued)], 0.0, whole=True)
    running = [job for job in core.state.jobs.values() if job.placement is not None]
    core.step([Launched(job.id, job.attempt, 1, 0.0) for job in running], 0.0)
    passes = [timed(partial(core.step, [Tick()], 100.0 + k)) for k in range(repeat)]
    return median(passes)


def measure(policy: str, size: Size, repeat: int) -> dict[str, float]:
    """All figures of one policy, in milliseconds."""
    core, fill_s = fill(policy, size)
    first = size.queued
    while (missing := size.queued - sum(queue.count for queue in core.state.queues.values())) > 0:
        core.step(submissions(first, missing, size.families), 2.0, whole=True)
        first += missing
    gc.collect()
    gc.freeze()
    passes = [timed(lambda: core.step([Tick()], 3.0)) for _ in range(repeat)]
    arrivals = [
        timed(partial(core.step, [event], 3.0 + k / repeat))  # no two at one moment, at which less is asked anew
        for k, event in enumerate(submissions(first, repeat, size.families))
    ]
    running = [job for job in core.state.jobs.values() if job.placement is not None][:repeat]
    ends = [Ended(job.id, job.attempt, "exited", Exit(0, None), 2.0, 4.0) for job in running]
    replaced = [timed(partial(core.step, [event], 4.0 + k / repeat)) for k, event in enumerate(ends)]
    ids = [(job.spec.family, job.id) for job in core.state.jobs.values()]
    sort_s = median(timed(lambda: sorted(ids)) for _ in range(repeat))
    gc.unfreeze()
    return {
        "jobs_waiting": sum(queue.count for queue in core.state.queues.values()),
        "fill_ms": fill_s * 1e3,
        "pass_ms": median(passes) * 1e3,
        "arrival_ms": median(arrivals) * 1e3,
        "end_ms": median(replaced) * 1e3,
        "ripe_pass_ms": past_min_runtime(policy, size, max(1, repeat // 5)) * 1e3,
        "pass_to_sort_ratio": median(passes) / sort_s,
    }


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--policy", action="append", choices=sorted((*NAMES, *COMPOSITIONS)), help="may be repeated")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--families", type=int, help="kinds of jobs")
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--matrix", action="store_true", help="by kind of job, under colane beside fifo-skip")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="of the matrix; may be repeated")
    parser.add_argument("--calls", action="store_true", help="count calls in the matrix, too, as source")
    parser.add_argument("--csv", type=Path, help="where the matrix is kept")
    args = parser.parse_args()
    if args.matrix:
        print_matrix(args)
        return
    size = Size(args.nodes or 1000, args.gpus, args.queued, args.families or FAMILIES)
    quick = [name for name in NAMES if not any(isinstance(source, InLane) for source in create(name).sources)]
    rows: dict[str, dict[str, float]] = {}
    for name in args.policy or [*quick, *COMPOSITIONS]:
        row = rows[name] = measure(name, size, args.repeat)
        if args.json:
            continue
        if len(rows) == 1:
            print(f"{'policy':16}" + "".join(f"{column:>20}" for column in row))
        print(f"{name:16}" + "".join(f"{value:20.3f}" for value in row.values()), flush=True)
    if args.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

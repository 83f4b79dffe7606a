"""Poisson workloads of elastic jobs on 16 nodes of four GPUs, by Pollux's throughputs: sizes chosen or fixed.

Each job keeps its total batch and may run on 1 to 4 GPUs of a node; under `fifo` on as many as its owner asked for,
in a static split on as many as every other. Its length is drawn, as steps at the speed of one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from colane.lab.papers.claims import FULL, Claim, Effort, Origin, Trait, ours
from colane.lab.report.simulated import Interval, confidence
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.gavel_speeds import PolluxSpeeds
from colane.lab.simulate.request import Loaded, Request, inputs, load
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import Sources
from colane.lab.traces import clusters
from colane.lab.traces.generate import JobModel, LogNormal, poisson
from colane.lab.traces.readers.lists import BATCH_TOTAL
from colane.lab.traces.tables.pollux import PolluxTable
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job_spec import JobSpec
from colane.model.words import count
from colane.scheduling.registry import create

CLUSTER: Final = "pollux"
MEAN_GAP_S: Final = 80.0
DURATIONS: Final = LogNormal(median_s=1800.0, sigma=1.0)
"""On one GPU: mean 50 minutes, so that jobs as they come ask for some two thirds of the GPUs."""

SIZES: Final = (1, 2, 3, 4)
RESTART: Final = DriverConfig(launch_s=30.0, stop_s=10.0)
"""Pollux's simulator takes 30 s for a restart (OSDI 2021, section 5.3)."""

CHOSEN: Final = ("f-sched", "colane")
ASKED: Final = "fifo"


@dataclass(frozen=True, slots=True)
class Contest:
    """What one way to choose sizes came to, over the seeds."""

    name: str
    jct_s: tuple[float, ...]
    makespan_s: tuple[float, ...]

    def told(self) -> str:
        """Means with their 95 % intervals."""
        return f"jct {_interval(confidence(self.jct_s))} s, makespan {_interval(confidence(self.makespan_s))} s"


def evaluate(table: PolluxTable, seeds: int, jobs: int, effort: Effort = FULL) -> tuple[Claim, ...]:
    """A claim for each way, and which is best."""
    ways = {}
    for name in (*CHOSEN, ASKED, *(f"static-{gpus}" for gpus in SIZES)):
        effort.tell(f"Pollux's applications under {name}, {count(seeds, 'seed')}")
        ways[name] = _contest(table, name, seeds, jobs)
    each = [
        Claim(f"E-p-{name}", f"{DRAWN}, 16 nodes x 4 GPUs: {name}", (ours("", found.told()),), WORLD)
        for name, found in ways.items()
    ]
    return (*each, _best(ways))


WORKLOADS: Final = "traces/pollux-profiles/workloads/workload-{}.csv"
RECORDED: Final = (2, 3)
"""Of Pollux's workloads: hours of Microsoft's trace with its applications for jobs. `colane` was tuned on 1 and 6."""

DRAWN: Final = "Pollux's applications, Poisson arrivals"
MANY_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def asked_of(data: Path, workload: int) -> Request:
    """What Pollux's simulator has: 16 nodes of four T4s, 30 s for a restart."""
    return Request(
        cluster=CLUSTER, trace=str(data / WORKLOADS.format(workload)), tables=data, multi_node=True, preemptible=True,
        belief=Belief.PROFILED, costs={"launch_s": 30.0, "stop_s": 0.0}, noise=0.0,
    )  # fmt: skip


def elastic(loaded: Loaded, gpus_max: int) -> Loaded:
    """With every job of many sizes."""

    def sized(job: TraceJob) -> TraceJob:
        sizes = tuple(sorted({*[n for n in MANY_SIZES if n <= gpus_max], job.spec.gpus}))
        return replace(job, spec=replace(job.spec, sizes=sizes, multi_node=True))

    return replace(loaded, workload=replace(loaded.workload, jobs=tuple(map(sized, loaded.workload.jobs))))


def recorded(data: Path | None, effort: Effort) -> Iterator[Claim]:
    """`f-sched` beside others on recorded hours, where they are at hand."""
    for number in RECORDED:
        if data is None or not (data / WORKLOADS.format(number)).is_file():
            continue
        effort.tell(f"Pollux's workload {number}")
        request = asked_of(data, number)
        loaded = load(request, 0)
        sized = elastic(loaded, 16)
        runs = [simulate(inputs(request, loaded if name == ASKED else sized, name, 0)) for name in (*CHOSEN, ASKED)]
        told = [
            ours(
                f"mean jct, makespan, {run.policy}",
                f"{np.mean(np.subtract(run.ledger.rows.end_s, run.ledger.rows.submit_s)):,.0f} s, "
                f"{max(run.ledger.rows.end_s):,.0f} s",
            )
            for run in runs
        ]
        claim = f"Pollux's workload {number}, {count(len(loaded.workload.jobs), 'job')} of 1 to 16 of 64 GPUs"
        world = "Pollux's throughputs and recorded arrivals on 16 nodes of four GPUs; a restart takes 30 s"
        yield Claim(f"E-r-{number}", claim, tuple(told), world)


def _contest(table: PolluxTable, name: str, seeds: int, jobs: int) -> Contest:
    runs = [simulated(table, name, seed, jobs) for seed in range(seeds)]
    jct_s = [float(np.mean(np.subtract(run.ledger.rows.end_s, run.ledger.rows.submit_s))) for run in runs]
    return Contest(name, tuple(jct_s), tuple(float(max(run.ledger.rows.end_s)) for run in runs))


def simulated(table: PolluxTable, name: str, seed: int, jobs: int) -> Run:
    """One way on one workload."""
    workload = drawn(table, name, seed, jobs)
    world = TableWorld(Sources((PolluxSpeeds(table),), None), workload.jobs)
    loaded = Loaded(clusters.load(CLUSTER), workload, world)
    known = make_beliefs(Belief.PROFILED, world, workload.jobs, loaded.cluster, noise=0.0, seed=seed)
    policy = create(name) if name in CHOSEN else replace(create("fifo", as_published=True), name=name)
    given = Inputs(cluster=loaded.cluster, workload=workload, world=world, policy=policy, beliefs=known, driver=RESTART)
    return simulate(given)


def drawn(table: PolluxTable, name: str, seed: int, jobs: int) -> Workload:
    """The workload of a seed with the sizes of a way; which jobs come when, and how long, is of the seed alone."""
    models = [
        # Each application at the smallest total batch that was measured, which one GPU takes.
        JobModel(
            family=application, steps_per_s=1 / found.step_s((1,), min(found.iterations)),
            labels={BATCH_TOTAL: str(min(found.iterations))},
        )
        for application, found in sorted(table.applications.items())
    ]  # fmt: skip
    made = poisson(models, jobs=jobs, mean_gap_s=MEAN_GAP_S, seed=seed, durations=DURATIONS, name="elastic")
    asked = np.random.default_rng([seed, 1]).choice((1, 2, 4), size=jobs)
    sized = tuple(_sized(job, name, int(gpus)) for job, gpus in zip(made.jobs, asked, strict=True))
    return replace(made, jobs=sized)


def _sized(job: TraceJob, name: str, asked: int) -> TraceJob:
    spec: JobSpec = replace(job.spec, preemptible=True)
    if name in CHOSEN:
        spec = replace(spec, gpus=SIZES[-1], sizes=SIZES)
    else:
        spec = replace(spec, gpus=asked if name == ASKED else int(name.rpartition("-")[2]))
    return replace(job, spec=spec, duration_s=None)


def _best(ways: dict[str, Contest]) -> Claim:
    others = [way for name, way in ways.items() if name not in CHOSEN]
    least_s = [min(theirs) for theirs in zip(*(way.jct_s for way in others), strict=True)]
    won = {
        name: sum(own < least for own, least in zip(ways[name].jct_s, least_s, strict=True)) for name in CHOSEN
    }  # fmt: skip
    holds = all(np.mean(ways[name].jct_s) < min(np.mean(way.jct_s) for way in others) for name in CHOSEN)
    told = ", ".join(
        f"{name} has the least mean jct on {many} of {len(ways[name].jct_s)}" for name, many in won.items()
    )
    # The thesis has four jobs and no such workloads: these are of Pollux's applications, drawn here.
    order = Trait("chosen sizes have the least mean JCT", holds, told, source=Origin.OURS)
    return Claim("E-p", f"{DRAWN}: chosen sizes against FIFO and every static split", (order,), WORLD)


WORLD: Final = "Pollux's measured throughputs on 16 nodes of four GPUs; Poisson arrivals"


def _interval(found: Interval | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:,.0f}" + ("" if found.half_width is None else f" ± {found.half_width:,.0f}")

"""The workloads on which `policies.py` compares policies: each with its machines, its truth and what moving costs.

A seed above 0 of a recorded trace is another draw of what the trace leaves to chance, as each row says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from colane.lab.papers import elastic_workloads
from colane.lab.papers.sharing import SWEEP_ITERATIONS, SWEEP_JOBS, SWEEPS
from colane.lab.papers.sharing_memory import read_tables
from colane.lab.papers.sharing_scenes import Gain, GainWorld, job_of
from colane.lab.papers.topology_large import LOAD_GAP_S, arrivals
from colane.lab.papers.topology_world import minskys
from colane.lab.simulate.beliefs import Belief, declare_lengths
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.gavel_speeds import CAPACITY_BYTES, PolluxSpeeds
from colane.lab.simulate.request import Request, load, make_world, shared_by
from colane.lab.simulate.table_files import TOPOLOGY_TIMES, gavel_models, pair_type
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import Sources, TopologySpeeds
from colane.lab.simulate.world import NeutralWorld, Running, Startup, World
from colane.lab.traces import clusters, generate, read
from colane.lab.traces.tables import pollux as pollux_times
from colane.lab.traces.tables import topology
from colane.lab.traces.workload import TraceJob, Workload, compress, only_pools
from colane.model.job import JobId, JobSpec
from colane.model.profile import Memory

GAVEL_GPUS = 36
MEAN_S = 60.0 * (0.8 * 280.4 + 0.2 * 3908.6)
"""Mean of Gavel's run times (`generate.GavelDurations`)."""

LAUNCHED = DriverConfig(launch_s=20.0, restart_s=10.0, stop_s=5.0, to_host_bytes_per_s=10e9)
"""What moving costs: a launch and loading the saved state, saving it, and GPU memory to the host and back."""

RECORDED = replace(LAUNCHED, launch_s=0.0, restart_s=30.0)
"""The same where recorded times have the first launch in them."""

FREE = DriverConfig()
"""As Gavel's simulator has it."""


class Setting(NamedTuple):
    """What a run is made of besides policy and beliefs."""

    workload: Workload
    world: World
    cluster: clusters.Cluster
    costs: DriverConfig


class Ask(NamedTuple):
    """Which draw of a row."""

    data: Path
    seed: int
    jobs: int
    belief: Belief


class Row(NamedTuple):
    """A workload of the table.

    Attributes:
        title: What it is, for people.
        jobs: How many, where nothing else is asked for; 0 for all there are.
        make: Makes one draw of it.
        seeds: Of the draws.
    """

    title: str
    jobs: int
    make: Callable[[Ask], Setting]
    seeds: range = range(1, 6)


# -- (a) Gavel's models on V100s


def at_load(load: float | None, ask: Ask) -> Setting:
    """Gavel's 26 one-GPU models and run times by Poisson arrivals of that load; None: all at once.

    On as many GPUs of another type where the data are a table of that.
    """
    gap_s = MEAN_S / (GAVEL_GPUS * load) if load else 0.0
    made = generate.poisson(gavel_models(ask.data), jobs=ask.jobs, mean_gap_s=gap_s, seed=ask.seed)
    cluster = shared_by(of_type(clusters.load("v100-36"), pair_type(ask.data)), "mps")
    return Setting(made, make_world(Request(tables=ask.data), made, cluster), cluster, LAUNCHED)


def of_type(cluster: clusters.Cluster, gpu_type: str) -> clusters.Cluster:
    """The cluster with GPUs of another type in the place of its own."""
    memory_bytes = CAPACITY_BYTES[gpu_type]
    nodes = tuple(
        replace(node, gpus=tuple([replace(gpu, type=gpu_type, memory_bytes=memory_bytes) for gpu in node.gpus]))
        for node in cluster.nodes
    )
    return cluster if gpu_type == "v100" else replace(cluster, nodes=nodes)


OWNERS = ("half", "b", "c", "d", "e", "f")


def of_owners(make: Callable[[Ask], Setting], ask: Ask) -> Setting:
    """The same of six owners, one of which submits half of all jobs."""
    setting, rng = make(ask), np.random.default_rng(ask.seed)
    owners = rng.choice(OWNERS, size=len(setting.workload.jobs), p=[0.5] + [0.1] * 5).tolist()
    owned = zip(setting.workload.jobs, owners, strict=True)
    jobs = tuple(replace(job, spec=replace(job.spec, user=owner)) for job, owner in owned)
    return setting._replace(workload=replace(setting.workload, jobs=jobs))


GANGS = {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}
"""GPUs of a job, and how many of all ask for so many: as Gavel draws them, from Philly."""


def of_gangs(load: float, ask: Ask) -> Setting:
    """The same, of which some are gangs."""
    setting = at_load(load / sum(size * part for size, part in GANGS.items()), ask)
    sizes = np.random.default_rng([ask.seed, 4]).choice(list(GANGS), size=ask.jobs, p=list(GANGS.values())).tolist()
    jobs = tuple(
        replace(job, spec=replace(job.spec, gpus=gpus, multi_node=gpus > 1))
        for job, gpus in zip(setting.workload.jobs, sizes, strict=True)
    )
    return setting._replace(workload=replace(setting.workload, jobs=jobs))


# -- (b) Gavel's traces


def gavel_trace(name: str, ask: Ask) -> Setting:
    """One of Gavel's traces; seeds above 0 have its gaps between submissions in another order."""
    path = str(ask.data / f"traces/{name}.trace.gz")
    loaded = load(Request(cluster="gavel-36", trace=path, tables=ask.data), seed=0)
    workload = _cut(loaded.workload, ask.jobs)
    if ask.seed:
        workload = _with_gaps(workload, np.random.default_rng(ask.seed))
    return Setting(workload, loaded.world, loaded.cluster, FREE)


def _with_gaps(workload: Workload, rng: np.random.Generator) -> Workload:
    submit_s = np.array([job.submit_s for job in workload.jobs])
    shuffled = np.cumsum([submit_s[0], *rng.permutation(np.diff(submit_s))]).tolist()
    jobs = tuple(replace(job, submit_s=at_s) for job, at_s in zip(workload.jobs, shuffled, strict=True))
    return replace(workload, jobs=jobs)


# -- (c) paper C's scenarios


def hundred_jobs(ask: Ask) -> Setting:
    """Scenario 1: the authors' 100 jobs on five machines; seeds above 0 are draws of their generator."""
    recorded = read.read(str(ask.data / "C/workloads-100.json"))
    made = generate.topology(jobs=ask.jobs, seed=ask.seed) if ask.seed else _cut(recorded, ask.jobs)
    return _minskys(made, 5, ask.data)


def thousands_of_jobs(ask: Ask) -> Setting:
    """Scenario 2 at a tenth of its machines and a load of 1."""
    return _minskys(arrivals(ask.jobs, LOAD_GAP_S / 100, ask.seed), 100, ask.data)


def _minskys(made: Workload, machines: int, data: Path) -> Setting:
    # Nothing was measured of jobs on one GPU here: that sharing brings nothing is all that can be said.
    table = TopologySpeeds(topology.read(data / TOPOLOGY_TIMES))
    world = TableWorld(Sources((table,)), made.jobs, FactorsWorld(1.0))
    return Setting(made, world, minskys(machines), RECORDED)


# -- (d) paper B's hyper-parameter sets


def sweep(kind: str, gain: Gain, ask: Ask) -> Setting:
    """300 alike jobs on one P100; seeds above 0 draw their lengths within a fifth on either side."""
    rng, step_s = np.random.default_rng(ask.seed), 0.2
    spread = rng.uniform(0.8, 1.2, ask.jobs) if ask.seed else np.ones(ask.jobs)
    steps = [round(SWEEP_ITERATIONS * part) for part in spread.tolist()]
    jobs = tuple(job_of(number, kind, steps[number - 1], step_s) for number in range(1, ask.jobs + 1))
    world = GainWorld(read_tables(ask.data).memory, gain)
    return Setting(Workload(name=f"sweep-{kind}", jobs=jobs), world, clusters.load("paper-b"), RECORDED)


# -- (e) Philly


PHILLY_COMPRESSED = 8.0
"""Its own load is 0.13 to 0.25 of the machines that are known."""
PHILLY_APART = 10_000
PHILLY_FROM = 5_000


@cache
def _philly(data: Path) -> tuple[Workload, clusters.Cluster]:
    cluster = clusters.load("philly")
    return only_pools(read.read(str(data / "traces/philly.csv.gz")), cluster.pools), cluster


def philly(ask: Ask) -> Setting:
    """So many jobs in a row, eight times as fast; each seed another part of the trace."""
    workload, cluster = _philly(ask.data)
    from_job = PHILLY_FROM + PHILLY_APART * (ask.seed - 1)
    part = replace(workload, jobs=workload.jobs[from_job : from_job + ask.jobs])
    made = compress(part, PHILLY_COMPRESSED)
    world = make_world(Request(tables=ask.data), made, cluster)
    made = replace(made, jobs=declare_lengths(made.jobs, ask.belief, noise=0.0, seed=ask.seed))
    return Setting(made, world, cluster, RECORDED)


# -- (f) Pollux


def pollux(ask: Ask) -> Setting:
    """Pollux's workloads of 160 jobs on 16 servers of four T4s; each seed is another of them."""
    path = str(ask.data / f"traces/pollux-profiles/workloads/workload-{ask.seed}.csv")
    request = Request(cluster="pollux", trace=path, tables=ask.data, demand=1.0, multi_node=True)
    loaded = load(request, seed=0)
    return Setting(_cut(loaded.workload, ask.jobs), loaded.world, loaded.cluster, RECORDED)


def _cut(workload: Workload, jobs: int) -> Workload:
    return replace(workload, jobs=workload.jobs[:jobs]) if jobs else workload


# -- (g) Pollux's applications as jobs that may span nodes


def spanning(sizes: tuple[int, ...], ask: Ask) -> Setting:
    """Paper E's Poisson workload on 16 servers of four T4s: elastic up to the largest of these sizes, else gangs."""
    table = pollux_times.read(ask.data / "traces/pollux-profiles/traces")
    made = elastic_workloads.drawn(table, elastic_workloads.ASKED, ask.seed, ask.jobs)
    gangs = np.random.default_rng([ask.seed, 2]).choice((1, 2, 3, 4, 4), size=ask.jobs)
    jobs = tuple(
        replace(job, spec=replace(job.spec, multi_node=True, gpus=max(sizes, default=int(gpus)), sizes=sizes))
        for job, gpus in zip(made.jobs, gangs, strict=True)
    )
    world = TableWorld(Sources((PolluxSpeeds(table),), None), jobs)
    return Setting(replace(made, jobs=jobs), world, clusters.load(elastic_workloads.CLUSTER), RECORDED)


# -- (h) gangs of any size, for nothing but order and preemption


WIDE_GPUS = 64
WIDE_SIZES = {1: 0.5, 2: 0.15, 4: 0.15, 8: 0.12, 16: 0.05, 32: 0.02, 64: 0.01}
"""GPUs of a gang, and how many of all jobs ask for so many: about as in Philly's trace, and up to the whole cluster."""


def wide_gangs(load: float, ask: Ask) -> Setting:
    """Gangs of 1 to 64 GPUs with Gavel's run times on 16 servers of four, by Poisson arrivals of that load."""
    rng = np.random.default_rng([ask.seed, 3])
    gpus = rng.choice(list(WIDE_SIZES), size=ask.jobs, p=list(WIDE_SIZES.values()))
    mean_gpus = sum(size * part for size, part in WIDE_SIZES.items())
    submit_s = np.cumsum(rng.exponential(MEAN_S * mean_gpus / (WIDE_GPUS * load), size=ask.jobs))
    lasts_s = generate.GavelDurations().draw(rng, ask.jobs)
    jobs = tuple(
        TraceJob(
            id=JobId(number), submit_s=float(at_s),
            spec=JobSpec(name=f"j{number}", family=f"g{size}", gpus=int(size), multi_node=True, share=False),
            duration_s=float(run_s),
        )
        for number, (at_s, run_s, size) in enumerate(zip(submit_s, lasts_s, gpus, strict=True), 1)
    )  # fmt: skip
    made = Workload(name="wide-gangs", jobs=declare_lengths(jobs, ask.belief, noise=0.0, seed=ask.seed))
    return Setting(made, NeutralWorld(), clusters.load(elastic_workloads.CLUSTER), RECORDED)


# -- (m) several GPU types


def of_types(load: float, ask: Ask) -> Setting:
    """Gavel's one-GPU models on 12 V100, 12 P100 and 12 K80; the load is what it would be on 36 V100s."""
    made = at_load(load, ask).workload
    cluster = shared_by(clusters.load("gavel-36"), "mps")
    return Setting(made, make_world(Request(tables=ask.data), made, cluster), cluster, LAUNCHED)


# -- (u) lengths that are not told


class UntoldWorld:
    """A world whose jobs do what they do, though what is submitted of them tells neither steps nor duration.

    Args:
        world: The truth.
        jobs: As they are.
    """

    def __init__(self, world: World, jobs: Iterable[TraceJob]) -> None:
        self._world = world
        self._jobs = {job.id: job for job in jobs}
        self.name, self.counts_steps, self.scope = f"{world.name}, untold", world.counts_steps, world.scope

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:
        """As the world says."""
        return self._world.refusal(self._jobs[job.id], gpu_types)

    def work_steps(self, job: TraceJob) -> float:
        """As it is."""
        return self._world.work_steps(self._jobs[job.id])

    def startup(self, job: TraceJob) -> Startup:
        """As the world says."""
        return self._world.startup(self._jobs[job.id])

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """As the world says."""
        return self._world.steps_per_s(self._told(me), [self._told(other) for other in others])

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:
        """As the world says."""
        return self._world.memory(self._jobs[job.id], gpu_type)

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:
        """As the world says."""
        return self._world.occupancy_ratio(self._jobs[job.id], gpu_type, cores)

    def _told(self, running: Running) -> Running:
        return replace(running, job=self._jobs[running.job.id])


def untold(make: Callable[[Ask], Setting], ask: Ask) -> Setting:
    """The same jobs, of which it is not known how long they run."""
    setting = make(ask)
    jobs = tuple(
        replace(job, duration_s=None, spec=replace(job.spec, steps_total=None)) for job in setting.workload.jobs
    )
    world = UntoldWorld(setting.world, setting.workload.jobs)
    return setting._replace(workload=replace(setting.workload, jobs=jobs), world=world)


def _sweeps() -> dict[str, Row]:
    title = "300 x {} on one P100 (paper B)"
    kinds = {
        kind: Row(title.format(kind), SWEEP_JOBS, partial(sweep, kind, gain), range(5)) for _, kind, gain in SWEEPS
    }
    return {f"d:{kind}": row for kind, row in kinds.items()}


ROWS: Mapping[str, Row] = {
    "a:0.5": Row("Gavel's models on 36 V100s, load 0.5", 400, partial(at_load, 0.5)),
    "a:1.0": Row("Gavel's models on 36 V100s, load 1.0", 400, partial(at_load, 1.0)),
    "a:1.5": Row("Gavel's models on 36 V100s, load 1.5", 400, partial(at_load, 1.5)),
    "a:at-once": Row("Gavel's models on 36 V100s, all at once", 400, partial(at_load, None)),
    "a:owners": Row(
        "the same at load 1.5, half of all by one of six owners", 400, partial(of_owners, partial(at_load, 1.5))
    ),
    "a:gangs": Row("the same at load 1.2, three of ten of them gangs", 400, partial(of_owners, partial(of_gangs, 1.2))),
    "b:gavel-1000s": Row("Gavel's trace of one-GPU jobs", 0, partial(gavel_trace, "gavel-1000s"), range(5)),
    "b:gavel-1000": Row("Gavel's trace of gangs", 0, partial(gavel_trace, "gavel-1000"), range(5)),
    "c:1": Row("paper C, scenario 1", 100, hundred_jobs, range(5)),
    "c:2": Row("paper C, scenario 2 at a tenth", 4000, thousands_of_jobs, range(5)),
    **_sweeps(),
    "e": Row("Philly, 2,000 jobs at eight times its pace", 2000, philly),
    "f": Row("Pollux's workloads on 64 T4s", 0, pollux),
    "g:gangs": Row("160 gangs of 1 to 4 that may span 16 servers of four T4s", 160, partial(spanning, ())),
    "g:elastic": Row("160 elastic jobs of 1 to 8 GPUs there", 160, partial(spanning, (1, 2, 3, 4, 6, 8))),
    "h:1.0": Row("300 gangs of 1 to 64 on 64 GPUs, load 1.0", 300, partial(wide_gangs, 1.0)),
    "h:1.5": Row("300 gangs of 1 to 64 on 64 GPUs, load 1.5", 300, partial(wide_gangs, 1.5)),
    "m:0.5": Row("Gavel's models on 12 V100, 12 P100, 12 K80, load 0.5 of 36 V100s", 400, partial(of_types, 0.5)),
    "m:0.9": Row("the same, load 0.9 of 36 V100s", 400, partial(of_types, 0.9)),
    "u:1.0": Row("row a:1.0, no length told", 300, partial(untold, partial(at_load, 1.0))),
    "u:1.5": Row("row a:1.5, no length told", 300, partial(untold, partial(at_load, 1.5))),
    "u:at-once": Row("row a:at-once, no length told", 300, partial(untold, partial(at_load, None))),
    "u:gangs": Row("row h:1.5, no length told", 300, partial(untold, partial(wide_gangs, 1.5))),
    "u:pollux": Row("row f, no length told", 0, partial(untold, pollux)),
}
"""Every workload; a letter alone names all of its rows."""


def preemptible(workload: Workload) -> Workload:
    """The same jobs, each saving its state when it is asked to stop."""
    return replace(workload, jobs=tuple(map(_preemptible, workload.jobs)))


def _preemptible(job: TraceJob) -> TraceJob:
    return replace(job, spec=replace(job.spec, preemptible=True))


def chosen(asked: str) -> list[str]:
    """Names of the rows a text names: `a`, `a:1.5,c` or `all`.

    Raises:
        ValueError: There is no such row.
    """
    if asked == "all":
        return list(ROWS)
    names: list[str] = []
    for part in asked.split(","):
        found = [name for name in ROWS if part in (name, name.partition(":")[0])]
        if not found:
            raise ValueError(f"--rows: there is no row {part!r}; there are {', '.join(ROWS)}")
        names += found
    return names

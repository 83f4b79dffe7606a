"""A simulation asked for in words: names of clusters, traces, policies and worlds become inputs of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from colane.api import states
from colane.core.config import CoreConfig
from colane.cpu.config import TuningConfig
from colane.lab.simulate.beliefs import Belief, declare_lengths, make_beliefs
from colane.lab.simulate.config import DriverConfig, described
from colane.lab.simulate.factors import PHILLY_DEMAND, FactorsWorld
from colane.lab.simulate.generators import is_generator, make_workload
from colane.lab.simulate.run import Inputs, is_as_published
from colane.lab.simulate.table_files import (
    MemoryFrom,
    has_sources,
    need_tables,
    pollux_table,
    read_sources,
    with_known_lengths,
    with_memory,
)
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import MeasuredSpeeds, Sources
from colane.lab.simulate.world import NeutralWorld, World
from colane.lab.traces import clusters, read
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.tables import measured
from colane.lab.traces.tables.measured import MeasuredTable
from colane.lab.traces.workload import Workload, collector_held, compress, merge_pools, only_pools, spread_large
from colane.model.hardware import CPU_DEVICE_TYPE, DEFAULT_POOL, Gpu
from colane.model.limits import Quotas, too_much
from colane.policyfiles.guard import BUDGET_S, strict
from colane.settings.input_file import InputFileError

SAMPLE = "sample"  # name of the made-up trace that ships with Colane


class WorldKind(StrEnum):
    """Which truth moves the jobs."""

    AUTO = "auto"  # tables where one knows a job, else factors where jobs have steps, else neutral
    NEUTRAL = "neutral"
    FACTORS = "factors"
    TABLE = "table"


class LiveSettings(NamedTuple):
    """What a scheduler does beside its policy."""

    tuning: TuningConfig | None  # how cores of training jobs are tuned; None leaves them what they ask for
    # jobs that co-runners slow by more than this over the prediction are separated; None leaves them
    guard_margin_ratio: float | None


LIVE: Final = LiveSettings(TuningConfig(), CoreConfig().guard_margin_ratio)  # by default


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One study. Every value is plain, so that it can be sent to another process."""

    cluster: str = "v100-36"  # preset or file
    trace: str = SAMPLE  # file, generator such as `poisson:jobs=100`, or `sample`
    trace_format: str | None = None  # name of the trace's format; None guesses it
    world: WorldKind = WorldKind.AUTO  # which truth
    # directory of measured tables, or a file of Gavel's throughputs; None takes `COLANE_DATA`
    tables: Path | None = None
    demand: float = PHILLY_DEMAND  # part of a GPU a job needs of which nothing is known
    belief: Belief = Belief.NONE  # what policies start from
    noise: float = 0.1  # sigma of the log-normal noise on profiled values
    time_scale: float = 1.0  # submission times are divided by it
    skip_bad_rows: bool = False  # leave bad rows of the trace out
    any_pool: bool = False  # let every job run on any node, whatever its pool
    multi_node: bool = False  # let jobs larger than any node of their pool lie on several
    cpu_jobs: bool = False  # keep jobs of a recorded trace that ask for no GPU
    memory_from: MemoryFrom | None = None  # what stands in for memory that the trace does not tell; None: nothing
    # how jobs share a GPU; beliefs are kept apart by it, and Gavel's pairs were measured with `mps`
    sharing: str = "mps"
    # what a live cluster measured, or the file of `colane export` that has it: goes before all other tables
    measured: Path | MeasuredTable | None = field(default=None, hash=False)
    # costs that go before what the cluster says of them: fields of `Costs`
    costs: Mapping[str, float] = field(default_factory=dict, hash=False)
    # whether every job saves its state when it is stopped, or none does; None: as the trace says
    preemptible: bool | None = None
    driver: DriverConfig = field(default_factory=DriverConfig)  # costs where neither says anything
    policy_budget_s: float = BUDGET_S  # what a pass of a user's own policy may take
    tuning: TuningConfig | None = None  # how cores of training jobs are tuned; None leaves them what they ask for
    limits: Quotas = field(default_factory=Quotas, hash=False)  # what users and groups may have running
    # jobs that co-runners slow by more than this over the prediction are separated; None leaves them
    guard_margin_ratio: float | None = None
    guard_after_s: float = CoreConfig().guard_after_s  # for how long they must be
    # what goes before `tuning` and `guard_margin_ratio` for policies that are simulated as they run live: all that are
    # not as published; None where these hold for all
    live: LiveSettings | None = None
    foresees: bool = False  # whether starts and ends are foreseen, and judged by what came of them
    lasts_s: float = inf  # it is cut after so long
    kept: KeptRun | None = field(default=None, hash=False)  # what it goes on from


class KeptRun(NamedTuple):
    """A simulation that was cut, as a file has it."""

    request: Request
    seed: int
    policy: str  # that decided, as it was asked for
    cluster: Cluster
    workload: Workload
    state: bytes  # `Run.state`

    @classmethod
    def read(cls, path: Path) -> KeptRun:
        """Return what a file has. Raises InputFileError: it cannot be read."""
        try:
            kept = states.read(path.read_bytes())
        except states.StateError as error:
            raise InputFileError(path, str(error)) from error
        except OSError as error:
            raise InputFileError(path, f"cannot be read: {error.strerror or error}") from error
        if isinstance(kept, KeptRun):
            return kept
        raise InputFileError(path, "is no state of a simulation")

    @property
    def goes_on(self) -> Request:
        """What goes on from it."""
        return replace(self.request, kept=self)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a request names, for one seed."""

    cluster: Cluster
    workload: Workload
    world: World


def load(request: Request, seed: int) -> Loaded:
    """Read or make what a request names.

    Raises ValueError: something is not there or not right: `InputFileError` for files, or a generator's parameter.
    """
    if request.tables is not None:
        need_tables(request.tables)
    if request.kept is not None:
        cluster, workload = request.kept.cluster, request.kept.workload
        return Loaded(cluster, workload, make_world(request, workload, cluster))
    cluster = clusters.load(request.cluster)
    if request.any_pool:
        cluster = replace(cluster, nodes=tuple(replace(node, pool=DEFAULT_POOL) for node in cluster.nodes))
    if problem := too_much(request.limits.guarantees, cluster.gpus):  # no other nodes will come
        raise ValueError(f"--limits: {problem}")
    workload = _workload(request, cluster, seed)
    world = make_world(request, workload, cluster)
    with collector_held():
        jobs = declare_lengths(workload.jobs, request.belief, noise=request.noise, seed=seed, world=world)
        if request.preemptible is not None:
            for job in jobs:  # nothing else has seen them yet
                job.spec.preemptible = request.preemptible
    if world.counts_steps:
        cluster = shared_by(cluster, request.sharing)
    return Loaded(cluster, replace(workload, jobs=jobs), world)


def shared_by(cluster: Cluster, sharing: str) -> Cluster:
    """The cluster with every GPU shared in this way; cpu devices have a way of their own."""

    def shared(gpu: Gpu) -> Gpu:
        return replace(gpu, sharing=CPU_DEVICE_TYPE if gpu.type == CPU_DEVICE_TYPE else sharing)

    nodes = tuple(replace(node, gpus=tuple(map(shared, node.gpus))) for node in cluster.nodes)
    return replace(cluster, nodes=nodes)


def make_world(request: Request, workload: Workload, cluster: Cluster) -> World:
    """The truth a request names, for this workload."""
    base = FactorsWorld(request.demand, workload.jobs)
    if request.measured is not None:
        table = measured.read(request.measured) if isinstance(request.measured, Path) else request.measured
        return TableWorld(Sources((MeasuredSpeeds(table),)), workload.jobs, base)
    types = sorted({gpu.type for node in cluster.nodes for gpu in node.gpus})
    has_steps = any(job.spec.steps_total is not None for job in workload.jobs)
    if request.world is WorldKind.NEUTRAL:
        return NeutralWorld(workload.jobs)
    if request.world is WorldKind.FACTORS:
        return base
    if request.world is WorldKind.TABLE:
        return TableWorld(read_sources(request.tables), workload.jobs, base, types)
    if has_steps and (has_sources(request.tables) or pollux_table(request.tables) is not None):
        world = TableWorld(read_sources(request.tables), workload.jobs, base, types)
        return world if world.knows_jobs else base
    return base if has_steps else NeutralWorld(workload.jobs)


def inputs(request: Request, loaded: Loaded, policy: str, seed: int, *, as_published: bool = True) -> Inputs:
    """Inputs of one run; beliefs are fresh.

    Baselines go without guards of ours where they are to be as published, else as they run live. Raises ValueError:
    there is no such policy.
    """
    beliefs = make_beliefs(
        request.belief, loaded.world, loaded.workload.jobs, loaded.cluster, noise=request.noise, seed=seed
    )
    driver = described(request.driver, loaded.cluster.costs, request.costs)
    driver = replace(driver, node_events=loaded.cluster.events)
    decider = strict(policy, request.policy_budget_s, as_published=as_published)
    said = LiveSettings(request.tuning, request.guard_margin_ratio)
    live = said if request.live is None or is_as_published(decider) else request.live
    return Inputs(
        cluster=_as_stated(loaded.cluster, driver),
        workload=loaded.workload,
        world=loaded.world,
        policy=decider,
        beliefs=beliefs,
        driver=driver,
        tuning=live.tuning,
        limits=request.limits,
        guard_margin_ratio=live.guard_margin_ratio,
        guard_after_s=request.guard_after_s,
        foresees=request.foresees,
        begun=None if request.kept is None else request.kept.state,
        lasts_s=request.lasts_s,
    )


def _as_stated(cluster: Cluster, driver: DriverConfig) -> Cluster:
    """A cluster of whose nodes is known what parking jobs takes there."""
    costs = [driver.on(node.name) for node in cluster.nodes]
    nodes = [
        replace(node, park_s=cost.park_s, to_host_bytes_per_s=cost.to_host_bytes_per_s)
        for node, cost in zip(cluster.nodes, costs, strict=True)
    ]
    return replace(cluster, nodes=tuple(nodes))


def _workload(request: Request, cluster: Cluster, seed: int) -> Workload:
    if is_generator(request.trace):
        workload = make_workload(request.trace, seed=seed, gpus=cluster.gpus, tables=request.tables)
    elif request.trace == SAMPLE:
        workload = read.sample()
    else:
        skips, keeps = request.skip_bad_rows, request.cpu_jobs
        workload = read.read(request.trace, request.trace_format, skip_bad_rows=skips, keep_cpu_only=keeps)
    if request.any_pool:
        workload = merge_pools(workload)  # as those of the cluster are
    elif any(job.spec.pool in cluster.pools for job in workload.jobs):
        workload = only_pools(workload, cluster.pools)
    if request.multi_node:
        workload = spread_large(workload, cluster.gpus_max)
    workload = with_known_lengths(workload, request.tables)
    if request.memory_from is not None:
        workload = with_memory(workload, request.memory_from, cluster, request.tables)
    return workload if request.time_scale == 1 else compress(workload, request.time_scale)

"""Paper A's evaluation (Tabrizian, Toronto 2020) as far as a simulation can tell; the rest needs a GPU.

Sources: the published numbers are those of the thesis; pair speeds are Gavel's V100 measurements, which the thesis
cites and is not the author of. SE-ResNet-18 is in no public table: it is taken to step like ResNet-18, and the pair of
both at batch 256 to have the speed-up the thesis states (1.02).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.view import ClusterView
from colane.core.policy import Policy
from colane.lab.papers.claims import (
    FULL,
    Claim,
    Effort,
    Evaluation,
    Experiment,
    Figure,
    GpuResults,
    Origin,
    Sense,
    Trait,
    newest,
    on_gpu,
    ours,
    queue_s,
    span_s,
)
from colane.lab.simulate.accuracy import true_delta
from colane.lab.simulate.beliefs import Belief, examples, make_beliefs
from colane.lab.simulate.gavel_speeds import GavelSpeeds
from colane.lab.simulate.request import Loaded, shared_by
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.table_files import gavel_models, read_sources
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import Sources, canonical
from colane.lab.simulate.world import Running, Scope, World
from colane.lab.traces import clusters
from colane.lab.traces.generate import poisson
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.profile import Memory, ProfileKey
from colane.model.reason import Reason, Why
from colane.model.words import count
from colane.perf.config import PerfConfig
from colane.perf.estimates import profile_key
from colane.scheduling.engine.options import with_options
from colane.scheduling.engine.refusals import behind, no_place
from colane.scheduling.mechanisms.topology.free import first_fit
from colane.scheduling.registry import create


@dataclass(frozen=True, slots=True)
class GavelFifoPacked:
    """The policy, as Gavel's simulator decides it."""

    world: World  # the truth
    kinds: Mapping[ProfileKey, Running]  # one running job of each kind
    threshold: float = 1.5  # Gavel's default
    name: str = "gavel-fifo-packed"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf
    _sums: dict[tuple[ProfileKey, ProfileKey], float] = field(default_factory=dict)

    def plan(self, view: ClusterView) -> Plan:
        """Start jobs in order until one finds neither a free GPU nor a partner."""
        draft = Draft(view)
        for pool in view.pools:
            for job_id in view.queue(pool):
                job = view.job(job_id)
                if not self._start(draft, job):
                    draft.wait(job_id, no_place(draft, job.spec).reason)
                    draft.wait_rest(pool, behind(job_id))
                    break
        return draft.plan()

    def _start(self, draft: Draft, job: Job) -> bool:
        gpus = first_fit(draft, job.spec)
        if gpus is not None:
            draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
            return True
        best = max(self._partners(draft, job), key=lambda found: found[0], default=None)
        if best is None:
            return False
        total, load = best
        told: dict[str, str | int | float] = {"speedup": total, "threshold": self.threshold, "source": "oracle"}
        draft.start(job, [load], Reason(Why.SHARES, {"gpu": str(load.id), **told}, load.jobs))
        return True

    def _partners(self, draft: Draft, job: Job) -> list[tuple[float, GpuLoad]]:
        """GPUs whose only job it may join, with the sum of normalised throughputs; lightest first."""
        spec = job.spec
        if spec.gpus != 1:
            return []
        found = []
        for kind in draft.view.gpu_types_for(spec):
            key, memory = profile_key(spec, kind), draft.beliefs.terms(spec, kind).memory
            for load in draft.open_gpus((spec.pool, kind), 1):
                total = self.normalised(key, load.bookings[0].key)
                if total > self.threshold and memory is not None and sum(memory) <= load.left_bytes:
                    found.append((total, load))
        return found

    def normalised(self, first: ProfileKey, second: ProfileKey) -> float:
        """Sum over both of speed together / speed alone."""
        pair = (first, second) if str(first) <= str(second) else (second, first)
        if pair not in self._sums:
            a, b = self.kinds[pair[0]], self.kinds[pair[1]]
            self._sums[pair] = sum(
                self.world.steps_per_s(one, [other]) / self.world.steps_per_s(one, ())
                for one, other in ((a, b), (b, a))
            )
        return self._sums[pair]


ITERATIONS = 1000
WORST_PAIR_DELTA = 1.02  # speed-up of SE-ResNet-18 with ResNet-18 at batch 256 (thesis, table of the worst case)
FITS_BYTES = 4_000_000_000  # memory of each of the thesis' jobs: three of them ran together on 16 GB
SEEDS = (0, 1, 2)
JOBS = 300
LOAD_GAP_S = 1300.0
COLOCATE = create("colocate", as_published=True)
"""Mean gap that offers 36 V100 about 1.2 times what they have alone, with Gavel's run times."""


class StatedPair:
    """The worst pair of the thesis as a table: two models of one step time whose speed-up together is given."""

    name = "the speed-up the thesis states for its worst pair"
    scope = Scope.GPU
    gpu_types: Sequence[str] = ("v100",)

    def __init__(self, first: tuple[str, int], second: tuple[str, int], step_s: float, delta: float) -> None:
        self._kinds = {(canonical(model), batch) for model, batch in (first, second)}
        self._step_s = step_s
        self._slowdown = 2 / delta

    def knows(self, job: TraceJob) -> bool:
        """Whether it is one of the two."""
        return (canonical(job.model), job.batch_size) in self._kinds

    def alone(self, running: Running) -> float | None:
        """One step time for both."""
        return 1 / self._step_s if self.knows(running.job) else None

    def slowdown(self, me: Running, other: Running) -> float | None:
        """As the speed-up says: both are slowed alike."""
        pair = {(canonical(one.job.model), one.job.batch_size) for one in (me, other)}
        return self._slowdown if pair == self._kinds else None

    def demand(self, job: TraceJob, gpu_type: str) -> float | None:  # noqa: ARG002
        """Half of the work the pair asks of the GPU."""
        return self._slowdown / 2 if self.knows(job) else None

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """Not stated."""
        return None


def evaluate(tables: Path | None, effort: Effort = FULL) -> Evaluation:
    """Run everything. Raises InputFileError: there are no tables."""
    sources = read_sources(tables)
    worst, best, gavel = _worst_case(sources), _best_case(sources), _gavel(sources, tables, effort)
    claims = (
        *GPU_CLAIMS,
        _measured_claim(newest()),
        _queueing_claim(worst),
        _headline_claim(best, worst),
        *_pair_claims(sources),
        _ordering_claim((worst, best, gavel)),
        *_gavel_claims(gavel),
    )
    return Evaluation(tuple(sorted(claims, key=lambda claim: claim.id)), (worst, best, gavel))


GPU_CLAIMS = (
    Claim("A-a", "best case, 2 data workers: what a shorter makespan costs in run time", (
        Figure("makespan falls by", 50, None, "%", "section 6.2", printed="50%", bound=Sense.AT_LEAST),
        Figure("run time rises by", 25, None, "%", "section 6.2", printed="25%"),
        Figure("makespan of FIFO over co-location's", 2, None, "x", "section 6.2", printed="2x decrease"),
    )),
    Claim("A-b", "best case, 10 data workers: what a shorter makespan costs in run time", (
        Figure("makespan falls by", 37, None, "%", "section 6.2", printed="37%", bound=Sense.AT_LEAST),
        Figure("run time rises by", 61, None, "%", "section 6.2", printed="61%"),
    )),
    Claim("A-c", "speed-up of SE-ResNet-18 with ResNet-18 at batch 256", (
        Figure("", WORST_PAIR_DELTA, None, "", "section 6.3", printed="1.02", digits=2),
    )),
    Claim("A-d", "worst case, FIFO with 2 instead of 10 data workers", (
        Figure("makespan rises by", 25, None, "%", "section 6.3", printed="25%"),
    )),
    Claim("A-f", "worst case: MPS against no MPS", (
        on_gpu("MPS has the lower makespan", "figure 6.8"), on_gpu("MPS has the longer run times", "figure 6.8"),
    )),
    Claim("A-h", "sums of C and M as predictors", (
        on_gpu("with MPS good and bad sets are linearly separable", "section 4.2"),
        on_gpu("without MPS they are not", "section 4.2"),
    )),
    Claim("A-mps", "what MPS adds to the speed-up", (
        on_gpu("it is higher with MPS in most sets", "figure 4.14"),
        on_gpu("of large batches, such as 256, it may be lower", "section 4.2.5"),
    )),
    Claim("A-i", "C and M by batch size", (
        on_gpu("both rise with it", "figure 4.10"), on_gpu("ResNet-50 has the highest", "figure 4.10"),
    )),
    Claim("A-threshold", "jobs of which sum of C share a V100", (
        Figure("sum of C, at most", 4e7, PerfConfig().occupancy_max["Tesla V100-SXM2-16GB"], "", "section 4.2.4",
               printed="4 * 10^7", given="Colane's own threshold is this number", digits=0),
        on_gpu("with MPS sets below it gain", "figure 4.12"),
        on_gpu("all sets that are slowed have batch 256", "section 4.2.4"),
    )),
)  # fmt: skip
"""Claims only a real GPU can decide: kernels, MPS and data loaders are in no table."""


def _measured_claim(results: GpuResults) -> Claim:
    """Pairs of light models at batch 64, by the driver's time slicing on a GPU of today."""
    deltas: dict[str, list[float]] = {}
    for one in results.rows("paper_a/best-pairs/measurements"):
        if one["sharing"] == "time-slice":
            names = " + ".join(f"{key['family']} b{key['batch_size']}" for key in one["keys"])
            deltas.setdefault(names, []).append(one["delta"])
    means = {name: float(np.mean(found)) for name, found in deltas.items()}
    told = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    gains = Trait(
        "sharing in time alone gains for certain models of small batches",
        min(means.values()) > 1 if means else None, told or "-", "section 4.2",
    )  # fmt: skip
    spread = [delta for found in deltas.values() for delta in found]
    single = (ours("single samples of half a second", f"{min(spread):.2f} to {max(spread):.2f}"),) if spread else ()
    return Claim("A-g-measured", "speed-up of light pairs without MPS, measured", (gains, *single), results.where)


# -- the thesis' own batches on its two V100


def _worst_case(sources: Sources) -> Experiment:
    """Four jobs, 2 x {SE-ResNet-18, ResNet-18} of batch 256, in pairs."""
    pair = (("SE-ResNet-18", 256), ("ResNet-18", 256))
    step_s = 1 / TableWorld(sources).steps_per_s(_on_v100("ResNet-18", 256), ())
    stated = StatedPair(*pair, step_s, WORST_PAIR_DELTA)
    world_sources = Sources((stated, *sources.speeds))
    note = (
        f"SE-ResNet-18 is taken to step like ResNet-18; speed-up of the pair {WORST_PAIR_DELTA}, as the thesis states."
    )
    return _batch("worst-case", "Paper A, worst case", list(pair) * 2, world_sources, 2, note)


def _best_case(sources: Sources) -> Experiment:
    """Six light jobs in threes. VGG is in no public table: ResNet-18 at three batch sizes stands in."""
    kinds = [("ResNet-18", batch) for batch in (16, 32, 64)] * 2
    note = "Stands in for 2 x {VGG-19, VGG-11, ResNet-18}: three light jobs for each GPU, speeds measured by Gavel."
    return _batch("light-jobs", "Paper A, light jobs", kinds, sources, 3, note)


def _batch(
    name: str, title: str, kinds: Sequence[tuple[str, int]], sources: Sources, jobs_per_gpu_max: int, note: str
) -> Experiment:
    cluster = clusters.load("paper-a")
    jobs = tuple(_job(number, *kind) for number, kind in enumerate(kinds, 1))
    workload = Workload(name=name, jobs=jobs, source=title)
    loaded = Loaded(cluster, workload, TableWorld(sources, jobs))
    policies: list[tuple[Policy, Belief]] = [
        (create("fifo", as_published=True), Belief.ORACLE),
        (with_options(COLOCATE, {"jobs_per_gpu_max": jobs_per_gpu_max}), Belief.ORACLE),
    ]  # fmt: skip
    runs = tuple((0, _run(loaded, policy, belief, 0)) for policy, belief in policies)
    return Experiment(name, title, {0: loaded}, runs, note)


def _job(number: int, model: str, batch: int) -> TraceJob:
    spec = JobSpec(
        name=f"{model} #{number}", family=model, batch_size=batch, steps_total=ITERATIONS, gpu_memory_bytes=FITS_BYTES
    )
    return TraceJob(id=JobId(number), submit_s=0.0, spec=spec)


def _run(loaded: Loaded, policy: Policy, belief: Belief, seed: int) -> Run:
    jobs = loaded.workload.jobs
    beliefs = make_beliefs(belief, loaded.world, jobs, loaded.cluster, noise=0.1, seed=seed)
    given = Inputs(cluster=loaded.cluster, workload=loaded.workload, world=loaded.world, policy=policy, beliefs=beliefs)
    return simulate(given)


def _queueing_claim(worst: Experiment) -> Claim:
    queues = {run.policy: queue_s(run) for _, run in worst.runs}
    stated = (
        Figure("most that a job waits, about", 0, float(queues["colocate"].max()), "s", "section 6.3", Origin.DERIVED),
        Trait(
            "FIFO queues", bool(queues["fifo"].mean() > 0), f"{queues['fifo'].mean():.0f} s on average", "figure 6.6"
        ),
    )
    return Claim("A-e", "worst case, 4 jobs on 2 GPUs in pairs: queueing with co-location", stated, worst.note)


def _headline_claim(best: Experiment, worst: Experiment) -> Claim:
    """The makespan of FIFO over co-location's, of jobs that are light and of those that gain least."""
    light, least = (_mean_of(one, "fifo").makespan_s / _mean_of(one, "colocate").makespan_s for one in (best, worst))
    stated = (
        Figure("speed-up, almost", 2, light, "x", "section 6.4", printed="almost 2X", digits=2),
        Trait("in the worst case it is slightly better than FIFO", least > 1, f"{least:.2f}x", "section 6.4",
              given=f"the speed-up of its pair, {WORST_PAIR_DELTA}, goes in"),
    )  # fmt: skip
    claim = "co-location of light models with small batches against FIFO"
    return Claim("A-headline", claim, stated, best.note)


def _ordering_claim(experiments: Sequence[Experiment]) -> Claim:
    stated = []
    for experiment in experiments:
        fifo, colocate = (_mean_of(experiment, policy) for policy in ("fifo", "colocate"))
        parts = (
            ("lowers queueing", colocate.queue_s < fifo.queue_s, fifo.queue_s, colocate.queue_s, "section 6.4"),
            ("raises run time", colocate.span_s > fifo.span_s, fifo.span_s, colocate.span_s, "section 6.4"),
            ("lowers makespan", colocate.makespan_s < fifo.makespan_s, fifo.makespan_s, colocate.makespan_s, "6.2"),
        )
        stated += [
            Trait(f"{experiment.name}: {what}", holds, f"{before:.0f} -> {after:.0f} s", where)
            for what, holds, before, after, where in parts
        ]
    claim = "what co-location does to queueing, to the run time of each job and to the makespan"
    return Claim("A-j", claim, tuple(stated), "the thesis' batches, and Gavel's 26 models on 36 V100")


# -- pairs of Gavel's V100 table

PAIR_DELTAS = (
    (("ResNet-18", 64), ("ResNet-18", 64), 2.00),
    (("ResNet-18", 128), ("ResNet-18", 128), 1.56),
    (("ResNet-18", 256), ("ResNet-18", 256), 1.27),
    (("ResNet-18", 64), ("ResNet-50", 64), 0.956),
    (("ResNet-50", 64), ("ResNet-50", 64), 0.996),
)
"""Speed-ups worked out from Gavel's table by hand, to three figures."""

ROUNDING = 0.005  # half of the last figure


def _pair_claims(sources: Sources) -> Iterator[Claim]:
    gavel_only = tuple(table for table in sources.speeds if isinstance(table, GavelSpeeds))
    world = TableWorld(Sources(gavel_only))
    yield _deltas_claim(world)
    yield _batch_claim(world)
    yield _worst_set_claim(world)
    stated = (
        on_gpu("three jobs gain more than two at batch 64 in most sets", "figure 4.5a"),
        on_gpu("the best sets contain VGG-11", "section 4.2"),
        on_gpu("the number of parameters does not tell which sets are slow", "section 4.2"),
    )
    note = "No triple and no VGG is in a public table."
    yield Claim("A-g-triples", "which sets of two and three gain most", stated, note=note)


def _deltas_claim(world: TableWorld) -> Claim:
    """The speed-ups of five pairs, worked out from Gavel's table by hand."""
    stated = []
    for first, second, delta in PAIR_DELTAS:
        found = true_delta(world, [_on_v100(*first), _on_v100(*second)])
        name = f"{first[0]} b{first[1]} + {second[0]} b{second[1]}"
        by_hand = Figure(
            name, delta, found, "", "Gavel's V100 table", Origin.DERIVED, ratio=0.0, slack=ROUNDING, digits=3
        )
        stated.append(by_hand)
    return Claim("A-g", "speed-ups of pairs on Gavel's V100", tuple(stated), GAVEL_PAIRS)


GAVEL_PAIRS = "Gavel's measured pairs on a V100; the thesis shows its own in figures alone"


def _batch_claim(world: TableWorld) -> Claim:
    best = {batch: max(_deltas(world, batch).values()) for batch in (64, 128, 256)}
    ours = ", ".join(f"b{batch}: {delta:.2f}" for batch, delta in best.items())
    order = Trait("the largest speed-up falls with the batch size", best[64] > best[128] > best[256], ours, "4.2")
    return Claim("A-g-batch", "speed-up by batch size (ResNet pairs)", (order,), GAVEL_PAIRS)


def _worst_set_claim(world: TableWorld) -> Claim:
    found = _deltas(world, 64)
    worst = min(found, key=lambda pair: found[pair])
    order = Trait("ResNet-50 is in it", "ResNet-50" in worst, f"{' + '.join(worst)}: {found[worst]:.3f}", "4.2")
    return Claim("A-g-worst", "the worst set (ResNet pairs of batch 64)", (order,), GAVEL_PAIRS)


def _deltas(world: TableWorld, batch: int) -> dict[tuple[str, str], float]:
    """Speed-ups of the ResNet pairs of one batch size that were measured."""
    pairs = (("ResNet-18", "ResNet-18"), ("ResNet-18", "ResNet-50"), ("ResNet-50", "ResNet-50"))
    known = {}
    for pair in pairs:
        co_runners = [_on_v100(model, batch) for model in pair]
        if all(world.refusal(one.job, ("v100",)) is None for one in co_runners):
            delta = true_delta(world, co_runners)
            if delta is not None:
                known[pair] = delta
    return known


def _on_v100(model: str, batch: int) -> Running:
    (running,) = examples([_job(1, model, batch)], clusters.load("paper-a")).values()
    return running


# -- Gavel's one-GPU models on 36 V100


def _gavel(sources: Sources, tables: Path | None, effort: Effort) -> Experiment:
    cluster, models = shared_by(clusters.load("v100-36"), "mps"), gavel_models(tables)
    loaded: dict[int, Loaded] = {}
    runs: list[tuple[int, Run]] = []
    for seed in SEEDS[:1] if effort.is_quick else SEEDS:
        effort.tell(f"Gavel's models on 36 V100, seed {seed}")
        workload = poisson(models, jobs=JOBS, mean_gap_s=LOAD_GAP_S, seed=seed)
        world = TableWorld(sources, workload.jobs)
        loaded[seed] = one = Loaded(cluster, workload, world)
        packed = GavelFifoPacked(world, examples(workload.jobs, cluster))
        runs += [
            (seed, _run(one, create("fifo", as_published=True), Belief.NONE, seed)),
            (seed, _run(one, COLOCATE, Belief.NONE, seed)),
            (seed, _run(one, replace(COLOCATE, name="colocate-profiled"), Belief.PROFILED, seed)),
            (seed, _run(one, replace(COLOCATE, name="colocate-oracle"), Belief.ORACLE, seed)),
            (seed, _run(one, packed, Belief.ORACLE, seed)),
        ]
    order = {name: place for place, name in enumerate(dict.fromkeys(run.policy for _, run in runs))}
    runs.sort(key=lambda pair: (order[pair[1].policy], pair[0]))
    note = (
        "Gavel's 26 one-GPU models, Poisson arrivals, 36 V100. `colocate` learns from nothing, `colocate-profiled` "
        "starts from noisy profiles; `colocate-oracle` and `gavel-fifo-packed` (Gavel's own way of packing) are told "
        "the truth."
    )
    return Experiment("gavel", "Gavel's 26 models on 36 V100", loaded, tuple(runs), note)


def _gavel_claims(gavel: Experiment) -> Iterator[Claim]:
    fifo, seeds = _mean_of(gavel, "fifo"), len(gavel.loaded)
    of = "one seed" if seeds == 1 else f"means of {seeds} seeds"
    where = "Gavel, OSDI 2020"
    for policy in ("colocate", "colocate-profiled", "colocate-oracle", "gavel-fifo-packed"):
        found = _mean_of(gavel, policy)
        jct = f"{fifo.jct_s / 3600:.2f} -> {found.jct_s / 3600:.2f} h"
        makespan = f"{fifo.makespan_s / 3600:.1f} -> {found.makespan_s / 3600:.1f} h"
        # Both count: a makespan that shrinks while jobs take longer is no gain, nor is the reverse.
        stated = (
            Trait("FIFO with packing has the lower average JCT", found.jct_s < fifo.jct_s, jct, where, Origin.OTHER),
            Trait("sharing has the lower makespan", found.makespan_s < fifo.makespan_s, makespan, "section 6.4"),
        )
        claim = f"{policy} against fifo on Gavel's 26 models, 36 V100 ({of})"
        note = "" if found.makespan_s < fifo.makespan_s else _makespan_note(gavel, policy)
        ends = {run.policy: list(run.ledger.rows.end_s) for _, run in gavel.runs}  # of the last seed
        if policy == "colocate-profiled" and ends[policy] == ends["colocate"]:
            note += (
                "Every job ends when it does under `colocate`: what is profiled is a job alone, its speed and memory, "
                "and beside which other it runs is decided by how jobs do together, which both learn meanwhile."
            )
        yield Claim(f"A-j-{policy}", claim, stated, gavel.note, note)


def _makespan_note(gavel: Experiment, policy: str) -> str:
    """Why sharing lengthens the makespan, by the runs beside it."""
    spans = {name: {seed: run.span_s for seed, run in gavel.runs if run.policy == name} for name in ("fifo", policy)}
    longer = sum(spans[policy][seed] > spans["fifo"][seed] for seed in spans["fifo"])
    learned, packed = (_mean_of(gavel, name).makespan_s / 3600 for name in ("colocate", "gavel-fifo-packed"))
    return (
        f"The makespan is longer in {longer} of {count(len(gavel.loaded), 'seed')}. It is not for want of knowing: "
        f"without being told any speed it is {learned:.1f} h (A-j-colocate). It is for sharing at any gain: "
        f"{packed:.1f} h where only "
        "pairs with a sum of speeds above 1.5 share (A-j-gavel-fifo-packed)."
    )


class _Means(NamedTuple):
    queue_s: float
    span_s: float
    jct_s: float
    makespan_s: float


def _mean_of(experiment: Experiment, policy: str) -> _Means:
    """Means over jobs, then over seeds."""
    runs = [run for _, run in experiment.runs if run.policy == policy]
    rows = [(queue_s(run).mean(), span_s(run).mean(), (queue_s(run) + span_s(run)).mean(), run.span_s) for run in runs]
    return _Means(*(float(value) for value in np.mean(rows, axis=0)))

"""What paper B's experiments are made of: its policies, and scenes of jobs on one GPU whose lanes gain so much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from colane.core.policy import Policy
from colane.lab.papers.claims import Claim, Experiment, Figure, Origin, Trait, ours, queue_s
from colane.lab.papers.sharing_memory import Tables
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.request import Loaded
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.watcher import Watcher
from colane.lab.simulate.world import NO_STARTUP, Running, Scope, Startup
from colane.lab.traces import clusters
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.model.placement import TurnRule, Turns
from colane.model.profile import Memory
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create, preset

# -- B-g: three equal jobs come one after another

SHARING_STARTS_S = (0.0, 15.0, 30.0)
SHARING_ITERATIONS = (145, 75, 35)
SHARING_ENDS_S = (92.2, 81.9, 68.0)
SHARING_BATCH = 50


def fair_sharing(tables: Tables) -> Scene:
    """Three jobs come one after another."""
    step_s = tables.geometry.geometry["inception3_50"].step_s
    triples = zip(SHARING_STARTS_S, SHARING_ITERATIONS, strict=True)
    jobs = tuple(
        job_of(number, "inception3_50", iterations, step_s, start_s)
        for number, (start_s, iterations) in enumerate(triples, 1)
    )
    note = "Each newcomer has its share at once: halves, thirds, and back; the total stays what it is alone."
    return Scene("fair-sharing", "Paper B, three jobs share fairly", jobs, (FAIR,), NO_GAIN, note)


def sharing_claim(sharing: Experiment) -> Claim:
    """Ends and the total throughput; the paper states the shares alone, the ends are worked out by hand."""
    ends = ends_s(sharing.runs[0][1])
    by_hand = [
        Figure(f"job {number} ends", end_s, ends[number], "s", "equal shares", Origin.DERIVED, ratio=0.0, slack=0.1)
        for number, end_s in enumerate(SHARING_ENDS_S, 1)
    ]
    images_per_s = SHARING_BATCH * sum(SHARING_ITERATIONS) / max(ends.values())
    total = ours("total throughput", f"{images_per_s:.0f} images/s until the last has ended")
    orders = (
        Trait("jobs end in the reverse order of their start", ends[3] < ends[2] < ends[1], where="section 5.1.2"),
    )
    claim = "three inception3_50 at 0, 15, 30 s share fairly: halves, thirds and back, the total unchanged"
    return Claim("B-g", claim, (*orders, *by_hand, total), "Salus' step times on one P100; steps of each job are ours")


# -- B-m: a shorter job stops a longer one at once

SNAPSHOT = ((0.0, 100.0), (5.0, 10.0), (10.0, 20.0), (12.0, 8.0), (25.0, 30.0), (26.0, 25.0))
"""Arrival and run time of six jobs that come as the paper's do: the figure gives their order, not their times."""

SNAPSHOT_ORDER = (1, 3, 2, 5, 4, 0)


def snapshot_scene(tables: Tables) -> Scene:
    """Six jobs of which shorter ones come later."""
    step_s = tables.geometry.geometry["alexnet_25"].step_s
    jobs = tuple(
        job_of(number, "alexnet_25", round(run_s / step_s), step_s, start_s)
        for number, (start_s, run_s) in enumerate(SNAPSHOT, 1)
    )
    note = "Jobs are numbered from 1 here, from 0 in the paper. Times are ours, in the figure's order."
    return Scene("snapshot", "Paper B, shortest remaining time first", jobs, (SRTF,), NO_GAIN, note)


def snapshot_claim(found: Experiment) -> Claim:
    """Which job ends in which order."""
    ends = ends_s(found.runs[0][1])
    order = tuple(job - 1 for job in sorted(ends, key=lambda job: ends[job]))
    stated = Trait("jobs end 1, 3, 2, 5, 4, 0", order == SNAPSHOT_ORDER, ", ".join(map(str, order)), "figure 9a")
    claim = "SRTF: a shorter job stops a longer one at once, among those waiting the shortest goes first"
    return Claim(
        "B-m", claim, (stated,), "Salus' step times on one P100; the jobs' times are ours, in the figure's order"
    )


# -- B-p: a job is admitted that could run alone, whatever is there

LARGE: Final = Memory(10_000_000_000, 1_000_000_000)
"""Of a job that fits the GPU alone and beside no other of its kind: a paused one keeps its P there."""

LARGE_RUNS_S, LARGE_STARTS_S = (5_000.0, 60.0), (0.0, 100.0)
AT_ONCE_S = 10.0  # a job has come at once by then: what leaves is moved to the host, or saved, before


def admission_scene() -> Scene:
    """A short job comes to a GPU that one of as much memory has."""
    jobs = tuple(
        job_of(number, "large_1", round(10 * run_s), 0.1, start_s)
        for number, (run_s, start_s) in enumerate(zip(LARGE_RUNS_S, LARGE_STARTS_S, strict=True), 1)
    )
    note = "Two jobs of 10 GB each that stay, on a GPU of 16: the longer leaves it for the shorter, and comes back."
    return Scene("admission", "Paper B, a short job that fits alone", jobs, (SRTF, SRTF_WAITS), NO_GAIN, note)


def admission_claim(found: Experiment) -> Claim:
    """How long the shorter waits as published, and where memory has to be safe with all that are paused."""
    waits_s = {run.policy: dict(zip(run.ledger.rows.id, queue_s(run), strict=True))[2] for _, run in found.runs}
    told = "waits {:.0f} s".format(waits_s["srtf"])
    stated = (
        Trait("a job that could run alone is admitted regardless of those there", waits_s["srtf"] <= AT_ONCE_S, told,
              "section 4.2"),
        ours("while paused jobs keep their memory (`fair:turns=srtf`)", f"waits {waits_s['fair-srtf']:,.0f} s"),
    )  # fmt: skip
    return Claim("B-p", "SRTF: a shorter job where memory does not hold both", stated, found.note)


# -- B-o: different jobs in one lane have equal time

SLICE_KINDS = ("googlenet_100", "resnet50_25", "alexnet_100", "resnet50_50")
SLICE_RUN_S = 60.0


def fair_slices(tables: Tables) -> Scene:
    """Four jobs whose steps are unlike."""
    steps = [(name, tables.geometry.geometry[name].step_s) for name in SLICE_KINDS]
    jobs = tuple(
        job_of(number, name, round(SLICE_RUN_S / step_s), step_s) for number, (name, step_s) in enumerate(steps, 1)
    )
    note = "Four models whose steps take 0.05 to 0.23 s, a minute of work each, all at once in one lane."
    return Scene("fair-slices", "Paper B, unlike jobs share fairly", jobs, (FAIR,), NO_GAIN, note)


def slices_claim(slices: Experiment) -> Claim:
    """Parts of the time."""
    rows = slices.runs[0][1].ledger.rows
    parts = [
        had_s / (end_s - submit_s) for had_s, end_s, submit_s in zip(rows.gpu_s, rows.end_s, rows.submit_s, strict=True)
    ]
    found = [part for _, part in sorted(zip(rows.id, parts, strict=True))]
    equal = all(abs(part - 1 / len(found)) <= 0.01 for part in found)
    told = ", ".join(f"{name} {part:.1%}" for name, part in zip(SLICE_KINDS, found, strict=True))
    steps_s = [(job.duration_s or 0.0) / (job.steps or 1) for job in slices.loaded[0].workload.jobs]
    stated = (
        Trait("each has as much of the GPU's time", equal, told, "figure 10"),
        Trait("the turn passes within a second", max(steps_s) < 1,
              f"after a step, {min(steps_s):.2f} to {max(steps_s):.2f} s", "section 5.1.2"),
    )  # fmt: skip
    return Claim("B-o", "four unlike jobs share one lane", stated, "Salus' step times on one P100")


class Gain(NamedTuple):
    """Total throughput of lanes that run at once, over that of one."""

    lanes: int  # so many lanes and more go `rho` times as fast together as one; fewer gain in proportion
    rho: float  # the gain

    def of(self, lanes: int) -> float:
        """Gain of so many lanes."""
        return 1 + (self.rho - 1) * min(1.0, (lanes - 1) / (self.lanes - 1))


class GainWorld:
    """Every job alone at its recorded speed; k lanes at once have equal parts of rho(k) times that.

    The paper measured no slowdown of each set, only what a policy gained as a whole: rho stands for that and is an
    input, so a makespan that follows from it confirms the mechanism, not the gain.
    """

    counts_steps = True
    scope = Scope.GPU

    def __init__(self, memory: Mapping[str, Memory], gain: Gain) -> None:
        self._memory = memory
        self._gain = gain
        self.name = (
            f"recorded speeds alone; {gain.lanes} or more lanes together go {gain.rho:g} times as fast as one; "
            "memory from Salus's table"
        )

    def refusal(self, job: TraceJob, gpu_types: Sequence[str]) -> str | None:  # noqa: ARG002
        """A job needs steps and a duration."""
        return None if job.steps and job.duration_s else "has no steps or no duration"

    def work_steps(self, job: TraceJob) -> float:
        """Its steps."""
        return float(job.steps or 0)

    def startup(self, job: TraceJob) -> Startup:  # noqa: ARG002
        """Recorded durations have it in them."""
        return NO_STARTUP

    def steps_per_s(self, me: Running, others: Sequence[Running]) -> float:
        """How fast a job goes in its lane; `others` are those that run in other lanes."""
        alone = (me.job.steps or 0) / (me.job.duration_s or 1.0)
        lanes = 1 + len(others)
        return alone * self._gain.of(lanes) / lanes

    def memory(self, job: TraceJob, gpu_type: str) -> Memory | None:  # noqa: ARG002
        """P and E as measured by Salus."""
        return self._memory.get(job.model if job.batch_size is None else f"{job.model}_{job.batch_size}")

    def occupancy_ratio(self, job: TraceJob, gpu_type: str, cores: float = 0.0) -> float | None:  # noqa: ARG002
        """Not known."""
        return None


FIFO = create("fifo", as_published=True)
SRTF = replace(create("salus-srtf", as_published=True), name="srtf")
SRTF_WAITS = preset("fair", name="fair-srtf", turns=Turns(TurnRule.SRTF), max_wait_s=None)
PACK = preset("pack", take_turns=False, gain_min=None, max_wait_s=None)
PACK_TURNS = preset("pack", name="pack-turns", gain_min=None, max_wait_s=None)
FAIR = preset("fair", max_wait_s=None)
"""The paper's policies: no job is served out of turn for having waited long, and PACK's lanes hold one job each, as in
the released code. `pack-turns` is the printed algorithm 1, which lets jobs into lanes that are there."""

COLANE = tuple([create(name) for name in ("colane", "colane:lanes=own", "colane:lanes=single")])
"""The product's own without lanes, as by default, and with them."""

NO_GAIN = Gain(lanes=2, rho=1.0)


@dataclass(frozen=True, slots=True)
class Scene:
    """Jobs, policies and what lanes gain."""

    name: str
    title: str
    jobs: tuple[TraceJob, ...]
    policies: tuple[Policy, ...]
    gain: Gain
    note: str


def experiment_of(scene: Scene, tables: Tables, *watchers: Watcher) -> Experiment:
    """Run every policy of a scene."""
    cluster = clusters.load("paper-b")
    world = GainWorld({**tables.memory, "large_1": LARGE}, scene.gain)
    loaded = Loaded(cluster, Workload(name=scene.name, jobs=scene.jobs, source=scene.title), world)
    runs = tuple((0, _run(loaded, policy, watchers)) for policy in scene.policies)
    return Experiment(scene.name, scene.title, {0: loaded}, runs, scene.note)


def _run(loaded: Loaded, policy: Policy, watchers: Sequence[Watcher]) -> Run:
    """Durations and memory are known, as the paper assumes; safety factors are those the product always uses."""
    jobs, cluster, world = loaded.workload.jobs, loaded.cluster, loaded.world
    known = make_beliefs(Belief.PROFILED, world, jobs, cluster, noise=0.0, seed=0)
    beliefs = Beliefs(profiles=known.profiles.values())
    given = Inputs(cluster=cluster, workload=loaded.workload, world=world, policy=policy, beliefs=beliefs)
    return simulate(given, watchers=lambda _: watchers)


def ends_s(run: Run) -> dict[int, float]:
    """End of each job."""
    return dict(zip(run.ledger.rows.id, run.ledger.rows.end_s, strict=True))


def job_of(number: int, workload: str, iterations: int, step_s: float, submit_s: float = 0.0) -> TraceJob:
    """A job of so many steps; its workload is model_batch."""
    model, _, batch = workload.rpartition("_")
    spec = JobSpec(name=f"{workload} #{number}", family=model, batch_size=int(batch), steps_total=iterations)
    return TraceJob(id=JobId(number), submit_s=submit_s, spec=spec, duration_s=iterations * step_s)

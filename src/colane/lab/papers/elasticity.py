"""Paper E's evaluation (Seo: F-scheduling, 2020), simulated: four jobs on six GPUs, elastic or in static slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from colane.core.policy import Policy
from colane.lab.papers import elastic_workloads
from colane.lab.papers.claims import (
    FULL,
    Claim,
    Effort,
    Evaluation,
    Experiment,
    Figure,
    Origin,
    Stated,
    Trait,
    on_gpu,
    ours,
    queue_s,
    said,
)
from colane.lab.simulate.beliefs import Belief, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.request import Loaded
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.table_files import SCALING, file_of, folder_of, pollux_table
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import ScalingSpeeds, Sources
from colane.lab.traces import clusters
from colane.lab.traces.tables import scaling
from colane.lab.traces.tables.pollux import EpochNoise, PolluxTable
from colane.lab.traces.tables.scaling import ScalingTable
from colane.lab.traces.workload import TraceJob, Workload
from colane.model.job import JobId
from colane.model.job_spec import JobSpec
from colane.model.time_spent import TimeSpent
from colane.scheduling.engine.sized_rates import efficiency
from colane.scheduling.registry import create, preset

GPUS: Final = 6
STEPS: Final = 2000
EVERY_S: Final = 100.0
MODELS: Final = ("ResNet-50", "InceptionV3", "ResNet-50", "InceptionV3")
SLOTS: Final = (1, 2, 3, 6)
SEEDS: Final = 10
POISSON_JOBS: Final = 160
PUBLISHED_S: Final = {"f-sched": 1350.0, "static-1": 1557.0, "static-2": 1593.0, "static-3": 1498.0, "static-6": 2138.0}
"""Table 2: from the first submission to the last end."""

FIXTURE_S: Final = {
    "f-sched": 1335.23, "static-1": 1554.63, "static-2": 1584.43, "static-3": 1498.86, "static-6": 2120.33,
}  # fmt: skip
"""What the table of speeds was calibrated to: a simulation of the paper's nine states, not a measurement."""

FIXTURE_SPENT_S: Final = {"waiting": 130.77, "running": 766.89}
"""Where the time of a job goes under f-sched, mean, by the same simulation. Waiting is queueing and launching."""

BOUNDS: Final = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
PAPER: Final = create("f-sched", as_published=True)
"""As the prototype: resized for one step per second more, whatever the restart costs."""


def evaluate(tables: Path | None, effort: Effort = FULL) -> Evaluation:
    """Run everything; workloads of Pollux's applications where its measurements are there.

    Raises InputFileError: there are no tables.
    """
    effort.tell("four jobs on six GPUs")
    table = scaling.read(file_of(tables, SCALING))
    elastic = _loaded(table, GPUS, tuple(range(1, GPUS + 1)))
    policies: list[tuple[Loaded, Policy]] = [(elastic, PAPER)]
    policies += [(_loaded(table, n, ()), preset("fifo", name=f"static-{n}", max_wait_s=None)) for n in SLOTS]
    runs = {policy.name: _run(table, loaded, policy) for loaded, policy in policies}
    tried = {"rise_steps_per_s_min": 1.0, "rise_ratio_min": 0.0, "pays_back": False, "max_wait_s": None}
    bounds = {bound: preset("f-sched", name=f"f-sched {bound:g}", variance_max=bound, **tried) for bound in BOUNDS}
    sweep = {bound: _run(table, elastic, policy) for bound, policy in bounds.items()}
    shipped = _run(table, elastic, preset("f-sched", name="f-sched as shipped"))
    told = f"{total_s(shipped):.1f} s, resized {resizes(shipped)} times"
    claims = (
        *_totals(runs),
        *_identities(runs),
        _orderings(runs),
        _utilisation(runs),
        _work_done(runs, table),
        _time_spent(runs),
        _swept(sweep),
        Claim("E-s", "f-sched as shipped: a restart must pay", (ours("total", told),), WORLD),
        *_on_pollux(tables, effort),
    )
    shown = tuple((0, run) for run in (runs["f-sched"], shipped))
    title, note = "Paper E: four jobs on six GPUs", f"Speeds: {table.note}."
    return Evaluation(claims, (Experiment("four-jobs", title, {0: elastic}, shown, note),))


def _on_pollux(tables: Path | None, effort: Effort) -> tuple[Claim, ...]:
    measured = pollux_table(tables)
    if measured is None:
        return ()
    seeds = min(SEEDS, 2) if effort.is_quick else SEEDS
    recorded = () if effort.is_quick else elastic_workloads.recorded(folder_of(tables), effort)
    drawn = elastic_workloads.evaluate(measured, seeds, POISSON_JOBS, effort)
    return (*goodput_claims(measured), *drawn, *recorded)


def jobs(gpus: int, sizes: tuple[int, ...]) -> tuple[TraceJob, ...]:
    """The paper's four jobs (section 5), each for so many GPUs or for any of several numbers of them."""
    specs = [
        JobSpec(name=f"{model}-{place}", family=model, gpus=gpus, sizes=sizes, steps_total=STEPS, preemptible=True)
        for place, model in enumerate(MODELS)
    ]
    return tuple(TraceJob(id=JobId(place + 1), submit_s=place * EVERY_S, spec=spec) for place, spec in enumerate(specs))


def total_s(run: Run) -> float:
    """From the first submission, at 0, to the last end."""
    return max(run.ledger.rows.end_s)


def _loaded(table: ScalingTable, gpus: int, sizes: tuple[int, ...]) -> Loaded:
    workload = Workload(name="paper-e", jobs=jobs(gpus, sizes), source="paper E, section 5")
    world = TableWorld(Sources((ScalingSpeeds(table),), None), workload.jobs)
    return Loaded(clusters.load("paper-e"), workload, world)


def _run(table: ScalingTable, loaded: Loaded, policy: Policy) -> Run:
    """Throughput functions are declared, as in the paper; launch, checkpoint and stop take what the table says."""
    known = make_beliefs(Belief.PROFILED, loaded.world, loaded.workload.jobs, loaded.cluster, noise=0.0, seed=0)
    costs = DriverConfig(launch_s=table.launch_s, stop_s=table.checkpoint_and_stop_s)
    given = Inputs(
        cluster=loaded.cluster, workload=loaded.workload, world=loaded.world, policy=policy, beliefs=known, driver=costs
    )
    return simulate(given)


def resizes(run: Run) -> int:
    """How often a job was given another number of GPUs."""
    spans = run.ledger.stays
    own = [[len(span.gpus) for span in spans if span.job == job] for job in run.ledger.rows.id]
    return sum(before != after for sizes in own for before, after in pairwise(sizes))


WORLD: Final = "four jobs on six GPUs; speeds and restarts of calibrated_f.json, searched to match table 2"
NEAR: Final = 0.02


def _totals(runs: dict[str, Run]) -> list[Claim]:
    claims = []
    for name, run in runs.items():
        found = total_s(run)
        stated = (
            Figure("", PUBLISHED_S[name], found, "s", "table 2", printed=f"{PUBLISHED_S[name]:,.0f}", ratio=NEAR),
            Figure("the simulation that calibrated it", FIXTURE_S[name], found, "s", "", Origin.OURS, ratio=NEAR),
        )
        claims.append(Claim(f"E-a-{name}", f"total of {name}", stated, WORLD))
    by_end = sorted(runs, key=lambda name: total_s(runs[name]))
    what = "F ends first, then slots of three"
    order = Trait(what, by_end[:2] == ["f-sched", "static-3"], ", ".join(by_end), "section 5.2.1")
    return [*claims, Claim("E-a-order", "which ends first", (order,), WORLD)]


def _identities(runs: dict[str, Run]) -> list[Claim]:
    """Totals of static slots are sums of run times: what one run tells of the other."""
    alone = {name: [end - start for start, end in _spans(run)] for name, run in runs.items() if name != "f-sched"}
    sums = {
        "static-1": 300 + alone["static-1"][3],
        "static-2": alone["static-2"][0] + alone["static-2"][3],
        "static-3": 100 + alone["static-3"][1] + alone["static-3"][3],
        "static-6": sum(alone["static-6"]),
    }
    within = [
        Figure(f"{name}: sum of run times", value, total_s(runs[name]), "s", "", Origin.OURS, ratio=0.0, slack=1.0)
        for name, value in sums.items()
    ]
    stated = (
        Figure("InceptionV3 on one GPU", 1257, alone["static-1"][3], "s", "table 2", Origin.DERIVED, ratio=NEAR),
        Figure("InceptionV3 on three", 699, alone["static-3"][3], "s", "table 2", Origin.DERIVED, ratio=NEAR),
        Figure("both on six", 1069, sum(alone["static-6"][:2]), "s", "table 2", Origin.DERIVED, ratio=NEAR),
    )
    return [Claim("E-b", "totals of static slots are sums of run times", (*stated, *within), WORLD)]


def _spans(run: Run) -> Sequence[tuple[float, float]]:
    """Start and end of each job, by id."""
    rows = run.ledger.rows
    found = sorted(zip(rows.id, rows.start_s, rows.end_s, strict=True))
    return [(start, end) for _, start, end in found]


def _orderings(runs: dict[str, Run]) -> Claim:
    queue = {name: _mean(queue_s(run).tolist()) for name, run in runs.items()}
    running = {
        name: _mean([end - start for start, end in _spans(run)]) for name, run in runs.items() if name != "f-sched"
    }
    fewest = min(runs, key=lambda name: total_s(runs[name])) == "f-sched"
    queues = [queue[f"static-{n}"] for n in SLOTS]
    lengths = [running[f"static-{n}"] for n in SLOTS]
    is_longer, many, where = lengths == sorted(lengths, reverse=True), resizes(runs["f-sched"]), "section 5.2.1"
    stated = (
        Trait("smaller slots queue less", queues == sorted(queues), said(queue, "s"), where),
        Trait("smaller slots run longer", is_longer, said(running, "s"), where),
        Trait("F ends first", fewest, where=where),
        Trait("F launches more", many > 0, f"resized {many} times", where),
    )
    return Claim("E-c", "what slots and resizing cost", stated, WORLD)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _utilisation(runs: dict[str, Run]) -> Claim:
    """The paper's curve is of what the GPUs compute; a simulation can say which carry a job, mean over the run."""
    busy = {name: 100 * sum(run.ledger.rows.gpu_s) / (GPUS * total_s(run)) for name, run in runs.items()}
    stated = (
        on_gpu("above 50 % of utilisation F is best", "figure 4"),
        ours("GPUs with a job on them", said(busy, "%")),
    )
    note = "A job on six GPUs holds all of them and leaves each partly idle: how busy they are is in no table."
    return Claim("E-d", "utilisation of the six GPUs", stated, WORLD, note)


ABOVE: Final = (0.5, 0.6, 0.7)


def _work_done(runs: dict[str, Run], table: ScalingTable) -> Claim:
    """Figure 4 as far as speeds tell it: what the GPUs do of the steps that six would do each alone at its best."""
    model_of = {int(job.id): job.spec.family for job in jobs(1, ())}
    above: dict[str, list[float]] = {}
    for name, run in runs.items():
        marks = []
        for stay in run.ledger.stays:
            speeds = table.steps_per_s[model_of[stay.job]]
            part = speeds[len(stay.gpus)] / speeds[1] / GPUS
            marks += [(stay.start_s + table.launch_s, part), (stay.end_s, -part)]
        at_s, steps = zip(*sorted(marks), strict=True)
        parts, spans_s = np.cumsum(steps)[:-1], np.diff(at_s)
        above[name] = [100 * float(spans_s[parts >= least].sum()) / total_s(run) for least in ABOVE]
    best = [max(above, key=lambda name: above[name][place]) for place in range(len(ABOVE))]
    told = "; ".join([f"{name} {' / '.join([f'{part:.0f}' for part in parts])}" for name, parts in above.items()])
    stated = (
        Trait("above 50 % F is best", best[0] == "f-sched", told + " % of the time", "figure 4", Origin.DERIVED),
        Trait("above 60 % and above 70 %", set(best[1:]) == {"f-sched"}, where="figure 4", source=Origin.DERIVED),
    )
    note = (
        "A GPU counts as used as fully as a job alone on it uses it, and less by as much as several are slower than so "
        "many alone. Three of six on each of two jobs then stay just above a half for as long as both run."
    )
    return Claim("E-d-work", "the same by steps made: part of the time above 50, 60 and 70 %", stated, WORLD, note)


def _time_spent(runs: dict[str, Run]) -> Claim:
    """The paper counts to launching what saves, stops, or has GPUs that others still hold; the latter queue here."""
    spent = {
        name: TimeSpent(*map(_mean, zip(*run.ledger.time_spent.values(), strict=True))) for name, run in runs.items()
    }
    means = spent["f-sched"]
    waiting = {name: sum(one) - one.running_s for name, one in spent.items()}
    launching = {name: waiting[name] - one.queueing_s for name, one in spent.items()}
    running = {name: one.running_s for name, one in spent.items()}
    both = {name: one.queueing_s + one.running_s for name, one in spent.items()}
    found_s = {"waiting": waiting["f-sched"], "running": means.running_s}
    fixture = [
        Figure(f"{part}, f-sched", stated_s, found_s[part], "s", "", Origin.OURS, ratio=0.0, slack=NEAR * JOB_S)
        for part, stated_s in FIXTURE_SPENT_S.items()
    ]
    static = [name for name in spent if name != "f-sched"]
    stated: tuple[Stated, ...] = (
        Trait("static slots launch least", launching["f-sched"] > max(launching[name] for name in static),
              said(launching, "s"), "figure 3"),
        Trait("queueing falls with the slot's size", [spent[f"static-{n}"].queueing_s for n in SLOTS]
              == sorted(spent[f"static-{n}"].queueing_s for n in SLOTS),
              said({name: one.queueing_s for name, one in spent.items()}, "s"), "figure 3"),
        Trait("running rises with smaller slots", [running[f"static-{n}"] for n in SLOTS]
              == sorted((running[f"static-{n}"] for n in SLOTS), reverse=True), said(running, "s"), "figure 3"),
        Trait("F has the least of queueing and running together", min(both, key=lambda name: both[name]) == "f-sched",
              said(both, "s"), "section 5.2.1"),
        *fixture,
    )  # fmt: skip
    claim = "where the time of a job goes, mean of the four (the figure's bars are drawn, without numbers)"
    return Claim("E-f", claim, stated, WORLD)


JOB_S: Final = sum(FIXTURE_SPENT_S.values())


def _swept(sweep: dict[float, Run]) -> Claim:
    totals = {f"{bound:g}": total_s(run) for bound, run in sweep.items()}
    inert = abs(totals["0.5"] - totals["0.25"]) < 1e-9
    stated = (
        Figure("bound in the evaluation", 0.5, max(sweep), "", "section 5.1.3", printed="0.5",
               given="one of the bounds tried"),
        Trait("it cannot bind: numbers in 0..1 have a variance of 0.25 at most", inert, said(totals, "s"), "",
              Origin.DERIVED),
    )  # fmt: skip
    return Claim("E-v", "bound on the variance of speeds", stated, WORLD)


class Foreseen(NamedTuple):
    """Iterations until the same progress at twice the batch, over those measured."""

    by_noise: float  # as foreseen by what the job tells of its gradient
    alike: float  # if every sample taught as much as any other


def goodput_claims(table: PolluxTable) -> tuple[Claim, ...]:
    """How many more samples larger batches take, foreseen by the noise of the gradient at one batch and measured.

    As when a job is to get twice the GPUs at a batch per GPU. One claim; none where the files do not tell the noise.
    """
    found = [one for application in table.applications.values() for one in foreseen(application.noise)]
    if not found:
        return ()
    errors = np.abs(np.subtract(found, 1.0)).T
    noise, alike = (f"{np.mean(one):.1%} in the mean, {np.max(one):.1%} at most" for one in errors)
    claim = "goodput: iterations at twice the batch, by the noise of the gradient"
    told = f"off by {noise}; with all samples alike {alike}; {len(found)} doublings of six applications"
    return (Claim("E-g", claim, (ours("", told),), "Pollux's measured trainings"),)


def foreseen(curves: Mapping[int, Sequence[EpochNoise]]) -> list[Foreseen]:
    """Of each batch from the one before."""
    return [_doubled(curves[before], before, curves[batch], batch) for before, batch in pairwise(sorted(curves))]


def _doubled(known: Sequence[EpochNoise], before: int, measured: Sequence[EpochNoise], batch: int) -> Foreseen:
    steps = np.diff([0, *[epoch.iterations for epoch in known]])
    worth = [efficiency(epoch.noise_scale, before, batch) for epoch in known]
    there = measured[-1].iterations * batch / before
    return Foreseen(float(np.sum(steps / worth)) / there, float(np.sum(steps)) / there)

"""Paper E's evaluation (Seo: F-scheduling, 2020), simulated: four jobs on six GPUs, elastic or in static slots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from colane.core.policy import Policy
from colane.model.job import JobId
from colane.model.job_spec import JobSpec
from colane.model.time_spent import TimeSpent
from colane.papers import elastic_goodput, elastic_workloads
from colane.papers.claims import Claim, ClaimVerdict, Evaluation, Experiment, ordering, said
from colane.scheduling.registry import preset
from colane.simulate.beliefs import Belief, make_beliefs
from colane.simulate.config import DriverConfig
from colane.simulate.request import Loaded
from colane.simulate.run import Inputs, Run, simulate
from colane.simulate.table_files import DATA_VARIABLE, SCALING, pollux_table
from colane.simulate.table_world import TableWorld
from colane.simulate.tables import ScalingSpeeds, Sources
from colane.traces import clusters
from colane.traces.errors import TraceError
from colane.traces.tables import scaling
from colane.traces.tables.scaling import ScalingTable
from colane.traces.workload import TraceJob, Workload

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
    "f-sched": 1335.23,
    "static-1": 1554.63,
    "static-2": 1584.43,
    "static-3": 1498.86,
    "static-6": 2120.33,
}
"""What the table of speeds was calibrated to: a simulation of the paper's nine states, not a measurement."""

FIXTURE_SPENT_S: Final = {"waiting": 130.77, "running": 766.89}
"""Where the time of a job goes under f-sched, mean, by the same simulation. Waiting is queueing and launching."""

BOUNDS: Final = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01)

PAPER: Final = preset(
    "f-sched", variance_max=0.5, rise_steps_per_s_min=1.0, rise_ratio_min=0.0, pays_back=False, max_wait_s=None
)
"""As the prototype: resized for one step per second more, whatever the restart costs."""


def evaluate(tables: Path | None) -> Evaluation:
    """Run everything; workloads of Pollux's applications where its measurements are there.

    Args:
        tables: Directory of measured tables; None takes `COLANE_DATA`.

    Raises:
        TraceError: There are no tables.
    """
    table = scaling.read(_table_file(tables))
    elastic = _loaded(table, GPUS, tuple(range(1, GPUS + 1)))
    policies: list[tuple[Loaded, Policy]] = [(elastic, PAPER)]
    policies += [(_loaded(table, n, ()), preset("fifo", name=f"static-{n}", max_wait_s=None)) for n in SLOTS]
    runs = {policy.name: _run(table, loaded, policy) for loaded, policy in policies}
    sweep = {bound: _run(table, elastic, _with_bound(bound)) for bound in BOUNDS}
    shipped = _run(table, elastic, preset("f-sched", name="f-sched as shipped"))
    claims = (
        *_totals(runs),
        *_identities(runs),
        _orderings(runs),
        _utilisation(runs),
        _time_spent(runs["f-sched"]),
        _swept(sweep),
        _as_shipped(shipped),
        *_on_pollux(tables),
    )
    note = f"Speeds: {table.note}."
    experiments = Experiment(
        "four-jobs",
        "Paper E: four jobs on six GPUs",
        {0: elastic},
        tuple((0, run) for run in (runs["f-sched"], shipped)),
        note,
    )
    return Evaluation(claims, (experiments,))


def _on_pollux(tables: Path | None) -> tuple[Claim, ...]:
    measured = pollux_table(tables)
    if measured is None:
        return ()
    return (*elastic_goodput.evaluate(measured), *elastic_workloads.evaluate(measured, SEEDS, POISSON_JOBS))


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


def _with_bound(bound: float) -> Policy:
    return preset(
        "f-sched", name=f"f-sched {bound:g}", variance_max=bound,
        rise_steps_per_s_min=1.0, rise_ratio_min=0.0, pays_back=False,
        max_wait_s=None,
    )  # fmt: skip


def resizes(run: Run) -> int:
    """How often a job was given another number of GPUs."""
    spans = run.ledger.stays
    own = [[len(span.gpus) for span in spans if span.job == job] for job in run.ledger.rows.id]
    return sum(before != after for sizes in own for before, after in pairwise(sizes))


def _totals(runs: dict[str, Run]) -> list[Claim]:
    claims = []
    for name, run in runs.items():
        ours, fixture, published = total_s(run), FIXTURE_S[name], PUBLISHED_S[name]
        near = abs(ours / fixture - 1) <= 0.02
        verdict = (
            f"within 2 % of the fixture ({fixture:.0f} s)" if near else f"differs from the fixture ({fixture:.0f} s)"
        )
        claims.append(Claim("E-a", f"total of {name}", f"{published:.0f} s", f"{ours:.1f} s", verdict))
    return claims


def _identities(runs: dict[str, Run]) -> list[Claim]:
    """Totals of static slots are sums of run times: what one run tells of the other."""
    alone = {name: [end - start for start, end in _spans(run)] for name, run in runs.items() if name != "f-sched"}
    sums = {
        "static-1": 300 + alone["static-1"][3],
        "static-2": alone["static-2"][0] + alone["static-2"][3],
        "static-3": 100 + alone["static-3"][1] + alone["static-3"][3],
        "static-6": sum(alone["static-6"]),
    }
    holds = {name: abs(total_s(runs[name]) - value) < 1.0 for name, value in sums.items()}
    told = ", ".join(f"{name} {total_s(runs[name]):.1f} = {value:.1f}" for name, value in sums.items())
    verdict = ClaimVerdict.SAME if all(holds.values()) else f"differs: {[n for n, same in holds.items() if not same]}"
    return [Claim("E-b", "totals of static slots are sums of run times", "exact", told, verdict)]


def _spans(run: Run) -> Sequence[tuple[float, float]]:
    """Start and end of each job, by id."""
    rows = run.ledger.rows
    found = sorted(zip(rows.id, rows.start_s, rows.end_s, strict=True))
    return [(start, end) for _, start, end in found]


def _orderings(runs: dict[str, Run]) -> Claim:
    queue = {name: _mean([first - sub for first, sub in _waits(run)]) for name, run in runs.items()}
    running = {
        name: _mean([end - start for start, end in _spans(run)]) for name, run in runs.items() if name != "f-sched"
    }
    holds = queue["static-1"] <= queue["static-2"] <= queue["static-6"] and running["static-1"] > running["static-6"]
    fewest = min(runs, key=lambda name: total_s(runs[name])) == "f-sched"
    ours = f"queueing {said(queue, 's')}; f-sched resized {resizes(runs['f-sched'])} times"
    published = "small slots: less queueing, longer runs; F ends first though it launches more"
    return Claim("E-c", "what slots and resizing cost", published, ours, ordering(holds and fewest))


def _waits(run: Run) -> Sequence[tuple[float, float]]:
    rows = run.ledger.rows
    return list(zip(rows.first_start_s, rows.submit_s, strict=True))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _utilisation(runs: dict[str, Run]) -> Claim:
    """Part of the GPUs that carry a job, mean over the run: what a simulation can say of the paper's curve."""
    busy = {name: 100 * sum(run.ledger.rows.gpu_s) / (GPUS * total_s(run)) for name, run in runs.items()}
    holds = busy["f-sched"] >= max(busy.values()) - 1e-9
    return Claim("E-d", "GPUs with a job on them, mean", "F highest", said(busy, "%"), ordering(holds))


def _time_spent(run: Run) -> Claim:
    """The paper counts to launching what saves, stops, or has GPUs that others still hold; the latter queue here."""
    every = list(run.ledger.time_spent.values())
    means = TimeSpent(*map(_mean, zip(*every, strict=True)))
    ours = {"waiting": sum(means) - means.running_s, "running": means.running_s}
    near = all(abs(ours[part] - fixture_s) <= 0.02 * JOB_S for part, fixture_s in FIXTURE_SPENT_S.items())
    verdict = f"within 2 % of the fixture ({said(FIXTURE_SPENT_S, 's')})" if near else "differs from the fixture"
    told = f"{said(ours, 's')}; of the waiting {means.queueing_s:.1f} s in the queue"
    return Claim("E-f", "where the time of a job goes under f-sched, mean", "Fig. 3, drawn", told, verdict)


JOB_S: Final = sum(FIXTURE_SPENT_S.values())


def _swept(sweep: dict[float, Run]) -> Claim:
    totals = {f"{bound:g}": total_s(run) for bound, run in sweep.items()}
    inert = abs(totals["0.5"] - totals["0.25"]) < 1e-9
    verdict = "inert at 0.5, as no variance of numbers in 0..1 passes 0.25" if inert else "differs: 0.5 is not inert"
    return Claim("E-v", "bound on the variance of speeds", "0.5 in the evaluation", said(totals, "s"), verdict)


def _as_shipped(run: Run) -> Claim:
    ours = f"{total_s(run):.1f} s, resized {resizes(run)} times"
    return Claim("E-s", "f-sched as shipped: a restart must pay", "not in the paper", ours, "ours")


def _table_file(tables: Path | None) -> Path:
    named = tables if tables is not None else Path(os.environ.get(DATA_VARIABLE, ""))
    path = named / SCALING
    if not path.is_file():
        raise TraceError(named, f"holds no {SCALING}; name a directory that does, or set {DATA_VARIABLE}")
    return path

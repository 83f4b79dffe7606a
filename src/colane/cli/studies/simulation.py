"""From what was simulated to what is reported: the two rooms do not know one another."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from colane.model.words import count
from colane.report.metrics import summarise
from colane.report.records import JobTime
from colane.report.simulated import BeliefError, ClusterCurves, JobColumns, ReportedSpan, SimulatedRun
from colane.simulate.config import described
from colane.simulate.ledger import STATES, AttemptSpan, ClusterTimeline, Ledger, Rows
from colane.simulate.request import Loaded, Request
from colane.simulate.run import Run
from colane.simulate.watchers import Story, lines
from colane.traces.costs import Costs

if TYPE_CHECKING:
    from colane.simulate.driver import Driver


def simulated_run(run: Run, seed: int, loaded: Loaded) -> SimulatedRun:
    """A run as the report wants it."""
    ledger, errors = run.ledger, run.errors
    judged = len(errors.alone) + len(errors.shared) + errors.alone_unknown + errors.shared_unknown
    belief_error = BeliefError(
        alone=summarise(errors.alone),
        shared=summarise(errors.shared),
        alone_unknown=errors.alone_unknown,
        shared_unknown=errors.shared_unknown,
    )
    return SimulatedRun(
        policy=run.policy,
        seed=seed,
        jobs=run.jobs,
        refused=tuple(str(refusal) for refusal in run.refused),
        columns=_columns(ledger.rows),
        curves=_curves(ledger.curve),
        gpus=[f"{node.name}/{gpu.index}" for node in loaded.cluster.nodes for gpu in node.gpus],
        stays=() if ledger.stays_dropped else tuple(map(_stay, ledger.stays)),
        offered_load=run.offered_load,
        belief_error=belief_error if judged else None,
        flaws=tuple(ledger.flaws),
        decisions=ledger.decisions,
        events=ledger.events,
        plan_s=np.asarray(ledger.plan_s),
        wall_s=run.wall_s,
        is_partial=ledger.interrupted,
        pause_s=ledger.paused_s,
        times=_times(ledger, loaded),
        stuck=run.stuck,
    )


def _times(ledger: Ledger, loaded: Loaded) -> dict[int, JobTime]:
    """By job; of too many jobs none, rather than of some."""
    if len(ledger.time_spent) < len(ledger.rows):
        return {}
    names = {int(job.id): job.spec.name for job in loaded.workload.jobs}
    lost_s = ledger.lost_s
    return {job: JobTime(names[job], spent, lost_s.get(job, 0.0)) for job, spent in sorted(ledger.time_spent.items())}


def _columns(rows: Rows) -> JobColumns:
    return JobColumns(
        id=np.asarray(rows.id),
        state=[STATES[code] for code in rows.state],
        submit_s=np.asarray(rows.submit_s),
        first_start_s=np.asarray(rows.first_start_s),
        start_s=np.asarray(rows.start_s),
        end_s=np.asarray(rows.end_s),
        attempts=np.asarray(rows.attempts),
        gpu_s=np.asarray(rows.gpu_s),
        alone_s=np.asarray(rows.alone_s),
        gpus=[" ".join(map(str, gpus)) for gpus in rows.gpus],
    )


def _curves(curve: ClusterTimeline) -> ClusterCurves:
    return ClusterCurves(
        at_s=np.asarray(curve.at_s),
        active_gpus=np.asarray(curve.active_gpus),
        utilized_gpus=np.asarray(curve.utilized_gpus),
        stranded_gpus=np.asarray(curve.stranded_gpus),
        waiting=np.asarray(curve.waiting),
        running=np.asarray(curve.running),
    )


def _stay(stay: AttemptSpan) -> ReportedSpan:
    return ReportedSpan(stay.job, tuple(str(gpu) for gpu in stay.gpus), stay.start_s, stay.end_s)


def inputs_object(loaded: Loaded, details: Mapping[str, Any]) -> dict[str, Any]:
    """What the runs are a function of, for the report."""
    workload, cluster = loaded.workload, loaded.cluster
    return {
        "cluster": {"name": cluster.name, "nodes": len(cluster.nodes), "gpus": cluster.gpus},
        "workload": {
            "name": workload.name,
            "format": workload.format,
            "format_guessed": workload.guessed,
            "jobs": len(workload.jobs),
            "span_s": workload.span_s,
        },
        "world": loaded.world.name,
        **details,
    }


@contextmanager
def progress() -> Iterator[Callable[[Driver, str], None]]:
    """A bar on standard error with rate and remaining time, on a terminal only. Handed each driver before it runs."""
    if not sys.stderr.isatty():
        yield lambda _driver, _policy: None
        return
    from rich.console import Console  # noqa: PLC0415 - for terminals only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs, {task.fields[rate]}"),
        TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:

        def show(driver: Driver, policy: str) -> None:
            task = bar.add_task(policy, total=driver.jobs, rate="")

            def moved(driver: Driver) -> None:
                speed = bar.tasks[task].speed
                bar.update(task, completed=driver.ended, rate=f"{speed:,.0f}/s" if speed else "")

            driver.on_progress = moved

        yield show


def details(request: Request, loaded: Loaded) -> dict[str, Any]:
    """Settings of a request, as a report's inputs carry them."""
    return {
        "belief": str(request.belief),
        "oracle": request.belief == "oracle",
        "noise": request.noise if request.belief == "profiled" else None,
        "sharing": request.sharing,
        "time_scale": request.time_scale,
        "costs": _costs(request, loaded),
        "preemptible_jobs": sum(job.spec.preemptible for job in loaded.workload.jobs),
    }


def _costs(request: Request, loaded: Loaded) -> list[dict[str, Any]]:
    """What living takes besides steps, of each set of nodes that have it in common."""
    config = described(request.driver, loaded.cluster.costs, request.costs)
    alike: dict[tuple[float, ...], int] = {}
    names = [cost.name for cost in fields(Costs)]
    for node in loaded.cluster.nodes:
        found = tuple(getattr(config.on(node.name), name) for name in names)
        alike[found] = alike.get(found, 0) + 1
    return [{"nodes": nodes, **dict(zip(names, found, strict=True))} for found, nodes in alike.items()]


def notes(request: Request, loaded: Loaded) -> Iterator[str]:
    """What people should know of the inputs."""
    from colane.simulate.beliefs import describe  # noqa: PLC0415 - imported late
    from colane.simulate.gaps import gaps_of  # noqa: PLC0415 - imported late

    yield f"World: {loaded.world.name}."
    yield f"Belief: {describe(request.belief, request.noise)}."
    workload = loaded.workload
    guessed = ", as its content suggests" if workload.guessed else ""
    source = workload.source or workload.name
    yield f"Workload: {count(f'{len(workload.jobs):,}', 'job')} of {source}, read as {workload.format}{guessed}."
    for said in workload.said:
        yield f"Workload: {said}."
    if request.time_scale != 1:
        yield f"Submission times are divided by {request.time_scale:g}."
    nodes, gpus = len(loaded.cluster.nodes), loaded.cluster.gpus
    yield f"Cluster: {loaded.cluster.name}, {count(f'{nodes:,}', 'node')}, {count(f'{gpus:,}', 'GPU')}."
    yield from _said_of_nodes(loaded)
    yield from map(_said_of_costs, _costs(request, loaded))
    saving = sum(job.spec.preemptible for job in workload.jobs)
    yield f"{saving:,} of {len(workload.jobs):,} jobs save their state and may be stopped for others."
    types = sorted({gpu.type for node in loaded.cluster.nodes for gpu in node.gpus})
    for gap in gaps_of(loaded.world, loaded.workload.jobs, types):
        yield f"Not known: {gap}."


def _said_of_nodes(loaded: Loaded) -> Iterator[str]:
    counts = Counter(str(event.kind) for event in loaded.cluster.events)
    if counts:
        yield f"Node events: {', '.join(f'{counts[kind]:,} {kind}' for kind in sorted(counts))}."


def _said_of_costs(costs: Mapping[str, Any]) -> str:
    times = [f"{name} {costs[f'{name}_s']:g} s" for name in ("launch", "restart", "stop", "park", "switch")]
    nodes = count(f"{costs['nodes']:,}", "node")
    return f"Costs on {nodes}: {', '.join(times)}; memory moves at {costs['to_host_bytes_per_s'] / 1e9:g} GB/s."


def seed_notes(request: Request, seeds: int) -> Iterator[str]:
    """What people should know of several seeds."""
    from colane.simulate.generators import is_generator  # noqa: PLC0415 - imported late

    if seeds > 1 and not is_generator(request.trace) and request.belief != "profiled":
        yield "All seeds are alike: the trace is no generator's, and no noise is drawn."


def story_lines(stories: Mapping[str, Story]) -> Iterator[str]:
    """What each policy did with the job whose story was asked for."""
    for policy, story in stories.items():
        yield from ("", f"job {story.job} under {policy}:", *lines(story.chapters))

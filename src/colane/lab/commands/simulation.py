"""What is said of a simulation besides its numbers: inputs, notes, progress."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final

from colane.lab.simulate.beliefs import describe
from colane.lab.simulate.config import described
from colane.lab.simulate.driver import Driver
from colane.lab.simulate.gaps import gaps_of
from colane.lab.simulate.generators import is_generator
from colane.lab.simulate.request import Loaded, Request
from colane.lab.simulate.watchers import Story, lines
from colane.lab.traces.costs import Costs
from colane.lab.traces.units import odd_units
from colane.model.words import count

WENT_WELL: Final = frozenset({"completed", "pass", "passed", "succeeded", "success", "terminated"})
"""What traces call a job that did what it was to do."""


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
            task = bar.add_task(policy, total=driver.total, rate="")

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
    yield f"World: {loaded.world.name}."
    yield f"Belief: {describe(request.belief, request.noise)}."
    workload = loaded.workload
    guessed = ", as its content suggests" if workload.guessed else ""
    times = f", times as {workload.times}" if workload.times else ""
    source = workload.source or workload.name
    yield f"Workload: {count(f'{len(workload.jobs):,}', 'job')} of {source}, read as {workload.format}{guessed}{times}."
    for said in (*workload.said, *odd_units(workload)):
        yield f"Workload: {said}."
    ended = Counter(job.outcome for job in workload.jobs if job.outcome and job.outcome.lower() not in WENT_WELL)
    if ended:
        told = ", ".join(f"{many:,} {outcome}" for outcome, many in ended.most_common())
        yield f"Workload: recorded as {told}; here each runs as long as it did there, once, and succeeds."
    if request.time_scale != 1:
        yield f"Submission times are divided by {request.time_scale:g}."
    nodes, gpus = len(loaded.cluster.nodes), loaded.cluster.gpus
    yield f"Cluster: {loaded.cluster.name}, {count(f'{nodes:,}', 'node')}, {count(f'{gpus:,}', 'GPU')}."
    counts = Counter(str(event.kind) for event in loaded.cluster.events)
    if counts:
        yield f"Node events: {', '.join(f'{counts[kind]:,} {kind}' for kind in sorted(counts))}."
    yield from map(_said_of_costs, _costs(request, loaded))
    saving = sum(job.spec.preemptible for job in workload.jobs)
    yield f"{saving:,} of {count(f'{len(workload.jobs):,}', 'job')} save their state and may be stopped for others."
    types = sorted({gpu.type for node in loaded.cluster.nodes for gpu in node.gpus})
    for gap in gaps_of(loaded.world, loaded.workload.jobs, types):
        yield f"Not known: {gap}."


def _said_of_costs(costs: Mapping[str, Any]) -> str:
    times = [f"{name} {costs[f'{name}_s']:g} s" for name in ("launch", "restart", "stop", "park", "switch")]
    nodes = count(f"{costs['nodes']:,}", "node")
    return f"Costs on {nodes}: {', '.join(times)}; memory moves at {costs['to_host_bytes_per_s'] / 1e9:g} GB/s."


def seed_notes(request: Request, seeds: int) -> Iterator[str]:
    """What people should know of several seeds."""
    if seeds > 1 and not is_generator(request.trace) and request.belief != "profiled":
        yield "All seeds are alike: the trace is no generator's, and no noise is drawn."


def story_lines(stories: Mapping[str, Story]) -> Iterator[str]:
    """What each policy did with the job whose story was asked for."""
    for policy, story in stories.items():
        yield from ("", f"job {story.job} under {policy}:", *lines(story.chapters))

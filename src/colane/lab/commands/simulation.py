"""What is said of a simulation besides its numbers: inputs, notes, progress."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final

from colane.lab.simulate.beliefs import describe
from colane.lab.simulate.config import described
from colane.lab.simulate.driver import Driver
from colane.lab.simulate.generators import is_generator
from colane.lab.simulate.request import Loaded, Request
from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import SpeedTable, somewhere, type_in
from colane.lab.simulate.watchers import Story, lines
from colane.lab.simulate.world import World
from colane.lab.traces.costs import Costs
from colane.lab.traces.units import odd_units
from colane.lab.traces.workload import TraceJob
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


NAMED_MAX = 3


def gaps_of(world: World, jobs: Sequence[TraceJob], gpu_types: Sequence[str]) -> Iterator[str]:
    """What tables do not say of a workload, and what is taken instead: one sentence for each, by name."""
    without = [job.spec.name for job in jobs if job.steps is None and job.duration_s is None]
    if without:
        they = "it is" if len(without) == 1 else f"these {len(without):,} jobs are"
        yield (
            f"{_named(without)}: neither duration nor steps, so {they} refused; declare one of them, or name "
            "tables with validation curves of the application (--tables)"
        )
    if not isinstance(world, TableWorld):
        return
    kinds = {(job.model, job.batch_size, job.spec.gpus): job for job in jobs if job.spec.gpus}
    known = [job for job in kinds.values() if any(table.knows(job) for table in world.tables)]
    yield from _strangers(world.tables, jobs)
    for kind in gpu_types:
        yield from _type(world.tables, known, kind)
    yield from _zeros(world.tables, known, gpu_types)


def _strangers(tables: Sequence[SpeedTable], jobs: Iterable[TraceJob]) -> Iterator[str]:
    """Jobs no table knows, by model."""
    lost = [job for job in jobs if job.spec.gpus and not any(table.knows(job) for table in tables)]
    timed = Counter(_kind(job) for job in lost if job.duration_s is not None)
    untimed = Counter(_kind(job) for job in lost if job.duration_s is None and job.steps is not None)
    if timed:
        yield f"{_named(timed)}: in no table; their jobs ({timed.total():,}) go as fast alone as recorded"
    if untimed:
        yield f"{_named(untimed)}: in no table, and their jobs ({untimed.total():,}) have no durations: refused"


def _type(tables: Sequence[SpeedTable], known: Sequence[TraceJob], gpu_type: str) -> Iterator[str]:
    """A GPU type no table of these jobs has."""
    lost = [job for job in known if job.spec.gpu_type in (None, gpu_type)]
    theirs = sorted({kind for table in tables for job in lost if table.knows(job) for kind in table.gpu_types})
    if theirs and type_in(gpu_type, theirs) is None:
        named = _named(theirs)
        yield f"{gpu_type}: no table has it, only {named}; jobs go there as recorded, else as on the fastest"


def _zeros(tables: Sequence[SpeedTable], known: Iterable[TraceJob], gpu_types: Sequence[str]) -> Iterator[str]:
    """Throughputs of 0, and jobs measured on other types alone."""
    for kind in gpu_types:
        zero = []
        for job in known:
            found = (table.alone(somewhere(job, kind)) for table in tables)
            zero += [_kind(job)] if next((speed for speed in found if speed is not None), None) == 0.0 else []
        if zero:
            yield f"{_named(zero)}: throughput 0 or none on {kind}, though measured elsewhere: taken not to fit there"


def _kind(job: TraceJob) -> str:
    batch = "" if job.batch_size is None else f" b{job.batch_size}"
    return f"{job.model}{batch}" if job.spec.gpus == 1 else f"{job.model}{batch} on {job.spec.gpus}"


def _named(names: Iterable[str]) -> str:
    """`a, b, c and 4 more`."""
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - NAMED_MAX
    return ", ".join(distinct[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

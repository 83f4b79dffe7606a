"""What tables do not say of a workload, and what is taken instead: each said once, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from colane.lab.simulate.table_world import TableWorld
from colane.lab.simulate.tables import SpeedTable, somewhere, type_in
from colane.lab.simulate.world import World
from colane.lab.traces.workload import TraceJob

NAMED_MAX = 3


def gaps_of(world: World, jobs: Sequence[TraceJob], gpu_types: Sequence[str]) -> Iterator[str]:
    """One sentence for each gap."""
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

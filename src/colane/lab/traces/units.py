"""Numbers of a workload that are more likely to be in another unit than the one they were read in.

Nothing but a name says the unit of a column, so what is judged are relations that a wrong factor breaks: how long a
step takes, how long jobs run against the time over which they are submitted, and what jobs ask for against the largest
machines there are. The bounds leave out every public trace that was at hand by a factor of five or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from statistics import median

from colane.lab.traces.contents import DAY_S, time
from colane.lab.traces.workload import TraceJob, Workload

JOBS_MIN = 10  # fewer jobs say too little of what is usual among them
LONG_S, SHORT_S = 100 * DAY_S, 1.0
"""Training jobs of which half run longer, or for less, are more likely to be in another unit."""

STEP_MAX_S, STEP_MIN_S = 10.0, 0.002  # the same, where half of them take longer for a step, or less
WINDOW_MEDIAN_MAX, WINDOW_LONGEST_MAX = 20, 100
"""The same, where half of them, or one, run for so many times as long as all of them take to be submitted."""

WINDOW_MAX_S = 5 * 365 * DAY_S  # the same, where they are submitted over a longer time
BUSY_MIN = 0.05
"""The same, where all of them together keep less than this part busy of the GPUs that the largest asks for."""

GPUS_MIN_MAX = 32  # the same, where none of them asks for fewer GPUs than that, or as few
CORES_MAX = 128
"""The same, where half of them ask for more cores for each GPU: largest nodes have as many for all of theirs."""

MEMORY_MAX_BYTES, MEMORY_MIN_BYTES = 1 << 40, 1 << 26
"""The same, where half of them ask for more memory for each GPU, or for less in all."""

RATIO_MIN = 0.02  # the same, where half of them ask for less of a GPU
STEPS_MAX = 50_000_000  # the same, where half of them have more steps
NODES = "nodes"  # label of the number of nodes a job lay on, where a log says it
SMALLER, LARGER = "in a smaller unit", "in a larger unit"


def odd_units(workload: Workload) -> tuple[str, ...]:
    """Say, a line each, which numbers seem to be in another unit than they were read in, and why."""
    found = (rule(workload.jobs) for rule in (_durations, _submissions, _gpus, _nodes, _parts, _cores, _memory, _steps))
    return (*workload.doubts, *(line for line in found if line is not None))


def _durations(jobs: Sequence[TraceJob]) -> str | None:
    known = [job.duration_s for job in jobs if job.duration_s is not None and isfinite(job.duration_s)]
    if not known:
        return None
    half_s = median(known)
    if half_s > LONG_S:
        return f"half of the jobs run for {time(half_s)} or longer: their duration may be {SMALLER}"
    if half_s < SHORT_S and max(known) > 0:
        return f"half of the jobs run for {time(half_s)} or less: their duration may be {LARGER}"
    if len(known) < JOBS_MIN:
        return None
    return _step_times(jobs) or _against_window(jobs, half_s, max(known))


def _step_times(jobs: Sequence[TraceJob]) -> str | None:
    steps = [(job.duration_s, job.spec.steps_total) for job in jobs if job.spec.steps_total]
    took_s = [duration_s / many for duration_s, many in steps if duration_s and isfinite(duration_s) and many]
    if len(took_s) < JOBS_MIN:
        return None
    half_s = median(took_s)
    if half_s > STEP_MAX_S:
        return f"half of the jobs take {time(half_s)} or longer for a step: their duration may be {SMALLER}"
    if half_s < STEP_MIN_S:
        return f"half of the jobs take {time(half_s)} or less for a step: their duration may be {LARGER}"
    return None


def _against_window(jobs: Sequence[TraceJob], half_s: float, most_s: float) -> str | None:
    span_s = _span_s(jobs)
    if not span_s:
        return None
    runs = f"all {len(jobs):,} jobs are submitted within {time(span_s)}, and"
    other = f"durations may be {SMALLER}, or submissions {LARGER}"
    if half_s > WINDOW_MEDIAN_MAX * span_s:
        return f"{runs} half of them run for {time(half_s)} or longer: {other}"
    if most_s > WINDOW_LONGEST_MAX * span_s:
        return f"{runs} the longest runs for {time(most_s)}: {other}"
    return None


def _submissions(jobs: Sequence[TraceJob]) -> str | None:
    """Jobs that come so far apart that they hardly use what the largest of them needs at once."""
    span_s = _span_s(jobs)
    if len(jobs) >= JOBS_MIN and span_s > WINDOW_MAX_S:
        years = f"{span_s / (365 * DAY_S):,.3g} years"
        return f"{len(jobs):,} jobs are submitted over {years}: the times of submission may be {SMALLER}"
    asked = [job for job in jobs if job.duration_s is not None and isfinite(job.duration_s) and job.spec.gpus]
    if len(asked) < JOBS_MIN or not span_s:
        return None
    most = max(job.spec.gpus for job in asked)
    busy = sum(job.spec.gpus * job.gpu_ratio * (job.duration_s or 0.0) for job in asked) / span_s
    if busy >= BUSY_MIN * most:
        return None
    return (
        f"{len(asked):,} jobs keep {busy:.2g} GPUs busy over {time(span_s)}, and the largest asks for {most:,}: "
        f"the times of submission may be {SMALLER}, or durations {LARGER}"
    )


def _span_s(jobs: Sequence[TraceJob]) -> float:
    submitted_s = [job.submit_s for job in jobs if isfinite(job.submit_s)]
    return max(submitted_s) - min(submitted_s) if submitted_s else 0.0


def _gpus(jobs: Sequence[TraceJob]) -> str | None:
    asked = [job.spec.gpus for job in jobs if job.spec.gpus]
    if len(asked) < JOBS_MIN or min(asked) <= GPUS_MIN_MAX:
        return None
    return f"no job asks for fewer than {min(asked):,} GPUs: their number may be {SMALLER}, such as thousandths"


def _nodes(jobs: Sequence[TraceJob]) -> str | None:
    known = [(int(job.spec.labels.get(NODES, "1")), job.spec.gpus) for job in jobs if job.spec.gpus]
    more = [nodes for nodes, gpus in known if nodes > gpus]
    if len(known) < JOBS_MIN or 2 * len(more) <= len(known):
        return None
    jobs_so = f"{len(more):,} of {len(known):,} jobs have more nodes than GPUs"
    return f"{jobs_so}, up to {max(more):,}: one may be another number"


def _parts(jobs: Sequence[TraceJob]) -> str | None:
    half = _half([job.gpu_ratio for job in jobs if job.spec.gpus])
    if half is None or half >= RATIO_MIN:
        return None
    return f"half of the jobs ask for {half:.2g} of a GPU or less: the part may be {LARGER}"


def _cores(jobs: Sequence[TraceJob]) -> str | None:
    half = _half(job.spec.cores / max(1, job.spec.gpus) for job in jobs if job.spec.cores)
    if half is None or half <= CORES_MAX:
        return None
    return f"half of the jobs ask for {half:,.0f} cores or more for each GPU: their number may be {SMALLER}"


def _memory(jobs: Sequence[TraceJob]) -> str | None:
    of: dict[str, Callable[[TraceJob], float]] = {
        "host memory": lambda job: job.spec.host_memory_bytes / max(1, job.spec.gpus),
        "GPU memory": lambda job: float(job.spec.gpu_memory_bytes or 0),
    }
    return next((line for what, bytes_of in of.items() for line in _odd_memory(what, map(bytes_of, jobs))), None)


def _odd_memory(what: str, asked: Iterable[float]) -> Iterator[str]:
    half = _half(filter(None, asked))
    if half is not None and half > MEMORY_MAX_BYTES:
        amount = f"{half / (1 << 40):,.3g} TiB of {what}"
        yield f"half of the jobs ask for {amount} or more for each GPU: it may be {SMALLER}"
    elif half is not None and half < MEMORY_MIN_BYTES:
        yield f"half of the jobs ask for {half / (1 << 20):,.3g} MiB of {what} or less: it may be {LARGER}"


def _steps(jobs: Sequence[TraceJob]) -> str | None:
    half = _half([job.spec.steps_total for job in jobs if job.spec.steps_total])
    if half is None or half <= STEPS_MAX:
        return None
    return f"half of the jobs have {half:,.0f} steps or more: they may be {SMALLER}"


def _half(values: Iterable[float]) -> float | None:
    """The median, None of too few to say what is usual."""
    known = list(values)
    return median(known) if len(known) >= JOBS_MIN else None

"""How much of what it asked for a job has used, and what it could ask for instead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from colane.api.seeing import EfficiencyAnswer, EfficiencyNoteObject, UsedOfAskedObject
from colane.facts.job import ran_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobKind, JobState
from colane.model.words import count, percent
from colane.server.board.read_model import NodeRecord
from colane.server.samples.codec import Column
from colane.server.samples.keeper import Columns
from colane.server.store.attempts import AttemptRecord
from colane.server.views.timeline import spans_of

SHORT_S: Final = 60.0  # of a job that ran less, starting it was most of what was seen

MARGIN: Final = 1.2  # what a job used most, and this much room, is what it is told to ask for

LITTLE_RATIO: Final = 0.5
LITTLE_TIME_RATIO: Final = 0.25
FULL_RATIO: Final = 0.95
GB: Final = 10**9


def efficiency(
    job: Job,
    attempts: tuple[AttemptRecord, ...],
    columns: Columns,
    nodes: Mapping[str, NodeRecord],
    now_s: float,
    *,
    cores_useful: int | None = None,
) -> EfficiencyAnswer:
    """Return how much of what it asked for a job has used so far, or did until it ended.

    Args:
        job: Live or ended.
        attempts: What is known of its attempts.
        columns: Its samples since its first start.
        nodes: As they are now: of devices that are gone since, no memory is known.
        now_s: The time.
        cores_useful: Fewest cores with which it is as fast as with any that was tried; None while unknown.
    """
    whole_s = sum(part.run_s for part in job.totals.served) + ran_s(job, now_s if job.end_s is None else job.end_s)
    rows = list(_rows(job, attempts, columns, nodes, now_s))
    is_short = whole_s < SHORT_S
    by = {row["what"]: row for row in rows}
    notes = [] if is_short else list(_notes(job, by, cores_useful, has_stepped=bool(_most(columns["steps_per_s"]))))
    return {"id": job.id, "ran_s": round(whole_s, 3), "is_short": is_short, "rows": rows, "notes": notes}


def _rows(
    job: Job, attempts: tuple[AttemptRecord, ...], columns: Columns, nodes: Mapping[str, NodeRecord], now_s: float
) -> Iterator[UsedOfAskedObject]:
    gpus = job.gpu_count
    if gpus:
        busy = _mean(columns["busy_ratio"])
        yield _row("gpu", None if busy is None else busy * gpus, float(gpus), "devices")
        declared = job.spec.gpu_memory_bytes
        whole = _devices_bytes(attempts, nodes) if declared is None else declared * gpus
        yield _row("gpu-memory", _most(columns["device_bytes"]), whole, "bytes")
    booked = len(job.placement.cores) if job.placement is not None else 0
    yield _row("cores", _mean(columns["cpu_cores"]), float(booked or job.spec.cores) or None, "cores")
    yield _row("host-memory", _most(columns["host_bytes"]), float(job.spec.host_memory_bytes) or None, "bytes")
    yield _row("time", round(ran_s(job, now_s if job.end_s is None else job.end_s), 3), job.effective.time_limit_s, "s")


def _row(what: str, used: float | None, asked: float | None, unit: str) -> UsedOfAskedObject:
    ratio = None if used is None or not asked else round(used / asked, 4)
    return {
        "what": what,
        "used": None if used is None else round(used, 4),
        "asked": asked,
        "ratio": ratio,
        "unit": unit,
    }


def _devices_bytes(attempts: tuple[AttemptRecord, ...], nodes: Mapping[str, NodeRecord]) -> float | None:
    """Memory of the devices it had last; None where one of them is not known any more."""
    spans = spans_of(attempts)
    total = 0
    for text in spans[-1].gpus if spans else ():
        node, _, number = text.rpartition("/")
        gpu = GpuId(*(node, int(number)))
        record = nodes.get(gpu.node)
        sizes = [one.memory_bytes for one in record.node.gpus if one.index == gpu.number] if record is not None else []
        if not sizes:
            return None
        total += sizes[0]
    return float(total) or None


def _mean(values: Column) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _most(values: Column) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else None


# -- what to ask for


def _notes(
    job: Job, by: Mapping[str, UsedOfAskedObject], cores_useful: int | None, *, has_stepped: bool
) -> Iterator[EfficiencyNoteObject]:
    """What costs others most first."""
    if job.spec.kind is not JobKind.INFERENCE and "gpu" in by:
        yield from _of_gpus(job, by["gpu"]["ratio"], has_stepped=has_stepped)
    yield from _of_gpu_memory(job, by)
    yield from _of_cores(by["cores"], cores_useful)
    yield from _of_host_memory(by["host-memory"])
    yield from _of_time(job, by["time"])


def _note(what: str, sentence: str, flag: str = "") -> EfficiencyNoteObject:
    return {"what": what, "sentence": sentence, "flag": flag}


def _of_gpus(job: Job, ratio: float | None, *, has_stepped: bool) -> Iterator[EfficiencyNoteObject]:
    if ratio is None:
        return
    gpus, used = job.gpu_count, f"kept its {_gpus(job)} busy for {percent(ratio)} of the time"
    fewer = max(1, math.ceil(ratio * gpus * MARGIN))
    if ratio < 0.005 and has_stepped:
        yield _note("gpu", f"it made steps, and kept its {_gpus(job)} busy for less than 1 % of the time")
    elif ratio < 0.005:
        yield _note("gpu", f"it has run nothing on its {_gpus(job)}: ask for none", "--gpus 0")
    elif fewer < gpus:
        yield _note("gpu", f"it {used}: ask for {fewer}", f"--gpus {fewer}")
    elif ratio < LITTLE_RATIO and not job.spec.share:
        yield _note("gpu", f"it {used}, and no other job was let on it: leave --no-share out")
    elif ratio < LITTLE_RATIO:
        yield _note("gpu", f"it {used}: more workers for its data, or a larger batch, may make it faster")


def _gpus(job: Job) -> str:
    return "GPU" if job.gpu_count == 1 else count(job.gpu_count, "GPU")


def _of_gpu_memory(job: Job, by: Mapping[str, UsedOfAskedObject]) -> Iterator[EfficiencyNoteObject]:
    row, declared = by.get("gpu-memory"), job.spec.gpu_memory_bytes
    if row is None or row["used"] is None or row["ratio"] is None or declared is None:
        return
    if row["ratio"] < LITTLE_RATIO and declared > GB:
        asked = _gigabytes(row["used"] / job.gpu_count)
        said = f"it used {percent(row['ratio'])} of the GPU memory that it asked for"
        yield _note("gpu-memory", f"{said}: ask for {asked}", f"--gpu-memory {asked}")


def _of_cores(row: UsedOfAskedObject, useful: int | None) -> Iterator[EfficiencyNoteObject]:
    used, asked, ratio = row["used"], row["asked"], row["ratio"]
    if used is None or asked is None or ratio is None:
        return
    fewer = max(1, math.ceil(used * MARGIN)) if useful is None else useful
    if ratio < LITTLE_RATIO and fewer < asked:
        said = f"it kept {used:.1f} of its {count(round(asked), 'core')} busy"
        yield _note("cores", f"{said}: ask for {fewer}", f"--cores {fewer}")
    elif ratio > FULL_RATIO and useful is None:
        more = math.ceil(asked * 1.5)
        said = f"it kept all of its {count(round(asked), 'core')} busy" if asked > 1 else "it kept its core busy"
        yield _note("cores", f"{said}: with {more} it may be faster", f"--cores {more}")


def _of_host_memory(row: UsedOfAskedObject) -> Iterator[EfficiencyNoteObject]:
    used, asked, ratio = row["used"], row["asked"], row["ratio"]
    if used is None or asked is None or ratio is None:
        return
    instead = _gigabytes(used)
    if ratio < LITTLE_RATIO and asked > GB:
        said = f"it used {percent(ratio)} of the host memory that it asked for"
        yield _note("host-memory", f"{said}: ask for {instead}", f"--host-memory {instead}")
    elif ratio > FULL_RATIO:
        said = f"it used {percent(ratio)} of the host memory that it asked for, and is ended above that"
        yield _note("host-memory", f"{said}: ask for {instead}", f"--host-memory {instead}")


def _of_time(job: Job, row: UsedOfAskedObject) -> Iterator[EfficiencyNoteObject]:
    used, limit_s, ratio = row["used"], row["asked"], row["ratio"]
    if used is None or limit_s is None or ratio is None:
        return
    if job.state is JobState.TIMED_OUT:
        more = _minutes(2 * limit_s)
        yield _note("time", f"it was ended by its time limit: ask for more, as {more}", f"--time-limit {more}")
    elif job.state is JobState.SUCCEEDED and ratio < LITTLE_TIME_RATIO:
        less = _minutes(used * 1.5)
        said = f"it took {percent(ratio)} of its time limit: with {less} it may start earlier"
        yield _note("time", said, f"--time-limit {less}")


def _gigabytes(size: float) -> str:
    """What to ask for where so much was used: whole gigabytes, a tenth of one below that."""
    wanted = size * MARGIN / GB
    return f"{math.ceil(wanted)}GB" if wanted > 1 else f"{max(1, math.ceil(wanted * 10)) * 100}MB"


def _minutes(seconds: float) -> str:
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes}m" if minutes < 180 else f"{math.ceil(minutes / 60)}h"

"""Alibaba's `openb` pods of 2023 (Weng et al., ATC 2023), CC-BY-4.0: `openb_pod_list_*.csv`.

Of github.com/alibaba/clusterdata, `cluster-trace-gpu-v2023`. Times are seconds from the trace's start. A pod asks for
`gpu_milli` thousandths of each of its GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from colane.lab.traces import cells
from colane.lab.traces.layout import Header
from colane.lab.traces.readers.assemble import MIB, Columns, Options, assemble, of_any, span
from colane.lab.traces.sheet import Sheet, read_sheet
from colane.lab.traces.workload import GPU_SPEC, SEVERAL, Note, TraceJob, Workload
from colane.model.job import JobId, JobSpec
from colane.model.words import count

NAME = "alibaba-2023"
FAMILY = "openb"  # the trace does not say what a pod runs
MILLI = 1000
CPU_MILLI_LEAST = 250
"""Where half of the pods ask for less, the column is more likely in whole cores: no pod of the trace asks for less
than 1,000."""

LAYOUTS = (
    Header(
        read=(
            "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
            "creation_time", "deletion_time", "scheduled_time",
        ),
    ),
    Header(read=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), optional=("gpu_spec",)),
)  # fmt: skip


def read(path: Path, text: str, options: Options) -> Workload:
    """Read a pod list: duration is deletion - scheduling; pods never scheduled are left out and counted.

    A `gpu_spec` of one type is the type the job needs; one of several cannot be said of a job, and is counted.

    A list of the first five columns, with or without `gpu_spec`, has no times: its pods are submitted at once, and of
    unknown duration. Raises InputFileError: a missing column, a bad or duplicate row (unless rows may be skipped), no
    jobs.
    """
    sheet = read_sheet(path, text, skip_bad_rows=options.skip_bad_rows)
    names = sheet.unique_names("name")
    gpus, submit_s = sheet.column("num_gpu", cells.count), sheet.column_or("creation_time", cells.seconds, 0.0)
    specs, ratios, duration_s = _specs(sheet, names, gpus), sheet.column("gpu_milli", _ratio), _durations(sheet)
    phases, has_times = sheet.column_or("pod_phase", str, ""), "creation_time" in sheet

    def make(id_: JobId, row: int, submit_s: float) -> TraceJob:
        return TraceJob(
            id=id_, submit_s=submit_s, spec=specs[row], duration_s=duration_s[row], gpu_ratio=ratios[row],
            outcome=phases[row], line=sheet.lines[row],
        )  # fmt: skip

    good = list(sheet.good())
    ran = [row for row in good if duration_s[row] is not None] if has_times else good
    workload = assemble(sheet, NAME, Columns(names, submit_s, gpus), make, options, rows=ran)
    parts = sum(job.gpu_ratio < 1 for job in workload.jobs)
    several = sum(GPU_SPEC in job.spec.labels for job in workload.jobs)
    notes = workload.notes + of_any(
        Note(several, "pod", "that may have one of several GPU types (label gpu_spec), which is not enforced"),
        Note(len(good) - len(ran), "pod", "never scheduled, left out"),
        Note(0 if has_times else len(ran), "pod", "of a list without times: submitted at once, of unknown duration"),
        Note(parts, "pod", "with a part of a GPU (gpu_ratio)"),
    )
    return replace(workload, notes=notes, doubts=tuple(_doubts(sheet, ran)))


def _doubts(sheet: Sheet, ran: Sequence[int]) -> Iterator[str]:
    made_s = sheet.column_or("creation_time", cells.seconds, 0.0)
    placed_s = sheet.column_or("scheduled_time", cells.optional(cells.seconds), None)
    early = sum(placed is not None and placed < made for made, placed in ((made_s[row], placed_s[row]) for row in ran))
    if 2 * early > len(ran):
        pods = f"{early:,} of {len(ran):,} pods are scheduled before they are created"
        yield f"{pods}: creation_time or scheduled_time may be in another unit"
    cpu_milli = sheet.column("cpu_milli", cells.count)
    half_milli = median(asked) if (asked := [cpu_milli[row] for row in ran if cpu_milli[row]]) else CPU_MILLI_LEAST
    if half_milli < CPU_MILLI_LEAST:
        half = f"half of the pods ask for {half_milli:g} thousandths of a core or less"
        yield f"{half}: cpu_milli may be in a larger unit, such as whole cores"
    gpus, parts = sheet.column("num_gpu", cells.count), sheet.column("gpu_milli", str)
    none = sum(bool(gpus[row]) and parts[row] == "0" for row in ran)
    if none:
        pods = count(f"{none:,}", "pod")
        yield f"{pods} with GPUs and a gpu_milli of 0, taken as whole ones: it may be in another unit"


def _specs(sheet: Sheet, names: list[str], gpus: list[int]) -> list[JobSpec]:
    cpu_milli = sheet.column("cpu_milli", cells.count)
    memory_mib = sheet.column("memory_mib", cells.count)
    types, qos = sheet.column_or("gpu_spec", str, ""), sheet.column_or("qos", str, "")
    good = set(sheet.good())
    # Cores are booked whole, so a part of one counts as one.
    return [
        JobSpec(
            name=names[row], family=FAMILY, gpus=gpus[row], cores=-(-cpu_milli[row] // MILLI),
            host_memory_bytes=memory_mib[row] * MIB,
            # A job of ours has one type: several that a pod may have are kept as a label.
            gpu_type=types[row] if types[row] and SEVERAL not in types[row] else None,
            labels=({"qos": qos[row]} if qos[row] else {}) | ({GPU_SPEC: types[row]} if SEVERAL in types[row] else {}),
        ) if row in good else JobSpec(name="", family="")
        for row in range(len(sheet))
    ]  # fmt: skip


def _ratio(text: str) -> float:
    return cells.ratio(str(cells.count(text) / MILLI)) if text not in {"", "0"} else 1.0


def _durations(sheet: Sheet) -> list[float | None]:
    start_s = sheet.column_or("scheduled_time", cells.optional(cells.seconds), None)
    end_s = sheet.column_or("deletion_time", cells.optional(cells.seconds), None)
    times = zip(start_s, end_s, strict=True)
    return [
        None if start is None or end is None else span(sheet, row, start, end, "deletion_time")
        for row, (start, end) in enumerate(times)
    ]

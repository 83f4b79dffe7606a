"""C and M of a job from a kernel profiler: what torch.profiler (Kineto) and Nsight Compute say of each launch.

Paper A, eqs. 4.2 and 4.3: M = sum of p_i t_i and C = sum of q_i t_i over the kernels of two training steps, p_i
the percentage of memory bandwidth used, q_i the percentage of achieved occupancy, t_i the duration in us.
Everything here is a function of a text; nothing is run.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

BY_KINETO: Final = "torch.profiler"
BY_NCU: Final = "ncu"

STEPS_COUNTED: Final = 2  # the paper's histograms and sums are over two steps

NCU_DURATION: Final = "gpu__time_duration.sum"
NCU_OCCUPANCY: Final = "sm__warps_active.avg.pct_of_peak_sustained_active"
NCU_BANDWIDTH: Final = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
NCU_METRICS: Final = (NCU_DURATION, NCU_OCCUPANCY, NCU_BANDWIDTH)
NCU_OPTIONS: Final = (
    "--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off", "--metrics",
    ",".join(NCU_METRICS),
)  # fmt: skip
"""Options of `ncu` whose output `parse_ncu` reads; the job starts and stops the profiler around its two steps."""

US_PER_UNIT: Final = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6,
}  # fmt: skip
"""Microseconds in each unit that ncu writes, by its older and newer names."""

_OCCUPANCY_PERCENT = "est. achieved occupancy %"
_OCCUPANCY_RATIO = "est. achieved occupancy"  # what PyTorch before 1.9 wrote, 0 to 1

_STEP_NAME = re.compile(r"ProfilerStep#\d+")
TRACE_BYTES_MAX = 2**30
"""A trace of a hundred steps takes some tens of megabytes; one that is larger unpacked would fill the memory."""
_GZIP_MAGIC = b"\x1f\x8b"


class KernelTraceError(ValueError):
    """The text is not what a kernel profiler writes; says what is missing."""


class Kernel(NamedTuple):
    """One kernel launch. A percentage is None where the profiler did not give it."""

    name: str
    duration_us: float
    occupancy_percent: float | None
    bandwidth_percent: float | None


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """All kernel launches of some training steps."""

    kernels: tuple[Kernel, ...]  # in the profiler's order
    steps: int | None  # steps they belong to; None is unknown and counts as two
    by: str  # what measured them: `torch.profiler` or `ncu`

    @property
    def occupancy(self) -> float | None:
        """C of eq. 4.3, percent x us over two steps; None when no launch has an occupancy."""
        return self._weighted([kernel.occupancy_percent for kernel in self.kernels])

    @property
    def bandwidth(self) -> float | None:
        """M of eq. 4.2, percent x us over two steps; None when no launch has a bandwidth."""
        return self._weighted([kernel.bandwidth_percent for kernel in self.kernels])

    @property
    def busy_us(self) -> float:
        """Sum of kernel durations over two steps."""
        return sum(kernel.duration_us for kernel in self.kernels) * self._scale

    @property
    def occupancy_known_ratio(self) -> float:
        """Part of the kernel time whose occupancy is known; the rest counts as nothing in C."""
        whole_us = sum(kernel.duration_us for kernel in self.kernels)
        known_us = sum(kernel.duration_us for kernel in self.kernels if kernel.occupancy_percent is not None)
        return known_us / whole_us if whole_us else 0.0

    def histogram_values(self) -> dict[str, list[float]]:
        """Known percentages of each launch, for the paper's Figs 4.7 (`occupancy`) and 4.9 (`bandwidth`)."""
        return {
            "occupancy": [k.occupancy_percent for k in self.kernels if k.occupancy_percent is not None],
            "bandwidth": [k.bandwidth_percent for k in self.kernels if k.bandwidth_percent is not None],
        }

    @property
    def _scale(self) -> float:
        return STEPS_COUNTED / (self.steps or STEPS_COUNTED)

    def _weighted(self, percents: Sequence[float | None]) -> float | None:
        products = [
            percent * kernel.duration_us
            for percent, kernel in zip(percents, self.kernels, strict=True)
            if percent is not None
        ]
        return sum(products) * self._scale if products else None


def parse_kineto(text: str | bytes, steps: int | None = None) -> KernelTrace:
    """Read a Chrome trace that torch.profiler exported.

    Its occupancy is estimated from the launch's shape, and it knows no bandwidth, so it gives C alone.

    Args:
        text: The JSON text.
        steps: Training steps in it; None counts the profiler's own step marks.

    Raises:
        KernelTraceError: It is not such a trace, or it holds no kernel.
    """
    events = _kineto_events(text)
    marks = {event["name"] for event in events if _STEP_NAME.fullmatch(str(event.get("name", "")))}
    kernels = tuple(_kineto_kernel(event) for event in events if _is_kernel(event))
    if not kernels:
        raise KernelTraceError("the trace holds no GPU kernel: was ProfilerActivity.CUDA on, and a GPU used?")
    return KernelTrace(kernels, steps or len(marks) or None, BY_KINETO)


def parse_ncu(text: str, steps: int | None = None) -> KernelTrace:
    """Read what `ncu --csv --page raw` printed with the metrics of `NCU_METRICS`.

    Args:
        text: Its output; lines of ncu and of the job itself before the table are passed over.
        steps: Training steps profiled; None counts as two.

    Raises:
        KernelTraceError: There is no table, a metric is missing, or there is no kernel in it.
    """
    rows = _ncu_rows(text)
    header, units = rows[0], dict(zip(rows[0], rows[1], strict=False))
    missing = [metric for metric in (NCU_DURATION, NCU_OCCUPANCY) if metric not in header]
    if missing:
        raise KernelTraceError(f"the table has no column {missing[0]}: run ncu {' '.join(NCU_OPTIONS)}")
    us = US_PER_UNIT.get(units[NCU_DURATION])
    if us is None:
        raise KernelTraceError(f"column {NCU_DURATION} is in unknown unit {units[NCU_DURATION]!r}")
    kernels = tuple(
        _ncu_kernel(dict(zip(header, row, strict=False)), us) for row in rows[2:] if len(row) >= len(header)
    )
    if not kernels:
        raise KernelTraceError("ncu profiled no kernel: did the job call torch.cuda.profiler.start()?")
    return KernelTrace(kernels, steps, BY_NCU)


def read_trace(path: Path, steps: int | None = None) -> KernelTrace:
    """Read a file of either profiler, compressed or not, told apart by what is in it.

    Raises:
        KernelTraceError: It is neither.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            raw = file.read(TRACE_BYTES_MAX + 1)  # a megabyte of gzip may stand for a gigabyte
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise KernelTraceError(f"{path} is cut short or damaged: {error}") from error
    if len(raw) > TRACE_BYTES_MAX:
        raise KernelTraceError(f"{path} is larger than {TRACE_BYTES_MAX >> 20} MiB; profile fewer steps")
    text = raw.decode("utf-8", errors="replace")
    return parse_kineto(text, steps) if text.lstrip()[:1] in ("{", "[") else parse_ncu(text, steps)


def _kineto_events(text: str | bytes) -> list[Mapping[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise KernelTraceError(f"the trace is not JSON: {error}") from error
    events = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(events, list):
        raise KernelTraceError("the trace has no list traceEvents; export it with export_chrome_trace")
    return [event for event in events if isinstance(event, dict)]


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("ph") == "X" and str(event.get("cat", "")).lower() == "kernel"


def _kineto_kernel(event: Mapping[str, Any]) -> Kernel:
    duration_us = _number(event.get("dur"))
    if duration_us is None or duration_us < 0:
        raise KernelTraceError(f"kernel {str(event.get('name'))[:80]!r} has no duration")
    return Kernel(str(event.get("name", "")), duration_us, _kineto_occupancy(event.get("args") or {}), None)


def _kineto_occupancy(arguments: Mapping[str, Any]) -> float | None:
    """The estimate in percent; older builds give a ratio, and a failed estimate is negative."""
    percent = _number(arguments.get(_OCCUPANCY_PERCENT))
    ratio = _number(arguments.get(_OCCUPANCY_RATIO))
    if percent is None and ratio is not None:
        percent = ratio * 100
    return percent if percent is not None and percent >= 0 else None


def _ncu_rows(text: str) -> list[list[str]]:
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"') and '"Kernel Name"' in line), None)
    if start is None:
        raise KernelTraceError(f"there is no table of ncu in it: run ncu {' '.join(NCU_OPTIONS)}")
    rows = list(csv.reader(io.StringIO("\n".join(_table_lines(lines[start:])))))
    if len(rows) < 2 or len(rows[1]) != len(rows[0]):
        raise KernelTraceError("the table of ncu has no line of units: use --page raw")
    return rows


def _table_lines(lines: Iterable[str]) -> Iterator[str]:
    """Pass over lines that the job printed into the table."""
    return (line for line in lines if line.startswith('"'))


def _ncu_kernel(row: Mapping[str, str], us_per_unit: float) -> Kernel:
    name = row.get("Kernel Name", "")
    duration = _number(row[NCU_DURATION])
    if duration is None:
        raise KernelTraceError(f"kernel {name[:80]!r} has no duration")
    bandwidth = _number(row.get(NCU_BANDWIDTH))
    return Kernel(name, duration * us_per_unit, _number(row[NCU_OCCUPANCY]), bandwidth)


def _number(value: object) -> float | None:
    """A finite number; ncu writes thousands with commas and what it could not measure as text."""
    try:
        number = float(str(value).replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

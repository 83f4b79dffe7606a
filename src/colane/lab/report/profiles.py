"""What profiling found: tables, the paper's figures and one page, of profiles and of sets measured together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from colane.lab.report import html
from colane.lab.report.html import Chart
from colane.lab.report.measured import (
    Boundary,
    MeasuredSet,
    ThroughputCurve,
    mps_gains,
    set_points,
    short_name,
    summarise_sets,
    throughput_by_batch,
    verdict,
)
from colane.lab.report.tables import Cell, Table, TableColumn, known, number, seconds, sets_table, text
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value
from colane.model.words import count

SIZE_NAMES = {2: "pairs", 3: "triples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is reported."""

    profiles: Sequence[Profile] = ()  # of the jobs concerned
    measurements: Sequence[SetMeasurement] = ()  # of the sets concerned
    # mean step by key, where a run has just taken it
    sampled_step_s: Mapping[ProfileKey, float] = field(default_factory=dict)
    boundaries: Mapping[str, Boundary] = field(default_factory=dict)  # fitted speed-up by way of sharing
    # percentages of each kernel launch, by quantity (`occupancy`, `bandwidth`) and name of the job
    kernels: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    # f(n) by kind of job, of those that were measured on several numbers of GPUs
    scaling: Mapping[str, ThroughputCurve] = field(default_factory=dict)
    notes: Sequence[str] = ()  # what a reader must know


def profiles_table(profiles: Iterable[Profile], sampled_step_s: Mapping[ProfileKey, float]) -> Table:
    """One row for each profile; every value has its source and sample count in the column behind it."""
    columns = (
        text("job", "Job", lambda one: short_name(one.key)),
        text("gpu_type", "Device", lambda one: one.key.gpu_type),
        seconds("step_s", "Step, mean", lambda one: _number(one.step_s)),
        seconds("step_sampled_s", "Step, mean", lambda one: sampled_step_s.get(one.key)),
        seconds("step_median_s", "Step, median", lambda one: _number(one.step_median_s)),
        text("step_from", "Step from", lambda one: source_text(one.step_s)),
        TableColumn("persistent_bytes", "P", known(_size), take=lambda one: _number(one.persistent_bytes)),
        TableColumn("peak_bytes", "Peak", known(_size), take=lambda one: one.memory_bytes),
        text("memory_from", "Memory from", lambda one: source_text(one.persistent_bytes)),
        TableColumn("occupancy", "C", known("{:.3g}".format), take=lambda one: _number(one.occupancy)),
        text("occupancy_from", "C from", lambda one: source_text(one.occupancy)),
        TableColumn("bandwidth", "M", known("{:.3g}".format), take=lambda one: _number(one.bandwidth)),
        text("bandwidth_from", "M from", lambda one: source_text(one.bandwidth)),
    )
    note = (
        "P = memory held between steps, peak = P + the most within a step. C = sum of occupancy x kernel time, "
        "M = sum of memory-bandwidth use x kernel time, in percent x us over two steps (paper A, eqs 4.2, 4.3); "
        "sums of C or M mean something only among values from one source."
    )
    ordered = sorted(
        profiles, key=lambda one: (one.key.gpu_type, one.key.family, one.key.batch_size or 0, one.key.gpus)
    )
    return Table.of("profiles", "Profiles", columns, ordered, note)


def scaling_table(curves: Mapping[str, ThroughputCurve]) -> Table:
    """f(n), a row for each number of GPUs up to the largest that is known; those between are by the fit."""
    columns = (
        text("job", "Job"),
        number("gpus", "GPUs"),
        TableColumn("steps_per_s", "Steps/s", lambda cell: f"{cell:.4g}"),
        TableColumn("speedup", "Against the least", lambda cell: f"x {cell:.2f}"),
        text("source", "From"),
    )
    rows: list[tuple[Cell, ...]] = []
    for name, curve in curves.items():
        least = curve.measured[min(curve.measured)]
        for gpus, speed in sorted({**curve.believed, **curve.measured}.items()):
            rows.append((name, gpus, speed, speed / least, "profile" if gpus in curve.measured else "fitted"))
    return Table("throughput_by_gpus", "Throughput by number of GPUs, f(n)", columns, tuple(rows))


def drawings(findings: Findings) -> Iterator[Chart]:
    """The paper's figures, as far as there is something to draw."""
    from colane.lab.report import elastic_plots, profile_plots  # noqa: PLC0415 - matplotlib takes half a second

    throughputs = throughput_by_batch(findings.profiles)
    if any(len(points) > 1 for points in throughputs.values()):
        yield Chart("throughput", profile_plots.throughput(throughputs), "Samples per second, alone (Fig. 3.1).")
    if findings.scaling:
        caption = "f(n): steps per second, alone, by number of GPUs."
        yield Chart("throughput_by_gpus", elastic_plots.throughputs(findings.scaling), caption)
    sets = summarise_sets(findings.measurements)
    yield from _set_drawings(sets, findings)
    for quantity, percents in findings.kernels.items():
        named = {"occupancy": "achieved occupancy", "bandwidth": "memory bandwidth use"}.get(quantity, quantity)
        figure = profile_plots.kernel_histograms(percents, quantity=named)
        yield Chart(f"kernels_{quantity}", figure, f"Kernel launches of two steps by {named} (Figs 4.7, 4.9).")


def write(findings: Findings, out_dir: Path, *, title: str) -> tuple[Path, ...]:
    """Write `profile.html`, `profile.json` and the figures as PNG; return the paths, the page first.

    Raises OSError: the directory cannot be written.
    """
    sets = summarise_sets(findings.measurements)
    said = verdict(sets) if sets else f"{count(len(findings.profiles), 'profile')}; no set was measured together."
    profiles = profiles_table(findings.profiles, findings.sampled_step_s)
    tables = (profiles, scaling_table(findings.scaling), sets_table(sets))
    written = html.write(
        out_dir / "profile.html",
        out_dir / "profile.json",
        drawings(findings),
        lambda pictures: html.page(title, [said], tables, pictures, findings.notes),
        summary_object(findings),
    )
    return (written.html, written.summary_json, *written.figures)


def summary_object(findings: Findings) -> dict[str, Any]:
    """The same for programs."""
    sets = summarise_sets(findings.measurements)
    return {
        "profiles": profiles_table(findings.profiles, findings.sampled_step_s).records(),
        "sets": sets_table(sets).records(),
        "throughput_by_gpus": scaling_table(findings.scaling).records(),
        "verdict": verdict(sets),
        "mps_gains": [{"set": name, "gain": gain} for name, gain in mps_gains(sets)],
        "boundaries": {sharing: boundary._asdict() for sharing, boundary in findings.boundaries.items()},
        "notes": list(findings.notes),
    }


def speedups_by_batch(sets: Sequence[MeasuredSet]) -> dict[tuple[int, str], dict[str, dict[str, float]]]:
    """Deltas by (jobs in the set, way of sharing), then batch size, then the families' names.

    Sets of unequal batch sizes keep these in their names, in a series of their own.
    """
    found: dict[tuple[int, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for measured in sorted(sets, key=lambda m: [key.batch_size or 0 for key in m.keys]):
        sizes = {key.batch_size for key in measured.keys}
        size = next(iter(sizes))
        alike = len(sizes) == 1 and size is not None
        series, name = (f"batch {size}", _families(measured.keys)) if alike else ("other", measured.name)
        found[len(measured.keys), measured.sharing][series][name] = measured.delta
    return {kind: dict(series) for kind, series in sorted(found.items())}


def _set_drawings(sets: Sequence[MeasuredSet], findings: Findings) -> Iterator[Chart]:
    from colane.lab.report import profile_plots  # noqa: PLC0415 - as above

    for (jobs, sharing), deltas in speedups_by_batch(sets).items():
        named = SIZE_NAMES.get(jobs, f"sets of {jobs}")
        figure = profile_plots.speedup_bars(deltas, title=f"Speed-up of {named} ({sharing})")
        yield Chart(f"speedup_{jobs}_{sharing}", figure, f"Delta of {named} (Figs 4.3 to 4.6).")
    gains = [gain for _, gain in mps_gains(sets)]
    if gains:
        yield Chart("mps_gain", profile_plots.mps_gain_histogram(gains), "What MPS adds to delta (Fig. 4.14).")
    points = set_points(sets, findings.profiles)
    for sharing in sorted({point.sharing for point in points}):
        chosen = [point for point in points if point.sharing == sharing]
        for exact in (False, True) if all(point.bandwidth_sum is not None for point in chosen) else (False,):
            figure = profile_plots.speedup_plane(
                chosen, boundary=findings.boundaries.get(sharing), exact=exact, title=f"Speed-up by C and M ({sharing})"
            )
            key = f"plane_{sharing}{'_exact' if exact else ''}"
            yield Chart(key, figure, "Each dot is a measured set at its sums of C and M (Figs 4.11 to 4.13).")


def _families(keys: Sequence[ProfileKey]) -> str:
    counted = [(family, len(list(same))) for family, same in groupby(key.family for key in keys)]
    return " + ".join(family if count == 1 else f"{count}x {family}" for family, count in counted)


def _number(value: Value | None) -> float | None:
    return None if value is None else value.value


def source_text(value: Value | None) -> str | None:
    """Where a value comes from: `measured by nvml-gpm, 12 samples`; None of an unknown one."""
    if value is None:
        return None
    by = f" by {value.by}" if value.by else ""
    return f"{value.source.value}{by}, {count(value.samples, 'sample')}"


def _size(amount: float) -> str:
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"

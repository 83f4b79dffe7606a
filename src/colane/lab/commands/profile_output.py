"""What `colane profile` prints: progress while it measures, then numbers, tables and where the figures are."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from colane.api.jobs import JobObject
from colane.cli import output
from colane.cli.errors import writing
from colane.cli.output import ScreenColumn
from colane.client.client import Client
from colane.client.knowledge import encode_measurement, encode_profile, read_measurements, read_profiles
from colane.client.profile_session import Session
from colane.client.profiling import Subject
from colane.lab.report.measured import Boundary, ThroughputCurve, summarise_sets, verdict
from colane.lab.report.profiles import Findings, profiles_table, scaling_table, source_text, summary_object, write
from colane.lab.report.prose import duration
from colane.lab.report.tables import Table, sets_table
from colane.model.profile import Profile, SetMeasurement, Value
from colane.perf.beliefs import Beliefs
from colane.perf.scaling import fitted_step_s

CLEAR_LINE: Final = "\r\x1b[2K"
NO_BANDWIDTH: Final = "not measured: needs NVML GPM (Hopper and later) or an ncu CSV (--kernels)"
NO_OCCUPANCY: Final = (
    "not measured: needs NVML GPM (Hopper and later), a torch.profiler trace or an ncu CSV (--kernels)"
)


class Live:
    """Says on standard error what is going on: one changing line on a terminal, else a line for each new thing."""

    def __init__(self) -> None:
        self._changing = sys.stderr.isatty()
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._changing and self._said:
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()

    def tell(self, doing: str, jobs: Sequence[JobObject]) -> None:
        """Say how the jobs stand."""
        line = f"{doing}: {'; '.join(map(_standing, jobs))}" if self._changing else doing
        if line == self._said:
            return
        self._said = line
        sys.stderr.write(f"{CLEAR_LINE}{line}" if self._changing else f"{line}\n")
        sys.stderr.flush()


def report(session: Session, subjects: Sequence[Subject], out: Path | None, *, as_json: bool) -> None:
    """Print what a round of profiling found, and write page and figures where a directory is named."""
    found = findings_of(session, subjects)
    files = write_files(found, out)
    if as_json:
        output.print_json(_object(found, files, session.failures))
        return
    if session.sets or len(found.profiles) != 1:
        _print_tables(found)
    else:
        output.print_fields(_fields(found.profiles[0], found.sampled_step_s.get(found.profiles[0].key)))
    _print_rest(found, files)
    for failure in session.failures:
        output.note(f"not measured: {failure}")


def show_all(scheduler: Client, out: Path | None, *, as_json: bool) -> None:
    """Print all that is known."""
    profiles, measurements = list(read_profiles(scheduler).values()), read_measurements(scheduler)
    boundaries, notes = fit_boundaries(profiles, measurements)
    found = Findings(
        profiles=profiles, measurements=measurements, boundaries=boundaries, scaling=scaling_of(profiles), notes=notes
    )
    files = write_files(found, out)
    if as_json:
        output.print_json(_object(found, files, []))
        return
    _print_tables(found)
    _print_rest(found, files)
    if not profiles:
        output.note("nothing is profiled yet; try 'colane profile --model resnet18 --batch-size 64'")


def findings_of(session: Session, subjects: Iterable[Subject]) -> Findings:
    """Return what a round found, with the predictor fitted to all sets the scheduler knows."""
    scheduler = session.profiler.client
    known, measured = read_profiles(scheduler), read_measurements(scheduler)
    boundaries, notes = fit_boundaries(known.values(), measured) if session.sets else ({}, [])
    profiles = session.profiles(subjects)
    return Findings(
        profiles=profiles,
        scaling=scaling_of(profiles),
        measurements=session.measurements,
        sampled_step_s=session.sampled_step_s,
        boundaries=boundaries,
        notes=[*session.notes, *notes],
    )


def scaling_of(profiles: Iterable[Profile]) -> dict[str, ThroughputCurve]:
    """f(n) of each kind of job measured on several numbers of GPUs, with what is believed of those between."""
    steps_s: dict[str, dict[int, float]] = {}
    for profile in profiles:
        if profile.step_s is not None and profile.step_s.value > 0:
            kind = str(profile.key._replace(gpus=1))
            steps_s.setdefault(kind, {})[profile.key.gpus] = profile.step_s.value
    return {
        kind: ThroughputCurve.of(known, {n: fitted_step_s(known, n) for n in range(min(known), max(known) + 1)})
        for kind, known in sorted(steps_s.items())
        if len(known) > 1
    }


def fit_boundaries(
    profiles: Iterable[Profile], measurements: Iterable[SetMeasurement]
) -> tuple[dict[str, Boundary], list[str]]:
    """Fit delta over the sums of C and M for each way of sharing; say where there is too little data.

    Sets of several GPU types are not mixed: the type with the most sets is fitted.
    """
    known, measured = list(profiles), list(measurements)
    boundaries, notes = {}, []
    for sharing in sorted({m.sharing for m in measured}):
        chosen = [m for m in measured if m.sharing == sharing]
        kinds = [m.keys[0].gpu_type for m in chosen]
        kind = max(sorted(set(kinds)), key=kinds.count)
        beliefs = Beliefs(profiles=known, measurements=chosen)
        line, sets = beliefs.line(kind, sharing), len(beliefs.points(kind, sharing))
        if line is not None:
            boundaries[sharing] = Boundary(line.w0, line.w1, line.w2)
        else:
            need = beliefs.config.sets_min
            notes.append(f"no speed-up is fitted for {sharing} on {kind}: {sets} of {need} sets with known C measured")
    return boundaries, notes


def write_files(found: Findings, out: Path | None) -> list[Path]:
    """Write page and figures; nothing where no directory is named.

    Raises FailureError: the directory cannot be written.
    """
    if out is None:
        return []
    with writing(f"--out: {out}"):
        return list(write(found, out, title="Colane profiles"))


def _object(found: Findings, files: Iterable[Path], failures: Iterable[str]) -> dict[str, Any]:
    profiles = [{**encode_profile(p), "step_sampled_s": found.sampled_step_s.get(p.key)} for p in found.profiles]
    summary = summary_object(found)
    return {
        "profiles": profiles,
        "measurements": [encode_measurement(m) for m in found.measurements],
        **{name: summary[name] for name in ("sets", "verdict", "mps_gains", "boundaries", "notes")},
        "failures": list(failures),
        "files": [str(path) for path in files],
    }


def _print_tables(found: Findings) -> None:
    _print_table(profiles_table(found.profiles, found.sampled_step_s))
    if found.scaling:
        output.say()
        _print_table(scaling_table(found.scaling))
    if found.measurements:
        output.say()
        _print_table(sets_table(summarise_sets(found.measurements)))


def _print_table(table: Table) -> None:
    """Print a table without its columns that are empty in all rows."""
    texts = table.texts()
    shown = [i for i in range(len(table.columns)) if not texts or any(row[i] != output.UNKNOWN for row in texts)]
    columns = [ScreenColumn(table.columns[i].heading, table.columns[i].is_number) for i in shown]
    output.print_table(columns, [[row[i] for i in shown] for row in texts], table.title)


def _print_rest(found: Findings, files: Sequence[Path]) -> None:
    output.say()
    if found.measurements:
        output.say(verdict(summarise_sets(found.measurements)))
    for note in found.notes:
        output.say(note)
    if files:
        output.say(f"page: {files[0]}; numbers: {files[1]}; figures in {files[0].parent}: {len(files) - 2}")


def _fields(profile: Profile, sampled_s: float | None) -> list[tuple[str, str]]:
    def seconds(value: Value | None) -> str:
        return duration(None if value is None else value.value)

    persistent, peak = profile.persistent_bytes, profile.memory_bytes
    whole = None if persistent is None or peak is None else persistent._replace(value=float(peak))
    return [
        ("profile", str(profile.key)),
        ("step time", f"{duration(sampled_s)} (mean of its steps)"),
        ("", f"{seconds(profile.step_s)} (mean, {_source(profile.step_s)})"),
        ("", f"{seconds(profile.step_median_s)} (median, {_source(profile.step_median_s)})"),
        ("P", _with_source(persistent, output.size, "not measured")),
        ("peak (P + E)", _with_source(whole, output.size, "not measured")),
        ("C", _with_source(profile.occupancy, lambda v: f"{v:.3g} % us over two steps", NO_OCCUPANCY)),
        ("M", _with_source(profile.bandwidth, lambda v: f"{v:.3g} % us over two steps", NO_BANDWIDTH)),
    ]


def _with_source(value: Value | None, show: Any, unknown: str) -> str:  # noqa: ANN401 - a function of a float
    return unknown if value is None else f"{show(value.value)} ({_source(value)})"


def _source(value: Value | None) -> str:
    return source_text(value) or "unknown"


def _standing(job: JobObject) -> str:
    name, sample = job["name"], job["progress"]
    step_s = sample.get("step_mean_s") if sample else None
    if job["state"] == "queued":
        return f"{name} waits ({job['reason']})"
    if not job["steps"]:
        return f"{name} {'starts' if job['start_s'] is None or job['state'] == 'launching' else job['state']}"
    return f"{name} step {job['steps']}" + (f", {step_s * 1000:.3g} ms each" if step_s else "")

"""`colane profile --kernels`: C and M of a job from a kernel profiler's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.client.knowledge import read_profiles
from colane.lab.commands.profile_output import write_files
from colane.model.words import count, percent

if TYPE_CHECKING:
    from colane.client.client import Client
    from colane.client.profiling import Subject
    from colane.devices.kernels import KernelTrace
    from colane.model.profile import Profile


def take_kernels(scheduler: Client, subject: Subject, path: Path, out: Path | None, *, as_json: bool) -> None:
    """Read a trace, declare its C and M for the job, and draw its kernels.

    A value that was measured while the job ran (NVML GPM) stays: only values from one source may be summed.

    Raises:
        MisuseError: The file is no such trace.
        FailureError: It cannot be read.
    """
    trace = _read(path)
    values = {"occupancy": trace.occupancy, "bandwidth": trace.bandwidth}
    declared = {name: {"value": v, "by": trace.by} for name, v in values.items() if v is not None}
    scheduler.declare_profile({"key": subject.key._asdict(), **declared})
    profile = read_profiles(scheduler)[subject.key]
    files = write_files(_findings(subject, profile, trace), out)
    if as_json:
        output.print_json(_object(subject, profile, trace, files))
        return
    output.print_fields(_fields(subject, trace))
    for line in _kept(profile, trace):
        output.say(line)
    if files:
        output.say(f"page: {files[0]}; figures in {files[0].parent}: {len(files) - 2}")


def _read(path: Path) -> KernelTrace:
    from colane.devices.kernels import KernelTraceError, read_trace  # noqa: PLC0415 - imported late

    try:
        return read_trace(path)
    except KernelTraceError as error:
        raise MisuseError(f"--kernels: {path}: {error}") from error
    except OSError as error:
        raise FailureError(f"--kernels: {path} cannot be read: {error.strerror}") from error


def _findings(subject: Subject, profile: Profile, trace: KernelTrace) -> Any:  # noqa: ANN401 - imported late
    from colane.lab.report.profiles import Findings  # noqa: PLC0415 - matplotlib comes with it

    kernels = {quantity: {subject.name: found} for quantity, found in trace.histogram_values().items() if found}
    return Findings(profiles=[profile], kernels=kernels)


def _fields(subject: Subject, trace: KernelTrace) -> list[tuple[str, str]]:
    counted = count(trace.steps, "step") if trace.steps else "taken to be two steps"
    unknown = 1 - trace.occupancy_known_ratio
    left_out = f"; occupancy unknown for {percent(unknown)} of the kernel time" if unknown else ""
    return [
        ("job", str(subject.key)),
        ("kernels", f"{len(trace.kernels)} launches, {counted}, {trace.busy_us / 2000:.3g} ms a step{left_out}"),
        ("C", _number(trace.occupancy, trace.by)),
        ("M", _number(trace.bandwidth, trace.by)),
    ]


def _number(value: float | None, by: str) -> str:
    return f"not in the trace of {by}" if value is None else f"{value:.3g} % us over two steps ({by})"


def _kept(profile: Profile, trace: KernelTrace) -> list[str]:
    """Say which of the trace's values are not the ones that are kept."""
    pairs = (("C", profile.occupancy, trace.occupancy), ("M", profile.bandwidth, trace.bandwidth))
    return [
        f"the profile keeps {name} = {kept.value:.3g}, {kept.source.value} by {kept.by or 'the agent'}"
        for name, kept, found in pairs
        if kept is not None and found is not None and kept.by != trace.by
    ]


def _object(subject: Subject, profile: Profile, trace: KernelTrace, files: list[Path]) -> dict[str, Any]:
    from colane.client.knowledge import encode_profile  # noqa: PLC0415 - imported late

    return {
        "key": subject.key._asdict(),
        "by": trace.by,
        "steps": trace.steps,
        "kernels": len(trace.kernels),
        "occupancy": trace.occupancy,
        "bandwidth": trace.bandwidth,
        "occupancy_known_ratio": trace.occupancy_known_ratio,
        "profile": encode_profile(profile),
        "files": [str(path) for path in files],
    }

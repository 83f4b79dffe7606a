"""From what is asked on the command line to the jobs that are profiled."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from colane.api.jobs import JobRequestObject
from colane.api.nodes import NodeObject
from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.submit.command import shell_environment
from colane.cli.submit.jobfile import SUFFIXES, merged, read_job_file
from colane.client.client import Client
from colane.client.knowledge import encode_profile, read_profiles
from colane.client.profiling import ProfileError, Subject, gpu_type_of
from colane.devices.kernels import KernelTrace, KernelTraceError, read_trace
from colane.lab.commands.profile_output import write_files
from colane.lab.report.profiles import Findings
from colane.model.field_values import check_sizes, parse_sizes
from colane.model.profile import Profile, ProfileKey
from colane.model.words import count, percent
from colane.server.ground.access import user_name
from colane.server.submitting.family import derive_family
from colane.workloads import catalogue


def take_kernels(scheduler: Client, subject: Subject, path: Path, out: Path | None, *, as_json: bool) -> None:
    """Read a trace, declare its C and M for the job, and draw its kernels.

    A value that was measured while the job ran (NVML GPM) stays: only values from one source may be summed. Raises
    MisuseError: the file is no such trace. Raises FailureError: it cannot be read.
    """
    try:
        trace = read_trace(path)
    except KernelTraceError as error:
        raise MisuseError(f"--kernels: {path}: {error}") from error
    except OSError as error:
        raise FailureError(f"--kernels: {path} cannot be read: {error.strerror}") from error
    values = {"occupancy": trace.occupancy, "bandwidth": trace.bandwidth}
    declared = {name: {"value": v, "by": trace.by} for name, v in values.items() if v is not None}
    scheduler.declare_profile({"key": subject.key._asdict(), **declared})
    profile = read_profiles(scheduler)[subject.key]
    kernels = {quantity: {subject.name: found} for quantity, found in trace.histogram_values().items() if found}
    files = write_files(Findings(profiles=[profile], kernels=kernels), out)
    if as_json:
        output.print_json(_object(subject, profile, trace, files))
        return
    output.print_fields(_fields(subject, trace))
    pairs = (("C", profile.occupancy, trace.occupancy), ("M", profile.bandwidth, trace.bandwidth))
    for name, kept, found in pairs:  # which of the trace's values are not the ones that are kept
        if kept is not None and found is not None and kept.by != trace.by:
            output.say(f"the profile keeps {name} = {kept.value:.3g}, {kept.source.value} by {kept.by or 'the agent'}")
    if files:
        output.say(f"page: {files[0]}; figures in {files[0].parent}: {len(files) - 2}")


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


def _object(subject: Subject, profile: Profile, trace: KernelTrace, files: list[Path]) -> dict[str, Any]:
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


BATCH_PLACE: Final = "{batch_size}"  # stands in a command for each of the batch sizes
_MODEL_WORD = re.compile(r"(?P<model>[A-Za-z][A-Za-z0-9_.-]*)(:(?P<batch>\d+))?")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says."""

    words: Sequence[str]  # a command, job files, or MODEL:BATCH words
    options: Mapping[str, Any] = field(default_factory=dict)  # fields of a job request
    batch_sizes: Sequence[int] = ()  # profile at each of these; empty for the job's own
    several: bool = False  # whether each word names a job (`--together`, `--all-pairs`, `--all-triples`)


def read_subjects(asked: Asked, scheduler: Client) -> list[Subject]:
    """Return the jobs to profile, in order.

    Raises MisuseError: something does not fit together, or a job names what does not exist. Raises ProfileError: the
    GPU type has to be named.
    """
    nodes = scheduler.nodes()
    return [_subject(request, nodes) for request in _requests(asked)]


def parse_batch_sizes(text: str | None) -> list[int]:
    """Return the numbers of `64,128,256`. Raises MisuseError: one is no number, or below 1."""
    sizes = []
    for word in (text or "").replace(",", " ").split():
        if not word.isdecimal() or int(word) < 1:
            raise MisuseError(f"--batch-sizes: must be whole numbers from 1 on, as 64,128,256, got {word!r}")
        sizes.append(int(word))
    if text is not None and not sizes:
        raise MisuseError("--batch-sizes: names no batch size")
    return list(dict.fromkeys(sizes))


def _requests(asked: Asked) -> list[JobRequestObject]:
    found = _named(asked) if asked.several else _described(asked)
    whole = [merged(job, asked.options, _shell(job | dict(asked.options))) for job in found]
    sized = [at for job in whole for at in _at_gpus(job, several=asked.several)]
    return [at for job in sized for at in _at_sizes(job, asked.batch_sizes)]


def _at_gpus(job: JobRequestObject, *, several: bool) -> list[JobRequestObject]:
    """The job at each number of GPUs that it names."""
    given = job.get("gpus", 1)
    try:
        sizes = check_sizes(given) if isinstance(given, list) else parse_sizes(str(given))
    except ValueError as error:
        raise MisuseError(f"--gpus: {error}") from error
    if sizes == (0,):
        raise MisuseError("--gpus: a profile is of a job on GPUs; give 1 or more")
    if several and sizes != (1,):
        raise MisuseError("--gpus: sets are measured on one GPU")
    return [job | {"gpus": gpus} for gpus in sizes]


def _named(asked: Asked) -> list[JobRequestObject]:
    """Return the jobs that the words name, each a file or MODEL[:BATCH]."""
    words = [part for word in asked.words for part in word.split(",") if part]
    if any(word.startswith("-") for word in words):
        late = next(word for word in words if word.startswith("-"))
        raise MisuseError(f"{late}: options stand before the jobs")
    return [job for word in words for job in (_from_file(word) if word.endswith(SUFFIXES) else [_from_word(word)])]


def _described(asked: Asked) -> list[JobRequestObject]:
    """Return the one job that options or a command describe, or those of a file."""
    words = list(asked.words)
    if words and "model_name" in asked.options:
        raise MisuseError("profile: give --model or a command, not both")
    if len(words) == 1 and words[0].endswith(SUFFIXES):
        return _from_file(words[0])
    if not words and "model_name" not in asked.options:
        raise MisuseError("profile: give a command (colane profile -- python train.py), a job file, or --model NAME")
    return [{"command": words} if words else {}]


def _from_file(word: str) -> list[JobRequestObject]:
    path = Path(word)
    if not path.is_file():
        raise MisuseError(f"{word}: there is no such file")
    return read_job_file(path).jobs


def _from_word(word: str) -> JobRequestObject:
    match = _MODEL_WORD.fullmatch(word)
    if match is None:
        raise MisuseError(f"{word!r}: name a built-in model with its batch size (resnet18:64) or a job file")
    model: JobRequestObject = {"model_name": match["model"]}
    return model | ({"batch_size": int(match["batch"])} if match["batch"] else {})


def _at_sizes(job: JobRequestObject, sizes: Sequence[int]) -> list[JobRequestObject]:
    if not sizes:
        return [job]
    if "command" in job and not any(BATCH_PLACE in word for word in job["command"]):
        raise MisuseError(f"--batch-sizes: write {BATCH_PLACE} in the command where the batch size belongs")
    return [_at_size(job, size) for size in sizes]


def _at_size(job: JobRequestObject, size: int) -> JobRequestObject:
    changed: JobRequestObject = {"batch_size": size}
    if "command" in job:
        changed["command"] = [word.replace(BATCH_PLACE, str(size)) for word in job["command"]]
    return job | changed


def _shell(job: Mapping[str, Any]) -> JobRequestObject:
    """Return what this shell gives to a job, as `colane submit` does."""
    env = shell_environment()
    shell: JobRequestObject = {"env": env, "workdir": str(Path.cwd())}
    return shell | ({"python": sys.executable} if "model_name" in job else {})


def _subject(request: JobRequestObject, nodes: Sequence[NodeObject]) -> Subject:
    request = _complete(request)
    try:
        kind = gpu_type_of(nodes, request.get("gpu_type"), request.get("pool", "default"))
    except ProfileError as error:
        raise MisuseError(str(error)) from error
    gpus, pool = request["gpus"], request.get("pool", "default")
    counts = [sum(gpu["type"] == kind for gpu in n["gpus"]) for n in nodes if n["pool"] == pool and not n["lost"]]
    if any(counts) and gpus > max(counts):  # before anything runs
        raise MisuseError(f"--gpus: {gpus} is more than any node of pool {pool} has of type {kind} ({max(counts)})")
    key = ProfileKey(request["family"], request.get("batch_size"), request["gpus"], kind)
    return Subject(key=key, request={**request, "gpu_type": kind})


def _complete(request: JobRequestObject) -> JobRequestObject:
    """Say what the scheduler would fill in, so that the profile's key is known beforehand."""
    if "model_name" in request:
        return request | _built_in(request)
    if not request.get("command"):
        raise MisuseError("profile: the job has neither a command nor a model_name")
    user = request.get("user") or user_name(os.geteuid())  # as the scheduler knows its caller
    return request | {"family": request.get("family") or derive_family(request["command"], request["workdir"], user)}


def _built_in(request: Mapping[str, Any]) -> JobRequestObject:
    fields = {name: request[name] for name in (*catalogue.FIELDS, *catalogue.EXTRA_FIELDS) if name in request}
    problems = catalogue.problems(fields, request["workdir"])
    if problems:
        raise MisuseError("; ".join(f"{name}: {message}" for name, message in problems))
    job = catalogue.complete(fields)
    return {"batch_size": job["batch_size"], "family": request.get("family") or catalogue.family(fields)}

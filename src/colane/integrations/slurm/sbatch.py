"""`sbatch`: submit a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from colane.client.client import Client
from colane.client.errors import Refused
from colane.client.past_begin import past_begin
from colane.client.typed_fields import as_typed
from colane.integrations.slurm import contact
from colane.integrations.slurm.errors import SlurmError
from colane.integrations.slurm.launch import SCRIPT_BYTES_MAX, BatchFiles, command
from colane.integrations.slurm.options import SaidValue, SlurmOptions, merged, parse
from colane.integrations.slurm.request import build, typed_of
from colane.integrations.slurm.rows import moment
from colane.integrations.slurm.scripts import BatchScript, read_script
from colane.model.hardware import DEFAULT_POOL
from colane.model.words import count

if TYPE_CHECKING:
    from colane.api.plans import PlanAnswer

T = TypeVar("T")

VARIABLES: Final = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_COMMENT": "comment",
    "SBATCH_ERROR": "error",
    "SBATCH_EXPORT": "export",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GPUS_PER_TASK": "gpus-per-task",
    "SBATCH_GRES": "gres",
    "SBATCH_INPUT": "input",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_MEM_PER_CPU": "mem-per-cpu",
    "SBATCH_MEM_PER_GPU": "mem-per-gpu",
    "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_OUTPUT": "output",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}
"""Variables that say what options do; the command line wins over them, and they over the script."""


def run(words: Sequence[str], shims: str) -> int:
    """Submit a script, from a file, from standard input, or with `--wrap`; return the exit code.

    Raises:
        SlurmError: Something in it cannot be.
    """
    given = parse("sbatch", words)
    script, source = _script(given)
    told = SlurmOptions({option: SaidValue(os.environ[name], name) for name, option in VARIABLES.items()
                    if os.environ.get(name)}, (), ())  # fmt: skip
    options = merged([script.options, told, given])
    request = build(options, script.name, source)
    request["command"] = command(shims, files(options), script.interpreter, script.text, given.rest[1:])
    _join(request, script.fields)
    passed = past_begin(request.get("begin"))
    if options.get("quiet") is None:
        tell([*script.notes, *([passed] if passed else [])], options)
    with contact.client() as scheduler:
        check_partition(scheduler, options)
        check_exclusive(scheduler, options, request)
        if options.get("test-only") is not None:
            contact.note("sbatch", _planned(_taken(request, options, lambda asked: scheduler.plan([asked]))))
            return 0
        job_id = hand_in(scheduler, request, options)
        contact.print_lines(str(job_id) if options.get("parsable") is not None else f"Submitted batch job {job_id}")
        sys.stdout.flush()
        if options.get("wait") is not None:
            from colane.integrations.slurm.following import exit_code, until_ended  # noqa: PLC0415 - rarely wanted

            return exit_code(until_ended(scheduler, job_id))
    return 0


def tell(notes: Sequence[str], options: SlurmOptions, verb: str = "sbatch") -> None:
    """Say once what of a script and its options goes another way than its owner may think."""
    for each in notes:
        contact.note(verb, each)
    if options.without_effect:
        contact.note(verb, f"without effect here: {', '.join(options.without_effect)}")


def hand_in(scheduler: Client, request: dict[str, Any], options: SlurmOptions, verb: str = "sbatch") -> int:
    """Submit a job and return its id. Raises SlurmError: the scheduler refuses."""
    return _taken(request, options, scheduler.submit, verb)


def _planned(plan: PlanAnswer) -> str:
    """Return what would become of a job, as Slurm begins to say it where a time is known."""
    (job,), starts_in_s = plan["jobs"], plan["starts_in_s"]
    if starts_in_s is None:
        return f"Job {job['id']} {job['sentence']}"
    return f"Job {job['id']} to start at {moment(plan['now_s'] + starts_in_s)}: {job['sentence']}"


def _taken(
    request: dict[str, Any], options: SlurmOptions, take: Callable[[dict[str, Any]], T], verb: str = "sbatch"
) -> T:
    """Have a request taken.

    One without a GPU that asks for cores where no machine has any to book shares all cores: scripts ask for cores as a
    matter of course.

    Raises:
        SlurmError: The scheduler refuses.
    """
    try:
        return take(request)
    except Refused as refused:
        is_of_cores = {problem.field for problem in refused.problems} == {"cores"}
        if not is_of_cores or request["gpus"] or not request.get("cores"):
            raise _refusal(refused, options) from refused
    contact.note(verb, "no machine has cores to book for jobs without a GPU: it shares them")
    try:
        return take({**request, "cores": 0})
    except Refused as refused:
        raise _refusal(refused, options) from refused


def _refusal(refused: Refused, options: SlurmOptions) -> SlurmError:
    """Return what the scheduler refuses as a verb says it, with options and where they stand in place of fields."""
    typed = typed_of(options)
    said = [as_typed(*one, typed) if one.field else one.message for one in refused.problems]
    return SlurmError("; ".join(" ".join(one.split()) for one in said))


def check_partition(scheduler: Client, options: SlurmOptions) -> None:
    """Refuse a partition that no machine is of, as Slurm does. Raises SlurmError: no machine is."""
    named = options.get("partition")
    if named:
        pools = sorted({str(node["pool"]) for node in scheduler.nodes()})
        if pools and named not in pools:
            there = ", ".join(pools)
            raise SlurmError(f"{options.place('partition')} must be a pool of machines here: {there}; got {named!r}")


def check_exclusive(scheduler: Client, options: SlurmOptions, request: Mapping[str, Any]) -> None:
    """Refuse `--exclusive` but of a job that takes all GPUs of whatever machine it may get.

    Raises:
        SlurmError: It takes fewer, or none.
    """
    if options.get("exclusive") is None:
        return
    pool, asked = request.get("pool", DEFAULT_POOL), request.get("gpus_per_node") or request["gpus"]
    for node in scheduler.nodes():
        have = len(node["gpus"])
        if node["pool"] == pool and (not asked or have != asked):
            whole = f"this job takes {asked} of the {count(have, 'GPU')} of {node['name']}"
            fix = f"ask for all (--gres=gpu:{have}), or for GPUs that no other job shares (#COLANE --no-share)"
            raise SlurmError(f"{options.place('exclusive')} means a whole machine, and {whole}: {fix}")


def open_mode(options: SlurmOptions) -> str:
    """Return whether files that are there are added to or begun anew.

    Raises:
        SlurmError: `--open-mode` is neither of its two words.
    """
    mode = options.get("open-mode") or "truncate"
    if mode not in {"append", "truncate"}:
        raise SlurmError(f"{options.place('open-mode')} must be append or truncate, got {mode!r}")
    return mode


def files(options: SlurmOptions) -> BatchFiles:
    """Return where a job writes and reads. Raises SlurmError: as `open_mode`."""
    usual, mode = "slurm-%A_%a.out" if options.get("array") else "slurm-%j.out", open_mode(options)
    here = Path.cwd() / Path(options.get("chdir") or ".").expanduser()
    out, err, put_in = options.get("output") or usual, options.get("error"), options.get("input")
    return BatchFiles(str(here / out), str(here / err) if err else "", mode, str(here / put_in) if put_in else "")


def _script(given: SlurmOptions) -> tuple[BatchScript, Path | None]:
    wrapped = given.get("wrap")
    if wrapped is not None:
        if given.rest:
            raise SlurmError(f"give --wrap or a script, not both: {given.rest[0]}")
        return read_script("wrap", f"#!/bin/sh\n# what was wrapped\n\n{wrapped}\n"), None
    if not given.rest or given.rest[0] == "-":
        if not given.rest and sys.stdin.isatty():
            raise SlurmError("name a script: sbatch job.sh, or sbatch --wrap 'COMMAND'")
        return _of_fit_size(read_script("sbatch", _from_input())), None
    path = Path(given.rest[0])
    try:
        text = path.read_bytes().decode()  # with its line breaks as they are
    except UnicodeDecodeError as error:
        raise SlurmError(f"{path} is no text; run it from a script: sbatch --wrap {path}") from error
    except OSError as error:
        raise SlurmError(f"{path} cannot be read: {error.strerror}") from error
    return _of_fit_size(read_script(path.name, text)), path


def _from_input() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise SlurmError("standard input is no text; give sbatch a script") from error


def _of_fit_size(script: BatchScript) -> BatchScript:
    if len(script.text.encode()) > SCRIPT_BYTES_MAX:
        raise SlurmError(f"{script.name} has more than {SCRIPT_BYTES_MAX // 1024} KiB; call it from a short script")
    return script


def _join(request: dict[str, Any], fields: dict[str, Any]) -> None:
    """Let what `#COLANE` lines say go over what Slurm's say."""
    for name, value in fields.items():
        request[name] = {**request.get(name, {}), **value} if isinstance(value, dict) else value
        request.pop(f"{name}_s", None)
        request.pop(f"{name}_bytes", None)

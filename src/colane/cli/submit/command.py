"""`colane submit`: give the scheduler a command, a built-in training job, or a file of jobs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.submit import handing_in as submitting
from colane.cli.submit import job_options, scripts
from colane.cli.submit.jobfile import SUFFIXES, JobFile, merged, read_job_file
from colane.cli.submit.scripts import directives, runnable
from colane.client.client import Client
from colane.client.hosts import LOOPBACK_NAMES, host_name
from colane.model.category import Category, parse_category
from colane.model.field_values import BYTES_PER_S, Amount
from colane.model.job_fields import JOB_FIELDS

if TYPE_CHECKING:
    from colane.api.jobs import JobRequestObject

NOT_FOR_JOBS: Final = (
    "COLANE_TOKEN", "COLANE_TOKEN_FILE", "COLANE_STATE", "COLANE_STORE_PASSWORD", "_", "OLDPWD", "SHLVL",
)  # fmt: skip
"""Variables of the submitting shell that a job does not get: our token, and what describes that shell itself."""

OF_ANOTHER_LAUNCH: Final = re.compile(
    r"(SLURM|SLURMD|SBATCH|SRUN|PMI|PMIX|OMPI|TORCHELASTIC|GROUP|ROLE)_.*|((LOCAL|NODE)_)?RANK|(LOCAL_)?WORLD_SIZE"
    r"|MASTER_(ADDR|PORT)"
)
"""They name the place of a process in the launch the submitting shell belongs to (an interactive Slurm job, a notebook
under torchrun). A job that believed them would wait for ranks that do not exist."""


def shell_environment() -> dict[str, str]:
    """Return the variables of this shell that a job gets; one that is no text is left out with a word."""
    kept = {}
    for name, value in os.environ.items():
        if name in NOT_FOR_JOBS or OF_ANOTHER_LAUNCH.fullmatch(name):
            continue
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            output.note(f"the variable {name.encode(errors='replace').decode()} does not go along: it is not UTF-8")
        else:
            kept[name] = value
    return kept


EXAMPLES: Final = """Examples: [bold]colane submit --gpus 1 -- python train.py --lr 0.1[/bold] runs a command;
[bold]colane submit job.yaml[/bold] takes a file;
[bold]colane submit --model vgg19 --batch-size 64 --iters 100 --dataset digits[/bold] trains a built-in model."""


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE | -- COMMAND...]", show_default=False, help="A job file, or a command."),
]
Wait = Annotated[bool, typer.Option("--wait", "-W", help="Follow the job to its end and leave with its exit code.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    # Options behind the first word belong to the command that is submitted.
    settings = {"allow_interspersed_args": False}
    app.command("submit", epilog=EXAMPLES, context_settings=settings)(submit)


@job_options.with_job_options
def submit(words: Words = None, wait: Wait = False, as_json: output.Json = False, **given: Any) -> None:  # noqa: ANN401 - options of all types
    """Submit a job: a command, a built-in training job, or a file with one or more jobs.

    The job runs in this directory, with this shell's environment and virtual environment. Options stand before the
    command; everything behind its first word belongs to it. Options override what a file says. The job's id is the
    last word printed.
    """
    options = job_options.asked(given)
    hand_in(_jobs_asked_for(words or [], options), options, wait=wait, as_json=as_json)


def hand_in(file: JobFile, options: Mapping[str, Any], *, wait: bool, as_json: bool) -> None:
    """Submit jobs with what this shell gives them, and say so; options override what they say themselves."""
    wanted = [merged(job, options, _shell({**job, **options})) for job in file.jobs]
    _refuse_mere_bytes(file, wanted)
    for job in wanted:
        _make_absolute(job)
        _tell_category(job)
        _say_what_is_not_heeded(job)
    with jobs.client() as scheduler:
        _refuse_missing_programs(scheduler, file, wanted)
        ids = submitting.send(scheduler, file, wanted)
        submitting.tell(ids, file, as_json=as_json, wait=wait)
        if wait:
            raise typer.Exit(submitting.wait_for(scheduler, ids, as_json=as_json))


def _jobs_asked_for(words: list[str], options: Mapping[str, Any]) -> JobFile:
    """Return the jobs of the file that is named, or the one job that the command line describes."""
    if words and words[0].endswith(SUFFIXES) and Path(words[0]).is_file():
        return _file_alone(words, options)
    if len(words) == 1 and words[0].endswith(SUFFIXES):
        raise MisuseError(f"{words[0]}: there is no such file")
    if words and "model_name" in options:
        raise MisuseError("submit: give --model or a command, not both")
    if not words and "model_name" not in options:
        raise MisuseError("submit: give a command (colane submit -- python train.py), a job file, or --model NAME")
    return JobFile(Path(), [{"command": runnable(words, options.get("workdir"))} if words else {}])


def _file_alone(words: list[str], options: Mapping[str, Any]) -> JobFile:
    if len(words) > 1:
        raise MisuseError(f"submit: options go before the file: colane submit {' '.join(words[1:])} {words[0]}")
    file = read_job_file(Path(words[0]))
    if "model_name" in options and any("command" in job for job in file.jobs):
        raise MisuseError(f"--model: {file.path} has a command; give one of the two")
    return file


def _shell(job: Mapping[str, Any]) -> JobRequestObject:
    """Return what the submitting shell gives to a job."""
    shell: JobRequestObject = {"env": shell_environment(), "workdir": str(Path.cwd())}
    if "model_name" in job:
        shell["python"] = sys.executable
    return shell


MERE_BYTES_MAX: Final = 10**6
"""A bare number up to this, where a size is asked for, was hardly meant in bytes."""

SIZES: Final = tuple(field for field in JOB_FIELDS if isinstance(field.takes, Amount) and field.takes.unit.is_whole)


def _refuse_mere_bytes(file: JobFile, wanted: Sequence[JobRequestObject]) -> None:
    """Slurm reads a bare number as megabytes, we as bytes: `--mem 10` never means ten bytes."""
    for number, field in product(range(len(wanted)), SIZES):
        name, given = field.text, str(wanted[number].get(field.text, "")).strip()
        if given.isdecimal() and 0 < int(given) <= MERE_BYTES_MAX:
            rate = "/s" if field.takes.unit is BYTES_PER_S else ""
            said = f"say {given}MB{rate} or {given}GB{rate}; {given} alone would count bytes{rate}"
            raise MisuseError(submitting.place(file, f"jobs[{number}].{name}" if file.is_batch else name, said))


def _refuse_missing_programs(scheduler: Client, file: JobFile, wanted: Sequence[JobRequestObject]) -> None:
    """A program that is not here is refused where jobs run on this machine alone; elsewhere it may well be."""
    for number, job in enumerate(wanted):
        lacking = scripts.missing_program(job.get("command"), job.get("env"), job.get("workdir"))
        if lacking is not None and _all_here(scheduler):
            raise MisuseError(
                submitting.place(file, f"jobs[{number}].command" if file.is_batch else "command", lacking)
            )


def _all_here(scheduler: Client) -> bool:
    """Whether every node is this machine, as far as is known."""
    hosts = [host_name(urlsplit(str(node.get("address", ""))).netloc) for node in scheduler.nodes()]
    return bool(hosts) and all(host in LOOPBACK_NAMES for host in hosts)


def _make_absolute(job: JobRequestObject) -> None:
    """Read a relative working directory from this one; `PWD` says the same as the directory."""
    if isinstance(job["workdir"], str):
        job["workdir"] = str(Path.cwd() / Path(job["workdir"]).expanduser())
        if isinstance(job["env"], dict):
            job["env"]["PWD"] = job["workdir"]


def _tell_category(job: JobRequestObject) -> None:
    """Put in what its script is seen to work on, or say that what its owner says is not known."""
    said = job.get("category")
    if said is None:
        found = scripts.category(job.get("command"), job["workdir"], job.get("model_name"))
        if found is not Category.UNKNOWN:
            job["category"] = found.value
    elif isinstance(said, str) and parse_category(said) is Category.UNKNOWN:
        known = ", ".join(category.value for category in Category if category is not Category.UNKNOWN)
        output.note(f"note: category {said} is not known ({known}); the job counts as one of an unknown category")


def _say_what_is_not_heeded(job: Mapping[str, Any]) -> None:
    """Name what a user may expect to go along with a job, and does not."""
    found = directives(job.get("command"), job["workdir"])
    if found is not None:
        output.note(f"note: {found}")
    if output.has_input():
        output.note(
            "note: a job does not read standard input; let a shell open what it shall read: "
            "colane submit -- sh -c 'COMMAND < FILE'"
        )

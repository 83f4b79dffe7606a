"""`colane submit`: give the scheduler a command, a built-in training job, or a file of jobs."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from colane.cli import output
from colane.cli.errors import MisuseError
from colane.cli.jobs import objects as jobs
from colane.cli.jobs import terminal
from colane.cli.submit import handing_in as submitting
from colane.cli.submit import job_options, scripts
from colane.cli.submit.handing_in import place
from colane.cli.submit.jobfile import SUFFIXES, JobFile, merged, read_job_file
from colane.cli.submit.scripts import directives, runnable
from colane.client import shell
from colane.client.client import Client
from colane.client.errors import Refused
from colane.client.hosts import LOOPBACK_NAMES, host_name
from colane.client.told import past_begin
from colane.model.field_values import BYTES_PER_S, Amount
from colane.model.job_fields import JOB_FIELDS
from colane.model.job_spec import Category, parse_category
from colane.model.words import percent

if TYPE_CHECKING:
    from colane.api.jobs import JobRequestObject
    from colane.api.plans import MakesWayObject, PlanAnswer


# -- What `colane submit --plan` says.

DEEDS = {
    "stop": "would be stopped and queued again",
    "park": "would wait parked, its process alive",
    "move": "would move",
    "resize": "would go on with another number of GPUs",
    "set-cores": "would have other cores",
    "set-throttle": "would be held back",
}


def ask(file: JobFile, wanted: list[JobRequestObject]) -> PlanAnswer:
    """Ask what would become of jobs; a refusal names the option, or the line of the file."""
    is_one = len(wanted) == 1 and not file.is_batch
    try:
        with jobs.client() as scheduler:
            return scheduler.plan(wanted)
    except Refused as refused:
        if refused.status >= 500:
            raise
        said = [
            place(file, field.removeprefix("jobs[0].") if is_one else field, message)
            for field, message in refused.problems
        ]
        raise MisuseError("; ".join(said)) from refused


def tell(plan: PlanAnswer, *, as_json: bool) -> None:
    """Say what would become of them, and the index."""
    if as_json:
        output.print_json(plan)
        return
    for job in plan["jobs"]:
        output.say(f"job {job['id']} ({job['name']}) {job['sentence']}")
    for other in plan["makes_way"]:
        output.say(_makes_way(other))
    output.say("nothing was submitted; to submit while this holds: --if-plan INDEX in place of --plan")
    output.say(f"plan {plan['index']}")


def _makes_way(other: MakesWayObject) -> str:
    name = "another user's job" if other["job"] is None else f"job {other['job']}"
    deed = DEEDS.get(other["action"], f"would be changed ({other['action']})")
    now, then = other["ratio_now"], other["ratio_then"]
    speeds = "" if now is None or then is None else f", at {percent(then)} of its speed alone (now {percent(now)})"
    return f"{name} {deed}{speeds}"


def shell_environment() -> dict[str, str]:
    """Return the variables of this shell that a job gets; one that is no text is left out with a word."""
    kept, left_out = shell.shell_environment()
    for name in left_out:
        output.note(f"the variable {name} does not go along: it is not UTF-8")
    return kept


EXAMPLES: Final = """Examples: [bold]colane submit --gpus 1 -- python train.py --lr 0.1[/bold] runs a command;
[bold]colane submit job.yaml[/bold] takes a file;
[bold]colane submit --model vgg19 --batch-size 64 --iters 100 --dataset digits[/bold] trains a built-in model."""


Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE | -- COMMAND...]", show_default=False, help="A job file, or a command."),
]
Plan = Annotated[
    bool, typer.Option("--plan", help="Submit nothing: say where it would start now, or why it would wait.")
]
IfPlan = Annotated[
    str | None,
    typer.Option(
        "--if-plan", metavar="INDEX", show_default=False, help="Submit only while what --plan has said still holds."
    ),
]
Notify = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="CHANNEL,...|none",
        show_default=False,
        help="Which of the scheduler's channels tell of the job, in place of those that tell of all; none: none does.",
    ),
]
NOTIFY_LABEL: Final = "notify"
Wait = Annotated[bool, typer.Option("--wait", "-W", help="Follow the job to its end and leave with its exit code.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    # Options behind the first word belong to the command that is submitted.
    settings = {"allow_interspersed_args": False}
    app.command("submit", epilog=EXAMPLES, context_settings=settings)(submit)


@job_options.with_job_options
def submit(
    words: Words = None,
    wait: Wait = False,
    as_json: output.Json = False,
    plan: Plan = False,
    if_plan: IfPlan = None,
    notify: Notify = None,
    **given: Any,  # noqa: ANN401 - options of all types
) -> None:
    """Submit a job: a command, a built-in training job, or a file with one or more jobs.

    The job runs in this directory, with this shell's environment and virtual environment. Options stand before the
    command; everything behind its first word belongs to it. Options override what a file says. The job's id is the
    last word printed.
    """
    options = job_options.asked(given)
    if notify is not None:
        labels = options.get("labels", {})
        if NOTIFY_LABEL in labels:
            raise MisuseError("--notify: --label notify=... says the same; give one of the two")
        options = {**options, "labels": {**labels, NOTIFY_LABEL: notify}}
    file = replace(_jobs_asked_for(words or [], options), overridden=frozenset(options))
    if plan:
        if wait or if_plan is not None:
            raise MisuseError(f"--plan submits nothing: leave out {'--wait' if wait else '--if-plan'}")
        tell(ask(file, requests_of(file, options)), as_json=as_json)
    else:
        hand_in(file, options, wait=wait, as_json=as_json, if_plan=if_plan)


def hand_in(
    file: JobFile, options: Mapping[str, Any], *, wait: bool, as_json: bool, if_plan: str | None = None
) -> None:
    """Submit jobs with what this shell gives them, and say so; options override what they say themselves."""
    wanted = requests_of(file, options)
    if len(wanted) > 1 and any(job.get("pty") for job in wanted):
        raise MisuseError("--pty: several jobs have no terminal together; submit the one that is typed at by itself")
    _keep_input(wanted)
    with jobs.client() as scheduler:
        _refuse_missing(scheduler, file, wanted)
        ids = submitting.send(scheduler, file, wanted, if_plan)
        has_terminal = any(job.get("pty") for job in wanted)
        submitting.tell(ids, file, as_json=as_json, wait=wait or has_terminal)
        submitting.tell_pools(scheduler, ids, wanted)
        submitting.tell_fates(ids, wanted)
        if sys.stderr.isatty() and len(ids) == 1 and not wait:  # what no person reads costs the scheduler nothing
            submitting.tell_start(scheduler, ids[0])
        if has_terminal:
            raise typer.Exit(terminal.sit_from_submission(scheduler, ids[0]))
        if wait:
            raise typer.Exit(submitting.wait_for(scheduler, ids, as_json=as_json))


def requests_of(file: JobFile, options: Mapping[str, Any]) -> list[JobRequestObject]:
    """The requests of jobs, with what this shell gives them."""
    wanted = [merged(job, options, _shell({**job, **options})) for job in file.jobs]
    for number, field in product(range(len(wanted)), SIZES):
        name, given = field.text, str(wanted[number].get(field.text, "")).strip()
        if given.isdecimal() and 0 < int(given) <= MERE_BYTES_MAX:
            rate = "/s" if field.takes.unit is BYTES_PER_S else ""
            said = f"say {given}MB{rate} or {given}GB{rate}; {given} alone would count bytes{rate}"
            raise MisuseError(submitting.place(file, f"jobs[{number}].{name}" if file.is_batch else name, said))
    for job in wanted:
        if isinstance(job["workdir"], str):
            job["workdir"] = str(Path.cwd() / Path(job["workdir"]).expanduser())
            if isinstance(job["env"], dict):
                job["env"]["PWD"] = job["workdir"]
        _tell_category(job)
        passed = past_begin(job.get("begin"))
        if passed is not None:
            output.note(f"note: {passed}")
        found = directives(job.get("command"), job["workdir"])
        if found is not None:
            output.note(f"note: {found}")
        if output.has_input() and "input" not in job and "pty" not in job:
            output.note("note: a job does not read standard input; --input - hands it on, --input FILE names a file")
    return wanted


def _jobs_asked_for(words: list[str], options: Mapping[str, Any]) -> JobFile:
    """Return the jobs of the file that is named, or the one job that the command line describes."""
    if words and words[0].endswith(SUFFIXES) and Path(words[0]).is_file():
        if len(words) > 1:
            raise MisuseError(f"submit: options go before the file: colane submit {' '.join(words[1:])} {words[0]}")
        file = read_job_file(Path(words[0]))
        if "model_name" in options and any("command" in job for job in file.jobs):
            raise MisuseError(f"--model: {file.path} has a command; give one of the two")
        return file
    if len(words) == 1 and words[0].endswith(SUFFIXES):
        raise MisuseError(f"{words[0]}: there is no such file")
    if words and "model_name" in options:
        raise MisuseError("submit: give --model or a command, not both")
    if not words and "model_name" not in options:
        raise MisuseError("submit: give a command (colane submit -- python train.py), a job file, or --model NAME")
    return JobFile(Path(), [{"command": runnable(words, options.get("workdir"))} if words else {}])


def _shell(job: Mapping[str, Any]) -> JobRequestObject:
    """Return what the submitting shell gives to a job."""
    shell: JobRequestObject = {"env": shell_environment(), "workdir": str(Path.cwd())}
    if "model_name" in job:
        shell["python"] = sys.executable
    return shell


MERE_BYTES_MAX: Final = 10**6  # a bare number up to this, where a size is asked for, was hardly meant in bytes

SIZES: Final = tuple(field for field in JOB_FIELDS if isinstance(field.takes, Amount) and field.takes.unit.is_whole)


def _refuse_missing(scheduler: Client, file: JobFile, wanted: Sequence[JobRequestObject]) -> None:
    """A program or directory that is not here is refused where jobs run on this machine alone; else it may be there."""
    directories = dict[str, None]()
    for number, job in enumerate(wanted):
        within = f"jobs[{number}]." if file.is_batch else ""
        field = f"{within}command"
        absent = scripts.missing_directory(job.get("workdir"))
        if absent is not None and _all_here(scheduler):
            raise MisuseError(submitting.place(file, f"{within}workdir", absent))
        if absent is not None:
            directories[str(job.get("workdir"))] = None
            continue
        unread = scripts.dos_breaks(job.get("command"), job.get("workdir"))
        if unread is not None:
            raise MisuseError(submitting.place(file, field, unread))
        lacking = scripts.missing_program(job.get("command"), job.get("env"), job.get("workdir"))
        if lacking is not None and _all_here(scheduler):
            raise MisuseError(submitting.place(file, field, lacking))
    for directory in directories:
        output.note(f"note: {directory} is no directory of this machine: it must be one where the job starts, or fails")


def _all_here(scheduler: Client) -> bool:
    """Whether every node is this machine, as far as is known."""
    hosts = [host_name(urlsplit(str(node.get("address", ""))).netloc) for node in scheduler.nodes()]
    return bool(hosts) and all(host in LOOPBACK_NAMES for host in hosts)


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


HANDED_ON: Final = "-"  # in the place of an input file: what this command is given itself


def _keep_input(wanted: Sequence[JobRequestObject]) -> None:
    """Keep what we are given on standard input in a file that a job can read, as often as it is started."""
    reading = [job for job in wanted if job.get("input") == HANDED_ON]
    if not reading:
        return
    if sys.stdin.isatty():
        raise MisuseError("--input -: standard input is this terminal; give it a file or a pipe, or name a file")
    folder = Path.cwd() / ".colane"
    path = folder / f"{uuid.uuid4().hex}.input"
    try:
        folder.mkdir(exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as kept:
            shutil.copyfileobj(sys.stdin.buffer, kept)
    except OSError as error:
        raise MisuseError(f"--input -: {path} cannot be written: {error.strerror}") from error
    for job in reading:
        job["input"] = str(path).replace("%", "%%")

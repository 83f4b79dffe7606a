# ruff: noqa: ARG001, PLR0913, PLR0917 - a command line option is a parameter; they are read from the context by name
"""`colane submit`: give the scheduler a command, a built-in training job, or a file of jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from colane.cli import jobs, output, scripts, submitting
from colane.cli.errors import MisuseError
from colane.cli.jobfile import SUFFIXES, JobFile, merged, read_job_file
from colane.cli.judged import judged, limit_s
from colane.cli.scripts import directives, runnable
from colane.cli.service_options import time_s
from colane.cli.submitting import Pattern, Qos
from colane.model.category import Category, CoreHint, parse_category
from colane.model.checkpoint import parse_contract
from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_duration_s, parse_size_bytes
from colane.model.sizes import parse_sizes

NOT_FOR_JOBS: Final = ("COLANE_TOKEN", "COLANE_STATE", "_", "OLDPWD", "SHLVL")
"""Variables of the submitting shell that a job does not get: our token, and what describes that shell itself."""

MODEL_FIELDS: Final = {"model": "model_name", "checkpoint_every": "checkpoint_every_s"}
"""Options whose field has another name."""

FLAGS: Final[Mapping[str, Mapping[str, bool]]] = {
    "no_share": {"share": False},
    "mps": {"mps": True},
    "preemptible": {"preemptible": True},
    "abortable": {"abortable": True},
    "multi_node": {"multi_node": True},
    "anti_collocation": {"anti_collocation": True, "multi_node": True},
}
"""What each flag says in a job request, where it is given."""

EXAMPLES: Final = """Examples: [bold]colane submit --gpus 1 -- python train.py --lr 0.1[/bold] runs a command;
[bold]colane submit job.yaml[/bold] takes a file;
[bold]colane submit --model vgg19 --batch-size 64 --iters 100 --dataset digits[/bold] trains a built-in model."""


class Ranks(StrEnum):
    """How many processes of a job are started."""

    ONE = "one"
    PER_GPU = "per-gpu"


class Kind(StrEnum):
    """What a job does."""

    TRAINING = "training"
    INFERENCE = "inference"


SIZE: Final = judged(parse_size_bytes)

NEEDS, MODEL = "What the job needs", "Built-in training job (paper A's job object)"
SHARING, PLACING = "Sharing and stopping", "Several GPUs"


def register(app: typer.Typer) -> None:
    """Add the command."""
    # Options behind the first word belong to the command that is submitted.
    settings = {"allow_interspersed_args": False}
    app.command("submit", epilog=EXAMPLES, context_settings=settings)(submit)


def _need(
    help_text: str, *names: str, metavar: str | None = None, callback: Callable[[str | None], str | None] | None = None
) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(
        *names, help=help_text, metavar=metavar, show_default=False, rich_help_panel=NEEDS, callback=callback
    )


def _sharing(
    help_text: str, *names: str, metavar: str | None = None, callback: Callable[[str | None], str | None] | None = None
) -> Any:  # noqa: ANN401 - as above
    return typer.Option(
        *names, help=help_text, metavar=metavar, show_default=False, rich_help_panel=SHARING, callback=callback
    )


def _placing(help_text: str, *names: str, metavar: str | None = None) -> Any:  # noqa: ANN401 - as above
    return typer.Option(*names, help=help_text, metavar=metavar, show_default=False, rich_help_panel=PLACING)


def _model(help_text: str, *names: str) -> Any:  # noqa: ANN401 - as above
    return typer.Option(*names, help=help_text, show_default=False, rich_help_panel=MODEL)


def submit(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE | -- COMMAND...]", show_default=False, help="A job file, or a command."),
    ] = None,
    name: Annotated[str | None, _need("Name for people.", "--name", "-J")] = None,
    gpus: Annotated[
        str | None,
        _need(
            "GPUs on one machine (1): a number, 0 for none, or sizes it can run on, as 1..4 or 1,2,4.",
            "--gpus",
            "-G",
            metavar="N|N..M|N,M",
            callback=judged(parse_sizes),
        ),
    ] = None,
    gpu_type: Annotated[str | None, _need("Only GPUs of this type.", "--gpu-type")] = None,
    gpu_memory: Annotated[
        str | None, _need("Peak memory on each GPU, as 2GB or 512MiB.", "--gpu-memory", metavar="SIZE", callback=SIZE)
    ] = None,
    cores: Annotated[int | None, _need("CPU cores for it alone.", "--cores", "-c")] = None,
    host_memory: Annotated[
        str | None,
        _need(
            "Host memory; a job that uses more ends as out of memory.",
            "--host-memory",
            "--mem",
            metavar="SIZE",
            callback=SIZE,
        ),
    ] = None,
    host_bandwidth: Annotated[
        str | None,
        _need(
            "Bandwidth to host memory, as 20GB/s, where machines say theirs.",
            "--host-bandwidth",
            metavar="RATE",
            callback=judged(parse_bandwidth_bytes_per_s),
        ),
    ] = None,
    priority: Annotated[
        int | None, _need("Higher goes first where the policy heeds it; above 0 for operators.", "--priority")
    ] = None,
    qos: Annotated[
        Qos | None,
        _need("debug: first, at most 30 minutes and 2 GPUs. sweep: last, may be stopped for others.", "--qos"),
    ] = None,
    time_limit: Annotated[
        str | None,
        _need(
            "Stopped after this time, as 90s, 10m, 1h30m, 00:10:00 or 1-00:00.",
            "--time-limit",
            "-t",
            metavar="TIME",
            callback=judged(limit_s),
        ),
    ] = None,
    retries: Annotated[int | None, _need("Tried again this often when it fails.", "--retries")] = None,
    label: Annotated[list[str] | None, _need("May be repeated.", "--label", "-l", metavar="NAME=VALUE")] = None,
    env: Annotated[
        list[str] | None,
        _need("Set a variable; all of this shell's go along. May be repeated.", "--env", "-e", metavar="NAME=VALUE"),
    ] = None,
    workdir: Annotated[Path | None, _need("Working directory (this one).", "--workdir", "-C")] = None,
    no_share: Annotated[bool, _sharing("Keep other jobs off its GPUs.", "--no-share")] = False,
    mps: Annotated[bool, _sharing("Share through NVIDIA MPS where it can be started.", "--mps")] = False,
    preemptible: Annotated[
        bool,
        _sharing(
            "It saves its state when asked to stop and goes on from it, so a policy may stop it. "
            "Without it a job that reports steps may still be parked for another (see 'suspend').",
            "--preemptible",
        ),
    ] = False,
    checkpoint: Annotated[
        str | None,
        _sharing(
            "How it is asked to save its state before it is stopped, resized or moved; implies --preemptible. "
            "plain (SIGUSR1), lightning, submitit, nemo, torchrun, or a signal. It leaves with exit code 75, or 0.",
            "--checkpoint",
            metavar="HOW",
            callback=judged(parse_contract),
        ),
    ] = None,
    checkpoint_lead: Annotated[
        str | None,
        _sharing(
            "How long saving may take, as 2m (30s to 90s, by HOW).",
            "--checkpoint-lead",
            metavar="TIME",
            callback=judged(parse_duration_s),
        ),
    ] = None,
    abortable: Annotated[
        bool, _sharing("Without GPUs: it may be stopped for a job with GPUs, and begins anew later.", "--abortable")
    ] = False,
    kind: Annotated[
        Kind | None, _sharing("training, or inference by a process that stays.", "--kind", metavar="KIND")
    ] = None,
    latency: Annotated[
        str | None, _sharing("Longest a step of an inference job may take, as 50ms.", "--latency", metavar="TIME")
    ] = None,
    weight: Annotated[float | None, _sharing("Its share of the turns on a shared GPU (1).", "--weight")] = None,
    group: Annotated[
        str | None, _sharing("Whom it may share with, where policies share within groups only.", "--group")
    ] = None,
    ranks: Annotated[
        Ranks | None,
        _need("per-gpu starts a process for each GPU, with RANK and WORLD_SIZE set; else one (torchrun).", "--ranks"),
    ] = None,
    batch: Annotated[
        submitting.BatchOf | None,
        _placing("Its --batch-size is of all GPUs, or of each: then steps grow with them.", "--batch"),
    ] = None,
    multi_node: Annotated[bool, _placing("Its processes may lie on several machines.", "--multi-node")] = False,
    anti_collocation: Annotated[
        bool, _placing("Each of its processes on another machine; implies --multi-node.", "--anti-collocation")
    ] = False,
    utility_min: Annotated[
        float | None,
        _placing("Rather wait than take a worse place, where the policy postpones.", "--utility-min", metavar="0..1"),
    ] = None,
    comm_weight: Annotated[
        int | None,
        _placing("How much its GPUs talk: 4 much, 1 little, 0 not at all.", "--comm-weight", metavar="0..4"),
    ] = None,
    comm_pattern: Annotated[
        Pattern | None, _placing("Who talks to whom: all, ring or pipeline.", "--comm-pattern", metavar="PATTERN")
    ] = None,
    category: Annotated[
        str | None,
        _need("cv, nlp or speech: how many cores it starts with where they are tuned (told by imports).", "--category"),
    ] = None,
    core_hint: Annotated[
        list[CoreHint] | None,
        _need("What it does between steps, for the same. May be repeated.", "--core-hint", metavar="HINT"),
    ] = None,
    pool: Annotated[str | None, _need("Only machines of this pool.", "--pool", "-p")] = None,
    user: Annotated[str | None, _need("Owner (you).", "--user")] = None,
    family: Annotated[str | None, _need("Jobs of one family are taken to behave alike.", "--family")] = None,
    steps_total: Annotated[int | None, _need("Steps until it is done.", "--steps-total")] = None,
    model: Annotated[
        str | None, _model("resnet18, resnet50, se_resnet18, vgg11 or vgg19.", "--model", "--model-name")
    ] = None,
    batch_size: Annotated[int | None, _model("Samples per step.", "--batch-size", "-b")] = None,
    iters: Annotated[int | None, _model("Steps.", "--iters")] = None,
    dataset: Annotated[str | None, _model("cifar10, digits or synthetic.", "--dataset")] = None,
    dataset_path: Annotated[Path | None, _model("Where CIFAR-10 lies.", "--dataset-path")] = None,
    workers: Annotated[int | None, _model("Data loader processes.", "--workers")] = None,
    lr: Annotated[float | None, _model("Learning rate.", "--lr")] = None,
    optim: Annotated[str | None, _model("sgd, adam, adamw or rmsprop.", "--optim")] = None,
    weight_decay: Annotated[float | None, _model("Weight decay.", "--weight-decay")] = None,
    momentum: Annotated[float | None, _model("Momentum.", "--momentum")] = None,
    num_class: Annotated[int | None, _model("Classes.", "--num-class")] = None,
    image_size: Annotated[int | None, _model("Side of the images in pixels.", "--image-size")] = None,
    augment: Annotated[int | None, _model("Random rotations of each sample, in its data loader.", "--augment")] = None,
    width: Annotated[float | None, _model("Scales the model's channels.", "--width")] = None,
    seed: Annotated[int | None, _model("Makes a run repeatable.", "--seed")] = None,
    checkpoint_dir: Annotated[
        Path | None, _model("Where it saves its state, so that it may be stopped and resized.", "--checkpoint-dir")
    ] = None,
    checkpoint_every: Annotated[float | None, _model("Seconds between two states (600).", "--checkpoint-every")] = None,
    device: Annotated[str | None, _model("auto, cpu or cuda.", "--device")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-W", help="Follow the job to its end and leave with its exit code.")
    ] = False,
    as_json: output.Json = False,
) -> None:
    """Submit a job: a command, a built-in training job, or a file with one or more jobs.

    The job runs in this directory, with this shell's environment and virtual environment. Options stand before the
    command; everything behind its first word belongs to it. Options override what a file says. The job's id is the
    last word printed.
    """
    options = _options(ctx.params)
    file = _jobs_asked_for(ctx.params["words"] or [], options)
    wanted = [merged(job, options, _shell(job | options)) for job in file.jobs]
    _refuse_mere_bytes(file, wanted)
    for job in wanted:
        _make_absolute(job)
        _tell_category(job)
        _say_what_is_not_heeded(job)
    with jobs.client() as scheduler:
        ids = submitting.send(scheduler, file, wanted)
        submitting.tell(ids, file, as_json=as_json, wait=wait)
        if wait:
            raise typer.Exit(submitting.wait_for(scheduler, ids, as_json=as_json))


def _options(params: Mapping[str, Any]) -> jobs.Object:
    """Return what the command line says as fields of a job request."""
    ours = {"words", "wait", "as_json", "label", "env", "latency", "core_hint", *FLAGS}
    given = {MODEL_FIELDS.get(name, name): value for name, value in params.items() if name not in ours}
    fields = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    fields |= {
        "labels": jobs.parse_labels(params["label"]) or None,
        "env": jobs.parse_labels(params["env"], "--env") or None,
        "latency_s": _latency_s(params),
        "core_hints": [hint.value for hint in params["core_hint"] or ()] or None,
        **{field: value for flag, told in FLAGS.items() if params[flag] for field, value in told.items()},
    }
    return {name: value for name, value in fields.items() if value is not None}


def _latency_s(params: Mapping[str, Any]) -> float | None:
    return None if params["latency"] is None else time_s("--latency", params["latency"])


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


def _shell(job: Mapping[str, Any]) -> jobs.Object:
    """Return what the submitting shell gives to a job."""
    env = {name: value for name, value in os.environ.items() if name not in NOT_FOR_JOBS}
    shell: jobs.Object = {"env": env, "workdir": str(Path.cwd())}
    if "model_name" in job:
        shell["python"] = sys.executable
    return shell


MERE_BYTES_MAX: Final = 10**6
"""A bare number up to this, where a size is asked for, was hardly meant in bytes."""

SIZES: Final = ("gpu_memory", "host_memory", "host_bandwidth")


def _refuse_mere_bytes(file: JobFile, wanted: Sequence[jobs.Object]) -> None:
    """Slurm reads a bare number as megabytes, we as bytes: nobody means ten bytes by `--mem 10`."""
    for number, field in product(range(len(wanted)), SIZES):
        given = str(wanted[number].get(field, "")).strip()
        if given.isdecimal() and 0 < int(given) <= MERE_BYTES_MAX:
            rate = "/s" if field == "host_bandwidth" else ""
            said = f"say {given}MB{rate} or {given}GB{rate}; {given} alone would count bytes{rate}"
            raise MisuseError(submitting.place(file, f"jobs[{number}].{field}" if file.is_batch else field, said))


def _make_absolute(job: jobs.Object) -> None:
    """Read a relative working directory from this one; `PWD` says the same as the directory."""
    if isinstance(job["workdir"], str):
        job["workdir"] = str(Path.cwd() / Path(job["workdir"]).expanduser())
        if isinstance(job["env"], dict):
            job["env"]["PWD"] = job["workdir"]


def _tell_category(job: jobs.Object) -> None:
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
    """Name what a user may think goes along with his job, and does not."""
    found = directives(job.get("command"), job["workdir"])
    if found is not None:
        output.note(f"note: {found}")
    if output.has_input():
        output.note(
            "note: a job does not read standard input; let a shell open what it shall read: "
            "colane submit -- sh -c 'COMMAND < FILE'"
        )

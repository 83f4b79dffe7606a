# ruff: noqa: ARG001, PLR0913, PLR0917 - a command line option is a parameter; they are read from the context by name
"""`colane profile`: measure jobs alone and together, and show what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from colane.cli import output
from colane.cli.errors import FAILURE, FailureError, MisuseError
from colane.cli.jobs import objects as jobs
from colane.model.field_values import parse_sizes
from colane.model.job_spec import Ranks

if TYPE_CHECKING:
    from colane.client.client import Client
    from colane.client.profile_session import Session
    from colane.client.profiling import Subject
    from colane.lab.commands.profile_subjects import Asked

REQUEST_OPTIONS: Final = (
    "batch_size", "dataset", "dataset_path", "workers", "image_size", "augment", "width", "gpus", "gpu_type",
    "gpu_memory", "pool", "family", "ranks",
)  # fmt: skip
"""Options that are fields of a job request by the same name."""

FORGET, LIST = "forget", "list"
FORGET_WORDS: Final = (FORGET, "FAMILY")  # a program of these names is measured as `./forget` or `env list`
SET_SIZES: Final = {"all_pairs": 2, "all_triples": 3}

EXAMPLES: Final = """Examples: [bold]colane profile --steps 30 -- python train.py[/bold] measures a script;
[bold]colane profile --model resnet18 --batch-sizes 64,128,256[/bold] draws throughput against batch size;
[bold]colane profile --gpus 1..4 -- python train.py[/bold] learns how much faster it is on more GPUs;
[bold]colane profile --together resnet18:64 vgg11:64[/bold] measures what sharing a device brings;
[bold]colane profile --all-pairs resnet18:64 vgg11:64 job.yaml[/bold] does so for every pair."""

ALONE, SETS, SHOWN = "Jobs alone", "Jobs together", "What is shown"


def register(app: typer.Typer) -> None:
    """Add the command."""
    settings = {"allow_interspersed_args": False}
    app.command("profile", epilog=EXAMPLES, context_settings=settings)(profile)


def _alone(help_text: str, *names: str, metavar: str | None = None) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(*names, help=help_text, metavar=metavar, show_default=False, rich_help_panel=ALONE)


def _sets(help_text: str, *names: str) -> Any:  # noqa: ANN401 - as above
    return typer.Option(*names, help=help_text, show_default=False, rich_help_panel=SETS)


def profile(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOBS... | -- COMMAND...]", show_default=False, help="A command, job files, or MODEL:BATCH words."
        ),
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=10, help="Steps that are measured.")] = 30,
    model: Annotated[str | None, _alone("Built-in model.", "--model", "--model-name")] = None,
    batch_size: Annotated[int | None, _alone("Samples per step.", "--batch-size", "-b")] = None,
    batch_sizes: Annotated[
        str | None, _alone("Measure at each, and draw throughput against it.", "--batch-sizes", metavar="N,N,...")
    ] = None,
    dataset: Annotated[str | None, _alone("cifar10, digits or synthetic.", "--dataset")] = None,
    dataset_path: Annotated[Path | None, _alone("Where CIFAR-10 lies.", "--dataset-path")] = None,
    workers: Annotated[int | None, _alone("Data loader processes.", "--workers")] = None,
    image_size: Annotated[int | None, _alone("Side of the images in pixels.", "--image-size")] = None,
    augment: Annotated[int | None, _alone("Random rotations of each sample, in its data loader.", "--augment")] = None,
    width: Annotated[float | None, _alone("Scales the model's channels.", "--width")] = None,
    gpus: Annotated[
        str | None,
        _alone("GPUs on one machine; at each of several, as 1..4 or 1,2,4, for f(n).", "--gpus", "-G", metavar="N"),
    ] = None,
    ranks: Annotated[Ranks | None, _alone("Processes that are started: one, or one for each GPU.", "--ranks")] = None,
    gpu_type: Annotated[str | None, _alone("Only GPUs of this type.", "--gpu-type")] = None,
    gpu_memory: Annotated[str | None, _alone("Peak memory on each GPU.", "--gpu-memory", metavar="SIZE")] = None,
    pool: Annotated[str | None, _alone("Only machines of this pool.", "--pool", "-p")] = None,
    family: Annotated[str | None, _alone("Keep the profile under this name.", "--family")] = None,
    kernels: Annotated[
        Path | None,
        _alone(
            "Take C and M from a torch.profiler trace or an ncu CSV of this job instead of running it.", "--kernels"
        ),
    ] = None,
    together: Annotated[bool, _sets("Measure the jobs named as one set.", "--together")] = False,
    all_pairs: Annotated[bool, _sets("Measure every pair of the jobs named.", "--all-pairs")] = False,
    all_triples: Annotated[bool, _sets("Measure every triple of the jobs named.", "--all-triples")] = False,
    mps: Annotated[
        bool | None, _sets("Measure only with, or only without NVIDIA MPS; both by default on GPUs.", "--mps/--no-mps")
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="Show all profiles and measured sets; run nothing.", rich_help_panel=SHOWN)
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", show_default=False, help="Directory for page and figures.", rich_help_panel=SHOWN),
    ] = None,
    as_json: output.Json = False,
) -> None:
    """Measure a job alone, or sets of jobs together, on the devices of the running scheduler.

    A job runs alone for some steps and is stopped; its step time, memory, and on a GPU its occupancy and memory
    bandwidth are kept as its profile. Sets run together on one device; delta is what that brings. Jobs with many
    steps measure best. Options stand before the jobs. [bold]colane profile forget FAMILY[/bold] forgets what is known.
    """
    if words and words[0] == FORGET:
        if len(words) != len(FORGET_WORDS):
            raise MisuseError("profile forget: name one family, as colane profile --list has it; ./forget is a program")
        with jobs.client() as scheduler:
            forgotten = scheduler.forget_profiles(words[1])
        if as_json:
            output.print_json({"family": words[1], "forgotten": forgotten})
        else:
            output.say(f"forgot {forgotten} record(s) of {words[1]}: its jobs are measured anew")
        return
    if words == [LIST]:
        raise MisuseError("profile list: what is known is shown by colane profile --list; a program is ./list")
    _check(ctx.params)
    try:
        parse_sizes(gpus or "1")
    except ValueError as error:
        raise MisuseError(f"--gpus: {error}") from error
    with jobs.client() as scheduler:
        if show_list:
            from colane.lab.commands.profile_output import show_all  # noqa: PLC0415 - imported late

            show_all(scheduler, out, as_json=as_json)
        elif kernels is not None:
            _take_kernels(scheduler, ctx.params)
        else:
            _measure(scheduler, ctx.params)


def _check(params: Mapping[str, Any]) -> None:
    chosen = [name for name in ("together", "all_pairs", "all_triples", "show_list", "kernels") if params[name]]
    if len(chosen) > 1:
        names = [{"show_list": "--list"}.get(name, f"--{name.replace('_', '-')}") for name in chosen]
        raise MisuseError(f"profile: give {' or '.join(names)}, not both")
    if chosen and chosen[0] in ("together", *SET_SIZES):
        if params["model"] or params["batch_sizes"]:
            raise MisuseError(f"--{chosen[0].replace('_', '-')}: name the jobs as words: resnet18:64 vgg11:64")
        if params["gpus"] not in {None, "1"}:
            raise MisuseError("--gpus: sets are measured on one GPU")


def _asked(params: Mapping[str, Any]) -> Asked:
    from colane.lab.commands.profile_subjects import Asked, parse_batch_sizes  # noqa: PLC0415 - imported late

    given = {name: params[name] for name in REQUEST_OPTIONS} | {"model_name": params["model"]}
    fields = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    options = {name: value for name, value in fields.items() if value is not None}
    several = bool(params["together"] or params["all_pairs"] or params["all_triples"])
    return Asked(params["words"] or [], options, parse_batch_sizes(params["batch_sizes"]), several)


def _measure(scheduler: Client, params: Mapping[str, Any]) -> None:
    from colane.client.profile_session import Session  # noqa: PLC0415
    from colane.client.profiling import Profiler, Rules  # noqa: PLC0415
    from colane.lab.commands.profile_output import Live, report  # noqa: PLC0415 - imported late
    from colane.lab.commands.profile_subjects import read_subjects  # noqa: PLC0415

    asked = _asked(params)
    subjects = read_subjects(asked, scheduler)
    live = Live()
    session = Session(Profiler(scheduler, Rules(steps=params["steps"]), live.tell))
    with live:
        _run(session, subjects, params)
    if not session.runs and not session.sets and session.failures:
        raise FailureError("; ".join(session.failures))
    report(session, subjects, params["out"], as_json=params["as_json"])
    if session.failures:
        raise typer.Exit(FAILURE)


def _run(session: Session, subjects: Sequence[Subject], params: Mapping[str, Any]) -> None:
    from colane.client.profile_session import modes_for, sets_of  # noqa: PLC0415 - imported late

    size = next((size for name, size in SET_SIZES.items() if params[name]), len(subjects))
    if not (params["together"] or params["all_pairs"] or params["all_triples"]):
        session.measure_alone(subjects)
        return
    if len(subjects) < max(size, 2):
        raise MisuseError(f"profile: name at least {max(size, 2)} jobs: resnet18:64 vgg11:64, or job files")
    session.measure_sets(sets_of(subjects, size), modes_for(subjects, mps=params["mps"]))


def _take_kernels(scheduler: Client, params: Mapping[str, Any]) -> None:
    from colane.lab.commands.profile_subjects import read_subjects, take_kernels  # noqa: PLC0415 - imported late

    subjects = read_subjects(_asked(params), scheduler)
    if len(subjects) != 1:
        raise MisuseError("--kernels: a trace is of one job; name that job alone")
    take_kernels(scheduler, subjects[0], params["kernels"], params["out"], as_json=params["as_json"])

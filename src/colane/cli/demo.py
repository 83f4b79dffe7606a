"""`colane demo`: paper A's best case, run twice on this machine: one job a device, then together."""

from __future__ import annotations

import os
import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli import service_options as options
from colane.cli.errors import FailureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colane.cli.demo_plan import DemoPhase, DemoPlan
    from colane.cli.demo_screen import Screen
    from colane.cli.jobs import Object
    from colane.cli.stack import Stack
    from colane.client.client import Client
    from colane.report.writer import Report

LOOK_EVERY_S: Final = 0.25
HEARTBEAT_S: Final = 0.5
"""The agent reports this often, so that the bars move; it costs less than a hundredth of a core."""

LOG_LINES: Final = 10
"""Shown of a job that failed."""


class DemoPaper(StrEnum):
    """Whose idea is shown."""

    A = "A"
    D = "D"
    E = "E"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo", epilog="Example: [bold]colane demo --out my-demo[/bold]")(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for the report.")] = Path("colane-demo"),
    dataset_path: Annotated[
        Path, typer.Option("--dataset-path", help="Where CIFAR-10 lies; without it, handwritten digits are used.")
    ] = Path("data"),
    devices: options.Devices = None,
    iters: Annotated[
        int | None, typer.Option("--iters", min=1, show_default="about a minute a run", help="Steps of each job.")
    ] = None,
    paper: Annotated[
        DemoPaper,
        typer.Option(
            "--paper", help="A: jobs share a device. D: cores are found, and a hog is held back. E: jobs are resized."
        ),
    ] = DemoPaper.A,
    as_json: output.Json = False,
) -> None:
    """Train six models on this machine, first one after another and then together, and show what sharing bought.

    Starts a scheduler and an agent of its own, submits paper A's best case (two each of VGG-19, VGG-11 and ResNet-18)
    under FIFO and then under co-location, and ends with a report. Without a GPU it uses the CPU and small models, and
    takes less than three minutes. With --paper D it shows, in a minute or two on cpu devices, how a job is given the
    cores it has use for, and how one that uses up memory bandwidth is held back for training beside it. With
    --paper E it shows, in less than two minutes on four cpu devices, how two elastic jobs are resized for each other
    and for a newcomer, and that their loss curves do not notice. Ctrl-C stops everything it has started.
    """
    from colane.cli.demo_plan import make_plan  # noqa: PLC0415 - imported late
    from colane.cli.demo_screen import make_screen  # noqa: PLC0415
    from colane.cli.stack import interruptible  # noqa: PLC0415

    if paper is DemoPaper.E:
        _sizes(out.absolute(), devices, as_json=as_json)
        return
    _check_trainer()
    if paper is DemoPaper.D:
        _cores(out.absolute(), devices, as_json=as_json)
        return
    plan = make_plan(devices, dataset_path, iters)
    out = out.absolute()
    _check_writable(out)
    state_dir = Path(tempfile.mkdtemp(prefix="colane-demo-"))
    try:
        with interruptible():
            made, failed = _run(plan, state_dir, out, make_screen(quiet=as_json))
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    _show(made, as_json=as_json)
    if failed:
        raise FailureError(f"{failed} of the jobs did not succeed; their last words stand above")


def _cores(out: Path, devices: str | None, *, as_json: bool) -> None:
    """Paper D's: one service, three acts, one figure."""
    from colane.cli import demo_cores  # noqa: PLC0415 - imported late
    from colane.cli.stack import Stack, interruptible  # noqa: PLC0415

    _check_writable(out)
    state_dir = Path(tempfile.mkdtemp(prefix="colane-demo-"))
    try:
        with interruptible(), Stack(demo_cores.stack_config(state_dir, devices)) as stack:
            watching = demo_cores.act(stack)
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    demo_cores.publish(watching, out, as_json=as_json)


def _sizes(out: Path, devices: str | None, *, as_json: bool) -> None:
    """Paper E's: one service, two acts, one figure."""
    from colane.cli import demo_elastic  # noqa: PLC0415 - imported late
    from colane.cli.stack import Stack, interruptible  # noqa: PLC0415

    _check_writable(out)
    state_dir = Path(tempfile.mkdtemp(prefix="colane-demo-"))
    try:
        with interruptible():
            with Stack(demo_elastic.stack_config(state_dir, devices)) as stack:
                watch, curves, many = demo_elastic.act(stack, state_dir)
            broken = demo_elastic.publish(watch, curves, many, state_dir, out, as_json=as_json)
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)
    if broken:
        raise FailureError(f"{broken} of the jobs did not make each step once, as if it had never been resized")


def _check_trainer() -> None:
    """Refuse early when the built-in trainer cannot run here."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [name for name in ("torch", "sklearn") if find_spec(name) is None]
    if missing:
        raise FailureError(f"the demo trains with {' and '.join(missing)}: pip install 'colane[workloads]'")


def _check_writable(out: Path) -> None:
    """Find out now, not after two minutes."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FailureError(f"--out: {out} cannot be made: {error.strerror}") from error
    if not os.access(out, os.W_OK):
        raise FailureError(f"--out: {out} cannot be written")


def _run(plan: DemoPlan, state_dir: Path, out: Path, screen: Screen) -> tuple[Report, int]:
    """Run all phases on one state directory: each scheduler starts with what the one before has learnt."""
    from colane.cli.stack import Stack  # noqa: PLC0415 - imported late

    screen.begin(plan)
    failed = 0
    made = None
    for place, phase in enumerate(plan.phases):
        with Stack(plan.stack_config(phase, state_dir, HEARTBEAT_S)) as stack:
            ended = _run_phase(stack, plan, phase, screen)
            failed += _tell_failures(stack, ended)
            if place == len(plan.phases) - 1:
                screen.say("drawing the report")
                made = _report(stack, plan, out)
    assert made is not None  # noqa: S101 - there is at least one phase
    return made, failed


def _run_phase(stack: Stack, plan: DemoPlan, phase: DemoPhase, screen: Screen) -> list[Object]:
    """Submit the batch, show it until every job has ended, and return the ended jobs."""
    with stack.client() as scheduler, screen.phase(phase):
        screen.devices(stack.node())
        ids = scheduler.submit_batch(plan.jobs(phase))
        ended: dict[int, Object] = {}
        while len(ended) < len(ids):
            live = {job["id"]: job for job in scheduler.live_jobs()}
            ended |= {each: scheduler.job(each) for each in ids if each not in live and each not in ended}
            screen.show([ended.get(each) or live[each] for each in ids])
            if len(ended) < len(ids):
                stack.watch(LOOK_EVERY_S)
        for message in scheduler.node(stack.config.node)["messages"]:
            screen.say(message)
        return [ended[each] for each in ids]


def _tell_failures(stack: Stack, ended: Sequence[Object]) -> int:
    """Print the end of each failed job's log; the logs themselves go with the state directory."""
    failed = [job for job in ended if job["state"] != "succeeded"]
    with stack.client() as scheduler:
        for job in failed:
            output.note(f"job {job['id']} ({job['name']}) {job['state']}: {job['reason']}")
            for line in _last_lines(scheduler, job):
                output.note(f"  | {line}")
    return len(failed)


def _last_lines(scheduler: Client, job: Object) -> list[str]:
    if not job["attempt"]:
        return []
    text = scheduler.log(job["id"], -(2**14)).data.decode(errors="replace")
    return text.splitlines()[-LOG_LINES:]


def _report(stack: Stack, plan: DemoPlan, out: Path) -> Report:
    from colane.cli.report import make_report  # noqa: PLC0415 - matplotlib comes with it

    with stack.client() as scheduler:
        return make_report(scheduler, "run", {}, out, plan.title)


def _show(made: Report, *, as_json: bool) -> None:
    from colane.cli.report import print_report  # noqa: PLC0415 - as above

    if as_json:
        output.say(made.summary_json.read_text(encoding="utf-8").rstrip())
    else:
        print_report(made)

"""`colane demo`: what sharing brings on this machine, measured: paper A's batch and a mixed one, each run twice."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from colane.cli import output
from colane.cli.errors import FailureError, MisuseError
from colane.cli.service.command import option
from colane.settings.table import DEVICES

if TYPE_CHECKING:
    from colane.lab.demo.screen import Screen
    from colane.lab.report.writer import Report

WHOLE_ITERS: Final = 300
"""Of each job of paper A's batch where a second batch follows: the whole is meant to take about four minutes."""

MIXED_DIR: Final = "mixed"


class DemoPaper(StrEnum):
    """The paper whose idea is shown."""

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
    devices: Annotated[str | None, option(DEVICES)] = None,
    iters: Annotated[
        int | None,
        typer.Option("--iters", min=1, show_default="about a minute a run", help="Steps of each job of paper A's."),
    ] = None,
    paper: Annotated[
        DemoPaper | None,
        typer.Option(
            "--paper",
            show_default="paper A's batch, then a mixed one",
            help="Only A: jobs share a device. Only D: cores are found, a hog is held back. Only E: jobs are resized.",
        ),
    ] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="Only the mixed batch, under FIFO and colane.")] = False,
    as_json: output.Json = False,
) -> None:
    """Train small models on this machine, each batch under FIFO and then shared, and show what that bought.

    First paper A's best case (two each of VGG-19, VGG-11 and ResNet-18) under FIFO and co-location. Then a mixed batch
    under FIFO and the policy colane: small jobs that share, one that waits for its data, an elastic one, one without a
    device, and an urgent one in the middle; a sentence says of each mechanism what it brought here, measured. That
    takes a few minutes on two idle cores, less with --paper A or --mixed. Each run has a scheduler and an agent of its
    own, and there is a report of each batch. Without a GPU it uses the CPU and small models. Ctrl-C stops everything
    it has started.
    """
    from colane.lab.demo.screen import make_screen  # noqa: PLC0415 - imported late

    if mixed and paper is not None:
        raise MisuseError("--mixed and --paper each ask for one batch alone; give one of them, or neither for both")
    if mixed and iters is not None:
        raise MisuseError("--iters is for paper A's batch, which --mixed leaves out")
    out = out.absolute()
    if paper is DemoPaper.E:
        _sizes(out, devices, as_json=as_json)
        return
    _check_trainer()
    if paper is DemoPaper.D:
        _cores(out, devices, as_json=as_json)
        return
    _check_writable(out)
    screen = make_screen(quiet=as_json)
    made: dict[str, Report] = {}
    failed = 0
    if not mixed:
        made["paper_a"], lost = _paper(out, devices, dataset_path, iters or (None if paper else WHOLE_ITERS), screen)
        failed += lost
        _show(made["paper_a"], as_json=as_json)
    if paper is None:
        made["mixed"], lost = _mixed(out if mixed else out / MIXED_DIR, devices, screen)
        failed += lost
        _show(made["mixed"], as_json=as_json)
    said = simulate_elsewhere(out, screen) if paper is None and not mixed else []
    if as_json:  # one document: the summary of the only batch, or of each by name with what was said of other machines
        found = {name: json.loads(report.summary_json.read_text(encoding="utf-8")) for name, report in made.items()}
        output.print_json({**found, "elsewhere": said} if len(found) > 1 else next(iter(found.values())))
    if failed:
        raise FailureError(f"{failed} of the jobs did not succeed; their last words stand above")


def _paper(out: Path, devices: str | None, dataset_path: Path, iters: int | None, screen: Screen) -> tuple[Report, int]:
    """Paper A's batch: its report, and how many jobs failed."""
    from colane.lab.demo.plan import make_plan  # noqa: PLC0415 - imported late
    from colane.lab.demo.run import run_paper  # noqa: PLC0415

    plan = make_plan(devices, dataset_path, iters)
    with _state() as state_dir:
        return run_paper(plan, state_dir, out, screen)


def _mixed(out: Path, devices: str | None, screen: Screen) -> tuple[Report, int]:
    """The mixed batch: its report, and how many jobs failed."""
    from colane.lab.demo.mixed import make_mixed_plan  # noqa: PLC0415 - imported late
    from colane.lab.demo.run import run_mixed  # noqa: PLC0415

    with _state() as state_dir:
        plan = make_mixed_plan(devices, state_dir / "saved")
        return run_mixed(plan, state_dir, out, screen)


def simulate_elsewhere(out: Path, screen: Screen) -> list[str]:
    """What the same policies do where there is more to decide: sentences, and a picture."""
    screen.say("simulating the same policies on more machines")
    from colane.lab.demo import elsewhere  # noqa: PLC0415 - imported late

    with _state() as folder:
        outcomes = elsewhere.run(folder)
    said = elsewhere.sentences(outcomes)
    for line in (*said, f"picture: {elsewhere.draw(outcomes, out / 'elsewhere.png')}"):
        screen.say(line)
    return said


@contextmanager
def _state() -> Iterator[Path]:
    """A state directory that is gone at the end, however that comes."""
    from colane.cli.service.terminal import interruptible  # noqa: PLC0415 - imported late

    state_dir = Path(tempfile.mkdtemp(prefix="colane-demo-"))
    try:
        with interruptible():
            yield state_dir
    finally:
        shutil.rmtree(state_dir, ignore_errors=True)


def _cores(out: Path, devices: str | None, *, as_json: bool) -> None:
    """Paper D's: one service, three acts, one figure."""
    from colane.engines.local import LocalEngine  # noqa: PLC0415
    from colane.lab.demo import cores as demo_cores  # noqa: PLC0415 - imported late

    _check_writable(out)
    with _state() as state_dir, LocalEngine(demo_cores.stack_config(state_dir, devices)) as stack:
        watching = demo_cores.act(stack)
    demo_cores.publish(watching, out, as_json=as_json)


def _sizes(out: Path, devices: str | None, *, as_json: bool) -> None:
    """Paper E's: one service, two acts, one figure."""
    from colane.engines.local import LocalEngine  # noqa: PLC0415
    from colane.lab.demo import elastic as demo_elastic  # noqa: PLC0415 - imported late

    _check_writable(out)
    with _state() as state_dir:
        with LocalEngine(demo_elastic.stack_config(state_dir, devices)) as stack:
            watch, curves, many = demo_elastic.act(stack, state_dir)
        broken = demo_elastic.publish(watch, curves, many, state_dir, out, as_json=as_json)
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


def _show(made: Report, *, as_json: bool) -> None:
    from colane.lab.commands.report import print_report  # noqa: PLC0415 - as above

    if not as_json:
        print_report(made)

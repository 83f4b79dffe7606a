"""Shows the demo while it runs: moving bars on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from colane.api.jobs import JobObject
from colane.api.nodes import NodeObject
from colane.cli import output
from colane.cli.jobs import objects as jobs
from colane.client.told import facts_of
from colane.lab.demo.plan import BatchPlan, DemoPhase
from colane.model.phases import is_in
from colane.model.words import count

BAR_WIDTH = 24
NARROW_BAR_WIDTH = 12
WIDE_TERMINAL = 100


class Screen(ABC):
    """What the demo tells its user."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._phases: tuple[DemoPhase, ...] = ()
        self._heading = ""

    @property
    def elapsed(self) -> str:
        """Time since the present run of the batch began."""
        return output.duration(time.monotonic() - self._start_s)

    def begin(self, plan: BatchPlan) -> None:
        """Say what is about to happen."""
        self._phases = plan.phases
        for line in plan.words:
            self.say(line)

    def devices(self, node: NodeObject) -> None:
        """Name the devices that have come up."""
        named = ", ".join(f"{node['name']}/{gpu['index']}" for gpu in node["gpus"])
        self.say(f"scheduler and agent are up with {named}; the batch is submitted")

    @contextmanager
    def phase(self, phase: DemoPhase) -> Iterator[None]:
        """Show one run of the batch."""
        number = self._phases.index(phase) + 1
        self._heading = f"run {number} of {len(self._phases)}: {phase.name} ({phase.words})"
        self._start_s = time.monotonic()
        yield

    @abstractmethod
    def say(self, line: str) -> None:
        """Print a line."""

    @abstractmethod
    def show(self, batch: Sequence[JobObject]) -> None:
        """Show where the jobs are."""


def make_screen(*, quiet: bool) -> Screen:
    """Return the screen for this standard output; a quiet one leaves it to JSON."""
    if quiet or not sys.stdout.isatty():
        return PlainScreen(quiet=quiet)
    return LiveScreen(Console(highlight=False))


class PlainScreen(Screen):
    """One line for every change of a job's state."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__()
        self._quiet = quiet
        self._states: dict[int, str] = {}

    def say(self, line: str) -> None:
        """Print a line at once, in JSON's way on standard error."""
        (output.note if self._quiet else output.say)(line)
        sys.stdout.flush()

    @contextmanager
    def phase(self, phase: DemoPhase) -> Iterator[None]:
        """Print the heading first."""
        with super().phase(phase):
            self.say(self._heading)
            yield

    def show(self, batch: Sequence[JobObject]) -> None:
        """Print what has changed."""
        for job in batch:
            state = job["state"].removesuffix("-protected")
            if self._states.get(job["id"], "queued") != state:
                where = f" on {', '.join(job['gpus'])}" if state == "running" and job["gpus"] else ""
                self.say(f"{self.elapsed:>12}  {job['name']} {is_in(state)}{where}{_made(job)}")
            self._states[job["id"]] = state


class LiveScreen(Screen):
    """A table of bars, drawn anew in its place; what is said stands above it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live: Live | None = None

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self._console.print(line, style="dim")

    @contextmanager
    def phase(self, phase: DemoPhase) -> Iterator[None]:
        """Draw while the phase lasts; the last picture stays."""
        with super().phase(phase):
            # Drawn when there is something new: a thread of Rich's own would draw what has not changed.
            with Live(console=self._console, auto_refresh=False) as self._live:
                yield
            self._live = None

    def show(self, batch: Sequence[JobObject]) -> None:
        """Draw the bars."""
        if self._live is not None:
            self._live.update(self._table(batch), refresh=True)

    def _table(self, batch: Sequence[JobObject]) -> Table:
        title = f"{self._heading} - {self.elapsed}"
        table = Table(box=SIMPLE_HEAD, title=title, title_style="bold", title_justify="left", pad_edge=False)
        for heading in ("job", "state", "on", ""):
            table.add_column(heading, no_wrap=True)
        for heading in ("steps", "steps/s", "loss", "time"):
            table.add_column(heading, justify="right", no_wrap=True)
        for job in batch:
            table.add_row(*self._row(job))
        done = sum(jobs.has_ended(job) for job in batch)
        table.add_section()
        steps, total = (sum(job[name] or 0 for job in batch) for name in ("steps", "steps_total"))
        whole = self._bar(steps, total or 1, ended=done == len(batch))
        table.add_row("all", f"{done} of {len(batch)} done", "", whole)
        return table

    def _row(self, job: JobObject) -> list[Any]:
        rate = facts_of(job)["now_steps_per_s"]
        state = job["state"].removesuffix("-protected")
        return [
            job["name"],
            Text(state, style=output.STATE_STYLES.get(state, "")),
            ", ".join(job["gpus"]),
            self._bar(job["steps"] or 0, job["steps_total"] or 1, ended=jobs.has_ended(job)),
            jobs.progress_text(job),
            output.number(rate) if rate else "",
            _loss(job).removeprefix("loss "),
            output.duration(facts_of(job)["spent_s"]),
        ]

    def _bar(self, steps: int, total: int, *, ended: bool) -> ProgressBar:
        width = BAR_WIDTH if self._console.width >= WIDE_TERMINAL else NARROW_BAR_WIDTH
        finished = "green" if ended else "cyan"
        return ProgressBar(total=total, completed=steps, width=width, complete_style="cyan", finished_style=finished)


def _made(job: JobObject) -> str:
    """What a job that has ended has made, as far as it says so."""
    steps = jobs.progress_text(job) if jobs.has_ended(job) else ""
    return ", ".join(["", count(steps, "step"), *filter(None, [_loss(job)])]) if steps else ""


def _loss(job: JobObject) -> str:
    sample = job.get("progress")
    loss = sample.get("loss") if sample else None
    return "" if loss is None else f"loss {loss:.3f}"

"""Runs the batches of the demo: a scheduler and an agent for each run, the jobs shown until all have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colane.api.jobs import JobObject
from colane.cli import output
from colane.client.knowledge import read_measurements
from colane.engines.local import LocalEngine
from colane.lab.commands.report import make_report
from colane.lab.demo.mixed import MixedPlan, MixedWatcher
from colane.lab.demo.plan import LABEL, DemoPhase
from colane.lab.report.mixed import MixedRun, mechanism_sentences, mixed_table

if TYPE_CHECKING:
    from colane.client.client import Client
    from colane.lab.demo.plan import BatchPlan, DemoPlan
    from colane.lab.demo.screen import Screen
    from colane.lab.report.writer import Report, ReportChapter

LOOK_EVERY_S: Final = 0.25
HEARTBEAT_S: Final = 0.5
"""The agent reports this often, so that the bars move; it costs less than a hundredth of a core."""

LOG_LINES: Final = 10  # shown of a job that failed


AtEnd = Callable[[LocalEngine, DemoPhase, Sequence[JobObject]], None]
"""What is done once all jobs of a phase have ended, while its scheduler still answers."""


def run_paper(plan: DemoPlan, state_dir: Path, out: Path, screen: Screen) -> tuple[Report, int]:
    """Run paper A's batch, and return the report and how many jobs failed."""
    made: list[Report] = []

    def at_end(stack: LocalEngine, phase: DemoPhase, _ended: Sequence[JobObject]) -> None:
        if phase == plan.phases[-1]:
            screen.say("drawing the report")
            with stack.client() as scheduler:
                made.append(make_report(scheduler, LABEL, {}, out, plan.title))

    failed = run_batch(plan, state_dir, screen, at_end)
    return made[0], failed


def run_mixed(plan: MixedPlan, state_dir: Path, out: Path, screen: Screen) -> tuple[Report, int]:
    """Run the mixed batch, and return the report and how many jobs failed."""
    watcher = MixedWatcher(plan)
    runs: list[MixedRun] = []
    made: list[Report] = []

    def at_end(stack: LocalEngine, phase: DemoPhase, ended: Sequence[JobObject]) -> None:
        with stack.client() as scheduler:
            runs.append(watcher.run(phase, stack.node(), ended, read_measurements(scheduler)))
        if phase == plan.phases[-1]:
            screen.say("drawing the report")
            with stack.client() as scheduler:
                made.append(make_report(scheduler, LABEL, {}, out, plan.title, _chapter(runs)))

    failed = run_batch(plan, state_dir, screen, at_end, watcher)
    return made[0], failed


def run_batch(
    plan: BatchPlan, state_dir: Path, screen: Screen, at_end: AtEnd, watcher: MixedWatcher | None = None
) -> int:
    """Run all phases on one state directory: each scheduler starts with what the one before has learnt.

    Returns:
        How many jobs failed.
    """
    screen.begin(plan)
    failed = 0
    for phase in plan.phases:
        with LocalEngine(plan.stack_config(phase, state_dir, HEARTBEAT_S)) as stack:
            ended = _run_phase(stack, plan, phase, screen, watcher)
            failed += _tell_failures(stack, ended)
            at_end(stack, phase, ended)
    return failed


def _run_phase(
    stack: LocalEngine, plan: BatchPlan, phase: DemoPhase, screen: Screen, watcher: MixedWatcher | None
) -> list[JobObject]:
    """Submit the batch, show it until every job has ended, and return the ended jobs."""
    with stack.client() as scheduler, screen.phase(phase):
        screen.devices(stack.node())
        if watcher is not None:
            watcher.begin()
        ids = scheduler.submit_batch(plan.jobs(phase))
        ended: dict[int, JobObject] = {}
        while len(ended) < len(ids):
            batch = _batch(scheduler, ids, ended)
            if watcher is not None:
                watcher.look(batch)
            screen.show(batch)
            ids += [scheduler.submit(job) for job in plan.arrivals(phase, batch)]
            if len(ended) < len(ids):
                stack.watch(LOOK_EVERY_S)
        for message in scheduler.node(stack.config.node)["messages"]:
            screen.say(message)
        return [ended[each] for each in ids]


def _batch(scheduler: Client, ids: Sequence[int], ended: dict[int, JobObject]) -> list[JobObject]:
    """All jobs as they are now; those that have ended are kept."""
    live = {job["id"]: job for job in scheduler.live_jobs()}
    ended |= {each: scheduler.job(each) for each in ids if each not in live and each not in ended}
    return [ended.get(each) or live[each] for each in ids]


def _tell_failures(stack: LocalEngine, ended: Sequence[JobObject]) -> int:
    """Print the end of each failed job's log; the logs themselves go with the state directory."""
    failed = [job for job in ended if job["state"] != "succeeded"]
    with stack.client() as scheduler:
        for job in failed:
            output.note(f"job {job['id']} ({job['name']}) {job['state']}: {job['reason']}")
            for line in _last_lines(scheduler, job):
                output.note(f"  | {line}")
    return len(failed)


def _last_lines(scheduler: Client, job: JobObject) -> list[str]:
    if not job["attempt"]:
        return []
    text = scheduler.log(job["id"], -(2**14)).data.decode(errors="replace")
    return text.splitlines()[-LOG_LINES:]


def _chapter(runs: Sequence[MixedRun]) -> ReportChapter:
    from colane.lab.report.elastic_plots import mixed_timeline  # noqa: PLC0415 - matplotlib comes with it
    from colane.lab.report.writer import ReportChapter  # noqa: PLC0415

    caption = "Which job was in which lane of which device, and how many cores it could use."
    return ReportChapter(mechanism_sentences(*runs), mixed_table(*runs), mixed_timeline(runs), caption)

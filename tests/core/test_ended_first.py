"""Ends that are heard while a job is being stopped: one that had ended by itself is judged by how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    Launched,
    NodeDrained,
    Progressed,
    RequeueRequested,
    Submitted,
)
from colane.model.hardware import Drain
from colane.model.job import Exit, Job, JobSpec, JobState
from colane.model.job_spec import SAVED
from colane.model.progress import Progress

from .test_checkpointing import CONTRACT, ONE, SPEC, Scene
from .test_gangs import SPAN, core_with
from .test_parking import TWO, URGENT, Site

LIMIT_S = 200.0
AT_LIMIT_S = 9.0 + LIMIT_S
PLAIN = replace(SPEC, checkpoint=None, time_limit_s=LIMIT_S)
SAVES = replace(SPEC, time_limit_s=LIMIT_S)

WAYS: Mapping[str, Callable[[Scene], Job]] = {
    "preempted": lambda scene: scene.wishes(0),
    "resized": lambda scene: scene.wishes(2),
    "drained": lambda scene: scene.at(scene.now_s, NodeDrained("n0", Drain("root", "", scene.now_s))),
    "drain over": lambda scene: scene.at(scene.now_s, NodeDrained("n0", Drain("root", "", 0.0, scene.now_s))),
    "requeued": lambda scene: scene.at(scene.now_s, RequeueRequested(ONE, "ann")),
    "limit": lambda scene: scene.at(AT_LIMIT_S),
    "cancelled": lambda scene: scene.at(scene.now_s, CancelRequested(ONE, "ann")),
}
"""What a job is stopped for, after it has ended and before that is heard."""


def _hears(scene: Scene, code: int | None, *, was_stopped: bool | None, lasted_s: float = 91.0) -> Job:
    """The end of its first attempt, which began at 9; no code stands for SIGKILL."""
    left = Exit(None, 9) if code is None else Exit(code, None)
    outcome, scene.now_s = "signalled" if code is None else "exited", scene.now_s + 1.0
    sample = Progress(at_s=9.0 + lasted_s, steps=60, first_step_s=10.0, last_step_s=9.0 + lasted_s)
    times = (9.0, min(9.0 + lasted_s, scene.now_s))
    return scene.at(scene.now_s, Ended(ONE, 1, outcome, left, *times, sample, "n0", was_stopped))


def _books(scene: Scene) -> bool:
    return any(load.bookings for load in scene.core.state.gpus.values())


@pytest.mark.parametrize("spec", [PLAIN, SAVES], ids=["plain", "saves"])
@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_had_left_with_0_has_succeeded(way: str, spec: JobSpec) -> None:
    scene = Scene(spec)
    stopping = WAYS[way](scene)
    assert stopping.leaving is not None
    over = _hears(scene, 0, was_stopped=False)
    assert (over.state, over.attempt, over.end_s) == (JobState.SUCCEEDED, 1, 100.0)
    assert not _books(scene)


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("code", [1, SAVED, None])
@pytest.mark.parametrize("spec", [PLAIN, SAVES], ids=["plain", "saves"])
@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_had_failed_is_retried_as_its_retries_say(
    way: str, spec: JobSpec, code: int | None, retries: int
) -> None:
    """But not one that was cancelled: its owner wants no other run of it."""
    scene = Scene(replace(spec, retries=retries))
    WAYS[way](scene)
    over = _hears(scene, code, was_stopped=False)
    if way == "cancelled":
        assert (over.state, over.totals.failures) == (JobState.CANCELLED, 0)
    elif retries:
        assert (over.attempt, over.totals.failures) == (1 if over.state is JobState.QUEUED else 2, 1)
        assert over.state in {JobState.QUEUED, JobState.ASSIGNED}
        assert over.gpu_count == 1
    else:
        assert (over.state, over.totals.failures, _books(scene)) == (JobState.FAILED, 1, False)


@pytest.mark.parametrize("was_stopped", [True, None])
@pytest.mark.parametrize("code", [0, 1, SAVED, None])
@pytest.mark.parametrize("spec", [PLAIN, SAVES], ids=["plain", "saves"])
@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_was_stopped_goes_where_it_was_to_go(
    way: str, spec: JobSpec, code: int | None, was_stopped: bool | None
) -> None:
    scene = Scene(spec)
    WAYS[way](scene)
    lasted_s = LIMIT_S if way == "limit" else 91.0
    over = _hears(scene, code, was_stopped=was_stopped, lasted_s=lasted_s)
    expected = {"cancelled": {JobState.CANCELLED}, "limit": {JobState.TIMED_OUT}}
    assert over.state in expected.get(way, {JobState.QUEUED, JobState.ASSIGNED})
    assert over.totals.failures == 0


@pytest.mark.parametrize("code", [0, 1, None])
@pytest.mark.parametrize("was_stopped", [True, False])
def test_its_time_limit_is_judged_by_how_long_it_ran_unless_it_was_stopped(code: int | None, was_stopped: bool) -> None:
    """Its agent was away: it ran on past its limit, or was stopped for it a little early by its own clock."""
    scene = Scene(PLAIN)
    WAYS["limit"](scene)
    scene.now_s = 400.0
    over = _hears(scene, code, was_stopped=was_stopped, lasted_s=LIMIT_S - 0.5 if was_stopped else LIMIT_S + 0.5)
    assert over.state is JobState.TIMED_OUT


@pytest.mark.parametrize(("code", "expected"), [(0, JobState.SUCCEEDED), (1, JobState.FAILED), (None, JobState.FAILED)])
def test_a_job_that_had_ended_before_it_was_parked_has_ended(code: int | None, expected: JobState) -> None:
    site = Site()
    site.run(ONE)
    site.do(Submitted(TWO, URGENT))
    assert site.job().parked
    left = Exit(None, 9) if code is None else Exit(code, None)
    outcome = "signalled" if code is None else "exited"
    over = site.do(Ended(ONE, 1, outcome, left, 1.0, site.now_s, None, "n0", was_stopped=False))
    assert next(job.state for job in over.jobs if job.id == ONE) is expected


GANG = replace(SPAN, checkpoint=CONTRACT, preemptible=True, retries=1)


@pytest.mark.parametrize("spec", [replace(GANG, checkpoint=None), GANG], ids=["plain", "saves"])
@pytest.mark.parametrize(
    ("first", "last", "is_early", "expected"),
    [
        ((0, False), (0, False), False, JobState.SUCCEEDED),
        ((0, False), (0, False), True, JobState.SUCCEEDED),
        ((0, False), (0, True), False, JobState.QUEUED),
        ((0, True), (0, False), False, JobState.QUEUED),
        ((0, False), (0, True), True, JobState.QUEUED),
        ((0, False), (0, None), True, JobState.QUEUED),
        ((SAVED, True), (1, False), False, JobState.QUEUED),
        ((1, False), (0, True), False, JobState.QUEUED),
    ],
)
def test_a_job_on_several_nodes_has_succeeded_where_each_part_had_left_with_0(
    spec: JobSpec, first: tuple[int, bool | None], last: tuple[int, bool | None], is_early: bool, expected: JobState
) -> None:
    """A part that fails while others are stopped may have failed for want of those: no failure is counted then.

    Args:
        spec: The job.
        first: How the part on one node ended: its exit code, and whether it had been stopped.
        last: How the other did, which is heard later.
        is_early: Whether the first was heard before the job was to be stopped.
        expected: Where it goes.
    """
    core = core_with(spec, 1, 2)
    job = core.state.jobs[ONE]
    assert job.placement is not None
    nodes = job.placement.nodes
    core.step([Launched(ONE, 1, 7, 1.0, node) for node in nodes], 1.0)
    core.step([Progressed(ONE, 1, Progress(at_s=2.0, steps=5, first_step_s=2.0), nodes[0])], 2.0)
    core.step([], 9.0)
    stop: Event = RequeueRequested(ONE, "ann")
    ends: list[Event] = [
        Ended(ONE, 1, "exited", Exit(code, None), 1.0, 9.5, None, node, was_stopped)
        for node, (code, was_stopped) in zip(nodes, (first, last), strict=True)
    ]
    for number, event in enumerate([ends[0], stop, ends[1]] if is_early else [stop, *ends]):
        outcome = core.step([event], 10.0 + number)
    over = next(job for job in outcome.jobs if job.id == ONE)
    states = {change.state for change in over.story[-2:]}
    assert expected in states, over.story
    assert over.totals.failures == 0

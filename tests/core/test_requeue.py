"""A job that was asked to come back does: whoever asks, whenever, and however its process ends then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from colane.core.events import CancelRequested, Ended, Launched, NodeLost, Progressed, RequeueRequested
from colane.model.job import Exit, Job, JobSpec, JobState
from colane.model.job_spec import SAVED
from colane.model.progress import Progress
from colane.model.reason import Why

from .test_checkpointing import CONTRACT, ONE, SPEC, Scene
from .test_gangs import SPAN, core_with

LIMIT_S = 200.0
AT_LIMIT_S = 9.0 + LIMIT_S
PLAIN = replace(SPEC, checkpoint=None, time_limit_s=LIMIT_S)
SAVES = replace(SPEC, time_limit_s=LIMIT_S, steps_total=60)
SPECS = pytest.mark.parametrize("spec", [PLAIN, SAVES], ids=["plain", "saves"])
WAITS = {JobState.QUEUED, JobState.ASSIGNED}
LEAVES = {JobState.STOPPING, JobState.CHECKPOINTING}


def _told_of_limit(scene: Scene) -> None:
    lead_s = CONTRACT.lead_s if scene.job.spec.checkpoint is not None else 0.0
    assert scene.at(AT_LIMIT_S - lead_s).leaving is not None


WHEN: Mapping[str, Callable[[Scene], object]] = {
    "running": lambda _: None,
    "preempted": lambda scene: scene.wishes(0),
    "resized": lambda scene: scene.wishes(2),
    "asked already": lambda scene: scene.at(scene.now_s, RequeueRequested(ONE, "ann")),
    "told of its limit": _told_of_limit,
    "at its limit": lambda scene: scene.at(AT_LIMIT_S),
}


def _asks(scene: Scene, *, is_own: bool) -> Job:
    scene.now_s += 1.0
    return scene.at(scene.now_s, RequeueRequested(ONE, "ann", is_own))


def _ends(scene: Scene, code: int | None, *, was_stopped: bool | None) -> Job:
    """No code stands for SIGKILL; all of its steps are done."""
    scene.now_s += 1.0
    left = Exit(None, 9) if code is None else Exit(code, None)
    sample = Progress(at_s=scene.now_s, steps=60, first_step_s=10.0, last_step_s=scene.now_s)
    outcome = "signalled" if code is None else "exited"
    return scene.at(scene.now_s, Ended(ONE, 1, outcome, left, 9.0, scene.now_s, sample, "n0", was_stopped))


@pytest.mark.parametrize("was_stopped", [True, False, None])
@pytest.mark.parametrize("code", [0, 1, SAVED, 255, None])
@SPECS
@pytest.mark.parametrize("when", WHEN)
def test_a_job_that_asks_itself_comes_back_however_it_ends(
    when: str, spec: JobSpec, code: int | None, was_stopped: bool | None
) -> None:
    scene = Scene(spec)
    WHEN[when](scene)
    asked = _asks(scene, is_own=True)
    assert asked.state in LEAVES
    assert asked.resizes_to is None
    over = _ends(scene, code, was_stopped=was_stopped)
    assert over.state in WAITS
    assert over.totals.failures == 0
    assert not any(load.bookings for load in scene.core.state.gpus.values()) or over.state is JobState.ASSIGNED


@pytest.mark.parametrize("code", [0, 1, SAVED, 255, None])
@SPECS
@pytest.mark.parametrize("when", WHEN)
def test_a_job_that_others_ask_for_comes_back_once_it_was_stopped(when: str, spec: JobSpec, code: int | None) -> None:
    scene = Scene(spec)
    WHEN[when](scene)
    assert _asks(scene, is_own=False).state in LEAVES
    if spec is SAVES and when not in {"told of its limit", "at its limit"} and code == 0:
        assert _ends(scene, code, was_stopped=True).state is JobState.SUCCEEDED  # all its steps are done
    else:
        assert _ends(scene, code, was_stopped=True).state in WAITS


@pytest.mark.parametrize("is_own", [True, False])
@SPECS
@pytest.mark.parametrize("code", [0, 1, None])
def test_it_comes_back_from_its_launch(spec: JobSpec, code: int | None, *, is_own: bool) -> None:
    scene = Scene(spec)
    scene.wishes(0)
    scene.ends(1.0, SAVED)
    scene.at(scene.now_s + 1.0, Launched(ONE, 2, 7, scene.now_s))
    assert scene.job.state is JobState.LAUNCHING
    assert _asks(scene, is_own=is_own).state is JobState.STOPPING
    left = Exit(None, 9) if code is None else Exit(code, None)
    outcome, was_stopped = "signalled" if code is None else "exited", not is_own
    event = Ended(ONE, 2, outcome, left, scene.now_s, scene.now_s, None, "n0", was_stopped)
    assert scene.at(scene.now_s + 1.0, event).state in WAITS


@pytest.mark.parametrize("is_own", [True, False])
@SPECS
def test_its_time_limit_does_not_end_it_while_it_leaves(spec: JobSpec, *, is_own: bool) -> None:
    scene = Scene(spec)
    scene.now_s = AT_LIMIT_S - CONTRACT.lead_s - 2.0
    _asks(scene, is_own=is_own)
    assert scene.at(AT_LIMIT_S + 1.0).ending is JobState.QUEUED
    assert _ends(scene, None, was_stopped=True).state in WAITS


@pytest.mark.parametrize("when", ["preempted", "resized"])
def test_one_that_cannot_save_comes_back_all_the_same_where_it_asks_itself(when: str) -> None:
    scene = Scene(SAVES)
    WHEN[when](scene)
    _asks(scene, is_own=True)
    said = scene.progress(steps=55, save_problem="disk full", saves_asked=scene.job.run.saves_asked)
    assert scene.at(scene.now_s, said).state is JobState.CHECKPOINTING
    assert scene.at(scene.now_s + CONTRACT.lead_s).state is JobState.STOPPING
    assert _ends(scene, 1, was_stopped=True).state in WAITS


def test_its_story_says_that_it_was_asked_and_by_which_user() -> None:
    scene = Scene(SAVES)
    _told_of_limit(scene)
    _asks(scene, is_own=True)
    over = _ends(scene, 0, was_stopped=True)
    told = [(change.state, change.reason.why) for change in over.story]
    place = told.index((JobState.STOPPING, Why.TOLD_OF_LIMIT))
    assert told[place + 1 : place + 3] == [(JobState.STOPPING, Why.REQUEUED), (JobState.QUEUED, Why.REQUEUED)]


@pytest.mark.parametrize("is_own", [True, False])
@SPECS
def test_one_that_is_cancelled_is_not_brought_back(spec: JobSpec, *, is_own: bool) -> None:
    scene = Scene(spec)
    scene.at(scene.now_s, CancelRequested(ONE, "ann"))
    assert not scene.job.may_be_requeued
    assert _asks(scene, is_own=is_own).ending is JobState.CANCELLED
    assert _ends(scene, 0, was_stopped=True).state is JobState.CANCELLED


@pytest.mark.parametrize("is_own", [True, False])
@SPECS
def test_one_that_is_cancelled_after_it_asked_has_been_cancelled(spec: JobSpec, *, is_own: bool) -> None:
    scene = Scene(spec)
    _asks(scene, is_own=is_own)
    scene.at(scene.now_s, CancelRequested(ONE, "ann"))
    assert _ends(scene, 0, was_stopped=True).state is JobState.CANCELLED


def test_it_comes_back_though_its_node_is_lost() -> None:
    scene = Scene(SAVES)
    _told_of_limit(scene)
    _asks(scene, is_own=True)
    assert scene.at(scene.now_s + 1.0, NodeLost("n0")).state is JobState.QUEUED


@pytest.mark.parametrize("codes", [(0, 0), (0, 1), (1, 0), (SAVED, None)])
@pytest.mark.parametrize("was_stopped", [True, False])
def test_a_job_over_nodes_comes_back_once_all_its_parts_have_left(
    codes: tuple[int | None, ...], *, was_stopped: bool
) -> None:
    core = core_with(replace(SPAN, checkpoint=CONTRACT, preemptible=True), 1, 2)
    placement = core.state.jobs[ONE].placement
    assert placement is not None
    core.step([Launched(ONE, 1, 7, 1.0, node) for node in placement.nodes], 1.0)
    core.step([Progressed(ONE, 1, Progress(at_s=2.0, steps=5, first_step_s=2.0), placement.nodes[0])], 2.0)
    core.step([], 9.0)
    core.step([RequeueRequested(ONE, "ann", is_own=True)], 10.0)
    for number, (node, code) in enumerate(zip(placement.nodes, codes, strict=True)):
        left = Exit(None, 9) if code is None else Exit(code, None)
        outcome = "signalled" if code is None else "exited"
        core.step([Ended(ONE, 1, outcome, left, 1.0, 10.5, None, node, was_stopped)], 11.0 + number)
    over = core.state.jobs[ONE]
    assert over.state in WAITS
    assert over.totals.failures == 0

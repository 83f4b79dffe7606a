"""Jobs that go on as fewer ranks without a restart, and every way in which that does not come about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.planners.means import REFORM_S, launch_s, shrink_s
from colane.core.reducers.reforming import ranks_wanted
from colane.model.job import Job, JobState
from colane.model.job_spec import SAVED
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.server.store.documents import JOB

from .audit import audit
from .test_checkpointing import ONE, SPEC, Scene, Told

FOUR = replace(SPEC, gpus=4)


def able() -> Scene:
    """A job on four GPUs whose ranks have said that they can go on as fewer."""
    scene = Scene(FOUR)
    scene.at(100.0, scene.progress(steps=50, saves=True, reforms=True))
    return scene


def asked(gpus: int = 2) -> Scene:
    scene = able()
    assert scene.wishes(gpus).state is JobState.CHECKPOINTING
    return scene


def formed(scene: Scene, ranks: int, after_s: float = 0.5) -> Job:
    now_s = scene.now_s + after_s
    said = {"saves": True, "reforms": True, "saved_s": now_s, "steps_saved": 52}
    job = scene.at(now_s, scene.progress(steps=52, ranks=ranks, **said))
    audit(scene.core.state)
    return job


def test_it_stays_one_attempt_and_what_it_gives_up_is_free_once_the_others_are_gone() -> None:
    scene = asked()
    assert (ranks_wanted(scene.job), scene.held) == (2, 4)
    assert formed(scene, 0).state is JobState.CHECKPOINTING, "it has saved; those who leave are not gone"
    job = formed(scene, 2)
    assert (job.state, job.attempt, job.gpu_count, scene.held) == (JobState.RUNNING_PROTECTED, 1, 2, 2)
    assert (job.resizes_to, job.ending, job.preempted_for, ranks_wanted(job)) == (None, None, None, 0)
    assert job.reason is not None
    assert sentence_of(job.reason) == "its ranks go on as 2, they were 4; it was not restarted"


def test_it_is_protected_by_what_it_took_and_its_launch_is_remembered_for_growing() -> None:
    scene = asked()
    began_s, launch = scene.now_s, launch_s(scene.job)
    job = formed(scene, 2, after_s=2.0)
    assert (launch, launch_s(job), shrink_s(job)) == (1.0, 1.0, REFORM_S)
    assert scene.at(began_s + 7.9).state is JobState.RUNNING_PROTECTED
    assert scene.at(began_s + 8.1).state is JobState.RUNNING
    assert shrink_s(Scene(FOUR).job) == 1.0, "others are restarted for that"


def test_what_it_had_with_all_of_them_is_counted_apart_and_once() -> None:
    scene = asked()
    job = formed(scene, 2)
    (four,) = job.totals.served
    assert (four.gpus, four.run_s) == (4, 100.5 - 9.0)
    assert (job.start_s, job.first_step_s, job.first_start_s, job.totals.steps_kept) == (100.5, 100.5, 9.0, 52)
    done = scene.ends(10.0, SAVED, steps=60)
    assert {one.gpus: one.run_s for one in done.totals.served} == {4: 91.5, 2: 10.0}


def test_it_shrinks_again_and_grows_by_a_restart() -> None:
    scene = asked()
    formed(scene, 2)
    scene.at(scene.now_s + 5.0)
    assert (scene.wishes(1).run.saves_asked, ranks_wanted(scene.job)) == (2, 1)
    assert (formed(scene, 1).gpu_count, scene.held) == (1, 1)
    scene.at(scene.now_s + 5.0)
    assert (scene.wishes(4).state, ranks_wanted(scene.job)) == (JobState.CHECKPOINTING, 0)
    grown = scene.ends(1.0, SAVED)
    assert (grown.state, grown.attempt, grown.gpu_count, grown.run.launch_s) == (JobState.ASSIGNED, 2, 4, None)


def test_a_job_that_leaves_instead_with_its_state_saved_is_restarted_at_the_new_size() -> None:
    scene = asked()
    job = scene.ends(2.0, SAVED)
    assert (job.state, job.attempt, job.gpu_count, job.totals.failures) == (JobState.ASSIGNED, 2, 2, 0)


def test_a_job_that_dies_on_the_way_is_restarted_at_the_new_size_from_what_it_has_saved() -> None:
    scene = asked()
    formed(scene, 0)
    job = scene.ends(1.0, 0, outcome="signalled", steps=52, saved_s=100.5, steps_saved=52)
    assert (job.state, job.attempt, job.gpu_count, job.totals.steps_kept) == (JobState.ASSIGNED, 2, 2, 52)
    assert (job.totals.failures, job.totals.saves_failed) == (0, 1)


def test_a_job_that_has_saved_and_does_not_go_on_in_time_is_stopped_and_restarted_at_the_new_size() -> None:
    scene = asked()
    formed(scene, 0)
    stopped = scene.at(scene.now_s + 30.0)
    assert (stopped.state, scene.held) == (JobState.STOPPING, 4)
    job = scene.ends(1.0, 0, outcome="signalled", steps=52, saved_s=100.5, steps_saved=52)
    assert (job.state, job.attempt, job.gpu_count, job.totals.steps_kept) == (JobState.ASSIGNED, 2, 2, 52)


def test_a_job_that_does_not_answer_keeps_its_size_and_is_restarted_if_its_ranks_go_on_as_fewer_later() -> None:
    scene = asked()
    kept = scene.at(scene.now_s + 30.0)
    assert (kept.state, kept.gpu_count, scene.held) == (JobState.RUNNING_PROTECTED, 4, 4)
    late = formed(scene, 2)
    assert (late.state, late.ending) == (JobState.STOPPING, JobState.QUEUED)
    assert late.reason is not None
    assert late.reason.why is Why.REFORMED_LATE
    assert scene.ends(1.0, 143, outcome="signalled", saved_s=130.5, steps_saved=52).totals.steps_kept == 52


def test_a_page_that_says_more_ranks_than_there_are_gpus_says_nothing() -> None:
    scene = able()
    for ranks in (5, 255):
        assert formed(scene, ranks).state in {JobState.RUNNING_PROTECTED, JobState.RUNNING}


@pytest.mark.parametrize("retries", [0, 1])
def test_a_job_that_goes_on_as_fewer_ranks_unasked_is_restarted_as_often_as_it_may_fail(retries: int) -> None:
    scene = Scene(replace(FOUR, retries=retries))
    scene.at(100.0, scene.progress(steps=50, saves=True, reforms=True))
    for attempt in range(1, retries + 2):
        stopped = formed(scene, 2)
        assert (stopped.state, stopped.attempt, stopped.totals.failures) == (JobState.STOPPING, attempt, attempt)
        ending = JobState.QUEUED if attempt <= retries else JobState.FAILED
        assert stopped.ending is ending
        if ending is JobState.QUEUED:
            scene.ends(1.0, 1)
            scene.runs(attempt + 1)
            scene.at(scene.now_s + 60.0, scene.progress(steps=50, saves=True, reforms=True))


def test_a_clean_end_is_an_end_for_ranks_that_can_go_on() -> None:
    """They leave with 75 when their state is saved: after a resize 0 means that they are done."""
    scene = asked()
    formed(scene, 2)
    assert scene.ends(5.0, 0).state is JobState.SUCCEEDED


def test_a_scheduler_that_starts_anew_in_the_middle_knows_what_it_asked_for() -> None:
    scene = asked()
    known = JOB.read(JOB.write(scene.job))
    assert ranks_wanted(known) == 2
    state = ClusterState(Beliefs())
    for node in scene.core.state.nodes.values():
        state.put_node(node.node)
    state.put_job(known)
    scene.core = Core(Told(), state)
    assert (formed(scene, 2).gpu_count, scene.held, scene.job.id) == (2, 2, ONE)


def test_a_sample_that_says_as_how_many_they_go_on_is_believed_once() -> None:
    scene = asked()
    formed(scene, 2)
    story = scene.job.changes
    assert formed(scene, 2).changes == story

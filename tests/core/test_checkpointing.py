"""Jobs that save their state before they are stopped: every way in which that ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    Launched,
    NodeLost,
    NodeRegistered,
    Progressed,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.model.hardware import GpuId
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState
from colane.model.job_spec import SAVED, CheckpointContract
from colane.model.phases import Hold, HoldKind
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.progress import Progress
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.topology.free import first_fit

from .worlds import make_node

ONE = JobId(1)
CONTRACT = CheckpointContract("SIGUSR1", 30.0)
SPEC = JobSpec(name="net", family="net", gpus=1, sizes=(1, 2, 4), preemptible=True, checkpoint=CONTRACT)


@dataclass
class Told:
    """Starts what fits; then does once what the test has put down: a size to go to, or 0 to stop the job."""

    name: str = "told"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf
    wish: int | None = None

    def plan(self, view: ClusterView) -> Plan:
        """See the class."""
        draft = Draft(view)
        for job in map(view.job, list(view.queue("default"))):
            gpus = first_fit(draft, job.effective)
            if gpus is not None:
                draft.start(job, gpus, Reason(Why.FREE_GPU, {"gpu": str(gpus[0].id)}))
        running = view.jobs.get(ONE)
        if self.wish is not None and running is not None and running.state in {JobState.RUNNING, JobState.PAUSED}:
            wish, self.wish = self.wish, None
            if wish:
                loads = [view.gpu(GpuId("n0", number)) for number in range(wish)]
                draft.resize(running, loads, Reason(Why.GROWN, {"gpus": wish, "had": running.gpu_count}))
            else:
                draft.stop(running, Reason(Why.PREEMPTED, {"because": "of a test"}, (JobId(9),)))
        draft.plan_while_idle("default")
        return draft.plan()


class Scene:
    """Job 1 runs on one GPU of a node of four, from 10 on, and has made 50 steps by 100."""

    def __init__(self, spec: JobSpec = SPEC) -> None:
        self.policy = Told()
        self.core = Core(self.policy, ClusterState(Beliefs()))
        self.now_s = 0.0
        self.core.step([NodeRegistered(make_node("n0", 4)), Submitted(ONE, spec)], 0.0)
        self.runs(1)
        self.at(100.0, self.progress(steps=50))

    def at(self, now_s: float, *events: Event) -> Job:
        self.now_s = now_s
        outcome = self.core.step(events, now_s)
        assert outcome.rejected is None
        ended = {job.id: job for job in outcome.jobs}
        return self.core.state.jobs.get(ONE) or ended[ONE]

    def progress(self, *, steps: int, **said: object) -> Progressed:
        sample = Progress(at_s=self.now_s, steps=steps, first_step_s=self.now_s, last_step_s=self.now_s)
        return Progressed(ONE, self.job.attempt, replace(sample, **said))  # type: ignore[arg-type]

    def runs(self, attempt: int) -> Job:
        """Its process starts, makes its first step a second later, and is protected no longer."""
        start_s = self.now_s + 9.0
        self.at(start_s, Launched(ONE, attempt, 7, start_s))
        self.now_s = start_s + 1.0
        self.at(self.now_s, self.progress(steps=1))
        return self.at(self.now_s + 3.0)

    def wishes(self, gpus: int) -> Job:
        """The policy wants another size, or with 0 stops it."""
        self.policy.wish = gpus
        return self.at(self.now_s, Tick())

    def ends(self, after_s: float, code: int, steps: int = 60, outcome: str = "exited", **said: object) -> Job:
        self.now_s += after_s
        sample = self.progress(steps=steps, **said).progress
        left = Exit(None, 15) if outcome == "signalled" else Exit(code, None)
        event = Ended(ONE, self.job.attempt, outcome, left, None, self.now_s, sample, "n0")
        return self.at(self.now_s, event)

    @property
    def job(self) -> Job:
        return self.core.state.jobs[ONE]

    @property
    def held(self) -> int:
        return sum(not load.is_free for load in self.core.state.gpus.values())


def test_a_job_saves_goes_on_at_its_new_size_and_keeps_its_steps() -> None:
    scene = Scene()
    asked = scene.wishes(2)
    assert (asked.state, asked.run.saves_asked, scene.held) == (JobState.CHECKPOINTING, 1, 2)
    goes_on = scene.ends(4.0, SAVED)
    assert (goes_on.state, goes_on.attempt, goes_on.gpu_count) == (JobState.ASSIGNED, 2, 2)
    assert (goes_on.saved_s, goes_on.totals.steps_kept, goes_on.totals.failures) == (104.0, 60, 0)
    assert goes_on.run.saves_asked == 0
    steps = scene.runs(2)
    assert (steps.state, steps.falls_back, scene.held) == (JobState.RUNNING, None, 2)


@pytest.mark.parametrize(("limit_s", "stopped_s"), [(200.0, 179.0), (188.0, 103.0)])
def test_a_time_limit_leaves_its_lead_to_a_job_that_saves_and_no_more_than_half(
    limit_s: float, stopped_s: float
) -> None:
    """It started at 9 and has a lead of 30 s; 94 s are half of 188."""
    lead_s = 30.0 if limit_s == 200.0 else 1000.0
    scene = Scene(replace(SPEC, time_limit_s=limit_s, checkpoint=CONTRACT._replace(lead_s=lead_s)))
    assert scene.at(stopped_s - 0.1).state is JobState.RUNNING
    stopping = scene.at(stopped_s)
    assert (stopping.state, stopping.ending) == (JobState.STOPPING, JobState.TIMED_OUT)
    assert scene.ends(5.0, SAVED).state is JobState.TIMED_OUT


TOLD = "told of its time limit of 200 s"


@pytest.mark.parametrize(
    ("after_s", "code", "steps_total", "expected", "said"),
    [
        (5.0, 0, None, JobState.SUCCEEDED, "exited with code 0"),
        (5.0, 0, 60, JobState.SUCCEEDED, "exited with code 0"),
        (5.0, 0, 61, JobState.TIMED_OUT, f"{TOLD}, it left 25 s before that (exit code 0)"),
        (5.0, SAVED, None, JobState.TIMED_OUT, f"{TOLD}, it left 25 s before that (exit code 75: its state is saved)"),
        (5.0, 1, None, JobState.TIMED_OUT, f"{TOLD}, it left 25 s before that (exit code 1)"),
        (31.0, 0, None, JobState.TIMED_OUT, "reached its time limit of 200 s"),
        (31.0, SAVED, None, JobState.TIMED_OUT, "reached its time limit of 200 s"),
    ],
)
def test_a_job_told_of_its_limit_that_leaves_with_0_before_it_has_succeeded_and_no_job_reached_what_it_had_not(
    after_s: float, code: int, steps_total: int | None, expected: JobState, said: str
) -> None:
    """As with Slurm's `--signal`: it is told at 179, and its limit is at 209."""
    scene = Scene(replace(SPEC, time_limit_s=200.0, checkpoint=CONTRACT._replace(lead_s=30.0), steps_total=steps_total))
    told = scene.at(179.0)
    assert told.ending is JobState.TIMED_OUT
    assert told.reason is not None
    assert sentence_of(told.reason) == "told to save its state: it reaches its time limit of 200 s in 30 s"
    left = scene.ends(after_s, code, steps=60)
    assert left.state is expected
    assert left.reason is not None
    assert sentence_of(left.reason) == said
    assert scene.held == 0


def test_a_job_without_a_lead_reaches_its_limit() -> None:
    scene = Scene(replace(SPEC, time_limit_s=200.0, checkpoint=None))
    stopped, ended = scene.at(209.0), scene.ends(1.0, 1)
    for job in (stopped, ended):
        assert job.reason is not None
        assert sentence_of(job.reason) == "reached its time limit of 200 s"


def test_a_job_that_ends_with_its_agent_is_queued_again_and_nothing_is_counted() -> None:
    scene = Scene(replace(SPEC, retries=0, checkpoint=None))
    back = scene.ends(1.0, 1, outcome="stopped")
    assert (back.state, back.totals.failures, back.totals.losses, back.attempt) == (JobState.ASSIGNED, 0, 0, 2)
    assert any(move.reason.why is Why.STOPPED_WITH_AGENT for move in back.story)


def test_a_job_that_leaves_cleanly_after_the_signal_has_saved_and_one_that_has_made_all_its_steps_is_done() -> None:
    assert [move.state for move in Scene().wishes(2).story][-1] is JobState.CHECKPOINTING
    scene = Scene()
    scene.wishes(2)
    assert scene.ends(4.0, 0).state is JobState.ASSIGNED
    done = Scene(replace(SPEC, steps_total=60))
    done.wishes(2)
    assert done.ends(4.0, 0, steps=60).state is JobState.SUCCEEDED
    assert done.held == 0


def test_what_does_not_save_in_time_keeps_its_size_is_left_alone_and_after_three_times_is_rigid() -> None:
    scene = Scene()
    for time in (1, 2, 3):
        assert scene.wishes(2).state is JobState.CHECKPOINTING
        assert scene.at(scene.now_s + 29.9).state is JobState.CHECKPOINTING
        kept = scene.at(scene.now_s + 0.1)
        assert (kept.state, kept.gpu_count, kept.totals.saves_failed) == (JobState.RUNNING_PROTECTED, 1, time)
        assert scene.held == 1
        assert kept.reason is not None
        assert kept.reason.why is Why.CHECKPOINT_TIMED_OUT
        assert ("not stopped for others any more (3 times)" in sentence_of(kept.reason)) == (time == 3)
        assert scene.at(scene.now_s + 89.9).state is JobState.RUNNING_PROTECTED
        scene.at(scene.now_s + 0.2)
    assert scene.job.state is JobState.RUNNING
    assert not scene.job.effective.preemptible


def test_a_late_save_is_a_save_all_the_same() -> None:
    for code in (SAVED, 0):
        scene = Scene()
        scene.wishes(2)
        scene.at(scene.now_s + 30.0)
        late = scene.ends(5.0, code)
        assert (late.state, late.attempt, late.gpu_count) == (JobState.ASSIGNED, 2, 1), "its queue has room for it"
        assert (late.totals.steps_kept, late.totals.failures) == (60, 0)


def test_a_job_that_is_stopped_for_others_goes_when_its_time_is_over_and_keeps_what_it_had_saved_before() -> None:
    scene = Scene()
    assert scene.wishes(0).state is JobState.CHECKPOINTING
    stopped = scene.at(scene.now_s + 30.0)
    assert (stopped.state, stopped.ending) == (JobState.STOPPING, JobState.QUEUED)
    assert stopped.reason is not None
    assert "stopped all the same" in sentence_of(stopped.reason)
    queued = scene.ends(2.0, 143, outcome="signalled")
    assert (queued.attempt, queued.totals.steps_kept, queued.totals.failures) == (2, 0, 0)


def test_what_it_says_it_has_saved_counts_and_not_what_it_has_made() -> None:
    scene = Scene()
    saved = scene.at(110.0, scene.progress(steps=55, saved_s=109.0, steps_saved=40))
    assert saved.saved_s == 109.0
    scene.wishes(0)
    scene.at(scene.now_s + 30.0)
    assert scene.ends(2.0, 143, outcome="signalled", saved_s=109.0, steps_saved=40).totals.steps_kept == 40


def test_a_full_disk_leaves_it_at_its_size_and_is_told() -> None:
    scene = Scene()
    scene.wishes(4)
    kept = scene.at(105.0, scene.progress(steps=51, save_problem="No space left on device", saves_asked=1))
    assert (kept.state, kept.gpu_count, scene.held) == (JobState.RUNNING_PROTECTED, 1, 1)
    assert kept.reason is not None
    assert "No space left on device; it goes on with 1 GPU, as before" in sentence_of(kept.reason)


def test_an_answer_to_the_asking_before_is_none_to_this_one() -> None:
    scene = Scene()
    scene.wishes(4)
    said = {"save_problem": "No space left on device", "saves_asked": 1}
    scene.at(105.0, scene.progress(steps=51, **said))
    scene.at(105.0 + 91.0)
    assert scene.wishes(4).run.saves_asked == 2
    assert scene.at(197.0, scene.progress(steps=52, **said)).state is JobState.CHECKPOINTING
    said["saves_asked"] = 2
    assert scene.at(198.0, scene.progress(steps=52, **said)).state is JobState.RUNNING_PROTECTED


@pytest.mark.parametrize("outcome", ["signalled", "out-of-memory", "exited"])
def test_a_job_that_dies_while_it_saves_goes_on_from_what_it_had_saved_before(outcome: str) -> None:
    scene = Scene()
    scene.wishes(2)
    goes_on = scene.ends(3.0, 1, outcome=outcome)
    assert (goes_on.state, goes_on.gpu_count, goes_on.attempt) == (JobState.ASSIGNED, 2, 2)
    assert (goes_on.totals.failures, goes_on.totals.saves_failed, goes_on.totals.steps_kept) == (0, 1, 0)
    assert Why.CHECKPOINT_DIED in {line.reason.why for line in goes_on.story}


def test_a_launch_that_fails_at_the_new_size_goes_back_once_then_to_the_queue_and_then_counts() -> None:
    scene = Scene(replace(SPEC, retries=0))
    scene.wishes(2)
    scene.ends(4.0, SAVED)
    back = scene.ends(3.0, 1, steps=0)
    assert (back.state, back.attempt, back.gpu_count, back.totals.failures) == (JobState.ASSIGNED, 3, 1, 0)
    assert back.effective.sizes == (1, 4), "no policy tries two again"
    again = scene.ends(3.0, 1, steps=0)
    assert (again.attempt, again.totals.failures) == (4, 0), "from the queue, which has room for it"
    assert scene.ends(3.0, 1, steps=0).state is JobState.FAILED


def test_after_a_step_at_the_new_size_a_failure_is_its_own() -> None:
    scene = Scene()
    scene.wishes(2)
    scene.ends(4.0, SAVED)
    scene.runs(2)
    assert scene.ends(3.0, 1).state is JobState.FAILED


def test_its_node_is_lost_while_it_saves() -> None:
    scene = Scene()
    scene.wishes(2)
    lost = scene.at(102.0, NodeLost("n0"))
    assert (lost.state, lost.resizes_to, lost.totals.losses, lost.totals.saves_failed) == (JobState.QUEUED, None, 1, 0)
    back = scene.at(103.0, NodeRegistered(make_node("n0", 4)))
    assert (back.state, back.attempt) == (JobState.ASSIGNED, 2)


def test_it_is_not_resized_a_second_time_meanwhile() -> None:
    scene = Scene()
    scene.wishes(2)
    assert scene.wishes(4).resizes_to == scene.job.resizes_to
    assert scene.policy.wish == 4, "it is not asked of who saves, and waits"
    scene.ends(4.0, SAVED)
    scene.runs(2)
    grows = scene.at(scene.now_s, Tick())
    assert (grows.state, scene.held) == (JobState.CHECKPOINTING, 4)


def test_a_cancelled_job_need_not_save() -> None:
    scene = Scene()
    scene.wishes(2)
    assert scene.at(102.0, CancelRequested(ONE, "ann")).state is JobState.STOPPING
    assert scene.ends(3.0, SAVED).state is JobState.CANCELLED
    assert scene.held == 0


def test_a_suspended_job_saves_and_is_held_or_stays_suspended() -> None:
    for problem in ("", "No space left on device"):
        scene = Scene()
        scene.at(100.5, SuspendRequested(ONE, "ann"))
        assert scene.wishes(0).state is JobState.CHECKPOINTING
        job = (
            scene.at(104.0, scene.progress(steps=51, save_problem=problem, saves_asked=1))
            if problem
            else scene.ends(3.0, SAVED)
        )
        assert (job.state, job.suspended, job.holds) == (
            (JobState.PAUSED, True, ()) if problem else (JobState.QUEUED, False, (Hold(HoldKind.USER, "ann"),))
        )
        resumed = scene.at(105.0, ResumeRequested(ONE, "ann"))
        assert resumed.state is (JobState.RUNNING if problem else JobState.ASSIGNED)


def test_without_a_contract_it_is_stopped_at_once() -> None:
    scene = Scene(replace(SPEC, checkpoint=None))
    assert scene.wishes(2).state is JobState.STOPPING
    assert scene.ends(4.0, 1).totals.steps_kept == 60


def test_a_restarted_scheduler_goes_on_waiting_for_the_rest_of_the_time() -> None:
    scene = Scene()
    scene.wishes(2)
    state = scene.core.state
    nodes = [(node.node, node.generation) for node in state.nodes.values()]
    scene.core = Core(scene.policy, ClusterState.restore(nodes, state.jobs.values(), state.knowledge, state.version))
    assert scene.at(129.9).state is JobState.CHECKPOINTING
    assert scene.at(130.0).state is JobState.RUNNING_PROTECTED


def test_what_is_lost_is_run_time_whose_steps_were_not_saved() -> None:
    scene = Scene()
    scene.wishes(2)
    scene.ends(4.0, SAVED)
    assert scene.job.totals.lost_s == 0.0
    lost = Scene()
    lost.wishes(0)
    lost.at(lost.now_s + 30.0)
    lost.ends(5.0, 143, outcome="signalled", steps=60, saved_s=109.0, steps_saved=45)
    assert lost.job.totals.lost_s == pytest.approx(0.25 * 126.0), "15 of 60 steps, of a run since 9"


def test_of_a_job_that_keeps_nothing_all_is_lost_and_of_a_later_attempt_only_its_own() -> None:
    scene = Scene(replace(SPEC, preemptible=False, checkpoint=None, retries=3))
    scene.ends(9.0, 1)
    assert scene.job.totals.lost_s == pytest.approx(100.0)
    server = Scene(replace(SPEC, preemptible=False, checkpoint=None, retries=3, kind=JobKind.INFERENCE))
    server.ends(9.0, 1)
    assert server.job.totals.lost_s == 0.0, "what it has answered is not asked again"
    kept = Scene()
    kept.wishes(2)
    kept.ends(4.0, SAVED)
    kept.runs(2)
    kept.at(kept.now_s, kept.progress(steps=80))
    start_s = kept.job.start_s
    kept.wishes(0)
    kept.at(kept.now_s + 30.0)
    kept.ends(1.0, 143, outcome="signalled", steps=100)
    assert start_s is not None
    assert kept.job.totals.lost_s == pytest.approx(kept.now_s - start_s), "40 of 40: 60 are of the attempt before"

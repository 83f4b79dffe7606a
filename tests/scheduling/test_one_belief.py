"""What decides how long is left of a job is what is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import Event, NodeRegistered, ProfileDeclared, Progressed, Submitted, SuspendRequested
from colane.facts.job import LeftBy, TimeLeft, left_of
from colane.facts.ran import had_s
from colane.model.job import Job, JobId, JobSpec
from colane.model.phases import Array
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.perf.rate import LaneMate, Situation
from colane.scheduling.engine.times import Expected
from colane.scheduling.engine.unended import expected_now
from colane.scheduling.foresight import Foresight, scene_of
from colane.scheduling.registry import create
from tests.core.worlds import make_node

STEP_S = 2.0
NOW_S = 400.0
KINDS: dict[str, tuple[dict[str, Any], LeftBy | None]] = {
    "told steps": ({"steps_total": 1_000}, LeftBy.STEPS),
    "told steps, and a limit before": ({"steps_total": 1_000, "time_limit_s": 600.0}, LeftBy.LIMIT),
    "told by its script": ({"said": 1_000}, LeftBy.STEPS),
    "a limit of steps": ({"said": 1_000, "steps_limit": 500}, LeftBy.STEPS),
    "told duration": ({"time_limit_s": 900.0}, LeftBy.LIMIT),
    "learned family": ({}, LeftBy.FAMILY),
    "a family of none that ended": ({"family": "new"}, None),
    "gang": ({"gpus": 2}, LeftBy.FAMILY),
    "gang, told": ({"gpus": 2, "steps_total": 1_000}, LeftBy.STEPS),
    "elastic": ({"gpus": 4, "sizes": (1, 2, 4), "steps_total": 1_000}, LeftBy.STEPS),
    "elastic, learned": ({"gpus": 4, "sizes": (1, 2, 4)}, LeftBy.FAMILY),
    "array element": ({"array": True}, LeftBy.FAMILY),
    "array element, told": ({"array": True, "steps_total": 1_000}, LeftBy.STEPS),
    "parked": ({"parked": True}, None),
    "parked, told": ({"parked": True, "steps_total": 1_000}, None),
}


class Scene:
    """A core under `colane` with four GPUs, in which jobs of family `f` took 2,000 to 6,000 s."""

    def __init__(self, name: str) -> None:
        self._wants = dict(KINDS[name][0])
        self.core = Core(create("colane"), ClusterState(Beliefs()), CoreConfig(runs_at_once=True))
        self.at(0.0, NodeRegistered(make_node("n0", 4)))
        for family in ("f", "new"):
            for gpus in (1, 2, 4):
                known = Value(STEP_S / gpus**0.8 if self._wants.get("sizes") else STEP_S, ValueSource.MEASURED, 10)
                self.at(0.0, ProfileDeclared(Profile(key=ProfileKey(family, None, gpus, "V100"), step_s=known)))
        for ran_s in range(2_000, 6_000, 100):
            self.core.state.knowledge.note_length("f", float(ran_s))

    def at(self, now_s: float, *events: Event) -> None:
        assert self.core.step(list(events), now_s).rejected is None

    def job(self) -> Job:
        """The job, as it is at `NOW_S`."""
        wants = self._wants
        said, is_array, is_parked = wants.pop("said", None), wants.pop("array", False), wants.pop("parked", False)
        spec = JobSpec(**{"name": "j", "family": "f", "share": False, "preemptible": True, **wants})
        self.at(0.0, Submitted(JobId(1), spec, array=Array("0-1", 2, None, ((0, 1),)) if is_array else None))
        job = next(one for one in self.core.state.jobs.values() if one.placement is not None)
        step_s = self.core.pacing(job.id).rate.step_s
        assert step_s is not None
        steps = int(NOW_S / step_s)
        told = Progress(
            at_s=NOW_S, steps=steps, steps_total=said, first_step_s=0.0, last_step_s=NOW_S, step_mean_s=step_s
        )
        self.at(NOW_S, Progressed(job.id, job.attempt, told, "n0"))
        if is_parked:
            self.at(NOW_S, SuspendRequested(job.id, "ann"))
        return self.core.state.jobs[job.id]

    def expected(self) -> Expected:
        return expected_now(Draft(ClusterView(self.core.state, NOW_S)), "default")

    def told(self, job: Job) -> TimeLeft:
        state = self.core.state
        return left_of(job, state.progress.get(job.id), self.core.pacing(job.id), NOW_S, state.beliefs.lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_what_decides_is_what_is_told(kind: str) -> None:
    scene, by = Scene(kind), KINDS[kind][1]
    job = scene.job()
    decides_s, told, ratio = scene.expected().rest_s(job), scene.told(job), scene.core.pacing(job.id).rate.ratio
    assert told.by is by
    if by is not None:
        assert told.left_s == pytest.approx(decides_s if by is LeftBy.LIMIT else decides_s / ratio, rel=0.01)
        assert None not in told
    else:
        assert (told.left_s, decides_s > 0) == (None, True)
    if by is LeftBy.FAMILY:
        rest = scene.core.state.beliefs.lengths.rest(job.effective.family, had_s(job, NOW_S))
        assert rest.index_s == decides_s
        assert rest.p10_s < rest.p50_s < rest.p90_s
        assert 1_500 < rest.p50_s < 5_000
    elif by is not None:
        assert told.p10_s == told.p90_s == told.left_s


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("kind", [kind for kind, (_, by) in KINDS.items() if by is not None])
def test_starts_are_foreseen_by_the_same(kind: str, *, shares: bool) -> None:
    """Steps as they are told, else drawn from the law, at its present speed, no longer than the limit."""
    scene = Scene(kind)
    job = scene.job()
    core, foresight = scene.core, Foresight(scene.core.policy)
    pacing = core.pacing(job.id)
    if shares:
        turns = Situation("V100", job.gpu_count, lane_mates=(LaneMate(ProfileKey("f", None, 1, "V100")),))
        pacing = pacing._replace(rate=core.state.beliefs.rate(job.effective, turns))
        assert pacing.rate.ratio < 0.6 * core.pacing(job.id).rate.ratio
    told = left_of(job, core.state.progress.get(job.id), pacing, NOW_S, core.state.beliefs.lengths)
    foresight.meet(core.state, NOW_S)
    pool = scene_of(core.state, core.policy, "default", NOW_S, lambda _: pacing)
    present = next(one for one in pool.present if one.job == job.id)
    drawn = foresight.of("default").lengths.draws(pool.present, pool.law)
    random, place = np.random.default_rng(4), pool.present.index(present)
    lefts_s = [present.rest_s(drawn.draw(random)[place]) for _ in range(1_000)]
    low_s, middle_s, high_s = np.quantile(lefts_s, [0.1, 0.5, 0.9])
    if told.by is LeftBy.STEPS:
        assert low_s == high_s == pytest.approx(told.left_s)
    elif told.by is LeftBy.LIMIT:
        assert high_s <= (told.left_s or 0.0)
    else:
        assert [low_s, middle_s, high_s] == pytest.approx([told.p10_s, told.p50_s, told.p90_s], rel=0.2)


@pytest.mark.parametrize(
    ("policy", "passes"),
    [("fifo", None), ("easy-backfill", None), ("fifo-skip", ()), ("sjf", ()), ("drf", ()), ("las", (0.0, 0.0))],
)
def test_roll_outs_let_jobs_pass_as_the_policy_does(policy: str, passes: tuple[float, ...] | None) -> None:
    """None where the head of the line holds up all; where others are stopped for them, those of one queue."""
    scene = Scene("learned family")
    scene.job()
    present = scene_of(scene.core.state, create(policy), "default", NOW_S).present
    assert [one.level for one in present] == [passes] * len(present) != []


def test_a_script_is_believed_until_it_has_made_more_steps_than_it_said() -> None:
    scene = Scene("told by its script")
    job = scene.job()
    assert job.effective.steps_total == 1_000
    again = Progress(at_s=NOW_S, steps=1_100, steps_total=None, first_step_s=0.0, last_step_s=NOW_S, step_mean_s=STEP_S)
    scene.at(NOW_S + 1, Progressed(job.id, job.attempt, again, "n0"))
    assert scene.core.state.jobs[job.id].effective.steps_total is None


@pytest.mark.parametrize("is_counted", [True, False])
def test_what_is_told_of_a_job_that_runs_falls_until_its_steps_are_counted_again(*, is_counted: bool) -> None:
    scene = Scene("told steps")
    if is_counted:
        scene.job()
    else:
        scene.at(0.0, Submitted(JobId(1), JobSpec(name="j", family="f", share=False, steps_total=1_000)))
    core = scene.core
    (present,) = scene_of(core.state, core.policy, "default", NOW_S + 100.0, core.pacing).present
    assert present.left_s == pytest.approx(1_000 * STEP_S - NOW_S - 100.0)

"""`colane`'s sizer: elastic jobs have the sizes that cost them and those behind them least."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Launched, NodeRegistered, ProfileDeclared, Submitted, Tick
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import make_node

SIZES = (1, 2, 3, 4)
STEEP = {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}
FLAT = {1: 1.0, 2: 1.2, 3: 1.25, 4: 1.26}


def profile(family: str, gpus: int, steps_per_s: float) -> Profile:
    key = ProfileKey(family, None, gpus, "V100")
    return Profile(key=key, step_s=Value(1 / steps_per_s, ValueSource.DECLARED))


def elastic(family: str, steps: int = 100_000, sizes: tuple[int, ...] = SIZES) -> JobSpec:
    return JobSpec(name=family, family=family, gpus=sizes[-1], sizes=sizes, steps_total=steps, preemptible=True)


def rigid(gpus: int = 1) -> JobSpec:
    return JobSpec(name="rigid", family="rigid", gpus=gpus, steps_total=600, share=False)


def core(policy: str = "colane:jobs_per_gpu_max=1", gpus: int = 4) -> Core:
    made = Core(create(policy), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0))
    curves = {"steep": STEEP, "flat": FLAT, "rigid": {1: 1.0, 2: 2.0}}
    known = [profile(family, n, speed) for family, curve in curves.items() for n, speed in curve.items()]
    made.step([NodeRegistered(make_node("n", gpus)), *map(ProfileDeclared, known)], 0.0)
    return made


def submit(made: Core, at_s: float, *specs: JobSpec) -> None:
    """They come, and run once they have GPUs."""
    first = max(made.state.jobs, default=0) + 1
    made.step([Submitted(JobId(first + place), spec) for place, spec in enumerate(specs)], at_s)
    go_on(made, at_s + 1)


def go_on(made: Core, at_s: float) -> None:
    """Who was asked to stop is gone, and who has GPUs has launched; until nothing more happens."""
    for _ in range(6):
        jobs = list(made.state.jobs.values())
        gone = [
            Ended(job.id, job.attempt, "signalled", Exit(None, 15), at_s, at_s, None, node)
            for job in jobs if job.state is JobState.STOPPING for node in nodes(job)
        ]  # fmt: skip
        begun = [
            Launched(job.id, job.attempt, 7, at_s, node)
            for job in jobs if job.state is JobState.ASSIGNED for node in nodes(job)
        ]  # fmt: skip
        made.step([*gone, *begun, Tick()], at_s)
        audit(made.state)
        if not gone and not begun:
            return


def nodes(job: Job) -> tuple[str, ...]:
    return () if job.placement is None else job.placement.nodes


def sizes(made: Core) -> dict[int, int]:
    return {job.id: job.gpu_count for job in made.state.jobs.values() if job.placement is not None}


def test_it_starts_with_all_it_can_use_and_with_fewer_where_it_would_wait_longer_than_that_saves() -> None:
    made = core()
    submit(made, 10.0, elastic("steep"))
    assert sizes(made) == {1: 4}
    made = core()
    submit(made, 10.0, replace(rigid(2), steps_total=1_000_000))
    submit(made, 20.0, elastic("steep"))
    assert sizes(made) == {1: 2, 2: 2}


@pytest.mark.parametrize(
    ("bound", "found"),
    [("", {1: 4, 2: 4}), (",variance_max=0.05", {1: 3, 2: 2, 3: 3}), (",variance_max=0.01", {1: 3, 2: 2, 3: 3})],
    ids=["none", "of 0.05", "of 0.01"],
)
def test_sizes_go_by_the_variance_of_speeds_those_of_waiting_jobs_counted(bound: str, found: dict[int, int]) -> None:
    made = core(f"colane:jobs_per_gpu_max=1{bound}", gpus=8)
    submit(made, 10.0, *[elastic("steep") for _ in range(3)])
    made.step([Tick()], 5000.0)
    go_on(made, 5001.0)
    assert sizes(made) == found


def test_it_waits_for_its_size_where_that_comes_soon() -> None:
    made = core()
    submit(made, 10.0, replace(rigid(2), steps_total=60))
    submit(made, 20.0, elastic("steep"))
    assert sizes(made) == {1: 2}


def test_the_more_jobs_come_after_it_the_fewer_gpus_it_has() -> None:
    made = core(gpus=8)
    long = elastic("flat", steps=200_000)
    submit(made, 10.0, elastic("flat"), *[long] * 3)
    assert sizes(made)[1] == 1, "twice as many for a fifth more speed would keep three waiting"
    alone = core(gpus=8)
    submit(alone, 10.0, elastic("flat"))
    assert sizes(alone) == {1: 4}


def test_gpus_that_fall_free_go_to_the_job_to_which_they_are_worth_most() -> None:
    made = core(gpus=4)
    submit(made, 10.0, replace(rigid(2), steps_total=1_000_000))
    submit(made, 20.0, elastic("flat", sizes=(1, 2)), elastic("steep", sizes=(1, 3)))
    assert sizes(made) == {1: 2, 2: 1, 3: 1}
    made.step([Ended(JobId(1), 1, "exited", Exit(0, None), 900.0, 900.0, None, "n")], 900.0)
    go_on(made, 901.0)
    assert sizes(made) == {2: 1, 3: 3}, "the steep one gains most by them"


def test_a_job_that_has_little_left_does_not_restart_for_more() -> None:
    made = core(gpus=2)
    submit(made, 10.0, replace(rigid(), steps_total=10_000))
    submit(made, 20.0, replace(elastic("steep", sizes=(1, 2)), steps_total=40))
    assert sizes(made) == {1: 1, 2: 1}
    made.step([Ended(JobId(1), 1, "exited", Exit(0, None), 45.0, 45.0, None, "n")], 45.0)
    go_on(made, 45.5)
    assert sizes(made) == {2: 1}


@pytest.mark.parametrize("moves", [0, 4, 30])
def test_a_job_that_changed_places_often_is_not_left_small_beside_free_gpus(moves: int) -> None:
    made = core(gpus=2)
    submit(made, 10.0, replace(rigid(), steps_total=1_000_000))
    submit(made, 20.0, elastic("steep", sizes=(1, 2)))
    assert sizes(made) == {1: 1, 2: 1}
    often = made.state.jobs[JobId(2)].copied()
    often.attempt += moves
    made.state.put_job(often)
    assert often.moves == moves
    made.step([Ended(JobId(1), 1, "exited", Exit(0, None), 900.0, 900.0, None, "n")], 900.0)
    go_on(made, 901.0)
    assert sizes(made) == {2: 2}


@pytest.mark.parametrize(("steps", "runs"), [(600, {2: 2}), (200_000, {1: 4})])
def test_it_leaves_for_a_newcomer_that_is_through_much_sooner(steps: int, runs: dict[int, int]) -> None:
    made = core()
    submit(made, 10.0, elastic("steep", sizes=(3, 4)))
    submit(made, 1000.0, replace(rigid(2), steps_total=steps))
    assert sizes(made) == runs


def test_planning_again_changes_nothing() -> None:
    made = core()
    submit(made, 10.0, elastic("steep"), elastic("flat"), rigid())
    before = sizes(made)
    for minute in range(1, 60):
        go_on(made, 1000.0 + 60 * minute)
        assert sizes(made) == before


@pytest.mark.parametrize("steps", [None, 100_000])
@pytest.mark.parametrize("family", ["steep", "never-seen"])
def test_a_job_alone_starts_with_all_it_asks_for_whatever_is_known_of_it(family: str, steps: int | None) -> None:
    made = core()
    submit(made, 1.0, replace(elastic(family), steps_total=steps))
    assert made.state.jobs[JobId(1)].gpu_count == 4


@pytest.mark.parametrize("policy", ["colane", "colane:jobs_per_gpu_max=1"])
@pytest.mark.parametrize("kind", list(JobKind))
def test_it_waits_for_no_gpu_of_a_server_beside_one_that_is_free(kind: JobKind, policy: str) -> None:
    """A server runs on, however long others of unknown length took; a GPU of a job is waited for."""
    made = core(policy, 2)
    other = JobSpec(name="other", family="other", gpus=1, kind=kind, share=False)
    submit(made, 10.0, other)
    submit(made, 20.0, elastic("steep", sizes=(1, 2)))
    assert sizes(made) == ({1: 1, 2: 1} if kind is JobKind.INFERENCE else {1: 1})
    if kind is JobKind.TRAINING:
        reason = made.why(JobId(2), 21.0)
        assert (reason.why, reason.facts["need"], reason.facts["have"]) == (Why.NO_FREE_GPU, 2, 1)

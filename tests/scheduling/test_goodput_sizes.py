"""Sizes by goodput: who learns little from larger batches gets fewer GPUs than its throughput alone would bring it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import Core
from colane.core.events import ProfileDeclared, Progressed
from colane.model.job import JobId, JobSpec
from colane.model.progress import Progress
from tests.scheduling.test_elastic_value import core, elastic, go_on, profile, sizes, submit

BATCH = 32


def grows_its_batch(family: str) -> JobSpec:
    return replace(elastic(family), batch_size=BATCH, batch_per_gpu=True)


def made(policy: str) -> Core:
    """Two alike: each makes as many steps a second on any number of GPUs, each step with a batch of every GPU."""
    found = core(policy)
    for family in ("loud", "quiet"):
        points = [profile(family, n, 1.0) for n in range(1, 5)]
        keyed = [replace(point, key=point.key._replace(batch_size=BATCH)) for point in points]
        found.step(list(map(ProfileDeclared, keyed)), 0.0)
    submit(found, 10.0, grows_its_batch("loud"), grows_its_batch("quiet"))
    return found


def tell(found: Core, job: int, noise_scale: float, at_s: float) -> None:
    attempt = found.state.jobs[JobId(job)].attempt
    found.step([Progressed(JobId(job), attempt, Progress(at_s=at_s, noise_scale=noise_scale))], at_s)


def test_gpus_go_to_the_job_whose_large_batches_teach_more() -> None:
    found = made("f-sched:goodput=yes,variance_max=1")
    assert sum(sizes(found).values()) == 4
    tell(found, 1, 100_000.0, 100.0)
    tell(found, 2, 1.0, 100.0)
    go_on(found, 1000.0)
    assert sizes(found) == {1: 3, 2: 1}, "a step of the quiet one teaches hardly more with three batches than with one"


@pytest.mark.parametrize("policy", ["f-sched", "colane:jobs_per_gpu_max=1,goodput=no"])
def test_without_the_objective_what_they_tell_changes_nothing(policy: str) -> None:
    found = made(policy)
    before = sizes(found)
    tell(found, 1, 100_000.0, 100.0)
    tell(found, 2, 1.0, 100.0)
    go_on(found, 1000.0)
    assert sizes(found) == before


def test_a_total_batch_that_stays_is_not_weighed_and_small_changes_are_not_kept() -> None:
    found = core()
    submit(found, 10.0, elastic("steep"), elastic("flat"))
    before = sizes(found)
    for at_s, said, kept in ((20.0, 50.0, 50.0), (30.0, 54.0, 50.0), (40.0, 60.0, 60.0)):
        tell(found, 1, said, at_s)
        assert found.state.jobs[JobId(1)].noise_scale == kept
    go_on(found, 1000.0)
    assert sizes(found) == before

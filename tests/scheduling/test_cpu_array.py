"""The CPU array of CODA (paper D, section V): whose job goes next, and on which node."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from colane.core import ClusterState, Core
from colane.core.events import NodeRegistered
from colane.model.job import Job, JobId, Totals
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.mechanisms.cpu.arrays import AtCap
from colane.scheduling.registry import preset
from tests.scheduling.test_arrays import cpu_job, first_starts, machines, run, training


def test_the_next_cores_go_to_the_user_whose_jobs_hold_the_fewest() -> None:
    """28 cores: all of A's came before those of B and C."""
    jobs = [cpu_job(number, 0.0, 100.0, 4, user="a") for number in range(1, 11)]
    jobs += [cpu_job(number, 0.0, 100.0, 4, user="b") for number in range(11, 16)]
    jobs += [cpu_job(16, 0.0, 100.0, 8, user="c")]
    _, found = run(machines(4), *jobs)
    users = Counter(jobs[number - 1].spec.user for number, start_s in first_starts(found).items() if start_s < 100)
    assert users == {"a": 3, "b": 2, "c": 1}


@pytest.mark.parametrize("weights", [{}, {"a": 2.0}, {"a": 0.5, "c": 3.0}])
@pytest.mark.parametrize("seed", range(6))
def test_cores_are_shared_by_progressive_filling(seed: int, weights: dict[str, float]) -> None:
    """One resource: the user with the fewest cores, by weight, has the next job, of equals the first to come."""
    random = Random(seed)
    needs = {user: random.randint(1, 6) for user in "abc"}
    said = "/".join(f"{user}={weight}" for user, weight in weights.items())
    policy = f"coda:user_weights={said}" if weights else "coda"
    users = [user for _ in range(30) for user in random.sample("abc", 3)]
    jobs = [cpu_job(number, 0.0, 100.0, needs[user], user=user) for number, user in enumerate(users, 1)]
    _, found = run(machines(4), *jobs, policy=policy)
    starts = first_starts(found)
    held = Counter(users[number - 1] for number in starts if starts[JobId(number)] < 100)
    expected: Counter[str] = Counter()
    coming = {user: [place for place, one in enumerate(users) if one == user] for user in needs}
    open_ = set(needs)
    while open_:
        parts = {one: expected[one] * needs[one] / weights.get(one, 1.0) for one in open_}
        user = min(open_, key=lambda one: (parts[one], coming[one][expected[one]]))
        if sum(expected[one] * needs[one] for one in needs) + needs[user] <= 28:
            expected[user] += 1
        else:
            open_.discard(user)
    assert held == expected


def test_an_aborted_job_goes_before_older_jobs_of_users_who_have_less() -> None:
    """Job 2 of Z borrowed; it is aborted for training, and goes before A's, who has nothing and waits for longer."""
    jobs = [
        cpu_job(1, 0.0, 200.0, 14, user="z"), cpu_job(2, 1.0, 1000.0, 14, user="z"),
        cpu_job(3, 2.0, 1000.0, 14, user="a"), training(4, 100.0, 500.0, cores=4),
    ]  # fmt: skip
    seen, found = run(machines(4), *jobs)
    assert seen.stops == [JobId(2)]
    assert [number for number, _ in seen.starts] == [1, 2, 4, 2, 3]
    assert first_starts(found)[3] == 600.0


def test_small_jobs_go_where_least_is_free_so_that_a_large_one_finds_a_node() -> None:
    jobs = [cpu_job(1, 0.0, 1000.0, 20), cpu_job(2, 1.0, 1000.0, 20), cpu_job(3, 2.0, 10.0, 20)]
    jobs += [cpu_job(4, 20.0, 1000.0, 4), cpu_job(5, 21.0, 1000.0, 28)]
    seen, found = run(machines(4, 4, 4), *jobs)
    places = dict(seen.starts)
    assert places[JobId(4)] in {places[JobId(1)], places[JobId(2)]}
    assert first_starts(found)[5] == 21.0


def test_a_job_that_may_not_borrow_does_not_keep_one_that_may_waiting() -> None:
    """Both need eight cores, of which training would have use; the first to come could not give them back."""
    jobs = [training(number, 0.0, 1000.0, cores=6) for number in range(1, 4)]
    jobs += [training(4, 0.0, 10.0, cores=6), training(5, 5.0, 2000.0, gpus=4, cores=28, preemptible=False)]
    jobs += [cpu_job(6, 6.0, 100.0, 8, abortable=False), cpu_job(7, 20.0, 100.0, 8)]
    _, found = run(machines(4), *jobs)
    assert first_starts(found)[7] == 20.0
    assert first_starts(found)[6] > 20.0


@pytest.mark.parametrize(
    ("at_cap", "abortable", "preemptions", "because"),
    [
        (AtCap.ENDS, False, 0, "it may not begin anew (--abortable)"),
        (AtCap.ENDS, True, 3, None),
        (AtCap.WAITS, True, 3, "it was stopped for others 3 times"),
        (AtCap.WAITS, True, 2, None),
    ],
)
def test_a_job_that_borrows_nothing_is_told_why(
    at_cap: AtCap, abortable: bool, preemptions: int, because: str | None
) -> None:
    """Of eight cores seven are free, of which six are kept for the GPU; once it was stopped too often, it waits."""
    spec = cpu_job(3, 0.0, 1.0, 4, abortable=abortable).spec
    waiting = Job(JobId(3), spec, 0.0, totals=Totals(preemptions=preemptions))
    training_ = [
        Job(JobId(number), training(number, 0.0, 1.0, cores=cores).spec, 0.0) for number, cores in ((1, 1), (2, 6))
    ]
    node = replace(machines(1).nodes[0], cores=tuple(range(8)))
    core = Core(preset("coda", at_cap=at_cap), ClusterState.restore([], [*training_, waiting], Beliefs()))
    core.step([NodeRegistered(node)], 1.0)
    assert core.state.jobs[JobId(1)].placement is not None
    assert (core.state.jobs[JobId(3)].placement is None) is (because is not None)
    if because is not None:
        said = sentence_of(core.why(JobId(3), 2.0))
        assert said.startswith("Resources: a node has 7 cores free, kept for jobs with GPUs")
        assert said.endswith(f"it borrows none: {because}")

"""CODA's arrays (paper D, section V), and dominant resource fairness by progressive filling."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from colane.core.events import Outcome
from colane.lab.simulate.ledger import STATES
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId, JobState
from colane.model.plan import Start, Stop
from colane.scheduling import registry
from tests.simulate.scenes import GIB, job, node, workload


class Moves:
    """Starts and stops in order."""

    def __init__(self) -> None:
        self.starts: list[tuple[JobId, str]] = []
        self.stops: list[JobId] = []
        self.flaws: list[str] = []

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        del now_s
        self.flaws += [] if outcome.rejected is None else [flaw.detail for flaw in outcome.rejected.flaws]
        for decision in outcome.decisions:
            if isinstance(decision.action, Start):
                self.starts.append((decision.action.job, decision.action.placement.node))
            elif isinstance(decision.action, Stop):
                self.stops.append(decision.action.job)

    def started(self, process: Process, co_runners: object) -> None:
        """Not of interest."""


def machines(*gpus: int, cores: int = 28) -> Cluster:
    nodes = [replace(node(f"n{number}", count), cores=tuple(range(cores))) for number, count in enumerate(gpus)]
    return Cluster("test", tuple(nodes))


def training(
    number: int, submit_s: float, duration_s: float, *, gpus: int = 1, cores: int = 4, **needs: Any
) -> TraceJob:
    return job(number, submit_s, duration_s, gpus=gpus, cores=cores, **needs)


def cpu_job(number: int, submit_s: float, duration_s: float, cores: int, **needs: Any) -> TraceJob:
    wants: dict[str, Any] = {"abortable": True, "preemptible": False, **needs}
    return job(number, submit_s, duration_s, gpus=0, cores=cores, **wants)


def run(cluster: Cluster, *jobs: TraceJob, policy: str = "coda") -> tuple[Moves, Run]:
    seen = Moves()
    given = Inputs(cluster=cluster, workload=workload(*jobs), world=NeutralWorld(), policy=registry.create(policy))
    found = simulate(given, watchers=lambda _: [seen])
    assert not seen.flaws
    assert len(found.ledger.rows.id) == len(jobs)
    return seen, found


def first_starts(found: Run) -> dict[int, float]:
    return dict(zip(found.ledger.rows.id, found.ledger.rows.first_start_s, strict=True))


def test_idle_cores_are_lent_and_given_back_at_once_by_the_newest() -> None:
    """A node of 28 cores, all lent; a job with a GPU needs 4 of them."""
    jobs = [cpu_job(number, number, 1000.0, 7) for number in range(1, 5)]
    seen, found = run(machines(4), *jobs, training(5, 100.0, 500.0))
    assert seen.stops == [JobId(4)]
    assert first_starts(found)[5] == 100.0
    rows = found.ledger.rows
    ended = dict(zip(rows.id, rows.end_s, strict=True))
    assert ended[4] > 1500  # it began anew: what it had done is lost
    assert dict(zip(rows.id, rows.attempts, strict=True))[4] == 2


def test_one_victim_that_is_enough_goes_before_two_newer_ones() -> None:
    jobs = [cpu_job(1, 1.0, 1000.0, 24), cpu_job(2, 2.0, 1000.0, 2), cpu_job(3, 3.0, 1000.0, 2)]
    seen, _ = run(machines(4), *jobs, training(4, 100.0, 500.0, cores=4))
    assert seen.stops == [JobId(1)]


def test_a_job_that_may_not_begin_anew_is_never_stopped_and_borrows_nothing() -> None:
    """Four GPUs are asked for, with four cores each, so twelve are left for who cannot give back."""
    training_ = [training(number, 0.0, 10_000.0) for number in range(1, 4)]
    jobs = [cpu_job(5, 1.0, 100.0, 12, abortable=False), cpu_job(6, 2.0, 100.0, 4, abortable=False)]
    seen, found = run(machines(4), *training_, training(4, 0.0, 50.0), *jobs)
    assert first_starts(found)[5] == 1.0
    assert first_starts(found)[6] == 50.0  # once a GPU fewer is asked for, its cores are free
    assert not seen.stops


def test_one_greedy_job_does_not_keep_an_idle_pool_from_jobs_that_borrow_nothing() -> None:
    """One GPU of eight is asked for: of 28 cores that a node would keep if all were, four are kept."""
    jobs = [training(1, 0.0, 1000.0, cores=28), cpu_job(2, 1.0, 100.0, 20, abortable=False)]
    _, found = run(machines(4, 4), *jobs)
    assert first_starts(found)[2] == 1.0


def greedy(policy: str) -> tuple[Moves, Run]:
    """A job that borrows all cores, and training that needs some of them again and again."""
    cpu = cpu_job(1, 0.0, 1000.0, 28)
    return run(machines(1), cpu, *[training(number, 100.0 * number, 10.0) for number in range(2, 10)], policy=policy)


@pytest.mark.parametrize("aborts_max", [1, 3])
def test_a_borrower_that_is_aborted_more_than_its_cap_ends(aborts_max: int) -> None:
    seen, found = greedy(f"coda:aborts_max={aborts_max}")
    rows = found.ledger.rows
    row = rows.id.index(1)
    assert Counter(seen.stops) == {JobId(1): aborts_max + 1}
    assert (STATES[rows.state[row]], rows.attempts[row]) == (JobState.FAILED, aborts_max + 1)
    last = aborts_max + 2
    assert first_starts(found)[last] == rows.end_s[row] == 100.0 * last


def test_a_cluster_may_let_it_wait_for_cores_of_its_own_array_instead() -> None:
    seen, found = greedy("coda:at_cap=waits")
    rows = found.ledger.rows
    assert Counter(seen.stops) == {JobId(1): 3}
    assert rows.attempts[rows.id.index(1)] == 4
    assert rows.count(JobState.FAILED) == 0


def test_a_job_that_would_end_by_it_is_taken_last() -> None:
    """Two borrowers: the newest is stopped, then the other one, and only when both were is one of them ended."""
    cpu = [cpu_job(number, number, 1000.0, 14) for number in (1, 2)]
    jobs = [training(number, 100.0 * (number - 2), 10.0) for number in (3, 4, 5)]
    seen, found = run(machines(1), *cpu, *jobs, policy="coda:aborts_max=1")
    assert seen.stops == [JobId(2), JobId(1), JobId(1)]
    assert found.ledger.rows.count(JobState.FAILED) == 1


def test_small_jobs_leave_whole_nodes_to_large_ones_and_borrow_what_those_do_not_want() -> None:
    small = [training(number, 0.0, 1000.0) for number in range(1, 6)]
    large = training(6, 1.0, 1000.0, gpus=4)
    seen, _ = run(machines(4, 4, 4), *small, large)
    places = dict(seen.starts)
    assert len({places[JobId(number)] for number in range(1, 5)}) == 1
    assert places[JobId(5)] != places[JobId(1)]
    assert places[JobId(6)] not in {places[JobId(1)], places[JobId(5)]}


def test_a_large_job_takes_its_sub_array_back_and_the_borrower_does_not_come_before_it() -> None:
    small = [training(number, 0.0, 10_000.0) for number in range(1, 6)]
    seen, found = run(machines(4, 4, 4), *small, training(6, 1000.0, 100.0, gpus=4), training(7, 1000.0, 100.0, gpus=4))
    assert len(seen.stops) == 1
    starts = first_starts(found)
    assert starts[6] == starts[7] == 1000.0


def test_a_job_that_does_not_save_its_state_is_not_moved() -> None:
    small = [training(number, 0.0, 5000.0, preemptible=False) for number in range(1, 6)]
    seen, found = run(machines(4, 4), *small, training(6, 1000.0, 100.0, gpus=4))
    assert not seen.stops
    assert first_starts(found)[6] == 5000.0


@pytest.mark.parametrize("seed", range(8))
def test_random_worlds_end_and_no_plan_is_refused(seed: int) -> None:
    random, jobs = Random(seed), []
    for number in range(1, 40):
        submit_s, duration_s = float(number * random.choice((5, 20))), float(random.choice((50, 300, 2000)))
        if random.random() < 0.5:
            jobs.append(cpu_job(number, submit_s, duration_s, random.randint(1, 20), abortable=random.random() < 0.7))
        else:
            gpus, cores = random.choice((1, 1, 2, 4)), random.randint(1, 12)
            made = training(number, submit_s, duration_s, gpus=gpus, cores=cores, user=random.choice("ab"))
            jobs.append(replace(made, spec=replace(made.spec, preemptible=random.random() < 0.7)))
    jobs.sort(key=lambda one: one.submit_s)
    jobs = [replace(one, id=JobId(number)) for number, one in enumerate(jobs, 1)]
    _, found = run(machines(4, 4, 2), *jobs)
    assert max(found.ledger.rows.attempts) <= 4


def filled(policy: str, capacities: tuple[int, int], *needs: tuple[int, int]) -> Counter[str]:
    """How many jobs of each user run at once on one node with plenty of GPUs."""
    cores, memory = capacities
    machine = replace(node("n0", 64), cores=tuple(range(cores)), host_memory_bytes=memory * GIB)
    jobs = [
        job(
            len(needs) * place + which + 1, 0.0, 100.0, cores=need[0], host_memory_bytes=need[1] * GIB,
            user=f"u{which}", preemptible=False,
        )
        for place in range(20) for which, need in enumerate(needs)
    ]  # fmt: skip
    seen, _ = run(Cluster("test", (machine,)), *jobs, policy=policy)
    first = seen.starts[: sum(1 for _ in jobs)]
    users = {one.id: one.spec.user for one in jobs}
    held: Counter[str] = Counter()
    used = [0, 0]
    for number, _node in first:
        need = needs[int(users[number][1:])]
        if used[0] + need[0] > cores or used[1] + need[1] > memory:
            break
        used = [used[0] + need[0], used[1] + need[1]]
        held[users[number]] += 1
    return held


def test_drf_gives_the_classic_example_of_its_paper() -> None:
    """Nine cores and 18 GB; jobs of 1 core, 4 GB and of 3 cores, 1 GB: three and two (Ghodsi et al., section 4.1)."""
    assert filled("drf", (9, 18), (1, 4), (3, 1)) == {"u0": 3, "u1": 2}


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (0.5, 1.0, 3.0)])
@pytest.mark.parametrize("seed", range(6))
def test_drf_is_progressive_filling(seed: int, weights: tuple[float, ...]) -> None:
    """Whoever has the smallest dominant share for his weight gets the next job, until that does not fit."""
    random = Random(seed)
    capacities = random.randint(8, 30), random.randint(8, 30)
    needs = [(random.randint(1, 3), random.randint(1, 4)) for _ in range(random.randint(2, 3))]
    used, counts = [0, 0], [0] * len(needs)
    while True:
        shares = [
            max(count / 64, count * need[0] / capacities[0], count * need[1] / capacities[1]) / weight
            for count, need, weight in zip(counts, needs, weights[: len(needs)], strict=True)
        ]
        fitting = [
            (shares[which], counts[which], which)  # of equal shares the one whose next job came first
            for which, need in enumerate(needs)
            if all(have + more <= most for have, more, most in zip(used, need, capacities, strict=True))
        ]
        if not fitting:
            break
        *_, which = min(fitting)
        counts[which] += 1
        used = [have + more for have, more in zip(used, needs[which], strict=True)]
    said = "/".join(f"u{which}={weight}" for which, weight in enumerate(weights))
    assert filled(f"drf:user_weights={said}", capacities, *needs) == {
        f"u{which}": count for which, count in enumerate(counts) if count
    }

"""Arrays of cores beside jobs with GPUs that wait for none: `colane:arrays=yes`."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given

from colane.core.events import Outcome
from colane.cpu.config import TuningConfig
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId, JobState
from colane.model.plan import SetCores, Start, Stop
from colane.scheduling import registry
from tests.examples import examples
from tests.scheduling.test_array_laws import CORES, COSTS, FREED_S, GPUS, borrowers, delays, sparse_training, together
from tests.scheduling.test_arrays import cpu_job, first_starts, machines, training
from tests.scheduling.test_compositions import SEEDS
from tests.simulate.scenes import workload

POLICY = "colane:arrays=yes"


class Cores:
    """How many cores each job had, in order, and which were stopped."""

    def __init__(self) -> None:
        self.of: dict[int, list[int]] = {}
        self.stops: list[JobId] = []
        self.flaws: list[str] = []

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        del now_s
        self.flaws += [] if outcome.rejected is None else [flaw.detail for flaw in outcome.rejected.flaws]
        for decision in outcome.decisions:
            action = decision.action
            if isinstance(action, Start):
                self.of.setdefault(int(action.job), []).append(len(action.placement.cores))
            elif isinstance(action, SetCores):
                self.of[int(action.job)].append(len(action.cores))
            elif isinstance(action, Stop):
                self.stops.append(action.job)

    def started(self, process: Process, co_runners: object) -> None:
        """Not of interest."""


def run(cluster: Cluster, *jobs: TraceJob, policy: str = POLICY, tunes: bool = True) -> tuple[Cores, Run]:
    seen = Cores()
    tuning = TuningConfig() if tunes else None
    inputs = Inputs(
        cluster=cluster, workload=workload(*jobs), world=NeutralWorld(), policy=registry.create(policy), tuning=tuning
    )
    found = simulate(inputs, watchers=lambda _: [seen])
    assert not seen.flaws
    assert len(found.ledger.rows.id) == len(jobs)
    return seen, found


def test_one_starts_at_once_on_what_is_left_and_gets_what_was_lent() -> None:
    """Of 28 cores four are left for four idle GPUs; the newest borrower leaves for the other three of the offer."""
    lent = [cpu_job(number, number, 5000.0, 8) for number in (1, 2, 3)]
    seen, found = run(machines(4), *lent, training(4, 100.0, 2000.0))
    assert first_starts(found)[4] == 100.0
    assert seen.of[4] == [1, 4]
    assert seen.stops == [JobId(3)]
    alone, _ = run(machines(4), *lent, training(4, 100.0, 2000.0), policy="colane")
    assert not alone.stops


@pytest.mark.parametrize(("policy", "is_kept"), [("colane", False), (POLICY, True)])
def test_cores_are_kept_from_those_that_may_not_begin_anew(policy: str, is_kept: bool) -> None:
    """A job on one of two GPUs, and one that waits for both: eight cores of 28 are kept."""
    jobs = [training(1, 0.0, 50.0), training(2, 1.0, 3000.0, gpus=2, cores=8)]
    firm = [cpu_job(number, 2.0, 4000.0, 8, abortable=False) for number in (3, 4, 5)]
    _, found = run(machines(2), *jobs, *firm, policy=policy)
    starts = first_starts(found)
    assert (starts[3], starts[4]) == (2.0, 2.0)
    assert (starts[5] > 2.0) is is_kept
    assert starts[2] == 50.0


@pytest.mark.parametrize("abortable", [False, True])
def test_jobs_that_ask_for_no_cores_are_left_some(abortable: bool) -> None:
    """Five for a job of unknown category, as it would start with under CODA."""
    few, all_of_them = (cpu_job(n, 1.0, 100.0, c, abortable=abortable) for n, c in ((3, 23), (2, 28)))
    _, found = run(machines(1), training(1, 0.0, 3000.0, cores=0), all_of_them, few)
    starts = first_starts(found)
    assert starts[3] == 1.0
    assert starts[2] == 3000.0


def test_what_is_needed_is_taken_back_before_the_start() -> None:
    """Without the search for cores those asked for are a need: it waits for the borrower, and joins none meanwhile."""
    jobs = [training(1, 0.0, 5000.0), cpu_job(2, 1.0, 5000.0, 20), training(3, 100.0, 500.0, cores=12)]
    seen, found = run(machines(2), *jobs, tunes=False)
    assert seen.stops == [JobId(2)]
    assert first_starts(found)[3] == 100.0
    waiting, late = run(machines(2), *jobs, policy="colane", tunes=False)
    assert not waiting.stops
    assert first_starts(late)[3] > 100.0


def test_a_borrower_that_was_stopped_as_often_as_it_may_be_ends_only_where_that_is_said() -> None:
    cpu = cpu_job(1, 0.0, 1000.0, 24)
    jobs = [training(number, 100.0 * number, 10.0, cores=8) for number in range(2, 10)]
    seen, found = run(machines(1), cpu, *jobs, tunes=False)
    assert found.ledger.rows.count(JobState.FAILED) == 0
    assert len(seen.stops) == 3
    _, ended = run(machines(1), cpu, *jobs, tunes=False, policy=f"{POLICY},at_cap=ends")
    assert ended.ledger.rows.count(JobState.FAILED) == 1


@examples(30)
@given(seed=SEEDS)
def test_borrowers_of_cores_delay_training_by_no_more_than_it_takes_to_stop_them(seed: int) -> None:
    random = Random(seed)
    jobs = together(*borrowers(random), *sparse_training(random))
    inputs = Inputs(
        cluster=machines(*GPUS, cores=CORES), workload=workload(*jobs), world=NeutralWorld(),
        policy=registry.create(f"{POLICY},max_wait_s=none,at_cap=ends"), driver=COSTS,
    )  # fmt: skip
    found = simulate(inputs)
    assert not found.ledger.flaws
    assert max(delays(found, jobs)) <= FREED_S


@examples(30)
@given(seed=SEEDS)
def test_with_cores_as_an_offer_training_waits_for_none(seed: int) -> None:
    """However many cores are lent, and to whom: one is left for each idle GPU."""
    random = Random(seed)
    jobs = together(*borrowers(random, CORES - max(GPUS), abortable=random.random() < 0.5), *sparse_training(random))
    seen, found = run(machines(*GPUS, cores=CORES), *jobs)
    assert max(delays(found, jobs)) == 0.0
    assert all(seen.of[int(job.id)][0] >= 1 for job in jobs if job.spec.gpus)

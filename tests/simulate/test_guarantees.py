"""A guaranteed group gets its share back within the time that borrowers take to leave, and no other group before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core.events import Outcome
from colane.lab.simulate.beliefs import Belief, declare_lengths, make_beliefs
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.factors import FactorsWorld
from colane.lab.simulate.process import Process
from colane.lab.simulate.request import Request, load
from colane.lab.simulate.run import Inputs, Run, simulate
from colane.lab.simulate.world import NeutralWorld, Running
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.workload import TraceJob
from colane.model.job import JobId
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.scheduling.registry import create
from tests.examples import FUZZ, examples

from .scenes import GIB, cluster, job, random_cluster, random_jobs, workload

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
WORLDS = 40 * max(1, FUZZ)
COSTS = st.sampled_from([DriverConfig(), DriverConfig(launch_s=3, restart_s=2, stop_s=1), DriverConfig(stop_s=4)])


def guaranteed(**groups: int) -> Quotas:
    """Each group of one user of its name."""
    return Quotas(groups={name: GroupQuota(Limits(), frozenset({name}), gpus) for name, gpus in groups.items()})


class Owed:
    """For how long a group had too little and got nothing, though a job of it waited."""

    def __init__(self, quotas: Quotas, jobs: Sequence[TraceJob]) -> None:
        self._groups = {name: group.guaranteed_gpus for name, group in quotas.groups.items()}
        self._user = {one.id: one.spec.user for one in jobs}
        self._waits: dict[JobId, int] = {}
        self._has: dict[JobId, int] = {}
        self._since_s: dict[str, float] = {}
        self._had: dict[str, int] = {}
        self.longest_s = 0.0

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        for one in outcome.jobs:
            for known in (self._waits, self._has):
                known.pop(one.id, None)
            if one.is_waiting and one.constraints.promised is not None:
                self._has[one.id] = len(one.constraints.promised.gpus)
            elif one.is_waiting:
                self._waits[one.id] = one.effective.gpus
            elif one.gpus_held:
                self._has[one.id] = len(one.gpus_held)
        for name, gpus in self._groups.items():
            has = sum([held for job_id, held in self._has.items() if self._user[job_id] == name])
            fits = any(needs <= gpus - has for job_id, needs in self._waits.items() if self._user[job_id] == name)
            if name in self._since_s:
                self.longest_s = max(self.longest_s, now_s - self._since_s[name])
            grew, self._had[name] = has > self._had.get(name, 0), has
            if not fits or grew:
                self._since_s.pop(name, None)
            if fits:
                self._since_s.setdefault(name, now_s)

    def started(self, process: Process, co_runners: Sequence[Running]) -> None:
        """Not of interest."""


def simulated(
    jobs: Sequence[TraceJob], machines: Cluster, name: str, quotas: Quotas, costs: DriverConfig
) -> tuple[Run, Owed]:
    owed = Owed(quotas, jobs)
    given = Inputs(
        cluster=machines,
        workload=workload(*jobs),
        world=NeutralWorld(),
        policy=create(name),
        limits=quotas,
        driver=costs,
    )
    return simulate(given, watchers=lambda _: [owed]), owed


@pytest.mark.parametrize("name", ["colane", "srtf", "fifo", "drf"])
@examples(25)
@given(seed=SEEDS, costs=COSTS, due_ratio=st.sampled_from([0.0, 0.3, 0.7]))
def test_a_group_has_what_it_is_guaranteed_once_borrowers_have_left(
    name: str, seed: int, costs: DriverConfig, due_ratio: float
) -> None:
    draws, machines = np.random.default_rng(seed), random_cluster(seed)
    jobs = []
    for one in random_jobs(seed, most_gpus=1):
        spec = replace(one.spec, user=str(draws.choice(["a", "b", "c"])), preemptible=bool(draws.random() < 0.7))
        if one.duration_s is not None and draws.random() < due_ratio:  # promised to outsiders and to the group's own
            limit_s = float(np.ceil(one.duration_s)) + 20.0
            spec = replace(spec, time_limit_s=limit_s, deadline_s=float(draws.uniform(1.1, 8.0) * limit_s + 10.0))
        jobs.append(replace(one, spec=spec, submit_s=one.submit_s / 8))
    gpus = sum(len(node.gpus) for node in machines.nodes)
    first = int(draws.integers(0, gpus + 1))
    quotas = guaranteed(a=first, b=int(draws.integers(0, gpus - first + 1)))
    done, owed = simulated(jobs, machines, name, quotas, costs)
    assert done.ledger.flaws == []
    protected_s = 4 * (costs.launch_s + costs.restart_s)
    assert owed.longest_s <= costs.stop_s + protected_s


def test_borrowers_leave_once_the_group_wants_its_gpus_and_come_back_after_it() -> None:
    lent = [job(number, 0.0, 100.0, user="guest") for number in (1, 2)]
    own = job(3, 10.0, 20.0, user="lab")
    done, owed = simulated([*lent, own], cluster(2), "colane", guaranteed(lab=1), DriverConfig(stop_s=4.0))
    ends = dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))
    assert ends[JobId(3)] == 34.0
    assert owed.longest_s == 4.0


def test_what_cannot_be_stopped_borrows_nothing_that_is_guaranteed() -> None:
    fixed = [job(number, 0.0, 100.0, user="guest", preemptible=False) for number in (1, 2)]
    own = job(3, 10.0, 20.0, user="lab")
    done, _ = simulated([*fixed, own], cluster(2), "colane", guaranteed(lab=1), DriverConfig())
    ends = dict(zip(done.ledger.rows.id, done.ledger.rows.end_s, strict=True))
    assert ends == {JobId(1): 100.0, JobId(2): 200.0, JobId(3): 30.0}


def test_a_gang_waits_no_longer_than_a_day_for_others_to_leave_what_no_group_is_guaranteed() -> None:
    ones = [job(2 + number, 20_000.0 * number, 40_000.0, user="guest", preemptible=False) for number in range(20)]
    gang = job(1, 1.0, 100.0, gpus=2, user="guest", preemptible=False)
    done, _ = simulated([ones[0], gang, *ones[1:]], cluster(4), "colane", guaranteed(lab=2), DriverConfig())
    starts = dict(zip(done.ledger.rows.id, done.ledger.rows.start_s, strict=True))
    assert starts[JobId(1)] <= 86_400.0 + 40_000.0 + 1.0


def test_more_than_the_simulated_cluster_has_is_refused() -> None:
    request = Request(cluster="dgx1", trace="sweep:jobs=4", limits=guaranteed(lab=8))
    assert load(request, 0).cluster.gpus == 8
    with pytest.raises(ValueError, match="--limits: 9 to group lab are more than the 8 GPUs there"):
        load(replace(request, limits=guaranteed(lab=9)), 0)


def shared(jobs: Sequence[TraceJob], machines: Cluster, name: str, quotas: Quotas) -> dict[int, float]:
    """How long each job takes where GPUs are shared and lengths are told."""
    world = FactorsWorld(0.3, jobs)
    told = declare_lengths(jobs, Belief.ORACLE, noise=0.0, seed=0)
    beliefs = make_beliefs(Belief.ORACLE, world, told, machines, noise=0.0, seed=0)
    done = simulate(
        Inputs(
            cluster=machines, workload=workload(*told), world=world, policy=create(name), limits=quotas,
            beliefs=beliefs, driver=DriverConfig(launch_s=2, restart_s=1, stop_s=1),
        )
    )  # fmt: skip
    assert done.ledger.flaws == []
    rows = zip(done.ledger.rows.id, done.ledger.rows.submit_s, done.ledger.rows.end_s, strict=True)
    return {number: end_s - submit_s for number, submit_s, end_s in rows}


def test_jobs_within_a_guarantee_share_their_gpus_as_others_do() -> None:
    pair = [job(number, float(number), 100.0, user="lab", batch_size=1, gpu_memory_bytes=GIB) for number in (1, 2)]
    assert shared(pair, cluster(1), "colane", guaranteed(lab=1)) == shared(pair, cluster(1), "colane", Quotas())


def test_a_job_within_a_guarantee_joins_borrowers_where_it_would_without_and_none_of_them_is_stopped() -> None:
    lent = [job(number, 0.0, 400.0, user="guest", batch_size=1, gpu_memory_bytes=GIB) for number in (1, 2)]
    own = job(3, 100.0, 50.0, user="lab", batch_size=1, gpu_memory_bytes=GIB)
    jobs = [replace(one, gpu_ratio=0.3) for one in (*lent, own)]
    assert shared(jobs, cluster(2), "colane", guaranteed(lab=1)) == shared(jobs, cluster(2), "colane", Quotas())


def test_of_a_group_that_has_more_than_it_is_guaranteed_whichever_job_has_most_left_leaves_for_others() -> None:
    own = [job(number, number - 1.0, 9_000.0 / number, user="lab") for number in (1, 2)]
    jobs = [*own, job(3, 100.0, 50.0, user="guest")]
    assert shared(jobs, cluster(2), "colane", guaranteed(lab=1)) == shared(jobs, cluster(2), "colane", Quotas())


def of_two_groups(seed: int) -> tuple[Cluster, list[TraceJob]]:
    """A load of about 1 of jobs that gain by sharing."""
    draws = np.random.default_rng(seed)
    gpus = 2 * int(draws.integers(1, 3))
    submit_s = np.cumsum(draws.exponential(60.0 / gpus * draws.uniform(0.7, 1.3), 16))
    jobs = [
        job(
            number, float(at_s), float(np.ceil(draws.exponential(60.0) + 1.0)), user=str(draws.choice(["a", "b"])),
            family=str(draws.choice(["x", "y", "z"])), batch_size=1, gpu_memory_bytes=4 * GIB,
        )
        for number, at_s in enumerate(submit_s.tolist(), 1)
    ]  # fmt: skip
    ratio = {"x": 0.3, "y": 0.5, "z": 0.9}
    return cluster(gpus), [replace(one, gpu_ratio=ratio[one.spec.family]) for one in jobs]


@pytest.mark.parametrize(("name", "mean_max", "worse_max"), [("colane", 1.001, 0.02), ("srtf", 1.03, 0.4)])
def test_a_guarantee_harms_none_whom_it_protects(name: str, mean_max: float, worse_max: float) -> None:
    """Each of two groups has half of all GPUs: what jobs of each take on average, over the same without guarantees."""
    ratios = []
    for seed in range(WORLDS):
        machines, jobs = of_two_groups(seed)
        half = sum(len(node.gpus) for node in machines.nodes) // 2
        without = shared(jobs, machines, name, Quotas())
        within = shared(jobs, machines, name, guaranteed(a=half, b=half))
        for user in "ab":
            mine = [one.id for one in jobs if one.spec.user == user]
            ratios.append(sum(within[one] for one in mine) / sum(without[one] for one in mine))
    assert np.mean(ratios) <= mean_max
    assert np.mean(np.array(ratios) > 1.05) <= worse_max


def with_deadlines(seed: int, jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """About three of ten are to end within two to six times their length."""
    draws = np.random.default_rng([seed, 1])
    found = []
    for one in jobs:
        due_s = float(np.ceil((one.duration_s or 0.0) * draws.uniform(2.0, 6.0) + 5.0))
        is_due = bool(draws.random() < 0.3)
        found.append(replace(one, spec=replace(one.spec, deadline_s=due_s)) if is_due else one)
    return found


@pytest.mark.parametrize(
    ("name", "first_max", "without_max"), [("colane", 1.0, 1.06), ("srtf", 0.95, 1.02), ("fifo", 0.95, 1.0)]
)
def test_promised_deadlines_take_of_others_no_more_than_what_is_promised(
    name: str, first_max: float, without_max: float
) -> None:
    """Jobs without deadlines take no longer on average than where the others go first, alone on their GPUs, to the end.

    Nor much longer than where none has a deadline: what the promise takes is that the others run alone once they run.
    """
    first, without = [], []
    for seed in range(WORLDS):
        machines, jobs = of_two_groups(seed)
        due = with_deadlines(seed, jobs)
        promised = {one.id for one in due if one.spec.deadline_s is not None}
        ahead = [
            replace(one, spec=replace(one.spec, priority=1, share=False, preemptible=False))
            if one.id in promised
            else one
            for one in jobs
        ]
        kept, taken, plain = (shared(each, machines, name, Quotas()) for each in (due, ahead, jobs))
        for one in due:
            assert one.spec.deadline_s is None or kept[one.id] <= one.spec.deadline_s
        others = [one.id for one in jobs if one.id not in promised]
        took = sum([kept[one] for one in others])
        first.append(took / sum([taken[one] for one in others]))
        without.append(took / sum([plain[one] for one in others]))
    assert np.mean(first) <= first_max
    assert np.mean(np.array(first) > 1.25) <= 0.05
    assert np.mean(without) <= without_max

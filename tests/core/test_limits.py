"""Limits on what runs: never exceeded whatever the policy, and no job is held that fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf

import pytest
from hypothesis import given

from colane.core import ClusterState, Core
from colane.core.cluster.draft import Draft
from colane.core.cluster.limits import gpus_counted
from colane.core.cluster.view import ClusterView
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Ended,
    GroupsSeen,
    NodeRegistered,
    Outcome,
    ResumeRequested,
    Submitted,
    SuspendRequested,
)
from colane.core.usage import UsedGpus, month_of
from colane.model.job import Exit, Job, JobId, JobSpec
from colane.model.limits import GroupQuota, Limits, QosQuota, Quotas
from colane.model.phases import HoldKind
from colane.model.placement import Turns
from colane.model.plan import Plan
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.examples import examples

from .audit import audit
from .brute import any_free_place
from .test_laws import REASONS_EVERY, SEEDS, make, policies
from .worlds import World, make_node

DAY_S = 24 * 3600.0


@dataclass
class Site:
    """A node of V100s and one of K80s, under limits."""

    quotas: Quotas
    policy: str = "fifo-skip"
    core: Core = field(init=False)
    now_s: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        config = CoreConfig(runs_at_once=True, limits=self.quotas)
        self.core = Core(create(self.policy), ClusterState(Beliefs()), config)
        self.core.step([NodeRegistered(make_node("v", 4)), NodeRegistered(make_node("k", 4, "K80"))], 0.0)

    def submit(self, user: str = "ann", **needs: object) -> JobId:
        self.count += 1
        spec = JobSpec(name=f"job-{self.count}", family="f", user=user, **needs)  # type: ignore[arg-type]
        self.core.step([Submitted(JobId(self.count), spec)], self.now_s)
        return JobId(self.count)

    def end(self, job: JobId) -> tuple[Job, ...]:
        end = Ended(job, self.core.state.jobs[job].attempt, "exited", Exit(0, None), 0.0, self.now_s)
        return self.core.step([end], self.now_s).jobs

    def job(self, job: JobId) -> Job:
        return self.core.state.jobs[job]

    def step(self) -> Outcome:
        return self.core.step([], self.now_s)

    @property
    def running(self) -> list[int]:
        return [job.id for job in self.core.state.jobs.values() if job.placement is not None]

    def why(self, job: JobId) -> str:
        return sentence_of(self.core.why(job, self.now_s))


def used(jobs: list[Job], quotas: Quotas) -> Counter[tuple[str, str]]:
    """Running jobs and their GPUs by who is bounded."""
    found: Counter[tuple[str, str]] = Counter()
    for job in jobs:
        if job.placement is not None:
            for bound in quotas.bounds(job.spec.user):
                found[bound.name, "running"] += 1
                found[bound.name, "gpus"] += gpus_counted(job.spec)
    return found


BOUNDED = Quotas(
    Limits(gpus=4, running=2),
    {"bob": Limits(gpus=5)},
    {"both": GroupQuota(Limits(gpus=6, running=4), frozenset({"ann", "bob"}))},
)


@policies
@examples(10)
@given(seed=SEEDS)
def test_no_limit_is_ever_exceeded_and_a_held_job_does_not_fit(name: str, seed: int) -> None:
    world = World(make(name), seed, CoreConfig(limits=BOUNDED), sized=seed % 2 == 0, cpu_only=seed % 3 == 0)
    for number in range(60):
        outcome = world.step(*(world.random_event() for _ in range(world.random.randrange(1, 4))))
        assert outcome.rejected is None
        audit(world.core.state)
        jobs = list(world.core.state.jobs.values())
        for bound in [*BOUNDED.bounds("ann"), *BOUNDED.bounds("bob")]:
            has = used(jobs, BOUNDED)
            assert has[bound.name, "running"] <= (bound.limits.running or inf)
            assert has[bound.name, "gpus"] <= (bound.limits.gpus or inf)
        told = {job.id: job.holds for job in outcome.jobs}
        assert all(
            world.core.state.jobs[job].holds == holds for job, holds in told.items() if job in world.core.state.jobs
        )
        held = [job for job in jobs if job.is_held(HoldKind.LIMIT)]
        for job in held:
            reason = world.core.why(job.id, world.now_s)
            assert sentence_of(reason)
            assert reason.why in {Why.LIMIT, Why.BEHIND} or job.is_held(HoldKind.USER)
        if number % REASONS_EVERY:
            continue
        again = world.policy.plan(ClusterView(world.core.state, world.now_s))
        limits = world.core.limits
        assert limits is not None
        assert limits.cut(again, world.core.state.jobs)[0].actions == (), "a policy knows nothing of limits"


@examples(40)
@given(seed=SEEDS)
def test_a_job_that_fits_its_limits_and_free_gpus_runs(seed: int) -> None:
    """Where nothing but limits keeps jobs from passing others, and no GPUs are kept for any."""
    world = World(create("fifo-skip"), seed, CoreConfig(limits=BOUNDED))
    for _ in range(60):
        world.step(world.random_event())
        jobs = list(world.core.state.jobs.values())
        has = used(jobs, BOUNDED)
        for job in jobs:
            fits = all(
                has[bound.name, "running"] + 1 <= (bound.limits.running or inf)
                and has[bound.name, "gpus"] + job.spec.gpus <= (bound.limits.gpus or inf)
                for bound in BOUNDED.bounds(job.spec.user)
            )
            if job.placement is None and fits and not job.is_held(HoldKind.USER) and not job.spec.multi_node:
                assert not any_free_place(world.core.state, job.spec)


@policies
@examples(3)
@given(seed=SEEDS)
def test_limits_that_bind_no_user_change_no_decision(name: str, seed: int) -> None:
    decisions = []
    for quotas in (Quotas(), Quotas(Limits(gpus=10_000, running=10_000))):
        world = World(make(name), seed, CoreConfig(limits=quotas))
        for _ in range(40):
            world.step(world.random_event())
        decisions.append([decision for outcome in world.outcomes for decision in outcome.decisions])
    assert decisions[0] == decisions[1]


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "colocate", "las", "colane"])
def test_a_job_that_waits_for_a_busy_type_holds_no_other_up(policy: str) -> None:
    site = Site(Quotas(users={"ann": Limits(gpus=1)}), policy)
    busy = site.submit("bob", gpus=4, gpu_type="V100", share=False)
    site.now_s = 1.0
    first = site.submit(gpu_type="V100", share=False)
    assert not site.core.state.jobs[first].holds
    if policy == "fifo":  # its line is one for all users, whoever's job is first in it
        site.core.step([SuspendRequested(first, "ann")], 1.0)
    second = site.submit(gpu_type="K80", share=False)
    assert site.running == [busy, second]
    if policy == "fifo":
        site.core.step([ResumeRequested(first, "ann")], 1.0)
    assert site.why(first) == (
        "QOSMaxGRESPerUser: ann's limit of 1 GPU is reached: 1 GPU used, 1 more needed; "
        "it starts when others under it have ended"
    )
    site.now_s = 2.0
    site.end(busy)
    assert site.running == [second]
    site.end(second)
    assert site.running == [first]


@dataclass
class Ignorant:
    """Starts every waiting job somewhere free, and knows nothing of limits; other jobs it would stop for them."""

    name: str = "ignorant"
    turns: Turns = field(default_factory=Turns)
    min_runtime_before_preemption_s: float = inf

    @staticmethod
    def plan(view: ClusterView) -> Plan:
        """See the class."""
        draft = Draft(view)
        for job in [view.job(each) for each in view.queue("default")]:
            for kind in view.gpu_types("default"):
                nodes = [view.node_at(order) for order in draft.free(("default", kind)).nodes_with(job.spec.gpus)]
                if nodes and draft.is_undecided(job.id):
                    free = draft.free_gpus(nodes[0], kind)[: job.spec.gpus]
                    draft.start(job, free, Reason(Why.FREE_GPU, {"gpu": str(free[0].id)}))
        return draft.plan()


def test_a_policy_of_a_user_s_own_cannot_exceed_them_and_what_it_would_is_for_others() -> None:
    site = Site(Quotas(users={"ann": Limits(running=1, gpus=3)}))
    site.core = Core(Ignorant(), ClusterState(Beliefs()), CoreConfig(runs_at_once=True, limits=site.quotas))
    jobs = [("ann", 2), ("ann", 1), ("ann", 3), ("bob", 1), ("bob", 1), ("bob", 1)]
    specs = [JobSpec(name=f"j{i}", family="f", user=user, gpus=gpus) for i, (user, gpus) in enumerate(jobs, 1)]
    site.core.step([Submitted(JobId(i), spec) for i, spec in enumerate(specs, 1)], 0.0)
    outcome = site.core.step([NodeRegistered(make_node("v", 4))], 1.0)
    assert outcome.rejected is None
    assert site.running == [1, 4, 5]
    assert site.why(JobId(2)).startswith("QOSMaxJobsPerUserLimit: ann's limit of 3 GPUs and 1 running job is reached")


def test_equal_jobs_are_let_go_one_by_one_and_the_others_are_not_touched() -> None:
    site = Site(Quotas(Limits(running=2)))
    ids = [site.submit() for _ in range(50)]
    for last in range(2, 20):
        changed = site.end(ids[last - 2])
        assert [job.id for job in changed] == [ids[last - 2], ids[last]]
    assert site.why(ids[-1]).startswith("QOSMaxJobsPerUserLimit: ann's limit of 2 running jobs is reached: 2 jobs used")


def test_one_of_a_group_s_jobs_that_small_ones_have_passed_for_a_week_is_passed_no_more() -> None:
    group = Quotas(groups={"lab": GroupQuota(Limits(gpus=2), frozenset({"ann", "bob"}))})
    site = Site(group)
    running = [site.submit("bob"), site.submit("bob")]
    large = site.submit("ann", gpus=2)
    for day in range(1, 10):
        site.now_s = day * DAY_S
        running.append(site.submit("bob"))
        site.end(running.pop(0))
        if large in site.running:
            break
    assert day == 8
    assert site.why(running[-1]).startswith("QOSGrpGRES: group lab's limit of 2 GPUs is reached")


def test_a_job_held_behind_one_that_is_not_passed_any_more_is_told_so() -> None:
    site = Site(Quotas(groups={"lab": GroupQuota(Limits(gpus=2), frozenset({"ann", "bob"}))}))
    site.submit("bob")
    large = site.submit("ann", gpus=2)
    site.now_s = 8 * DAY_S
    small = site.submit("bob")
    assert (site.running, site.why(small)) == ([1], f"Priority: waits in order behind job {large}")


def test_members_of_a_system_s_group_count_together_from_when_they_are_known() -> None:
    site = Site(Quotas(groups={"lab": GroupQuota(Limits(running=1))}))
    site.core.step([GroupsSeen("ann", ("lab",)), GroupsSeen("bob", ("lab",))], 0.0)
    one, two, other = site.submit("ann"), site.submit("bob"), site.submit("eve")
    assert site.running == [one, other]
    site.core.step([GroupsSeen("bob", ())], 1.0)
    assert site.running == [one, two, other]


def test_a_user_s_hold_and_a_limit_s_are_two() -> None:
    site = Site(Quotas(Limits(running=1)))
    one, two = site.submit(), site.submit()
    site.core.step([SuspendRequested(two, "ann")], 1.0)
    assert site.core.why(two, 1.0).why is Why.HELD
    site.core.step([CancelRequested(one, "ann")], 2.0)
    site.end(one)
    assert site.running == []
    site.core.step([ResumeRequested(two, "ann")], 3.0)
    assert site.running == [two]


def test_held_jobs_of_before_are_let_go_where_there_are_no_limits_any_more() -> None:
    site = Site(Quotas(Limits(running=1)))
    site.submit(), site.submit()
    old = site.core.state
    nodes = [(node.node, node.generation) for node in old.nodes.values()]
    core = Core(
        create("fifo"),
        ClusterState.restore(nodes, old.jobs.values(), Beliefs()),
        replace(site.core.config, limits=Quotas()),
    )
    assert [job.id for job in core.step([], 1.0).jobs] == [2]


MONTH_S = 1_767_225_600.0  # 2026-01-01
BUDGET = Quotas(groups={"lab": GroupQuota(Limits(gpu_hours_per_month=10), frozenset({"ann", "bob"}))})


@pytest.mark.parametrize("policy", ["fifo-skip", "easy-backfill", "colocate", "srtf", "las", "colane"])
def test_no_job_starts_once_a_budget_is_used_up_and_the_next_month_lets_them(policy: str) -> None:
    site = Site(BUDGET, policy)
    site.now_s = MONTH_S + 86_400
    first = site.submit("ann", gpus=4)
    site.submit("carl", gpus=1)
    assert len(site.running) == 2
    wake_s = site.step().wake_s
    assert wake_s is not None
    assert site.core.limits is not None
    site.now_s += 2.4 * 3600  # 9.6 of 10 GPU-hours
    second = site.submit("bob", gpus=1)
    assert site.job(second).placement is not None
    spent_s = site.step().wake_s
    assert spent_s is not None
    assert site.now_s < spent_s <= site.now_s + 0.1 * 3600, "looked at when it is used up"
    site.now_s = spent_s + 1
    late, without = site.submit("bob", gpus=1), site.submit("bob", gpus=0, cores=1)
    assert site.job(late).is_held(HoldKind.LIMIT)
    assert not site.job(without).holds
    assert site.job(first).placement is not None, "what runs goes on"
    why = site.core.why(late, site.now_s)
    assert why.why is Why.BUDGET
    assert "group lab's budget of 10 GPU-hours a month is used up: 10.0 GPU-hours" in sentence_of(why)
    assert site.core.limits.budgets(site.now_s, "carl") == []
    site.end(first)
    site.end(second)
    assert site.job(late).is_held(HoldKind.LIMIT), "what was used stays used"
    ((name, gpu_s, used_s),) = site.core.limits.budgets(site.now_s, "ann")
    assert (name, gpu_s) == ("group lab", 36_000)
    assert used_s == pytest.approx(36_000, abs=30)
    assert site.step().wake_s == MONTH_S + 31 * 86_400
    site.now_s = MONTH_S + 31 * 86_400
    site.step()
    assert not site.job(late).holds
    assert site.job(late).placement is not None


def test_a_budget_counts_what_was_used_before_a_restart_and_after_a_change_of_months() -> None:
    used = [UsedGpus("ann", 1.0, MONTH_S, 0, MONTH_S, 35_000.0), UsedGpus("bob", 1.0, 0.0, 0, MONTH_S - 1, 9e9)]
    state = ClusterState.restore([], [], Beliefs(), used=used)
    core = Core(create("fifo-skip"), state, CoreConfig(runs_at_once=True, limits=BUDGET))
    core.step([NodeRegistered(make_node("v", 4))], MONTH_S + 5)
    assert core.limits is not None
    assert core.limits.budgets(MONTH_S + 5) == [("group lab", 36_000, 35_000)]
    core.limit(Quotas(BUDGET.default, groups={"lab": GroupQuota(Limits(gpu_hours_per_month=1), frozenset({"ann"}))}))
    core.step([Submitted(JobId(1), JobSpec(name="j", user="ann", family="f"))], MONTH_S + 6)
    assert core.state.jobs[JobId(1)].is_held(HoldKind.LIMIT)
    core.limit(Quotas())
    core.step([], MONTH_S + 7)
    assert not core.state.jobs[JobId(1)].holds


@pytest.mark.parametrize("now_s", [0.0, 951_782_400.0, 951_868_800.0, MONTH_S - 0.5, MONTH_S, MONTH_S + 58 * DAY_S])
def test_months_are_those_of_the_calendar(now_s: float) -> None:
    first = datetime.fromtimestamp(now_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = (first + timedelta(days=32)).replace(day=1)
    assert month_of(now_s) == (first.timestamp(), following.timestamp())


QOS = Quotas(Limits(), qos={"vip": QosQuota(Limits(gpus=4), Limits(running=1)), "low": QosQuota(Limits(), Limits())})


def test_limits_of_a_qos_bound_all_its_jobs_and_those_of_each_user() -> None:
    site = Site(QOS)
    vip = {"labels": {"qos": "vip"}}
    first, second = site.submit("ann", gpus=2, **vip), site.submit("ann", gpus=1, **vip)
    assert site.why(second).startswith("QOSMaxJobsPerUserLimit: ann in qos vip's limit of 1 running job is reached")
    others = [site.submit("bob", gpus=2, **vip), site.submit("carl", gpus=1, **vip), site.submit("ann", gpus=1)]
    others.append(site.submit("ann", gpus=1, labels={"qos": "low"}))
    running = [site.job(job).placement is not None for job in (first, second, *others)]
    assert running == [True, False, True, False, True, True]
    assert site.why(others[1]).startswith("QOSGrpGRES: qos vip's limit of 4 GPUs is reached")
    site.end(first)
    assert [site.job(job).placement is not None for job in (second, others[1])] == [True, True]

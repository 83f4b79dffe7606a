"""What groups are guaranteed, and what is asked of it that cannot be: where it lies, too much of it, lost, changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeLost, NodeRegistered, Outcome, Progressed, Submitted, Tick
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.job_spec import CommPattern, JobKind
from colane.model.limits import GroupQuota, Limits, Quotas
from colane.model.placement import Placement
from colane.model.progress import Progress
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.perf.topology import comm_of, distinct_sets, excess, shape_of_node
from colane.scheduling.registry import create
from tests.core.audit import audit
from tests.core.worlds import make_node
from tests.examples import examples

POLICIES = ("colane", "srtf", "fifo", "fair")


def on_sockets(node: Node, *sockets: int) -> Node:
    return replace(node, gpus=tuple(replace(gpu, socket=at) for gpu, at in zip(node.gpus, sockets, strict=True)))


TWO_SOCKETS = on_sockets(make_node("n0", 4), 0, 0, 1, 1)


def quotas(groups: Mapping[str, int]) -> Quotas:
    """Each group of one user of its name."""
    return Quotas(groups={name: GroupQuota(Limits(), frozenset({name}), gpus) for name, gpus in groups.items()})


def spec(user: str, gpus: int = 1, **needs: object) -> JobSpec:
    return JobSpec(name=user, family=user, user=user, gpus=gpus, **{"preemptible": True, **needs})  # type: ignore[arg-type]


class Service:
    """A core that may be restarted with other guarantees."""

    def __init__(self, policy: str, nodes: list[Node], **groups: int) -> None:
        self.now_s, self.policy, self._jobs = 0.0, policy, 0
        self.ends: list[int] = []
        self.state = ClusterState(Beliefs())
        self.restart(**groups)
        self.at(*[NodeRegistered(node) for node in nodes])

    def restart(self, **groups: int) -> None:
        config = CoreConfig(limits=quotas(groups), protection_factor=0.0)
        self.core = Core(create(self.policy), self.state, config)

    def at(self, *events: Event) -> Outcome:
        self.now_s += 1.0
        outcome = self.core.step(events, self.now_s)
        assert outcome.rejected is None
        audit(self.state)
        return outcome

    def job(self, number: int) -> Job:
        return self.state.jobs[JobId(number)]

    def submit(self, *specs: JobSpec) -> list[int]:
        numbers = list(range(self._jobs + 1, self._jobs + len(specs) + 1))
        self._jobs += len(specs)
        gone = [self.job(number) for number in self.ends]
        ended = [Ended(job.id, job.attempt, "exited", Exit(0, None), 0.0, self.now_s, None, "n0") for job in gone]
        self.ends = []
        self.at(*ended, *[Submitted(JobId(number), one) for number, one in zip(numbers, specs, strict=True)])
        self.run()
        return numbers

    def run(self) -> None:
        """Whatever was assigned steps."""
        for job in list(self.state.jobs.values()):
            if job.state is JobState.ASSIGNED and isinstance(job.placement, Placement):
                for node in job.placement.nodes:
                    self.at(Launched(job.id, job.attempt, int(job.id), self.now_s, node))
                seen = Progress(at_s=self.now_s + 1, steps=2, first_step_s=self.now_s, last_step_s=self.now_s + 1)
                self.at(Progressed(job.id, job.attempt, seen))

    def end(self, number: int) -> None:
        """It has ended by itself, or as it was stopped."""
        job = self.job(number)
        outcome, exit = ("signalled", Exit(None, 15)) if job.state is JobState.STOPPING else ("exited", Exit(0, None))
        for node in job.placement.nodes if job.placement is not None else ("",):
            self.at(Ended(job.id, job.attempt, outcome, exit, job.start_s or 0.0, self.now_s, None, node))
        self.run()

    def leave(self) -> None:
        """Whatever is told to leave does, until nothing is."""
        for _ in range(40):
            if not self.leaving():
                return
            self.end(min(self.leaving()))
        raise AssertionError("jobs leave without end")

    def leaving(self) -> set[int]:
        return {int(job.id) for job in self.state.jobs.values() if job.state is JobState.STOPPING}

    def said(self, number: int) -> str:
        return sentence_of(self.core.why(JobId(number), self.now_s))


# -- where it lies


def filled(policy: str, node: Node, *free: int, **groups: int) -> Service:
    """One node that guests hold, but for some GPUs that come free with the next job."""
    service = Service(policy, [node], **groups)
    guests = service.submit(*[spec("guest", share=False)] * len(node.gpus))
    held = {service.job(number).gpus_held[0].number: number for number in guests}
    service.ends = [held[gpu] for gpu in free]
    return service


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("comm_weight", "gpus"), [(4, {0, 1}), (None, {0, 1}), (0, {0, 2})])
def test_a_job_that_talks_gets_the_best_connected_gpus_though_others_are_free(
    policy: str, comm_weight: int | None, gpus: set[int]
) -> None:
    """GPUs 0 and 2 are free, of two sockets; a borrower leaves GPU 1 only for a job to which that matters."""
    service = filled(policy, TWO_SOCKETS, 0, 2, lab=2)
    number = service.submit(spec("lab", 2, comm_weight=comm_weight))[0]
    service.leave()
    assert {gpu.number for gpu in service.job(number).gpus_held} == gpus


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("pattern", CommPattern)
@examples(15)
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_no_place_of_a_node_that_borrowers_would_leave_is_better_connected(
    policy: str, pattern: CommPattern, seed: int
) -> None:
    random = Random(seed)
    count = random.randint(2, 8)
    node = on_sockets(make_node("n0", count), *sorted(random.randrange(3) for _ in range(count)))
    service = filled(policy, node, *[gpu for gpu in range(count) if random.random() < 0.4], lab=count)
    own = spec("lab", random.randint(2, count), comm_pattern=pattern)
    number = service.submit(own)[0]
    service.leave()
    shape, held = shape_of_node(node), service.job(number).gpus_held
    best = min(excess(shape, gpus, comm_of(own)) for gpus in distinct_sets(shape, (1 << count) - 1, own.gpus))
    assert excess(shape, tuple(sorted(gpu.number for gpu in held)), comm_of(own)) == best


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_may_lie_on_several_nodes_gets_its_gpus_back_where_one_has_them(policy: str) -> None:
    service = filled(policy, TWO_SOCKETS, lab=4)
    number = service.submit(spec("lab", 4, multi_node=True))[0]
    service.leave()
    assert len(service.job(number).gpus_held) == 4


# -- over several nodes


def spread(service: Service, number: int) -> list[int]:
    """How many of its GPUs a job has on each of its nodes, most first."""
    held = [gpu.node for gpu in service.job(number).gpus_held]
    return sorted([held.count(node) for node in set(held)], reverse=True)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("needs", "parts"),
    [
        ({"gpus": 6, "multi_node": True}, [4, 2]),
        ({"gpus": 8, "multi_node": True}, [4, 4]),
        ({"gpus": 4, "multi_node": True}, [4]),
        ({"gpus": 4, "multi_node": True, "gpus_per_node": 2}, [2, 2]),
        ({"gpus": 3, "multi_node": True, "anti_collocation": True}, [1, 1, 1]),
    ],
    ids=str,
)
def test_a_gang_over_nodes_gets_its_share_back_at_once(policy: str, needs: dict[str, int], parts: list[int]) -> None:
    """On full nodes: as few of them as hold it, or a group of ranks on each, and no more jobs leave than have to."""
    service = Service(policy, [make_node(f"n{number}", 4) for number in range(3)], lab=8)
    guests = service.submit(*[spec("guest", share=False)] * 12)
    number = service.submit(spec("lab", **needs))[0]
    assert len(service.leaving()) == needs["gpus"], "told in the turn in which it came"
    service.leave()
    assert spread(service, number) == parts
    stay = [guest for guest in guests if JobId(guest) in service.state.jobs and service.job(guest).gpus_held]
    assert len(stay) == 12 - needs["gpus"]


@pytest.mark.parametrize("policy", POLICIES)
def test_gangs_over_nodes_beyond_the_share_displace_no_other(policy: str) -> None:
    service = Service(policy, [make_node(f"n{number}", 4) for number in range(3)], lab=8)
    service.submit(*[spec("guest", share=False)] * 12)
    first, second = service.submit(*[spec("lab", 6, multi_node=True)] * 2)
    service.leave()
    assert spread(service, first) == [4, 2]
    for _ in range(3):
        service.at(Tick())
    assert not service.job(second).gpus_held
    assert sum(len(job.gpus_held) for job in service.state.jobs.values() if job.spec.user == "guest") == 6


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_over_nodes_takes_free_gpus_before_it_has_others_leave(policy: str) -> None:
    service = Service(policy, [make_node(f"n{number}", 4) for number in range(3)], lab=6)
    guests = service.submit(*[spec("guest", share=False)] * 12)
    service.ends = guests[:3]
    number = service.submit(spec("lab", 6, multi_node=True))[0]
    assert len(service.leaving()) == 3
    service.leave()
    assert spread(service, number) == [4, 2]


@pytest.mark.parametrize("policy", POLICIES)
@examples(15)
@given(seed=st.integers(min_value=0, max_value=2**32 - 1))
def test_whatever_stands_in_its_way_a_gang_within_the_share_starts_if_it_could_alone(policy: str, seed: int) -> None:
    """Borrowers of any sizes, also gangs over nodes: once they have left, it runs, and none leaves for nothing."""
    random = Random(seed)
    nodes = [make_node(f"n{number}", random.randint(1, 4)) for number in range(3)]
    total = sum(len(node.gpus) for node in nodes)
    service = Service(policy, nodes, lab=total)
    guests = [spec("guest", random.randint(1, 3), multi_node=True, share=False) for _ in range(total)]
    service.submit(*guests)
    number = service.submit(spec("lab", random.randint(1, total), multi_node=True))[0]
    service.leave()
    assert len(service.job(number).gpus_held) == service.job(number).spec.gpus
    for _ in range(3):
        service.at(Tick())
        assert service.leaving() == set()


# -- what cannot be


@pytest.mark.parametrize("policy", POLICIES)
def test_more_than_the_cluster_has_is_given_as_far_as_it_goes_and_said_to_those_that_wait(policy: str) -> None:
    service = filled(policy, TWO_SOCKETS, lab=10)
    own = service.submit(*[spec("lab", preemptible=False, share=False)] * 6)
    service.leave()
    assert [service.job(number).has_started for number in own] == [True] * 4 + [False] * 2
    fixed = service.submit(spec("other", preemptible=False))[0]
    assert "10 of 4 GPUs are guaranteed to groups" in service.said(fixed)
    assert "submit it with --checkpoint or --preemptible" in service.said(fixed)


@pytest.mark.parametrize("policy", POLICIES)
def test_two_groups_with_more_than_there_is_do_not_stop_each_other(policy: str) -> None:
    service = Service(policy, [TWO_SOCKETS], one=3, two=3)
    service.submit(*[spec("one", share=False)] * 3, *[spec("two", share=False)] * 3)
    service.leave()
    running = [job.spec.user for job in service.state.jobs.values() if job.gpus_held]
    assert len(running) == 4
    for _ in range(10):
        service.at(Tick())
        assert service.leaving() == set()


@pytest.mark.parametrize("policy", POLICIES)
def test_with_a_lost_node_the_group_gets_its_gpus_on_what_is_left(policy: str) -> None:
    service = Service(policy, [make_node("n0", 2), make_node("n1", 2)], lab=2)
    own = service.submit(*[spec("lab", share=False)] * 2)
    service.submit(*[spec("guest", share=False)] * 4)
    lost = {service.job(number).gpus_held[0].node for number in own}
    for node in lost:
        if len(lost) == 1:
            service.at(NodeLost(node))
    service.run()
    service.leave()
    assert all(service.job(number).gpus_held for number in own)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_guarantee_that_comes_later_is_met_as_jobs_end_that_cannot_be_stopped(policy: str) -> None:
    service = Service(policy, [TWO_SOCKETS])
    fixed = service.submit(*[spec("guest", preemptible=False, share=False)] * 4)
    waiting = service.submit(*[spec("guest", preemptible=False, share=False)] * 3)
    service.restart(lab=2)
    own = service.submit(*[spec("lab", share=False)] * 2)
    assert service.leaving() == set()
    for number in fixed[:2]:
        service.end(number)
    assert all(service.job(number).gpus_held for number in own)
    for number in fixed[2:]:
        service.end(number)
    assert sum(bool(service.job(number).gpus_held) for number in waiting) == 2
    service.restart(lab=3)
    service.submit(spec("lab", share=False))
    assert service.leaving() == set(), "more has been promised than jobs that cannot be stopped leave"
    service.restart()
    assert sum(bool(service.job(number).gpus_held) for number in (*own, *waiting)) == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_what_waits_is_told_why_it_may_not_borrow_and_a_group_that_its_gpus_are_held(policy: str) -> None:
    service = Service(policy, [make_node("n0", 2)])
    service.submit(*[spec("guest", preemptible=False, share=False)] * 2)
    service.restart(lab=2)
    [own] = service.submit(spec("lab", preemptible=False, share=False))
    assert "guaranteed to groups" not in service.said(own)
    told = {
        "submit it with --checkpoint or --preemptible": spec("guest", preemptible=False),
        "a server is stopped for no other job": spec("guest", kind=JobKind.INFERENCE),
    }
    for number, words in zip(service.submit(*told.values()), told, strict=True):
        assert words in service.said(number)

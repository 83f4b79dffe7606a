"""Arrays: every index once in any history, never more at once than asked for, and nothing lost by a restart."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import ClusterState, Core
from colane.core.cluster.arrays import may_start
from colane.core.config import CoreConfig
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    Launched,
    NodeLost,
    NodeRegistered,
    Outcome,
    RequeueRequested,
    ResumeRequested,
    Submitted,
    SuspendRequested,
    Tick,
)
from colane.core.reducers.arrays import MADE_MAX, WAITING_MIN
from colane.model import arrays
from colane.model.arrays import array_of, parse_array
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.limits import Limits, Quotas
from colane.model.phases import Array, Dependency, DependsOn, Hold, HoldKind
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.examples import examples

ARRAY = JobId(12)
PLACED = frozenset({JobState.ASSIGNED, JobState.LAUNCHING, JobState.RUNNING, JobState.RUNNING_PROTECTED})


def submitted(text: str, job: int = ARRAY, *holds: Hold, gpus: int = 1, pool: str = "default") -> Submitted:
    spec = JobSpec(name=f"a{job}", family="f", gpus=gpus, pool=pool)
    return Submitted(JobId(job), spec, holds, array_of(parse_array(text)))


class Site:
    """A core and what a store would have of its jobs."""

    def __init__(self, gpus: int = 4, policy: str = "fifo", config: CoreConfig | None = None) -> None:
        self.policy, self.now_s, self.gpus, self.config = policy, 0.0, gpus, config
        self.live: dict[JobId, Job] = {}
        self.ended: dict[JobId, Job] = {}
        self.starts: dict[JobId, int] = {}
        self.core = Core(create(policy), ClusterState(Beliefs()), config)
        self.step(NodeRegistered(make_node("n", gpus)))

    def step(self, *events: Event, whole: bool = False) -> Outcome:
        self.now_s += 1.0
        outcome = self.core.step(events, self.now_s, whole=whole)
        for job in outcome.jobs:
            assert job.id not in self.ended, f"{job.said} goes on after its end"
            if job.has_ended:
                self.live.pop(job.id, None)
                self.ended[job.id] = job
            else:
                self.live[job.id] = job
        assert outcome.rejected is None
        self.judge()
        return outcome

    def judge(self) -> None:
        assert self.live == self.core.state.jobs
        for job in self.live.values():
            if job.array is None:
                continue
            mine = self.elements(job.id)
            over = [one for one in self.ended.values() if one.element is not None and one.element.array == job.id]
            placed = [one for one in mine if one.placement is not None]
            ready = [one for one in mine if may_start(one)]
            assert job.array.throttle is None or len(placed) + len(ready) <= job.array.throttle
            assert arrays.ended(job.array) == len(over) + arrays.number_of(job.array.cut)
            assert arrays.number_of(job.array.pending) + len(mine) + arrays.ended(job.array) == job.array.size
            assert len(ready) <= max(WAITING_MIN, len(placed)) + len(mine)

    def elements(self, array: int = ARRAY) -> list[Job]:
        return [job for job in self.live.values() if job.element is not None and job.element.array == array]

    def running(self, array: int = ARRAY) -> list[Job]:
        return [job for job in self.elements(array) if job.placement is not None]

    def restart(self) -> None:
        nodes = [(known.node, known.generation) for known in self.core.state.nodes.values()]
        state = ClusterState.restore(nodes, self.live.values(), Beliefs(), version=self.core.state.version)
        self.core = Core(create(self.policy), state, self.config)

    def end(self, job: Job, code: int = 0) -> Outcome:
        return self.step(
            Launched(job.id, job.attempt, 1, self.now_s, "n"),
            Ended(job.id, job.attempt, "exited", Exit(code, None), self.now_s, self.now_s + 0.5, None, "n"),
        )

    def run_out(self) -> None:
        """Let all that may run end well."""
        while running := [job for job in self.live.values() if job.placement is not None]:
            for job in running:
                if job.id in self.live:
                    self.end(self.live[job.id])


def test_an_array_is_one_record_until_its_elements_are_of_use() -> None:
    site = Site(gpus=0)
    outcome = site.step(submitted("0-999999"))
    assert len(outcome.jobs) == 1 + WAITING_MIN
    assert [job.said for job in outcome.jobs[:3]] == ["12", "12[0]", "12[1]"]
    assert site.live[ARRAY].array == Array("0-999999", 1_000_000, None, ((WAITING_MIN, 999_999),))
    assert sentence_of(site.core.why(ARRAY, 1.0)) == ("1000000 elements: 0 running, 1000000 waiting, 0 ended")


def test_all_gpus_are_used_in_the_step_in_which_it_is_submitted() -> None:
    site = Site(gpus=4 * WAITING_MIN)
    site.step(submitted("0-999"))
    assert len(site.running()) == 4 * WAITING_MIN


def test_each_index_runs_once_and_the_array_ends_with_the_last() -> None:
    site = Site(gpus=3)
    site.step(submitted("0-90:10,200%2"))
    seen = []
    while site.live:
        running = site.running()
        assert len(running) <= 2
        seen.append(running[0].said)
        site.end(running[0])
    assert seen == [f"12[{index}]" for index in (*range(0, 91, 10), 200)]
    array = site.ended[ARRAY]
    assert (array.state, array.end_s) == (JobState.SUCCEEDED, site.now_s)
    assert array.reason is not None
    assert sentence_of(array.reason) == "11 elements: 11 succeeded, 0 failed, 0 cancelled"


def test_one_that_fails_fails_its_array_and_one_that_is_cancelled_cancels_it() -> None:
    site = Site(gpus=1)
    site.step(submitted("0-2"), submitted("0-1", 20))
    site.end(site.running()[0], 1)
    site.step(CancelRequested(JobId(22), "ann"))
    site.run_out()
    assert (site.ended[ARRAY].state, site.ended[JobId(20)].state) == (JobState.FAILED, JobState.CANCELLED)
    failed, cancelled = site.ended[ARRAY].array, site.ended[JobId(20)].array
    assert failed is not None
    assert cancelled is not None
    assert (failed.succeeded, failed.failed, cancelled.succeeded, cancelled.cancelled) == (2, 1, 1, 1)


def test_elements_stand_in_line_where_their_array_was_submitted() -> None:
    site = Site(gpus=1)
    count = WAITING_MIN + 20
    site.step(submitted(f"0-{count - 1}"), Submitted(JobId(500), JobSpec(name="later", family="f")))
    for _ in range(count):
        assert JobId(500) in site.live
        assert site.live[JobId(500)].placement is None
        site.end(site.running()[0])
    assert site.live[JobId(500)].placement is not None


def test_a_held_array_has_no_jobs_until_it_is_released() -> None:
    site = Site()
    site.step(submitted("0-9", ARRAY, Hold(HoldKind.USER, "ann")))
    assert list(site.live) == [ARRAY]
    assert site.core.why(ARRAY, 1.0).why is Why.HELD
    site.step(ResumeRequested(ARRAY, "ann"))
    assert len(site.running()) == 4
    assert [line.reason.why for line in site.running()[0].story[:2]] == [Why.SUBMITTED, Why.RESUMED]


def test_an_array_begins_at_its_time() -> None:
    site = Site()
    site.step(submitted("0-9", ARRAY, Hold(HoldKind.BEGIN, "then", 10.0)))
    site.restart()
    site.step(Tick())
    assert list(site.live) == [ARRAY]
    site.now_s = 10.0
    site.step()
    assert len(site.running()) == 4


def test_a_cancelled_array_is_gone_with_its_waiting_elements_and_ends_with_the_running_ones() -> None:
    site = Site(gpus=2)
    site.step(submitted("0-999999"))
    site.step(CancelRequested(ARRAY, "ann"))
    assert len(site.elements()) == 2
    assert {job.state for job in site.elements()} == {JobState.STOPPING}
    for job in site.running():
        site.end(job, 1)
    array = site.ended[ARRAY]
    assert array.state is JobState.CANCELLED
    assert array.array is not None
    assert array.array.cancelled == 1_000_000
    assert array.array.cut == ((WAITING_MIN + 2, 999_999),)


@pytest.mark.parametrize("why", [Why.CANCELLED, Why.ARRAY, Why.SUBMITTED, Why.AFTER_NEVER])
@pytest.mark.parametrize("whole", [True, False])
def test_how_an_array_ends_is_in_its_fields_and_not_in_its_reason(why: Why, whole: bool) -> None:
    """One element has failed: the array is cancelled where it was cancelled as a whole, whatever its reason says."""
    site = Site(gpus=2)
    site.step(submitted("0-9"))
    site.end(site.running()[0], 1)
    site.step(CancelRequested(ARRAY, "ann", () if whole else ((4, 9),)))
    told = site.live[ARRAY].copied()
    told.reason = Reason(why)
    site.live[ARRAY] = told
    site.restart()
    site.run_out()
    assert site.ended[ARRAY].state is (JobState.CANCELLED if whole else JobState.FAILED)


def test_elements_that_are_no_jobs_yet_are_cancelled_without_becoming_any() -> None:
    site = Site(gpus=1)
    site.step(submitted("0-99%1"))
    site.step(CancelRequested(ARRAY, "ann", ((50, 59), (98, 98))), CancelRequested(JobId(12 + 1 + 97), "ann"))
    array = site.live[ARRAY].array
    assert array is not None
    assert (array.cut, array.cancelled, len(site.ended)) == (((50, 59), (97, 98)), 12, 0)
    site.step(CancelRequested(JobId(12 + 1 + 97), "ann"))
    site.run_out()
    assert len(site.ended) == 1 + 88
    assert site.ended[ARRAY].state is JobState.CANCELLED


def test_more_elements_than_fit_a_step_become_jobs_in_the_next() -> None:
    site = Site(gpus=0)
    for node in range(MADE_MAX // 16 + 10):
        site.step(NodeRegistered(make_node(f"n{node}", 16)))
    site.step(submitted("0-9999"), whole=True)
    assert len(site.elements()) == MADE_MAX
    site.step(Tick())
    assert len(site.running()) > MADE_MAX


@pytest.mark.parametrize("throttle", [1, 2, 3])
def test_a_released_element_waits_while_enough_others_run(throttle: int) -> None:
    site = Site(gpus=4)
    site.step(submitted(f"0-9%{throttle}"))
    held = JobId(12 + 1 + 8)
    site.step(SuspendRequested(held, "ann"))
    site.step(ResumeRequested(held, "ann"))
    assert [hold.kind for hold in site.live[held].holds] == [HoldKind.ARRAY]
    assert sentence_of(site.core.why(held, site.now_s)) == (
        f"JobArrayTaskLimit: no more than {throttle} of the elements of array 12 run at once; it starts when others of "
        "them have ended"
    )
    site.end(site.running()[0])
    assert held in {job.id for job in site.running()}
    site.run_out()
    assert site.ended[ARRAY].state is JobState.SUCCEEDED


def after(text: str, job: int) -> Hold:
    return Hold(HoldKind.AFTER, text, None, Dependency(DependsOn(text), job))


@pytest.mark.parametrize("word", ["ok", "any", "fail", "start"])
def test_others_wait_for_an_array_as_a_whole(word: str) -> None:
    site = Site(gpus=4)
    site.step(submitted("0-2%1"), Submitted(JobId(99), JobSpec(name="b", family="f"), (after(word, ARRAY),)))
    site.end(site.running()[0])
    assert site.live[JobId(99)].holds
    site.end(site.running()[0])
    assert site.live[JobId(99)].holds
    last = site.running()[0]
    site.step(Launched(last.id, 1, 1, site.now_s, "n"))
    assert bool(site.live[JobId(99)].holds) is (word != "start")
    site.end(last)
    assert (JobId(99) in site.ended) is (word == "fail")
    assert word == "fail" or site.live[JobId(99)].placement is not None


@pytest.mark.parametrize(("word", "becomes"), [("ok", "cancelled"), ("any", "placed"), ("fail", "placed")])
def test_others_wait_for_one_element_also_before_it_is_a_job(word: str, becomes: str) -> None:
    site, third = Site(gpus=2), JobId(12 + 1 + 3)
    site.step(submitted("0-9%1"), Submitted(JobId(99), JobSpec(name="b", family="f"), (after(word, third),)))
    site.restart()
    site.step(CancelRequested(ARRAY, "ann", ((2, 5),)))
    assert third in site.ended
    if becomes == "cancelled":
        assert site.ended[JobId(99)].state is JobState.CANCELLED
    else:
        assert site.live[JobId(99)].placement is not None


def test_an_array_waits_for_others_and_is_cancelled_when_they_fail() -> None:
    site = Site(gpus=2)
    first = Submitted(JobId(1), JobSpec(name="a", family="f"))
    site.step(first, submitted("0-9", ARRAY, after("ok", 1)), submitted("0-9", 50, after("any", 1)))
    site.step(SuspendRequested(JobId(12 + 1 + 4), "ann"))
    assert [job.said for job in site.elements()] == ["12[4]"]
    site.end(site.live[JobId(1)], 1)
    assert site.ended[ARRAY].state is JobState.CANCELLED
    assert site.ended[JobId(17)].state is JobState.CANCELLED
    assert len(site.running(50)) == 2


MOVES = (
    "end",
    "end",
    "end",
    "fail",
    "cancel",
    "cancel some",
    "suspend",
    "resume",
    "requeue",
    "lose",
    "restart",
    "tick",
)


@examples(120)
@given(st.integers(0, 2**32), st.sampled_from(["fifo", "colocate", "fair"]), st.sampled_from([None, 1, 3]))
def test_every_index_ends_once_in_any_history(seed: int, policy: str, limit: int | None) -> None:
    random = Random(seed)
    config = None if limit is None else CoreConfig(limits=Quotas(Limits(running=limit)))
    site = Site(random.randint(1, 6), policy, config)
    texts = ("0-40", "0-99%3", "5-8%1", "0-200:7%5", "3", "1,4-60%40")
    ids, next_id = list[JobId](), 1
    for _ in range(60):
        if random.random() < 0.1 and len(ids) < 4:
            event = submitted(random.choice(texts), next_id)
            assert event.array is not None
            ids.append(JobId(next_id))
            next_id += 1 + event.array.size
            site.step(event)
        if ids:
            _one_move(site, random, random.choice(ids))
    for array in [array for array in ids if array in site.live]:
        site.step(ResumeRequested(array, "ann"), *(ResumeRequested(job.id, "ann") for job in site.elements(array)))
    site.step(NodeRegistered(make_node("n", site.gpus)))
    for _ in range(2_000):
        if not site.live:
            break
        site.step(Tick())
        site.run_out()
    assert not site.live
    for array in ids:
        _judge_ended(site, array)


def _one_move(site: Site, random: Random, array: JobId) -> None:
    move, running, mine = random.choice(MOVES), site.running(array), site.elements(array)
    known = site.live.get(array) or site.ended[array]
    assert known.array is not None
    any_id = JobId(array + 1 + random.randrange(known.array.size))
    if move in {"end", "fail"} and running:
        site.end(random.choice(running), int(move == "fail"))
    elif move == "cancel" and random.random() < 0.1:
        site.step(CancelRequested(random.choice([array, any_id]), "ann"))
    elif move == "cancel some" and array in site.live:
        first = random.randrange(known.array.size)
        site.step(CancelRequested(array, "ann", ((first, min(first + 3, known.array.size - 1)),)))
    elif move == "suspend":
        site.step(SuspendRequested(random.choice([array, any_id]), "ann"))
    elif move == "resume":
        site.step(ResumeRequested(random.choice([array, any_id, *(job.id for job in mine)]), "ann"))
    elif move == "requeue" and running:
        site.step(RequeueRequested(random.choice(running).id, "ann"))
    elif move == "lose":
        site.step(NodeLost("n") if "n" in site.core.state.nodes else NodeRegistered(make_node("n", site.gpus)))
    elif move == "restart":
        site.restart()
    elif move == "tick":
        site.step(Tick())


def _judge_ended(site: Site, array_id: JobId) -> None:
    array = site.ended[array_id].array
    assert array is not None
    ended = {job.element.index: job for job in site.ended.values() if job.element and job.element.array == array_id}
    cut = {arrays.known(array).index_of(ordinal) for ordinal in arrays.each_of(array.cut)}
    assert not ended.keys() & cut
    assert ended.keys() | cut == {arrays.known(array).index_of(ordinal) for ordinal in range(array.size)}
    states = [job.state for job in ended.values()]
    assert array.succeeded == states.count(JobState.SUCCEEDED)
    assert array.cancelled == states.count(JobState.CANCELLED) + len(cut)
    assert array.failed == len(states) + len(cut) - array.succeeded - array.cancelled

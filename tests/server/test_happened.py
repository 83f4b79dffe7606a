"""What events mean to those who follow them is told by records of jobs: codes of reasons word it and decide nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given

from colane.cli.jobs import ps
from colane.core.events import Event, Outcome, ResumeRequested, Submitted, SuspendRequested
from colane.core.lifecycle import move
from colane.core.reducers.entering import SUBMITTED
from colane.facts.job import job_facts
from colane.lab.commands.export import held_s
from colane.model.job import Job, JobId, JobSpec, JobState
from colane.model.phases import Hold, HoldKind, StateChange, kinds
from colane.model.reason import Reason, Why
from colane.scheduling.registry import create
from colane.server.notify.channels import Happening
from colane.server.store.documents import decode_job, encode_job
from colane.server.store.store import AuditLine
from colane.server.tending.teller import happening_of
from colane.server.views.jobs_and_nodes import job_view
from colane.server.writer.ledger import changes, explain
from colane.server.writer.meters import Meters
from tests.core.test_idling import IdleSite
from tests.core.test_laws import ANY_FACT, SEEDS, EventfulWorld
from tests.examples import examples
from tests.server.harness import SLEEP, World, finished, launched, node, report, world

POLICIES = ("colane", "srtf", "coda")


def permuted(seed: int) -> Callable[[Job], Job]:
    """Gives jobs in whose stories each code of a reason is another one."""
    codes = list(Why)
    Random(seed).shuffle(codes)
    other = dict(zip(Why, codes, strict=True))

    def retold(reason: Reason) -> Reason:
        return Reason(other[reason.why], ANY_FACT, reason.jobs)

    def retell(job: Job) -> Job:
        story = tuple(replace(line, reason=retold(line.reason)) for line in job.story)
        return replace(job, reason=None if job.reason is None else retold(job.reason), story=story)

    return retell


class Follower:
    """Is told of outcomes as the server writes them, and keeps what it makes of them."""

    def __init__(self, retell: Callable[[Job], Job] = lambda job: job) -> None:
        self.retell, self.known, self.meters = retell, dict[JobId, Job](), Meters()
        self.texts: list[str] = []

    def counted(self) -> tuple[Any, ...]:
        return self.meters.ended, self.meters.submitted, self.meters.started

    def follow(self, outcome: Outcome) -> Iterator[tuple[Any, ...]]:
        jobs = [self.retell(job) for job in outcome.jobs]
        self.meters.count(jobs, self.known)
        for job in jobs:
            for line, happened in changes(self.known.get(job.id), job):
                element = None if job.element is None else str(job.element)
                body = {"job": job.id, "state": line.state.value, "element": element, "happened": happened}
                told = AuditLine(1, line.at_s, "job", {**body, **explain(line.reason)})
                self.texts.append(told.body["sentence"])
                yield job.id, line.state, happened, happening_of(told)
            self.known[job.id] = job


@pytest.mark.parametrize("name", POLICIES)
@examples(6)
@given(seed=SEEDS)
def test_codes_of_reasons_send_no_notice_and_count_nothing(name: str, seed: int) -> None:
    told, retold, lived = Follower(), Follower(permuted(seed)), EventfulWorld(create(name), seed)
    for number in range(60):
        lived.go_on(number)
    for outcome in lived.outcomes:
        assert list(told.follow(outcome)) == list(retold.follow(outcome))
    assert told.counted() == retold.counted()
    assert told.texts != retold.texts


def test_the_law_meets_what_may_happen_to_a_job() -> None:
    met = Counter[Any]()
    for seed in range(4):
        follower, lived = Follower(), EventfulWorld(create("srtf"), seed)
        for number in range(60):
            lived.go_on(number)
        met.update(line[2] for outcome in lived.outcomes for line in follower.follow(outcome))
    assert met.keys() == {"started", "taken-off", None}


class HeldWorld(EventfulWorld):
    """One whose owners hold waiting jobs and let them go, and give some a time to begin."""

    def submit(self) -> Event:
        event = super().submit()
        assert isinstance(event, Submitted)
        if self.random.random() < 0.3:
            event = replace(event, holds=(Hold(HoldKind.BEGIN, "later", self.now_s + 20.0),))
        return event

    def go_on(self, number: int) -> Outcome:
        live = list(self.core.state.jobs)
        if number % 3 == 0 and live:
            job = self.pick.choice(live)
            self.step(SuspendRequested(job, "ann") if number % 2 else ResumeRequested(job, "ann"))
        return super().go_on(number)


def untold(value: Any) -> Any:
    """What an answer says besides why: all but codes, sentences and what those are made of."""
    if isinstance(value, dict):
        return {name: untold(one) for name, one in value.items() if name not in {"why", "reason", "sentence", "facts"}}
    return [untold(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", POLICIES)
@examples(6)
@given(seed=SEEDS)
def test_codes_of_reasons_change_nothing_that_is_shown_listed_or_exported_but_texts(name: str, seed: int) -> None:
    retell, lived = permuted(seed), HeldWorld(create(name), seed)
    for number in range(60):
        lived.go_on(number)
    jobs = {job.id: job for outcome in lived.outcomes for job in outcome.jobs}
    for job in jobs.values():
        told, retold = (job_view(one, None, name, job_facts(one, None, None, 0.0)) for one in (job, retell(job)))
        assert untold(told) == untold(retold)
        if job.first_start_s is not None:
            assert [held_s(told, is_ordered=one) for one in (False, True)] == [
                held_s(retold, is_ordered=one) for one in (False, True)
            ]
        assert decode_job(encode_job(retell(job))) == retell(job)
        texts = [ps._row({**one, "why": "*"}, "", None) for one in (told, retold)]
        assert texts[0] == texts[1]


def test_a_story_says_which_holds_a_job_had_and_how_long() -> None:
    met, waited_s = Counter[HoldKind](), list[float]()
    for seed in range(6):
        lived = HeldWorld(create("srtf"), seed)
        for number in range(60):
            for job in lived.go_on(number).jobs:
                if job.state is JobState.QUEUED:
                    assert job.story[-1].held_by == kinds(job.holds)
                    met.update(job.story[-1].held_by)
                elif job.first_start_s is not None:
                    waited_s.append(
                        held_s(job_view(job, None, "srtf", job_facts(job, None, None, 0.0)), is_ordered=False)
                    )
    assert met.keys() == {HoldKind.USER, HoldKind.BEGIN}
    assert min(waited_s) == 0.0 < max(waited_s)


def test_a_story_of_a_version_that_told_holds_by_codes_alone_is_read() -> None:
    hold = Hold(HoldKind.USER, "ann")
    job = Job(JobId(1), JobSpec(name="a", family="a"), 1.0, story=(StateChange(1.0, JobState.QUEUED, SUBMITTED),))
    held = move(job.with_holds((hold,)), JobState.QUEUED, 3.0, Reason(Why.HELD, {"by": "ann"}))
    let_go = move(held.with_holds(()), JobState.QUEUED, 9.0, Reason(Why.RESUMED, {"by": "ann"}))
    body = encode_job(let_go)
    before = {**body, "story": [{name: one[name] for name in one if name != "held_by"} for one in body["story"]]}
    assert decode_job(before) == let_go


def test_a_job_that_uses_nothing_is_parked_idle_and_no_more_is_told_as_it_leaves() -> None:
    site = IdleSite()
    before = site.job()
    parked = site.idle().jobs[0]
    assert [happened for _, happened in changes(before, parked)] == ["parked-idle"]
    assert [happened for _, happened in changes(parked, site.leaves().jobs[0])] == [None]


async def meant(w: World, job: int) -> list[str]:
    """What the events of a job mean besides its states."""
    told = [
        line.body["happened"]
        for line in w.service.store.audit(0, 1_000)
        if line.kind == "job" and line.body["job"] == job
    ]
    return [one for one in told if one is not None]


CAUSES: dict[str, tuple[dict[str, Any], Any, int]] = {
    "requeued by a user": ({}, ("POST", "/job/1/requeue", {}), 0),
    "drained": ({"preemptible": True}, ("POST", "/node/n1/drain", {}), 0),
    "failed, tried again": ({"retries": 1}, None, 3),
}


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_job_that_is_queued_again_was_taken_off_unless_it_failed(cause: str) -> None:
    fields, asked, code = CAUSES[cause]
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit(**fields)
        await w.good("POST", "/node/n1/report", report(launched(1)))
        if asked is not None:
            await w.good(*asked)
        await w.good("POST", "/finished_job", finished(1, exit_code=code))
        assert await meant(w, 1) == ["started", *(["taken-off"] if asked else [])]


@pytest.mark.parametrize("fails", [True, False])
async def test_a_gang_one_of_whose_processes_fails_is_not_taken_off(fails: bool) -> None:
    async with world() as w:
        for name in ("n1", "n2"):
            await w.good("POST", "/node", node(name, agent_id=name))
        await w.submit(gpus=2, multi_node=True, retries=1)
        for name in ("n1", "n2"):
            await w.good("POST", f"/node/{name}/report", report(launched(1), agent_id=name))
        if not fails:
            await w.good("POST", "/job/1/requeue", {})
        for name in ("n1", "n2"):
            await w.good("POST", "/finished_job", finished(1, node=name, agent_id=name, exit_code=3))
        assert await meant(w, 1) == ["started", *([] if fails else ["taken-off"])]


async def test_an_array_tells_of_elements_that_are_cut() -> None:
    async with world() as w:
        await w.good("POST", "/job", {**SLEEP, "array": "0-99"})
        assert await meant(w, 1) == []
        await w.good("DELETE", "/job/1?elements=90-95")
        assert await meant(w, 1) == ["elements-cut"]


async def test_a_line_of_a_version_that_did_not_say_what_happened_is_read() -> None:
    line = {"job": 1, "state": "launching", "why": "launched", "element": None, "sentence": "process 7 started on n1"}
    assert happening_of(AuditLine(1, 0.0, "job", line)) is None
    assert happening_of(AuditLine(1, 0.0, "job", {**line, "state": "failed"})) is Happening.FAILURE

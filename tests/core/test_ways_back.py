"""Whatever brings a job back into the queue: it is counted, or nothing starts there before more than that changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.eligibility import hold_reason
from colane.core.events import (
    Ended,
    Event,
    GpusObserved,
    Launched,
    NodeLost,
    NodeRegistered,
    RequeueRequested,
    ResumeRequested,
    Submitted,
)
from colane.core.reducers import failing
from colane.core.reducers.suspicions import QUICK_S
from colane.model.arrays import array_of, parse_array
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState
from colane.model.phases import HoldKind
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node

SPEC: Final = JobSpec(name="train", family="f", user="ann", share=False, retries=2)
KINDS: Final = {
    "plain": SPEC,
    "without GPUs": replace(SPEC, gpus=0),
    "gang": replace(SPEC, gpus=3, multi_node=True, gpus_per_node=1),
    "elastic": replace(SPEC, gpus=2, sizes=(1, 2)),
    "element of an array": SPEC,
    "server": replace(SPEC, kind=JobKind.INFERENCE),
}
# `stopped` is left out: an agent that ends says it once in its life.
WAYS: Final = (
    "exited", "signalled", "out-of-memory", "not-started", failing.GPU_REFUSED, failing.MPS_FAULT,
    failing.MPS_FAULT_OF_OTHER, failing.MPS_FAULT_UNKNOWN, failing.LEASE_RUN_OUT, failing.SUPERVISOR_DIED,
    failing.NODE_FAULT, failing.SENT_BACK, failing.UNKNOWN_END, "node lost", "GPU ill", "requeued", "asks itself",
)  # fmt: skip
TRIES: Final = 60
ATTEMPTS_MAX: Final = {failing.NODE_FAULT: 9, "requeued": 4, "asks itself": 4}
"""Of three nodes each is tried at once and after 15 and 30 s where no GPU says that it can be used again.

One that is queued again as soon as it runs is so once at once, then after 15 and 30 s.
"""


class Site:
    """Three nodes of two GPUs and one job, which the same befalls whenever it is started."""

    def __init__(self, kind: str) -> None:
        self.now_s = 0.0
        self.core = Core(create("fifo"), ClusterState(Beliefs()), CoreConfig())
        self.nodes = {name: make_node(name, 2) for name in ("a", "b", "c")}
        self.step(*map(NodeRegistered, self.nodes.values()))
        whole = array_of(parse_array("0-0")) if kind == "element of an array" else None
        self.step(Submitted(JobId(1), KINDS[kind], (), whole))

    def step(self, *events: Event) -> None:
        self.now_s += 1.0
        self.core.step(list(events), self.now_s)

    def job(self) -> Job | None:
        return next((job for job in self.core.state.jobs.values() if job.array is None), None)

    def befalls(self, job: Job, way: str) -> None:
        """It starts, and then this; all that was told to stop ends."""
        assert job.placement is not None
        node = job.placement.nodes[0]
        if way not in {"not-started", failing.NODE_FAULT, failing.SENT_BACK}:
            self.step(*[Launched(job.id, job.attempt, 7, self.now_s, node=name) for name in job.placement.nodes])
        if way == "node lost":
            self.step(NodeLost(node))
            self.step(NodeRegistered(self.nodes[node]))
        elif way in {"requeued", "asks itself"}:
            self.step(RequeueRequested(job.id, "ann", is_own=way == "asks itself"))
        elif way == "GPU ill":
            gpus = self.nodes[node].gpus
            self.step(GpusObserved(node, tuple(replace(gpu, healthy=False) for gpu in gpus)))
        else:
            self.end(job, node, way)
        for _ in range(3):
            left = self.job()
            if left is None or left.state is not JobState.STOPPING or left.placement is None:
                break
            for name in left.placement.nodes:
                if name not in left.run.ended_on:
                    self.end(left, name, "signalled", 9)
        if way == "GPU ill":
            self.step(GpusObserved(node, self.nodes[node].gpus))

    def end(self, job: Job, node: str, outcome: str, signal: int | None = None) -> None:
        exit = Exit(None, signal or 11) if outcome == "signalled" else Exit(1, None)
        self.step(Ended(job.id, job.attempt, outcome, exit, self.now_s - 1.0, self.now_s, node=node))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_no_way_back_is_taken_without_end(way: str, kind: str) -> None:
    """It is tried a minute long, each second where it may start."""
    site = Site(kind)
    for _ in range(TRIES):
        job = site.job()
        if job is None:
            break
        if job.placement is None:
            site.step()
        elif way == "GPU ill" and not job.spec.gpus:
            return
        else:
            site.befalls(job, way)
        attempts = job.attempt
    assert attempts <= ATTEMPTS_MAX.get(way, 1 + max(SPEC.retries, CoreConfig().node_losses_max))
    left = site.job()
    assert left is None or left.placement is None, "it waits for something else to change"
    if way == failing.SENT_BACK:
        assert left is not None
        assert [hold.kind for hold in left.holds] == [HoldKind.USER], "its owner looks first"


@pytest.mark.parametrize("way", ["requeued", "asks itself"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_works_between_is_held_back_by_nothing(way: str, kind: str) -> None:
    """As programs have it that save at their time limit and ask to wait anew; work ends what was counted before."""
    site = Site(kind)
    for attempt in range(1, 21):
        job = site.job()
        assert job is not None
        assert job.placement is not None
        assert (job.attempt, job.holds) == (attempt, ())
        if attempt % 4:
            for name in job.placement.nodes:
                site.step(Launched(job.id, attempt, 7, site.now_s, node=name))
            site.now_s += QUICK_S
        site.befalls(job, way)


def test_one_that_is_held_back_says_for_how_long_and_why_and_starts_where_it_is_released() -> None:
    site = Site("plain")
    for _ in range(3):
        while (job := site.job()) is not None and job.placement is None:
            site.step()
        assert job is not None
        site.befalls(job, "asks itself")
    job = site.job()
    assert job is not None
    assert sentence_of(hold_reason(job)) == (
        "BeginTime: not before it has waited 30 s, as it was queued again 3 times in a row within 20 s of a start; "
        "colane release lets it start at once"
    )
    site.step(ResumeRequested(job.id, "ann"))
    assert (released := site.job()) is not None
    assert released.placement is not None

"""What a job is told that gives its place up for another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core.events import Outcome
from colane.lab.simulate.process import Process
from colane.lab.simulate.run import Inputs, simulate
from colane.lab.simulate.world import NeutralWorld
from colane.model.reason import Why
from colane.model.sentences import sentence_of
from colane.scheduling import registry
from tests.simulate.scenes import cluster, job, workload


class Told:
    """What victims are told, in order."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        del now_s
        for one in outcome.jobs:
            for line in one.story:
                if line.reason.why is Why.PREEMPTED and sentence_of(line.reason) not in self.sentences:
                    self.sentences.append(sentence_of(line.reason))

    def started(self, process: Process, co_runners: object) -> None:
        """Not of interest."""


@pytest.mark.parametrize("policy", ["colane", "srtf", "las", "f-sched", "colocate"])
@pytest.mark.parametrize("duration_s", [50.0, 90_000.0])
def test_a_victim_of_an_urgent_job_is_told_that_it_was_for_priority(policy: str, duration_s: float) -> None:
    """Whatever either has left to do."""
    first = job(1, 0.0, 9000.0, steps=9000, share=False)
    urgent = job(2, 4000.0, duration_s, steps=100, share=False)
    told = Told()
    jobs = workload(first, replace(urgent, spec=replace(urgent.spec, priority=5)))
    given = Inputs(cluster=cluster(1), workload=jobs, world=NeutralWorld(), policy=registry.create(policy))
    simulate(given, watchers=lambda _: [told])
    assert told.sentences == ["stopped for job 2: it has a higher priority"]

"""Companies under `colane` grow by what was seen: alone first, then one by one; and nobody leaves for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from colane.core import Core
from colane.core.events import Outcome, Submitted
from colane.model.job import JobId, JobSpec, JobState
from colane.model.plan import Start, Stop
from colane.policies.registry import create
from colane.simulate.run import simulate
from tests.core.worlds import GIB
from tests.golden.workloads import sharing

from .test_colane import crowd, on_the_gpu


def test_who_was_never_alone_runs_alone_first_whatever_company_promises() -> None:
    core = crowd(0, {2: 1.05})
    for number in range(1, 4):
        spec = JobSpec(name="j", family="light", batch_size=128, steps_total=1000, gpu_memory_bytes=GIB)
        core.step([Submitted(JobId(number), spec)], float(number))
    assert on_the_gpu(core) == 1


def test_nobody_joins_several_before_it_was_seen_what_they_do_to_each_other() -> None:
    assert on_the_gpu(crowd(40, {3: 1.2})) == 2
    assert on_the_gpu(crowd(40, {2: 1.1, 3: 1.2})) > 2


@dataclass
class Futile:
    """Counts who was stopped for another and started again within a minute while that one still waited."""

    core: Core
    stopped: dict[JobId, tuple[JobId, float]] = field(default_factory=dict)
    stops: int = 0
    count: int = 0

    def outcome(self, outcome: Outcome, now_s: float) -> None:
        """See `Watcher`."""
        for decision in outcome.decisions:
            action = decision.action
            if isinstance(action, Stop) and action.for_job is not None:
                self.stops += 1
                self.stopped[action.job] = action.for_job, now_s
            if isinstance(action, Start) and action.job in self.stopped:
                taker, since_s = self.stopped.pop(action.job)
                waits = self.core.state.jobs.get(taker)
                self.count += waits is not None and waits.state is JobState.QUEUED and now_s < since_s + 60.0

    def started(self, _process: object, _company: Iterable[object]) -> None:
        """See `Watcher`."""


@pytest.mark.parametrize("draw", range(4))
def test_hardly_anybody_is_stopped_for_one_who_then_declines_the_place(draw: int) -> None:
    seen: list[Futile] = []

    def watch(core: Core) -> list[Futile]:
        seen.append(Futile(core))
        return seen

    simulate(sharing(create("colane"), 100 * draw), watchers=watch)
    assert seen[0].count <= seen[0].stops / 10
